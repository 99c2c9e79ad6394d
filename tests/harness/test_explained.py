"""harness.explained: what a person sees of an explanation."""

# ruff: noqa: SIM300 - the expected value stands first

import io
from pathlib import Path

from rich.console import Console

from harness import display, explained
from harness.explanation import Explanation, Varied, few
from harness.heat_map import heat_map
from harness.nearest import Neighbour
from harness.verdict import Element
from tests.harness.test_display import entry, shown
from tests.harness.test_heat_map import made

VARIED = (
    Varied("dtype", "any dtype (of 3 tried)", ("a", "b", "c")),
    Varied("vocab", "n >= 4 (of 8 tried)", tuple("45678"), tuple("123"), ("9: hang",), ("0",)),
    Varied("heads", "heads 1, nothing else tried", ("1",), inapplicable=("2",)),
)


def test_what_matters_is_a_table_and_the_rest_a_line():
    """Irrelevant parameters with the number of values, those without another value by name."""
    lines = [" ".join(line.split()) for line in shown(explained.table(Explanation(VARIED, judged=9))).splitlines()]
    assert [
        "parameter fails failing values passing values other failures",
        "vocab n >= 4 (of 8 tried) 4, 5, 6, 7, 8 1, 2, 3 9: hang",
        "irrelevant: dtype (3 tried)",
        "nothing else tried: heads",
        "9 variants judged on cpu, each with one parameter changed",
    ] == lines


def test_a_part_is_called_one():
    """Budget or interrupt left something untried."""
    assert "there are more (--judgements)" in shown(explained.table(Explanation(VARIED, complete=False)))


def test_long_lists_are_cut():
    """The first values, the last, and how many there are."""
    assert "1, 2, 3, 4, 5, … 9 (9)" == few(tuple("123456789"))
    assert "1, 2" == few(("1", "2"))


def test_brackets_are_no_markup():
    """In values, elements and names."""
    odd = Varied("layout", "only strides [bold] (of 2 tried)", ("strides [bold]",), ("[red]",))
    text = shown(explained.table(Explanation((odd,)))) + shown(explained.worst((Element("[i]", (0,), "[b]", "?"),)))
    assert all(words in text for words in ("strides [bold]", "[red]", "[i][0]", "[b]"))


def test_an_entry_shows_its_explanation():
    """Under its call."""
    text = shown(explained.table(Explanation(VARIED)))
    assert text.rstrip() in shown(display.entry(entry(explanation=Explanation(VARIED))))
    assert "irrelevant" not in shown(display.entry(entry()))


def test_the_map_is_ascii_where_there_are_no_colours():
    """No terminal, or one that is asked for none."""
    heat = heat_map(made([[0.0, 2.0]]))
    for options in ({"force_terminal": False}, {"force_terminal": True, "no_color": True}):
        console = Console(file=io.StringIO(), width=200, **options)
        assert "0 .1" in [line.plain for line in map(console.render_str, map(str, explained.picture(heat, console)))]
    console = Console(file=io.TextIOWrapper(io.BytesIO(), "utf-8"), width=200, force_terminal=True)
    assert any("▀" in str(line) for line in explained.picture(heat, console))


def test_neighbours():
    """Signature, status, differences, and what they suggest as a sentence."""
    near = Neighbour(Path("a.json"), entry(status="fixed"), 3, ("of other", "with k_int64"), "perhaps it came back")
    (line,) = explained.neighbours([near])
    assert line.plain.startswith("distance 3  top_k_mask_logits/mine wrong_set (float32) (fixed)\n")
    assert line.plain.endswith("of other; with k_int64. Perhaps it came back")
