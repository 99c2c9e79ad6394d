"""A heat map as a file: SVG with labels and legend, PNG as pixels with the words in its text chunks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from xml.sax.saxutils import escape

from harness import png
from harness.heat_map import LEVELS, RIGHT, Colour, HeatMap, label

SIDE = 480
"""Pixels along the longer side of a map; less where cells of `LARGEST_CELL` do not fill it."""
LARGEST_CELL = 40
LEFT, TOP, LINE = 90, 52, 20
SWATCH = 14


def svg(heat: HeatMap) -> str:
    """A self-contained SVG document: the map, the index ranges along its axes, a legend of all levels with the bound."""
    cell = _cell(heat)
    width, height = cell * heat.width, cell * heat.height
    below = TOP + height + 2 * LINE
    axes = f"{heat.down}; {heat.across}"
    whole_width = max(LEFT + width + 20, LEFT + 12 * LINE, LEFT + 7 * max(len(heat.title), len(axes)))
    whole_height = below + LINE * (len(LEVELS) + 2)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole_width}" height="{whole_height}" '
        f'viewBox="0 0 {whole_width} {whole_height}" font-family="sans-serif" font-size="12">',
        f"<title>{escape(heat.title)}</title>",
        f'<rect width="{whole_width}" height="{whole_height}" fill="white"/>',
        _text(LEFT, 20, heat.title, 'font-weight="bold"'),
        _text(LEFT, TOP - 10, axes),
    ]
    for i, row in enumerate(heat.levels):
        j = 0
        for each, run in groupby(row):
            length = len(list(run))
            lines.append(_rect(LEFT + j * cell, TOP + i * cell, length * cell, cell, LEVELS[each].colour))
            j += length
    lines.append(f'<rect x="{LEFT}" y="{TOP}" width="{width}" height="{height}" fill="none" stroke="black"/>')
    for i in _ticks(heat.height):
        middle = TOP + (i + 0.5) * cell + 4
        lines.append(_text(LEFT - 6, middle, label(heat.row(i)), 'text-anchor="end"'))
    for j in _ticks(heat.width):
        middle = LEFT + (j + 0.5) * cell
        lines.append(_text(middle, TOP + height + 16, label(heat.column(j)), 'text-anchor="middle"'))
    for n, level in enumerate(LEVELS):
        y = below + LINE * (n + (n >= RIGHT))
        lines += [_rect(LEFT, y, SWATCH, SWATCH, level.colour), _text(LEFT + SWATCH + 8, y + 12, level.words)]
    bound = below + LINE * RIGHT
    lines.append(f'<line x1="{LEFT}" x2="{LEFT + 40}" y1="{bound + 7}" y2="{bound + 7}" stroke="black"/>')
    lines.append(_text(LEFT + 46, bound + 12, "ratio 1: the bound"))
    return "\n".join([*lines, "</svg>", ""])


def _rect(x: float, y: float, width: float, height: float, colour: Colour) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="rgb{colour}"/>'


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}"{" " if more else ""}{more}>{escape(text)}</text>'


def _ticks(count: int) -> list[int]:
    """Cells that get a label: the first, the last, the middle one where there is room."""
    return sorted({0, count - 1, *([count // 2] if count > 8 else [])})


def _cell(heat: HeatMap) -> int:
    return max(4, min(LARGEST_CELL, SIDE // max(heat.height, heat.width)))


def to_png(heat: HeatMap) -> bytes:
    """The map, and under it a strip of all levels, the bound marked in black. The words are text chunks."""
    cell = _cell(heat)
    rows = [row for levels in heat.levels for row in [_pixels(levels, cell)] * cell]
    width = max(len(rows[0]) // 3, len(LEVELS) * SWATCH)
    texts = {"Title": heat.title, "Description": f"{heat.down}; {heat.across}; the ratio, of levels {_levels()}"}
    return png.encode([_filled(row, width) for row in [*rows, *_strip()]], texts)


def _strip() -> Iterator[bytes]:
    space = [b""] * SWATCH
    swatches = [bytes(level.colour) * SWATCH for level in LEVELS]
    # Two pixels of the first wrong level are black: the bound.
    swatches[RIGHT] = bytes(6) + swatches[RIGHT][6:]
    return iter([*space, *[b"".join(swatches)] * SWATCH])


def _pixels(levels: tuple[int, ...], cell: int) -> bytes:
    return b"".join(bytes(LEVELS[each].colour) * cell for each in levels)


def _filled(row: bytes, width: int) -> bytes:
    """White up to the width."""
    return row + b"\xff" * (3 * width - len(row))


def _levels() -> str:
    return ", ".join(level.words for level in LEVELS)
