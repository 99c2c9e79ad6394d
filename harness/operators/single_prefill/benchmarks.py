"""What is timed of single_prefill, and beside whom. A workload is written

    DTYPE qo=LENGTH [kv=LENGTH] heads=HEADS[/KV_HEADS] d=SIZE [causal] [soft_cap=CAP] [alibi] [fp16_qk]

    float16 qo=4096 heads=32/8 d=128 causal

kv is qo, and KV_HEADS is HEADS, if it is left out. Inputs are N(0, 1); ALiBi's slopes are those of its paper,
2^(-8 h / HEADS) for the head h counted from 1. fp16_qk is use_fp16_qk_reduction.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from harness.bench.workload import Competitor, Cost, Part, Tensors, Workload, normal, words
from harness.operators import Call
from harness.operators.single_prefill.shapes import HEAD_DIMS, NAME

_VARIANTS = ("", " soft_cap=30", " alibi", " fp16_qk")

SETS = {
    "standard": (
        "float16 qo=4096 heads=32 d=128 causal",
        "float16 qo=16384 heads=16 d=128 causal",
        "float16 qo=4096 heads=32/8 d=128 causal",
        "float16 qo=4096 heads=32 d=128",
        "float16 qo=16384 heads=16 d=128",
    ),
    "quick": ("float16 qo=4096 heads=32 d=128 causal", "float16 qo=128 kv=4096 heads=32/4 d=128 causal"),
    "variants": tuple(
        f"float16 qo=4096 heads=32 d=128{mask}{variant}" for variant in _VARIANTS for mask in (" causal", "")
    ),
    "head_dims": tuple(
        f"float16 qo=4096 heads={heads} d={d}{mask}" for heads, d in ((32, 64), (16, 256)) for mask in (" causal", "")
    ),
    "bfloat16": ("bfloat16 qo=4096 heads=32 d=128 causal", "bfloat16 qo=4096 heads=32 d=128"),
    "models": (
        "float16 qo=128 kv=4096 heads=32/4 d=128 causal",  # the example in FlashInfer's documentation
        "bfloat16 qo=2048 heads=32/8 d=128 causal",  # heads of Llama 3 8B
        "bfloat16 qo=8192 heads=32/8 d=128 causal",
        "bfloat16 qo=8192 heads=64/8 d=128 causal",  # of Llama 3 70B
        "bfloat16 qo=1024 kv=32768 heads=32/8 d=128 causal",  # a chunk of a long prompt
        "bfloat16 qo=4096 heads=8/4 d=256 causal soft_cap=50",  # of Gemma 2 2B
    ),
}

_ALL_SCORES = 1 << 21
"""A result with so many scores at most is judged whole."""
_BLOCK = 16
"""Rows of each block of a sample."""


def workload(text: str) -> Workload:
    options = {"qo": int, "kv": int, "heads": str, "d": int, "soft_cap": float}
    alone, found = words(text, ("causal", "alibi", "fp16_qk"), options)
    if len(alone) != 1 or not {"qo", "heads", "d"} <= set(found):
        raise ValueError("write DTYPE qo=LENGTH heads=HEADS d=SIZE, as in float16 qo=4096 heads=32/8 d=128 causal")
    dtype = alone[0]
    if dtype not in ("float16", "bfloat16"):
        raise ValueError("the dtype is float16 or bfloat16")
    heads, _, kv_heads = found["heads"].partition("/")
    kv_heads = kv_heads or heads
    if not (heads.isdecimal() and kv_heads.isdecimal() and int(kv_heads) and not int(heads) % int(kv_heads)):
        raise ValueError(f"heads={found['heads']} is no HEADS/KV_HEADS of which the second divides the first")
    qo, kv, d, cap = found["qo"], found.get("kv", found["qo"]), found["d"], found.get("soft_cap", 0.0)
    if qo < 1 or kv < 1 or int(heads) < 1:
        raise ValueError("lengths and heads are at least 1")
    if d not in HEAD_DIMS:
        raise ValueError(f"d is one of {', '.join(map(str, HEAD_DIMS))}")
    if not 0 <= cap < float("inf"):
        raise ValueError("soft_cap is not negative")
    if found.get("fp16_qk") and dtype != "float16":
        raise ValueError("fp16_qk is for float16")
    params: dict[str, Any] = {
        "dtype": dtype,
        "qo": qo,
        "kv": kv,
        "heads": int(heads),
        "kv_heads": int(kv_heads),
        "d": d,
    }
    params |= {"soft_cap": cap, **{flag: found.get(flag, False) for flag in ("causal", "alibi", "fp16_qk")}}
    if params["causal"] and qo > kv:
        raise ValueError("causal with qo > kv leaves queries without any key")
    written = [dtype, f"qo={qo}", *([f"kv={kv}"] if kv != qo else [])]
    written += [f"heads={int(heads)}" + (f"/{int(kv_heads)}" if int(kv_heads) != int(heads) else ""), f"d={d}"]
    written += ["causal"] if params["causal"] else []
    plain = " ".join(written)
    variant = [*([f"soft_cap={cap:g}"] if cap else []), *(flag for flag in ("alibi", "fp16_qk") if params[flag])]
    return Workload(NAME, " ".join([*written, *variant]), params, against=plain if variant else "")


def cost(workload: Workload) -> Cost:
    """4 D operations for each pair of a query and a key that it sees, in each query head; each tensor once."""
    p = workload.params
    pairs = p["qo"] * p["kv"] - (p["qo"] * (p["qo"] - 1) // 2 if p["causal"] else 0)
    queries, keys = 2 * p["qo"] * p["heads"] * p["d"], 2 * p["kv"] * p["kv_heads"] * p["d"]
    return Cost(queries + 2 * keys, queries, 4.0 * pairs * p["d"] * p["heads"], p["dtype"])


def inputs(workload: Workload, seed: int, device: str) -> dict[str, Tensor]:
    p = workload.params
    shapes = {"q": (p["qo"], p["heads"]), "k": (p["kv"], p["kv_heads"]), "v": (p["kv"], p["kv_heads"])}
    dtype = getattr(torch, p["dtype"])
    found = {n: normal((*shape, p["d"]), dtype, 3 * seed + i, device) for i, (n, shape) in enumerate(shapes.items())}
    if p["alibi"]:
        heads = torch.arange(1, p["heads"] + 1, device=device, dtype=torch.float64)
        found["alibi_slopes"] = (2.0 ** (-8.0 * heads / p["heads"])).float()
    return found


def calls(workload: Workload, tensors: Tensors) -> tuple[Call, ...]:
    return (_call(workload, tensors),)


def _call(workload: Workload, tensors: Tensors) -> Call:
    p = workload.params
    kwargs: dict[str, Any] = {"causal": p["causal"]}
    if p["soft_cap"]:
        kwargs["logits_soft_cap"] = p["soft_cap"]
    if p["fp16_qk"]:
        kwargs["use_fp16_qk_reduction"] = True
    if p["alibi"]:
        kwargs["alibi_slopes"] = tensors["alibi_slopes"]
    return Call((tensors["q"], tensors["k"], tensors["v"]), kwargs)


def build_params(workload: Workload) -> dict[str, Any]:
    p = workload.params
    return {
        "dtype": p["dtype"],
        "head_dim": p["d"],
        "fp16_qk": p["fp16_qk"],
        "mask": "causal" if p["causal"] else "none",
        "window": False,
        "soft_cap": p["soft_cap"] != 0,
        "alibi": p["alibi"],
    }


def parts(workload: Workload, tensors: Tensors, outputs: dict[str, Tensor]) -> Iterator[Part]:
    """Blocks of rows in some heads: each is a call of its own, whose last query is the block's last.

    Under a causal mask that query sees the first kv - qo + end keys, and the call has no others. Without one every row sees
    all keys; with ALiBi the distance is counted from the last query, so only a block at the end is such a call.
    """
    p = workload.params
    group = p["heads"] // p["kv_heads"]
    for rows, kv_head in itertools.product(_rows(workload), _kv_heads(workload)):
        heads, keys = slice(kv_head * group, (kv_head + 1) * group), slice(kv_head, kv_head + 1)
        end = p["kv"] - p["qo"] + rows.stop if p["causal"] else p["kv"]
        part = {"q": tensors["q"][rows, heads], "k": tensors["k"][:end, keys], "v": tensors["v"][:end, keys]}
        if p["alibi"]:
            part["alibi_slopes"] = tensors["alibi_slopes"][heads]
        yield Part(_call(workload, part), {"out": outputs["out"][rows, heads]})


def judged(workload: Workload) -> str:
    p = workload.params
    if _whole(workload):
        return "every row"
    rows = sum(rows.stop - rows.start for rows in _rows(workload))
    heads = len(_kv_heads(workload)) * p["heads"] // p["kv_heads"]
    return f"{rows} of {p['qo']} rows in {heads} of {p['heads']} heads"


def _whole(workload: Workload) -> bool:
    p = workload.params
    return p["qo"] * p["kv"] * p["heads"] <= _ALL_SCORES


def _rows(workload: Workload) -> list[slice]:
    """The first rows, some in the middle that cross a tile's edge, and the last."""
    p = workload.params
    qo = p["qo"]
    if _whole(workload) or qo <= 3 * _BLOCK:
        return [slice(0, qo)]
    middle = qo // 2 - _BLOCK // 2
    starts = [qo - _BLOCK] if p["alibi"] and not p["causal"] else [0, middle, qo - _BLOCK]
    return [slice(start, start + _BLOCK) for start in starts]


