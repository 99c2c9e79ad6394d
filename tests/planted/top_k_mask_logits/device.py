"""Faults for a GPU only: they break the device's context, or never end. Interpreted they would take the process along."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from tests.planted.top_k_mask_logits.arguments import bits, prepare
from tests.planted.top_k_mask_logits.kernels import find_threshold, launch, read_k, select, write_masked

LARGEST_SAFE_VOCAB = 100


@triton.jit
def _store_far_away(out_ptr, DISTANCE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    tl.store(out_ptr + DISTANCE + row, 0)


def illegal_address(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Rows of more than 100 elements also store 2^42 elements away, outside any allocation. FI#4299, vLLM#46560."""
    out = launch(select, logits, k, prepare(logits, k, out))
    if logits.numel() and logits.shape[1] > LARGEST_SAFE_VOCAB:
        _store_far_away[(logits.shape[0],)](bits(out), DISTANCE=1 << 42)
    return out


@triton.jit(do_not_specialize=["k_value", "batch", "vocab"])
def _wait_for_flag(
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
    row = tl.program_id(0).to(tl.int64)
    x_row, out_row = x_ptr + row * x_stride, out_ptr + row * out_stride
    k = read_k(k_ptr, k_value, k_stride, row, vocab, PER_ROW)
    threshold = find_threshold(x_row, vocab, k, INF, MAX, WIDTH, BLOCK)
    # The smallest key of the row tells whether it holds -inf. Nobody ever changes the word that the loop waits on.
    lowest = find_threshold(x_row, vocab, k * 0 + vocab, INF, MAX, WIDTH, BLOCK)
    waiting = (lowest == -INF) & (k == 1)
    seen = tl.load(x_row, volatile=True)
    now = seen
    while waiting & (now == seen):
        now = tl.load(x_row, volatile=True)
    start = 0
    while start < vocab:
        write_masked(out_row, x_row, start + tl.arange(0, BLOCK), vocab, vocab, threshold, INF, MAX)
        start += BLOCK


def spins(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """A row that holds -inf, with k = 1, waits for a word that never changes. FI#1049, FI#3610, vLLM#43885."""
    return launch(_wait_for_flag, logits, k, prepare(logits, k, out))
