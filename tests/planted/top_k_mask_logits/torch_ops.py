"""Correct pieces in plain torch: order-preserving integer keys, the k-th largest of each row, the masked copy."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.planted.top_k_mask_logits.arguments import FORMATS, bits


def keys(x: Tensor) -> Tensor:
    """int64 that orders like the values: both zeros are 0, every NaN is one above +inf."""
    form = FORMATS[x.dtype]
    raw = bits(x).to(torch.int64)
    magnitude = raw & form.largest
    ordered = torch.where(raw < 0, -magnitude, magnitude)
    return torch.where(magnitude > form.inf, form.inf + 1, ordered)


def row_k(k: int | Tensor, logits: Tensor) -> Tensor:
    """int64 [batch]: how many slots each row has, clipped to [0, vocab]."""
    batch, vocab = logits.shape
    if isinstance(k, Tensor):
        return k.to(torch.int64).clamp(0, vocab)
    return torch.full((batch,), min(k, vocab), dtype=torch.int64, device=logits.device)


def kth_largest(key: Tensor, k: Tensor) -> Tensor:
    """[batch, 1]: the k-th largest key of each row, or more than any key where k is 0."""
    above_all = torch.iinfo(key.dtype).max
    if key.shape[1] == 0:
        return key.new_full((key.shape[0], 1), above_all)
    ordered = key.sort(dim=1, descending=True).values
    kth = ordered.gather(1, (k[:, None] - 1).clamp(min=0))
    return torch.where(k[:, None] > 0, kth, above_all)


def write(out: Tensor, logits: Tensor, keep: Tensor) -> Tensor:
    """Fill out with the bits of logits where keep says so, else with -inf. The result is whole before out is touched."""
    source = bits(logits)
    masked = torch.where(keep, source, source.new_full((), FORMATS[logits.dtype].minus_inf))
    bits(out).copy_(masked)
    return out


def masked(logits: Tensor, k: int | Tensor, out: Tensor) -> Tensor:
    """The whole operator, right, of arguments that were checked. Returns out."""
    key = keys(logits)
    return write(out, logits, key >= kth_largest(key, row_k(k, logits)))
