"""From scores to output and LSE in float64, and how far a kernel's may be from them.

Write s_j for the exact scores of a row, p_j = exp(s_j − lse), O = sum p_j·v_j. A kernel's row is exactly that of scores
s_j + δ_j with |δ_j| <= eps_j, the error of its exp included, and then

    Õ − O = sum_j p_j·(e^δ_j − 1)·(v_j − O) / sum_j p_j·e^δ_j         (since sum_j p_j·(v_j − O) = 0)

so |Õ − O| <= sum_j g_j·|v_j − O| with g_j = p_j·(e^eps_j − 1) / L and L = sum_j p_j·e^−eps_j: no first-order step, and a
key of no weight cannot spoil the bound, however wrong its score may be. The sum is taken by Cauchy and Schwarz,
sqrt(sum g · sum g·(v − O)²), which needs matrix products alone. Neither can Õ leave the range of v. A key that may vanish
(δ_j = −inf) has g_j >= p_j / L and no part in L. Likewise |LSE error| <= max(log sum p_j·e^eps_j, −log L).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oracles.attention_problem import Scores, Semantics
from oracles.rounding import FLUSHED, LARGEST, U32, UNIT, gammas

EXP = 2.0**-22
"""Relative error of ex2.approx.ftz.f32 (2 ulp, PTX ISA); library functions are better. Also of its argument: log2(e) is
rounded, its product with s − m is, and so is the difference, 3·2^-24 in all."""
LOG = 2.0**-22
"""lg2.approx.ftz.f32: absolute error between 1/2 and 2, else relative (PTX ISA)."""
FAR = 300.0
"""Logarithm of weights beyond which nothing is proven."""
LOST = 2.0**-23
"""Part of a spread that float64 loses, being the root of a difference."""
LAG = 8 * math.log(2)
"""How far below the largest score so far a kernel may leave what it subtracts from scores, to rescale less often: P is up
to 2^8 then, which all formats hold with the same relative error."""


@dataclass(frozen=True)
class Values:
    """v [Hkv, kv, D] in float64 with 0 for what is not finite, and what the bounds need of it, made once a call.

    pair: v and v² side by side. size: |v|. low, high: the range of each column, [Hkv, 1, 1, D].
    """

    v: Tensor
    pair: Tensor
    size: Tensor
    low: Tensor
    high: Tensor

    @staticmethod
    def of(v: Tensor) -> Values:
        low, high = torch.aminmax(v, dim=1, keepdim=True)
        return Values(v, torch.cat([v, v * v], -1), v.abs(), low.unsqueeze(1), high.unsqueeze(1))


@dataclass(frozen=True)
class Reach:
    """Per row of the mask, float64 [rows]: allowed keys, and keys from the first allowed to the last."""

    count: Tensor
    extent: Tensor

    @staticmethod
    def of(allowed: Tensor | None, rows: int, kv_len: int, device: torch.device) -> Reach:
        if allowed is None:
            full = torch.full((rows,), float(kv_len), dtype=torch.float64, device=device)
            return Reach(full, full)
        ones = allowed.to(torch.uint8)
        first, last = ones.argmax(1), kv_len - 1 - ones.flip(1).argmax(1)
        count = allowed.sum(1)
        return Reach(count.to(torch.float64), torch.where(count > 0, last - first + 1, 0).to(torch.float64))


@dataclass(frozen=True)
class Attended:
    """Some rows. out, out_bound [Hkv, G, rows, D]; lse (natural), lse_bound, top [Hkv, G, rows].

    top is the largest allowed score: NaN, +inf or -inf where the row has no weights (out and lse are 0 there).
    lost: the rows of which every key may vanish. summed [Hkv, 1, rows, D]: sum of |v| over the allowed keys.
    """

    out: Tensor
    out_bound: Tensor
    lse: Tensor
    lse_bound: Tensor
    top: Tensor
    lost: Tensor
    summed: Tensor


def attend(
    made: Scores, allowed: Tensor | None, reach: Reach, values: Values, dtype: torch.dtype, semantics: Semantics
) -> Attended:
    """made [Hkv, G, rows, kv]; allowed bool [rows, kv] or None for all; dtype is the output's."""
    s = made.value if allowed is None else made.value.masked_fill(~allowed, -math.inf)
    top = s.amax(-1)
    odd = ~top.isfinite()
    m = top.masked_fill(odd, 0)
    if bool(odd.any()):
        s = s.masked_fill(odd.unsqueeze(-1), -math.inf)
    below = m.unsqueeze(-1) - s
    eps = torch.where(below < math.inf, made.eps + (below + (1 + LAG)) * EXP, 0)
    worst = eps.amax(-1)
    eps += worst.unsqueeze(-1) * EXP
    log_sum = torch.exp(-below).sum(-1).log().masked_fill(odd, 0)
    log_p = -below - log_sum.unsqueeze(-1)
    p = torch.exp(log_p)
    moves = _Moves.of(log_p, p, eps, made.sink)
    # Far out, where sums under- or overflow: the largest term alone, and n times it.
    rise = torch.where(moves.highest > FAR, moves.highest + math.log(s.shape[-1]), moves.up.sum(-1).log())
    fall = torch.minimum(-moves.floor.log(), -moves.best)
    rise, fall = rise.masked_fill(odd, 0), fall.masked_fill(odd, 0)
    lost = (moves.best == -math.inf) & ~odd
    if float(worst.amax()) > 0.1:
        moves = moves.against_the_first(log_p, p, eps, made.sink)

    flat = (s.shape[0], -1, s.shape[-1])
    shape = (*s.shape[:-1], values.v.shape[-1])
    out = (p.view(flat) @ values.v).view(shape)
    from_scores, size = _spread(moves, out, values)
    summed = values.size.sum(1, keepdim=True) if allowed is None else allowed.to(torch.float64) @ values.size
    summed = summed.unsqueeze(1)

    parts = _Relative.of(reach, dtype, semantics)
    shrink = torch.exp(fall + worst - log_sum).clamp(max=1).unsqueeze(-1)  # at least 1 / a kernel's sum of exp(s − m)
    small = shrink * parts.tiny
    near = out.abs() + from_scores
    bound = from_scores + parts.terms * size + parts.sums * near + small * (summed + parts.count)
    if semantics.sum == "p":
        bound += (parts.p + parts.product + parts.count * small) * near
    bound *= 1 + parts.terms + parts.sums  # products of errors
    unit = UNIT[dtype]
    tiny = 2.0**-25 if dtype == torch.float16 else FLUSHED
    out_bound = bound * (1 + unit) + out.abs() * unit + tiny

    lse = m + log_sum
    lse_bound = torch.maximum(rise, fall) + LOG * (math.log(2) + LAG + log_sum + rise)
    lse_bound += (parts.sums + parts.rescaling).squeeze(-1) + (4 * U32) * (lse.abs() + m.abs() + worst)
    if semantics.sum == "p":
        lse_bound += (parts.p + parts.product + parts.count * small).squeeze(-1)
    return Attended(out, out_bound, lse, lse_bound, top, lost, summed)


