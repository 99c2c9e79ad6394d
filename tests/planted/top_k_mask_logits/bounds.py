"""Faults at the edges of a row and of the grid."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tests.planted.top_k_mask_logits.arguments import FORMATS, bits, check, prepare
from tests.planted.top_k_mask_logits.kernels import block_for, find_threshold, launch, read_k, write_masked
from tests.planted.top_k_mask_logits.torch_ops import keys, kth_largest, row_k, write

STORE = 64
"""Elements written at a time."""

ROWS = 4
"""Rows of one program."""


def tail_not_masked(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elements past the last full block of 64 are copied, never masked. FI#2202, and every vocabulary that is no multiple."""
    out = prepare(logits, k, out)
    key = keys(logits)
    keep = key >= kth_largest(key, row_k(k, logits))
    keep[:, logits.shape[1] // STORE * STORE :] = True
    return write(out, logits, keep)


def reads_past_end(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Loads without a mask: memory behind the row, up to a power of two, takes part in the selection. torch#95595, FI#1005."""
    out = prepare(logits, k, out)
    batch, vocab = logits.shape
    if logits.numel() == 0:
        return out
    block = min(triton.next_power_of_2(vocab), 1024)
    read = keys(logits.as_strided((batch, -(-vocab // block) * block), logits.stride()))
    return write(out, logits, read[:, :vocab] >= kth_largest(read, row_k(k, logits)))


def writes_past_end(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Store mask `<=` instead of `<`: one element behind each row becomes -inf (not where blocks fit exactly). torch#95595."""
    check(logits, k, out)
    if out is None:
        # As a caching allocator would: an allocation has room behind it, and nobody sees the stray write.
        room = torch.empty(logits.numel() + 64, dtype=logits.dtype, device=logits.device)
        out = room[: logits.numel()].view(logits.shape)
    batch, vocab = logits.shape
    key = keys(logits)
    keep = key >= kth_largest(key, row_k(k, logits))
    masked = torch.where(keep, bits(logits), FORMATS[logits.dtype].minus_inf)
    if vocab % block_for(vocab) and batch:
        stray = bits(out).as_strided((batch,), (out.stride(0),), out.storage_offset() + vocab)
        stray.fill_(FORMATS[logits.dtype].minus_inf)
    bits(out).copy_(masked)  # a row's own store comes after its neighbour's stray one
    return out


@triton.jit(do_not_specialize=["k_value", "batch", "vocab"])
def _several_rows(
    x_ptr,
    out_ptr,
    k_ptr,
    k_value,
    batch,
    vocab,
    x_stride,
    out_stride,
    k_stride,
    PER_ROW: tl.constexpr,
    INF: tl.constexpr,
    MAX: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    first = tl.program_id(0).to(tl.int64) * ROWS
    for i in range(ROWS):
        row = first + i
        x_row, out_row = x_ptr + row * x_stride, out_ptr + row * out_stride
        k = read_k(k_ptr, k_value, k_stride, row, vocab, PER_ROW)
        threshold = find_threshold(x_row, vocab, k, INF, MAX, WIDTH, BLOCK)
        start = 0
        while start < vocab:
            write_masked(out_row, x_row, start + tl.arange(0, BLOCK), vocab, vocab, threshold, INF, MAX)
            start += BLOCK


def rows_left_unwritten(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """The grid is batch // 4 programs of 4 rows: the last batch % 4 rows are never written. vLLM#50979 (batch size matters)."""
    out = prepare(logits, k, out)
    return launch(_several_rows, logits, k, out, programs=logits.shape[0] // ROWS, ROWS=ROWS)
