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
    """

    want: dict[str, Tensor]
    bound: dict[str, Tensor]
    dtype: dict[str, torch.dtype]
    extra: dict[str, Tensor] = field(default_factory=dict)
    unique: bool = False

    def checksum(self) -> int:
        """Changes when any byte of the reference does: a kernel's wild write must not be able to fake a pass."""
        total = torch.zeros((), dtype=torch.int64)
        for group in (self.want, self.bound, self.extra):
            for tensor in group.values():
                words = bits(tensor.contiguous().reshape(-1)).to(torch.int64)
                weights = torch.arange(1, words.numel() + 1, device=words.device)
                total = total + (words * weights).sum().cpu()
        return int(total)
