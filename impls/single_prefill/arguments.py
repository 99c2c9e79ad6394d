"""The checks of every call, before a byte is written. They read metadata and addresses only, never the device."""

import math
import numbers
import operator
from typing import Any

import torch
from torch import Tensor

from impls.checks import check_memory, check_strided, is_same_view
from impls.overlap import overlaps_itself, region_of, share_a_byte

from .call import LogitsTransform
from .formats import DTYPES, HEAD_DIMS

LAYOUTS = ("NHD", "HND")
LONGEST = (1 << 31) - (1 << 16)
"""Of queries and keys together: kernels count both in 32 bits, and tiles go past the end."""

_FLOAT = torch.finfo(torch.float32)
_CAPS = (2.0**-120, 2.0**125)
"""Kernels divide by the soft cap in float32. A cap beyond these bounds changes no score below 2^113."""


def check_tensors(q: Any, k: Any, v: Any, kv_layout: Any) -> tuple[Tensor, Tensor]:
    """Raises TypeError or ValueError unless these are legal together; returns k and v viewed as [kv_len, Hkv, D]."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_strided(name, x)
        if x.dim() != 3:
            raise ValueError(f"{name} must have three dimensions, got shape {list(x.shape)}")
        if x.dtype not in DTYPES:
            raise TypeError(f"{name} must be float16 or bfloat16, got {x.dtype}")
    if not isinstance(kv_layout, str) or kv_layout not in LAYOUTS:
        raise ValueError(f"kv_layout must be NHD or HND, got {kv_layout!r}")
    if k.shape != v.shape:
        raise ValueError(f"k and v must have one shape, got {list(k.shape)} and {list(v.shape)}")
    if kv_layout == "HND":
        k, v = k.transpose(0, 1), v.transpose(0, 1)
    (qo_len, heads, head_dim), (kv_len, kv_heads, kv_head_dim) = q.shape, k.shape
    if head_dim != kv_head_dim:
        raise ValueError(f"q and k must have one head dimension, got {head_dim} and {kv_head_dim}")
    if head_dim not in HEAD_DIMS:
        raise ValueError(f"the head dimension must be one of {', '.join(map(str, HEAD_DIMS))}, got {head_dim}")
    if not heads or not kv_heads or heads % kv_heads:
        raise ValueError(
            f"q's heads must be a multiple of k's in {kv_layout}, and not zero, got {heads} and {kv_heads}"
        )
    if qo_len + kv_len > LONGEST:
        raise ValueError(f"qo_len + kv_len must be at most {LONGEST}, got {qo_len} + {kv_len}")
    for name, x in (("k", k), ("v", v)):
        _check_same(name, x, q)
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_memory(name, x, "single_prefill")
        _check_last_stride(name, x)
    return k, v


def check_mask(mask: Any, causal: Any, q: Tensor, k: Tensor) -> None:
    """For a custom_mask that may be None, and k as [kv_len, Hkv, D]."""
    check_flag("causal", causal)
    if mask is None:
        return
    check_strided("custom_mask", mask)
    if causal:
        raise ValueError("custom_mask replaces causal; both at once are ambiguous")
    if mask.dtype != torch.bool:
        raise TypeError(f"custom_mask must be bool, got {mask.dtype}")
    if mask.shape != (q.shape[0], k.shape[0]):
        raise ValueError(f"custom_mask must have shape {[q.shape[0], k.shape[0]]}, got {list(mask.shape)}")
    _check_device("custom_mask", mask, q)
    check_memory("custom_mask", mask, "single_prefill")


def check_slopes(slopes: Any, q: Tensor) -> None:
    """For alibi_slopes that may be None."""
    if slopes is None:
        return
    check_strided("alibi_slopes", slopes)
    if slopes.dtype != torch.float32:
        raise TypeError(f"alibi_slopes must be float32, got {slopes.dtype}")
    if slopes.shape != (q.shape[1],):
        raise ValueError(
            f"alibi_slopes must have shape {[q.shape[1]]}, one for each head of q, got {list(slopes.shape)}"
        )
    _check_device("alibi_slopes", slopes, q)
    check_memory("alibi_slopes", slopes, "single_prefill")


def check_out(out: Any, q: Tensor, inputs: dict[str, Tensor | None]) -> None:
    """For an `out` that is not None. `inputs`: what else is read, by name."""
    if out is not q:
        check_strided("out", out)
        if out.shape != q.shape:
            raise ValueError(f"out must have q's shape {list(q.shape)}, got {list(out.shape)}")
        _check_same("out", out, q)
        check_memory("out", out, "single_prefill")
        _check_last_stride("out", out)
    if overlaps_itself(out):
        raise ValueError(f"elements of out must not overlap to be written, got strides {list(out.stride())}")
    written = region_of(out)
    if out is not q and not is_same_view(out, q) and share_a_byte(written, region_of(q)):
        raise ValueError("out must be q itself or share no byte with it, got a partial overlap")
    for name, x in inputs.items():
        if x is not None and share_a_byte(written, region_of(x)):
            raise ValueError(f"out is written and must share no byte with {name}")


def check_transform(transform: Any, soft_cap: float, slopes: Tensor | None) -> None:
    """For a logits_transform that may be None."""
    if transform is None:
        return
    if not isinstance(transform, LogitsTransform):
        raise TypeError(f"logits_transform must be a LogitsTransform, got {type(transform).__name__}")
    if soft_cap or slopes is not None:
        raise ValueError("logits_transform replaces ALiBi and the soft cap; they cannot be asked for as well")


def check_flag(name: str, value: Any) -> None:
    """A bool and nothing like one."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, got {type(value).__name__}")


def scale_of(sm_scale: Any, head_dim: int) -> float:
    """sm_scale as a float, 1/sqrt(D) for None. What is not zero is brought into the range of float32's normal numbers."""
    if sm_scale is None:
        return 1.0 / math.sqrt(head_dim)
    scale = _finite("sm_scale", sm_scale)
    return math.copysign(min(max(abs(scale), _FLOAT.tiny), _FLOAT.max), scale) if scale else 0.0


def soft_cap_of(logits_soft_cap: Any) -> float:
    """The soft cap as a float that a kernel can divide by, 0.0 when it is off."""
    if logits_soft_cap is None:
        return 0.0
    cap = _finite("logits_soft_cap", logits_soft_cap)
    if cap < 0:
        raise ValueError(f"logits_soft_cap must not be negative, got {cap}")
    return min(max(cap, _CAPS[0]), _CAPS[1]) if cap else 0.0


def window_of(window_left: Any, kv_len: int) -> int:
    """The window as an int in [-1, kv_len]; -1 is off."""
    if isinstance(window_left, bool):
        raise TypeError("window_left must be an int, got bool")
    try:
        value = operator.index(window_left)
    except TypeError:
        raise TypeError(f"window_left must be an int, got {type(window_left).__name__}") from None
    return max(-1, min(value, kv_len))


def _finite(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {number}")
    return number


def _check_same(name: str, x: Tensor, q: Tensor) -> None:
    if x.dtype != q.dtype:
        raise TypeError(f"{name} must have q's dtype {q.dtype}, got {x.dtype}")
    _check_device(name, x, q)


def _check_device(name: str, x: Tensor, q: Tensor) -> None:
    if x.device != q.device:
        raise ValueError(f"{name} must be on {q.device} like q, got {x.device}")


def _check_last_stride(name: str, x: Tensor) -> None:
    if x.stride(2) != 1:
        raise ValueError(f"{name} must have a last stride of 1, got strides {list(x.stride())}")
