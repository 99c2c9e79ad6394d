"""Ways in which a call of single_prefill is made illegal (the contract has the last word)."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from harness.case import Case, Fill, View, contiguous
from harness.strategies import LEGAL_RELATIONS, RELATIONS, related_view

SCALARS: dict[str, tuple[str, Any]] = {
    "soft_cap_negative": ("logits_soft_cap", -30.0),
    "soft_cap_infinite": ("logits_soft_cap", "inf"),
    "soft_cap_nan": ("logits_soft_cap", "nan"),
    "scale_nan": ("sm_scale", "nan"),
    "scale_infinite": ("sm_scale", "-inf"),
    "scale_list": ("sm_scale", [0.125]),
    "layout_word": ("kv_layout", "DHN"),
    "window_float": ("window_left", 2.5),
    "causal_word": ("causal", "yes"),
    "lse_word": ("return_lse", "no"),
}
"""A keyword argument of a value that no call may have."""

WRONG = (
    "relation",
    "relation",
    "own_rows",
    "head_dim",
    "head_dim",
    "head_dims_differ",
    "lengths_differ",
    "heads_not_divisible",
    "mask_shape",
    "mask_shape",
    "mask_dtype",
    "causal_and_mask",
    "flag_with_bf16",
    "flag_with_bf16",
    "stride",
    "dtypes_differ",
    "dtype",
    "rank",
    "alibi_shape",
    "alibi_dtype",
    "out_shape",
    "out_dtype",
    "out_is_k",
    "expanded_out",
    *SCALARS,
)

WAYS = st.sampled_from(WRONG)

_ILLEGAL_RELATIONS = [r for r in RELATIONS if r not in (*LEGAL_RELATIONS, "own_rows")]


def broken(case: Case, wrong: str) -> Case:
    """The case made illegal in one way, where its shape lets that way show."""
    if wrong in SCALARS:
        name, value = SCALARS[wrong]
        return replace(case, params={**case.params, name: value})
    if wrong in ("relation", "own_rows"):
        return _related(case, wrong)
    params, tensors, fills = dict(case.params), dict(case.tensors), dict(case.fills)
    q, k = tensors["q"], tensors["k"]
    qo_len, kv_len = q.shape[0], k.shape[1 if params.get("kv_layout") == "HND" else 0]
    if wrong == "head_dim":
        dim = (96, 72, 32, 80, 512, 1)[(qo_len + kv_len) % 6]
        for name in ("q", "k", "v", "out"):
            if name in tensors:
                tensors[name] = _dense(tensors[name], shape=(*tensors[name].shape[:-1], dim))
    elif wrong == "head_dims_differ":
        tensors["kv"[kv_len % 2]] = _dense(k, shape=(*k.shape[:-1], k.shape[-1] // 2))
    elif wrong == "lengths_differ":
        tensors["v"] = _dense(tensors["v"], shape=(k.shape[0] + 1, *k.shape[1:]))
    elif wrong == "heads_not_divisible":
        heads = 1 if params.get("kv_layout") != "HND" else 0
        for name in ("k", "v"):
            before = tensors[name].shape
            more = (*before[:heads], q.shape[1] + 1, *before[heads + 1 :])
            tensors[name] = _dense(tensors[name], shape=more)
    elif wrong in ("mask_shape", "mask_dtype", "causal_and_mask"):
        shape: tuple[int, ...] = ((qo_len, max(kv_len - 1, 0)), (kv_len, qo_len), (qo_len * kv_len,))[kv_len % 3]
        right = wrong != "mask_shape" or shape == (qo_len, kv_len)
        shape = (qo_len, kv_len) if right else shape
        params = {n: v for n, v in params.items() if n != "causal"}
        if wrong == "causal_and_mask":
            params["causal"] = True
        dtype = "uint8" if wrong == "mask_dtype" else "bool"
        tensors["custom_mask"] = View(5, dtype, shape, contiguous(shape))
        fills["custom_mask"] = Fill("cycle", 0, (1,))
    elif wrong == "flag_with_bf16":
        params["use_fp16_qk_reduction"] = True
        for name in ("q", "k", "v", "out"):
            if name in tensors:
                tensors[name] = replace(tensors[name], dtype="bfloat16")
    elif wrong == "stride":
        name = ("q", "k", "v")[kv_len % 3]
        view = tensors[name]
        tensors[name] = replace(_dense(view), strides=tuple(2 * s for s in contiguous(view.shape)))
    elif wrong in ("dtypes_differ", "dtype"):
        other = "bfloat16" if q.dtype == "float16" else "float16"
        for name in ("q", "k", "v", "out") if wrong == "dtype" else ("kv"[kv_len % 2],):
            if name in tensors:
                tensors[name] = _dense(tensors[name], dtype="float32" if wrong == "dtype" else other)
                fills = {**fills, name: Fill("cycle", 0, (1.0,))} if name in fills else fills
    elif wrong == "rank":
        name = ("q", "k", "v")[kv_len % 3]
        tensors[name] = _dense(tensors[name], shape=tensors[name].shape[1:])
    elif wrong in ("alibi_shape", "alibi_dtype"):
        shape = (q.shape[1] + 1,) if wrong == "alibi_shape" else (q.shape[1],)
        tensors["alibi_slopes"] = View(4, "float32" if wrong == "alibi_shape" else "float16", shape, (1,))
        fills["alibi_slopes"] = Fill("cycle", 0, (0.5,))
    else:
        params["form"] = "out"
        tensors["out"] = _wrong_out(wrong, q, k, tensors.get("out"))
    return _whole(replace(case, params=params, tensors=tensors, fills=fills))


def _wrong_out(wrong: str, q: View, k: View, out: View | None) -> View:
    if wrong == "out_shape":
        return View(3, q.dtype, (q.shape[0] + 1, *q.shape[1:]), contiguous(q.shape))
    if wrong == "out_dtype":
        return View(3, "float32", q.shape, contiguous(q.shape))
    if wrong == "out_is_k":
        return View(k.storage, q.dtype, q.shape, contiguous(q.shape), k.offset)
    return View(3, q.dtype, q.shape, (0, *contiguous(q.shape)[1:]))  # expanded_out


def _related(case: Case, wrong: str) -> Case:
    """`out` partly on q, or with rows that overlap each other."""
    q = case.tensors["q"]
    relation = wrong if wrong == "own_rows" else _ILLEGAL_RELATIONS[sum(q.shape) % len(_ILLEGAL_RELATIONS)]
    if q.overlaps_itself:
        q = _dense(q)
    moved, out = related_view(q, relation, 3)
    return replace(case, params={**case.params, "form": "out"}, tensors={**case.tensors, "q": moved, "out": out})


def _dense(view: View, *, shape: tuple[int, ...] | None = None, dtype: str | None = None) -> View:
    """The view in a plain layout, with another shape or dtype, at the start of its storage."""
    shape = view.shape if shape is None else shape
    return View(view.storage, dtype or view.dtype, shape, contiguous(shape))


def _whole(case: Case) -> Case:
    """Planted values only where the changed tensors have elements."""
    fills = {
        name: replace(fill, planted=tuple(p for p in fill.planted if p.index < case.tensors[name].numel))
        for name, fill in case.fills.items()
    }
    return replace(case, fills=fills)
