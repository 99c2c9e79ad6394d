"""Other values of the parameters of single_prefill, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from harness.alternatives import FRESH, ON, Alternative, dtypes, outs
from harness.case import Case, Fill, View, contiguous
from harness.operators.single_prefill.shapes import dimensions
from harness.resize import resized, sizes
from harness.rules import Value

_FORMS = {"new": FRESH, "out_is_q": "in place (out is q)"}
_FLAGS = ("use_fp16_qk_reduction", "return_lse")
_NONE = "none"
"""The value of an argument that is not given."""
_SCALARS: dict[str, tuple[float, ...]] = {
    "logits_soft_cap": (0.0, 1e-3, 0.25, 1.0, 30.0, 50.0, 1e3, 1e30),
    "sm_scale": (0.0, 2.0**-20, 0.125, 1 / 3, 1.0, 4.0, 50.0, 1e4, -0.5, -1e6),
}
_WINDOWS = (-1, 0, 1, 2, 3, 5, 15, 16, 64, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 40) + 5)
_HEADS = ((1, 1), (2, 1), (2, 2), (3, 1), (3, 3), (4, 1), (4, 2), (4, 4), (6, 2), (8, 1), (8, 8), (16, 2), (32, 1))
_MASKS = {"custom (all allowed)": (1,), "custom (none allowed)": (0,), "custom (every other)": (1, 0)}
_SLOPES = {"of 0.5": (0.5,), "of several signs": (0.5, 0.25, -1.0), "of 0": (0.0,)}


def alternatives(case: Case) -> Iterator[Alternative]:
    yield from dtypes(case, ("q", "k", "v", "out"), ("float16", "bfloat16"))
    yield from outs(case, "q", _FORMS)
    for name in _FLAGS:
        yield from _argument(case, name, {"off": False, "on": True}, "off")
    yield from _masks(case)
    yield from _argument(case, "window_left", {n: n for n in _WINDOWS}, -1)
    for name, numbers in _SCALARS.items():
        yield from _argument(case, name, {n: n for n in numbers}, _NONE)
    yield from _slopes(case)
    yield from _layouts(case)
    yield from _heads(case)


def _argument(case: Case, name: str, values: dict[Any, Any], absent: Value) -> Iterator[Alternative]:
    """One keyword argument, not given and with each value; its own, whatever that is, first."""
    bare = {n: v for n, v in case.params.items() if n != name}
    own = case.params.get(name)
    yield name, absent if name not in case.params else _spelled(own), case
    if name in case.params:
        yield name, absent, replace(case, params=bare)
    for word, value in values.items():
        yield name, word, replace(case, params={**bare, name: value})


def _spelled(value: object) -> Value:
    if isinstance(value, bool):
        return ON[value]
    return value if isinstance(value, (int, float)) else str(value)


def _masks(case: Case) -> Iterator[Alternative]:
    """No mask, causal, and custom ones."""
    given = case.tensors.get("custom_mask")
    causal = case.params.get("causal")
    yield "mask", "custom (its own)" if given else "causal" if causal else _NONE, case
    bare = _bare(case, "custom_mask", {n: v for n, v in case.params.items() if n != "causal"})
    yield "mask", _NONE, bare
    yield "mask", "causal", replace(bare, params={**bare.params, "causal": True})
    known = sizes(case, dimensions(case))
    shape = (known.get("qo_len", 0), known.get("kv_len", 0))
    for word, values in _MASKS.items():
        yield "mask", word, _with(bare, "custom_mask", given or View(0, "bool", shape, contiguous(shape)), values)


def _slopes(case: Case) -> Iterator[Alternative]:
    given = case.tensors.get("alibi_slopes")
    yield "alibi_slopes", "its own" if given else _NONE, case
    bare = _bare(case, "alibi_slopes", case.params)
    yield "alibi_slopes", _NONE, bare
    shape = (sizes(case, dimensions(case)).get("qo_heads", 0),)
    for word, values in _SLOPES.items():
        yield "alibi_slopes", word, _with(bare, "alibi_slopes", given or View(0, "float32", shape, (1,)), values)


def _bare(case: Case, name: str, params: dict[str, Any]) -> Case:
    tensors = {n: view for n, view in case.tensors.items() if n != name}
    return replace(case, params=params, tensors=tensors, fills={n: f for n, f in case.fills.items() if n != name})


def _with(case: Case, name: str, view: View, values: tuple[float, ...]) -> Case:
    """A further tensor, in a storage of its own."""
    tensors = {**case.tensors, name: replace(view, storage=len(case.storages))}
    fills = {**case.fills, name: Fill("cycle", 0, values)}
    return replace(case, tensors=tensors, fills=fills, storages=(*case.storages, 0))


def _layouts(case: Case) -> Iterator[Alternative]:
    """NHD and HND: the same keys and values, dense, the first two dimensions in the other order."""
    own = case.params.get("kv_layout", "NHD")
    yield "kv_layout", str(own), case
    if any(len(case.tensors[name].shape) != 3 for name in "kv") or own not in ("NHD", "HND"):
        return
    tensors = dict(case.tensors)
    for name in "kv":
        first, second, dim = tensors[name].shape
        shape = (second, first, dim)
        tensors[name] = replace(tensors[name], shape=shape, strides=contiguous(shape))
    other = "HND" if own == "NHD" else "NHD"
    params = {**case.params, "kv_layout": other}
    yield "kv_layout", other, replace(case, params=params, tensors=tensors)


def _heads(case: Case) -> Iterator[Alternative]:
    """Query heads over key heads: changing one number alone hardly ever makes a legal call."""
    known = sizes(case, dimensions(case))
    own = (known.get("qo_heads", 0), known.get("kv_heads", 0))
    for qo, kv in dict.fromkeys((own, *_HEADS)):
        yield "qo_heads/kv_heads", f"{qo}/{kv}", resized(case, dimensions(case), {"qo_heads": qo, "kv_heads": kv})
