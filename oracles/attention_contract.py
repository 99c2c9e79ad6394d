"""Which calls of single_prefill are legal. Metadata and addresses only: nothing here reads an element."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oracles.overlap import overlaps_itself, same_view, share_a_byte

DTYPES = (torch.float16, torch.bfloat16)
HEAD_DIMS = (64, 128, 256)


LONGEST = (1 << 31) - (1 << 16)
"""Of queries and keys together. (The contract names no limit; a call beyond it needs expanded tensors to fit anywhere.)"""


def contract(
    q: object,
    k: object,
    v: object,
    *,
    causal: object = False,
    kv_layout: object = "NHD",
    window_left: object = -1,
    logits_soft_cap: object = None,
    alibi_slopes: object = None,
    custom_mask: object = None,
    sm_scale: object = None,
    use_fp16_qk_reduction: object = False,
    return_lse: object = False,
    out: object = None,
) -> str | None:
    """Why this call must raise ValueError or TypeError, or None when it is legal.

    q [qo, Hq, D]; k, v [kv, Hkv, D] (NHD) or [Hkv, kv, D] (HND). The reasons are few and name no sizes: they tell
    findings apart.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            return f"{name} is no tensor"
    assert isinstance(q, Tensor)
    assert isinstance(k, Tensor)
    assert isinstance(v, Tensor)
    flags = (
        ("causal", causal),
        ("use_fp16_qk_reduction", use_fp16_qk_reduction),
        ("return_lse", return_lse),
    )
    for name, flag in flags:
        if not isinstance(flag, bool):
            return f"{name} is no bool"
    return (
        _scalars(kv_layout, window_left, logits_soft_cap, sm_scale)
        or _inputs(q, k, v, hnd=kv_layout == "HND")
        or ("use_fp16_qk_reduction with bfloat16" if use_fp16_qk_reduction and q.dtype == torch.bfloat16 else None)
        or _slopes(alibi_slopes, q)
        or _mask(custom_mask, q, k.shape[1 if kv_layout == "HND" else 0], causal=bool(causal))
        or (None if out is None else _out(out, q, (("k", k), ("v", v), *_optional(custom_mask, alibi_slopes))))
    )


def _optional(custom_mask: object, alibi_slopes: object) -> list[tuple[str, Tensor]]:
    named = (("custom_mask", custom_mask), ("alibi_slopes", alibi_slopes))
    return [(name, x) for name, x in named if isinstance(x, Tensor)]


def _scalars(kv_layout: object, window_left: object, logits_soft_cap: object, sm_scale: object) -> str | None:
    if not isinstance(kv_layout, str) or kv_layout not in ("NHD", "HND"):
        return "kv_layout is neither NHD nor HND"
    if isinstance(window_left, bool) or not isinstance(window_left, int):
        return "window_left is no int"
    for name, number in (("sm_scale", sm_scale), ("logits_soft_cap", logits_soft_cap)):
        if number is not None and not _is_finite(number):
            return f"{name} is no finite number"
    if isinstance(logits_soft_cap, int | float) and logits_soft_cap < 0:
        return "logits_soft_cap is negative"
    return None


def _is_finite(number: object) -> bool:
    if isinstance(number, bool) or not isinstance(number, int | float):
        return False
    try:
        return math.isfinite(number)
    except OverflowError:  # an int that no float can hold
        return False


def _inputs(q: Tensor, k: Tensor, v: Tensor, *, hnd: bool) -> str | None:
    if not q.ndim == k.ndim == v.ndim == 3:
        return "q, k or v is not 3-D"
    if k.shape != v.shape:
        return "k and v differ in shape"
    if q.shape[2] != k.shape[2]:
        return "head dims differ"
    if q.shape[2] not in HEAD_DIMS:
        return "head dim is not supported"
    heads, kv_heads = q.shape[1], k.shape[0 if hnd else 1]
    if heads == 0 or kv_heads == 0:
        return "there are no heads"
    if heads % kv_heads:
        return "query heads are not a multiple of key heads"
    if q.shape[0] + k.shape[1 if hnd else 0] > LONGEST:
        return "more queries and keys than 32 bits count"
    if q.dtype not in DTYPES:
        return "q has an unsupported dtype"
    if not q.dtype == k.dtype == v.dtype:
        return "q, k and v differ in dtype"
    if not q.device == k.device == v.device:
        return "q, k and v are on different devices"
    if not q.stride(2) == k.stride(2) == v.stride(2) == 1:
        return "q, k or v has a last stride other than 1"
    return None


def _slopes(slopes: object, q: Tensor) -> str | None:
    if slopes is None:
        return None
    if not isinstance(slopes, Tensor):
        return "alibi_slopes is no tensor"
    if slopes.dtype != torch.float32:
        return "alibi_slopes is not float32"
    if slopes.shape != q.shape[1:2]:
        return "alibi_slopes is not [query heads]"
    return "alibi_slopes is on another device" if slopes.device != q.device else None


def _mask(mask: object, q: Tensor, kv_len: int, *, causal: bool) -> str | None:
    if mask is None:
        return None
    if not isinstance(mask, Tensor):
        return "custom_mask is no tensor"
    if mask.dtype != torch.bool:
        return "custom_mask is not bool"
    if mask.shape != (q.shape[0], kv_len):
        return "custom_mask is not [qo_len, kv_len]"
    if mask.device != q.device:
        return "custom_mask is on another device"
    return "custom_mask with causal" if causal else None


def _out(out: object, q: Tensor, others: tuple[tuple[str, Tensor], ...]) -> str | None:
    if not isinstance(out, Tensor):
        return "out is no tensor"
    if out.shape != q.shape:
        return "out has another shape"
    if out.dtype != q.dtype:
        return "out has another dtype"
    if out.device != q.device:
        return "out is on another device"
    if out.stride(2) != 1:
        return "out has a last stride other than 1"
    if overlaps_itself(out):
        return "out overlaps itself"
    if not same_view(out, q) and share_a_byte(out, q):
        return "out overlaps q partially"
    for name, other in others:
        if share_a_byte(out, other):
            return f"out overlaps {name}"
    return None
