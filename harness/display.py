"""What a person sees: live progress, the summary of a campaign, an entry."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from harness import explained
from harness.case import Build, Case
from harness.corpus import Entry
from harness.events import Event
from harness.values import in_words

PLAIN_EVERY = 15.0
"""Seconds between two lines of progress where there is no terminal."""


class Face(NamedTuple):
    """How the progress of one sort of campaign looks."""

    line: Callable[[Event], Text]
    """The whole state in one line."""
    table: Callable[[Event], Table]
    """The state of every target."""
    closing: Callable[[Event, list[Event]], Iterator[RenderableType]]
    """What a summary says under the table and before the findings, which it is given."""


class Progress:
    """Shows a campaign's events; `emit` is its callback. On a terminal a table that updates itself, else a line now and
    then. Findings are printed as they come."""

    def __init__(self, console: Console, face: Face) -> None:
        self.console = console
        self.face = face
        self.last: Event | None = None
        self._settled: list[Event] = []
        self._unreduced: dict[tuple[str, str], Event] = {}
        self._plain = 0.0
        self._live = Live(console=console, refresh_per_second=5, transient=True) if console.is_terminal else None

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def emit(self, event: Event) -> None:
        if event["event"] == "progress":
            self._progress(event)
            return
        worker = event.get("worker", "")
        if event["event"] == "finding" and event["unreduced"]:
            # It stands for itself until its worker says what became of it.
            self._unreduced[worker, event["signature"]] = event
        elif event["event"] in ("finding", "known"):
            self._unreduced.pop((worker, event["was"]), None)
            if event["event"] == "finding":
                # Two workers that come to the same bug at one moment both take it for new; there is one entry.
                self._settled = [f for f in self._settled if f["signature"] != event["signature"]] + [event]
        elif event["event"] == "withdrawn":
            self._settled = [f for f in self._settled if f["signature"] != event["signature"]]
        if (text := told(event)) is not None:
            self._say(text)

    @property
    def findings(self) -> list[Event]:
        """What is new: the findings that are settled, and the failures that an early end left as they were found."""
        return [*self._settled, *self._unreduced.values()]

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)

    def _progress(self, event: Event) -> None:
        self.last = event
        if self._live is not None:
            self._live.update(Group(self.face.table(event), self.face.line(event)))
        elif time.monotonic() - self._plain > PLAIN_EVERY:
            self._plain = time.monotonic()
            self._say(escape(self.face.line(event).plain))


def told(event: Event) -> str | None:
    """An event in words, with rich's markup; what others have said is escaped."""
    e = {key: escape(str(value)) for key, value in event.items()}
    match event["event"]:
        case "start" if "cells" in event:
            what = f"{e['cells']} builds, {e['jobs']} at a time: {escape(', '.join(event['targets']))}"
            return f"{what} for {escape(', '.join(event['archs']))}; {e['known']} known failures"
        case "start" if "schedules" in event:
            what = f"{', '.join([*event['checks'], 'poison'])} and {e['schedules']} orders of threads"
            targets = escape(", ".join(event["targets"]))
            return f"sanitizing {targets} on the CPU: {what}, seed {e['seed']}, {e['known']} known failures"
        case "start":
            targets = escape(", ".join(event["targets"]))
            return f"fuzzing {targets} on {e['device']}, seed {e['seed']}, {e['known']} known failures"
        case "finding" if event["unreduced"]:
            return f"[yellow]found[/] {e['signature']}: shrinking …"
        case "finding":
            gone = f"\n        [dim]without {e['removed']}[/]" if e.get("removed") else ""
            rate = f"\n        {e['rate']}" if e.get("rate") else ""
            return f"[bold red]finding[/] {e['signature']}: {e['message']}{rate}{gone}\n        {e['file']}"
        case "withdrawn":
            return f"[dim]  {e['signature']} was {e['for']} all along[/]"
        case "known":
            return f"[dim]  it is {e['signature']}, showing as {e['as']}[/]"
        case "resumed":
            return f"[yellow]judging first what an interrupted campaign left under test[/] ({e['journal']})"
        case "warning":
            return f"[yellow]warning[/] {e['text']}"
    return None


