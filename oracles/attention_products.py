"""q·k in float64, how far a kernel's sums may be from it, and which of them may or must overflow."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oracles.attention_problem import Problem, Scores, either, some
from oracles.rounding import LARGEST, U16, U64, dot_error, gamma, round_to

HALF_LIMIT = LARGEST[torch.float16]
HALF_OVERFLOW = 65520.0
FLOAT_LIMIT = LARGEST[torch.float32] / 2
"""Scores up to here stay finite when multiplied by log2(e)."""


def split_scale(problem: Problem) -> tuple[float, float]:
    """(factor after the sum, power of two that q is multiplied by before it)."""
    scale = problem.scale
    if not problem.fp16_sums or problem.semantics.fp16_scale == "after" or scale == 0:
        return scale, 1.0
    exponent = min(0, math.frexp(scale)[1] - 1)
    return math.ldexp(scale, -exponent), math.ldexp(1.0, max(exponent, -1000))


def products(problem: Problem, q: Tensor) -> Scores:
    """q·k with the error of the declared accumulation, and the sums that may, or must, overflow it."""
    kv_heads, group, rows, d = q.shape
    core, half = problem.semantics.tensor_core, problem.fp16_sums
    once = half and problem.semantics.fp16_sums == "rounded"
    accumulator = torch.float16 if half and not once else torch.float32
    q = q.reshape(kv_heads, group * rows, d)
    k = problem.k
    value = q @ k.mT
    if not problem.finite:
        q_bad, k_bad = ~q.isfinite(), ~k.isfinite()
        q, k = q.masked_fill(q_bad, 0), k.masked_fill(k_bad, 0)
    total = q.abs() @ k.mT.abs()
    lost = None
    if half and problem.semantics.fp16_scale == "power_of_two":
        # q times a power of two is rounded to half: exact unless it becomes subnormal.
        error = (round_to(q, torch.float16) - q).abs()
        if bool(error.any()):
            lost = error @ k.mT.abs()
            total = total + lost
    partial = high = low = None
    if problem.semantics.order == "sequential":
        partial, high, low = _partial_sums(q, k, core.block, range_needed=half and not once)
        if lost is not None:
            partial += lost * core.blocks(d)
    eps = dot_error(core, d, total, accumulator, partial)
    eps += gamma(d + 5, U64) * total
    if lost is not None:
        eps += lost
    if once:
        # The sum in float32, which nothing of half's can make overflow, is rounded; so it alone decides of the range.
        sums = value.nan_to_num(0, 0, 0)
        eps = eps + (sums.abs() + eps) * U16 + 2.0**-25
        high = low = sums
    result = Scores(value, eps)
    limit = HALF_LIMIT if half else FLOAT_LIMIT
    if float((total + eps).amax()) >= limit:
        _range(result, total, high, low, limit, certain=core.certain)
    if not problem.finite:
        odd = ~value.isfinite()
        result.eps = result.eps.masked_fill(odd, 0)
        # What is infinite by its inputs stays so, unless the finite part overflows the other way, or a flush makes 0·inf.
        doubtful = odd & (total + eps >= limit)
        if half and problem.semantics.fp16_scale == "power_of_two":
            doubtful |= odd
        result.broken = either(result.broken, some(doubtful))
    return _unflatten(result, (kv_heads, group, rows, k.shape[1]))


def _unflatten(scores: Scores, shape: tuple[int, ...]) -> Scores:
    fields = (scores.value, scores.eps, scores.rise, scores.sink, scores.broken)
    value, eps, rise, sink, broken = (None if x is None else x.view(shape) for x in fields)
    assert value is not None
    assert eps is not None
    return Scores(value, eps, rise, sink, broken)


def _partial_sums(
    q: Tensor, k: Tensor, block: int, *, range_needed: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Over the sums of the first 1, 2, … blocks of d: the sum of their magnitudes, and their largest and smallest."""
    sums = q.new_zeros(*q.shape[:-1], k.shape[1])
    partial = torch.zeros_like(sums)
    high, low = (sums.clone(), sums.clone()) if range_needed else (None, None)
    for start in range(0, q.shape[-1], block):
        part = slice(start, start + block)
        sums.baddbmm_(q[..., part], k[..., part].mT)
        partial += sums.abs()
        if high is not None and low is not None:
            torch.maximum(high, sums, out=high)
            torch.minimum(low, sums, out=low)
    return partial, high, low


def _range(
    made: Scores, total: Tensor, high: Tensor | None, low: Tensor | None, limit: float, *, certain: bool
) -> None:
    """Decide of each sum whether it stays finite, overflows, or may do either.

    high, low: the largest and smallest partial sum, where known; else no partial sum exceeds what is positive, or
    negative, of all terms: (T ± S) / 2. A sum overflows for certain if a partial sum that is certainly rounded does (in any
    order the last one is, and a finite result further than eps from it would contradict the bound), and its sign is
    certain if none may overflow the other way. After that it stays: nothing finite brings infinity back.
    """
    s, eps = made.value.nan_to_num(0, 0, 0), made.eps
    known = high is not None and low is not None
    top = high if known and high is not None else (total + s) / 2
    bottom = low if known and low is not None else (s - total) / 2
    rise, sink = top + eps >= limit, bottom - eps <= -limit
    if limit == HALF_LIMIT:
        given = made.value.isfinite()
        must_high = ((top if known and certain else s) - eps >= HALF_OVERFLOW) & given
        must_low = ((bottom if known and certain else s) + eps <= -HALF_OVERFLOW) & given
        made.value = torch.where(must_high & ~sink, math.inf, made.value)
        made.value = torch.where(must_low & ~rise, -math.inf, made.value)
        decided = made.value.isinf()
        made.eps = made.eps.masked_fill(decided, 0)
        # Where it must overflow, but either way, both flags stay: +inf and -inf are all that it may be, or NaN.
        rise, sink = rise & ~decided, sink & ~decided
    made.rise, made.sink, made.broken = some(rise), some(sink), some(rise & sink)
