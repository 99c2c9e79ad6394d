"""Campaigns over the build matrix: everything that legal calls can need is compiled, for every architecture, without a GPU.

A cell is one compilation: parameters × architecture × toolchain options of one implementation. It builds, or was called
unsupported beforehand, or is a failure; a failure that is not known is kept at once, then reduced, confirmed and recorded
(`harness.settle_build`), while the other cells go on. Every result is counted and let go: only what waits to be reduced
is kept, one cell for each way to fail.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import journal, operators
from harness.build_queue import BuildQueue, Built
from harness.case import Build, Params
from harness.events import Emit
from harness.journal import Journal
from harness.ledger import Ledger
from harness.record import Recorder
from harness.sandbox import Engine, Limits
from harness.settle_build import BuildSettler
from harness.signature import Bucket, Signature

REPORT_EVERY = 0.2
PAUSE = 0.05


class NothingToBuild(ValueError):
    """What was asked for has no cells; the message is one line and says what there is."""


@dataclass(frozen=True)
class BuildConfig:
    """What to build. `seconds` ends it early."""

    specs: dict[str, tuple[str, ...]]
    """Per operator, the implementations."""
    archs: tuple[str, ...] = ()
    """None are all."""
    jobs: int = 1
    """Compilations at a time."""
    seconds: float | None = None
    corpus: Path = Path("corpus")
    limits: Limits = field(default_factory=Limits)


class BuildCampaign:
    """One pass over the cells."""

    def __init__(self, config: BuildConfig, emit: Emit) -> None:
        self.config = config
        self.emit = emit
        self.folder = config.corpus / journal.FOLDER
        self.ledger = Ledger(config.corpus)
        self.queue = BuildQueue([self._engine(i) for i in range(config.jobs)])
        self.names: dict[str, str] = {}
        self.cells: dict[str, dict[str, Counter[str]]] = {}
        """Per target and architecture, how many there are, and came to what."""
        self.spent: defaultdict[str, float] = defaultdict(float)
        """Per target, the seconds of its compilations."""
        self.failures: Counter[Bucket] = Counter()
        self._started = time.monotonic()
        self._reported = 0.0

    def _engine(self, i: int) -> Engine:
        log = Journal(self.folder, f"{os.getpid()}-build-{i}")
        return Engine("cpu", build_only=True, limits=self.config.limits, journal=log)

    def run(self) -> None:
        """Until every cell is built or the time is up. Raises NothingToBuild and UnusableImplementation before anything
        is built; KeyboardInterrupt passes, and what was found until then is kept."""
        try:
            self._open()
            try:
                self._build()
            finally:
                self._collect()
                self.emit(self.progress())
        finally:
            self.queue.close()

    def _build(self) -> None:
        pending = True
        while pending or self.settler.waiting:
            pending = bool(self.queue.pending) and self._left()
            self._collect()
            if self.settler.waiting:
                self.settler.settle()
            elif pending:
                time.sleep(PAUSE)

    def _open(self) -> None:
        engine = self.queue.engines[0]  # no thread has it yet
        asked = set(self.config.archs)
        seen: dict[str, None] = {}
        matrices: dict[str, list[Params]] = {}
        for operator, specs in self.config.specs.items():
            matrices[operator] = list(operators.get(operator).build_matrix())
            for spec in specs:
                about = engine.inspect(operator, spec)
                self.names[spec] = about.name
                variants = engine.builds(operator, spec, matrices[operator][0])
                seen |= dict.fromkeys(build.arch for build in variants)
                kept = Counter(build.arch for build in variants if not asked or build.arch in asked)
                if kept:
                    counts = {arch: Counter(cells=n * len(matrices[operator])) for arch, n in kept.items()}
                    self.cells[f"{operator}/{about.name}"] = counts
        if unknown := sorted(asked - set(seen)):
            raise NothingToBuild(f"nothing is built for {', '.join(unknown)}; there are {', '.join(seen) or 'none'}")
        if not self.cells:
            targets = ", ".join(f"{o}/{self.names[s]}" for o, specs in self.config.specs.items() for s in specs)
            raise NothingToBuild(f"nothing to compile: no `build` in {targets}")
        environment = engine.environment()
        recorder = Recorder(self.ledger, self.emit, environment, self.names, "cpu")
        self.settler = BuildSettler(recorder, self.config.limits, idle=self._collect)
        self.emit(
            {
                "event": "start",
                "archs": [arch for arch in seen if not asked or arch in asked],
                "jobs": self.config.jobs,
                "cells": self._count("cells"),
                "environment": environment,
                "targets": list(self.cells),
                "known": len(self.ledger.entries),
            }
        )
        self._resume()
        for operator, matrix in matrices.items():
            self.queue.watch(operator, self.config.specs[operator], self.config.archs)
            for params in matrix:
                if not self._left():  # the queue builds from the first parameters on
                    self.queue.stop()
                    return
                self.queue.add(operator, params)

    def _resume(self) -> None:
        """Build first what was being built when an earlier campaign on this corpus was cut off."""
        for path, record in journal.left_behind(self.folder):
            (spec, *_) = record.specs
            if isinstance(record.subject, Build) and spec in self.config.specs.get(record.subject.operator, ()):
                self.emit({"event": "resumed", "journal": path.name, "case": json.loads(record.subject.key())})
                self.queue.first.add((spec, record.subject.key()))
                journal.discard(path)

    def _collect(self) -> None:
        """Count what was built since the last call, and take failures in."""
        if not self._left():
            self.queue.stop()
        for built in self.queue.drain():
            self._take(built)
        now = time.monotonic()
        if now - self._reported >= REPORT_EVERY:
            self._reported = now
            self.emit(self.progress())

    def _take(self, built: Built) -> None:
        build, spec, verdict, seconds = built
        target = f"{build.operator}/{self.names[spec]}"
        outcome = "failed" if verdict.failed else "unsupported" if verdict.kind == "skip" else "built"
        self.cells[target][build.arch][outcome] += 1
        self.cells[target][build.arch]["done"] += 1
        self.spent[target] += seconds
        if verdict.failed:
            self.failures[self.settler.meet(build, spec, verdict)] += 1

    def _left(self) -> bool:
        return self.config.seconds is None or time.monotonic() - self._started < self.config.seconds

    def _count(self, what: str) -> int:
        return sum(counts[what] for archs in self.cells.values() for counts in archs.values())

    def progress(self) -> dict[str, Any]:
        """The state of the campaign, as an event."""
        failures: Counter[str] = Counter()
        for where, count in self.failures.items():
            failures[str(self.ledger.owner.get(where) or Signature(*where))] += count
        return {
            "event": "progress",
            "seconds": round(time.monotonic() - self._started, 3),
            "cells": self._count("cells"),
            "done": self._count("done"),
            "left": seconds_left(self.cells, self.spent, self.config.jobs),
            "findings": len(self.ledger.new) + len(self.settler.waiting),
            "deaths": sum(engine.deaths for engine in self.queue.engines),
            "targets": {
                target: {arch: dict(counts) for arch, counts in archs.items()} for target, archs in self.cells.items()
            },
            "failures": dict(failures),
        }


def seconds_left(
    cells: Mapping[str, Mapping[str, Mapping[str, int]]], spent: Mapping[str, float], jobs: int
) -> float | None:
    """How long the cells that are left will take, each as long as its target's on average; None before anything is known."""
    done: dict[str, int] = defaultdict(int)
    todo: dict[str, int] = defaultdict(int)
    for target, archs in cells.items():
        for counts in archs.values():
            done[target] += counts.get("done", 0)
            todo[target] += counts["cells"] - counts.get("done", 0)
    if not sum(done.values()):
        return None
    average = sum(spent.values()) / sum(done.values())
    seconds = sum(n * (spent[target] / done[target] if done[target] else average) for target, n in todo.items())
    return round(seconds / jobs, 1)
