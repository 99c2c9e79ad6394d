"""The CUDA backend: `radix_mask.cu`, built with NVRTC for the tensor's device. In place it allocates no device memory.

Tensors on the CPU are taken as well, for testing: the same source runs there, slowly, through g++ (`impls.cuda_build.host`).
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from impls.cuda_build import (
    BUILD_AXES,
    SUPPORTED_ARCHS,
    BuildOptions,
    Kernel,
    compile_cubin,
    execution,
    sm_count,
    translation_units,
    unavailable,
    unsupported_options,
)

from . import formats

__all__ = [
    "ARCHS",
    "BUILD_AXES",
    "SEMANTICS",
    "build",
    "execution",
    "launch",
    "translation_units",
    "unavailable",
    "unsupported",
]

ARCHS = SUPPORTED_ARCHS
SEMANTICS = {"ties": "all", "nan": "keep"}

_SOURCE = Path(__file__).with_name("radix_mask.cu")
_PARAMETERS = "PPqqqqPiqq"
_THREADS = 1024
_BLOCKS_PER_SM = 2


def unsupported(params: Mapping[str, object]) -> str | None:
    """Why this backend does not take `params`, or None."""
    return unsupported_options(params) or formats.unsupported(params)


def build(params: Mapping[str, object], arch: str) -> None:
    """Compiles all that a call with `params` can need; needs no GPU. Raises ValueError or BuildError."""
    if reason := unsupported(params):
        raise ValueError(reason)
    axes: dict[str, Any] = {axis: params.get(axis, values[0]) for axis, values in BUILD_AXES.items()}
    compile_cubin(_SOURCE, arch, BuildOptions(defines=_defines(str(params["dtype"])), **axes))


def launch(logits: Tensor, k: int | Tensor, out: Tensor) -> None:
    """Masks `logits` into `out`, asynchronously. The arguments have passed `arguments.check`, and no size is zero."""
    batch, vocab = logits.shape
    device = logits.get_device()
    kernel = _kernel(logits.dtype, vocab >= 1 << 32)
    grid = min(batch, _BLOCKS_PER_SM * sm_count(device))
    pointers_and_sizes = (logits.data_ptr(), out.data_ptr(), logits.stride(0), out.stride(0), batch, vocab)
    if isinstance(k, int):
        kernel(device, (grid, 1, 1), _THREADS, *pointers_and_sizes, 0, 0, 0, k)
    else:
        kernel(device, (grid, 1, 1), _THREADS, *pointers_and_sizes, k.data_ptr(), k.element_size(), k.stride(0), 0)


@functools.cache
def _kernel(dtype: torch.dtype, wide: bool) -> Kernel:
    options = BuildOptions(defines=_defines(formats.FORMATS[dtype].name))
    return Kernel(_SOURCE, "radix_mask_wide" if wide else "radix_mask", _PARAMETERS, options=options)


def _defines(dtype: str) -> tuple[tuple[str, str], ...]:
    return (("FORMAT", dtype.capitalize()),)
