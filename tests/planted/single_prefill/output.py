"""Faults in what is written, and in what is let in."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.planted.single_prefill.attention import SEMANTICS, Call, Steps

__all__ = ["SEMANTICS"]


class LastRowLost(Steps):
    """Of every full tile of 16 queries, the last is not written."""

    def write(self, call: Call, result: Tensor) -> Tensor:
        rows = torch.arange(len(result), device=result.device) % 16 != 15
        out = torch.empty_like(call.q, memory_format=torch.contiguous_format) if call.out is None else call.out
        out[rows] = result[rows]
        return out


class WrittenBeforeRead(Steps):
    """The output is cleared first, which is the query when out=q."""

    def begin(self, call: Call) -> None:
        if call.out is not None:
            call.out.zero_()


class DividesByLength(Steps):
    """A grid computed by dividing by the number of keys."""

    def begin(self, call: Call) -> None:
        _ = call.q.shape[0] // call.k.shape[0]


class AnyHeadDim(Steps):
    """Head dims are not looked at."""

    def check(self, q: Tensor, k: Tensor, v: Tensor, arguments: dict[str, Any]) -> None:
        if all(isinstance(x, Tensor) and x.dim() == 3 and x.shape[2] == q.shape[2] for x in (q, k, v)):
            padded = [torch.empty(x.shape[0], x.shape[1], 64, dtype=x.dtype, device=x.device) for x in (q, k, v)]
            if q.shape[2] % 8 == 0 and arguments["out"] is None:
                super().check(padded[0], padded[1], padded[2], arguments)
                return
        super().check(q, k, v, arguments)


last_row_of_a_tile_lost = LastRowLost()
out_written_before_q_is_read = WrittenBeforeRead()
divides_by_kv_len = DividesByLength()
accepts_head_dim_96 = AnyHeadDim()
