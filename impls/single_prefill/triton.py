"""The Triton backend: the kernel of `triton_kernel`, its variants and its launch. It allocates no device memory."""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from triton import cdiv
from triton import compile as compile_source
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from . import formats
from .call import Call
from .triton_kernel import attend

ARCHS = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")
TUNING: tuple[dict[str, Any], ...] = (
    {"block_q": 128, "block_kv": 64, "num_warps": 8, "num_stages": 3},
    {"block_q": 128, "block_kv": 128, "num_warps": 8, "num_stages": 2},
    {"block_q": 64, "block_kv": 64, "num_warps": 4, "num_stages": 3},
    {"block_q": 64, "block_kv": 32, "num_warps": 4, "num_stages": 2},
    {"block_q": 16, "block_kv": 32, "num_warps": 4, "num_stages": 2},
    {"block_q": 16, "block_kv": 16, "num_warps": 2, "num_stages": 1},
)
"""The most of each; blocks that don't fit a device's shared memory are halved."""

# The interpreter's tl.dot is NumPy's matmul, which sums halves in float32 and rounds once. A GPU has every dot product from
# instructions of 16 products each, wgmma, mma.sync or tcgen05, that the compiler puts in the order of d.
SEMANTICS = {
    "lse": "log2",
    "tanh": {"cpu": "exact", "cuda": "approximate"},
    "p": "input",
    "fp16_scale": "power_of_two",
    "fp16_sums": {"cpu": "rounded", "cuda": "accumulated"},
    "order": {"cpu": "any", "cuda": "sequential"},
    "tile": "16",
    "dot": "tensor_core",
}

_SHARED_MEMORY = {80: 163, 87: 163, 90: 227, 100: 227, 103: 227}
"""KiB of shared memory that a program may use, by compute capability."""
_LEAST_SHARED_MEMORY = 99

_EARLY_BELOW = 2.0**12
"""Caps below which a row's largest score is taken from before tanh. Another may exceed it by 2^-10 of itself, by the error
of tanh.approx, and its weight is then up to 2^6 and not 1."""
_LOG2_E = 1.4426950408889634
_FLOAT = torch.finfo(torch.float32)


def unsupported(params: Mapping[str, object]) -> str | None:
    """Why this backend does not take `params`, or None."""
    return formats.unsupported(params, len(TUNING))


def build(params: Mapping[str, object], arch: str) -> None:
    """Compiles every variant that a call with `params` can need; needs no GPU.

    Raises ValueError for params or an arch that are not supported, RuntimeError if the kernel was imported under
    TRITON_INTERPRET=1 or needs more shared memory than the arch has, and whatever Triton's compiler raises.
    """
    if reason := unsupported(params):
        raise ValueError(reason)
    if arch not in ARCHS:
        raise ValueError(f"arch must be one of {', '.join(ARCHS)}, got {arch!r}")
    if not isinstance(attend, JITFunction):
        raise RuntimeError("nothing can be compiled under TRITON_INTERPRET=1; unset it before this module is imported")
    capability = int(arch.removeprefix("sm_").removesuffix("a"))
    tuning = TUNING[int(str(params.get("tuning", 0)))]
    for constants, options in _variants(params, tuning, capability):
        source = _ast_source(params, constants)
        kernel = compile_source(source, target=GPUTarget("cuda", capability, 32), options=options)
        if kernel.metadata.shared > _shared_memory(capability):
            raise RuntimeError(f"{kernel.metadata.shared} bytes of shared memory are more than {arch} has")


def unavailable(device: torch.device) -> str | None:
    """Why this backend cannot run on `device`, or None."""
    if isinstance(attend, JITFunction):
        return None if device.type == "cuda" else f"it needs tensors on a GPU, or TRITON_INTERPRET=1; got {device}"
    return None


