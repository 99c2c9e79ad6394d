"""A correct tiled attention in plain torch, in steps that a fault or a look-alike replaces one of.

It goes over tiles of 32 keys with a running maximum, as kernels do; all heads and queries at once. Scores are [heads,
queries, keys] in float32; with the flag they are half, as its kernels have them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from impls.single_prefill import arguments as production

SEMANTICS = {"fp16_scale": "power_of_two", "tile": "32"}

DEFAULTS: dict[str, Any] = {
    "causal": False,
    "kv_layout": "NHD",
    "window_left": -1,
    "logits_soft_cap": None,
    "alibi_slopes": None,
    "custom_mask": None,
    "sm_scale": None,
    "use_fp16_qk_reduction": False,
    "return_lse": False,
    "out": None,
}


@dataclass
class Call:
    """The arguments of a call, k and v as [kv_len, kv_heads, D]."""

    q: Tensor
    k: Tensor
    v: Tensor
    causal: bool
    kv_layout: str
    window_left: int
    logits_soft_cap: float | None
    alibi_slopes: Tensor | None
    custom_mask: Tensor | None
    sm_scale: float | None
    use_fp16_qk_reduction: bool
    return_lse: bool
    out: Tensor | None

    @property
    def scale(self) -> float:
        return self.q.shape[2] ** -0.5 if self.sm_scale is None else self.sm_scale

    @property
    def positions(self) -> Tensor:
        """Where the queries stand among the keys, [queries, 1]."""
        qo_len, kv_len = self.q.shape[0], self.k.shape[0]
        return (torch.arange(qo_len, device=self.q.device) + kv_len - qo_len)[:, None]


class Steps:
    """The attention. A fault is a subclass with one method that is wrong."""

    tile = 32

    def check(self, q: Tensor, k: Tensor, v: Tensor, arguments: dict[str, Any]) -> None:
        """The production checks, so that a fault needs kernels alone, as a user's own would."""
        k, v = production.check_tensors(q, k, v, arguments["kv_layout"])
        slopes, mask = arguments["alibi_slopes"], arguments["custom_mask"]
        production.check_mask(mask, arguments["causal"], q, k)
        production.check_slopes(slopes, q)
        for flag in ("use_fp16_qk_reduction", "return_lse"):
            production.check_flag(flag, arguments[flag])
        if arguments["use_fp16_qk_reduction"] and q.dtype == torch.bfloat16:
            raise ValueError("use_fp16_qk_reduction takes float16 alone")
        production.window_of(arguments["window_left"], k.shape[0])
        production.soft_cap_of(arguments["logits_soft_cap"])
        production.scale_of(arguments["sm_scale"], q.shape[2])
        if arguments["out"] is not None:
            inputs = {"k": k, "v": v, "custom_mask": mask, "alibi_slopes": slopes}
            production.check_out(arguments["out"], q, inputs)

    def length_first(self, x: Tensor, layout: str) -> Tensor:
        return x.transpose(0, 1) if layout == "HND" else x

    def scale(self, call: Call) -> float:
        return call.scale

    def for_queries(self, call: Call, x: Tensor) -> Tensor:
        """Keys or values [n, kv_heads, D] as [heads, n, D], one for each query head."""
        return x.transpose(0, 1).repeat_interleave(call.q.shape[1] // call.k.shape[1], 0)

    def scores(self, call: Call, keys: Tensor) -> Tensor:
        """Scaled products [heads, queries, n] in float32, of keys [n, kv_heads, D]."""
        q, scale = call.q.transpose(0, 1), self.scale(call)
        k = self.for_queries(call, keys)
        if not call.use_fp16_qk_reduction:
            return scale * (q.float() @ k.float().mT)
        power = 2.0 ** min(0, math.floor(math.log2(abs(scale)))) if scale else 1.0
        sums = ((q.float() * power).half().float() @ k.float().mT).half()
        return (scale / power) * self.decode(sums)

    def decode(self, sums: Tensor) -> Tensor:
        return sums.float()

    def transform(self, call: Call, s: Tensor, keys: Tensor) -> Tensor:
        """ALiBi, then the soft cap; `keys` are the keys' indices."""
        if call.alibi_slopes is not None:
            s = s + call.alibi_slopes[:, None, None] * (keys - call.positions)
        if call.logits_soft_cap:
            s = call.logits_soft_cap * torch.tanh(s / call.logits_soft_cap)
        return s

    def allowed(self, call: Call, keys: Tensor) -> Tensor:
        """Bool [queries, n]."""
        mask = keys < call.k.shape[0]
        if call.causal:
            mask = mask & (keys <= call.positions)
        if call.window_left >= 0:
            mask = mask & (keys >= call.positions - call.window_left)
        if call.custom_mask is not None:
            mask = mask & call.custom_mask[:, keys]
        return mask.expand(call.q.shape[0], -1)

    def masked(self, call: Call, s: Tensor, keys: Tensor) -> Tensor:
        """Transformed and masked scores."""
        s = self.transform(call, s, keys)
        if call.use_fp16_qk_reduction:
            s = s.half().float()
        return s.masked_fill(~self.allowed(call, keys), -math.inf)

    def probabilities(self, call: Call, s: Tensor, top: Tensor) -> Tensor:
        return torch.exp(s - top.where(top > -math.inf, 0.0))

    def rounded(self, call: Call, p: Tensor) -> Tensor:
        """P as it is multiplied with V."""
        return p.to(call.q.dtype).float()

    def tiles(self, call: Call) -> list[Tensor]:
        return list(torch.arange(call.k.shape[0], device=call.q.device).split(self.tile)) if len(call.k) else []

    def partial(self, call: Call, tiles: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Maximum, sum and accumulator over some tiles of keys."""
        qo_len, heads, dim = call.q.shape
        top = torch.full((heads, qo_len, 1), -math.inf, device=call.q.device)
        total, sums = torch.zeros_like(top), torch.zeros(heads, qo_len, dim, device=call.q.device)
        for keys in tiles:
            s = self.masked(call, self.scores(call, call.k[keys]), keys)
            raised = torch.maximum(top, s.amax(-1, keepdim=True))
            old, p = self.decay(top, raised), self.probabilities(call, s, raised)
            total = total * old + p.sum(-1, keepdim=True)
            v = self.for_queries(call, call.v[keys]).float()
            sums = self.rescaled(sums, old) + self.rounded(call, p) @ v
            top = raised
        return top, total, sums

    def decay(self, top: Tensor, raised: Tensor) -> Tensor:
        """By how much what was summed under the old maximum has to shrink under the new one."""
        return torch.exp(top - raised.where(raised > -math.inf, 0.0))

    def rescaled(self, sums: Tensor, by: Tensor) -> Tensor:
        return sums * by

    def normalised(self, sums: Tensor, total: Tensor) -> Tensor:
        return torch.where(total == 0, 0.0, sums / total)

    def lse(self, top: Tensor, total: Tensor) -> Tensor:
        return torch.where(top > -math.inf, top / math.log(2) + torch.log2(total), top)

    def attend(self, call: Call) -> tuple[Tensor, Tensor]:
        """Float32 output [heads, queries, D] and log-sum-exp [heads, queries]."""
        top, total, sums = self.partial(call, self.tiles(call))
        return self.normalised(sums, total), self.lse(top, total)[..., 0]

    def finish(self, call: Call, out: Tensor) -> Tensor:
        """The output in its dtype, [queries, heads, D]."""
        return out.transpose(0, 1).to(call.q.dtype)

    def write(self, call: Call, result: Tensor) -> Tensor:
        out = torch.empty_like(call.q, memory_format=torch.contiguous_format) if call.out is None else call.out
        return out.copy_(result)

    def begin(self, call: Call) -> None:
        """Before anything is computed."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, **kwargs: Any) -> Any:
        arguments = {**DEFAULTS, **kwargs}
        self.check(q, k, v, arguments)
        layout = arguments["kv_layout"]
        call = Call(q, self.length_first(k, layout), self.length_first(v, layout), **arguments)
        self.begin(call)
        result, lse = self.attend(call)
        out = self.write(call, self.finish(call, result))
        return (out, lse.T.contiguous()) if call.return_lse else out
