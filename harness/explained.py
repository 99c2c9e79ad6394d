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

LISTED = 6
"""Values of a list that are printed; the entry has them all."""


def table(explanation: Explanation) -> RenderableType:
    """The parameters that matter, each with its values, then in one line those that do not."""
    matter = [each for each in explanation.varied if each.passes or each.otherwise]
    free = [each for each in explanation.varied if each not in matter and len(each.fails) > 1]
    single = [each.parameter for each in explanation.varied if each not in matter and len(each.fails) == 1]
    other = any(each.otherwise for each in matter)
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("parameter", "fails", "failing values", "passing values", *(["other failures"] if other else [])):
        grid.add_column(column, overflow="fold")
    for each in matter:
        lists = (each.fails, each.passes, *([each.otherwise] if other else []))
        grid.add_row(Text(each.parameter), Text(each.statement), *(Text(few(values)) for values in lists))
    parts: list[RenderableType] = [grid] if matter else []
    if free:
        parts.append(Text("irrelevant: " + ", ".join(f"{each.parameter} ({len(each.fails)} tried)" for each in free)))
    if single:
        parts.append(Text("nothing else tried: " + ", ".join(single), style="dim"))
    parts.append(Text(_end(explanation), style="dim"))
    return Group(*parts)


def _end(explanation: Explanation) -> str:
    text = f"{explanation.judged} variants judged on {explanation.device}, each with one parameter changed"
    return text if explanation.complete else f"{text}; there are more (--budget)"


def few(values: tuple[str, ...]) -> str:
    """The first values, and the last."""
    if len(values) <= LISTED:
        return ", ".join(values)
    return f"{', '.join(values[: LISTED - 1])}, … {values[-1]} ({len(values)})"


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
