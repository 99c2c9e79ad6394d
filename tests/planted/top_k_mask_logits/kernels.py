"""Correct pieces in Triton: a radix select of 4 bits a pass on integer keys, and the masked copy; one program a row.

Rows are read as integers, so that no float arithmetic can touch a value (the interpreter has none for bfloat16).
Loops to a bound known only at run time are while loops: Triton 3.6 interprets no such range under a recent NumPy.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from tests.planted.top_k_mask_logits.arguments import FORMATS, bits


@triton.jit
def read_keys(row_ptr, at, bound, INF: tl.constexpr, MAX: tl.constexpr):
    """Order-preserving int64 keys of the elements `at`; less than any key from `bound` on."""
    raw = tl.load(row_ptr + at, mask=at < bound, other=0).to(tl.int64)
    magnitude = raw & MAX
    key = tl.where(raw < 0, -magnitude, magnitude)
    key = tl.where(magnitude > INF, INF + 1, key)
    return tl.where(at < bound, key, -MAX - 2)


@triton.jit
def read_k(k_ptr, k_value, k_stride, row, vocab, PER_ROW: tl.constexpr):
    """The slots of one row as int64, clipped to [0, vocab]."""
    if PER_ROW:
        k = tl.load(k_ptr + row * k_stride).to(tl.int64)
    else:
        k = row * 0 + k_value
    return tl.minimum(tl.maximum(k, 0), vocab)


@triton.jit
def count_digits(row_ptr, bound, low, shift, INF: tl.constexpr, MAX: tl.constexpr, BLOCK: tl.constexpr):
    """int32 [16]: how many keys are at least low + (digit << shift), for each digit."""
    pivots = low + (tl.arange(0, 16).to(tl.int64) << shift)
    counts = tl.zeros([16], tl.int32)
    start = 0
    while start < bound:
        key = read_keys(row_ptr, start + tl.arange(0, BLOCK), bound, INF, MAX)
        counts += tl.sum((key[:, None] >= pivots[None, :]).to(tl.int32), axis=0)
        start += BLOCK
    return counts


@triton.jit
def raise_low(low, counts, k, shift):
    """Add the largest digit that leaves at least k keys."""
    digit = tl.sum((counts >= k).to(tl.int64), axis=0) - 1
    return low + (digit << shift)


@triton.jit
def find_threshold(row_ptr, bound, k, INF: tl.constexpr, MAX: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """The k-th largest of the first `bound` keys of a row; MAX, more than any key, for k = 0."""
    low = k * 0 - MAX - 1
    for step in range(WIDTH // 4):
        shift = WIDTH - 4 - 4 * step
        low = raise_low(low, count_digits(row_ptr, bound, low, shift, INF, MAX, BLOCK), k, shift)
    return low


@triton.jit
def write_masked(out_ptr, row_ptr, at, vocab, bound, threshold, INF: tl.constexpr, MAX: tl.constexpr):
    """Write the elements `at` below `bound`; those of the row are below `vocab`."""
    raw = tl.load(row_ptr + at, mask=at < vocab, other=0)
    key = read_keys(row_ptr, at, vocab, INF, MAX)
    tl.store(out_ptr + at, tl.where(key >= threshold, raw, INF - MAX - 1), mask=at < bound)


@triton.jit(do_not_specialize=["k_value", "batch", "vocab"])
def select(
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
):
    """The whole operator, right: in place too, since a program reads all of its row before it writes any of it."""
    row = tl.program_id(0).to(tl.int64)
    x_row, out_row = x_ptr + row * x_stride, out_ptr + row * out_stride
    k = read_k(k_ptr, k_value, k_stride, row, vocab, PER_ROW)
    threshold = find_threshold(x_row, vocab, k, INF, MAX, WIDTH, BLOCK)
    start = 0
    while start < vocab:
        write_masked(out_row, x_row, start + tl.arange(0, BLOCK), vocab, vocab, threshold, INF, MAX)
        start += BLOCK


def block_for(vocab: int) -> int:
    return min(max(triton.next_power_of_2(vocab), 16), 1024)


def launch(
    kernel: Any,
    logits: Tensor,
    k: int | Tensor,
    out: Tensor,
    *,
    programs: int | None = None,
    x_stride: int | None = None,
    k_stride: int | None = None,
    block: int | None = None,
    **constants: int,
) -> Tensor:
    """Start `kernel`, which has select's parameters, with one program a row unless told otherwise. Returns out."""
    batch, vocab = logits.shape
    if logits.numel() == 0 or programs == 0:
        return out
    form = FORMATS[logits.dtype]
    per_row = isinstance(k, Tensor)
    x = bits(logits)
    if per_row and k_stride is None:
        k_stride = k.stride(0)
    with torch.cuda.device(logits.device) if logits.is_cuda else nullcontext():
        kernel[(batch if programs is None else programs,)](
            x,
            bits(out),
            k if per_row else x,
            0 if per_row else min(k, vocab),
            batch,
            vocab,
            logits.stride(0) if x_stride is None else x_stride,
            out.stride(0),
            k_stride or 0,
            PER_ROW=per_row,
            INF=form.inf,
            MAX=form.largest,
            WIDTH=form.width,
            BLOCK=block_for(vocab) if block is None else block,
            **constants,
        )
    return out
