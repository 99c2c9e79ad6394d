"""What a person sees: live progress, the summary of a campaign, an entry."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from harness.case import Build, Case
from harness.corpus import Entry
from harness.events import Event

PLAIN_EVERY = 15.0
"""Seconds between two lines of progress where there is no terminal."""


class Progress:
    """Shows a campaign's events; `emit` is its callback. On a terminal a table that updates itself, else a line now and
    then. Findings are printed as they come."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.last: Event | None = None
        self._settled: list[Event] = []
        self._unreduced: dict[str | None, Event] = {}
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
        if event["event"] == "finding":
            # A failure that is not shrunk yet stands for itself until its worker says what became of it.
            self._unreduced.pop(event.get("worker"), None)
            (
                self._unreduced.__setitem__(event.get("worker"), event)
                if event["unreduced"]
                else self._settled.append(event)
            )
        elif event["event"] == "known":
            self._unreduced.pop(event.get("worker"), None)
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
            self._live.update(Group(targets(event), line(event)))
        elif time.monotonic() - self._plain > PLAIN_EVERY:
            self._plain = time.monotonic()
            self._say(escape(line(event).plain))


def told(event: Event) -> str | None:
    """An event in words, with rich's markup; what others have said is escaped."""
    e = {key: escape(str(value)) for key, value in event.items()}
    match event["event"]:
        case "start":
            targets = escape(", ".join(event["targets"]))
            return f"fuzzing {targets} on {e['device']}, seed {e['seed']}, {e['known']} known failures"
        case "finding" if event["unreduced"]:
            return f"[yellow]found[/] {e['signature']}: shrinking …"
        case "finding":
            return f"[bold red]finding[/] {e['signature']}: {e['message']}\n        {e['file']}"
        case "withdrawn":
            return f"[dim]  {e['signature']} was {e['for']} all along[/]"
        case "known":
            return f"[dim]  it is {e['signature']}, showing as {e['as']}[/]"
        case "resumed":
            return f"[yellow]judging first what an interrupted campaign left under test[/] ({e['journal']})"
        case "warning":
            return f"[yellow]warning[/] {e['text']}"
    return None


def line(event: Event) -> Text:
    """The whole state in one line."""
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


def targets(event: Event) -> Table:
    """The state of every target."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("target", "cases", "passed", "skipped", "known failures", "vacuous", "largest ratio"):
        table.add_column(column, justify="left" if column == "target" else "right")
    for name, state in event["targets"].items():
        if state["idle"]:
            table.add_row(name, Text(f"builds only: {state['idle']}", style="dim"), end_section=False)
            continue
        row = (state["cases"], state["passed"], state["skipped"], state["known"], state["vacuous"])
        table.add_row(name, *map(str, row), f"{state['ratio']:.3f}" if state["ratio"] else "exact")
    return table


def summary(event: Event, findings: list[Event], *, interrupted: bool) -> RenderableType:
    """What a campaign came to."""
    spent = {what: seconds for what, seconds in event["timing"].items() if seconds}
    total = sum(spent.values()) or 1.0
    shares = ", ".join(
        f"{what} {100 * seconds / total:.0f}%" for what, seconds in sorted(spent.items(), key=lambda x: -x[1])
    )
    parts: list[RenderableType] = ["", targets(event), Text(f"{line(event).plain}; time: {shares}")]
    if interrupted:
        parts.append(Text("interrupted; everything found so far is kept", style="yellow"))
    for finding in findings:
        parts.append(Text(f"new: {finding['signature']}\n     warpcheck repro {finding['file']}", style="red"))
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
    return table


def _rows(found: Entry) -> list[tuple[str, str]]:
    verdict = found.verdict
    evidence = verdict.evidence
    rows = [
        ("signature", str(found.signature)),
        ("status", found.status + ("" if found.reduced else ", not reduced yet")),
        ("failure", f"{verdict.kind} ({verdict.stage}): {verdict.message}"),
    ]
    if evidence.worst is not None:
        worst = evidence.worst
        rows.append(
            ("worst", f"{worst.output}{list(worst.index)}: got {worst.got}, want {worst.want}, bound {worst.bound}")
        )
    if evidence.total:
        rows.append(("wrong", f"{evidence.wrong} of {evidence.total} elements: {evidence.pattern}"))
    if evidence.runs:
        rows.append(("rate", f"{evidence.failed} of {evidence.runs} runs fail"))
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
    for name, view in subject.tensors.items():
        fill: Any = subject.fills.get(name)
        made = (
            "poison"
            if fill is None
            else f"{fill.kind} {list(fill.values)}"
            if fill.values
            else f"{fill.kind}, seed {fill.seed}"
        )
        rows.append(
            (
                f"  {name}",
                f"{view.dtype} {list(view.shape)}, strides {list(view.strides)}, byte {view.offset} of "
                f"storage {view.storage}: {made}",
            )
        )
    return rows
