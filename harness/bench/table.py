"""A report as a person reads it: tables for the terminal, and the same in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.table import Table
from rich.text import Text

from harness.bench.report import Floor, Report, Result, against_baseline, against_plain, fraction, rate
from harness.bench.timing import Timing
from harness.display import headed

_FEW, _MANY = 0.02, 0.1
"""Spreads: below the first one is not shown, above the second it is worth a look."""


def time_of(timing: Timing | None) -> str:
    """The median in us or ms; how far the quartiles are from each other, where that is much; a mark where the calls could not
    be captured."""
    if timing is None:
        return "–"
    spread = f" ±{100 * timing.spread / 2:.0f}%" if timing.spread > _FEW else ""
    mark = " (events)" if timing.method == "events" else ""
    return f"{seconds(timing.median)}{spread}{mark}"


def seconds(value: float) -> str:
    if value < 1e-3:
        return f"{value * 1e6:.1f} µs" if value < 1e-4 else f"{value * 1e6:.0f} µs"
    return f"{value * 1e3:.2f} ms" if value < 1 else f"{value:.2f} s"


def size_of(count: int | None) -> str:
    """Bytes, in MiB."""
    if count is None:
        return "–"
    mebi = count / (1 << 20)
    return "0" if not count else f"{mebi:.2f} MiB" if mebi < 10 else f"{mebi:.0f} MiB"


def rate_of(floor: Floor, timing: Timing) -> str:
    value, unit = rate(floor, timing)
    return f"{value / 1e12:.2f} T{unit}" if value < 1e13 else f"{value / 1e12:.0f} T{unit}"


def columns(report: Report, operator: str) -> list[str]:
    """What the table of an operator tells of each implementation, besides its name."""
    baseline = report.settings.baseline.get(operator)
    plain = any(floor.against for floor in report.workloads(operator))
    return [
        "cold",
        "of floor",
        "reached",
        *([f"× {baseline}"] if baseline else []),
        *(["× plain"] if plain else []),
        "warm",
        "of floor, warm",
        "extra memory",
        "judged",
    ]


def rows(report: Report, operator: str) -> Iterator[tuple[Floor, Result | None, list[str]]]:
    """A row for each floor (no result), and below it one for each implementation."""
    heads = columns(report, operator)
    for floor in report.workloads(operator):
        cells = {"cold": time_of(floor.copy_cold), "warm": time_of(floor.copy_warm)}
        if floor.flops:
            cells["reached"] = f"matmul {floor.flops / 1e12:.0f} TFLOP/s"
        else:
            cells["reached"] = rate_of(floor, floor.copy_cold)
        yield floor, None, [cells.get(head, "") for head in heads]
        for result in report.of(floor):
            yield floor, result, _cells(report, floor, result, heads)


def _cells(report: Report, floor: Floor, result: Result, heads: list[str]) -> list[str]:
    if result.status != "measured" or result.cold is None:
        return [result.status, *[""] * (len(heads) - 1)]
    cells = {
        "cold": time_of(result.cold),
        "of floor": _percent(fraction(report, result)),
        "reached": rate_of(floor, result.cold),
        "× plain": _times(against_plain(report, result)),
        "warm": time_of(result.warm),
        "of floor, warm": _percent(fraction(report, result, warm=True)),
        "extra memory": size_of(result.extra),
        "judged": result.judged + (f", ratio {result.ratio:.2g}" if result.ratio else ""),
    }
    baseline = report.settings.baseline.get(result.operator)
    cells[f"× {baseline}"] = "1" if result.name == baseline else _times(against_baseline(report, result))
    return [cells[head] for head in heads]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f}%"


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


_STYLES = {"wrong": "bold red", "failed": "red", "died": "red", "hang": "red", "unsupported": "dim"}


def tables(report: Report) -> Iterator[Table]:
    """One an operator."""
    for operator in report.operators():
        heads = columns(report, operator)
        table = headed("workload", "implementation", *heads)
        table.title, table.title_justify, table.title_style = Text(operator), "left", "bold"
        for floor, result, cells in rows(report, operator):
            if result is None:
                table.add_row(Text(floor.workload, style="bold"), Text("copy", style="dim"), *(_dim(cells)))
            elif result.status == "measured":
                table.add_row("", Text(result.name), *map(Text, cells))
            else:
                table.add_row("", Text(result.name), Text(cells[0], style=_STYLES[result.status]))
        yield table


def _dim(cells: Iterable[str]) -> list[Text]:
    return [Text(cell, style="dim") for cell in cells]


def notes(report: Report, operator: str) -> Iterator[str]:
    """Why there is no time, said once for all workloads of an implementation for which it is the same."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for result in report.results:
        if result.operator == operator and result.status != "measured":
            found.setdefault((result.name, result.status, result.why), []).append(result.workload)
    for (name, status, why), where in found.items():
        yield f"{name}, {where[0] if len(where) == 1 else f'{len(where)} workloads'}: {status}: {why}"


def machine(report: Report) -> str:
    """GPU and versions, in one line."""
    return ", ".join(f"{name} {value}" for name, value in report.machine.items() if name != "interpreter")


def markdown(report: Report, command: str) -> str:
    """A document: where it was measured, how to do so again, a table side by side and a table of everything."""
    lines = [
        "# Measured by `warpcheck bench`",
        "",
        f"    {command}",
        "",
        f"Machine and versions: {machine(report)}.",
        "",
        "Times are of one call, cold (its data is not in the L2 cache) unless said otherwise: medians, with half the distance "
        "of the quartiles where that is more than 1 %. The floor is a copy of the bytes that a call must read and write, or its "
        "operations at the rate of a matrix product, measured in the same run. Every configuration's result was judged before "
        "it was timed. `python -c 'import harness.bench as b; print(b.__doc__)'` says how it is done.",
    ]
    if not report.complete:
        lines += ["", "This run was ended early."]
    for operator in report.operators():
        lines += ["", f"## {operator}", "", *_side_by_side(report, operator), "", *_everything(report, operator)]
        lines += ["", *(f"- {note}" for note in notes(report, operator))]
    return "\n".join([*lines, ""])


def _side_by_side(report: Report, operator: str) -> Iterator[str]:
    names = list(dict.fromkeys(r.name for r in report.results if r.operator == operator))
    yield _line(["workload", "floor", *names])
    yield _line(["---", *["---:"] * (1 + len(names))])
    for floor in report.workloads(operator):
        least = floor.seconds()
        assert least is not None
        cells: list[str] = []
        for name in names:
            result = report.result(operator, floor.workload, name)
            if result is None or result.cold is None:
                cells.append("–" if result is None or result.status == "unsupported" else result.status)
            else:
                cells.append(f"{seconds(result.cold.median)} ({_percent(fraction(report, result))})")
        yield _line([floor.workload, seconds(least), *cells])


def _everything(report: Report, operator: str) -> Iterator[str]:
    heads = columns(report, operator)
    yield _line(["workload", "implementation", *heads])
    yield _line(["---", "---", *["---:"] * len(heads)])
    for floor, result, cells in rows(report, operator):
        first, name = (floor.workload, "copy") if result is None else ("", result.name)
        yield _line([first, name, *cells])


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
