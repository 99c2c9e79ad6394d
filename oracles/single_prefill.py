"""single_prefill: softmax(mask(transform(sm_scale · q·k))) · v, and the base-2 logarithm of the softmax's denominator.

    q    [qo, Hq, D]                                   float16 or bfloat16; out likewise
    k, v [kv, Hkv, D] (NHD) or [Hkv, kv, D] (HND)      as q; query head h reads key head h // (Hq // Hkv)
    lse  [qo, Hq]                                      float32

The reference is float64, with a bound per element (`oracles.attention_bounds`) and, per element, the set of states that
a right kernel may give. The rules of the states, the strongest first:

- An allowed score that may be anything (a scale or cap that float32 cannot hold, a user's hook on sums that overflow)
  leaves its row unjudged; so does a row of which every score may become -inf.
- An allowed score that is NaN makes the row NaN, out and LSE.
- One that is +inf (by its inputs, or because fp16 sums must overflow): exp(inf − inf) is NaN, so out is not finite; the LSE
  is NaN, or +inf in a kernel that takes the maximum apart.
- One that *may* become +inf or NaN (fp16 sums or transformed scores from 65504, float32 from half its largest number):
  the above, or right. One that may become -inf may vanish from the row: the bound covers it with and without.
- A row whose allowed scores are all -inf by value: NaN, or as a row without keys.
- A row with no allowed key: out exactly 0, LSE -inf.
- Values: v NaN at an allowed key (with a score above -inf) makes its column of the row NaN; v = ±inf makes it that
  infinity, or NaN where its weight rounds to 0 or another infinity opposes it. A value that is not finite at any other
  key of the head (0·inf in a shared tile) may make the element NaN; so may one at a key whose score is -inf by value.
- An element whose sum of |v| leaves float32 (bfloat16 only) may be any infinity or NaN; one that with its bound reaches
  what rounds to infinity may be that infinity.
- All else is finite and within the bound.

An excluded key's score, whatever it is, has no part in any of this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oracles.attention_bounds import Attended, Reach, Values, attend, may_overflow
from oracles.attention_contract import contract
from oracles.attention_problem import Problem, Scores, Semantics, either
from oracles.attention_scores import scores
from oracles.judgement import Judgement, Reference, Right
from oracles.rounding import LARGEST, OVERFLOW

__all__ = ["Semantics", "contract", "judge", "reference", "rights"]

SLICE = 1 << 17
"""Scores at a time: bounds the scratch memory, some 20 arrays of them, and keeps it near the processor."""

NAN, PLUS, MINUS, FINITE, FREE = 1, 2, 4, 8, 16
"""States of an element, as bits of the set that is right; FREE (with all others): any number whatever."""
ANY = NAN | PLUS | MINUS | FINITE | FREE
INFINITE = NAN | PLUS | MINUS


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    kv_layout: str = "NHD",
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    alibi_slopes: Tensor | None = None,
    custom_mask: Tensor | None = None,
    sm_scale: float | None = None,
    use_fp16_qk_reduction: bool = False,
    return_lse: bool = False,
    semantics: Semantics | None = None,
) -> Reference:
    """The answer in float64. The call must be legal by `contract`; the tensors must be the oracle's own copies.

    want and bound hold "out" and, with return_lse, "lse" (its base by semantics); want is NaN where nothing else is right.
    extra holds, for each, the set of right states as a uint8 of its shape (`NAN`, … above).
    """
    semantics = semantics or Semantics()
    if kv_layout == "NHD":
        k, v = k.transpose(0, 1).contiguous(), v.transpose(0, 1).contiguous()
    qo_len, heads, d = q.shape
    kv_heads, kv_len, _ = k.shape
    problem = Problem(
        q=q.to(torch.float64).transpose(0, 1).reshape(kv_heads, heads // kv_heads, qo_len, d),
        k=k.to(torch.float64),
        scale=1 / math.sqrt(d) if sm_scale is None else float(sm_scale),
        soft_cap=float(logits_soft_cap or 0),
        slopes=alibi_slopes,
        fp16_sums=use_fp16_qk_reduction,
        semantics=semantics,
    )
    parts = []
    exact = v.to(torch.float64)
    finite = exact.isfinite()
    bad = None if bool(finite.all()) else _BadValues.of(exact)
    values = Values.of(exact.masked_fill(~finite, 0)) if kv_len else None
    step = max(1, SLICE // max(1, heads * kv_len))
    for start in range(0, qo_len, step):
        rows = slice(start, min(start + step, qo_len))
        if values is None:
            break
        allowed = _allowed(problem.lengths, rows, causal, window_left, custom_mask, q.device)
        made = scores(problem, rows)
        reach = Reach.of(allowed, rows.stop - start, kv_len, q.device)
        attended = attend(made, allowed, reach, values, q.dtype, semantics)
        parts.append(_with_states(made, allowed, attended, bad, q.dtype))
    whole = _Part.join(parts, (qo_len, heads, d), q.device)
    unit = math.log(2) if semantics.lse == "log2" else 1.0
    want, bound, dtype = {"out": whole.out}, {"out": whole.out_bound}, {"out": q.dtype}
    extra = {"out": whole.out_states}
    if return_lse:
        want["lse"], bound["lse"], dtype["lse"] = whole.lse / unit, whole.lse_bound / unit, torch.float32
        extra["lse"] = whole.lse_states
    free = {name: ((states & FINITE) > 0) & (states != FINITE) for name, states in extra.items()}
    return Reference(want, bound, dtype, extra, free=free)


def _allowed(
    lengths: tuple[int, int],
    rows: slice,
    causal: bool,
    window_left: int,
    custom_mask: Tensor | None,
    device: torch.device,
) -> Tensor | None:
    """bool [rows, kv], or None when every key is allowed. Bottom-right: the last query stands on the last key."""
    qo_len, kv_len = lengths
    if not causal and window_left < 0:
        return None if custom_mask is None else custom_mask[rows]
    place = torch.arange(qo_len, device=device)[rows, None] + (kv_len - qo_len)
    kv = torch.arange(kv_len, device=device)
    allowed = custom_mask[rows] if custom_mask is not None else torch.ones_like(place + kv, dtype=torch.bool)
    if causal:
        allowed = allowed & (kv <= place)
    if window_left >= 0:
        allowed = allowed & (kv >= place - min(window_left, qo_len + kv_len))
    return allowed


@dataclass(frozen=True)
class _BadValues:
    """Where v is NaN, +inf and -inf: float64 [Hkv, kv, 3·D] of 0 and 1."""

    kinds: Tensor

    @staticmethod
    def of(v: Tensor) -> _BadValues:
        return _BadValues(torch.cat([v.isnan(), v == math.inf, v == -math.inf], -1).to(torch.float64))

    def states(self, live: Tensor, states: Tensor) -> Tensor:
        """states [Hkv, G, rows, D] with what bad values make of them; live [Hkv, G, rows, kv]: keys that count."""
        counts = live.to(torch.float64).flatten(1, 2) @ self.kinds > 0
        nan, plus, minus = counts.view(*live.shape[:-1], 3, -1).unbind(-2)
        anywhere = self.kinds.amax(1).view(len(self.kinds), 1, 1, 3, -1).amax(-2) > 0
        finite = (states & FINITE) > 0
        result = torch.where(anywhere & finite, states | NAN, states)
        result = torch.where(plus & finite, (states & ~(FINITE | FREE)) | NAN | PLUS, result)
        result = torch.where(minus & finite, (states & ~(FINITE | FREE)) | NAN | MINUS, result)
        result = torch.where((nan | (plus & minus)) & finite, NAN, result)
        return torch.where((states & FREE) > 0, states, result)


@dataclass(frozen=True)
class _Part:
    """Some rows of the answer: out* [rows, Hq, D], lse* [rows, Hq] (natural logarithm)."""

    out: Tensor
    out_bound: Tensor
    out_states: Tensor
    lse: Tensor
    lse_bound: Tensor
    lse_states: Tensor

    @staticmethod
    def join(parts: list[_Part], shape: tuple[int, int, int], device: torch.device) -> _Part:
        """All rows; without any key, rows of zeros."""
        if len(parts) == 1:
            return parts[0]
        if parts:
            names = ("out", "out_bound", "out_states", "lse", "lse_bound", "lse_states")
            return _Part(*(torch.cat([getattr(part, name) for part in parts]) for name in names))
        zeros = torch.zeros(shape, dtype=torch.float64, device=device)
        few = zeros[..., 0].clone()
        return _Part(
            zeros,
            zeros.clone(),
            torch.full_like(zeros, FINITE, dtype=torch.uint8),
            torch.full_like(few, -math.inf),
            few,
            torch.full_like(few, MINUS, dtype=torch.uint8),
        )


def _with_states(
    made: Scores, allowed: Tensor | None, attended: Attended, bad: _BadValues | None, dtype: torch.dtype
) -> _Part:
    """The rules at the top of this module, from the weakest to the strongest."""

    def in_row(keys: Tensor | None) -> Tensor | None:
        if keys is None:
            return None
        return (keys if allowed is None else keys & allowed).any(-1)

    top = attended.top
    row = torch.full_like(top, FINITE, dtype=torch.uint8)  # of out
    lse = row.clone()
    lse_want, lse_bound = attended.lse, attended.lse_bound
    if not bool(top.isfinite().all()):
        empty = top == -math.inf
        by_value = empty if allowed is None else empty & allowed.any(-1)
        row = torch.where(by_value, FINITE | NAN, row)
        lse = torch.where(empty, MINUS, lse)
        lse = torch.where(by_value, MINUS | NAN, lse)
        row = torch.where(top == math.inf, INFINITE, row)
        lse = torch.where(top == math.inf, NAN | PLUS, lse)
        row, lse = torch.where(top.isnan(), NAN, row), torch.where(top.isnan(), NAN, lse)
        lse_want = torch.where(empty, -math.inf, torch.where(top.isfinite(), lse_want, top))
        lse_bound = torch.where(top.isfinite(), lse_bound, 0)
    doubtful = in_row(either(made.rise, made.broken))
    if doubtful is not None:
        doubtful = doubtful & ~top.isnan()
        row, lse = torch.where(doubtful, row | INFINITE, row), torch.where(doubtful, lse | NAN | PLUS, lse)
    free = in_row(made.free)
    free = attended.lost if free is None else free | attended.lost
    row, lse = torch.where(free, ANY, row), torch.where(free, ANY, lse)

    states = row.unsqueeze(-1).expand(attended.out.shape)
    if bad is not None:
        live = made.value > -math.inf
        states = bad.states(live if allowed is None else live & allowed, states)
    out, out_bound = attended.out, attended.out_bound
    if not bool(top.isfinite().all()):
        out_bound = torch.where(top.isfinite().unsqueeze(-1), out_bound, 0)
    if dtype == torch.bfloat16:
        states = torch.where(may_overflow(attended) & ((states & FINITE) > 0), states | INFINITE, states)
    states = _overflowing(states, out, out_bound, OVERFLOW[dtype])
    lse = _overflowing(lse, lse_want, lse_bound, LARGEST[torch.float32] / 2)
    out = torch.where((states & FINITE) > 0, out, math.nan)
    if bad is not None:
        out = torch.where(states == NAN | PLUS, math.inf, torch.where(states == NAN | MINUS, -math.inf, out))
    return _Part(
        *(x.flatten(0, 1).transpose(0, 1).contiguous() for x in (out, out_bound, states, lse_want, lse_bound, lse))
    )


def _overflowing(states: Tensor, want: Tensor, bound: Tensor, limit: float) -> Tensor:
    """Finite results that with their bound reach the limit may be infinite. (None must be: no average exceeds v.)"""
    if not bool(((want.abs() + bound) >= limit).any()):
        return states
    finite = (states & FINITE) > 0
    states = torch.where(finite & (want + bound >= limit), states | PLUS, states)
    return torch.where(finite & (want - bound <= -limit), states | MINUS, states)


def judge(outputs: dict[str, Tensor], reference: Reference) -> dict[str, Judgement]:
    """Each output against its reference: states first, then |got − want| <= bound wherever a finite value is right.

    wrong_nan: a NaN where none may be, or none where the element must be NaN, or may only be it or an infinity.
    wrong_inf: an infinity where it may not be, or none where it must be. divergence: a ratio above 1.
    """
    return {
        name: _judge_one(
            outputs[name], want, reference.bound[name], reference.extra[name], 1.0 if name == "lse" else 0.0
        )
        for name, want in reference.want.items()
    }


def _judge_one(got: Tensor, want: Tensor, bound: Tensor, states: Tensor, scale: float) -> Judgement:
    """scale: what a bound may be compared with beside |want|: a logarithm near 0 is as well known as another."""
    x = got.to(want.device, torch.float64)
    error = (x - want).abs()
    ratio = torch.where(error > 0, error / bound, 0)
    if bool((bound < 0).any()):
        raise ArithmeticError("a bound is negative: the oracle is wrong")
    finite = x.isfinite()
    plain = bool((states == FINITE).all())
    if plain and bool(finite.all()):
        judged = torch.ones_like(finite)
        right = ratio <= 1
    else:
        state = torch.where(x.isnan(), NAN, torch.where(x == math.inf, PLUS, torch.where(finite, FINITE, MINUS)))
        judged = finite & ((states & FINITE) > 0) & ((states & FREE) == 0)
        right = ((states & state) > 0) & (~judged | (ratio <= 1))
    worst = float(ratio.masked_fill(~judged, 0).amax()) if ratio.numel() else 0.0
    weak = (bound > want.abs().clamp(min=scale)) | ((states & FREE) > 0)
    vacuous = 2 * int(weak.sum()) > weak.numel()
    if bool(right.all()):
        return Judgement(None, ~right, want, bound, worst, vacuous)
    nan = ~right & (x.isnan() | (finite & ((states & (NAN | FINITE)) == NAN)))
    infinite = ~right & ~nan & (~finite | ((states & FINITE) == 0))
    for kind, wrong in (("wrong_nan", nan), ("wrong_inf", infinite)):
        if bool(wrong.any()):
            return Judgement(kind, wrong, want, bound, worst, vacuous)
    return Judgement("divergence", ~right, want, bound, worst, vacuous)


def rights(reference: Reference) -> dict[str, Right]:
    """The same, to be checked without this module: the bound, and the states that are right beside that of want."""
    found = {}
    for name, want in reference.want.items():
        states = reference.extra[name]
        shown = {"nan": (NAN, want.isnan()), "inf": (PLUS, want == math.inf), "-inf": (MINUS, want == -math.inf)}
        also = {state: ((states & bit) > 0) & ~here for state, (bit, here) in shown.items()}
        also["finite"] = (states & FREE) > 0
        also = {state: mask for state, mask in also.items() if bool(mask.any())}
        found[name] = Right(want, reference.bound[name], also)
    return found
