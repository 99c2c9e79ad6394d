"""harness.picture: files that can be read, with every wrong cell in its colour."""

# ruff: noqa: SIM300 - the expected value stands first

import math
import xml.etree.ElementTree as ET

import pytest

from harness.heat_map import LEVELS, heat_map
from harness.picture import LEFT, TOP, svg, to_png
from tests.harness.test_heat_map import made
from tests.harness.test_png import chunks, decode

SVG = "{http://www.w3.org/2000/svg}"
HEAT = heat_map(
    made([[0.0, 0.0, 5.0], [math.inf, 0.5, 0.0]], rows=40), ("batch", "vocab"), "op/<mine> \"a\" & 'b': out [40, 3]"
)


def boxes(text):
    """(x, y, width, height) -> fill, of the rectangles of the map."""
    rects = [e.attrib for e in ET.fromstring(text).iter(f"{SVG}rect")]
    return {
        tuple(float(r[name]) for name in ("x", "y", "width", "height")): r["fill"]
        for r in rects
        if "x" in r and r["fill"] != "none"
    }


def colour(each):
    return f"rgb{LEVELS[each].colour}"


def test_svg_is_well_formed():
    """Whatever the title says."""
    root = ET.fromstring(svg(HEAT))
    assert HEAT.title == root.find(f"{SVG}title").text
    texts = [e.text for e in root.iter(f"{SVG}text")]
    assert {HEAT.title, "rows: batch, 0–39; columns: vocab, 0–2", "0–19", "20–39", "0", "2"} <= set(texts)
    assert {level.words for level in LEVELS} | {"ratio 1: the bound"} <= set(texts)
    assert not [e for e in root.iter() if "href" in " ".join(e.attrib)]


def test_svg_has_a_rectangle_for_each_run():
    """Cells of one level side by side are one; each is where its cell is."""
    found = boxes(svg(HEAT))
    assert {
        (LEFT, TOP, 80, 40): colour(0),
        (LEFT + 80, TOP, 40, 40): colour(3),
        (LEFT, TOP + 40, 40, 40): colour(7),
        (LEFT + 40, TOP + 40, 40, 40): colour(2),
        (LEFT + 80, TOP + 40, 40, 40): colour(0),
    } == {box: fill for box, fill in found.items() if box[3] == 40}


@pytest.mark.parametrize("size", [(1, 1), (64, 64), (1, 64), (64, 1)])
def test_everything_lies_on_the_page(size):
    """For maps of every form."""
    heat = heat_map(made([[2.0] * size[1]] * size[0]))
    root = ET.fromstring(svg(heat))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for x, y, w, h in boxes(svg(heat)):
        assert 0 <= x <= x + w <= width
        assert 0 <= y <= y + h <= height
    for text in root.iter(f"{SVG}text"):
        assert float(text.attrib["y"]) <= height
        assert float(text.attrib["x"]) <= width


def test_png_shows_every_cell():
    """Each cell's middle has its level's colour; under the map the levels, the bound in black; the words as text."""
    data = to_png(HEAT)
    width, height, rows = decode(data)
    cell = 40
    shown = [[tuple(rows[i * cell + 20][3 * x : 3 * x + 3]) for x in (20, 60, 100)] for i in range(HEAT.height)]
    assert [[LEVELS[each].colour for each in levels] for levels in HEAT.levels] == shown
    strip = [tuple(rows[-1][3 * x : 3 * x + 3]) for x in range(width)]
    assert [level.colour for level in LEVELS] == [strip[14 * n + 7] for n in range(len(LEVELS))]
    assert (0, 0, 0) == strip[14 * 3]
    assert height > 2 * cell
    texts = [content for kind, content in chunks(data) if kind == b"iTXt"]
    assert HEAT.title.encode() in texts[0]
    assert b"rows: batch" in texts[1]
