"""What is drawn for single_prefill: all parameters at once, and the values that hurt attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec.structs import replace

from harness import strategies
from harness.case import Case, Fill, Number, Params, Planted, View, tidy
from harness.operators.single_prefill import broken
from harness.operators.single_prefill.shapes import FORMS, HEAD_DIMS, NAME
from harness.strategies import LEGAL_RELATIONS, PLAIN, Scale

_ONE_IN_SEVEN = st.integers(0, 6)
_FORMS = st.sampled_from((*FORMS, "out"))
_DTYPES = st.sampled_from(("float16", "float16", "bfloat16"))
_FP16_QK = st.sampled_from((False, True, True))
"""So that at least a third of all calls sums q·k in float16."""
_MASKS = st.sampled_from(("none", "causal", "custom", "causal"))
_ALL_BUT_ONE = "all but one"
"""Stands for a window that leaves out the first key of the last query, until kv_len is known."""
_WINDOWS = st.sampled_from(
    (None,) * 6 + (0, 1, 5, 15, 64, 1 << 20, -7, _ALL_BUT_ONE, (1 << 31) - 1, 1 << 31, (1 << 40) + 5)
)
_SOFT_CAPS = st.sampled_from((None,) * 5 + (30.0, 1.0, 50.0, 0.25, 0.0, 30.0, 1e-3, 1e3, 1e30))
_SCALES = st.sampled_from((None,) * 6 + (1.0, 0.125, 0.0, -0.5, 1 / 3, 4.0, 50.0, 2.0**-20, 1e4, -1e6, 1e-9, 2.0**-100))
_HALF = st.booleans()
_LAYOUTS = st.sampled_from(("NHD", "NHD", "HND"))
_TUNINGS = st.sampled_from((0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7))
_RELATIONS = st.sampled_from(LEGAL_RELATIONS)
_KV_HEADS = st.sampled_from((1, 1, 2, 3))
_GROUPS = st.sampled_from((1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 16, 32))
_HEAD_DIMS = st.sampled_from((*HEAD_DIMS, 64, 128))
_MASK_FILLS = st.sampled_from(
    (("choice", (1, 0)), ("cycle", (1,)), ("choice", (1, 1, 1, 0)), ("cycle", (0,)), ("raw", ()))
)
_SLOPES = st.sampled_from((("cycle", (0.5,)), ("cycle", (0.5, 0.25, -1.0)), ("uniform", ()), ("spread", ())))
_SEVEN = st.integers(0, 6)
_PLACES = st.integers(0, 1 << 20)


def cases(scale: Scale, illegal: bool) -> SearchStrategy[Case]:
    return _cases(scale, illegal)


@st.composite
def _cases(draw: DrawFn, scale: Scale, illegal: bool) -> Case:
    wrong = draw(broken.WAYS) if illegal and draw(_ONE_IN_SEVEN) == 6 else None
    form = draw(_FORMS)
    dtype = draw(_DTYPES)
    params: Params = {"form": form}
    if dtype == "float16" and draw(_FP16_QK):
        params["use_fp16_qk_reduction"] = True
    mask = draw(_MASKS)
    if mask == "causal":
        params["causal"] = True
    if (window := draw(_WINDOWS)) is not None:
        params["window_left"] = window
    if (soft_cap := draw(_SOFT_CAPS)) is not None:
        params["logits_soft_cap"] = soft_cap
    alibi = draw(_SEVEN) >= 5
    if (sm_scale := draw(_SCALES)) is not None:
        params["sm_scale"] = sm_scale
    if draw(_HALF):
        params["return_lse"] = True
    if draw(_LAYOUTS) == "HND":
        params["kv_layout"] = "HND"
    tuning = draw(_TUNINGS)
    layouts = [draw(strategies.NESTED_INPUT_LAYOUTS) if draw(_HALF) else PLAIN for _ in "qkv"]
    relation = draw(_RELATIONS) if form == "out" else "apart"
    shared = relation != "apart" or form == "out_is_q"
    if shared and (layouts[0].expanded or layouts[0].pad < 0 or layouts[0].turned):
        layouts[0] = PLAIN
    out_layout = draw(strategies.NESTED_LAYOUTS) if form == "out" and relation == "apart" else PLAIN

    kv_heads, group, head_dim = draw(_KV_HEADS), draw(_GROUPS), draw(_HEAD_DIMS)
    qo_heads = kv_heads * group
    qo_len, kv_len = _draw_lengths(draw, scale, qo_heads)
    q_shape = (qo_len, qo_heads, head_dim)
    kv_shape = (kv_len, kv_heads, head_dim) if "kv_layout" not in params else (kv_heads, kv_len, head_dim)
    views = {"q": layouts[0].view(0, dtype, q_shape)}
    views |= {name: layout.view(i, dtype, kv_shape) for i, name, layout in zip((1, 2), "kv", layouts[1:])}
    if form == "out":
        views["q"], views["out"] = strategies.related_view(views["q"], relation, 3)
        if relation == "apart":
            views["out"] = out_layout.view(3, dtype, q_shape)
    if params.get("window_left") == _ALL_BUT_ONE:
        params["window_left"] = max(kv_len - 2, 0)
    fills = _draw_values(draw, head_dim)
    if alibi:
        views["alibi_slopes"] = draw(strategies.EXPANDABLE_LAYOUTS).view(4, "float32", (qo_heads,))
        kind, slopes = draw(_SLOPES)
        fills["alibi_slopes"] = Fill(kind, 0 if kind == "cycle" else draw(strategies.SEEDS), slopes)
    if mask == "custom":
        views["custom_mask"] = draw(strategies.ANY_LAYOUTS).view(5, "bool", (qo_len, kv_len))
        kind, allowed = draw(_MASK_FILLS)
        fills["custom_mask"] = Fill(kind, 0 if kind == "cycle" else draw(strategies.SEEDS), allowed)
    fills = {name: _within(fill, views[name]) for name, fill in fills.items()}
    case = Case(NAME, params, (0,) * 6, views, fills, tuning=tuning)
    return tidy(broken.broken(case, wrong) if wrong else case)


def _draw_lengths(draw: DrawFn, scale: Scale, heads: int) -> tuple[int, int]:
    """qo_len and kv_len: each up to a few tiles, their product such that the scores stay few."""
    longest = max(scale.elements // 32, 64)
    kv_len = strategies.draw_size(draw, longest)
    most = scale.elements // max(heads * kv_len, 1)
    return strategies.draw_size(draw, max(1, min(longest, most))), kv_len


def _within(fill: Fill, view: View) -> Fill:
    """Planted values wrapped into the tensor: they were drawn before its size was known."""
    if not fill.planted or not view.numel:
        return replace(fill, planted=())
    return replace(fill, planted=tuple(Planted(p.index % view.numel, p.value) for p in fill.planted))


# --- values -------------------------------------------------------------------------------------------------

Values = dict[str, Fill]
_UNIFORM_SCALES = st.sampled_from((1.0, 2.0, 0.25, 8.0, 32.0))
_BIASES = st.sampled_from(((16.0, 32.0), (32.0, 64.0), (24.0, -48.0), (90.0, 60.0)))
_DEEP = st.sampled_from(((8.0, 8.0), (64.0, 16.0), (64.0, 64.0), (200.0, 150.0)))
_SPECIALS = st.sampled_from(("nan", "inf", "-inf", 60000.0))


def _constant(*values: Number) -> Fill:
    return Fill("cycle", 0, values)


def _uniform(draw: DrawFn, kind: str = "uniform") -> Fill:
    return Fill(kind, draw(strategies.SEEDS), (draw(_UNIFORM_SCALES),))


def _ones(draw: DrawFn, head_dim: int) -> Values:
    return {"q": _constant(1.0), "k": _constant(1.0), "v": _constant(1.0, 2.0, 3.0)}


def _random(draw: DrawFn, head_dim: int) -> Values:
    return {name: _uniform(draw) for name in "qkv"}


def _biased(draw: DrawFn, head_dim: int) -> Values:
    """A constant offset in q and K: the scores hardly differ, but their fp16 sums leave the range, or nearly."""
    q, k = draw(_BIASES)
    return {
        "q": Fill("near", draw(strategies.SEEDS), (q,)),
        "k": Fill("near", draw(strategies.SEEDS), (k,)),
        "v": _uniform(draw),
    }


def _dominated(draw: DrawFn, head_dim: int) -> Values:
    """One key far from all others; whether it takes the whole row or none of it, the queries decide."""
    return {"q": _uniform(draw), "k": _uniform(draw, "dominant"), "v": _uniform(draw)}


def _equal_keys(draw: DrawFn, head_dim: int) -> Values:
    """Every key the same: P is flat, and its row sum long."""
    return {"q": _uniform(draw), "k": _constant(0.5, -1.0, 2.0, 1.5), "v": _uniform(draw)}


def _deep(draw: DrawFn, head_dim: int) -> Values:
    """Scores far below any finite stand-in for -inf, some of them a whole row's."""
    q, k = draw(_DEEP)
    return {
        "q": _constant(q),
        "k": Fill("choice", draw(strategies.SEEDS), (-k, -k, -k / 2, k / 4)),
        "v": _uniform(draw),
    }


