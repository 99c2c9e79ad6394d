"""From a failure to an entry: reduce it, see whether it is a known bug after all, confirm it in a fresh process, keep it."""

from __future__ import annotations

import dataclasses
import time
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
NEIGHBOURS = 60
REDUCE_CALLS = 400
COSTLY_CALLS = 60
REDUCE_SECONDS = 90.0


@dataclass
class Found:
    """A failure being hunted: the smallest case of it so far."""

    case: Case
    spec: str
    verdict: Verdict
    bucket: Bucket
    history: tuple[Case, ...]
    calls: int = 0
    since: float = field(default_factory=time.monotonic)

    @property
    def pairs(self) -> int:
        return NONDETERMINISTIC_PAIRS if self.verdict.kind == "nondeterministic" else 1

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
        self, engine: Engine, ledger: Ledger, emit: Emit, environment: dict[str, str], names: dict[str, str]
    ) -> None:
        self.engine, self.ledger, self.emit = engine, ledger, emit
        self.environment = environment
        self.names = names
        self._unreduced: Signature | None = None

    def recognise(self, case: Case, spec: str, verdict: Verdict, where: Bucket) -> Signature | None:
        """Whether a failure in a new bucket is a known bug: with its features turned off it is one that is known.

        A few judgements at most; what they do not settle is hunted like anything new.
        """
        if verdict.kind in COSTLY and not any(b.kind == verdict.kind for b in self.ledger.owner):
            return None
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
            found = self.engine.judge(candidate, [spec])[0]
            if not _same(found, verdict):
                return False
            owner = self.ledger.owner.get(bucket(candidate, name, found))
            return True

        reduce(case, fails, budget=RECOGNISE_CALLS, steps=feature_steps)
        if owner is not None:
            self.ledger.owner[where] = owner
        return owner

    def record_unreduced(self, found: Found) -> None:
        """Keep a failure as it was found, before anything else is tried with it."""
        entry = self._entry(found.case, found.spec, found.verdict, reduced=False)
        path = corpus.write(self.ledger.folder, entry)
        self._unreduced = entry.signature if path is not None else None
        if path is not None:
            self.emit({"event": "finding", "unreduced": True, "signature": str(entry.signature), "file": path.name})

    def settle(self, found: Found) -> None:
        """Reduce, recognise, confirm and record. KeyboardInterrupt leaves the unreduced entry behind."""
        name = self.names[found.spec]
        costly = found.verdict.kind in COSTLY
        deadline = time.monotonic() + REDUCE_SECONDS
        patience = self.engine.limits
        if found.verdict.kind == "hang":
            self.engine.limits = dataclasses.replace(patience, run=max(1.0, patience.run / 10))
        best = found.verdict

        def fails(candidate: Case) -> bool:
            nonlocal best
            if time.monotonic() > deadline:
                return False
            verdict = self.engine.judge(candidate, [found.spec], pairs=found.pairs)[0]
            if not found.matches(candidate, verdict, name, self.ledger):
                return False
            best = verdict
            return True

        try:
            result = reduce(found.case, fails, budget=COSTLY_CALLS if costly else REDUCE_CALLS)
            best = self._confirmed(found, result.case) or best
        finally:
            self.engine.limits = patience
        where = bucket(result.case, name, best)
        final = self._entry(result.case, found.spec, best, reduced=True, context=self._context)
        owner = self.ledger.owner.get(where) or self._shows_otherwise(found.spec, final)
        self.ledger.owner.setdefault(found.bucket, owner or final.signature)
        if self._unreduced is not None and (owner is not None or self._unreduced != final.signature):
            corpus.remove(self.ledger.folder, self._unreduced)
        if owner is not None:
            self.ledger.owner.setdefault(where, owner)
            self.emit({"event": "known", "signature": str(owner), "as": best.kind})
            return
        fresh = self.ledger.add(final)
        self.emit(
            {
                "event": "finding" if fresh else "known",
                "unreduced": False,
                "signature": str(final.signature),
                "message": best.message,
                "file": str(corpus.path_of(self.ledger.folder, final.signature)),
                "calls": found.calls + result.calls,
                "seconds": round(time.monotonic() - found.since, 2),
            }
        )

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

    _context: tuple[Case, ...] = ()

    def _confirmed(self, found: Found, case: Case) -> Verdict | None:
        """Judge the minimal case in a process that has judged nothing. Where it passes there, the calls that ran before
        the failure are run before it too, and those that matter are kept; where that passes as well, None."""
        self._context = ()
        pairs = 2 * found.pairs if found.pairs > 1 else 1
        verdict = self._fresh(found.spec, (), case, pairs)
        if _same(verdict, found.verdict):
            return verdict
        before = found.history
        verdict = self._fresh(found.spec, before, case, pairs)
        if not _same(verdict, found.verdict):
            note = "seen once; a fresh process passes"
            self.emit({"event": "warning", "text": f"{found.bucket.kind} of {found.bucket.implementation}: {note}"})
            return replace(found.verdict, evidence=replace(found.verdict.evidence, used_process=True))
        for i in range(len(before) - 1, -1, -1):
            fewer = before[:i] + before[i + 1 :]
            again = self._fresh(found.spec, fewer, case, pairs)
            if _same(again, found.verdict):
                before, verdict = fewer, again
        self._context = before
        return replace(verdict, evidence=replace(verdict.evidence, used_process=True))

    def _fresh(self, spec: str, before: tuple[Case, ...], case: Case, pairs: int) -> Verdict:
        self.engine.fresh()
        for other in before:
            self.engine.judge(other, [spec])
        return self.engine.judge(case, [spec], pairs=pairs)[0]

    def _shows_otherwise(self, spec: str, entry: Entry) -> Signature | None:
        """Whether a minimal case is a known bug in other clothes: one step further, it is that bug itself.

        A feature less and the same kind: the bug needs no such feature. A size or value less and another kind: reading
        past a row's end shows as `depends_on_poison` in the last row and as a wrong value in the others. (A feature less
        and another kind may well be where another bug lives.)
        """
        case, kind = entry.subject, entry.verdict.kind
        if not isinstance(case, Case) or kind in COSTLY or signature.speaks(entry.verdict):
            return None
        name = entry.signature.implementation
        known = {b.kind for b in self.ledger.owner if b.implementation == name and not b.error}
        steps = [(step, True) for _, step in feature_steps(case) if kind in known]
        if known - {kind, *COSTLY}:
            steps += [(step, False) for _, step in (*size_steps(case), *fill_steps(case))]
        for candidate, same_kind in steps[:NEIGHBOURS]:
            verdict = self.engine.judge(tidy(candidate), [spec])[0]
            if verdict.failed and (verdict.kind == kind) == same_kind:
                owner = self.ledger.owner.get(bucket(candidate, name, verdict))
                if owner is not None:
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
