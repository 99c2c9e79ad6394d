"""Attention scores in float64, how far a kernel's may be from them, and which of a kernel's may not be finite.

One score: s = scale·(q·k); + slope·distance; cap·tanh(s / cap), or a user's hook. Every constant is rounded to float32 in
a kernel, often multiplied by log2(e) there, and every result is rounded; the allowances below count these roundings.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oracles.attention_problem import Problem, Scores, either, some
from oracles.attention_products import FLOAT_LIMIT, HALF_LIMIT, products, split_scale
from oracles.rounding import FLUSHED, U16, U32

APPROXIMATE_TANH = 2.0**-11
"""Relative error of tanh.approx.f32 (PTX ISA)."""
EXACT_TANH = 2.0**-20
"""Absolute error of a tanh that counts as exact: the library's (2 ulp), or 1 − 2/(1 + exp(2x)) from ex2.approx.

For the latter, in units of 2^-24: exp's 4 count half, its argument's two roundings 1 (2|x|·sech²(x) < 0.9), the sum 2, the
reciprocal 4 (for x < 0 the quotient is up to 2) and the subtraction 1. That is 10, below 16."""


def scores(problem: Problem, rows: slice) -> Scores:
    """The scores of some rows of the queries (one at least) with all keys (one at least), masked ones included."""
    semantics = problem.semantics
    scale, power = split_scale(problem)
    made = products(problem, problem.q[:, :, rows] * power if power != 1 else problem.q[:, :, rows])
    exact = made.value
    s = exact * scale
    # The scale, log2(e), their product and the product with the sum: four roundings. What is below 2^-126 may be flushed.
    eps = made.eps * abs(scale) + s.abs() * (4 * U32) + exact.abs() * FLUSHED + FLUSHED
    result = Scores(s, eps, made.rise, made.sink, made.broken)
    if scale < 0:
        result.rise, result.sink = result.sink, result.rise
    if scale == 0:
        exact = _zero_scale(result, exact)
    if abs(scale) >= FLOAT_LIMIT:
        result.free = torch.ones_like(s, dtype=torch.bool)
    _clean(result)
    _overflow(result, FLOAT_LIMIT)
    if semantics.logits_transform is not None:
        _hook(result, problem, rows)
    else:
        if problem.slopes is not None:
            _alibi(result, problem, rows)
        if problem.soft_cap > 0:
            _soft_cap(result, problem, exact, scale)
    _clean(result)
    _overflow(result, FLOAT_LIMIT)
    if problem.fp16_sums:
        # A kernel may keep the transformed score in half.
        result.eps = (result.eps + result.value.abs() * U16) * (1 + U16) + 2.0**-25
        _clean(result)
        _overflow(result, HALF_LIMIT)
    return result


def _zero_scale(made: Scores, exact: Tensor) -> Tensor:
    """Infinity times 0: NaN, unless a kernel leaves the product out. Anything may come of it. The sums, without these."""
    odd = ~exact.isfinite()
    made.free = either(either(made.rise, made.sink), either(made.broken, some(odd)))
    made.value, made.eps = made.value.masked_fill(odd, 0), made.eps.masked_fill(odd, 0)
    made.rise = made.sink = made.broken = None
    return exact.masked_fill(odd, 0)


def _clean(made: Scores) -> None:
    """eps is for finite scores; where the score is not, it is 0."""
    if not math.isfinite(float(made.value.sum())):
        made.eps = made.eps.masked_fill(~made.value.isfinite(), 0)


def _overflow(made: Scores, limit: float) -> None:
    """Finite scores that may pass the limit of their format."""
    size = made.value.abs() + made.eps
    if not float(size.amax()) < limit:
        beyond = (size >= limit) & made.value.isfinite()
        made.rise = either(made.rise, some(beyond & (made.value + made.eps >= limit)))
        made.sink = either(made.sink, some(beyond & (made.value - made.eps <= -limit)))


def _indices(problem: Problem, rows: slice) -> tuple[Tensor, Tensor]:
    """qo_idx [rows, 1] and kv_idx [kv], int64."""
    qo_len, kv_len = problem.lengths
    device = problem.q.device
    return torch.arange(qo_len, device=device)[rows, None], torch.arange(kv_len, device=device)


def _alibi(made: Scores, problem: Problem, rows: slice) -> None:
    assert problem.slopes is not None
    qo_len, kv_len = problem.lengths
    qo, kv = _indices(problem, rows)
    distance = (kv - (qo + kv_len - qo_len)).to(torch.float64)
    slopes = problem.slopes.to(torch.float64).view(*problem.q.shape[:2], 1, 1)
    bias = slopes * distance
    made.value = made.value + bias
    made.eps = made.eps + bias.abs() * (4 * U32) + made.value.abs() * (2 * U32)


def _soft_cap(made: Scores, problem: Problem, exact: Tensor, scale: float) -> None:
    """The image of [s − eps, s + eps]: tanh is monotone. Scores that overflow on the way there become ±cap."""
    cap, s = problem.soft_cap, made.value
    if not FLUSHED < cap < FLOAT_LIMIT or abs(scale) / cap >= FLOAT_LIMIT:
        # cap, its reciprocal or the product of scale and reciprocal leave float32: inf/inf or 0·inf in a kernel.
        made.free = torch.ones_like(s, dtype=torch.bool)
    # scale·(1/cap): six roundings of the argument at most, and flushes of it.
    reach = made.eps + s.abs() * (6 * U32) + exact.abs() * (cap * FLUSHED) + 2 * cap * FLUSHED
    t = torch.tanh(s / cap) * cap
    up = torch.tanh((s + reach) / cap) * cap - t
    down = t - torch.tanh((s - reach) / cap) * cap
    eps = torch.maximum(up, down)
    eps += (t.abs() + eps) * APPROXIMATE_TANH if problem.semantics.tanh == "approximate" else cap * EXACT_TANH
    eps += t.abs() * (4 * U32)
    allowance = cap * (APPROXIMATE_TANH + 4 * U32)
    eps = torch.where(s.isinf(), allowance, eps)
    if made.rise is not None:
        eps = torch.where(made.rise, torch.maximum(eps, cap - t + allowance), eps)
    if made.sink is not None:
        eps = torch.where(made.sink, torch.maximum(eps, t + cap + allowance), eps)
    made.value, made.eps, made.rise, made.sink = t, eps, None, None


def _hook(made: Scores, problem: Problem, rows: slice) -> None:
    """A user's function: eps goes through it at five points of [s − eps, s + eps], and it may round some 8 times itself.

    Where the sums may overflow nothing is said: what the hook makes of that is its own affair.
    """
    transform = problem.semantics.logits_transform
    assert transform is not None
    shape = made.value.shape
    qo, kv = _indices(problem, rows)
    head = torch.arange(shape[0] * shape[1], device=qo.device).view(-1, 1, 1)

    def apply(s: Tensor) -> Tensor:
        result = transform(s.reshape(-1, *shape[2:]), head, qo.unsqueeze(0), kv.view(1, 1, -1), *problem.lengths)
        return result.to(torch.float64).expand(shape[0] * shape[1], *shape[2:]).reshape(shape)

    s, value = made.value, apply(made.value)
    spread = torch.zeros_like(value)
    for step in (-1.0, -0.5, 0.5, 1.0):
        there = apply(s + made.eps * step)
        change = torch.where(there == value, 0, (there - value).abs())
        spread = torch.maximum(spread, torch.where(change.isfinite(), change, math.inf))
    wild = spread.isinf() & value.isfinite()
    made.free = either(either(made.free, some(wild)), either(made.rise, made.sink))
    made.eps = spread.masked_fill(wild, 0) + (value.abs() + s.abs().masked_fill(s.isinf(), 0)) * (8 * U32)
    made.value, made.rise, made.sink = value, None, None
