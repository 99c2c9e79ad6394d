"""Sanitizing: CUDA kernels run on the CPU under every check and in arbitrary orders, on the corpus's calls and on drawn ones.

Every case runs plainly first, then under each check on its own (so that its slowdown can be told), then in some arbitrary
orders. The first to fail has the failure, in the order of `COLUMNS`: a missing barrier is a race before it is whatever the
plain run made of it. What fails in the plain run with the same words needs no check, and is recorded without. Failures
are told apart, reduced, confirmed and kept as those of fuzzing are; a case that fails is done with.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from hypothesis import given, seed
from msgspec.structs import replace

from harness import corpus, journal, operators
from harness.case import Case, CaseError, Check
from harness.events import Emit
from harness.journal import Journal
from harness.ledger import Ledger
from harness.profiles import profile
from harness.record import Recorder
from harness.sandbox import Engine, Limits
from harness.settle import Found, Settler
from harness.signature import bucket, same
from harness.strategies import SCALES
from harness.verdict import Verdict

CHECKS: tuple[Check, ...] = get_args(Check)
POISON, ORDERS = "poison", "orders"
COLUMNS = (*CHECKS, POISON, ORDERS)
"""What a case goes through. poison: no check, in order; shared memory holds another poison in each run of a pair."""

SMALL_SECONDS = 60.0
"""Until a failure should be small."""


class CannotRun(Exception):
    """No CUDA kernel runs on this machine's CPU; the message is one line, and says what to install."""


class NothingToSanitize(ValueError):
    """None of the chosen implementations is a CUDA kernel that runs on the CPU; the message is one line."""


@dataclass(frozen=True)
class Config:
    """targets: operator -> specs. entries: files whose cases come first. examples: cases drawn for each operator.
    schedules: arbitrary orders for each case."""

    targets: dict[str, tuple[str, ...]]
    entries: tuple[Path, ...] = ()
    examples: int = 20
    checks: tuple[Check, ...] = CHECKS
    schedules: int = 3
    seed: int = 0
    corpus: Path = Path("corpus")
    limits: Limits = field(default_factory=Limits)


@dataclass
class Column:
    """Of one target: runs that passed and that failed. seconds: of the kernel; plain_seconds: of the same calls unchecked."""

    passed: int = 0
    failed: int = 0
    seconds: float = 0.0
    plain_seconds: float = 0.0


@dataclass
class Target:
    operator: str
    spec: str
    name: str
    cases: int = 0
    skipped: int = 0
    known: int = 0
    columns: dict[str, Column] = field(default_factory=lambda: {name: Column() for name in COLUMNS})

    def state(self) -> dict[str, Any]:
        columns = {name: vars(column).copy() for name, column in self.columns.items()}
        return {"cases": self.cases, "skipped": self.skipped, "known": self.known, "columns": columns}


