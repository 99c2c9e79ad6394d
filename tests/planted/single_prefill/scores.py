"""Faults in the scores: their scale, their transform, whose keys they are of."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.planted.single_prefill.attention import SEMANTICS, Call, Steps

__all__ = ["SEMANTICS"]


class SoftCapAfterMask(Steps):
    """cap · tanh(-inf / cap) is -cap: what is masked counts again."""

    def masked(self, call: Call, s: Tensor, keys: Tensor) -> Tensor:
        s = super().masked(call, s, keys)
        return s.clamp(min=-call.logits_soft_cap) if call.logits_soft_cap else s


class AlibiSign(Steps):
    """Slope times distance, the distance taken from the key to the query."""

    def transform(self, call: Call, s: Tensor, keys: Tensor) -> Tensor:
        if call.alibi_slopes is None:
            return super().transform(call, s, keys)
        s = s - 2 * call.alibi_slopes[:, None, None] * (keys - call.positions)
        return super().transform(call, s, keys)


class ScaleTwice(Steps):
    """With slopes and a soft cap, both transforms scale."""

    def scale(self, call: Call) -> float:
        twice = call.alibi_slopes is not None and bool(call.logits_soft_cap)
        return super().scale(call) ** 2 if twice else super().scale(call)


class ScaleZeroIsDefault(Steps):
    """`sm_scale or default`."""

    def scale(self, call: Call) -> float:
        return call.sm_scale or call.q.shape[2] ** -0.5


class HeadsByModulo(Steps):
    """Query head h takes key head h mod kv_heads, not h // group."""

    def for_queries(self, call: Call, x: Tensor) -> Tensor:
        return x.transpose(0, 1).repeat(call.q.shape[1] // call.k.shape[1], 1, 1)


class LayoutIgnored(Steps):
    """HND tensors read with the strides of NHD, wherever both sizes let it."""

    def length_first(self, x: Tensor, layout: str) -> Tensor:
        right = super().length_first(x, layout)
        return right if layout == "NHD" else x.reshape(-1).view(right.shape)


class HeadStrideIgnored(Steps):
    """The heads of a key are taken to lie side by side."""

    def length_first(self, x: Tensor, layout: str) -> Tensor:
        x = super().length_first(x, layout)
        return x.as_strided(x.shape, (x.stride(0), x.shape[2], 1)) if layout == "NHD" else x


class SlopeStrideIgnored(Steps):
    """The slopes are taken to lie side by side."""

    def transform(self, call: Call, s: Tensor, keys: Tensor) -> Tensor:
        if call.alibi_slopes is not None:
            call.alibi_slopes = call.alibi_slopes.as_strided(call.alibi_slopes.shape, (1,))
        return super().transform(call, s, keys)


class FlagIgnored(Steps):
    """use_fp16_qk_reduction is taken with bfloat16, and does nothing there."""

    def check(self, q: Tensor, k: Tensor, v: Tensor, arguments: dict[str, Any]) -> None:
        if isinstance(q, Tensor) and q.dtype == torch.bfloat16 and arguments["use_fp16_qk_reduction"] is True:
            arguments["use_fp16_qk_reduction"] = False
        super().check(q, k, v, arguments)


class HalfByValue(Steps):
    """The bits of the half accumulator converted as if they were an integer."""

    def decode(self, sums: Tensor) -> Tensor:
        return sums.view(torch.int16).float()


soft_cap_after_mask = SoftCapAfterMask()
alibi_sign = AlibiSign()
scale_twice_with_alibi_and_cap = ScaleTwice()
scale_zero_is_default = ScaleZeroIsDefault()
heads_by_modulo = HeadsByModulo()
hnd_taken_for_nhd = LayoutIgnored()
ignores_head_stride = HeadStrideIgnored()
ignores_slope_stride = SlopeStrideIgnored()
flag_ignored = FlagIgnored()
half_decoded_by_value = HalfByValue()