@dataclass(frozen=True)
class _Moves:
    """How weights may move: up = p·e^eps, g as in the module's docstring but for L [Hkv, G, rows, kv]; and by row, floor = L
    (0 if every key may vanish), highest = max log(p·e^eps), best = max log(p·e^−eps)."""

    up: Tensor
    g: Tensor
    floor: Tensor
    highest: Tensor
    best: Tensor

    @staticmethod
    def of(log_p: Tensor, p: Tensor, eps: Tensor, sink: Tensor | None) -> _Moves:
        above, below = log_p + eps, log_p - eps
        if sink is not None:
            below = below.masked_fill(sink, -math.inf)
        up = torch.exp(above.clamp(max=2 * FAR))
        g = up - p if sink is None else torch.where(sink, torch.maximum(up - p, p), up - p)
        return _Moves(up, g, torch.exp(below).sum(-1), above.amax(-1), below.amax(-1))

    @property
    def wild(self) -> Tensor:
        """Rows of which the sums prove nothing, or overflow."""
        return (self.highest > FAR) | (self.floor < 1e-100)

    def against_the_first(self, log_p: Tensor, p: Tensor, eps: Tensor, sink: Tensor | None) -> _Moves:
        """Rows where it is better to take scores relative to that of the heaviest key, whose error is 0 then, and added to
        all others': no weight changes when all scores move alike. It pays where eps is large and one key takes nearly all."""
        first = p.argmax(-1, keepdim=True)
        there = torch.arange(p.shape[-1], device=p.device) == first
        other = _Moves.of(log_p, p, (eps + eps.gather(-1, first)).masked_fill(there, 0), sink)
        # sum g·|v − O| / L where |v − O| is 1 but for the heaviest key, whose value is near O (what `_spread` loses included).
        own = self.g.gather(-1, first).squeeze(-1)
        before = (self.g.sum(-1) - own * (p.amax(-1) - LOST)) / self.floor
        better = ~((before <= other.g.sum(-1) / other.floor) & ~self.wild) & ~other.wild
        if sink is not None:
            better &= ~sink.gather(-1, first).squeeze(-1)
        wide = better.unsqueeze(-1)
        return _Moves(
            torch.where(wide, other.up, self.up),
            torch.where(wide, other.g, self.g),
            torch.where(better, other.floor, self.floor),
            torch.where(better, other.highest, self.highest),
            self.best,
        )