def _huge(draw: DrawFn, head_dim: int) -> Values:
    """Scores near 2^33, where a product that is rounded in one place and exact in another is off by more than exp2 bears."""
    return {
        "q": _constant(3e4),
        "k": Fill("choice", draw(strategies.SEEDS), (-3e4, 3e4, -2e4, 2.9e4)),
        "v": _uniform(draw),
    }


def _with_specials(draw: DrawFn, head_dim: int) -> Values:
    """A few NaNs and infinities: masked, they must not be seen; allowed, they must."""
    values = _random(draw, head_dim)
    name = draw(st.sampled_from("kvq"))
    first = draw(_PLACES)
    value: Number = draw(_SPECIALS)  # type: ignore[assignment]
    values[name] = replace(values[name], planted=(Planted(first, value),))
    return values


def _any(draw: DrawFn, head_dim: int) -> Values:
    return {name: strategies.draw_float_fill(draw) for name in "qkv"}


_KINDS: tuple[Callable[[DrawFn, int], Values], ...] = (
    _ones, _random, _random, _random, _biased, _dominated, _equal_keys, _deep, _huge, _with_specials, _any,
)  # fmt: skip
_VALUES: SearchStrategy[Any] = st.sampled_from(_KINDS)


def _draw_values(draw: DrawFn, head_dim: int) -> Values:
    """Fills of q, k and v that belong together."""
    return draw(_VALUES)(draw, head_dim)
