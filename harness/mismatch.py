"""An output against what it should be, made small enough to be sent and looked at: its worst elements, and a map.

The *ratio* of an element is its error divided by its bound; above 1 it is wrong. Where an element is wrong and no such
number says so (an operator without tolerance, a NaN or infinity, memory that nobody wrote) the ratio is infinite.
"""

from __future__ import annotations

import math
from itertools import pairwise

import msgspec
import torch
from torch import Tensor

from harness.verdict import Element
from oracles.judgement import Judgement

MAP = 64
"""Cells of a map along each side, at most."""
WORST = 8
"""Elements that are told one by one, at most."""

_JUST_WRONG = 1 + 2.0**-23
"""The first float32 above 1."""


class Mismatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """One output of one failing call.

    cells: float32, [height, width], row-major, little-endian: of the output as [rows, columns] the largest ratio in each
    cell. Cell (i, j) holds the elements (r, c) with r · height // rows == i and c · width // columns == j, so a wrong
    element is never hidden: its cell is above 1, and no other cell is above 1 because of it.
    """

    output: str
    shape: tuple[int, ...]
    worst: tuple[Element, ...]
    rows: int
    """All dimensions but the last, flattened in row-major order: [qo_len, heads, D] has qo_len · heads rows."""
    columns: int
    """The last dimension; a scalar has one row and one column."""
    height: int
    width: int
    cells: bytes


def mismatch(name: str, got: Tensor, wrong: Tensor, judgement: Judgement | None) -> Mismatch:
    """The picture of an output with wrong elements. got, wrong: of one shape; judgement: where there is a reference."""
    grid = _map_ratio(got, wrong, judgement)
    grid = grid.reshape(-1, grid.shape[-1]) if grid.ndim else grid.reshape(1, 1)
    rows, columns = grid.shape
    height, width = min(rows, MAP), min(columns, MAP)
    cells = pooled(grid, height, width).cpu().numpy().astype("<f4").tobytes()
    elements = worst(name, got, wrong, judgement, WORST)
    return Mismatch(name, tuple(wrong.shape), elements, rows, columns, height, width, cells)


def worst(name: str, got: Tensor, wrong: Tensor, judgement: Judgement | None, count: int = 1) -> tuple[Element, ...]:
    """The `count` worst of the wrong elements, the worst first; of equally wrong ones, the first."""
    mask = wrong.reshape(-1)
    ratio = None if judgement is None else _ratio(got, judgement).reshape(-1)
    if ratio is None or not bool((judgement.bound > 0).any()):  # type: ignore[union-attr]
        places = [int(mask.to(torch.uint8).argmax())] if count == 1 else mask.nonzero()[:count, 0].tolist()
    else:
        order = torch.where(mask, ratio, -1.0)
        places = [int(order.argmax())] if count == 1 else order.argsort(descending=True, stable=True)[:count].tolist()
        places = [place for place in places if mask[place]]
    return tuple(_element(name, got, wrong, judgement, ratio, place) for place in places)


def _element(
    name: str, got: Tensor, wrong: Tensor, judgement: Judgement | None, ratio: Tensor | None, flat: int
) -> Element:
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), wrong.shape))
    value = repr(got.reshape(-1)[flat].item())
    if judgement is None or ratio is None:
        return Element(name, index, value, "?", "?")
    want, bound = (repr(x.reshape(-1)[flat].item()) for x in (judgement.want, judgement.bound))
    # An element can be wrong by its state alone, its error within the bound or no number; and right by chance.
    number = float(ratio[flat])
    told = f"{number if number > 1 else math.inf:.4g}" if value != want else ""
    return Element(name, index, value, want, bound, told)


def _ratio(got: Tensor, judgement: Judgement) -> Tensor:
    """float64, the output's shape; infinite where it is no number. Without a bound only right and wrong remain."""
    error = (got.to(judgement.want.device, torch.float64) - judgement.want).abs()
    return torch.where(error == 0, 0.0, error / judgement.bound).nan_to_num(torch.inf, torch.inf)


def _map_ratio(got: Tensor, wrong: Tensor, judgement: Judgement | None) -> Tensor:
    """float32, the output's shape: at most 1 where an element is right, more where it is wrong."""
    if judgement is None or not bool((judgement.bound > 0).any()):
        return torch.where(wrong, torch.inf, 0.0).to(torch.float32)
    ratio = _ratio(got, judgement)
    ratio = torch.where(wrong & (ratio <= 1), torch.inf, ratio)
    right = torch.where(ratio.isfinite(), ratio.clamp(max=1.0), 0.0)  # a NaN or infinity that belongs there
    return torch.where(wrong, ratio.clamp(min=_JUST_WRONG), right).to(torch.float32)


def pooled(grid: Tensor, height: int, width: int) -> Tensor:
    """[rows, columns] -> [height, width], each cell the largest of its elements; none is empty, none is in two.

    height and width are at least 1, and at most rows and columns."""
    narrow = torch.stack([part.amax(1) for part in grid.split(_lengths(grid.shape[1], width), 1)], 1)
    return torch.stack([part.amax(0) for part in narrow.split(_lengths(grid.shape[0], height), 0)])


def _lengths(whole: int, parts: int) -> list[int]:
    """How many indices r there are with r · parts // whole == i, for each i."""
    starts = [-(-i * whole // parts) for i in range(parts + 1)]
    return [b - a for a, b in pairwise(starts)]
