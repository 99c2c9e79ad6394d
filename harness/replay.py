"""Judge entries again, each as it was found: its context first, in a process that has judged nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness import corpus
from harness.case import Build, CaseError, Subject
from harness.corpus import Entry
from harness.sandbox import Engine, HarnessError, Limits, UnusableImplementation, telling_line
from harness.signature import same
from harness.verdict import Verdict, skip

Outcome = Literal["as expected", "now passes", "fails", "cannot run", "unreadable"]
"""now passes: an open entry, which someone should mark fixed. fails: a fixed entry does, a regression. cannot run: not on
this machine. unreadable: a file that is no entry, or whose case describes no call; nowhere."""


class NotShown(Exception):
    """An entry does not show its failure here. `verdict` is what judging it gave; the message says that in words."""

    def __init__(self, verdict: Verdict, words: str = "") -> None:
        self.verdict = verdict
        failed = f"it fails in another way than it says, {verdict.kind}: {verdict.message}"
        super().__init__(words or (verdict.message if self.cannot_run else failed if verdict.failed else "it passes"))

    @property
    def cannot_run(self) -> bool:
        return self.verdict.kind == "skip"


REPEATS = 10
MOST_REPEATS = 500
"""Pairs of runs given to an entry that does not fail every time: as many as its rate asks for, these at most."""


def pairs_to_show(entry: Entry) -> int:
    """Runs under each poison that show a failure that comes and goes, with 99 % confidence where its rate is known."""
    known = entry.frequency.repeats if entry.frequency is not None else 0
    return min(max(REPEATS, -(-known // 2)), MOST_REPEATS)


@dataclass(frozen=True)
class Replayed:
    path: Path
    outcome: Outcome
    entry: Entry | None
    verdict: Verdict
    """What judging gave; a skip with the reason where nothing could be judged."""


class Replayer:
    """Judges entries, on engines that it keeps from one to the next. device: "cpu" or "cuda"."""

    def __init__(self, device: str, *, limits: Limits | None = None, visible: str | None = None) -> None:
        self.device = device
        self._limits = limits
        self._visible = visible
        self._engines: dict[tuple[str, bool], Engine] = {}

    def __enter__(self) -> Replayer:
        return self

    def __exit__(self, *_: object) -> None:
        for engine in self._engines.values():
            engine.close()

    def engine(self, subject: Subject) -> Engine:
        """The one that judges such a subject: builds, and calls whose order or checks it takes the CPU for, need no GPU."""
        build_only = isinstance(subject, Build)
        on_cpu = isinstance(subject, Build) or bool(subject.schedule or subject.checks)
        key = "cpu" if on_cpu else self.device, build_only
        if key not in self._engines:
            self._engines[key] = Engine(key[0], build_only=build_only, limits=self._limits, visible=self._visible)
        return self._engines[key]

    def judge(self, entry: Entry, *, repeat: int | None = None, picture: bool = False) -> Verdict:
        """The verdict of today, or a skip that says why there is none. `repeat`: pairs of runs. With `picture`, the engine's
        `mismatch` is then what the wrong output looks like.

        Raises CaseError for a case of which no call can be made."""
        engine = self.engine(entry.subject)
        spec = entry.implementation
        try:
            about = engine.inspect(entry.signature.operator, spec)
            if isinstance(entry.subject, Build):
                return engine.build(entry.subject, spec)
            if about.cannot_run is not None:
                return skip(about.cannot_run)
            engine.fresh()
            for case in entry.context:
                engine.judge(case, [spec])
            pairs = repeat or (pairs_to_show(entry) if entry.verdict.kind == "nondeterministic" else 1)
            return engine.judge(entry.subject, [spec], pairs=pairs, picture=picture)[0]
        except (UnusableImplementation, HarnessError) as error:
            return skip(telling_line(error))

    def show(self, entry: Entry, *, picture: bool = False) -> Verdict:
        """The verdict of today, which is that the entry fails as it says. Raises NotShown otherwise, and what `judge` does."""
        verdict = self.judge(entry, picture=picture)
        if not (verdict.failed and same(verdict, entry.verdict)):
            raise NotShown(verdict)
        return verdict

    def replay(self, path: Path) -> Replayed:
        """Judge one file and compare with what its status promises."""
        try:
            entry = corpus.read(path)
            verdict = self.judge(entry)
        except CaseError as error:
            return Replayed(path, "unreadable", None, skip(str(error)))
        return Replayed(path, outcome(entry, verdict), entry, verdict)

    def replay_all(self, paths: list[Path]) -> Iterator[Replayed]:
        """Every entry of these files and folders."""
        for path in paths:
            for file in corpus.paths(path) if path.is_dir() else [path]:
                yield self.replay(file)


def outcome(entry: Entry, verdict: Verdict) -> Outcome:
    """What a verdict means for an entry's status."""
    if verdict.kind == "skip":
        return "cannot run"
    if entry.status == "fixed":
        return "fails" if verdict.failed else "as expected"
    return "as expected" if verdict.failed else "now passes"
