"""From a compilation that fails to an entry: the plainest parameters, the first architecture, one entry for one bug."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from harness import operators
from harness.case import Build
from harness.limits import patience
from harness.record import Recorder
from harness.reduce_build import build_steps, reduce_build
from harness.sandbox import Engine, Limits
from harness.signature import Bucket, Signature, bucket, same
from harness.verdict import COSTLY, Verdict

REDUCE_CALLS = 200
COSTLY_CALLS = 20


@dataclass
class FoundBuild:
    """A compilation that failed, as it was found."""

    build: Build
    spec: str
    verdict: Verdict
    unreduced: Signature | None = None
    """Its entry in the corpus as long as it is not settled."""
    since: float = field(default_factory=time.monotonic)


class BuildSettler:
    """Turns compilations that fail into entries; its engine is one of its own.

    waiting: what is kept as it was found, one of each bucket, until `settle`.
    """

    def __init__(
        self, recorder: Recorder, limits: Limits, seconds: float = 60.0, idle: Callable[[], None] = lambda: None
    ) -> None:
        """seconds: until a failure should be small. idle: what to do between two compilations."""
        self.recorder, self.limits, self.seconds, self.idle = recorder, limits, seconds, idle
        self.waiting: dict[Bucket, FoundBuild] = {}
        self._met: set[Bucket] = set()

    def meet(self, build: Build, spec: str, verdict: Verdict) -> Bucket:
        """Take a failure in: it is known, or its like was met already, or it is kept, and waits to be settled."""
        where = bucket(build, self.recorder.names[spec], verdict)
        if where not in self.recorder.ledger.owner and where not in self._met:
            self._met.add(where)
            unreduced = self.recorder.unreduced(build, spec, verdict)
            self.waiting[where] = FoundBuild(build, spec, verdict, unreduced)
        return where

    def settle(self) -> None:
        """Settle all that waits. KeyboardInterrupt leaves the unreduced entries behind."""
        if not self.waiting:
            return
        with Engine("cpu", build_only=True, limits=self.limits) as engine:
            while self.waiting:
                self._settle(engine, self.waiting.pop(next(iter(self.waiting))))

    def _settle(self, engine: Engine, found: FoundBuild) -> Signature:
        """Reduce, recognise, confirm and record; whose bug it is."""
        ledger, name = self.recorder.ledger, self.recorder.names[found.spec]
        where = bucket(found.build, name, found.verdict)
        owner = ledger.owner.get(where)
        if owner is None:
            build, plainer, calls = self._reduced(engine, found)
            if plainer is not None:
                # One step plainer it fails too, in other words: the bug is that one's.
                there = bucket(plainer.build, name, plainer.verdict)
                owner = ledger.owner.get(there) or self._settle(engine, self.waiting.pop(there, plainer))
                ledger.owner[where] = owner
        if owner is not None:
            self.recorder.known(found.unreduced, owner, found.verdict)
            return owner
        build, verdict = self._confirmed(engine, found, build)
        entry = self.recorder.entry(build, found.spec, verdict, reduced=True)
        ledger.owner[where] = entry.signature
        self.recorder.settled(entry, found.unreduced, calls, found.since)
        return entry.signature

    def _reduced(self, engine: Engine, found: FoundBuild) -> tuple[Build, FoundBuild | None, int]:
        """The plainest build that fails like this one; one a step plainer yet that fails otherwise; compilations used."""
        matrix = matrix_of(engine, found.build, found.spec)
        failed: dict[bytes, Verdict] = {}
        deadline = time.monotonic() + self.seconds

        def fails(candidate: Build) -> bool:
            self.idle()
            verdict = engine.build(candidate, found.spec)
            if verdict.failed:
                failed[candidate.key()] = verdict
            return same(verdict, found.verdict)

        costly = found.verdict.kind in COSTLY
        budget = COSTLY_CALLS if costly else REDUCE_CALLS
        with patience(engine, found.verdict.kind):
            result = reduce_build(found.build, matrix, fails, budget=budget, late=lambda: time.monotonic() > deadline)
        for _, neighbour in () if costly else build_steps(result.smallest, matrix, together=1):
            verdict = failed.get(neighbour.key())
            if verdict is not None and verdict.kind == found.verdict.kind:
                return result.smallest, FoundBuild(neighbour, found.spec, verdict), result.calls
        return result.smallest, None, result.calls

    def _confirmed(self, engine: Engine, found: FoundBuild, smallest: Build) -> tuple[Build, Verdict]:
        """Judge the plainest once more, or the one that was found, in a process that has compiled nothing."""
        for build in (smallest, found.build):
            engine.fresh()
            verdict = engine.build(build, found.spec)
            if same(verdict, found.verdict):
                return build, verdict
        note = "seen, but a fresh process does not show it"
        self.recorder.emit({"event": "warning", "text": f"{found.verdict.kind} of {found.spec}: {note}"})
        evidence = replace(found.verdict.evidence, used_process=True)
        return found.build, replace(found.verdict, evidence=evidence)


def matrix_of(engine: Engine, build: Build, spec: str) -> list[Build]:
    """All builds that there are of an implementation, with the tunings up to that of `build`, the plainest first."""
    return [
        other
        for params in operators.get(build.operator).build_matrix()
        for tuning in range(build.params.get("tuning", 0) + 1)
        for other in engine.builds(build.operator, spec, {**params, "tuning": tuning})
    ]
