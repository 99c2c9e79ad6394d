"""harness.mismatch: the worst elements in order, and a map that hides none of them."""

# ruff: noqa: SIM300 - the expected value stands first

import math
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.mismatch import MAP, WORST, mismatch, pooled, worst
from oracles.judgement import Judgement
from tests.harness.making import drawn


def judged(got, want, bound):
    want, bound = torch.tensor(want, dtype=torch.float64), torch.tensor(bound, dtype=torch.float64)
    wrong = ~((got.double() - want).abs() <= bound) & ~(got.isnan() & want.isnan())
    return wrong, Judgement("divergence", wrong, want, bound)


def cells(found):
    return struct.unpack(f"<{found.height * found.width}f", found.cells)


def test_the_worst_by_ratio():
    """The largest first, then those of an equal ratio in order; the ones that are right never."""
    got = torch.tensor([[1.5, 3.0, 0.0], [0.25, 9.0, 1.0]])
    wrong, judgement = judged(got, [[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]], [[0.1, 0.5, 0.1], [0.2, 2.0, 0.1]])
    found = worst("out", got, wrong, judgement, 3)
    assert [((0, 0), "5"), ((0, 1), "4"), ((1, 1), "4")] == [(e.index, e.ratio) for e in found]
    assert ("1.5", "1.0", "0.1") == (found[0].got, found[0].want, found[0].bound)
    assert 4 == len(worst("out", got, wrong, judgement, 8))
    assert found[:1] == worst("out", got, wrong, judgement)


def test_without_tolerance_the_first_are_the_worst():
    """Their ratio is infinite; one that is right by chance, and wrong for another reason, has none."""
    got = torch.tensor([1.0, 2.0, 3.0])
    want, zero = torch.tensor([1.0, 5.0, 6.0], dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    everywhere = torch.ones(3, dtype=torch.bool)
    found = worst("out", got, everywhere, Judgement("wrong_set", everywhere, want, zero), WORST)
    assert [((0,), ""), ((1,), "inf"), ((2,), "inf")] == [(e.index, e.ratio) for e in found]


def test_without_a_reference():
    """Nothing to compare with: the places alone."""
    got, wrong = torch.zeros(2, 3), torch.tensor([[False, False, True], [True, False, False]])
    assert [((0, 2), "?"), ((1, 0), "?")] == [(e.index, e.want) for e in worst("out", got, wrong, None, 4)]
    assert (0.0, 0.0, math.inf, math.inf, 0.0, 0.0) == cells(mismatch("out", got, wrong, None))


def test_states_that_are_wrong_have_no_number():
    """A NaN where a number belongs is infinite in the map, one where it belongs is right; a number keeps its ratio."""
    got = torch.tensor([[math.nan, math.nan, 2.0, 1.05, math.inf]])
    want = [[1.0, math.nan, 1.0, 1.0, math.inf]]
    bound = torch.full((1, 5), 0.1)
    wrong = torch.tensor([[True, False, True, False, False]])
    judgement = Judgement("wrong_nan", wrong, torch.tensor(want, dtype=torch.float64), bound.double())
    found = cells(mismatch("out", got, wrong, judgement))
    assert (math.inf, 0.0, 10.0, 0.5, 0.0) == pytest.approx(found, rel=1e-6)


def test_an_element_of_another_kind_is_not_shown_as_wrong():
    """The map is of the kind that the verdict speaks of: what the mask leaves out is at most 1."""
    got, wrong = torch.tensor([9.0, 9.0]), torch.tensor([True, False])
    one = torch.ones(2, dtype=torch.float64)
    assert (8.0, 1.0) == cells(mismatch("out", got, wrong, Judgement("divergence", wrong, one, one)))


@given(st.integers(1, 150), st.integers(1, 150), st.data())
@drawn(60)
def test_no_wrong_element_is_hidden(rows, columns, data):
    """One wrong element by the least that there is, anywhere: its cell, and it alone, is above 1."""
    row, column = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, columns - 1))
    got = torch.zeros(rows, columns, dtype=torch.float64)
    got[row, column] = math.nextafter(1.0, 2.0)
    one = torch.ones_like(got)
    wrong = got > 1
    found = mismatch("out", got, wrong, Judgement("divergence", wrong, 0 * one, one))
    assert (min(rows, MAP), min(columns, MAP)) == (found.height, found.width)
    place = row * found.height // rows * found.width + column * found.width // columns
    assert [place] == [i for i, ratio in enumerate(cells(found)) if ratio > 1]


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
@drawn(60)
def test_pooling_keeps_the_largest_of_each_cell(rows, columns, height, width):
    """Every element is in one cell, and no cell is empty."""
    height, width = min(height, rows), min(width, columns)
    grid = torch.rand(rows, columns)
    want = [[-1.0] * width for _ in range(height)]
    for r in range(rows):
        for c in range(columns):
            i, j = r * height // rows, c * width // columns
            want[i][j] = max(want[i][j], float(grid[r, c]))
    assert want == pooled(grid, height, width).tolist()
    assert min(map(min, want)) >= 0


@pytest.mark.parametrize(
    ("shape", "rows", "columns"), [((), 1, 1), ((5,), 1, 5), ((2, 3), 2, 3), ((2, 3, 4), 6, 4), ((300, 1, 2), 300, 2)]
)
def test_leading_dimensions_are_rows(shape, rows, columns):
    """In row-major order."""
    got, wrong = torch.zeros(shape), torch.ones(shape, dtype=torch.bool)
    found = mismatch("out", got, wrong, None)
    assert (shape, rows, columns) == (found.shape, found.rows, found.columns)
    assert (min(rows, MAP), min(columns, MAP)) == (found.height, found.width)
    assert min(WORST, rows * columns) == len(found.worst)
