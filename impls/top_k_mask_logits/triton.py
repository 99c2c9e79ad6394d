"""The Triton backend: exact, one program a row (`triton_kernels.py`). In place it allocates no device memory.

Under TRITON_INTERPRET=1 (set before this module is imported) it runs on CPU tensors.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from . import formats
from .formats import Format
from .triton_kernels import mask_long_rows, mask_short_rows

ARCHS = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")
SEMANTICS = {"ties": "all", "nan": "keep"}


@dataclass(frozen=True)
class Plan:
    """How rows of up to `longest` elements are masked: as a whole, or, where `lanes` is not None, tile by tile.

    Narrow tiles have less to wait for, and several programs share a multiprocessor, but their lanes soon have no room for what a
    large k makes them note.
    """

    longest: int
    warps: int
    lanes: int | None = None
    """A tile is 16 elements a lane. A power of two, at most 32 a warp for speed."""
    turns: int = 2
    """Tiles in the sample of a row whose k is small. Even."""
    registers: int | None = None
    """The most that a thread may have, so that several programs share a multiprocessor; None leaves it to the compiler."""

    only_small_k: bool = False
    """Whether it is for rows only whose k is known to the launcher and so small that one pass is tried."""

    def takes(self, vocab: int, k: int | None) -> bool:
        """Whether it is for rows of `vocab` elements and that k; None for a k that differs from row to row."""
        if not self.only_small_k or self.lanes is None:
            return vocab <= self.longest
        # As in `mask_long_rows`.
        few = k is not None and 2 * k <= self.lanes and 2 * k * vocab <= 3 * self.turns * 16 * self.lanes**2
        return vocab <= self.longest and few

    @property
    def options(self) -> dict[str, int]:
        """What the compiler is told."""
        return {"num_warps": self.warps} | ({"maxnreg": self.registers} if self.registers else {})


_COMPILED = not knobs.runtime.interpret

PLANS: tuple[Plan, ...] = (
    (
        Plan(256, 2),
        Plan(1024, 4),
        Plan(4096, 8),
        Plan(sys.maxsize, 8, lanes=256, turns=8, registers=128, only_small_k=True),
        Plan(sys.maxsize, 16, lanes=512),
    )
    if _COMPILED
    # The interpreter gets small tiles first, so that rows that it can bear take every path.
    else (Plan(32, 1), Plan(512, 1, lanes=8), Plan(sys.maxsize, 16, lanes=512))
)
"""By length, ascending; a row takes the first that is for it."""

_MAX_GRID = (1 << 31) - 1


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
    if not isinstance(mask_long_rows, JITFunction):
        raise RuntimeError("nothing can be compiled under TRITON_INTERPRET=1; unset it before this module is imported")
    target = GPUTarget("cuda", int(arch.removeprefix("sm_").removesuffix("a")), 32)
    format = formats.BY_NAME[str(params["dtype"])]
    for plan in PLANS:
        if plan.only_small_k and params["k"] != "int":
            continue
        for aligned in (True, False) if plan.lanes else (True,):
            source = _ast_source(str(params["k"]), plan, _constants(plan, format, aligned))
            triton.compile(source, target=target, options=plan.options)


def unavailable(device: torch.device) -> str | None:
    """Why this backend cannot run on `device`, or None."""
    if isinstance(mask_long_rows, JITFunction):
        return None if device.type == "cuda" else f"it needs tensors on a GPU, or TRITON_INTERPRET=1; got {device}"
    return None


def launch(logits: Tensor, k: int | Tensor, out: Tensor) -> None:
    """Masks `logits` into `out`. The arguments have passed `arguments.check`, and no size is zero."""
    batch, vocab = logits.shape
    format = formats.FORMATS[logits.dtype]
    strides = (logits.stride(0), out.stride(0)) if batch > 1 else (0, 0)
    plan = next(plan for plan in PLANS if plan.takes(vocab, k if isinstance(k, int) else None))
    # Whether both rows of every pair start at the same distance from a 16-byte boundary; in place they do.
    distances = (logits.data_ptr() - out.data_ptr(), (strides[0] - strides[1]) * logits.element_size())
    aligned = all(distance % 16 == 0 for distance in distances)
    k_rows, k_stride, k_scalar = (None, 0, k) if isinstance(k, int) else (k, k.stride(0), 0)

    def run() -> None:
        _kernel(plan)[(min(batch, _MAX_GRID),)](
            # As integers: the interpreter has no bfloat16, and nothing may happen to a NaN on the way.
            logits.view(format.bits),
            out.view(format.bits),
            *strides,
            batch,
            vocab,
            k_rows,
            k_stride,
            k_scalar,
            **_constants(plan, format, aligned),
            **plan.options,
        )

    if logits.is_cuda and torch.cuda.current_device() != logits.get_device():
        with torch.cuda.device(logits.device):
            run()
    else:
        run()


def _kernel(plan: Plan) -> Any:
    return mask_long_rows if plan.lanes else mask_short_rows


def _constants(plan: Plan, format: Format, aligned: bool) -> dict[str, Any]:
    constants: dict[str, Any] = {"INFINITY": format.infinity, "WIDTH": format.width}
    if plan.lanes:
        return {**constants, "LANES": plan.lanes, "TURNS": plan.turns, "ALIGNED": aligned}
    return {**constants, "BLOCK": plan.longest}


def _ast_source(k: str, plan: Plan, constants: dict[str, Any]) -> ASTSource:
    element = f"*i{constants['WIDTH']}"
    pointers = {"logits": element, "out": element, "k_rows": {"int": "constexpr", "int32": "*i32", "int64": "*i64"}[k]}
    if k == "int":
        constants = {"k_rows": None, **constants}
    kernel = _kernel(plan)
    signature = {name: "constexpr" if name in constants else pointers.get(name, "i64") for name in kernel.arg_names}
    return ASTSource(kernel, signature, constants)
