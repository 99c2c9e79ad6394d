"""Failures into the corpus, and what is said of them: as they are found, then small, or known after all."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from harness import corpus, signature
from harness.case import FORMAT, Case, Subject
from harness.corpus import Entry
from harness.events import Emit
from harness.ledger import Ledger
from harness.rate import Rate
from harness.reduce import told
from harness.signature import Bucket, Signature
from harness.verdict import Verdict


class Recorder:
    """The corpus and the events of one campaign, for whatever settles its failures."""

    def __init__(
        self, ledger: Ledger, emit: Emit, environment: dict[str, str], names: dict[str, str], device: str
    ) -> None:
        """names: spec -> what the implementation is called. device: where it runs."""
        self.ledger, self.emit, self.environment, self.names, self.device = ledger, emit, environment, names, device

    def entry(
        self,
        subject: Subject,
        spec: str,
        verdict: Verdict,
        *,
        reduced: bool,
        context: tuple[Case, ...] = (),
        rate: Rate | None = None,
        minimal: bool = False,
    ) -> Entry:
        return Entry(
            FORMAT,
            signature.signature(subject, self.names[spec], verdict),
            subject,
            verdict,
            spec,
            self.device,
            reduced=reduced,
            minimal=minimal,
            context=context,
            rate=rate,
            environment=self.environment,
        )

    def unreduced(self, subject: Subject, spec: str, verdict: Verdict) -> Signature | None:
        """Keep a failure as it was found, before anything else is tried with it: what its entry is called, if it has one."""
        entry = self.entry(subject, spec, verdict, reduced=False)
        path = corpus.write(self.ledger.folder, entry)
        if path is None:
            return None
        self.emit(
            {
                "event": "finding",
                "unreduced": True,
                "signature": str(entry.signature),
                "message": verdict.message,
                "file": str(path),
            }
        )
        return entry.signature

    def shrunk(self, case: Case, where: Bucket, calls: int, since: float) -> None:
        """What Hypothesis made of a failure, before it is reduced further."""
        seconds = round(time.monotonic() - since, 2)
        self.emit(
            {"event": "shrunk", "as": where.kind, "case": json.loads(case.key()), "calls": calls, "seconds": seconds}
        )

    def settled(
        self, entry: Entry, was: Signature | None, calls: int, since: float, removed: Sequence[str] = ()
    ) -> None:
        """Keep the minimal case in the place of the one that was found. removed: the steps that led to it."""
        fresh = self.ledger.add(entry)
        self._replace(was, entry.signature)
        self.emit(
            {
                "event": "finding" if fresh else "known",
                "unreduced": False,
                "signature": str(entry.signature),
                "was": str(was or ""),
                "message": entry.verdict.message,
                "file": str(corpus.path_of(self.ledger.folder, entry.signature)),
                "calls": calls,
                "removed": told(removed),
                "rate": str(entry.rate or ""),
                "seconds": round(time.monotonic() - since, 2),
                "as": entry.verdict.kind,
            }
        )

    def known(self, was: Signature | None, owner: Signature, verdict: Verdict) -> None:
        """A failure turned out to be a known bug's."""
        self._replace(was, owner)
        self.emit({"event": "known", "signature": str(owner), "was": str(was or ""), "as": verdict.kind})

    def _replace(self, was: Signature | None, by: Signature) -> None:
        if was not in (None, by):
            assert was is not None
            corpus.remove(self.ledger.folder, was)
