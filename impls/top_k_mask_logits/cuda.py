"""The CUDA backend: `bracket_mask.cu`, built with NVRTC for the tensor's device. In place it allocates no device memory.

Tensors on the CPU are taken as well, for testing: the same source runs there, slowly, through g++ (`impls.cuda_build.host`).
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from impls.cuda_build import (
    BUILD_AXES,
    SUPPORTED_ARCHS,
    BuildOptions,
    Kernel,
    arch_of_device,
    compile_cubin,
    execution,
    host,
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

_PARAMETERS = "PPqqqqPiqq"
_BRACKET = Path(__file__).with_name("bracket_mask.cu")
_RADIX = Path(__file__).with_name("radix_mask.cu")
_RADIX_THREADS = 1024
_WIDE = 1 << 32
"""Elements of a row from which on `radix_mask.cu` takes it, and counts in 64 bits."""
_MAX_GRID = (1 << 31) - 1

# sm_120 has clusters too; whether they are worth it there has not been measured.
_CLUSTERED = ("sm_90a", "sm_100a")
_CLUSTERS = (1, 2, 4, 8, 16)


class Tuning(NamedTuple):
    """How the kernel is compiled; see tuning.cuh."""

    threads: int = 512
    """In a block."""
    sample: int = 8192
    """Elements sampled in a row; also how many candidates a row may have. A multiple of the threads."""
    candidates: int = 6144
    """How many candidates a block may have …"""
    candidates_in_cluster: int = 4096
    """… that shares a row."""
    blocks_per_sm: int = 2
    """How many blocks' registers an SM must have room for."""
    batch: int = 2
    """16-byte packs that a thread loads before it looks at the first …"""
    depth: int = 4
    """… or, for a small k, that are under way while it looks at others …"""
    unroll: int = 4
    """… of which it looks at so many in one turn of a loop."""
    sigmas: float = 5
    """Half the bracket's width in the sample, in standard deviations of where the k-th largest element is there …"""
    most_sigmas: float = 3.5
    """… of them at most when k is not small: a wider bracket has more candidates, at 4 too many in one of ten rows of 128256
    elements with k = 64128 …"""
    margin: int = 2
    """… and this many elements. Smaller numbers make narrower brackets, which miss more often."""

    def shared_bytes(self, element_size: int, clustered: bool) -> int:
        read = max(16 * self.depth * self.threads, self.sample * element_size)
        kept = self._candidates(clustered) * (element_size + 4)
        shown = 16 * 32 + (self.sample if clustered else 1) * element_size
        return -(-(read + kept + shown + 5 * self.threads + 3 * 1024 + 112) // 16) * 16

    def defines(self, element_size: int, clustered: bool) -> tuple[tuple[str, str], ...]:
        values = {
            **self._asdict(),
            "candidates": self._candidates(clustered),
            "clusters": int(clustered),
            "shared_bytes": self.shared_bytes(element_size, clustered),
        }
        return tuple((name.upper(), str(value)) for name, value in values.items())

    def _candidates(self, clustered: bool) -> int:
        return self.candidates_in_cluster if clustered else self.candidates


_TUNING = Tuning()


def _tuning(arch: str | None, element_size: int) -> Tuning:
    """sm_80 has 164 KB of shared memory an SM: with fewer candidates of 32 bits, and narrower brackets to go with them, there is
    room for two blocks. (sm_89 and sm_120 have 100 KB, room for one.)"""
    if arch != "sm_80" or element_size < 4:
        return _TUNING
    return _TUNING._replace(candidates=min(_TUNING.candidates, 5440), most_sigmas=min(_TUNING.most_sigmas, 3))


def unsupported(params: Mapping[str, object]) -> str | None:
    """Why this backend does not take `params`, or None."""
    return unsupported_options(params) or formats.unsupported(params)


def build(params: Mapping[str, object], arch: str) -> None:
    """Compiles all that a call with `params` can need; needs no GPU. Raises ValueError or BuildError."""
    if reason := unsupported(params):
        raise ValueError(reason)
    axes: dict[str, Any] = {axis: params.get(axis, values[0]) for axis, values in BUILD_AXES.items()}
    dtype = str(params["dtype"])
    tuning = _tuning(arch, formats.BY_NAME[dtype].bits.itemsize)
    for clustered in (False, True) if arch in _CLUSTERED else (False,):
        compile_cubin(_BRACKET, arch, BuildOptions(defines=_defines(dtype, clustered, tuning), **axes))
    compile_cubin(_RADIX, arch, BuildOptions(defines=(_format(dtype),), **axes))


def launch(logits: Tensor, k: int | Tensor, out: Tensor) -> None:
    """Masks `logits` into `out`, asynchronously. The arguments have passed `arguments.check`, and no size is zero."""
    batch, vocab = logits.shape
    device = logits.get_device()
    if vocab >= _WIDE:
        kernel, threads, blocks = _radix_kernel(logits.dtype), _RADIX_THREADS, min(batch, sm_count(device))
    else:
        arch = host.current_options().arch if device < 0 else arch_of_device(device)
        tuning = _tuning(arch, logits.element_size())
        cluster = _cluster(device, arch, batch, vocab * logits.element_size())
        kernel, threads = _kernel(logits.dtype, cluster, tuning), tuning.threads
        blocks = min(batch, _MAX_GRID // cluster) * cluster
    pointers_and_sizes = (logits.data_ptr(), out.data_ptr(), logits.stride(0), out.stride(0), batch, vocab)
    if isinstance(k, int):
        kernel(device, (blocks, 1, 1), threads, *pointers_and_sizes, 0, 0, 0, k)
    else:
        kernel(device, (blocks, 1, 1), threads, *pointers_and_sizes, k.data_ptr(), k.element_size(), k.stride(0), 0)


def _cluster(device: int, arch: str | None, batch: int, row_bytes: int) -> int:
    """How many blocks share a row: as many as leave no SM idle, if each thread still has something to read. Waiting for each
    other costs more than it brings when there are rows for all SMs."""
    if arch not in _CLUSTERED:
        return 1
    wanted = sm_count(device) // batch
    most = row_bytes // (16 * _TUNING.threads * 2)
    return max(c for c in _CLUSTERS if c <= max(1, min(wanted, most)))


@functools.cache
def _kernel(dtype: torch.dtype, cluster: int, tuning: Tuning) -> Kernel:
    options = BuildOptions(defines=_defines(formats.FORMATS[dtype].name, cluster > 1, tuning))
    shared_bytes = tuning.shared_bytes(dtype.itemsize, cluster > 1)
    return Kernel(_BRACKET, "bracket_mask", _PARAMETERS, options=options, shared_bytes=shared_bytes, cluster=cluster)


@functools.cache
def _radix_kernel(dtype: torch.dtype) -> Kernel:
    return Kernel(
        _RADIX, "radix_mask", _PARAMETERS, options=BuildOptions(defines=(_format(formats.FORMATS[dtype].name),))
    )


def _defines(dtype: str, clustered: bool, tuning: Tuning) -> tuple[tuple[str, str], ...]:
    return (_format(dtype), *tuning.defines(formats.BY_NAME[dtype].bits.itemsize, clustered))


def _format(dtype: str) -> tuple[str, str]:
    return "FORMAT", dtype.capitalize()
