"""How an explanation looks: what matters and what does not, the worst elements, the map, the nearest entries."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.explanation import Explanation
from harness.heat_map import HeatMap, coloured, plain
from harness.nearest import Neighbour
from harness.verdict import Element


def table(explanation: Explanation) -> RenderableType:
    """The parameters that matter, each with its values, then in one line those that do not."""
    head, *rows = explanation.rows()
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for column in head:
        grid.add_column(column, overflow="fold")
    for row in rows:
        grid.add_row(*map(Text, row))
    parts: list[RenderableType] = [grid] if rows else []
    if explanation.irrelevant:
        parts.append(Text(f"irrelevant: {explanation.irrelevant}"))
    if explanation.untried:
        parts.append(Text(f"nothing else tried: {explanation.untried}", style="dim"))
    hint = "" if explanation.complete else " (--judgements)"
    parts.append(Text(explanation.coverage + hint, style="dim"))
    return Group(*parts)


def worst(elements: tuple[Element, ...]) -> Table:
    """An element a row."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("worst elements", "got", "want", "bound", "ratio"):
        grid.add_column(column, justify="right" if column != "worst elements" else "left")
    for each in elements:
        grid.add_row(*map(Text, (f"{each.output}{list(each.index)}", each.got, each.want, each.bound, each.ratio)))
    return grid


def picture(heat: HeatMap, console: Console) -> Iterator[RenderableType]:
    """The map, in colours where the console has them."""
    yield Text(f"{heat.title}; {heat.down}; {heat.across}", style="bold")
    rich = console.is_terminal and not console.no_color and console.encoding.startswith("utf")
    yield from coloured(heat) if rich else map(Text, plain(heat))


def neighbours(found: list[Neighbour]) -> Iterator[Text]:
    """Two lines an entry."""
    for each in found:
        status = "" if each.entry.status == "open" else f" ({each.entry.status})"
        differences = "; ".join(each.differences) or "no difference but in values and sizes"
        line = Text(f"distance {each.distance}  {each.entry.signature}{status}\n            ")
        line.append(differences + (f". {each.remark[0].upper()}{each.remark[1:]}" if each.remark else ""), style="dim")
        yield line
