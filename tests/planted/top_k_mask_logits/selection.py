"""Faults in which elements are chosen."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tests.planted.top_k_mask_logits.arguments import FORMATS, bits, prepare
from tests.planted.top_k_mask_logits.kernels import count_digits, launch, raise_low, read_k, write_masked
from tests.planted.top_k_mask_logits.torch_ops import keys, kth_largest, row_k, write


def drops_ties(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Keeps exactly k elements, the first of a tie, instead of all that equal the k-th. vLLM#50979."""
    out = prepare(logits, k, out)
    order = keys(logits).argsort(dim=1, descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(
        1, order, torch.arange(logits.shape[1], device=order.device).expand_as(order)
    )
    return write(out, logits, rank < row_k(k, logits)[:, None])


def k_at_vocab_off_by_one(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """k is clipped to vocab - 1, so that k >= vocab loses the smallest element. FI#384, FI#2202."""
    out = prepare(logits, k, out)
    slots = row_k(k, logits).clamp(max=max(logits.shape[1] - 1, 0))
    key = keys(logits)
    return write(out, logits, key >= kth_largest(key, slots))


def minus_zero_below_zero(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """The usual sign-flip key, which puts -0.0 below +0.0. (Radix selects of the FI kind.)"""
    out = prepare(logits, k, out)
    form = FORMATS[logits.dtype]
    raw = bits(logits).to(torch.int64)
    key = torch.where(raw < 0, raw ^ form.largest, raw)
    key = torch.where(logits.isnan(), form.inf + 1, key)
    return write(out, logits, key >= kth_largest(key, row_k(k, logits)))


def rounds_to_half(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """float32 is compared after rounding to bfloat16, so near-ties of the k-th stay. FI#5107 (16-bit intermediates)."""
    out = prepare(logits, k, out)
    key = keys(logits.to(torch.bfloat16) if logits.dtype == torch.float32 else logits)
    return write(out, logits, key >= kth_largest(key, row_k(k, logits)))


def gives_up_searching(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Bisects on values, but stops after 18 steps or at a range of 1e-9: one huge outlier, or a tiny spread.
    vLLM's Triton mask."""
    out = prepare(logits, k, out)
    if logits.numel() == 0:
        return out
    x = logits.to(torch.float64).nan_to_num(2.0**130, 2.0**129, -(2.0**129))
    slots = row_k(k, logits)
    low = x.amin(dim=1)
    high = torch.nextafter(x.amax(dim=1), torch.full_like(low, torch.inf))
    for _ in range(18):
        pivot = low / 2 + high / 2
        enough = (x >= pivot[:, None]).sum(dim=1) >= slots
        searching = high - low >= 1e-9
        low, high = torch.where(searching & enough, pivot, low), torch.where(searching & ~enough, pivot, high)
    return write(out, logits, (x >= low[:, None]) & (slots > 0)[:, None])


@triton.jit(do_not_specialize=["k_value", "batch", "vocab"])
def _persistent(
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
    first = tl.program_id(0).to(tl.int64)
    left_over = tl.zeros([16], tl.int32)
    i = 0
    while i < batch:
        row = first + i
        x_row, out_row = x_ptr + row * x_stride, out_ptr + row * out_stride
        k = read_k(k_ptr, k_value, k_stride, row, vocab, PER_ROW)
        low = k * 0 - MAX - 1
        counts = left_over + count_digits(x_row, vocab, low, WIDTH - 4, INF, MAX, BLOCK)
        threshold = raise_low(low, counts, k, WIDTH - 4)
        for step in range(1, WIDTH // 4):
            shift = WIDTH - 4 - 4 * step
            threshold = raise_low(threshold, count_digits(x_row, vocab, threshold, shift, INF, MAX, BLOCK), k, shift)
        # A row that keeps everything is done at once; only the long way round clears the histogram.
        threshold = tl.where(k >= vocab, low, threshold)
        left_over = tl.where(k >= vocab, counts, 0)
        start = 0
        while start < vocab:
            write_masked(out_row, x_row, start + tl.arange(0, BLOCK), vocab, vocab, threshold, INF, MAX)
            start += BLOCK
        i += 1


def stale_histogram(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """A row with k >= vocab leaves its histogram to the next row of the persistent loop. FI#2325."""
    return launch(_persistent, logits, k, prepare(logits, k, out), programs=1)