def _kv_heads(workload: Workload) -> list[int]:
    count = workload.params["kv_heads"]
    return list(range(count)) if _whole(workload) else sorted({0, count - 1})


def _sdpa(backend: str, workload: Workload, tensors: Tensors) -> Tensor:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.bias import causal_lower_right
    from torch.nn.functional import scaled_dot_product_attention

    p = workload.params
    q, k, v = (tensors[name].transpose(0, 1).unsqueeze(0) for name in ("q", "k", "v"))
    grouped = p["heads"] != p["kv_heads"]
    with sdpa_kernel([getattr(SDPBackend, backend)]):
        if p["causal"] and p["qo"] != p["kv"]:
            mask: Any = causal_lower_right(p["qo"], p["kv"])
            out = scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped)
        else:
            out = scaled_dot_product_attention(q, k, v, is_causal=p["causal"], enable_gqa=grouped)
    return out.squeeze(0).transpose(0, 1)


def _sdpa_flash(workload: Workload, tensors: Tensors) -> Tensor:
    return _sdpa("FLASH_ATTENTION", workload, tensors)


def _sdpa_cudnn(workload: Workload, tensors: Tensors) -> Tensor:
    return _sdpa("CUDNN_ATTENTION", workload, tensors)


def _plain_alone(workload: Workload) -> str | None:
    p = workload.params
    for name, param in (("a soft cap", "soft_cap"), ("ALiBi", "alibi"), ("float16 sums", "fp16_qk")):
        if p[param]:
            return f"scaled_dot_product_attention has no kernel for {name}"
    return None