def _fuzz_line(event: Event) -> Text:
    seconds = max(event["seconds"], 1e-9)
    builds = f"{event['builds']} builds" + (f" ({event['builds_pending']} to do)" if event["builds_pending"] else "")
    parts = [
        f"{seconds:.0f} s",
        f"{event['cases']} cases",
        f"{event['cases'] / seconds:.0f} cases/s",
        builds,
        f"{event['findings']} findings",
    ]
    if event["deaths"]:
        parts.append(f"{event['deaths']} processes lost")
    if event.get("harness_failures"):
        parts.append(f"the harness failed on {event['harness_failures']} cases (see the warnings)")
    if event["hunting"]:
        parts.append(f"shrinking a {event['hunting']}")
    return Text(", ".join(parts))


def _fuzz_table(event: Event) -> Table:
    table = headed("target", "cases", "passed", "skipped", "known failures", "vacuous", "largest ratio")
    for name, state in event["targets"].items():
        if state["idle"]:
            table.add_row(name, Text(f"builds only: {state['idle']}", style="dim"), end_section=False)
            continue
        row = (state["cases"], state["passed"], state["skipped"], state["known"], state["vacuous"])
        table.add_row(name, *map(str, row), f"{state['ratio']:.3f}" if state["ratio"] else "exact")
    return table


def _ratio_table(event: Event) -> Table | None:
    """The largest ratio by flag set, a column a target; None where everything is exact."""
    targets = {name: state["ratios"] for name, state in event["targets"].items() if state["ratios"]}
    if not targets:
        return None
    table = headed("largest ratio", *(name.replace("/", "/\n") for name in targets))
    for flags in sorted({flags for ratios in targets.values() for flags in ratios}):
        table.add_row(flags, *(f"{ratios[flags]:.3f}" if flags in ratios else "" for ratios in targets.values()))
    return table


def _feature_lines(event: Event) -> Iterator[str]:
    """For each operator, the share of its cases that used each feature, of the target that was given the most."""
    most: dict[str, dict[str, Any]] = {}
    for name, state in event["targets"].items():
        operator = name.partition("/")[0]
        most[operator] = max(most.get(operator, state), state, key=lambda s: s["cases"])
    for operator, state in most.items():
        counts = sorted(state["features"].items(), key=lambda item: (-item[1], item[0]))
        if counts:
            shares = (f"{word} {100 * count / state['cases']:.0f}%" for word, count in counts)
            yield f"{operator}: {', '.join(shares)}"


def _fuzz_closing(event: Event, findings: list[Event]) -> Iterator[RenderableType]:
    if (ratios := _ratio_table(event)) is not None:
        yield from ("", ratios, "")
    yield from map(Text, _feature_lines(event))
    spent = {what: seconds for what, seconds in event["timing"].items() if seconds}
    total = sum(spent.values()) or 1.0
    shares = (f"{what} {100 * seconds / total:.0f}%" for what, seconds in sorted(spent.items(), key=lambda x: -x[1]))
    yield Text(f"{_fuzz_line(event).plain}; time: {', '.join(shares)}")


FUZZING = Face(_fuzz_line, _fuzz_table, _fuzz_closing)


def _build_line(event: Event) -> Text:
    seconds = max(event["seconds"], 1e-9)
    parts = [
        f"{seconds:.0f} s",
        f"{event['done']} of {event['cells']} builds",
        f"{event['done'] / seconds:.1f} builds/s",
        f"{event['findings']} findings",
    ]
    if event["deaths"]:
        parts.append(f"{event['deaths']} processes lost")
    if event["left"]:
        parts.append(f"about {duration(event['left'])} left")
    return Text(", ".join(parts))


