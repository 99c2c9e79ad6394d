"""Campaigns: a budget of time or cases, spent in turns over the operators; failures told apart, shrunk, confirmed, kept.

A turn is one Hypothesis run over an operator's strategy; every drawn case is judged on all its implementations. The first
failure that is not known becomes the turn's *hunt*: Hypothesis shrinks it, judging its implementation alone, then
`harness.settle` has it reduced, confirmed and recorded. Known failures are counted and passed by, so one bug never hides
the next.

Whatever happens, nothing is lost: a failure is on disk, unreduced, before shrinking starts; the journal names the case
under test; and Hypothesis never sees a verdict change, because a case judged before is answered from memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import given, seed

from harness import journal, operators
from harness.build_queue import BuildQueue
from harness.case import Case, CaseError, Subject
from harness.events import Emit, TargetStats
from harness.journal import Journal
from harness.ledger import Ledger
from harness.operators import Operator
from harness.profiles import SHRINK_SECONDS, TURN, profile, share
from harness.record import Recorder
from harness.sandbox import Engine, Limits
from harness.settle import Found, Settler
from harness.settle_build import BuildSettler
from harness.signature import Bucket, bucket
from harness.strategies import SCALES, scheduled
from harness.verdict import COSTLY, Verdict

REPORT_EVERY = 0.2
SHRINK_CALLS = 100
"""What Hypothesis may spend on a failure before `harness.reduce` goes on from where it got to."""


@dataclass(frozen=True)
class Config:
    """What to fuzz and for how long. `seconds` or `cases` ends it; whichever comes first when both are given."""

    operators: tuple[str, ...]
    specs: dict[str, tuple[str, ...]]
    """Per operator, the implementations."""
    device: str
    seconds: float | None = 60.0
    cases: int | None = None
    seed: int = 0
    profile: str = "dev"
    corpus: Path = Path("corpus")
    shrink_seconds: float | None = None
    """Until a failure should be small; None is the profile's. (The number of judgements is limited as well.)"""
    illegal: bool = True
    builds: bool = True
    limits: Limits = field(default_factory=Limits)
    visible: str | None = None
    name: str = "0"
    """Tells the workers of one campaign apart."""


class _OutOfBudget(BaseException):
    """Ends a Hypothesis run at once (it lets what is no Exception pass)."""


class _Settled(BaseException):
    """Ends a Hypothesis run whose failure is not worth more of its shrinking."""


class Finding(Exception):
    """One subclass a bucket: Hypothesis tells failures apart by type."""


