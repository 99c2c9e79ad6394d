"""Faults about where a tensor lies: strides, item sizes, alignment."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.planted.top_k_mask_logits.arguments import prepare, rows_overlap
from tests.planted.top_k_mask_logits.torch_ops import masked

VECTOR_BYTES = 16


def ignores_row_stride(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Rows are taken to start vocab elements apart, so padded rows are read from the padding. FI 0.7.4, strides unchecked."""
    out = prepare(logits, k, out)
    if rows_overlap(logits):
        logits = logits.contiguous()
    return masked(logits.as_strided(logits.shape, (logits.shape[1], 1)), k, out)


def ignores_k_stride(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """A strided k tensor is read as dense memory (an expanded one is made dense first). FI 0.7.4; FI#1634."""
    out = prepare(logits, k, out)
    if isinstance(k, Tensor) and k.numel() > 1 and k.stride(0) == 0:
        k = k.contiguous()
    return masked(logits, k.as_strided(k.shape, (1,)) if isinstance(k, Tensor) else k, out)


def k_int64_read_as_int32(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """An int64 k tensor is read as int32: row 1 gets the upper half of row 0's k. FI#5347."""
    out = prepare(logits, k, out)
    if isinstance(k, Tensor):
        k = k.clone(memory_format=torch.contiguous_format).view(torch.int32)[: len(k)]
    return masked(logits, k, out)


def assumes_alignment(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """The vector path asks for sizes and strides, not addresses: misaligned rows are read and written up to 15 bytes early.
    FI 0.7.4, FI#441."""
    out = prepare(logits, k, out)
    per_vector = VECTOR_BYTES // logits.element_size()
    if all(n % per_vector == 0 for n in (logits.shape[1], logits.stride(0), out.stride(0))):
        same = out is logits
        logits = _aligned_down(logits)
        masked(logits, k, logits if same else _aligned_down(out))
        return out
    return masked(logits, k, out)


def _aligned_down(x: Tensor) -> Tensor:
    """The tensor that vector loads reach where the hardware drops the low bits of an address."""
    skew = x.data_ptr() % VECTOR_BYTES // x.element_size()
    return x.as_strided(x.shape, x.stride(), x.storage_offset() - skew)