def launch(call: Call) -> None:
    """Attends, asynchronously. The call has passed the checks, and qo_len is not zero."""
    qo_len, heads, head_dim = call.q.shape
    kv_len, kv_heads, _ = call.k.shape
    interpreted = not isinstance(attend, JITFunction)
    major, minor = torch.cuda.get_device_capability(call.q.device) if call.q.is_cuda else (0, 0)
    mask, slopes = call.custom_mask, call.alibi_slopes
    blocks, options = _fitted(call.tuning, head_dim, mask is not None, 10 * major + minor)
    strides = [stride for x in (call.q, call.k, call.v, call.out) for stride in _strides(x)]
    aligned = all(x.data_ptr() % 16 == 0 for x in (call.q, call.k, call.v, call.out)) and not any(
        s % 8 for s in strides
    )
    if aligned:
        strides = [stride // 8 for stride in strides]
    transform = bool(call.soft_cap) or call.alibi_slopes is not None
    q_factor, scale = _scales(call.sm_scale, call.fp16_qk, transform)
    bits = interpreted and call.q.dtype == torch.bfloat16
    constants = _constants(
        head_dim,
        call.fp16_qk,
        call.causal,
        call.window_left >= 0,
        bool(call.soft_cap),
        bool(call.soft_cap) and slopes is None and call.soft_cap < _EARLY_BELOW,
        aligned,
        interpreted,
        bits,
    )

    def run() -> None:
        attend[(cdiv(qo_len, blocks["BLOCK_Q"]) * heads,)](
            *(x.view(torch.int16) if bits else x for x in (call.q, call.k, call.v, call.out)),
            call.lse if call.lse is not None else torch.empty(0, dtype=torch.float32, device=call.q.device),
            slopes,
            None if mask is None else mask.view(torch.uint8),
            *strides,
            *((0, 0) if mask is None else mask.stride()),
            0 if slopes is None else slopes.stride(0),
            qo_len,
            kv_len,
            heads,
            heads // kv_heads,
            call.window_left,
            int(call.lse is not None),
            q_factor,
            scale,
            call.soft_cap,
            1.0 / call.soft_cap if call.soft_cap else 0.0,
            **constants,
            **blocks,
            **options,
        )

    if call.q.is_cuda and torch.cuda.current_device() != call.q.get_device():
        with torch.cuda.device(call.q.device):
            run()
    else:
        run()


def _strides(x: Tensor) -> tuple[int, int]:
    """Of rows and heads; those of sizes 0 and 1 are never used and must not spoil the alignment."""
    row, head = (stride if size > 1 else 0 for size, stride in zip(x.shape[:2], x.stride()))
    return row, head


def _scales(sm_scale: float, fp16_qk: bool, transform: bool) -> tuple[float, float]:
    """(q_factor, scale) of the kernel, whose scale has to be positive: its greatest score is found before it is scaled."""
    if not sm_scale:
        return 0.0, 1.0
    power, rest = formats.split_scale(abs(sm_scale)) if fp16_qk else (1.0, abs(sm_scale))
    return math.copysign(power, sm_scale), min(rest if transform else rest * _LOG2_E, _FLOAT.max)


def _shared_memory(capability: int) -> int:
    return 1024 * _SHARED_MEMORY.get(capability, _LEAST_SHARED_MEMORY)


def _fitted(
    tuning: Mapping[str, int], head_dim: int, custom_mask: bool, capability: int
) -> tuple[dict[str, int], dict[str, Any]]:
    """Blocks and compiler options: of the tuning, or the next smaller that fit into shared memory."""
    q, kv, warps, stages = (tuning[name] for name in ("block_q", "block_kv", "num_warps", "num_stages"))
    while _needed(q, kv, stages, head_dim, custom_mask) > _shared_memory(capability):
        if stages > 2:
            stages -= 1
        elif kv > 32:
            kv //= 2
        else:
            q, warps = q // 2, max(1, warps // 2)
    # Fusion is asked for, so that no version's default and no environment decides over the bits of a result.
    return {"BLOCK_Q": q, "BLOCK_KV": kv}, {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True}


def _needed(q: int, kv: int, stages: int, head_dim: int, custom_mask: bool) -> int:
    """Bytes of shared memory: queries, keys and values by stages, a mask on its way to another layout, and some barriers."""
    return 2 * head_dim * (q + 2 * kv * stages) + (4 * q * kv if custom_mask else 0) + 1024


def _variants(
    params: Mapping[str, object], tuning: Mapping[str, int], capability: int
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The constants and compiler options of every kernel that `launch` can ask for."""
    head_dim = int(str(params["head_dim"]))
    blocks, options = _fitted(tuning, head_dim, params["mask"] == "custom", capability)
    mask, flags = params["mask"], [bool(params[name]) for name in ("fp16_qk", "window", "soft_cap")]
    early = (True, False) if flags[2] and not params["alibi"] else (False,)
    for aligned, first in itertools.product((True, False), early):
        constants = _constants(head_dim, flags[0], mask == "causal", flags[1], flags[2], first, aligned)
        yield {**constants, **blocks}, options


def _constants(
    head_dim: int,
    fp16_qk: bool,
    causal: bool,
    window: bool,
    soft_cap: bool,
    early: bool,
    aligned: bool,
    interpreted: bool = False,
    bits: bool = False,
) -> dict[str, Any]:
    """The kernel's compile-time arguments, but for its blocks."""
    return {
        "HEAD_DIM": head_dim,
        "FP16_QK": fp16_qk,
        "CAUSAL": causal,
        "WINDOW": window,
        "SOFT_CAP": soft_cap,
        "EARLY": early,
        "ALIGNED": aligned,
        "INTERPRETED": interpreted,
        "BITS": bits,
    }


def _ast_source(params: Mapping[str, object], constants: dict[str, Any]) -> ASTSource:
    element = {"float16": "*fp16", "bfloat16": "*bf16"}[str(params["dtype"])]
    types = dict.fromkeys(("q", "k", "v", "out"), element)
    types |= {"lse": "*fp32", "slopes": "*fp32", "mask": "*u8"}
    types |= dict.fromkeys(("qo_len", "kv_len", "heads", "group", "window", "write_lse"), "i32")
    types |= dict.fromkeys(("q_factor", "scale", "soft_cap", "inverse_cap"), "fp32")
    if not params["alibi"]:
        constants = {"slopes": None, **constants}
    if params["mask"] != "custom":
        constants = {"mask": None, **constants}
    signature = {name: "constexpr" if name in constants else types.get(name, "i64") for name in attend.arg_names}
    return ASTSource(attend, signature, constants)
