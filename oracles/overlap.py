"""Which bytes a strided tensor lies on: exact answers for the contracts, whatever the rank, the strides and the dtypes.

A tensor's bytes are taken as *runs* of adjacent ones, so that rows of one tensor between the rows of another are told
from real overlap. Only metadata and addresses are read.
"""

from __future__ import annotations

import torch
from torch import Tensor


def same_view(a: Tensor, b: Tensor) -> bool:
    """Whether every index of a and b is the same address (strides of dimensions of size 1 do not matter)."""
    if a.shape != b.shape or a.data_ptr() != b.data_ptr():
        return False
    return all(n == 1 or s == t for n, s, t in zip(a.shape, a.stride(), b.stride()))


def share_a_byte(a: Tensor, b: Tensor) -> bool:
    """Exact test: sort a's runs, then ask of each of b's whether any of a's ends after its start and starts before its end."""
    if a.numel() == 0 or b.numel() == 0 or a.device != b.device:
        return False
    a_start, a_end = _span(a)
    b_start, b_end = _span(b)
    if a_end <= b_start or b_end <= a_start:
        return False
    starts, run = _runs(a)
    starts = starts.sort().values
    other, other_run = _runs(b)
    # Of the runs of a that start before b's end, the last one ends last: they are all of one length.
    before = torch.searchsorted(starts, other + other_run)
    reach = torch.where(before > 0, starts[(before - 1).clamp(min=0)] + run, torch.iinfo(torch.int64).min)
    return bool((reach > other).any())


def overlaps_itself(x: Tensor) -> bool:
    """Whether two different indices of x are the same element."""
    if x.numel() == 0:
        return False
    dimensions = [(stride, n) for n, stride in zip(x.shape, x.stride()) if n > 1]
    reach = 0
    for stride, n in sorted(dimensions):
        if stride <= reach:
            break
        reach += (n - 1) * stride
    else:
        return False
    if any(stride == 0 for stride, _ in dimensions):
        return True
    starts, run = _runs(x)
    return bool((starts.sort().values.diff() < run).any())


def _span(x: Tensor) -> tuple[int, int]:
    """The first byte and the one behind the last."""
    last = sum((n - 1) * stride for n, stride in zip(x.shape, x.stride()))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size()


def _runs(x: Tensor) -> tuple[Tensor, int]:
    """Start addresses of the runs of adjacent bytes (int64 on the CPU), and the length that all of them have.

    Every index lies in a run; a dimension of stride 0 adds none.
    """
    run = x.element_size()
    starts = torch.tensor([x.data_ptr()], dtype=torch.int64)
    for stride, n in sorted((stride * x.element_size(), n) for n, stride in zip(x.shape, x.stride())):
        if n == 1 or stride == 0:
            continue
        if stride == run and len(starts) == 1:
            run *= n
        else:
            starts = (starts[:, None] + torch.arange(n, dtype=torch.int64) * stride).reshape(-1)
    return starts, run
