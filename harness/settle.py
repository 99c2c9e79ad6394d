"""From a failure to an entry: reduce it, see whether it is a known bug after all, confirm it in a fresh process, keep it.

Here is what a campaign decides of a failure. How a case is made small and shown again is `harness.minimise`, how entries come
into the corpus and what is said of it `harness.record`; of builds, `harness.settle_build` decides.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from harness import corpus, signature
from harness.case import Case, tidy
from harness.corpus import Entry
from harness.ledger import Ledger
from harness.limits import patience
from harness.minimise import Confirmed, Minimiser, pairs_for
from harness.record import Recorder
from harness.reduce import Reduction, reduce
from harness.sandbox import Engine
from harness.signature import Bucket, Signature, bucket, same
from harness.steps import empty_steps, feature_steps, fill_steps, grown, ordinary, size_steps
from harness.verdict import COSTLY, Verdict

RECOGNISE_CALLS = 24
COSTLY_RECOGNISE_CALLS = 6
NEIGHBOURS = 60

FROM_MEMORY = frozenset({"unwritten_output", "depends_on_poison", "wrote_outside", "changed_input"})
"""Kinds of faults that touch memory they should not, or do not touch what they should."""


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
        with patience(self.engine, verdict.kind):
            reduce(case, fails, budget=budget, passes=(feature_steps,))
        if owner is not None:
            self.ledger.owner[where] = owner
        return owner

    def record_unreduced(self, found: Found) -> None:
        """Keep a failure as it was found, before anything else is tried with it."""
        found.unreduced = self.recorder.unreduced(found.case, found.spec, found.verdict)

    def settle(self, found: Found) -> None:
        """Reduce, recognise, confirm and record. KeyboardInterrupt leaves the unreduced entry behind."""
        if (owner := self.ledger.owner.get(found.bucket)) is not None:  # settled while this one waited
            self.recorder.known(found.unreduced, owner, found.verdict)
            return
        self.recorder.shrunk(found.case, found.bucket, found.calls, found.since)
        small, confirmed = self._minimal(found, found.case, found.verdict)
        if confirmed.verdict.kind != found.verdict.kind and not confirmed.context:
            # A fresh process has another name for it, and so has every smaller case.
            small, confirmed = self._minimal(found, confirmed.case, confirmed.verdict)
        if not confirmed.shown:
            note = "seen, but neither a fresh process nor one that repeats the calls before it shows it"
            text = f"{found.bucket.kind} of {found.bucket.implementation}: {note}"
            self.recorder.emit({"event": "warning", "text": text})
        case, verdict = confirmed.case, confirmed.verdict
        name = self.names[found.spec]
        final = self.recorder.entry(
            case,
            found.spec,
            verdict,
            reduced=True,
            context=confirmed.context,
            rate=confirmed.rate,
            minimal=small.complete and case == small.smallest and confirmed.shown,
        )
        where = bucket(case, name, verdict)
        owner = self.ledger.owner.get(where) or self._shows_otherwise(final)
        for b in (found.bucket, where):
            self.ledger.owner.setdefault(b, owner or final.signature)
        if owner is not None:
            self.recorder.known(found.unreduced, owner, found.verdict)
            return
        self.recorder.settled(final, found.unreduced, found.calls, found.since, small.removed)
        self._take_over(final)

    def _minimal(self, found: Found, case: Case, verdict: Verdict) -> tuple[Reduction[Case], Confirmed]:
        """A failure's smallest case, and what a fresh process shows of it."""
        name = self.names[found.spec]
        minimiser = Minimiser(
            self.engine,
            found.spec,
            verdict,
            ours=lambda candidate, seen: bucket(candidate, name, seen) not in self.ledger.owner,
            deadline=found.since + self.seconds,
        )
        result = minimiser.reduce(case)
        history = found.history if case == found.case else ()
        confirmed = minimiser.confirm(result.smallest, found.original, history)
        found.calls += minimiser.calls
        return result, confirmed

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
        deadline = time.monotonic() + self.seconds
        for candidate, allowed in neighbours[:NEIGHBOURS]:
            if time.monotonic() > deadline:
                break
            with patience(self.engine, "hang"):
                verdict = self.engine.judge(
                    tidy(candidate), [entry.implementation], pairs=pairs_for(entry.verdict), sure=False
                )[0]
            if verdict.costly:
                break  # what costs a process has a name of its own, and there may be many like it
            if not verdict.failed or verdict.kind not in allowed:
                continue
            where = bucket(candidate, name, verdict)
            owner = self.ledger.owner.get(where)
            if owner in (None, entry.signature):
                owner = self.recognise(candidate, entry.implementation, verdict, where)
            if owner is not None and owner != entry.signature:
                return owner
        return None
