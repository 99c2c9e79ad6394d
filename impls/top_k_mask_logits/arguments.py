"""The checks of every call, before a byte is written. They read metadata and addresses only, never the device."""

import operator
from typing import Any

import torch
from torch import Tensor

from impls.checks import check_address, check_memory, check_strided, is_same_view
from impls.overlap import region_of, share_a_byte

from .formats import FORMATS


def check(logits: Any, k: Any, out: Any) -> int | Tensor:
    """Raises TypeError or ValueError unless the call is legal; returns k as the backends take it.

    That is an int in [0, vocab], or the int32/int64 tensor [batch] as it was given, whose values nobody has looked at.
    `out` is None, `logits` (or another tensor object that is the same view), or a tensor that shares no byte with it.
    """
    check_strided("logits", logits)
    if logits.dim() != 2:
        raise ValueError(f"logits must be [batch, vocab], got shape {list(logits.shape)}")
    if logits.dtype not in FORMATS:
        raise TypeError(f"logits must be float32, float16 or bfloat16, got {logits.dtype}")
    _check_layout("logits", logits)
    checked_k = _check_k(logits, k)
    if out is not None:
        _check_out(logits, checked_k, out)
    return checked_k


def clip(k: int, vocab: int) -> int:
    """An int k in [0, vocab]. Raises TypeError for a bool or anything that is no integer, ValueError below zero."""
    if isinstance(k, bool):
        raise TypeError("k must be an int or an int32/int64 tensor [batch], got bool")
    try:
        value = operator.index(k)
    except TypeError:
        message = f"k must be an int or an int32/int64 tensor [batch], got {type(k).__name__}"
        raise TypeError(message) from None
    if value < 0:
        raise ValueError(f"k must not be negative, got {value}")
    return min(value, vocab)


def _check_layout(name: str, x: Tensor) -> None:
    """For a 2-D strided tensor of a known dtype: whatever would make a kernel read other bytes than torch does."""
    if x.shape[1] > 1 and x.stride(1) != 1:
        raise ValueError(f"{name} must have a last stride of 1, got strides {list(x.stride())}")
    check_memory(name, x, "top_k_mask_logits")


def _check_k(logits: Tensor, k: Any) -> int | Tensor:
    if not isinstance(k, Tensor):
        return clip(k, logits.shape[1])
    check_strided("k", k)
    if k.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"k must be an int32 or int64 tensor, got {k.dtype}")
    if k.dim() != 1 or k.shape[0] != logits.shape[0]:
        raise ValueError(f"k must have shape [{logits.shape[0]}], one for each row of logits, got {list(k.shape)}")
    if k.device != logits.device:
        raise ValueError(f"k must be on {logits.device} like logits, got {k.device}")
    check_address("k", k)
    return k


def _check_out(logits: Tensor, k: int | Tensor, out: Any) -> None:
    if out is not logits:
        check_strided("out", out)
        if out.shape != logits.shape:
            raise ValueError(f"out must have logits' shape {list(logits.shape)}, got {list(out.shape)}")
        if out.dtype != logits.dtype:
            raise TypeError(f"out must have logits' dtype {logits.dtype}, got {out.dtype}")
        if out.device != logits.device:
            raise ValueError(f"out must be on {logits.device} like logits, got {out.device}")
        _check_layout("out", out)
    name = "logits" if out is logits else "out"
    batch, vocab = out.shape
    if batch > 1 and out.stride(0) < vocab:
        raise ValueError(f"rows of {name} must not overlap to be written, got strides {list(out.stride())}")
    if out is not logits and not is_same_view(out, logits) and share_a_byte(region_of(out), region_of(logits)):
        raise ValueError("out must be logits itself or share no byte with it, got a partial overlap")
    if isinstance(k, Tensor) and share_a_byte(region_of(out), region_of(k)):
        raise ValueError(f"{name} is written and must share no byte with k")
