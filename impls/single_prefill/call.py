"""One checked call, as the backends take it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class LogitsTransform:
    """A user's CUDA code in place of the built-in transform of the scores (ALiBi and soft cap): the "cuda" backend only.

    source: CUDA C++ that defines the hook; name: what the hook is called there.
    """

    source: str
    name: str


@dataclass(frozen=True, eq=False)
class Call:
    """A call that has passed the checks: shapes, dtypes, devices and overlaps are right, and defaults are filled in.

    Any of qo_len and kv_len may be zero. Strides are in elements; last strides are 1 but for the mask and the slopes.
    """

    q: Tensor
    """[qo_len, Hq, D] float16 or bfloat16"""
    k: Tensor
    """[kv_len, Hkv, D], whatever the layout was: a view by strides"""
    v: Tensor
    """[kv_len, Hkv, D], likewise"""
    out: Tensor
    """[qo_len, Hq, D], written; may be the very view q"""
    lse: Tensor | None
    """[qo_len, Hq] float32, contiguous, written; None when nobody asked for it"""
    causal: bool
    window_left: int
    """-1 (off) or the number of keys to the left that a query sees besides its own"""
    soft_cap: float
    """0.0 when off, else between 2^-120 and 2^125: float32 can divide by it"""
    alibi_slopes: Tensor | None
    """[Hq] float32, any stride"""
    custom_mask: Tensor | None
    """[qo_len, kv_len] bool, any strides; then `causal` is False"""
    sm_scale: float
    """0.0, or a normal number of float32"""
    fp16_qk: bool
    """Whether q·k is accumulated in float16; then the inputs are float16"""
    logits_transform: LogitsTransform | None
    tuning: Mapping[str, Any]
    """One of the backend's TUNING"""
