"""What one call of attention asks, in the oracle's words, and what is known of its scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from oracles.rounding import UNKNOWN, TensorCore

Transform = Callable[[Tensor, Tensor, Tensor, Tensor, int, int], Tensor]
"""(s [Hq, qo, kv], head [Hq, 1, 1], qo_idx [1, qo, 1], kv_idx [1, 1, kv], qo_len, kv_len) -> s, in float64."""


@dataclass(frozen=True)
class Semantics:
    """Where kernels differ, and an implementation may say what it does.

    lse: base of the logarithm. tanh: of the soft cap, exact or tanh.approx.f32. p: what P is rounded to before P·V,
    "input" being q's dtype. sum: whether the row sum is of P in float32, or of P after that rounding.
    fp16_scale: with use_fp16_qk_reduction, whether the scale follows the sum, or a power of two of it is multiplied into q
    before. fp16_sums: with it, whether every block's sum is rounded to half, or a sum in float32 is once, at its end, which is
    never worse. order: "sequential" if q·k is summed in blocks of ascending d, so that partial sums are known.
    tile: least number of keys between two rescalings of the accumulator. logits_transform: a user's own hook, in place of
    ALiBi and soft cap. tensor_core: the device's arithmetic; UNKNOWN allows every supported one, and the CPU.
    """

    lse: Literal["log2", "ln"] = "log2"
    tanh: Literal["exact", "approximate"] = "exact"
    p: Literal["input", "float32"] = "input"
    fp16_scale: Literal["after", "power_of_two"] = "after"
    fp16_sums: Literal["accumulated", "rounded"] = "accumulated"
    order: Literal["any", "sequential"] = "any"
    tile: Literal["16", "32", "64", "128", "all"] = "16"
    sum: Literal["float32", "p"] = "float32"
    logits_transform: Transform | None = None
    tensor_core: TensorCore = UNKNOWN


@dataclass(frozen=True)
class Problem:
    """One call, ready for arithmetic. q [Hkv, G, qo, D] (G query heads a key head), k [Hkv, kv, D], all float64."""

    q: Tensor
    k: Tensor
    scale: float
    soft_cap: float
    slopes: Tensor | None
    fp16_sums: bool
    semantics: Semantics
    finite: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "finite", bool(torch.isfinite(self.q.sum() + self.k.sum())))

    @property
    def lengths(self) -> tuple[int, int]:
        return self.q.shape[2], self.k.shape[1]


@dataclass
class Scores:
    """Scores of some rows, [Hkv, G, rows, kv].

    value: float64, as the contract defines it, infinities and NaN included. eps: how far a kernel's is from it, finite,
    as long as both are finite. rise, sink, broken, free: bool or None for nowhere: the kernel's may be +inf; -inf; NaN;
    anything.
    """

    value: Tensor
    eps: Tensor
    rise: Tensor | None = None
    sink: Tensor | None = None
    broken: Tensor | None = None
    free: Tensor | None = None


def either(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Elementwise or, None standing for False."""
    return b if a is None else a if b is None else a | b


def some(mask: Tensor) -> Tensor | None:
    return mask if bool(mask.any()) else None
