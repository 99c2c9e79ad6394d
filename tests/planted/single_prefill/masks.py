"""Faults in which keys a query sees."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.planted.single_prefill.attention import SEMANTICS, Call, Steps

__all__ = ["SEMANTICS"]


class CausalTopLeft(Steps):
    """Query i sees keys 0 … i, wherever the last query stands."""

    def allowed(self, call: Call, keys: Tensor) -> Tensor:
        mask = super().allowed(call, keys)
        if call.causal:
            mask = mask & (keys <= torch.arange(call.q.shape[0], device=keys.device)[:, None])
        return mask


class WindowOffByOne(Steps):
    """The window loses its oldest key."""

    def allowed(self, call: Call, keys: Tensor) -> Tensor:
        mask = super().allowed(call, keys)
        return mask & (keys > call.positions - call.window_left) if call.window_left >= 0 else mask


class MaskBitsReversed(Steps):
    """The mask packed to bytes with the first key in the lowest bit, unpacked from the highest."""

    def allowed(self, call: Call, keys: Tensor) -> Tensor:
        mask = super().allowed(call, keys)
        if call.custom_mask is None:
            return mask
        whole = torch.nn.functional.pad(call.custom_mask.to(torch.uint8), (0, -call.k.shape[0] % 8))
        swapped = whole.view(len(whole), whole.shape[1] // 8, 8).flip(-1).reshape(whole.shape).bool()
        return swapped[:, keys]


class TailNotMasked(Steps):
    """The last tile is filled up with zeros, and these count as keys."""

    def partial(self, call: Call, tiles: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        top, total, sums = super().partial(call, tiles)
        if missing := -call.k.shape[0] % self.tile:
            raised = torch.maximum(top, torch.zeros_like(top))
            by = self.decay(top, raised)
            top, total, sums = raised, total * by + missing * torch.exp(-raised), sums * by
        return top, total, sums


class FiniteMinusInfinity(Steps):
    """A masked score is -5e4, which is more than some scores are."""

    def masked(self, call: Call, s: Tensor, keys: Tensor) -> Tensor:
        return super().masked(call, s, keys).where(self.allowed(call, keys), torch.tensor(-5e4))


class WindowInt32(Steps):
    """The window is an int32: from 2^31 on it wraps, and no key is young enough."""

    def allowed(self, call: Call, keys: Tensor) -> Tensor:
        mask = super().allowed(call, keys)
        wrapped = (call.window_left + (1 << 31)) % (1 << 32) - (1 << 31)
        return mask & (keys >= call.positions - wrapped) if call.window_left >= 0 else mask


class MaskStrideIgnored(Steps):
    """The keys of a mask are taken to lie side by side."""

    def begin(self, call: Call) -> None:
        if call.custom_mask is not None:
            call.custom_mask = call.custom_mask.as_strided(call.custom_mask.shape, (call.custom_mask.stride(0), 1))


class MaskShapeUnchecked(Steps):
    """A mask of another shape is read as if it had the right one."""

    def check(self, q: Tensor, k: Tensor, v: Tensor, arguments: dict[str, Any]) -> None:
        mask = arguments["custom_mask"]
        if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.device == q.device:
            arguments["custom_mask"] = None
            super().check(q, k, v, arguments)
            kv_len = k.shape[1 if arguments["kv_layout"] == "HND" else 0]
            needed = q.shape[0] * kv_len
            flat = mask.reshape(-1)[:needed]
            read = torch.nn.functional.pad(flat, (0, needed - len(flat))).view(q.shape[0], kv_len)
            if arguments["causal"]:
                raise ValueError("causal with a mask")
            arguments["custom_mask"] = read
        else:
            super().check(q, k, v, arguments)


causal_top_left = CausalTopLeft()
window_off_by_one = WindowOffByOne()
mask_bits_reversed = MaskBitsReversed()
kv_tail_not_masked = TailNotMasked()
finite_minus_infinity = FiniteMinusInfinity()
window_in_int32 = WindowInt32()
ignores_mask_stride = MaskStrideIgnored()
mask_shape_unchecked = MaskShapeUnchecked()
