"""The ratio over an output, as a grid of levels, and how it looks in a terminal. `harness.picture` draws it into files.

Levels are logarithmic. Those up to ratio 1 are right, those above it are wrong, and the last one is wrong by no number.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import NamedTuple

from rich.style import Style
from rich.text import Text

from harness.mismatch import Mismatch

Colour = tuple[int, int, int]
"""Red, green, blue; 0 to 255."""


class Level(NamedTuple):
    """most: the largest ratio of the level. mark: the character that stands for it without colours."""

    most: float
    colour: Colour
    mark: str
    words: str


LEVELS = (
    Level(0.0, (226, 232, 240), ".", "no error"),
    Level(0.1, (168, 198, 226), ",", "ratio up to 0.1"),
    Level(1.0, (96, 150, 200), ":", "ratio up to 1"),
    Level(10.0, (255, 210, 90), "1", "ratio up to 10"),
    Level(100.0, (250, 150, 50), "2", "ratio up to 100"),
    Level(1e4, (226, 74, 40), "4", "ratio up to 10^4"),
    Level(math.nextafter(math.inf, 0), (150, 16, 32), "9", "a larger ratio"),
    Level(math.inf, (58, 10, 92), "#", "wrong, by no number"),
)
"""From the best; the bound lies between the third and the fourth."""
RIGHT = sum(level.most <= 1 for level in LEVELS)
"""How many levels are right."""


def level(ratio: float) -> int:
    """The index of a ratio's level. Raises ValueError for a NaN, which no map holds."""
    if math.isnan(ratio):
        raise ValueError("a ratio is no NaN")
    return next(i for i, each in enumerate(LEVELS) if ratio <= each.most)


class HeatMap(NamedTuple):
    """levels: [height][width], an index into `LEVELS` for each cell. rows, columns: of the output, flattened."""

    title: str
    down: str
    """What the rows are: "rows: qo_len × heads, 0 to 31"."""
    across: str
    rows: int
    columns: int
    levels: tuple[tuple[int, ...], ...]

    @property
    def height(self) -> int:
        return len(self.levels)

    @property
    def width(self) -> int:
        return len(self.levels[0]) if self.levels else 0

    def row(self, i: int) -> range:
        """The rows of the output in row i of the map."""
        return _share(i, self.rows, self.height)

    def column(self, j: int) -> range:
        return _share(j, self.columns, self.width)

    @property
    def used(self) -> list[int]:
        """The levels that occur, in order."""
        return sorted({each for row in self.levels for each in row})


def _share(i: int, whole: int, parts: int) -> range:
    """Indices r with r · parts // whole == i."""
    return range(-(-i * whole // parts), -(-(i + 1) * whole // parts))


def label(indices: range) -> str:
    """ "7", or "8–15"."""
    return str(indices[0]) if len(indices) == 1 else f"{indices[0]}–{indices[-1]}"


def heat_map(found: Mismatch, names: tuple[str, ...] = (), title: str = "") -> HeatMap:
    """The map of a mismatch. names: of the output's dimensions, where they have any."""
    count = found.height * found.width
    ratios = struct.unpack(f"<{count}f", found.cells)
    levels = tuple(
        tuple(level(ratio) for ratio in ratios[i * found.width : (i + 1) * found.width]) for i in range(found.height)
    )
    named = names if len(names) == len(found.shape) else ()
    down = " × ".join(named[:-1] or map(str, found.shape[:-1])) or "1"
    across = named[-1] if named else str(found.shape[-1]) if found.shape else "1"
    shape = f"{found.output} {list(found.shape)}"
    return HeatMap(
        title or shape,
        f"rows: {down}, {label(range(found.rows))}",
        f"columns: {across}, {label(range(found.columns))}",
        found.rows,
        found.columns,
        levels,
    )


def coloured(heat: HeatMap) -> Iterator[Text]:
    """Lines for a terminal with colours: two rows of cells a line, each row's first index at its side."""
    wide = max(1, min(4, 32 // heat.width))
    gutter = len(str(heat.row(heat.height - 1)[0]))
    for i in range(0, heat.height, 2):
        line = Text().append(f"{heat.row(i)[0]:>{gutter}} ", "dim")
        for j, upper in enumerate(heat.levels[i]):
            below = "" if i + 1 == heat.height else _rgb(LEVELS[heat.levels[i + 1][j]].colour)
            line.append("▀" * wide, Style(color=_rgb(LEVELS[upper].colour), bgcolor=below or None))
        yield line
    legend = Text()
    for each in heat.used:
        legend.append("■ ", Style(color=_rgb(LEVELS[each].colour))).append(f"{LEVELS[each].words}  ")
    yield legend


def plain(heat: HeatMap) -> Iterator[str]:
    """Lines of ASCII: a character a cell."""
    gutter = len(str(heat.row(heat.height - 1)[0]))
    for i, row in enumerate(heat.levels):
        yield f"{heat.row(i)[0]:>{gutter}} {''.join(LEVELS[each].mark for each in row)}"
    yield "  ".join(f"{LEVELS[each].mark} {LEVELS[each].words}" for each in heat.used)


def _rgb(colour: Colour) -> str:
    return f"#{colour[0]:02x}{colour[1]:02x}{colour[2]:02x}"
