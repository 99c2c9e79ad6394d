"""Faults in the softmax and in what is rounded."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tests.planted.single_prefill.attention import SEMANTICS, Call, Steps

__all__ = ["SEMANTICS"]


class NaturalLog(Steps):
    """The log-sum-exp is base e."""

    def lse(self, top: Tensor, total: Tensor) -> Tensor:
        return super().lse(top, total) * math.log(2)


class EmptyRowsNaN(Steps):
    """A row without keys divides zero by zero."""

    def normalised(self, sums: Tensor, total: Tensor) -> Tensor:
        return sums / total


class NotRescaled(Steps):
    """When the maximum moves, the row sum is rescaled and the accumulator is not."""

    def rescaled(self, sums: Tensor, by: Tensor) -> Tensor:
        return sums


class PInEightBits(Steps):
    """P is rounded to bfloat16, whose significand has 8 bits, for float16 inputs too."""

    def rounded(self, call: Call, p: Tensor) -> Tensor:
        return p.bfloat16().float()


class RoundedTwice(Steps):
    """The output goes through bfloat16 on its way to float16."""

    def finish(self, call: Call, out: Tensor) -> Tensor:
        return super().finish(call, out.bfloat16().float())


class MaximumRoundedApart(Steps):
    """A fused multiply-add, which float64 stands for, takes from each exact product the maximum's, which was rounded."""

    def probabilities(self, call: Call, s: Tensor, top: Tensor) -> Tensor:
        log2_e = torch.tensor(1 / math.log(2))
        subtracted = (top * log2_e).where(top > -math.inf, 0.0)
        return torch.exp2((s.double() * log2_e.double() - subtracted.double()).float())


lse_in_natural_log = NaturalLog()
empty_rows_are_nan = EmptyRowsNaN()
accumulator_not_rescaled = NotRescaled()
p_rounded_to_8_bits = PInEightBits()
output_rounded_twice = RoundedTwice()
maximum_rounded_apart = MaximumRoundedApart()
