"""Where the wrong elements of an output are, in words: the shape of a bug is half of its diagnosis."""

from __future__ import annotations

import itertools

from torch import Tensor


def describe(wrong: Tensor) -> str:
    """The plainest true description of a bool mask, the first that fits:

    "none", "all", "one element", then for the rows (all dimensions but the last) and columns (the last) that hold wrong
    elements: "last row", "rows from N", "one row", "last column", "columns from N", "one column",
    "stripe of period P", else "scattered".
    """
    count = int(wrong.sum())
    if count == 0:
        return "none"
    if count == wrong.numel():
        return "all"
    if count == 1:
        return "one element"
    grid = wrong.reshape(-1, wrong.shape[-1]) if wrong.ndim else wrong.reshape(1, 1)
    rows = grid.any(1).nonzero()[:, 0].tolist()
    columns = grid.any(0).nonzero()[:, 0].tolist()
    parts = [p for p in (_line(rows, len(grid), "row"), _line(columns, grid.shape[1], "column")) if p]
    return ", ".join(parts) or "scattered"


def _line(hits: list[int], size: int, noun: str) -> str:
    if size == 1 or len(hits) == size:
        return ""
    if hits == [size - 1]:
        return f"last {noun}"
    if len(hits) == 1:
        return f"one {noun}"
    if hits == list(range(hits[0], size)):
        return f"{noun}s from {hits[0]}"
    if hits == list(range(hits[-1] + 1)):
        return f"{noun}s up to {hits[-1]}"
    steps = {b - a for a, b in itertools.pairwise(hits)}
    if len(steps) == 1 and len(hits) > 2:
        return f"{noun} stripe of period {steps.pop()}"
    return ""
