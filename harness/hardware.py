"""What the oracles have to know of the device: how its tensor cores sum."""

from __future__ import annotations

import importlib
from functools import cache

import torch

from oracles.rounding import UNKNOWN, TensorCore


@cache
def tensor_core(device: str) -> TensorCore:
    """The model of the tensor cores on "cuda", probed there; on "cpu" the one that covers all that are supported.

    Where the probe cannot be built or run, or finds what no model describes, it is that one too.
    """
    if device != "cuda":
        return UNKNOWN
    probe = importlib.import_module("impls.cuda_build.tensor_core").probe
    try:
        found = probe(torch.device("cuda", torch.cuda.current_device()))
    except RuntimeError:
        return UNKNOWN
    if found.block < 2 or not found.half_to_nearest:
        return UNKNOWN
    return TensorCore(found.block, found.extra_bits, found.truncates)
