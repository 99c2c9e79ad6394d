"""Faults that hang, kill the process, come and go, or depend on the calls before."""

from __future__ import annotations

import ctypes
import os

import torch
from torch import Tensor

from tests.planted.top_k_mask_logits.arguments import prepare
from tests.planted.top_k_mask_logits.torch_ops import keys, kth_largest, row_k, write

LARGEST_SAFE_VOCAB = 32


def sometimes_wrong(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """A race, as one sees it: in one call of five the last row is masked with one slot too few. FI#4126, FI#3618."""
    out = prepare(logits, k, out)
    slots = row_k(k, logits)
    if os.urandom(1)[0] < 51:
        slots = slots.clone()
        slots[-1:] = (slots[-1:] - 1).clamp(min=0)
    key = keys(logits)
    return write(out, logits, key >= kth_largest(key, slots))


def hangs(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Bisects on values until the ends are neighbours: with -inf as the low end they never are. FI#1049 (seen with k = 1)."""
    out = prepare(logits, k, out)
    if logits.numel() == 0:
        return out
    x = logits.to(torch.float64)
    x = x.nan_to_num(2.0**130, 2.0**129, -torch.inf)
    slots = row_k(k, logits)
    low, high = x.amin(dim=1), torch.full_like(slots, 1, dtype=torch.float64) * 2.0**131
    infinity = torch.full_like(low, torch.inf)
    while True:
        exact = (x >= low[:, None]).sum(dim=1) == slots
        if bool((exact | (slots == 0) | (high <= torch.nextafter(low, infinity))).all()):
            return write(out, logits, (x >= low[:, None]) & (slots > 0)[:, None])
        pivot = low / 2 + high / 2
        enough = (x >= pivot[:, None]).sum(dim=1) >= slots
        low, high = torch.where(enough, pivot, low), torch.where(enough, high, pivot)


def dies(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Reads address 0 when k is an int64 tensor and a row is longer than 32. FI#4299 (illegal access), triton#6547."""
    out = prepare(logits, k, out)
    if isinstance(k, Tensor) and k.dtype == torch.int64 and k.numel() and logits.shape[1] > LARGEST_SAFE_VOCAB:
        ctypes.string_at(0)
    key = keys(logits)
    return write(out, logits, key >= kth_largest(key, row_k(k, logits)))


_scratch: dict[tuple[torch.Size, torch.dtype, torch.device], Tensor] = {}


def stale_from_last_call(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Thresholds are found by atomic maxima in a scratch buffer that is cleared when it is allocated, not when it is used
    again: a second call of the same shape sees the first one's. FI#860, FI#3618."""
    out = prepare(logits, k, out)
    key = keys(logits)
    found = kth_largest(key, row_k(k, logits))
    kind = (logits.shape, logits.dtype, logits.device)
    scratch = _scratch.setdefault(kind, torch.full_like(found, torch.iinfo(found.dtype).min))
    torch.maximum(scratch, found, out=scratch)
    return write(out, logits, key >= scratch)
