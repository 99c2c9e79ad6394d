"""top_k_mask_logits(logits [batch, vocab], k, *, out=None): the masks that samplers apply, and their in-place form.

Parameters of a case:
    form    "new" (no out), "out" (tensor `out`), "out_is_logits" (the very object), "in_place" (top_k_mask_logits_)
    k       the scalar, when there is no tensor `k`; any JSON value, so that wrong ones can be said
    k_on    "other": the k tensor is moved to another device than the logits, which the contract forbids
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec.structs import replace
from torch import Tensor

from harness import strategies
from harness.alternatives import plainer_outs, retyped
from harness.case import Case, Fill, Number, Params, View, contiguous, tidy
from harness.operators import Call
from harness.operators.top_k_mask_logits.alternatives import alternatives
from harness.operators.top_k_mask_logits.shapes import DTYPES, FORMS, NAME, TIED, dimensions
from harness.strategies import LEGAL_RELATIONS, PLAIN, RELATIONS, VOCABULARIES, Layout, Scale
from oracles import top_k_mask_logits as oracle
from oracles.judgement import Judgement, Reference, Right

OUTPUTS = ("out",)

PARAMS = ("form", "k", "k_on")
REQUIRED = ("logits", "k")
__all__ = ["FORMS", "NAME", "alternatives", "dimensions"]  # the rest of what an operator has is below

WRONG = (
    "relation",
    "relation",
    "relation",
    "rows_overlap",
    "logits_dtype",
    "logits_rank",
    "logits_stride",
    "k_negative",
    "k_float",
    "k_bool",
    "k_list",
    "k_dtype",
    "k_shape",
    "k_scalar_tensor",
    "k_device",
    "k_overlap",
    "out_shape",
    "out_dtype",
    "out_stride",
)
"""Ways to make a call illegal. Partial overlap has five forms of its own, so it comes more often."""


_ONE_IN_SEVEN = st.integers(0, 6)
_WRONG = st.sampled_from(WRONG)
_FORMS = st.sampled_from((*FORMS, "out"))
_DTYPES = st.sampled_from(DTYPES)
_K_DTYPES = st.sampled_from((None, None, "int32", "int64"))
_LEGAL_RELATIONS = st.sampled_from(LEGAL_RELATIONS)
_ILLEGAL_RELATIONS = st.sampled_from([r for r in RELATIONS if r not in LEGAL_RELATIONS])
_K_CLASSES = st.sampled_from(("small", "edge", "any"))
_TEN = st.integers(0, 9)
_K_LISTS = st.lists(_TEN, min_size=1, max_size=4)


def cases(scale: Scale, *, illegal: bool = True) -> SearchStrategy[Case]:
    """Legal calls; with `illegal`, about one in seven is broken in one way of `WRONG`."""
    return _cases(scale, illegal)


@st.composite
def _cases(draw: DrawFn, scale: Scale, illegal: bool) -> Case:
    wrong = draw(_WRONG) if illegal and draw(_ONE_IN_SEVEN) == 6 else None
    form = draw(_FORMS)
    dtype = draw(_DTYPES)
    k_dtype = draw(_K_DTYPES)
    layout = draw(strategies.INPUT_LAYOUTS if form in ("new", "out") else strategies.LAYOUTS)
    relation = draw(_LEGAL_RELATIONS) if form == "out" else "apart"
    if wrong == "relation":
        form, relation = "out", draw(_ILLEGAL_RELATIONS)
    elif wrong == "rows_overlap":
        form, layout = "in_place", Layout(expanded=True) if layout.offset % 2 else Layout(pad=-1)
    if relation not in ("apart", "own_rows") and (layout.expanded or layout.pad < 0):
        layout = PLAIN
    k_layout = draw(strategies.EXPANDABLE_LAYOUTS) if k_dtype else PLAIN
    fill = strategies.draw_float_fill(draw)

    vocab = strategies.draw_size(draw, scale.elements, VOCABULARIES)
    batch = strategies.draw_size(draw, max(1, min(scale.rows, scale.elements // max(vocab, 1))))
    logits = layout.view(0, dtype, (batch, vocab))
    tensors, fills = {"logits": logits}, {"logits": fill}
    params: Params = {"form": form}
    if form == "out":
        tensors["logits"], tensors["out"] = strategies.related_view(logits, relation, 1)
    if k_dtype:
        tensors["k"] = k_layout.view(2, k_dtype, (batch,))
        fills["k"] = _draw_k_fill(draw, vocab)
    else:
        params["k"] = _draw_k(draw, vocab)
    case = Case(NAME, params, (0, 0, 0), tensors, fills)
    if wrong:
        case = _broken(case, wrong)
    return tidy(case)


def _draw_k(draw: DrawFn, vocab: int) -> int:
    kind, n = draw(_K_CLASSES), draw(_TEN)
    if kind == "small":
        return min(n, 4, vocab) or 1
    if kind == "edge":
        return (
            1,
            0,
            max(vocab - 1, 0),
            vocab,
            vocab + 1,
            vocab // 2,
            vocab // 3,
            1 << 30,
            (1 << 31) + 1,
            (1 << 40) + 1,
        )[n]
    return draw(st.integers(0, vocab))


def _draw_k_fill(draw: DrawFn, vocab: int) -> Fill:
    """One k for all rows, or several mixed: the small, the large, and what has to be clipped."""
    edges: tuple[Number, ...] = (
        1, 2, vocab, vocab // 2, 0, max(vocab - 1, 0), vocab + 7, -3, (1 << 31) - 1, (1 << 33) + 1,
    )  # fmt: skip
    chosen = draw(_K_LISTS)
    if len(chosen) == 1:
        return Fill("cycle", 0, (edges[chosen[0]],))
    return Fill("choice", draw(strategies.SEEDS), tuple(edges[i] for i in chosen))


def _broken(case: Case, wrong: str) -> Case:
    """The case made illegal in one way, where its shape lets that way show (the contract has the last word)."""
    logits = case.tensors["logits"]
    batch, vocab = logits.shape
    tensors, fills, params = dict(case.tensors), dict(case.fills), dict(case.params)
    scalars: dict[str, Any] = {"k_negative": -1, "k_float": 2.0, "k_bool": True, "k_list": [3] * batch}
    k = tensors.get("k") or View(2, "int64", (batch,), (1,))
    if wrong in scalars:
        tensors.pop("k", None)
        fills.pop("k", None)
        params["k"] = scalars[wrong]
    elif wrong in ("k_dtype", "k_shape", "k_scalar_tensor", "k_device", "k_overlap"):
        params.pop("k", None)
        fills["k"] = Fill("cycle", 0, (1,))
        if wrong == "k_dtype":
            k = View(2, "float32" if vocab % 2 else "int16", (batch,), (1,))
        elif wrong == "k_shape":
            k = View(2, k.dtype, (batch + 1,) if vocab % 2 else (batch, 1), (1,) if vocab % 2 else (1, 1))
        elif wrong == "k_scalar_tensor":
            k = View(2, k.dtype, (), ())
        elif wrong == "k_device":
            params["k_on"] = "other"
        elif wrong == "k_overlap":
            params["form"] = "in_place"
            tensors.pop("out", None)
            k = View(logits.storage, "int32", (batch,), (1,), -(-logits.offset // 4) * 4)
        tensors["k"] = k
    elif wrong == "logits_dtype":
        dtype = "float64" if vocab % 2 else "int32"
        for name in ("logits", "out"):
            if name in tensors:
                tensors[name] = View(tensors[name].storage, dtype, (batch, vocab), contiguous((batch, vocab)))
        tensors.pop("out", None)
        params["form"] = "new"
        fills["logits"] = Fill("cycle", 0, (1,))
    elif wrong in ("logits_rank", "logits_stride"):
        shape: tuple[int, ...] = (vocab,) if wrong == "logits_rank" else (batch, vocab)
        strides: tuple[int, ...] = (1,) if wrong == "logits_rank" else (2 * max(vocab, 1), 2)
        tensors = {"logits": View(0, logits.dtype, shape, strides)}
        fills.pop("k", None)
        params = {"form": "new", "k": 1}
    elif wrong in ("out_shape", "out_dtype", "out_stride"):
        params["form"] = "out"
        shape = (batch, vocab + 1) if wrong == "out_shape" else (batch, vocab)
        dtype = {"float32": "float16"}.get(logits.dtype, "float32") if wrong == "out_dtype" else logits.dtype
        strides = (2 * max(vocab, 1), 2) if wrong == "out_stride" else contiguous(shape)
        tensors["out"] = View(1, dtype, shape, strides)
    return Case(NAME, params, case.storages, tensors, fills)


def bind(case: Case, tensors: Mapping[str, Tensor]) -> Call:
    logits = tensors["logits"]
    k: Any = case.params.get("k")
    if "k" in tensors:
        k = tensors["k"]
        if case.params.get("k_on") == "other":
            k = k.to("cpu" if logits.is_cuda else "meta")
    form = case.params["form"]
    if form not in FORMS:
        raise ValueError(f"unknown form {form!r}; known are {', '.join(FORMS)}")
    if form == "in_place":
        return Call((logits, k), {}, "_", frozenset({"logits"}), (logits,))
    if form == "out_is_logits":
        return Call((logits, k), {"out": logits}, "", frozenset({"logits"}), (logits,))
    if form == "out":
        return Call((logits, k), {"out": tensors["out"]}, "", frozenset({"out"}), (tensors["out"],))
    return Call((logits, k))


def contract(call: Call) -> str | None:
    logits, k = call.args
    return oracle.contract(logits, k, call.kwargs.get("out"), in_place=call.method == "_")


def semantics(declared: Mapping[str, Any], device: str) -> oracle.Semantics:
    known = {"ties": ("all", "exactly_k"), "nan": ("keep", "mask", "unspecified")}
    for name, value in declared.items():
        if value not in known.get(name, ()):
            raise ValueError(f"SEMANTICS[{name!r}] = {value!r}; known: {known}")
    return oracle.Semantics(**declared)


def reference(call: Call, semantics: oracle.Semantics) -> Reference:
    logits, k = call.args
    return oracle.reference(logits, k, semantics)


def judge(outputs: dict[str, Tensor], reference: Reference) -> dict[str, Judgement]:
    return oracle.judge(outputs, reference)


def rights(reference: Reference) -> dict[str, Right]:
    return oracle.rights(reference)


def why(case: Case, semantics: oracle.Semantics) -> str:
    stay = {
        "all": "every element that is at least its row's k-th largest stays (all that tie with it)",
        "exactly_k": "the k largest elements of a row stay (any k of those that tie)",
    }[semantics.ties]
    nan = {"keep": "", "mask": ", NaNs too", "unspecified": ", rows with a NaN are free to"}[semantics.nan]
    return f"{stay}, bit for bit; all others become -inf{nan}; NaN ranks highest"


def build_params(case: Case) -> Params:
    k = case.tensors.get("k")
    return {"dtype": case.tensors["logits"].dtype, "k": k.dtype if k else "int"}


def build_matrix() -> Iterator[Params]:
    for dtype, k in itertools.product(DTYPES, ("int", "int32", "int64")):
        yield {"dtype": dtype, "k": k}


def relations(case: Case) -> Iterator[tuple[str, Case]]:
    """In place as out of place; any layout as the dense one: selection is exact, so bit for bit."""
    logits = case.tensors["logits"]
    rest = {name: view for name, view in case.tensors.items() if name != "out"}
    if case.params["form"] != "new":
        yield "in_place_differs", tidy(replace(case, params={**case.params, "form": "new"}, tensors=rest))
    dense = contiguous(logits.shape)
    if (logits.strides, logits.offset) != (dense, 0) and not logits.overlaps_itself:
        plain = replace(rest["logits"], storage=0, strides=dense, offset=0)
        tensors = {n: replace(v, storage=n == "k") for n, v in rest.items()} | {"logits": plain}
        moved = replace(case, params={**case.params, "form": "new"}, tensors=tensors, storages=(plain.end, 0))
        yield "layout_differs", tidy(moved)


def simpler(case: Case) -> Iterator[Case]:
    params, tensors, fills = case.params, case.tensors, case.fills
    logits = tensors["logits"]
    vocab = logits.shape[-1] if logits.shape else 1
    yield from plainer_outs(case, "logits", FORMS)
    if "k" in tensors:
        rest = {name: view for name, view in tensors.items() if name != "k"}
        others = {name: fill for name, fill in fills.items() if name != "k"}
        if tensors["k"].dtype == "int64":
            smaller = tensors["k"].offset // 8 * 4
            yield replace(case, tensors={**tensors, "k": replace(tensors["k"], dtype="int32", offset=smaller)})
        given = [v for v in (fills["k"].values if "k" in fills else ()) if isinstance(v, int)]
        for k in dict.fromkeys((1, vocab, 0, *(max(v, 0) for v in given))):
            yield replace(case, params={**params, "k": k}, tensors=rest, fills=others)
        values = fills["k"].values if "k" in fills else ()
        if values and fills["k"].kind == "cycle" and len(values) == 1 and values != (1,):
            yield replace(case, fills={**fills, "k": Fill("cycle", 0, (1,))})
        for simple in (Fill("cycle", 0, (1,)), Fill("cycle", 0, (1, vocab)), *(Fill("cycle", 0, (v,)) for v in values)):
            if "k" in fills and (fills["k"].kind != "cycle" or len(simple.values) < len(fills["k"].values)):
                yield replace(case, fills={**fills, "k": simple})
    scalar = params.get("k")
    if isinstance(scalar, int) and not isinstance(scalar, bool):
        for candidate in dict.fromkeys((1, 2, vocab, scalar // 2, scalar - 1)):
            if 0 < candidate < scalar or (candidate == 1 and scalar == 0):
                yield replace(case, params={**params, "k": candidate})
    for dtype in DTYPES:
        if dtype == logits.dtype:
            break
        yield retyped(case, TIED, dtype)


def flags(case: Case) -> str:
    return ""


def features(case: Case) -> Iterator[str]:
    if case.params["form"] != "new":
        yield str(case.params["form"])
    if "k" in case.tensors:
        yield f"k_{case.tensors['k'].dtype}"
