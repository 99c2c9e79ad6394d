"""single_prefill_with_kv_cache(q [qo_len, qo_heads, D], k, v, ...): attention of one sequence, out and log-sum-exp.

k and v are [kv_len, kv_heads, D] or, in the layout HND, [kv_heads, kv_len, D].

Parameters of a case: the function's keyword arguments that are no tensors, where they are given ("nan", "inf" and "-inf"
stand for the floats), and
    form    "new" (no out), "out" (tensor `out`), "out_is_q" (the very object)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hypothesis.strategies import SearchStrategy
from torch import Tensor

from harness import hardware
from harness.case import Case, Params
from harness.operators import Call
from harness.operators.single_prefill import drawing
from harness.operators.single_prefill.alternatives import alternatives
from harness.operators.single_prefill.shapes import FORMS, HEAD_DIMS, NAME, dimensions
from harness.operators.single_prefill.simpler import simpler
from harness.resize import sizes
from harness.strategies import Scale
from oracles import single_prefill as oracle
from oracles.judgement import Judgement, Reference, Right

OUTPUTS = ("out", "lse")
PARAMS = (
    "form",
    "causal",
    "kv_layout",
    "window_left",
    "logits_soft_cap",
    "sm_scale",
    "use_fp16_qk_reduction",
    "return_lse",
)
REQUIRED = ("q", "k", "v")

__all__ = ["FORMS", "NAME", "alternatives", "dimensions", "simpler"]  # the rest of what an operator has is below

_WORDS = {
    name: get_args(hint) for name, hint in get_type_hints(oracle.Semantics).items() if get_origin(hint) is Literal
}

_FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def cases(scale: Scale, *, illegal: bool = True) -> SearchStrategy[Case]:
    """Legal calls; with `illegal`, about one in seven is broken in one way of `broken.WRONG`."""
    return drawing.cases(scale, illegal)


def bind(case: Case, tensors: Mapping[str, Tensor]) -> Call:
    form = case.params.get("form", "new")
    if form not in FORMS:
        raise ValueError(f"unknown form {form!r}; known are {', '.join(FORMS)}")
    given = {name: value for name, value in case.params.items() if name != "form"}
    kwargs: dict[str, Any] = {n: _FLOATS.get(v, v) if isinstance(v, str) else v for n, v in given.items()}
    kwargs |= {name: tensors[name] for name in ("alibi_slopes", "custom_mask") if name in tensors}
    writes: frozenset[str] = frozenset()
    if form != "new":
        writes = frozenset({"q" if form == "out_is_q" else "out"})
        kwargs["out"] = tensors["q" if form == "out_is_q" else "out"]
    returns = (kwargs.get("out"), None) if kwargs.get("return_lse") is True else (kwargs.get("out"),)
    return Call((tensors["q"], tensors["k"], tensors["v"]), kwargs, "", writes, returns)


def contract(call: Call) -> str | None:
    return oracle.contract(*call.args, **call.kwargs)


def semantics(declared: Mapping[str, Any], device: str) -> oracle.Semantics:
    """The words of `oracles.single_prefill.Semantics`, and `dot`: "any" or "tensor_core", whether every product sum is the
    device's tensor cores' (then the bound is theirs) or may be a chain of float32 operations."""
    words = {**_WORDS, "dot": ("any", "tensor_core")}
    for name, value in declared.items():
        if name == "logits_transform" and callable(value):
            continue
        if value not in words.get(name, ()):
            raise ValueError(f"SEMANTICS[{name!r}] = {value!r}; known: {words}, and a callable logits_transform")
    given = {name: value for name, value in declared.items() if name != "dot"}
    if declared.get("dot") == "tensor_core":
        given["tensor_core"] = hardware.tensor_core(device)
    return oracle.Semantics(**given)


def reference(call: Call, semantics: oracle.Semantics) -> Reference:
    arguments = {name: value for name, value in call.kwargs.items() if name != "out"}
    return oracle.reference(*call.args, **arguments, semantics=semantics)


def judge(outputs: dict[str, Tensor], reference: Reference) -> dict[str, Judgement]:
    return oracle.judge(outputs, reference)


def rights(reference: Reference) -> dict[str, Right]:
    return oracle.rights(reference)


def why(case: Case, semantics: oracle.Semantics) -> str:
    made = build_params(case)
    own = semantics.logits_transform is not None
    steps = [
        "sm_scale * q.k",
        *(["the kernel's own transform"] if own else []),
        *(["+ slope * (key - query), both counted from the last"] if made["alibi"] and not own else []),
        *(["cap * tanh(score / cap)"] if made["soft_cap"] and not own else []),
        *([f"the {made['mask']} mask"] if made["mask"] != "none" else []),
        *(["the window"] if made["window"] else []),
        "softmax, times v",
    ]
    base = {"log2": "2", "ln": "e"}[semantics.lse]
    lse = f"; the LSE is to base {base}" if case.params.get("return_lse") is True else ""
    sums = "float16" if made["fp16_qk"] else "float32"
    return (
        f"{', then '.join(steps)}, in float64{lse}; the bound is what {sums} sums of q.k, float32 arithmetic after them and "
        f"rounding to {made['dtype']} can be off by"
    )


def build_params(case: Case) -> Params:
    params, q = case.params, case.tensors["q"]
    window, soft_cap = params.get("window_left", -1), params.get("logits_soft_cap")
    mask = "custom" if "custom_mask" in case.tensors else "causal" if params.get("causal") else "none"
    return {
        "dtype": q.dtype,
        "head_dim": q.shape[-1] if q.shape else 0,
        "fp16_qk": params.get("use_fp16_qk_reduction") is True,
        "mask": mask,
        "window": isinstance(window, int) and window >= 0,
        "soft_cap": soft_cap not in (None, 0),
        "alibi": "alibi_slopes" in case.tensors,
    }


def build_matrix() -> Iterator[Params]:
    off_on = (False, True)
    axes: dict[str, tuple[Any, ...]] = {
        "fp16_qk": off_on,
        "dtype": ("float16", "bfloat16"),
        "head_dim": HEAD_DIMS,
        "mask": ("none", "causal", "custom"),
        "window": off_on,
        "soft_cap": off_on,
        "alibi": off_on,
    }
    for values in itertools.product(*axes.values()):
        params = dict(zip(axes, values))
        if not (params["fp16_qk"] and params["dtype"] == "bfloat16"):
            yield {name: params[name] for name in ("dtype", "head_dim", *axes)}


def relations(case: Case) -> Iterator[tuple[str, Case]]:
    """None: another layout may be summed in another order, so that both are only inside the bound."""
    yield from ()


def flags(case: Case) -> str:
    """Dtype, and what changes the bound."""
    made = build_params(case)
    return " ".join([str(made["dtype"]), *(name for name in ("fp16_qk", "soft_cap", "alibi") if made[name])])


def features(case: Case) -> Iterator[str]:
    params = case.params
    if params.get("form", "new") != "new":
        yield str(params["form"])
    if params.get("use_fp16_qk_reduction") is True:
        yield "fp16_qk"
    yield from (name for name in ("alibi_slopes", "custom_mask") if name in case.tensors)
    for name in ("causal", "return_lse"):
        if params.get(name) is True:
            yield name
    if params.get("kv_layout", "NHD") != "NHD":
        yield str(params["kv_layout"])
    if params.get("window_left", -1) != -1:
        yield "window"
    if params.get("logits_soft_cap") is not None:
        yield "soft_cap"
    if params.get("sm_scale") is not None:
        yield "sm_scale"
    known = sizes(case, dimensions(case))
    if known.get("qo_heads") != known.get("kv_heads"):
        yield "grouped heads"