def _square_alone(workload: Workload) -> str | None:
    p = workload.params
    if p["causal"] and p["qo"] != p["kv"]:
        return "torch aligns cuDNN's causal mask at the first key"
    return _plain_alone(workload)


def _flashinfer(backend: str, workload: Workload, tensors: Tensors) -> Tensor:
    import flashinfer  # type: ignore[import-not-found, unused-ignore]

    p = workload.params
    return flashinfer.single_prefill_with_kv_cache(
        tensors["q"],
        tensors["k"],
        tensors["v"],
        causal=p["causal"],
        pos_encoding_mode="ALIBI" if p["alibi"] else "NONE",
        logits_soft_cap=p["soft_cap"] or None,
        backend=backend,
    )


def _flashinfer_fa2(workload: Workload, tensors: Tensors) -> Tensor:
    return _flashinfer("fa2", workload, tensors)


def _flashinfer_fa3(workload: Workload, tensors: Tensors) -> Tensor:
    return _flashinfer("fa3", workload, tensors)


def _builds(workload: Workload) -> str | None:
    return "FlashInfer's kernels do not build with float16 sums" if workload.params["fp16_qk"] else None


def _builds_for_fa3(workload: Workload) -> str | None:
    return "FlashInfer's fa3 has no ALiBi" if workload.params["alibi"] else _builds(workload)


# What they say of their arithmetic is little: tanh is the fast one, and row sums may be of the rounded P.
_FAST = ({"tanh": "approximate"}, {"tanh": "approximate", "sum": "p"})

COMPETITORS = (
    Competitor("flashinfer fa3", "flashinfer", _flashinfer_fa3, _FAST, _builds_for_fa3),
    Competitor("flashinfer fa2", "flashinfer", _flashinfer_fa2, _FAST, _builds),
    Competitor("sdpa cudnn", "torch", _sdpa_cudnn, _FAST, _square_alone),
    Competitor("sdpa flash", "torch", _sdpa_flash, _FAST, _plain_alone),
)
