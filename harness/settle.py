"""From a failure to an entry: reduce it, see whether it is a known bug after all, confirm it in a fresh process, keep it."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from harness import corpus, signature
from harness.case import FORMAT, Build, Case, Subject, tidy
from harness.corpus import Entry
from harness.events import Emit
from harness.ledger import Ledger
from harness.reduce import feature_steps, fill_steps, reduce, reduce_build, size_steps
from harness.sandbox import Engine
from harness.signature import Bucket, Signature, bucket
from harness.verdict import COSTLY, Verdict

NONDETERMINISTIC_PAIRS = 8
"""A fault that shows in one of five runs escapes 16 of them once in 35 times."""
RECOGNISE_CALLS = 24
COSTLY_RECOGNISE_CALLS = 6
NEIGHBOURS = 60
REDUCE_CALLS = 400
COSTLY_CALLS = 60


FROM_MEMORY = frozenset({"unwritten_output", "depends_on_poison", "wrote_outside", "changed_input"})
"""Kinds of faults that touch memory they should not, or do not touch what they should."""


def pairs_for(verdict: Verdict) -> int:
    """Runs under each poison that show such a failure again, if it is there."""
    return NONDETERMINISTIC_PAIRS if verdict.kind == "nondeterministic" else 1


@dataclass
class Found:
    """A failure being hunted: the smallest case of it so far, and the case as it was found."""

    case: Case
    spec: str
    verdict: Verdict
    bucket: Bucket
    history: tuple[Case, ...]
    unreduced: Signature | None = None
    """Its entry in the corpus as long as it is not settled."""
    calls: int = 0
    since: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.original = self.case

    @property
    def pairs(self) -> int:
        return pairs_for(self.verdict)

    def matches(self, case: Case, verdict: Verdict, name: str, ledger: Ledger) -> bool:
        """Whether a failure is this one: the same kind and words, and not one that a known bug accounts for."""
        if not _same(verdict, self.verdict):
            return False
        return bucket(case, name, verdict) not in ledger.owner

    def improve(self, case: Case, verdict: Verdict) -> None:
        if corpus.weight(case) < corpus.weight(self.case):
            self.case, self.verdict = case, verdict


def _same(a: Verdict, b: Verdict) -> bool:
    return a.kind == b.kind and (a.evidence.error == b.evidence.error or not signature.speaks(b))


class Settler:
    """Turns failures into entries; shares the campaign's engine and ledger."""

    def __init__(
        self,
        engine: Engine,
        ledger: Ledger,
        emit: Emit,
        environment: dict[str, str],
        names: dict[str, str],
        seconds: float = 60.0,
    ) -> None:
        """names: spec -> what the implementation is called. seconds: until a failure should be small."""
        self.engine, self.ledger, self.emit = engine, ledger, emit
        self.environment = environment
        self.names = names
        self.seconds = seconds

    def recognise(self, case: Case, spec: str, verdict: Verdict, where: Bucket) -> Signature | None:
        """Whether a failure in a new bucket is a known bug: with its features turned off it is one that is known.

        A few judgements at most; what they do not settle is hunted like anything new.
        """
        name = self.names[spec]
        if not any(
            b.implementation == name and b.kind == verdict.kind and b.error == where.error for b in self.ledger.owner
        ):
            return None
        owner: Signature | None = None

        def fails(candidate: Case) -> bool:
            nonlocal owner
            if owner is not None:
                return False
            found = self.engine.judge(candidate, [spec], pairs=pairs_for(verdict), sure=False)[0]
            if not _same(found, verdict):
                return False
            owner = self.ledger.owner.get(bucket(candidate, name, found))
            return True

        budget = COSTLY_RECOGNISE_CALLS if verdict.kind in COSTLY else RECOGNISE_CALLS
        with self._patience(verdict.kind):
            reduce(case, fails, budget=budget, steps=feature_steps)
        if owner is not None:
            self.ledger.owner[where] = owner
        return owner

    @contextlib.contextmanager
    def _patience(self, kind: str) -> Iterator[None]:
        """While looking for the same hang again, wait for a part of the limits only."""
        limits = self.engine.limits
        if kind == "hang":
            short = {"run": max(1.0, limits.run / 10), "first_call": limits.first_call / 4}
            self.engine.limits = dataclasses.replace(limits, **short)
        try:
            yield
        finally:
            self.engine.limits = limits

    def record_unreduced(self, found: Found) -> None:
        """Keep a failure as it was found, before anything else is tried with it."""
        entry = self._entry(found.case, found.spec, found.verdict, reduced=False)
        path = corpus.write(self.ledger.folder, entry)
        if path is not None:
            found.unreduced = entry.signature
            self.emit(
                {
                    "event": "finding",
                    "unreduced": True,
                    "signature": str(entry.signature),
                    "message": found.verdict.message,
                    "file": str(path),
                }
            )

    def settle(self, found: Found) -> None:
        """Reduce, recognise, confirm and record. KeyboardInterrupt leaves the unreduced entry behind."""
        if (owner := self.ledger.owner.get(found.bucket)) is not None:  # settled while this one waited
            self._is_known(found, owner)
            return
        case, verdict, calls = self._reduced(found)
        case, verdict, context = self._confirmed(found, case, verdict)
        name = self.names[found.spec]
        final = self._entry(case, found.spec, verdict, reduced=True, context=context)
        where = bucket(case, name, verdict)
        owner = self.ledger.owner.get(where) or self._shows_otherwise(final)
        for b in (found.bucket, where):
            self.ledger.owner.setdefault(b, owner or final.signature)
        if owner is not None:
            self._is_known(found, owner)
            return
        if found.unreduced not in (None, final.signature):
            corpus.remove(self.ledger.folder, found.unreduced)
        self._record(final, found.calls + calls, time.monotonic() - found.since)
        self._take_over(final)

    def _is_known(self, found: Found, owner: Signature) -> None:
        if found.unreduced not in (None, owner):
            corpus.remove(self.ledger.folder, found.unreduced)
        self.emit({"event": "known", "signature": str(owner), "as": found.verdict.kind})

    def _reduced(self, found: Found) -> tuple[Case, Verdict, int]:
        """The smallest case of a failure, its verdict, and the judgements used."""
        name = self.names[found.spec]
        best = found.verdict
        deadline = found.since + self.seconds

        def fails(candidate: Case) -> bool:
            nonlocal best
            if time.monotonic() > deadline:
                return False
            verdict = self.engine.judge(candidate, [found.spec], pairs=found.pairs, sure=False)[0]
            if not found.matches(candidate, verdict, name, self.ledger):
                return False
            best = verdict
            return True

        with self._patience(found.verdict.kind):
            result = reduce(found.case, fails, budget=COSTLY_CALLS if found.verdict.kind in COSTLY else REDUCE_CALLS)
        return result.case, best, result.calls

    def _record(self, entry: Entry, calls: int, seconds: float) -> None:
        fresh = self.ledger.add(entry)
        self.emit(
            {
                "event": "finding" if fresh else "known",
                "unreduced": False,
                "signature": str(entry.signature),
                "message": entry.verdict.message,
                "file": str(corpus.path_of(self.ledger.folder, entry.signature)),
                "calls": calls,
                "seconds": round(seconds, 2),
                "as": entry.verdict.kind,
            }
        )

    def _take_over(self, newer: Entry) -> None:
        """Withdraw findings of this campaign that the newer one explains: which of a bug's clothes is met first is luck."""
        for past in list(self.ledger.new):
            older = self.ledger.entries[past]
            if past == newer.signature or past.implementation != newer.signature.implementation:
                continue
            if self._shows_otherwise(older) == newer.signature:
                self.ledger.withdraw(past, newer.signature)
                self.emit({"event": "withdrawn", "signature": str(past), "for": str(newer.signature)})

    def settle_build(self, build: Build, spec: str, verdict: Verdict, others: tuple[Build, ...]) -> None:
        """The same for a compilation: one signature over all parameters and architectures, the plainest kept."""
        where = bucket(build, self.names[spec], verdict)
        if where in self.ledger.owner:
            return
        with Engine("cpu", build_only=True, limits=self.engine.limits) as engine:

            def fails(candidate: Build) -> bool:
                return _same(engine.build(candidate, spec), verdict)

            build = reduce_build(build, others, fails)
        entry = self._entry(build, spec, verdict, reduced=True)
        if self.ledger.add(entry):
            self.emit(
                {
                    "event": "finding",
                    "unreduced": False,
                    "signature": str(entry.signature),
                    "message": verdict.message,
                    "file": str(corpus.path_of(self.ledger.folder, entry.signature)),
                    "calls": 0,
                    "seconds": 0.0,
                }
            )

    def _confirmed(self, found: Found, case: Case, verdict: Verdict) -> tuple[Case, Verdict, tuple[Case, ...]]:
        """Judge the minimal case in a process that has judged nothing: (case, verdict, calls to make before it).

        Where it passes there, the fault needs a history: then the case as it was found is judged after the calls that ran
        before it, and of those the ones that matter are kept.
        """
        pairs = 2 * found.pairs if found.pairs > 1 else 1
        again = self._fresh(found.spec, (), case, pairs)
        if _same(again, found.verdict):
            return case, again, ()
        for count in (1, 2, len(found.history)):
            before = found.history[-count:]
            again = self._fresh(found.spec, before, found.original, pairs)
            if again.failed:
                break
        else:
            note = "seen, but neither a fresh process nor one that repeats the calls before it shows it"
            self.emit({"event": "warning", "text": f"{found.bucket.kind} of {found.bucket.implementation}: {note}"})
            return case, replace(verdict, evidence=replace(verdict.evidence, used_process=True)), ()
        for i in range(len(before) - 1, -1, -1):
            fewer = before[:i] + before[i + 1 :]
            verdict = self._fresh(found.spec, fewer, found.original, pairs)
            if fewer and verdict.kind == again.kind:
                before, again = fewer, verdict
        return found.original, replace(again, evidence=replace(again.evidence, used_process=True)), before

    def _fresh(self, spec: str, before: tuple[Case, ...], case: Case, pairs: int) -> Verdict:
        self.engine.fresh()
        for other in before:
            self.engine.judge(other, [spec])
        return self.engine.judge(case, [spec], pairs=pairs)[0]

    def _shows_otherwise(self, entry: Entry) -> Signature | None:
        """Whether a minimal case is a known bug in other clothes: one step further, it is that bug itself.

        One feature less and the same kind: the bug needs no such feature. One size or value less and another kind: the
        bug has several faces. One step of any sort, and a kind that comes from memory nobody should touch: what such a
        bug shows is whatever lies there, poison in one layout and another row in the next. (Otherwise, a feature less
        and another kind may well be where another bug lives.)
        """
        case, kind = entry.subject, entry.verdict.kind
        if not isinstance(case, Case) or kind in COSTLY or signature.speaks(entry.verdict):
            return None
        name = entry.signature.implementation
        known = {b.kind for b in self.ledger.owner if b.implementation == name and not b.error} - COSTLY
        features = [step for _, step in feature_steps(case)] if known & {kind, *FROM_MEMORY} else []
        others = [step for _, step in (*size_steps(case), *fill_steps(case))] if known - {kind} else []
        for i, candidate in enumerate([*features, *others][:NEIGHBOURS]):
            allowed = {kind, *FROM_MEMORY} if i < len(features) else known - {kind}
            verdict = self.engine.judge(
                tidy(candidate), [entry.implementation], pairs=pairs_for(entry.verdict), sure=False
            )[0]
            if not verdict.failed or verdict.kind not in allowed:
                continue
            where = bucket(candidate, name, verdict)
            owner = self.ledger.owner.get(where) or self.recognise(candidate, entry.implementation, verdict, where)
            if owner is not None and owner != entry.signature:
                return owner
        return None

    def _entry(
        self, subject: Subject, spec: str, verdict: Verdict, *, reduced: bool, context: tuple[Case, ...] = ()
    ) -> Entry:
        return Entry(
            FORMAT,
            signature.signature(subject, self.names[spec], verdict),
            subject,
            verdict,
            spec,
            self.engine.device,
            reduced=reduced,
            context=context,
            environment=self.environment,
        )
