"""Which GPUs the caller lets us use, without initialising CUDA: the parent of a sandbox must never touch it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path


def visible(environment: Mapping[str, str] = os.environ) -> list[str]:
    """What may stand in CUDA_VISIBLE_DEVICES, one string a GPU; empty without a GPU.

    The caller's CUDA_VISIBLE_DEVICES is a choice to respect, so its own words (indices, UUIDs, MIG names) come back.
    """
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        names = [name.strip() for name in chosen.split(",")]
        return names[: names.index("-1")] if "-1" in names else [name for name in names if name]
    nodes = [node.name for node in Path("/dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", node.name)]
    return [str(i) for i in range(len(nodes))]


def share(worker: int, environment: Mapping[str, str] = os.environ) -> str | None:
    """The GPU of a worker: one out of `visible`, in turn; None where there is none."""
    names = visible(environment)
    return names[worker % len(names)] if names else None


def resolve(device: str) -> str:
    """ "auto", "cpu" or "cuda" -> "cpu" or "cuda". Raises ValueError when cuda was asked for and there is no GPU."""
    if device == "auto":
        return "cuda" if visible() else "cpu"
    if device == "cuda" and not visible():
        raise ValueError("--device cuda: no GPU is visible here (see `warpcheck doctor`)")
    return device
