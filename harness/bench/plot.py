"""A report as a picture: SVG, one panel an operator, every implementation under the measured ceilings.

Where a call has products it is a roofline: operations a second over operations a byte, under the slope of the copy and the
flat roof of the matrix product. Elsewhere only bytes count: bytes a second over the bytes a call moves, under what the copy
reaches at each size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from harness.bench.report import Floor, Report, rate
from harness.bench.table import machine, seconds

WIDTH, HEIGHT = 640, 360
"""Of the area within a panel's axes."""
LEFT, TOP, BELOW, RIGHT, LINE = 80, 56, 56, 220, 18
COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#edae49", "#7a4fa3", "#30343f", "#00798c", "#b05a2c")


class Point(NamedTuple):
    x: float
    y: float
    tip: str


class Axis(NamedTuple):
    """Logarithmic, from `low` to `high`, both powers of ten, over `length` pixels."""

    low: float
    high: float
    length: int

    def at(self, value: float) -> float:
        return self.length * math.log(value / self.low) / math.log(self.high / self.low)

    def ticks(self) -> Iterator[float]:
        for power in range(round(math.log10(self.low)), round(math.log10(self.high)) + 1):
            yield 10.0**power


def axis(values: Sequence[float], length: int) -> Axis:
    """One that holds all of the values, which are positive."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return Axis(10.0**low, 10.0 ** max(high, low + 1), length)


def svg(report: Report) -> str:
    """A self-contained SVG document."""
    panels = [panel for operator in report.operators() for panel in _panels(report, operator)]
    height = sum(_height(panel) for panel in panels) + 2 * LINE
    width = LEFT + WIDTH + RIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        "<title>warpcheck bench</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(LEFT, LINE, machine(report)),
    ]
    top = 2 * LINE
    for panel in panels:
        lines += [f'<g transform="translate({LEFT} {top + TOP})">', *_drawn(panel), "</g>"]
        top += _height(panel)
    return "\n".join([*lines, "</svg>", ""])


class Panel(NamedTuple):
    """series: name -> points. roof: the ceilings' line, from left to right, and ceilings what they are, a line each."""

    title: str
    across: str
    up: str
    series: dict[str, list[Point]]
    roof: list[Point]
    ceilings: tuple[str, ...]


def _panels(report: Report, operator: str) -> Iterator[Panel]:
    floors = report.workloads(operator)
    for dtype in dict.fromkeys(floor.cost.dtype for floor in floors):
        yield _panel(report, operator, [floor for floor in floors if floor.cost.dtype == dtype])


def _panel(report: Report, operator: str, floors: list[Floor]) -> Panel:
    products = bool(floors[0].flops)
    series: dict[str, list[Point]] = {}
    for floor in floors:
        for result in report.of(floor):
            if result.cold is not None:
                tip = f"{result.name}, {floor.workload}: {seconds(result.cold.median)}"
                series.setdefault(result.name, []).append(Point(_x(floor), rate(floor, result.cold)[0], tip))
    if not products:
        tips = [f"copy, {floor.workload}: {seconds(floor.copy_cold.median)}" for floor in floors]
        roof = sorted(Point(_x(f), rate(f, f.copy_cold)[0], tip) for f, tip in zip(floors, tips))
        return Panel(f"{operator}, cold", "bytes read and written", "B/s", series, roof, ("copy", "(measured)"))
    peak = max(floor.flops for floor in floors)
    slope = max((floor.cost.read + floor.cost.written) / floor.copy_cold.median for floor in floors)
    ridge, most = peak / slope, max(_x(floor) for floor in floors)
    ceilings = f"copy {slope / 1e12:.2f} TB/s", f"matmul {peak / 1e12:.0f} TFLOP/s"
    roof = [Point(x, min(peak, slope * x), ", ".join(ceilings)) for x in (ridge / 10, ridge, max(most, 10 * ridge))]
    return Panel(f"{operator}, {floors[0].cost.dtype}, cold", "FLOP per byte", "FLOP/s", series, roof, ceilings)


def _x(floor: Floor) -> float:
    moved = floor.cost.read + floor.cost.written
    return floor.cost.flops / moved if floor.flops else float(moved)


def _height(panel: Panel) -> int:
    return TOP + max(HEIGHT, LINE * (len(panel.series) + len(panel.ceilings) + 1)) + BELOW


def _drawn(panel: Panel) -> Iterator[str]:
    points = [*panel.roof, *(point for found in panel.series.values() for point in found)]
    across = axis([point.x for point in points], WIDTH)
    up = axis([point.y for point in points], HEIGHT)
    yield _text(0, -24, panel.title, 'font-weight="bold"')
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="black"/>'
    for value in across.ticks():
        x = across.at(value)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{HEIGHT}" stroke="#ddd"/>'
        yield _text(x, HEIGHT + LINE, si(value), 'text-anchor="middle"')
    for value in up.ticks():
        y = HEIGHT - up.at(value)
        yield f'<line x1="0" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        yield _text(-6, y + 4, si(value), 'text-anchor="end"')
    yield _text(WIDTH / 2, HEIGHT + 2 * LINE + 4, panel.across, 'text-anchor="middle"')
    yield _text(-LEFT + 8, -8, panel.up)
    placed = " ".join(f"{across.at(p.x):.1f},{HEIGHT - up.at(p.y):.1f}" for p in panel.roof)
    yield f'<polyline points="{placed}" fill="none" stroke="black" stroke-width="1.5">'
    yield f"<title>{escape(panel.roof[0].tip)}</title></polyline>"
    yield f'<line x1="{WIDTH + 12}" x2="{WIDTH + 32}" y1="6" y2="6" stroke="black" stroke-width="1.5"/>'
    for number, ceiling in enumerate(panel.ceilings):
        yield _text(WIDTH + 38, 10 + number * LINE, ceiling)
    for number, (name, found) in enumerate(panel.series.items()):
        colour = COLOURS[number % len(COLOURS)]
        y = (number + len(panel.ceilings)) * LINE + 6
        yield _mark(WIDTH + 22, y + 6, colour, name)
        yield _text(WIDTH + 38, y + 10, name)
        for point in found:
            yield _mark(across.at(point.x), HEIGHT - up.at(point.y), colour, point.tip)


def si(value: float) -> str:
    """A power of ten with a prefix: 1e13 is 10T."""
    for power, prefix in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:g}{prefix}"
    return f"{value:g}"


def _mark(x: float, y: float, colour: str, tip: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{escape(tip)}</title></circle>'


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}"{" " if more else ""}{more}>{escape(text)}</text>'