class Campaign:
    """One worker: it draws, one child judges (and, where there is building to do, another compiles)."""

    def __init__(self, config: Config, emit: Emit) -> None:
        self.config = config
        self.emit = emit
        folder = config.corpus / journal.FOLDER
        self._pid_name = f"{os.getpid()}-{config.name}"
        self.engine = Engine(
            config.device,
            limits=config.limits,
            visible=config.visible,
            journal=Journal(folder, self._pid_name, sync=config.device == "cuda"),
        )
        self.ledger = Ledger(config.corpus)
        self.stats: dict[tuple[str, str], TargetStats] = {}
        self.names: dict[str, str] = {}
        self.runnable: dict[str, tuple[str, ...]] = {}
        self.ordered: set[str] = set()
        """Operators with a target whose order of threads a case can choose."""
        self.queue: BuildQueue | None = None
        self.cases = 0
        self.draw_seconds = 0.0
        self._started = time.monotonic()
        self._reported = 0.0
        self._cache: dict[tuple[bytes, str], Verdict] = {}
        self._hunt: Found | None = None
        self._waiting: list[Found] = []
        self._patience = config.shrink_seconds or SHRINK_SECONDS[config.profile]

    def run(self) -> None:
        """Until the budget is spent. Raises UnusableImplementation before anything runs; KeyboardInterrupt passes."""
        try:
            self._open()
            self._resume()
            source = random.Random(self.config.seed)
            while self._left() and any(self.runnable.values()):
                for name in self.config.operators:
                    if self._left() and self.runnable[name]:
                        self._turn(operators.get(name), source.getrandbits(64))
            self._finish_builds()
            self._report(force=True)
        except KeyboardInterrupt:
            self._report(force=True)
            raise
        finally:
            self._close()

    def _open(self) -> None:
        for operator in self.config.operators:
            runnable = []
            buildable = []
            for spec in self.config.specs[operator]:
                about = self.engine.inspect(operator, spec)
                self.names[spec] = about.name
                self.stats[operator, spec] = TargetStats(operator, about.name, idle=about.cannot_run or "")
                if about.cannot_run is None:
                    runnable.append(spec)
                    if about.executes:
                        self.ordered.add(operator)
                if about.can_build:
                    buildable.append(spec)
            self.runnable[operator] = tuple(runnable)
            if buildable and self.config.builds:
                if self.queue is None:
                    log = Journal(self.config.corpus / journal.FOLDER, f"{self._pid_name}-build")
                    engine = Engine("cpu", build_only=True, limits=self.config.limits, journal=log)
                    self.queue = BuildQueue([engine])
                self.queue.watch(operator, tuple(buildable))
        environment = self.engine.environment()
        recorder = Recorder(self.ledger, self.emit, environment, self.names, self.config.device)
        self.settler = Settler(self.engine, recorder, self._patience)
        self.build_settler = BuildSettler(recorder, self.config.limits, self._patience)
        self.emit(
            {
                "event": "start",
                "device": self.config.device,
                "seed": self.config.seed,
                "environment": environment,
                "targets": [f"{o}/{s.name}" for (o, _), s in self.stats.items()],
                "known": len(self.ledger.entries),
            }
        )

    def _resume(self) -> None:
        """Judge first what was under test when an earlier campaign on this corpus was cut off."""
        for path, record in journal.left_behind(self.config.corpus / journal.FOLDER):
            ours = [s for s in record.specs if s in self.names]
            if isinstance(record.subject, Case) and ours and record.device == self.config.device:
                self.emit({"event": "resumed", "journal": path.name, "case": _json(record.subject)})
                self._hunt = None
                journal.discard(path)  # before judging: our own journal names the case from here on
                try:
                    with contextlib.suppress(_Settled):
                        self._check(record.subject, tuple(ours))
                except CaseError as error:
                    self.emit({"event": "warning", "text": f"{path.name}: {error}"})
                self._settle()

    def _turn(self, operator: Operator, turn_seed: int) -> None:
        self._hunt = None
        self.ledger.refresh()
        limit = TURN if self.config.cases is None else min(TURN, self.config.cases - self.cases)
        scale = SCALES[self.config.device, self.config.profile]
        strategy = operator.cases(scale, illegal=self.config.illegal)
        if operator.NAME in self.ordered:
            strategy = scheduled(strategy)
        mark = time.perf_counter()
        end = time.monotonic() + share(self.config.seconds, len(self.config.operators))

        @seed(turn_seed)
        @profile(limit)
        @given(strategy)
        def turn(case: Case) -> None:
            nonlocal mark
            self.draw_seconds += time.perf_counter() - mark
            if self._hunt is None and (not self._left() or time.monotonic() > end):
                raise _OutOfBudget
            found = self._check(case, self.runnable[operator.NAME])
            mark = time.perf_counter()
            if found is not None:
                raise found from None  # the only line that raises: Hypothesis tells failures apart by line as well

        with contextlib.suppress(Finding, _OutOfBudget, _Settled):
            turn()
        self._settle()
        self._drain_builds()

    def _check(self, case: Case, specs: tuple[str, ...]) -> Finding | None:
        """Judge a drawn case. Returns a failure to hunt; raises _Settled when it is hunted well enough."""
        if self._hunt is not None:
            return self._pursue(self._hunt, case)
        self.cases += 1
        verdicts = self._judge(case, specs)
        history = tuple(self.engine.history)[:-1]
        self._queue_builds(case)
        operator = operators.get(case.operator)
        flags, features = operator.flags(case), tuple(operator.features(case))
        for spec, verdict in zip(specs, verdicts):
            stats = self.stats[case.operator, spec]
            stats.count(verdict, flags, features)
            if not verdict.failed:
                continue
            where = bucket(case, self.names[spec], verdict)
            known = self.ledger.owner.get(where) or self.settler.recognise(case, spec, verdict, where)
            if known is not None:
                stats.known += 1
                continue
            found = Found(case, spec, verdict, where, history)
            self.settler.record_unreduced(found)
            self._waiting.append(found)
        self._report()
        if not self._waiting:
            return None
        self._hunt = self._waiting.pop(0)
        if self._hunt.verdict.kind in COSTLY:
            raise _Settled
        return _exception(self._hunt.bucket)

    def _pursue(self, hunt: Found, case: Case) -> Finding | None:
        """While Hypothesis shrinks: the same kind of failure, not one that belongs to a known bug, counts as the same."""
        hunt.calls += 1
        if hunt.calls > SHRINK_CALLS or time.monotonic() - hunt.since > self._patience / 3:
            raise _Settled
        key = case.key(), hunt.spec
        if key not in self._cache:
            verdict = self.engine.judge(case, [hunt.spec], pairs=hunt.pairs, sure=False)[0]
            self._cache[key] = verdict
        verdict = self._cache[key]
        self._report()
        if hunt.matches(case, verdict, self.names[hunt.spec], self.ledger):
            hunt.improve(case, verdict)
            return _exception(hunt.bucket)
        return None

    def _judge(self, case: Case, specs: tuple[str, ...]) -> list[Verdict]:
        key = case.key()
        missing = [spec for spec in specs if (key, spec) not in self._cache]
        if missing:
            if len(self._cache) > 100_000:
                self._cache.clear()
            for spec, verdict in zip(missing, self.engine.judge(case, missing)):
                self._cache[key, spec] = verdict
        return [self._cache[key, spec] for spec in specs]

    def _settle(self) -> None:
        """Bring the hunt to its end, then whatever else failed on the same case (other implementations, mostly)."""
        while self._hunt is not None:
            self.settler.settle(self._hunt)
            self._hunt = self._waiting.pop(0) if self._waiting else None
            if self._hunt is not None:
                self._hunt.since = time.monotonic()
            self._report(force=True)

    def _queue_builds(self, case: Case) -> None:
        if self.queue is not None:
            params = operators.get(case.operator).build_params(case)
            self.queue.add(case.operator, {**params, "tuning": case.tuning})

    def _drain_builds(self) -> None:
        if self.queue is None:
            return
        for build, spec, verdict, _ in self.queue.drain():
            if verdict.failed:
                self.build_settler.meet(build, spec, verdict)
        self.build_settler.settle()

    def _finish_builds(self) -> None:
        """Let what is queued be compiled while there is time, or, where only builds can be checked here, all of it."""
        if self.queue is None:
            return
        if not any(self.runnable.values()):
            for name in self.config.operators:
                for params in operators.get(name).build_matrix():
                    self.queue.add(name, params)
        while self.queue.pending and (self._left() or not any(self.runnable.values())):
            time.sleep(0.05)
            self._drain_builds()
            self._report()
        self._drain_builds()

    def _left(self) -> bool:
        if self.config.cases is not None and self.cases >= self.config.cases:
            return False
        return self.config.seconds is None or time.monotonic() - self._started < self.config.seconds

    def _report(self, *, force: bool = False) -> None:
        now = time.monotonic()
        if not force and now - self._reported < REPORT_EVERY:
            return
        self._reported = now
        while self.engine.warnings:
            self.emit({"event": "warning", "text": self.engine.warnings.pop(0)})
        self.emit(self.progress())

    def progress(self) -> dict[str, Any]:
        """The state of the campaign, as an event."""
        timing = {"drawing": self.draw_seconds, **self.engine.timing}
        return {
            "event": "progress",
            "worker": self.config.name,
            "seconds": round(time.monotonic() - self._started, 3),
            "cases": self.cases,
            "hunting": str(self._hunt.bucket.kind) if self._hunt else "",
            "builds": self.queue.done if self.queue else 0,
            "builds_pending": self.queue.pending if self.queue else 0,
            "findings": len(self.ledger.new),
            "deaths": self.engine.deaths,
            "harness_failures": self.engine.failures,
            "targets": {f"{o}/{s.name}": s.state() for (o, _), s in self.stats.items()},
            "timing": {what: round(seconds, 3) for what, seconds in timing.items()},
        }

    def _close(self) -> None:
        if self.queue is not None:
            self.queue.close()
        self.engine.close()


def _exception(where: Bucket, cache: dict[Bucket, type[Finding]] = {}) -> Finding:  # noqa: B006 - one class a bucket
    if where not in cache:
        cache[where] = type(f"Finding_{len(cache)}", (Finding,), {})
    return cache[where](where.kind)


def _json(subject: Subject) -> Any:
    return json.loads(subject.key())