def _spread(moves: _Moves, out: Tensor, values: Values) -> tuple[Tensor, Tensor]:
    """(bound on |Õ − O|, bound on sum p̃_j·|v_j|), [Hkv, G, rows, D], both within the range of v."""
    rows = moves.g.shape[:-1]
    size = (moves.up.flatten(1, 2) @ values.size).view(out.shape)
    moved, squares = (moves.g.flatten(1, 2) @ values.pair).view(*rows, 2, -1).unbind(-2)
    weight, wild, floor = (x.unsqueeze(-1) for x in (moves.g.sum(-1), moves.wild, moves.floor))
    variance = squares - 2 * out * moved + out * out * weight
    # What float64 loses in the difference above.
    variance = variance.clamp(min=0) + (squares + out * out * weight) * LOST**2
    spread = torch.sqrt(weight * variance) / floor
    span = torch.maximum(values.high - out, out - values.low)
    most = torch.maximum(values.high.abs(), values.low.abs())
    spread = torch.where(wild, span, torch.minimum(spread, span))
    return spread, torch.where(wild, most, torch.minimum(size / floor, most))


@dataclass(frozen=True)
class _Relative:
    """Relative errors of each row after its scores, float64 [rows, 1] or numbers, by what they are relative to.

    terms: sum p_j·|v_j|, from rounding P, the products' accumulation and rescaling. sums: the result, from the row sum (n
    terms in float32) and the division (three roundings). product, rescaling, p: parts of `terms`. tiny: what a p may lose
    at the bottom of its format, absolutely. count: keys.
    """

    terms: Tensor
    sums: Tensor
    product: Tensor
    rescaling: Tensor
    count: Tensor
    p: float
    tiny: float

    @staticmethod
    def of(reach: Reach, dtype: torch.dtype, semantics: Semantics) -> _Relative:
        core = semantics.tensor_core
        p = UNIT[dtype] if semantics.p == "input" else U32
        tiny = FLUSHED + (2.0**-25 if semantics.p == "input" and dtype == torch.float16 else 0)
        count, extent = reach.count.unsqueeze(-1), reach.extent.unsqueeze(-1)
        # Blocks need not start at the first key; a block whose weights are all 0 changes nothing.
        product = core.relative(torch.minimum(count, (extent / core.block).ceil() + 1))
        tiles = torch.ones_like(extent) if semantics.tile == "all" else (extent / int(semantics.tile)).ceil()
        rescaling = tiles * (EXP + 2 * U32)
        sums = gammas(count + 3, U32)
        return _Relative(p + product + rescaling, sums, product, rescaling, count, p, tiny)


def may_overflow(attended: Attended) -> Tensor:
    """[Hkv, 1, rows, D]: whether sum of p·v, with p up to e^LAG at the time, may leave float32."""
    return attended.summed >= LARGEST[torch.float32] / (2 * math.exp(LAG))
