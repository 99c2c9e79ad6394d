"""harness.heat_map: levels that keep right and wrong apart, and what stands beside and under the map."""

# ruff: noqa: SIM300 - the expected value stands first

import io
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from harness.heat_map import LEVELS, RIGHT, coloured, heat_map, label, level, plain
from harness.mismatch import Mismatch
from tests.harness.making import drawn


def made(ratios, shape=None, rows=None, columns=None):
    """ratios: a list of rows."""
    height, width = len(ratios), len(ratios[0])
    cells = struct.pack(f"<{height * width}f", *[ratio for row in ratios for ratio in row])
    shape = shape or (height, width)
    return Mismatch("out", shape, (), rows or height, columns or width, height, width, cells)


@given(st.floats(0, allow_nan=False))
@drawn(200)
def test_right_and_wrong_have_no_level_in_common(ratio):
    """Ratio 1 is the last that is right."""
    assert (ratio <= 1) == (level(ratio) < RIGHT)


def test_levels():
    """By decades; what is wrong by no number has its own."""
    ratios = (0.0, 0.05, 1.0, 1.0 + 2**-23, 10.0, 99.0, 1e4, 1e30, math.inf)
    assert [0, 1, 2, 3, 3, 4, 5, 6, 7] == [level(ratio) for ratio in ratios]
    assert len(LEVELS) == len({each.mark for each in LEVELS}) == len({each.colour for each in LEVELS})
    with pytest.raises(ValueError, match="no NaN"):
        level(math.nan)


def test_the_labels_of_an_output():
    """Leading dimensions by their names, or sizes, flattened; index ranges of the whole."""
    found = made([[0.0] * 2] * 6, (3, 2, 2))
    assert ("rows: qo_len × heads, 0–5", "columns: D, 0–1") == heat_map(found, ("qo_len", "heads", "D"))[1:3]
    assert ("rows: 3 × 2, 0–5", "columns: 2, 0–1") == heat_map(found)[1:3]
    assert ("rows: 1, 0", "columns: vocab, 0–1") == heat_map(made([[0.0, 0.0]], (2,)), ("vocab",))[1:3]
    assert ("rows: 1, 0", "columns: 1, 0") == heat_map(made([[0.0]], ()))[1:3]
    assert ["7", "8–15"] == [label(range(7, 8)), label(range(8, 16))]


@given(st.integers(1, 500), st.integers(1, 64))
@drawn(100)
def test_cells_share_the_output_out(rows, height):
    """Every row is in the one cell where the map put it."""
    height = min(rows, height)
    heat = heat_map(made([[0.0]] * height, rows=rows))
    assert [r * height // rows for r in range(rows)] == [i for i in range(height) for _ in heat.row(i)]
    assert list(range(rows)) == [r for i in range(height) for r in heat.row(i)]


MAP = heat_map(made([[0.0, 0.5, 5.0], [math.inf, 1e9, 0.0]], rows=40))


def test_in_ascii():
    """A character a cell, the first row of each at its side, a legend of what occurs."""
    assert [
        " 0 .:1",
        "20 #9.",
        ". no error  : ratio up to 1  1 ratio up to 10  9 a larger ratio  # wrong, by no number",
    ] == list(plain(MAP))
    assert all(line.isascii() for line in plain(MAP))


def test_in_colours():
    """Two rows of cells in a line, an odd last one over nothing; cells of a small map are wide."""
    lines = list(coloured(heat_map(made([[0.0] * 3] * 3))))
    assert ["0 " + "▀" * 12, "2 " + "▀" * 12] == [line.plain for line in lines[:2]]
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=200)
    for line in coloured(MAP):
        console.print(line)
    text = console.file.getvalue()
    for each in (0, 2, 3, 6, 7):
        assert ";".join(map(str, LEVELS[each].colour)) in text
