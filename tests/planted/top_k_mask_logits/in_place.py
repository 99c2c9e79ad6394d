"""Faults about memory that is input and output at once, or that should not have been written."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.planted.top_k_mask_logits.arguments import FORMATS, check, prepare, rows_overlap
from tests.planted.top_k_mask_logits.torch_ops import keys, kth_largest, row_k, write

IN_REGISTERS = 16
"""Rows up to this length are read once and kept."""


def in_place_rereads(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Each step of the search also writes the mask for its pivot; in place, a pivot too high destroys elements that later
    steps read again. Rows of up to 16 elements are read only once, and come out right. FI#1900, vLLM#30846."""
    out = prepare(logits, k, out)
    form = FORMATS[logits.dtype]
    source = logits.clone() if logits.shape[1] <= IN_REGISTERS else logits
    slots = row_k(k, logits)[:, None]
    low = torch.full_like(slots, -form.largest - 1)
    for bit in reversed(range(form.width)):
        pivot = low + (1 << bit)
        above = keys(source) >= pivot
        write(out, source, above)
        low = torch.where(above.sum(dim=1, keepdim=True) >= slots, pivot, low)
    return write(out, source, keys(source) >= low)


def changes_input(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Masks its input and copies that to out: right values, and the caller's logits are gone. vLLM#30846, triton#781."""
    out = prepare(logits, k, out)
    if rows_overlap(logits):
        logits = logits.contiguous()
    key = keys(logits)
    write(logits, logits, key >= kth_largest(key, row_k(k, logits)))
    return write(out, logits, torch.ones_like(key, dtype=torch.bool))


def accepts_partial_overlap(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Nobody looks whether out lies partly on logits. torch#17935, #23063, #48900."""
    check(logits, k, out, overlap=False)
    if out is None:
        out = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    key = keys(logits)
    return write(out, logits, key >= kth_largest(key, row_k(k, logits)))
