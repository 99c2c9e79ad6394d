"""Checks of a single tensor that every operator makes. They read metadata and addresses only, never the device."""

from typing import Any

import torch
from torch import Tensor


def check_strided(name: str, x: Any) -> None:
    """Raises TypeError for what is no tensor, ValueError for one of another layout."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(x).__name__}")
    if x.layout is not torch.strided:
        raise ValueError(f"{name} must be strided, got {x.layout}")


def check_address(name: str, x: Tensor) -> None:
    """Raises ValueError unless a kernel can read x where it says it lies."""
    address = x.data_ptr()
    if address % x.element_size():
        raise ValueError(f"{name} must be aligned to its elements, got address {address:#x} for {x.dtype}")
    if not address and x.numel():
        raise ValueError(f"{name} has no memory behind it ({x.device})")


def check_memory(name: str, x: Tensor, operator: str) -> None:
    """Raises ValueError for whatever would make a kernel read other bytes than torch does, or torch miss a derivative."""
    if x.is_neg():
        raise ValueError(f"{name} is a lazily negated view; call resolve_neg() first")
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name} requires grad, and {operator} has no derivative; detach() it or use no_grad()")
    check_address(name, x)


def is_same_view(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one shape have every element at the same address (strides of sizes 0 and 1 don't matter)."""
    strides = zip(a.shape, a.stride(), b.stride())
    return a.data_ptr() == b.data_ptr() and all(size <= 1 or s == t for size, s, t in strides)
