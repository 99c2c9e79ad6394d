"""Faults in what is written, where the right elements were chosen."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.planted.top_k_mask_logits.arguments import prepare
from tests.planted.top_k_mask_logits.torch_ops import keys, kth_largest, row_k, write


def erases_nan(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """A NaN takes its slot and then becomes -inf, since no comparison with it holds. FI 0.7.4."""
    out = prepare(logits, k, out)
    key = keys(logits)
    return write(out, logits, (key >= kth_largest(key, row_k(k, logits))) & ~logits.isnan())


def finite_minus_infinity(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Masked elements become the dtype's lowest finite number instead of -inf. FlagAttention#25 (the usual cure)."""
    out = prepare(logits, k, out)
    key = keys(logits)
    keep = key >= kth_largest(key, row_k(k, logits))
    out.copy_(torch.where(keep, logits, torch.finfo(logits.dtype).min))
    return out


def returns_zeros(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Does nothing at all but clear its output. KernelBench#165."""
    return prepare(logits, k, out).zero_()


def wrong_dtype_out(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """A fresh result for 16-bit logits is float32, the type it was computed in. BackendBench, FI#5107."""
    given = out
    out = prepare(logits, k, out)
    key = keys(logits)
    write(out, logits, key >= kth_largest(key, row_k(k, logits)))
    return out if given is not None else out.to(torch.float32)
