"""The CUDA backend: `prefill.cu`, built with NVRTC for the tensors' device. It allocates no device memory.

Tensors on the CPU are taken as well, for testing: the same source runs there, slowly, through g++ (`impls.cuda_build.host`).

A caller's own hook takes the place of ALiBi and the soft cap. It is the name and the source of a type with this operator:

    LogitsTransform(
        source='''
            struct Nearby {
              __device__ float operator()(float score, const prefill::Position& at) const {
                return score - 0.01f * fabsf(at.distance) * (at.head + 1);
              }
            };
        ''',
        name="Nearby",
    )

`score` is sm_scale * q·k, in float whatever the products were accumulated in; `Position` is in `variants.cuh`. With
use_fp16_qk_reduction what the hook returns is rounded to half. The hook may be called for positions that don't exist.
"""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

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
    translation_units,
    unavailable,
    unsupported_options,
)

from . import formats
from .call import Call, LogitsTransform

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
SEMANTICS = {
    "lse": "log2",
    "tanh": "approximate",
    "p": "input",
    "fp16_scale": "power_of_two",
    "order": "sequential",
    "tile": "32",
    "dot": "tensor_core",
}

_SOURCE = Path(__file__).with_name("prefill.cu")
_PARAMETERS = "P" * 7 + "q" * 11 + "i" * 6 + "f" * 4
_MOST_BLOCKS = 65535
"""In y and in z, of a grid."""
_LEAST_POWER = 2.0**-100
"""Of two, that q is multiplied by: every product is zero long before, and zero itself would make NaN of an infinite q."""
_NAME = re.compile(r"[A-Za-z_]\w*(::[A-Za-z_]\w*)*")


class Tile(NamedTuple):
    """How a block works. A warp takes 16 or 32 rows; 32 halve the reads of shared memory, and take twice the registers."""

    warps: int
    warp_rows: int
    keys: int
    """In a tile of keys or values."""
    ahead: int
    """How many tiles of keys and how many of values there is room for."""
    blocks_per_sm: int
    """How many blocks' registers an SM must have room for."""

    @property
    def rows(self) -> int:
        return self.warps * self.warp_rows

    @property
    def threads(self) -> int:
        return 32 * self.warps

    def shared_bytes(self, head_dim: int) -> int:
        return 2 * head_dim * (self.rows + 2 * self.ahead * self.keys)

    def defines(self) -> tuple[tuple[str, str], ...]:
        names = ("WARPS", "WARP_ROWS", "TILE_KEYS", "AHEAD", "BLOCKS_PER_SM")
        return tuple(zip(names, map(str, self)))


# By head dimension. Code for sm_80 also runs on 8.6, so that what it uses must fit 99 KiB, as on sm_89 and sm_120.
_SMALL_SHARED_MEMORY = {64: Tile(4, 32, 64, 1, 3), 128: Tile(4, 32, 32, 1, 2), 256: Tile(4, 16, 32, 2, 1)}
_TILES = {
    "sm_80": {64: Tile(4, 32, 64, 2, 3), 128: Tile(4, 32, 64, 1, 2), 256: Tile(4, 16, 32, 1, 2)},
    "sm_89": _SMALL_SHARED_MEMORY,
    "sm_90a": {64: Tile(4, 32, 128, 2, 2), 128: Tile(4, 32, 64, 1, 2), 256: Tile(8, 16, 128, 1, 1)},
    "sm_100a": {64: Tile(4, 32, 128, 2, 2), 128: Tile(4, 32, 64, 1, 2), 256: Tile(8, 16, 128, 1, 1)},
    "sm_120a": _SMALL_SHARED_MEMORY,
}


def unsupported(params: Mapping[str, object]) -> str | None:
    """Why this backend does not take `params`, or None."""
    return unsupported_options(params) or formats.unsupported(params)


def build(params: Mapping[str, object], arch: str) -> None:
    """Compiles all that a call with `params` can need; needs no GPU. Raises ValueError or BuildError."""
    if reason := unsupported(params):
        raise ValueError(reason)
    if arch not in ARCHS:
        raise ValueError(f"arch must be one of {', '.join(ARCHS)}, got {arch!r}")
    axes: dict[str, Any] = {axis: params.get(axis, values[0]) for axis, values in BUILD_AXES.items()}
    head_dim = int(str(params.get("head_dim", 64)))
    defines = _defines(
        str(params.get("dtype", "float16")),
        head_dim,
        bool(params.get("fp16_qk", False)),
        str(params.get("mask", "none")),
        bool(params.get("window", False)),
        _built_in(bool(params.get("soft_cap", False)), bool(params.get("alibi", False))),
    )
    compile_cubin(_SOURCE, arch, BuildOptions(defines=defines + _TILES[arch][head_dim].defines(), **axes))


