"""Correct, but written in ways that a suspicious reader, or a careless harness, might take for wrong."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.planted.top_k_mask_logits.arguments import FORMATS, bits, prepare
from tests.planted.top_k_mask_logits.kernels import launch, select
from tests.planted.top_k_mask_logits.torch_ops import keys, row_k, write


def full_sort(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Sorts whole rows in float64, stably, and takes the threshold through the permutation."""
    out = prepare(logits, k, out)
    if logits.numel() == 0:
        return out
    x = logits.to(torch.float64)
    slots = row_k(k, logits)[:, None]
    # torch sorts NaN last in ascending order: above +inf, as the contract wants it.
    order = x.argsort(dim=1, stable=True)
    last = order.gather(1, (logits.shape[1] - slots).clamp(max=logits.shape[1] - 1))
    threshold = x.gather(1, last)
    keep = (x >= threshold) | x.isnan()
    return write(out, logits, torch.where(threshold.isnan(), x.isnan(), keep) & (slots > 0))


def bisection(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Bisects on integer keys until low and high are neighbours: as many steps as the format has bits, and one."""
    out = prepare(logits, k, out)
    form = FORMATS[logits.dtype]
    key = keys(logits)
    slots = row_k(k, logits)[:, None]
    low = torch.full_like(slots, -form.inf)  # at least k keys are no smaller
    high = torch.full_like(slots, form.inf + 2)  # fewer than k keys are no smaller, or k is 0
    while bool((high - low > 1).any()):
        pivot = (low + high) // 2
        enough = (key >= pivot).sum(dim=1, keepdim=True) >= slots
        low, high = torch.where(enough, pivot, low), torch.where(enough, high, pivot)
    return write(out, logits, (key >= low) & (slots > 0))


def float64_inside(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Works in float64, marks by topk, and fetches the original bits through a gather of indices."""
    out = prepare(logits, k, out)
    batch, vocab = logits.shape
    x = logits.to(torch.float64)
    slots = row_k(k, logits)
    most = int(slots.max()) if batch else 0
    if most == 0:
        return write(out, logits, torch.zeros_like(x, dtype=torch.bool))
    best = x.topk(most, dim=1, sorted=True).values
    threshold = best.gather(1, (slots[:, None] - 1).clamp(min=0))
    below = (x < threshold) | (threshold.isnan() & ~x.isnan()) | (slots == 0)[:, None]
    columns = torch.arange(vocab, device=logits.device).expand(batch, vocab)
    # As integers: torch's gather of bfloat16 does not keep a NaN's bits on the CPU.
    original = bits(logits).gather(1, columns).view(logits.dtype)
    return write(out, original, ~below)


def triton_correct(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """The Triton kernel that the faults were made from: 16 pivots a pass, 4 bits at a time."""
    return launch(select, logits, k, prepare(logits, k, out))