def duration(seconds: float) -> str:
    """To two figures or so: 40 s, 12 min, 3 h 20 min."""
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _build_table(event: Event) -> Table:
    table = headed("target", "architecture", "builds", "built", "unsupported", "failed")
    table.columns[1].justify = "left"
    for name, archs in event["targets"].items():
        for arch, counts in archs.items():
            row = (str(counts.get(what, 0)) for what in ("cells", "built", "unsupported", "failed"))
            table.add_row(name, arch, *row)
    return table


def _build_closing(event: Event, findings: list[Event]) -> Iterator[RenderableType]:
    yield _build_line(event)
    new = {finding["signature"] for finding in findings}
    for signature, count in event["failures"].items():
        if signature not in new:
            yield Text(f"known: {signature}, {count} builds", style="dim")


BUILDING = Face(_build_line, _build_table, _build_closing)


def headed(*columns: str) -> Table:
    """An empty one, its first column to the left and the others to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left")
    return table


def summary(face: Face, event: Event, findings: list[Event], *, interrupted: bool) -> RenderableType:
    """What a campaign came to."""
    parts: list[RenderableType] = ["", face.table(event), *face.closing(event, findings)]
    if interrupted:
        parts.append(Text("interrupted; everything found so far is kept", style="yellow"))
    for finding in findings:
        count = event.get("failures", {}).get(finding["signature"])
        what = f"{finding['signature']}, {count} builds" if count else finding["signature"]
        parts.append(Text(f"new: {what}\n     warpcheck repro {finding['file']}", style="red"))
    if not findings:
        parts.append(Text("nothing new", style="green"))
    return Group(*parts)


def entry(found: Entry) -> RenderableType:
    """An entry as a person reads it."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in _rows(found):
        table.add_row(name, Text(value))
    return table if found.explanation is None else Group(table, "", explained.table(found.explanation))


def _rows(found: Entry) -> list[tuple[str, str]]:
    verdict = found.verdict
    evidence = verdict.evidence
    rows = [
        ("signature", str(found.signature)),
        ("status", found.status + ("" if found.reduced else ", not reduced yet")),
        ("failure", f"{verdict.kind} ({verdict.stage}): {verdict.message}")
        if verdict.failed
        else ("judged", verdict.kind),
    ]
    if evidence.worst is not None:
        worst = evidence.worst
        rows.append(
            ("worst", f"{worst.output}{list(worst.index)}: got {worst.got}, want {worst.want}, bound {worst.bound}")
        )
    if evidence.total:
        rows.append(("wrong", f"{evidence.wrong} of {evidence.total} elements: {evidence.pattern}"))
    if found.frequency is not None:
        rows.append(("rate", str(found.frequency)))
    rows += _subject_rows(found.subject)
    if found.context:
        rows.append(("after", f"{len(found.context)} other calls in the same process"))
    rows.append(("found on", ", ".join(f"{k} {v}" for k, v in sorted(found.environment.items()))))
    if found.note:
        rows.append(("note", found.note))
    if evidence.log:
        rows.append(("log", evidence.log[-2000:]))
    return rows


def _subject_rows(subject: Case | Build) -> list[tuple[str, str]]:
    params = ", ".join(f"{k}={v!r}" for k, v in subject.params.items())
    if isinstance(subject, Build):
        return [("build", f"{params}, for {subject.arch}")]
    rows = [("call", params)]
    if subject.schedule or subject.checks:
        order = f"in the order of seed {subject.schedule}" if subject.schedule else "in order"
        rows.append(("runs", ", ".join([f"on the CPU {order}", *(f"checked for {check}" for check in subject.checks)])))
    for name, view in subject.tensors.items():
        made = in_words(subject.fills[name]) if name in subject.fills else "poison"
        rows.append(
            (
                f"  {name}",
                f"{view.dtype} {list(view.shape)}, strides {list(view.strides)}, byte {view.offset} of "
                f"storage {view.storage}: {made}",
            )
        )
    return rows