def launch(call: Call) -> None:
    """Attends, asynchronously. The call has passed the checks, and qo_len is not zero.

    Raises ValueError for a logits_transform whose name is none, and BuildError for one that does not compile.
    """
    qo_len, heads, head_dim = call.q.shape
    kv_len, kv_heads, _ = call.k.shape
    mask, slopes = call.custom_mask, call.alibi_slopes
    device = call.q.get_device()
    arch = host.current_options().arch if device < 0 else arch_of_device(device)
    tile = _TILES[str(arch)][head_dim]
    kernel = _kernel(
        tile,
        formats.DTYPES[call.q.dtype],
        head_dim,
        call.fp16_qk,
        "causal" if call.causal else "none" if mask is None else "custom",
        call.window_left >= 0,
        call.logits_transform or _built_in(bool(call.soft_cap), slopes is not None),
    )
    strides = [stride for x in (call.q, call.k, call.v, call.out) for stride in _strides(x)]
    aligned = not any(x.data_ptr() % 16 for x in (call.q, call.k, call.v, call.out)) and not any(s % 8 for s in strides)
    power, scale = formats.split_scale(call.sm_scale) if call.fp16_qk else (1.0, call.sm_scale)
    tiles = -(-qo_len // tile.rows)
    grid_y = min(tiles, _MOST_BLOCKS)
    kernel(
        device,
        (heads, grid_y, -(-tiles // grid_y)),
        tile.threads,
        *(x.data_ptr() for x in (call.q, call.k, call.v, call.out)),
        *(0 if x is None else x.data_ptr() for x in (call.lse, mask, slopes)),
        *strides,
        *((0, 0) if mask is None else mask.stride()),
        0 if slopes is None else slopes.stride(0),
        qo_len,
        kv_len,
        max(call.window_left, 0),
        heads,
        heads // kv_heads,
        aligned,
        scale,
        call.soft_cap,
        1.0 / call.soft_cap if call.soft_cap else 0.0,
        max(power, _LEAST_POWER),
    )


def _strides(x: Tensor) -> tuple[int, int]:
    """Of the first two dimensions; those that no second index uses do not count, and may not misalign a copy."""
    return x.stride(0) if x.shape[0] > 1 else 0, x.stride(1) if x.shape[1] > 1 else 0


def _built_in(soft_cap: bool, alibi: bool) -> str:
    """The struct of `variants.cuh` for these."""
    return {(False, False): "Plain", (False, True): "Alibi", (True, False): "SoftCap"}.get(
        (soft_cap, alibi), "AlibiThenSoftCap"
    )


@functools.cache
def _kernel(
    tile: Tile, dtype: str, head_dim: int, fp16_qk: bool, mask: str, window: bool, transform: str | LogitsTransform
) -> Kernel:
    prelude = ""
    if isinstance(transform, LogitsTransform):
        if not _NAME.fullmatch(transform.name):
            raise ValueError(f"logits_transform's name must be that of a C++ type, got {transform.name!r}")
        prelude = f'#include "variants.cuh"\n#line 1 "logits_transform"\n{transform.source}'
        transform = f"UserTransform<::{transform.name}>"
    options = BuildOptions(
        defines=_defines(dtype, head_dim, fp16_qk, mask, window, transform) + tile.defines(), prelude=prelude
    )
    return Kernel(_SOURCE, "single_prefill", _PARAMETERS, options=options, shared_bytes=tile.shared_bytes(head_dim))


def _defines(
    dtype: str, head_dim: int, fp16_qk: bool, mask: str, window: bool, transform: str
) -> tuple[tuple[str, str], ...]:
    return (
        ("INPUT", {"float16": "Half", "bfloat16": "Bfloat16"}[dtype]),
        ("ACCUMULATOR", "HalfAccumulator" if fp16_qk else "FloatAccumulator"),
        ("TRANSFORM", transform),
        ("MASK", mask.capitalize()),
        ("WINDOW", str(int(window))),
        ("HEAD_DIM", str(head_dim)),
    )
