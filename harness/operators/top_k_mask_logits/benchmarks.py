"""What is timed of top_k_mask_logits, and beside whom. A workload is written

    DTYPE BATCHxVOCAB k=K [values=VALUES]       float32 1024x128256 k=50

K is a number, or `mixed` for a tensor of another k in each row, spread evenly over the orders of magnitude up to vocab.
VALUES is one of `VALUES`, normal ones if it is left out. Implementations that can do so work in place, which is the product.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from harness.bench.workload import Competitor, Cost, Part, Tensors, Workload, normal, words
from harness.operators import Call
from harness.operators.top_k_mask_logits.shapes import DTYPES, NAME

VALUES = ("normal", "equal", "two", "outlier", "narrow", "masked", "ascending", "descending", "nan", "prefix")
"""normal: N(0, 1). equal: one value. two: two values at random. outlier: normal ones, one of a row 1e30 (the largest of
float16). narrow: normal ones times 1e-10 (float16: 1e-4). masked: -inf. ascending, descending: normal ones, sorted. nan: normal
ones, one in a hundred NaN. prefix: values that share all leading bits and differ in the last 8 (of 16-bit ones, 4)."""

_VOCABULARIES = (32000, 50257, 128256, 151936, 256000)
"""Of Llama 2, GPT-2, Llama 3, Qwen 2 and Gemma."""

SETS = {
    "standard": (
        *(f"float32 {batch}x128256 k=50" for batch in (1, 16, 64, 256, 1024, 4096)),
        "float32 1024x32000 k=50",
        "float32 1024x128256 k=2048",
        "float32 256x128256 k=100000",
        *(f"bfloat16 {batch}x128256 k=50" for batch in (1, 64, 256, 4096)),
    ),
    "quick": ("float32 1x128256 k=50", "float32 64x128256 k=50", "bfloat16 64x128256 k=50", "float32 1024x32000 k=50"),
    "vocabularies": tuple(f"float32 {batch}x{vocab} k=50" for vocab in _VOCABULARIES for batch in (1, 64, 1024)),
    "adversarial": tuple(
        f"{shape} values={values}"
        for shape in ("float32 256x128256 k=50", "bfloat16 256x128256 k=50", "float32 1x128256 k=50")
        for values in VALUES[1:]
    ),
    "mixed": tuple(f"float32 {batch}x128256 k=mixed" for batch in (16, 256)),
}

_ROWS_AT_A_TIME = 1 << 25
"""Elements that are judged at a time: the oracle needs some 60 bytes for each."""


def workload(text: str) -> Workload:
    alone, found = words(text, (), {"k": str, "values": str})
    if len(alone) != 2 or "k" not in found:
        raise ValueError("write DTYPE BATCHxVOCAB k=K, as in float32 1024x128256 k=50")
    dtype, shape = alone
    if dtype not in DTYPES:
        raise ValueError(f"the dtype is one of {', '.join(DTYPES)}")
    batch, cross, vocab = shape.replace("×", "x").partition("x")
    if not (cross and batch.isdecimal() and vocab.isdecimal() and int(batch) and int(vocab)):
        raise ValueError(f"{shape!r} is no BATCHxVOCAB")
    k = found["k"]
    if k != "mixed" and not k.isdecimal():
        raise ValueError(f"k={k} is neither a number nor `mixed`")
    values = found.get("values", "normal")
    if values not in VALUES:
        raise ValueError(f"values={values} is none of {', '.join(VALUES)}")
    plain = f"{dtype} {int(batch)}x{int(vocab)} k={k if k == 'mixed' else int(k)}"
    params = {
        "dtype": dtype,
        "batch": int(batch),
        "vocab": int(vocab),
        "k": k if k == "mixed" else int(k),
        "values": values,
    }
    if values == "normal":
        return Workload(NAME, plain, params)
    return Workload(NAME, f"{plain} values={values}", params, against=plain)


def cost(workload: Workload) -> Cost:
    """Each logit is read once and written once."""
    size = workload.params["batch"] * workload.params["vocab"] * _dtype(workload).itemsize
    return Cost(size, size)


def inputs(workload: Workload, seed: int, device: str) -> dict[str, Tensor]:
    batch, vocab = workload.params["batch"], workload.params["vocab"]
    found = {"logits": _values(workload.params["values"], (batch, vocab), _dtype(workload), seed, device)}
    if workload.params["k"] == "mixed":
        generator = torch.Generator(device).manual_seed(seed + 1)
        spread = torch.rand(batch, generator=generator, device=device, dtype=torch.float64)
        found["k"] = (vocab**spread).to(torch.int32).clamp_(1, vocab)
    return found


def _values(kind: str, shape: tuple[int, int], dtype: torch.dtype, seed: int, device: str) -> Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    if kind in ("equal", "masked"):
        return torch.full(shape, 1.0 if kind == "equal" else -torch.inf, dtype=dtype, device=device)
    if kind == "two":
        return torch.randint(0, 2, shape, generator=generator, device=device).to(dtype)
    if kind == "prefix":
        bits = torch.int32 if dtype.itemsize == 4 else torch.int16
        low = torch.randint(0, 1 << (8 if dtype.itemsize == 4 else 4), shape, generator=generator, device=device)
        return (torch.ones((), dtype=dtype, device=device).view(bits) + low.to(bits)).view(dtype)
    x = normal(shape, dtype, seed, device)
    if kind == "outlier":
        x[:, shape[1] // 3] = min(1e30, torch.finfo(dtype).max)
    elif kind == "narrow":
        x.mul_(1e-4 if dtype == torch.float16 else 1e-10)
    elif kind == "nan":
        x.masked_fill_(torch.rand(shape, generator=generator, device=device) < 0.01, torch.nan)
    elif kind in ("ascending", "descending"):
        x = x.sort(1, descending=kind == "descending").values
    return x


def calls(workload: Workload, tensors: Tensors) -> tuple[Call, ...]:
    """In place, if the implementation can; else out of place."""
    logits = tensors["logits"]
    arguments = (logits, _k(workload, tensors))
    return Call(arguments, {"out": logits}, "", frozenset({"logits"}), (logits,)), Call(arguments)


def build_params(workload: Workload) -> dict[str, Any]:
    return {"dtype": workload.params["dtype"], "k": "int32" if workload.params["k"] == "mixed" else "int"}


def parts(workload: Workload, tensors: Tensors, outputs: dict[str, Tensor]) -> Iterator[Part]:
    """All rows, some at a time."""
    logits, k, out = tensors["logits"], _k(workload, tensors), outputs["out"]
    step = max(1, _ROWS_AT_A_TIME // logits.shape[1])
    for first in range(0, len(logits), step):
        rows = slice(first, first + step)
        call = Call((logits[rows], k[rows] if isinstance(k, Tensor) else k))
        yield Part(call, {"out": out[rows]})


def judged(workload: Workload) -> str:
    return "every row"


def _dtype(workload: Workload) -> torch.dtype:
    return getattr(torch, workload.params["dtype"])


def _k(workload: Workload, tensors: Tensors) -> Any:
    return tensors.get("k", workload.params["k"])


def _topk_where(workload: Workload, tensors: Tensors) -> Tensor:
    """What a sampler does without a kernel of its own."""
    logits = tensors["logits"]
    least = torch.topk(logits, min(workload.params["k"], logits.shape[1])).values[:, -1:]
    return torch.where(logits >= least, logits, -torch.inf)


def _needs_one_k(workload: Workload) -> str | None:
    k = workload.params["k"]
    if k == "mixed":
        return "torch.topk takes one k for all rows"
    return "torch.topk needs k >= 1 here" if k < 1 else None


def _flashinfer(workload: Workload, tensors: Tensors) -> Tensor:
    import flashinfer  # type: ignore[import-not-found, unused-ignore]

    return flashinfer.sampling.top_k_mask_logits(tensors["logits"], _k(workload, tensors))


COMPETITORS = (
    Competitor(
        "flashinfer",
        "flashinfer",
        _flashinfer,
        # Its documentation says neither how it treats ties nor NaN.
        ({"ties": "all", "nan": "unspecified"}, {"ties": "exactly_k", "nan": "unspecified"}),
    ),
    Competitor("topk+where", "torch", _topk_where, ({"ties": "all", "nan": "mask"},), _needs_one_k),
)
