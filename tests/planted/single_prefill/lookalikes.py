"""Correct, but with the sums taken in another order, precision or number of pieces."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tests.planted.single_prefill.attention import SEMANTICS, Call, Steps

__all__ = ["SEMANTICS"]


class Naive(Steps):
    """Scores of all keys at once, softmax in float32, P not rounded."""

    tile = 1 << 30

    def rounded(self, call: Call, p: Tensor) -> Tensor:
        return p


class Split(Steps):
    """Each half of the keys for itself, then merged by their maxima."""

    def attend(self, call: Call) -> tuple[Tensor, Tensor]:
        tiles = self.tiles(call)
        (a, a_total, a_sums), (b, b_total, b_sums) = (
            self.partial(call, part) for part in (tiles[: len(tiles) // 2], tiles[len(tiles) // 2 :])
        )
        top = torch.maximum(a, b)
        by = self.decay(a, top), self.decay(b, top)
        total = a_total * by[0] + b_total * by[1]
        return self.normalised(a_sums * by[0] + b_sums * by[1], total), self.lse(top, total)[..., 0]


class Reversed(Steps):
    """The last tile of keys first."""

    def tiles(self, call: Call) -> list[Tensor]:
        return super().tiles(call)[::-1]


class Larger(Steps):
    """128 keys at a time."""

    tile = 128


class Float64(Steps):
    """Everything in float64 after the products, rounded once at the end."""

    def scores(self, call: Call, keys: Tensor) -> Tensor:
        return super().scores(call, keys).double()

    def partial(self, call: Call, tiles: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        keys = torch.arange(call.k.shape[0], device=call.q.device)
        s = self.masked(call, self.scores(call, call.k), keys).double()
        top = s.amax(-1, keepdim=True) if len(keys) else s.new_full((*s.shape[:-1], 1), -math.inf)
        p = self.probabilities(call, s, top)
        return top, p.sum(-1, keepdim=True), p @ self.for_queries(call, call.v).double()

    def lse(self, top: Tensor, total: Tensor) -> Tensor:
        return super().lse(top, total).float()


tiled = Steps()
naive_softmax = Naive()
split_over_kv = Split()
reversed_tiles = Reversed()
larger_tiles = Larger()
float64_inside = Float64()