class Sanitizer:
    """One run: it draws, one child judges."""

    def __init__(self, config: Config, emit: Emit) -> None:
        self.config, self.emit = config, emit
        log = Journal(config.corpus / journal.FOLDER, "sanitize")
        self.engine = Engine("cpu", limits=config.limits, journal=log)
        self.ledger = Ledger(config.corpus)
        self.targets: list[Target] = []
        self.done = self.total = 0
        self._source = random.Random(config.seed)
        self._started = time.monotonic()

    def run(self) -> None:
        """Until every case is through. Raises UnusableImplementation, NothingToSanitize and CannotRun before anything runs."""
        try:
            self._open()
            cases = {name: [*self._recorded(name), *self._drawn(name)] for name in self.config.targets}
            self.total = sum(len(cases[target.operator]) for target in self.targets)
            for target in self.targets:
                for case in cases[target.operator]:
                    self._sanitize(target, case)
                    self.done += 1
                    self._report()
            self._report()
        finally:
            self.engine.close()

    def _open(self) -> None:
        why = ""
        for operator, specs in self.config.targets.items():
            for spec in specs:
                about = self.engine.inspect(operator, spec)
                if about.executes and about.cannot_run is None:
                    self.targets.append(Target(operator, spec, about.name))
                elif about.executes:
                    why = why or str(about.cannot_run)
        if not self.targets and why:
            raise CannotRun(why)
        if not self.targets:
            chosen = ", ".join(f"{o}/{spec}" for o, specs in self.config.targets.items() for spec in specs)
            raise NothingToSanitize(
                f"none of these is a CUDA kernel that runs on the CPU (its module would have `execution`): {chosen}"
            )
        names = {target.spec: target.name for target in self.targets}
        recorder = Recorder(self.ledger, self.emit, self.engine.environment(), names, "cpu")
        self.settler = Settler(self.engine, recorder, SMALL_SECONDS)
        self.emit(
            {
                "event": "start",
                "checks": list(self.config.checks),
                "schedules": self.config.schedules,
                "seed": self.config.seed,
                "environment": recorder.environment,
                "targets": [f"{target.operator}/{target.name}" for target in self.targets],
                "known": len(self.ledger.entries),
            }
        )

    def _recorded(self, operator: str) -> list[Case]:
        """The calls that entries name, each once, as they are without check and order."""
        found: dict[bytes, Case] = {}
        for path in self.config.entries:
            try:
                subject = corpus.read(path).subject
            except CaseError as error:
                self.emit({"event": "warning", "text": str(error)})
                continue
            if isinstance(subject, Case) and subject.operator == operator:
                plain = replace(subject, schedule=0, checks=())
                found[plain.key()] = plain
        return list(found.values())

    def _drawn(self, operator: str) -> list[Case]:
        found: list[Case] = []
        if self.config.examples:
            strategy = operators.get(operator).cases(SCALES["cpu", "dev"], illegal=False)

            @seed(self._source.getrandbits(64))
            @profile(self.config.examples)
            @given(strategy)
            def draw(case: Case) -> None:
                found.append(case)

            draw()
        return found

    def _sanitize(self, target: Target, case: Case) -> None:
        """All columns of one case."""
        target.cases += 1
        plain, seconds = self._judge(target, case)
        if plain.kind == "skip":
            target.skipped += 1
            return
        for check in self.config.checks:
            verdict, checked = self._judge(target, replace(case, checks=(check,)))
            if verdict.failed and not same(verdict, plain):
                self._meet(target, check, replace(case, checks=(check,)), verdict)
                return
            if not verdict.failed:
                self._passed(target, check, checked, seconds)
        if plain.failed:
            self._meet(target, POISON, case, plain)
            return
        self._passed(target, POISON, seconds, seconds)
        for _ in range(self.config.schedules):
            other = replace(case, schedule=self._source.randrange(1, 1 << 32))
            verdict, taken = self._judge(target, other)
            if verdict.failed:
                self._meet(target, ORDERS, other, verdict)
                return
            self._passed(target, ORDERS, taken, seconds)

    def _judge(self, target: Target, case: Case) -> tuple[Verdict, float]:
        verdict = self.engine.judge(case, [target.spec])[0]
        return verdict, self.engine.fastest

    @staticmethod
    def _passed(target: Target, name: str, seconds: float, plain_seconds: float) -> None:
        column = target.columns[name]
        column.passed += 1
        column.seconds += seconds
        column.plain_seconds += plain_seconds

    def _meet(self, target: Target, name: str, case: Case, verdict: Verdict) -> None:
        """A failure: known, or one to reduce, confirm and keep."""
        target.columns[name].failed += 1
        history = tuple(self.engine.history)[:-1]
        where = bucket(case, target.name, verdict)
        if self.ledger.owner.get(where) or self.settler.recognise(case, target.spec, verdict, where):
            target.known += 1
            return
        found = Found(case, target.spec, verdict, where, history)
        self.settler.record_unreduced(found)
        self._report()
        self.settler.settle(found)

    def _report(self) -> None:
        while self.engine.warnings:
            self.emit({"event": "warning", "text": self.engine.warnings.pop(0)})
        self.emit(
            {
                "event": "progress",
                "seconds": round(time.monotonic() - self._started, 3),
                "done": self.done,
                "total": self.total,
                "findings": len(self.ledger.new),
                "deaths": self.engine.deaths,
                "harness_failures": self.engine.failures,
                "targets": {f"{target.operator}/{target.name}": target.state() for target in self.targets},
            }
        )


def operators_of(paths: tuple[Path, ...]) -> dict[str, tuple[str, ...]]:
    """Operator -> the specs that entries were found with. Raises CaseError for a file that is no entry."""
    found: dict[str, dict[str, None]] = {}
    for entry in map(corpus.read, paths):
        found.setdefault(entry.signature.operator, {})[entry.implementation] = None
    return {operator: tuple(specs) for operator, specs in found.items()}
