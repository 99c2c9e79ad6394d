"""Faults in which elements are chosen."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.planted.top_k_mask_logits.arguments import FORMATS, bits, prepare
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


def stale_histogram(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """A row with k >= vocab leaves its histogram to the next row of the persistent loop. FI#2325."""
    out = prepare(logits, k, out)
    form = FORMATS[logits.dtype]
    least, top = -form.largest - 1, form.width - 4
    thresholds = []
    left_over = torch.zeros(16, dtype=torch.int64, device=logits.device)
    for key, slots in zip(keys(logits), row_k(k, logits)):
        counts = left_over + _at_least(key, least, top)
        # A row that keeps everything is done at once; only the long way round clears the histogram.
        left_over = counts if slots >= len(key) else torch.zeros_like(counts)
        threshold = least
        if slots < len(key):
            for shift in range(top, -1, -4):
                counts = counts if shift == top else _at_least(key, threshold, shift)
                threshold += (int((counts >= slots).sum()) - 1) << shift
        thresholds.append(threshold)
    return write(out, logits, keys(logits) >= torch.tensor(thresholds, device=logits.device)[:, None])


def _at_least(key: Tensor, low: int, shift: int) -> Tensor:
    """int64 [16]: how many keys are at least low + (digit << shift), for each digit."""
    pivots = low + (torch.arange(16, device=key.device) << shift)
    return (key[:, None] >= pivots).sum(0)


def misses_its_bracket(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Every other element is a sample, whose largest is taken for the row's: a k-th element above it is never looked for."""
    out = prepare(logits, k, out)
    key = keys(logits)
    kth = kth_largest(key, row_k(k, logits))
    if logits.numel():
        highest = key[:, ::2].amax(dim=1, keepdim=True)
        kth = torch.where((row_k(k, logits) > 0)[:, None], torch.minimum(kth, highest), kth)
    return write(out, logits, key >= kth)


def forgets_candidates(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """One pass masks what is below a bound, and each of eight lanes notes two elements that it keeps, to choose among: what a
    third would be is not masked any more."""
    out = prepare(logits, k, out)
    key = keys(logits)
    slots = row_k(k, logits)
    kth = kth_largest(key, slots)
    # The k-th largest of a part is a lower bound; a part that has no k elements gives none.
    part = key[:, ::2]
    bound = kth_largest(part, slots.clamp(max=part.shape[1])) if part.shape[1] else kth
    bound = torch.where((slots > part.shape[1])[:, None], torch.iinfo(key.dtype).min, bound)
    kept = key >= bound
    noted = torch.zeros_like(kept)
    for lane in range(8):
        noted[:, lane::8] = kept[:, lane::8] & (kept[:, lane::8].cumsum(dim=1) <= 2)
    return write(out, logits, kept & ((key >= kth) | ~noted))


def pads_with_nan(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """A sample gives a bound, below which all is masked. What fills up the sample's last vector of 16 bytes is all ones in
    16 bits, a NaN, instead of -inf: Triton 3.6 makes 0xffff of the upper half of a masked vector's negative `other`."""
    out = prepare(logits, k, out)
    key = keys(logits)
    slots = row_k(k, logits)
    kth = kth_largest(key, slots)
    if logits.numel() and logits.dtype != torch.float32:
        form = FORMATS[logits.dtype]
        sample = key[:, ::2]
        missing = (-sample.shape[1]) % 8
        other = torch.tensor([-form.inf, form.inf + 1] * 4, dtype=key.dtype, device=key.device)[8 - missing :]
        sample = torch.cat([sample, other.expand(len(key), missing)], dim=1)
        # The k-th largest of a part is a lower bound; a part that has no k elements gives none.
        useful = (slots > 0) & (slots <= (logits.shape[1] + 1) // 2) & (slots < logits.shape[1])
        bound = kth_largest(sample, slots.clamp(max=sample.shape[1]))
        kth = torch.where(useful[:, None], torch.maximum(kth, bound), kth)
    return write(out, logits, key >= kth)
