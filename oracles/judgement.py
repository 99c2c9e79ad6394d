"""What every oracle answers with, and the rule that all of them share: states first, then values."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

INT_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(x: Tensor) -> Tensor:
    """The elements of x as integers of the same size: comparing these tells NaN payloads and zeros' signs apart."""
    return x.view(INT_OF_SIZE[x.element_size()])


@dataclass(frozen=True)
class Judgement:
    """One output against its reference.

    kind: None when every element is right, else the first that applies of wrong_nan, wrong_inf, wrong_set, divergence.
    wrong: bool, the output's shape: the elements that kind speaks of.
    want, bound: float64, the output's shape. bound is 0 where the operator is exact.
    ratio: the largest |got − want| / bound; 0 for an exact operator that is right.
    vacuous: the bound exceeds |want| for most elements, so that passing proves nothing.
    """

    kind: str | None
    wrong: Tensor
    want: Tensor
    bound: Tensor
    ratio: float = 0.0
    vacuous: bool = False


@dataclass(frozen=True)
class Reference:
    """What an oracle knows of one call before any kernel ran.

    want: per output, float64. bound: per output, float64.
    extra: what else the oracle's own `judge` needs, by name (tensors on the call's device).
    unique: exactly one result (bit for bit) is right. Then relations between calls follow from it and need no test.
    free: per output, bool, or nothing: elements of which more is right than what is within the bound of want. Where want
    is NaN, nothing finite is right.
    """

    want: dict[str, Tensor]
    bound: dict[str, Tensor]
    dtype: dict[str, torch.dtype]
    extra: dict[str, Tensor] = field(default_factory=dict)
    unique: bool = False
    free: dict[str, Tensor] = field(default_factory=dict)

    def checksum(self) -> int:
        """A kernel's wild write must not be able to fake a pass: 64 bits over all bytes, with one wait for the device.

        A sum, so that the device may add in any order, of words mixed with their places. The mixer takes different words
        to different words: a change inside one word of 8 bytes is always seen, a larger one but for chance.
        """
        tensors = [tensor for group in (self.want, self.bound, self.extra) for tensor in group.values()]
        # A tensor of one element is "contiguous" whatever its stride, and then has no view as bytes.
        dense = [t.contiguous().as_strided((t.numel(),), (1,)) for t in tensors]
        raw = [t.view(torch.uint8) for t in dense]
        padding = raw[0].new_zeros(-sum(map(len, raw)) % 8)
        words = torch.cat([*raw, padding]).view(torch.int64)
        total = words.new_zeros(())
        for i, part in enumerate(words.split(CHUNK)):
            mixed = torch.arange(i * CHUNK, i * CHUNK + len(part), device=words.device).mul_(_GOLDEN).add_(part)
            total += _fold(_fold(mixed).mul_(_FACTOR)).sum()
        return int(total)


@dataclass(frozen=True)
class Right:
    """What is right for one output, said so that anyone can check it without the oracle.

    want: of the output's dtype, where bound is None and every bit counts; else float64. bound: float64, or None.
    also: what else is right, by name, bool of the output's shape: "nan", "inf", "-inf", or "finite" (any finite number).
    quota: int64 [rows] or None: how many elements of a row that `also` speaks of have to be `want`; -1 is any number.
    """

    want: Tensor
    bound: Tensor | None = None
    also: dict[str, Tensor] = field(default_factory=dict)
    quota: Tensor | None = None


CHUNK = 1 << 18
"""Words mixed at a time: small enough for a cache."""

# Of splitmix64 (S. Vigna), as signed integers.
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_FACTOR = 0xBF58476D1CE4E5B9 - (1 << 64)


def _fold(words: Tensor) -> Tensor:
    """The upper bits of each word over its lower ones, in place: a product alone leaves a changed topmost bit alone."""
    return words.bitwise_xor_((words >> 30).bitwise_and_(0x3FFFFFFFF))
