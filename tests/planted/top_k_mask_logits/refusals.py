"""Faults in what is refused, and how."""

from __future__ import annotations

from torch import Tensor

from tests.planted.top_k_mask_logits.arguments import check, prepare
from tests.planted.top_k_mask_logits.torch_ops import keys, kth_largest, row_k, write


def raises_runtime_error(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """A negative k ends in a RuntimeError that names a C++ check. FI's TVM_FFI_ICHECK, torch's TORCH_CHECK."""
    if isinstance(k, int) and k < 0:
        raise RuntimeError("Check failed: k >= 0 (0 vs. 1)")
    check(logits, k, out)
    return _correct(logits, k, out)


def refuses_zero_rows(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """An empty batch, which is legal, ends in an error. FI#1027, #1888, flash-attention#2470 (a division on the host)."""
    check(logits, k, out)
    if logits.shape[0] == 0:
        raise ValueError("batch size must be positive")
    return _correct(logits, k, out)


def _correct(logits: Tensor, k: int | Tensor, out: Tensor | None) -> Tensor:
    out = prepare(logits, k, out)
    key = keys(logits)
    return write(out, logits, key >= kth_largest(key, row_k(k, logits)))
