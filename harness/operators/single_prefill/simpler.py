"""Steps towards the plainest call of single_prefill: a feature off, or a parameter nearer to what a reader expects."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from harness.alternatives import plainer_outs
from harness.case import Case, Fill, Params, View, contiguous
from harness.operators.single_prefill.shapes import FORMS, dimensions
from harness.resize import resized, sizes

_OPTIONAL = (
    "use_fp16_qk_reduction",
    "causal",
    "window_left",
    "logits_soft_cap",
    "sm_scale",
    "return_lse",
)
"""Keyword arguments that a plainer call does not give."""

_PLAINER: dict[str, tuple[object, ...]] = {
    "window_left": (0, 1, 2),
    "logits_soft_cap": (1.0, 50.0),
    "sm_scale": (1.0, 0.0),
}
"""Values to end at, from the plainest."""


def simpler(case: Case) -> Iterator[Case]:
    params, tensors, q = case.params, case.tensors, case.tensors["q"]
    yield from plainer_outs(case, "q", FORMS)
    for name in _OPTIONAL:
        if name in params:
            yield _with(case, {n: v for n, v in params.items() if n != name}, tensors)
    for name in ("alibi_slopes", "custom_mask"):
        if name in tensors:
            yield _without(case, name)
    # Any mask will do for a fault of masking in general: a window of 0 is the plainest, one query and two keys show it.
    if "custom_mask" in tensors or params.get("causal"):
        unmasked = {n: v for n, v in params.items() if n != "causal"}
        rest = {n: v for n, v in tensors.items() if n != "custom_mask"}
        yield _with(case, {**unmasked, "window_left": 0}, rest)
    if "custom_mask" in tensors and "causal" not in params:
        yield _with(_without(case, "custom_mask"), {**params, "causal": True})
    if params.get("kv_layout") == "HND":
        yield _length_first(case)
    yield from _fewer_heads(case)
    for name, values in _PLAINER.items():
        for value in values:
            if name in params and params[name] == value:
                break
            if name in params:
                yield _with(case, {**params, name: value})
    if q.dtype == "bfloat16":
        halves = {n: replace(v, dtype="float16") if v.dtype == "bfloat16" else v for n, v in tensors.items()}
        yield _with(case, params, halves)
    if "custom_mask" in case.fills and case.fills["custom_mask"].kind != "cycle":
        for values in ((1,), (0,), (1, 0), (0, 1)):
            yield replace(case, fills={**case.fills, "custom_mask": Fill("cycle", 0, values)})


def _with(case: Case, params: Params, tensors: dict[str, View] | None = None) -> Case:
    tensors = case.tensors if tensors is None else tensors
    fills = {name: fill for name, fill in case.fills.items() if name in tensors}
    return replace(case, params=params, tensors=tensors, fills=fills, storages=(*case.storages, 0))


def _without(case: Case, name: str) -> Case:
    return _with(case, case.params, {n: v for n, v in case.tensors.items() if n != name})


def _length_first(case: Case) -> Case:
    """The layout NHD instead of HND, k and v dense."""
    tensors = dict(case.tensors)
    for name in "kv":
        view = tensors[name]
        if len(view.shape) == 3:
            shape = (view.shape[1], view.shape[0], view.shape[2])
            tensors[name] = View(view.storage, view.dtype, shape, contiguous(shape), view.offset)
    return _with(case, {n: v for n, v in case.params.items() if n != "kv_layout"}, tensors)


def _fewer_heads(case: Case) -> Iterator[Case]:
    """One head of each sort, or as many query heads as there are of keys: single steps of a size break the call."""
    known = sizes(case, dimensions(case))
    qo_heads, kv_heads = known.get("qo_heads", 0), known.get("kv_heads", 0)
    for qo, kv in (
        (1, 1),
        (2, 1),
        (2, 2),
        (kv_heads, kv_heads),
        (qo_heads // 2, kv_heads),
        (qo_heads // 2, kv_heads // 2),
    ):
        if 0 < qo <= qo_heads and kv <= kv_heads and (qo, kv) != (qo_heads, kv_heads):
            yield resized(case, dimensions(case), {"qo_heads": qo, "kv_heads": kv})
