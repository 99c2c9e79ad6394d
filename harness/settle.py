"""From a failure to an entry: reduce it, see whether it is a known bug after all, confirm it in a fresh process, keep it."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from harness import corpus, features, signature
from harness.case import Case, tidy
from harness.corpus import Entry
from harness.ledger import Ledger
from harness.record import Recorder
from harness.reduce import empty_steps, feature_steps, fill_steps, grown, ordinary, reduce, size_steps
from harness.sandbox import Engine
from harness.signature import Bucket, Signature, bucket, same
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
        if not same(verdict, self.verdict):
            return False
        return bucket(case, name, verdict) not in ledger.owner

    def improve(self, case: Case, verdict: Verdict) -> None:
        if corpus.weight(case) < corpus.weight(self.case):
            self.case, self.verdict = case, verdict


class Settler:
    """Turns failures into entries, on the campaign's engine."""

    def __init__(self, engine: Engine, recorder: Recorder, seconds: float = 60.0) -> None:
        """seconds: until a failure should be small."""
        self.engine, self.recorder, self.seconds = engine, recorder, seconds
        self.ledger, self.names = recorder.ledger, recorder.names

    def recognise(self, case: Case, spec: str, verdict: Verdict, where: Bucket) -> Signature | None:
        """Whether a failure in a new bucket is a known bug: with its features turned off it is one that is known.

        A few judgements at most; what they do not settle is hunted like anything new.
        """
        name = self.names[spec]
        if not any(
            (b.operator, b.implementation, b.kind, b.error) == (case.operator, name, verdict.kind, where.error)
            for b in self.ledger.owner
        ):
            return None
        owner: Signature | None = None

        def fails(candidate: Case) -> bool:
            nonlocal owner
            if owner is not None:
                return False
            found = self.engine.judge(candidate, [spec], pairs=pairs_for(verdict), sure=False)[0]
            if not same(found, verdict):
                return False
            owner = self.ledger.owner.get(bucket(candidate, name, found))
            return True

        budget = COSTLY_RECOGNISE_CALLS if verdict.costly else RECOGNISE_CALLS
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
        found.unreduced = self.recorder.unreduced(found.case, found.spec, found.verdict)

    def settle(self, found: Found) -> None:
        """Reduce, recognise, confirm and record. KeyboardInterrupt leaves the unreduced entry behind."""
        if (owner := self.ledger.owner.get(found.bucket)) is not None:  # settled while this one waited
            self.recorder.known(found.unreduced, owner, found.verdict)
            return
        case, verdict, calls = self._reduced(found)
        case, verdict, context = self._confirmed(found, case, verdict)
        name = self.names[found.spec]
        final = self.recorder.entry(case, found.spec, verdict, reduced=True, context=context)
        where = bucket(case, name, verdict)
        owner = self.ledger.owner.get(where) or self._shows_otherwise(final)
        for b in (found.bucket, where):
            self.ledger.owner.setdefault(b, owner or final.signature)
        if owner is not None:
            self.recorder.known(found.unreduced, owner, found.verdict)
            return
        self.recorder.settled(final, found.unreduced, found.calls + calls, found.since)
        self._take_over(final)

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

        if found.verdict.costly:
            with self._patience(found.verdict.kind):
                result = reduce(found.case, fails, budget=COSTLY_CALLS)
            return result.smallest, best, result.calls
        result = reduce(found.case, fails, budget=REDUCE_CALLS)
        calls, verdict = result.calls, best
        # Hypothesis went to tiny sizes first, where more than one feature may be what makes the bug visible.
        for _, step in feature_steps(ordinary(grown(result.smallest))):
            calls += 1
            if fails(tidy(step)):
                other = reduce(tidy(step), fails, budget=REDUCE_CALLS)
                calls += other.calls
                if len(features.traits(other.smallest)) < len(features.traits(result.smallest)):
                    return other.smallest, best, calls
                break
        return result.smallest, verdict, calls

    def _take_over(self, newer: Entry) -> None:
        """Withdraw findings of this campaign that the newer one explains: which of a bug's clothes is met first is luck."""
        for past in list(self.ledger.new):
            older = self.ledger.entries[past]
            target = (past.operator, past.implementation)
            if past == newer.signature or target != (newer.signature.operator, newer.signature.implementation):
                continue
            if self._shows_otherwise(older) == newer.signature:
                self.ledger.withdraw(past, newer.signature)
                self.recorder.emit({"event": "withdrawn", "signature": str(past), "for": str(newer.signature)})

    def _confirmed(self, found: Found, case: Case, verdict: Verdict) -> tuple[Case, Verdict, tuple[Case, ...]]:
        """Judge the minimal case in a process that has judged nothing: (case, verdict, calls to make before it).

        Where it passes there, the fault needs a history: then the case as it was found is judged after the calls that ran
        before it, and of those the ones that matter are kept.
        """
        pairs = 2 * found.pairs if found.pairs > 1 else 1
        again = self._fresh(found.spec, (), case, pairs)
        if same(again, found.verdict):
            return case, again, ()
        for count in (1, 2, len(found.history)):
            before = found.history[-count:]
            again = self._fresh(found.spec, before, found.original, pairs)
            if again.failed:
                break
        else:
            note = "seen, but neither a fresh process nor one that repeats the calls before it shows it"
            self.recorder.emit(
                {"event": "warning", "text": f"{found.bucket.kind} of {found.bucket.implementation}: {note}"}
            )
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
        bug has several faces. Ordinary numbers and another kind: a NaN or infinity in the wrong place gave it this face.
        A dimension of zero and the same kind: the bug is about emptiness, however it comes about. One feature less once
        sizes are not tiny nor values flat: there, more than one feature may make the bug visible. One step of any sort,
        and a kind that comes from memory nobody should touch: what such a bug shows is whatever lies there, poison in one
        layout and another row in the next. (Otherwise, a feature less and another kind may well be where another bug
        lives.)
        """
        case, kind = entry.subject, entry.verdict.kind
        if not isinstance(case, Case) or kind in COSTLY or signature.speaks(entry.verdict):
            return None
        name = entry.signature.implementation
        ours = [b for b in self.ledger.owner if (b.operator, b.implementation) == (case.operator, name)]
        known = {b.kind for b in ours if not b.error} - COSTLY
        neighbours: list[tuple[Case, set[str]]] = []
        if known - {kind}:
            neighbours.append((ordinary(case), known - {kind}))
        if known & {kind, *FROM_MEMORY}:
            neighbours += [(step, {kind, *FROM_MEMORY}) for _, step in feature_steps(case)]
        if kind in known:
            larger = feature_steps(ordinary(grown(case)))
            neighbours += [(step, {kind}) for _, step in (*empty_steps(case), *larger)]
        if known - {kind}:
            neighbours += [(step, known - {kind}) for _, step in (*size_steps(case), *fill_steps(case))]
        for candidate, allowed in neighbours[:NEIGHBOURS]:
            verdict = self.engine.judge(
                tidy(candidate), [entry.implementation], pairs=pairs_for(entry.verdict), sure=False
            )[0]
            if not verdict.failed or verdict.kind not in allowed:
                continue
            where = bucket(candidate, name, verdict)
            owner = self.ledger.owner.get(where)
            if owner in (None, entry.signature):
                owner = self.recognise(candidate, entry.implementation, verdict, where)
            if owner is not None and owner != entry.signature:
                return owner
        return None
