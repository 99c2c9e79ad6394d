"""The fault that the flag is known for, to be found by building alone: half times float, without a cast."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from impls.cuda_build import BuildOptions, compile_cubin, translation_units

__all__ = ["ARCHS", "BUILD_AXES", "build", "half_times_float", "translation_units", "unsupported"]

ARCHS = ("sm_80", "sm_90a", "sm_120a")
BUILD_AXES = {"half_operators": (True, False)}
SOURCE = Path(__file__).with_name("no_cast.cu")


def half_times_float(q: Any, k: Any, v: Any, **kwargs: Any) -> Any:
    """It is here to be built."""
    raise NotImplementedError


def unsupported(params: Mapping[str, object]) -> str | None:
    """A part of the matrix is enough."""
    if params["head_dim"] != 64 or params["mask"] == "custom":
        return "one head dim, and no custom masks"
    return None


def build(params: Mapping[str, object], arch: str) -> None:
    accumulator = "__half" if params["fp16_qk"] else "float"
    options = BuildOptions(half_operators=bool(params["half_operators"]), defines=(("ACCUMULATOR", accumulator),))
    compile_cubin(SOURCE, arch, options)
