"""The Triton backend: exact radix select on integer keys, one program a row. In place it allocates no device memory.

The algorithm is that of `radix_mask.cu`. Under TRITON_INTERPRET=1 (set before this module is imported) it runs on CPU tensors.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from . import formats
from .formats import Format

ARCHS = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")
SEMANTICS = {"ties": "all", "nan": "keep"}

_BLOCKS = {256: 4, 1024: 4, 4096: 8}
"""Elements that a program takes at a time, and its warps. A row gets the smallest block that holds it, or the largest."""

_MAX_GRID = (1 << 31) - 1


@triton.jit
def _keys(bits: tl.tensor, INFINITY: tl.constexpr, WIDTH: tl.constexpr) -> tl.tensor:
    """The keys of `formats`, moved up by INFINITY so that none is negative: unsigned integers, as uint32."""
    bits = bits.to(tl.int32)  # extends the sign
    magnitude = bits & ((1 << (WIDTH - 1)) - 1)
    # In 32 bits twice the pattern of +inf wraps around on purpose: as an unsigned number it is right again.
    up = tl.add(INFINITY, magnitude, sanitize_overflow=False)
    down = tl.sub(INFINITY, magnitude, sanitize_overflow=False)
    keys = tl.where(bits < 0, down, up).to(tl.uint32, bitcast=True)
    return tl.where(magnitude > INFINITY, 2 * INFINITY + 1, keys)


# No specialisation on values or alignment: the variants are then exactly those that `_variants` lists, and build covers them.
@triton.jit(
    do_not_specialize=["logits_stride", "out_stride", "batch", "vocab", "k_stride", "k_scalar"],
    do_not_specialize_on_alignment=["logits", "out", "k_rows"],
)
def _mask_rows(
    logits: tl.tensor,
    out: tl.tensor,
    logits_stride: tl.int64,
    out_stride: tl.int64,
    batch: tl.int64,
    vocab: tl.int64,
    k_rows: tl.tensor,
    k_stride: tl.int64,
    k_scalar: tl.int64,
    INFINITY: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    ALIGNED: tl.constexpr,
) -> None:
    MINUS_INFINITY: tl.constexpr = INFINITY - (1 << (WIDTH - 1))
    lanes = tl.arange(0, BLOCK)
    bins = tl.arange(0, 256)
    # Loops over tensors are `while`: the interpreter of Triton 3.6 cannot make a range of them under NumPy 2.4.
    row = tl.program_id(0).to(tl.int64)
    while row < batch:
        source = logits + row * logits_stride
        target = out + row * out_stride
        if ALIGNED:
            source = tl.multiple_of(source, 16)
            target = tl.multiple_of(target, 16)
        k = k_scalar
        if k_rows is not None:
            k = tl.load(k_rows + row * k_stride).to(tl.int64)

        least = tl.full((), 0, tl.uint32)  # keeps all: the answer for k >= vocab
        if (k > 0) & (k < vocab):
            rank = k
            for digit in range(WIDTH // 8):
                shift = WIDTH - 8 - 8 * digit
                histogram = tl.full((256,), 0, tl.int64)
                start = tl.full((), 0, tl.int64)
                while start < vocab:
                    offsets = start + lanes
                    inside = offsets < vocab
                    keys = _keys(tl.load(source + offsets, mask=inside), INFINITY, WIDTH)
                    # Keys that share the digits found so far. The first shift would be by all 32 bits, so it is made in two.
                    same = ((keys ^ least) >> shift >> 8) == 0
                    values = ((keys >> shift) & 255).to(tl.int32)
                    histogram += tl.histogram(values, 256, mask=inside & same)
                    start += BLOCK
                # Bins from the top hold more and more elements; the rank-th largest is in the last bin that has seen that many.
                through = tl.cumsum(histogram, 0, reverse=True)
                chosen = tl.sum((through >= rank).to(tl.int32), 0) - 1
                rank -= tl.sum(tl.where(bins > chosen, histogram, 0), 0)
                least |= chosen.to(tl.uint32) << shift

        # In place is safe: `least` depends on every load above, and below, an element's store only on its own load. With
        # k >= vocab there is nothing to write.
        if (k < vocab) | (source.to(tl.uint64) != target.to(tl.uint64)):
            start = tl.full((), 0, tl.int64)
            while start < vocab:
                offsets = start + lanes
                inside = offsets < vocab
                bits = tl.load(source + offsets, mask=inside)
                kept = (_keys(bits, INFINITY, WIDTH) >= least) & (k > 0)
                tl.store(target + offsets, tl.where(kept, bits, MINUS_INFINITY), mask=inside)
                start += BLOCK
        row += tl.num_programs(0)


def unsupported(params: Mapping[str, object]) -> str | None:
    """Why this backend does not take `params`, or None."""
    return formats.unsupported(params)


def build(params: Mapping[str, object], arch: str) -> None:
    """Compiles every variant that a call with `params` can need; needs no GPU.

    Raises ValueError for params or an arch that are not supported, RuntimeError if this module was imported under
    TRITON_INTERPRET=1, and whatever Triton's compiler raises.
    """
    if reason := unsupported(params):
        raise ValueError(reason)
    if arch not in ARCHS:
        raise ValueError(f"arch must be one of {', '.join(ARCHS)}, got {arch!r}")
    if not isinstance(_mask_rows, JITFunction):
        raise RuntimeError("nothing can be compiled under TRITON_INTERPRET=1; unset it before this module is imported")
    target = GPUTarget("cuda", int(arch.removeprefix("sm_").removesuffix("a")), 32)
    for constants, warps in _variants(formats.BY_NAME[str(params["dtype"])]):
        triton.compile(_ast_source(str(params["k"]), constants), target=target, options={"num_warps": warps})


def unavailable(device: torch.device) -> str | None:
    """Why this backend cannot run on `device`, or None."""
    if isinstance(_mask_rows, JITFunction):
        return None if device.type == "cuda" else f"it needs tensors on a GPU, or TRITON_INTERPRET=1; got {device}"
    return None


def launch(logits: Tensor, k: int | Tensor, out: Tensor) -> None:
    """Masks `logits` into `out`. The arguments have passed `arguments.check`, and no size is zero."""
    batch, vocab = logits.shape
    format = formats.FORMATS[logits.dtype]
    strides = (logits.stride(0), out.stride(0)) if batch > 1 else (0, 0)
    block = next((b for b in _BLOCKS if b >= vocab), max(_BLOCKS))
    row_bytes = [stride * logits.element_size() for stride in strides]
    aligned = all(x % 16 == 0 for x in (logits.data_ptr(), out.data_ptr(), *row_bytes))
    k_rows, k_stride, k_scalar = (None, 0, k) if isinstance(k, int) else (k, k.stride(0), 0)

    def run() -> None:
        _mask_rows[(min(batch, _MAX_GRID),)](
            # As integers: the interpreter has no bfloat16, and nothing may happen to a NaN on the way.
            logits.view(format.bits),
            out.view(format.bits),
            *strides,
            batch,
            vocab,
            k_rows,
            k_stride,
            k_scalar,
            **_constants(format, block, aligned),
            num_warps=_BLOCKS[block],
        )

    if logits.is_cuda and torch.cuda.current_device() != logits.get_device():
        with torch.cuda.device(logits.device):
            run()
    else:
        run()


def _constants(format: Format, block: int, aligned: bool) -> dict[str, Any]:
    return {"INFINITY": format.infinity, "WIDTH": format.width, "BLOCK": block, "ALIGNED": aligned}


def _variants(format: Format) -> Iterator[tuple[dict[str, Any], int]]:
    """The constants and the number of warps of every kernel that `launch` can ask for."""
    for block, warps in _BLOCKS.items():
        for aligned in (True, False):
            yield _constants(format, block, aligned), warps


def _ast_source(k: str, constants: dict[str, Any]) -> ASTSource:
    element = f"*i{constants['WIDTH']}"
    pointers = {"logits": element, "out": element, "k_rows": {"int": "constexpr", "int32": "*i32", "int64": "*i64"}[k]}
    if k == "int":
        constants = {"k_rows": None, **constants}
    signature = {name: "constexpr" if name in constants else pointers.get(name, "i64") for name in _mask_rows.arg_names}
    return ASTSource(_mask_rows, signature, constants)
