"""The contract's checks, and the views that a kernel works on. Correct; every planted fault starts from here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True)
class Format:
    """A float format seen as signed integers: its width in bits, the bits of +inf, those of -inf, and the largest int."""

    width: int
    inf: int
    integer: torch.dtype

    @property
    def largest(self) -> int:
        return (1 << (self.width - 1)) - 1

    @property
    def minus_inf(self) -> int:
        return self.inf - self.largest - 1


FORMATS = {
    torch.float32: Format(32, 0x7F800000, torch.int32),
    torch.float16: Format(16, 0x7C00, torch.int16),
    torch.bfloat16: Format(16, 0x7F80, torch.int16),
}


class Rows(NamedTuple):
    """`count` runs of `length` bytes, the first at address `start`, each `step` bytes after the one before."""

    start: int
    step: int
    count: int
    length: int


def rows_of(x: Tensor) -> Rows:
    """The bytes of a [batch, n] tensor with adjacent elements, or of a [batch] tensor with any stride."""
    size = x.element_size()
    length = size * (x.shape[1] if x.ndim == 2 else 1)
    return Rows(x.data_ptr(), x.stride(0) * size, x.shape[0] if length else 0, length)


def rows_overlap(x: Tensor) -> bool:
    """Whether two rows of a [batch, n] tensor have an element in common."""
    return x.shape[0] > 1 and x.shape[1] > 0 and x.stride(0) < x.shape[1]


def share_a_byte(a: Rows, b: Rows) -> bool:
    """Exact: for each row of a, look at the first row of b that ends after that row's start."""
    if not a.count or not b.count:
        return False
    start = a.start + a.step * torch.arange(a.count, dtype=torch.int64)
    if b.step:
        nearest = ((start - b.length - b.start) // b.step + 1).clamp(min=0)
    else:
        nearest = torch.zeros_like(start)
    other = b.start + b.step * nearest
    return bool(((nearest < b.count) & (other + b.length > start) & (other < start + a.length)).any())


def same_view(a: Tensor, b: Tensor) -> bool:
    """Whether both are the same memory, index for index."""
    if a is b:
        return True
    steps = zip(a.shape, a.stride(), b.stride())
    return a.shape == b.shape and a.data_ptr() == b.data_ptr() and all(n <= 1 or s == t for n, s, t in steps)


def check(logits: Tensor, k: int | Tensor, out: Tensor | None, *, overlap: bool = True) -> None:
    """Raise TypeError or ValueError for a call that the contract forbids. `overlap` False skips one check: out on logits."""
    if not isinstance(logits, Tensor) or logits.dtype not in FORMATS:
        raise TypeError("logits must be a float32, float16 or bfloat16 tensor")
    if logits.ndim != 2 or (logits.shape[1] > 1 and logits.stride(1) != 1):
        raise ValueError("logits must be [batch, vocab] with adjacent elements in a row")
    if isinstance(k, Tensor):
        if k.dtype not in (torch.int32, torch.int64):
            raise TypeError("a k tensor must be int32 or int64")
        if k.shape != logits.shape[:1] or k.device != logits.device:
            raise ValueError("a k tensor must be [batch], on the device of logits")
    elif isinstance(k, bool) or not isinstance(k, int):
        raise TypeError("k must be an int or a tensor")
    elif k < 0:
        raise ValueError("k must not be negative")
    if out is None:
        return
    if not isinstance(out, Tensor) or out.dtype != logits.dtype:
        raise TypeError("out must be a tensor of the dtype of logits")
    if out.shape != logits.shape or out.device != logits.device or (out.shape[1] > 1 and out.stride(1) != 1):
        raise ValueError("out must have the shape and device of logits, and adjacent elements in a row")
    if rows_overlap(out):
        raise ValueError("rows of out overlap")
    if overlap and not same_view(out, logits) and share_a_byte(rows_of(out), rows_of(logits)):
        raise ValueError("out overlaps logits partially")
    if isinstance(k, Tensor) and share_a_byte(rows_of(out), rows_of(k)):
        raise ValueError("out overlaps k")


def prepare(logits: Tensor, k: int | Tensor, out: Tensor | None) -> Tensor:
    """Check the call; the tensor to write, which is a fresh contiguous one when out is None."""
    check(logits, k, out)
    return torch.empty(logits.shape, dtype=logits.dtype, device=logits.device) if out is None else out


def bits(x: Tensor) -> Tensor:
    """x as signed integers of the same size."""
    return x.view(FORMATS[x.dtype].integer)
