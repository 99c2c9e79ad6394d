"""Rows that hurt a selection: what a bracket, a histogram or a digit at a time finds hard. And calls of the mask on them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from harness.case import Case, Fill, Planted, View, contiguous, tidy
from harness.fill import make_bits
from harness.operators.top_k_mask_logits import NAME

DTYPES = ("float32", "float16", "bfloat16")

ONE_ROW = ((1, 70000), (2, 70000), (3, 70000))
"""[batch, vocab] with few rows, so that several blocks share one where there are clusters."""
MANY_ROWS = ((40, 5000),)
"""A block a row."""


def fills(dtype: str) -> dict[str, Fill]:
    """What each row is called -> how it is filled."""
    narrow = 6e-5 if dtype == "float16" else 1e-10  # 1e-10 is 0 in float16; 6e-5 makes all of them subnormal there
    return {
        "all equal": Fill("cycle", 0, (1.5,)),
        "two values": Fill("choice", 1, (1.0, 2.0)),
        "one outlier of 1e30": Fill("outlier", 2),
        "a spread of 1e-10": Fill("uniform", 3, (narrow,)),
        "all -inf": Fill("cycle", 0, ("-inf",)),
        "rising": Fill("sorted", 0),
        "falling": Fill("sorted", 1),
        "NaN among them": Fill("spread", 4, (), tuple(Planted(i, "nan") for i in (0, 7, 1234, 4999))),
        "equal but for the last bits": Fill("near", 5, (1.5,)),
        "all special": Fill("specials", 6),
        "all bit patterns": Fill("raw", 7),
    }


def rows(dtype: torch.dtype, vocab: int, device: str) -> Tensor:
    """[rows, vocab]: one row of each kind, in the order of `fills`."""
    kinds = fills(str(dtype).removeprefix("torch.")).values()
    return torch.stack([make_bits(fill, dtype, (vocab,), device).view(dtype) for fill in kinds])


def cases() -> Iterator[Case]:
    """Every kind of row in every dtype and shape, in place and not, with a scalar k and a tensor's; those that differ most
    come first, so that what stops early has seen something of everything."""
    shapes = (*ONE_ROW, *MANY_ROWS)
    for turn in range(2 * len(shapes)):
        number = turn
        for dtype in DTYPES:
            for fill in fills(dtype).values():
                shape = shapes[number % len(shapes)]
                yield case(shape, dtype, fill, in_place=(number + turn // len(shapes)) % 2 == 0, number=number)
                number += 1


def case(shape: tuple[int, int], dtype: str, fill: Fill, *, in_place: bool, number: int) -> Case:
    """One call. `number` chooses k: small, middling or large, for all rows or each row its own."""
    batch, vocab = shape
    ks = (1, 50, vocab // 2, 2048, vocab - 1)
    tensors, fills, params = {"logits": View(0, dtype, shape, contiguous(shape))}, {"logits": fill}, {}
    if number % 3:
        params["k"] = ks[number % len(ks)]
    else:
        tensors["k"] = View(1, "int64", (batch,), (1,))
        fills["k"] = Fill("cycle", 0, ks[number % len(ks) :] + ks[: number % len(ks)] + (0, vocab))
    return tidy(Case(NAME, {"form": "in_place" if in_place else "new", **params}, (0, 0), tensors, fills))
