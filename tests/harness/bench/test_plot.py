"""harness.bench.plot: a picture that can be read, with every time where it belongs and under its ceiling."""

# ruff: noqa: SIM300 - the expected value stands first

import xml.etree.ElementTree as ET

import pytest

from harness.bench import plot
from harness.bench.report import Report
from tests.harness.bench import making

SVG = "{http://www.w3.org/2000/svg}"


def parsed(report):
    return ET.fromstring(plot.svg(report))


def test_every_time_is_a_point_with_its_name():
    """One for each that was measured and one for each name in the legend; a line for the ceiling of each panel."""
    root = parsed(making.report(machine={"gpu": '<One> & "Two"'}))
    tips = [circle.find(f"{SVG}title").text for circle in root.iter(f"{SVG}circle")]
    assert ["mine", "mine, w: 12.5 µs", "mine, w values=two: 15.0 µs", "rival", "rival, w: 50.0 µs"] == tips[:5]
    assert ["mine", "mine, a <long> prompt: 20.0 µs"] == tips[5:]
    assert 2 == len(list(root.iter(f"{SVG}polyline")))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {'gpu <One> & "Two"', "top_k_mask_logits, cold", "single_prefill, float16, cold", "FLOP per byte"} <= set(
        texts
    )


def test_everything_lies_on_the_page():
    """Within its axes and the whole."""
    root = parsed(making.report())
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for group in root.iter(f"{SVG}g"):
        left, top = (float(n) for n in group.attrib["transform"].removeprefix("translate(").removesuffix(")").split())
        for circle in group.iter(f"{SVG}circle"):
            assert 0 <= float(circle.attrib["cx"]) <= width - left
            assert 0 <= float(circle.attrib["cy"]) <= plot.HEIGHT
        for line in group.iter(f"{SVG}polyline"):
            for pair in line.attrib["points"].split():
                x, y = map(float, pair.split(","))
                assert (True, True) == (0 <= x <= plot.WIDTH, 0 <= y <= plot.HEIGHT)
        assert top + plot.HEIGHT < height


def test_what_is_slower_than_the_copy_is_under_it():
    """At the same place across."""
    root = parsed(making.report([making.floor()], [making.result("mine", 20.0)]))
    circle = list(root.iter(f"{SVG}circle"))[-1]
    ((x, y),) = [tuple(map(float, p.split(","))) for p in root.find(f".//{SVG}polyline").attrib["points"].split()]
    assert x == float(circle.attrib["cx"])
    assert y < float(circle.attrib["cy"])


def test_axes():
    """Powers of ten that hold all values, one at least; a value's place is by its logarithm."""
    axis = plot.axis([20.0, 3000.0], 300)
    assert (10.0, 10000.0, [10.0, 100.0, 1000.0, 10000.0]) == (axis.low, axis.high, list(axis.ticks()))
    assert 100 == pytest.approx(axis.at(100.0))
    assert (1.0, 10.0) == (plot.axis([1.0], 9).low, plot.axis([1.0], 9).high)
    assert ("100G", "10T", "1", "1k") == tuple(map(plot.si, (1e11, 1e13, 1.0, 1e3)))


def test_nothing_measured():
    """Is still a picture."""
    assert f"{SVG}svg" == parsed(Report({}, making.report().settings)).tag
    assert [] == list(parsed(making.report([making.floor()], [making.failed("x")])).iter(f"{SVG}circle"))
