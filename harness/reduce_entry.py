"""An entry made small where it lies: drawn, imported or written by hand. What is found is in its file at once.

Stopped at any moment, it is the smallest case so far; run again, it goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from harness import corpus, corpus_care, signature
from harness.case import Build, Case, CaseError, Subject
from harness.corpus import Entry
from harness.history import Calls
from harness.limits import patience
from harness.minimise import CONFIRM_PAIRS, Confirmed, Minimiser
from harness.reduce import Reduction
from harness.reduce_build import reduce_build
from harness.replay import Replayer
from harness.settle_build import matrix_of
from harness.signature import same
from harness.verdict import Verdict

Told = Callable[[int, Subject], None]
"""(judgements so far, the smallest case so far): called now and then."""


@dataclass(frozen=True)
class Reduced:
    """path, entry: where and what it is now. removed, calls, complete: `Reduction`'s.

    merged: the file is gone, since the one of `path` shows the same bug in a case that is no larger. unconfirmed: a fresh
    process did not show what was left, and the entry is as it was. lost: somebody else changed the file meanwhile, and it was
    left alone.
    """

    path: Path
    entry: Entry
    removed: tuple[str, ...]
    calls: int
    complete: bool
    merged: bool = False
    unconfirmed: bool = False
    lost: bool = False


class _Changed(Exception):
    """The file is not what it was."""


class _Rewriter:
    """The file of an entry, rewritten with each smaller case."""

    def __init__(self, path: Path, entry: Entry) -> None:
        self.path, self.entry = path, entry

    def better(self, subject: Subject, verdict: Verdict, context: tuple[Case, ...] = ()) -> None:
        self.becomes(replace(self.entry, subject=subject, verdict=verdict, context=context, explanation=None))

    def becomes(self, entry: Entry) -> None:
        if entry == self.entry:
            return
        try:
            # Files of values stay until it is clear that the entry does not become again what it was.
            if not corpus.update(self.path, self.entry, entry, forget=False):
                raise _Changed
        except CaseError:
            raise _Changed from None
        self.entry = entry


def reduce_entry(
    path: Path, replayer: Replayer, *, seconds: float, calls: int, told: Told = lambda count, subject: None
) -> Reduced:
    """Reduce the entry of a file, for so long and with so many judgements at most.

    Raises CaseError for a file that is no entry, NotShown for one that does not show its failure here. KeyboardInterrupt
    passes, and the file holds the smallest case so far.
    """
    entry = corpus.read(path)
    replayer.show(entry)
    file = _Rewriter(path, entry)
    deadline = time.monotonic() + seconds
    small = _small_build if isinstance(entry.subject, Build) else _small_case
    try:
        result, confirmed = small(file, entry, replayer, deadline, calls, told)
        if confirmed is None:
            file.becomes(entry)
            return Reduced(path, entry, (), result.calls, complete=False, unconfirmed=True)
        return _finished(file, result, confirmed)
    except _Changed:
        return Reduced(path, file.entry, (), 0, complete=False, lost=True)
    finally:
        corpus.forget(entry, path.parent)


Found = Reduction[Case] | Reduction[Build] | Reduction[Calls]
Result = tuple[Found, Confirmed | Verdict | None]


def _small_case(file: _Rewriter, entry: Entry, replayer: Replayer, deadline: float, calls: int, told: Told) -> Result:
    assert isinstance(entry.subject, Case)

    def better(case: Case, verdict: Verdict) -> None:
        file.better(case, verdict)
        told(minimiser.calls, case)

    def better_calls(made: Calls, verdict: Verdict) -> None:
        file.better(made.case, verdict, made.before)
        told(minimiser.calls, made.case)

    engine = replayer.engine(entry.subject)
    known = entry.rate.failed / entry.rate.runs if entry.rate is not None and entry.rate.runs else None
    minimiser = Minimiser(
        engine, entry.implementation, entry.verdict, deadline=deadline, reference=known, better=better
    )
    if entry.context and not same(minimiser.fresh((), entry.subject, CONFIRM_PAIRS), entry.verdict):
        confirmed, of_all = minimiser.small_history(
            Calls(entry.context, entry.subject), entry.verdict, calls, better_calls
        )
        return of_all, confirmed
    result = minimiser.reduce(entry.subject, budget=calls)
    confirmed = minimiser.confirm(result.smallest, entry.subject, ())
    shown = confirmed.shown and confirmed.case == result.smallest and same(confirmed.verdict, entry.verdict)
    return result, confirmed if shown else None


def _small_build(file: _Rewriter, entry: Entry, replayer: Replayer, deadline: float, calls: int, told: Told) -> Result:
    assert isinstance(entry.subject, Build)
    engine, spec = replayer.engine(entry.subject), entry.implementation
    count = 0

    def fails(build: Build) -> bool:
        nonlocal count
        count += 1
        verdict = engine.build(build, spec)
        if not same(verdict, entry.verdict):
            return False
        file.better(build, verdict)
        told(count, build)
        return True

    matrix = matrix_of(engine, entry.subject, spec)
    with patience(engine, entry.verdict.kind):
        result = reduce_build(entry.subject, matrix, fails, budget=calls, late=lambda: time.monotonic() > deadline)
    engine.fresh()
    verdict = engine.build(result.smallest, spec)
    return result, verdict if same(verdict, entry.verdict) else None


def _finished(file: _Rewriter, result: Found, confirmed: Confirmed | Verdict) -> Reduced:
    """The entry under the signature of what is left, where its corpus has the place for that; while something may still go,
    under its old one."""
    was, path = file.entry, file.path
    told = result.removed, result.calls, result.complete
    verdict = confirmed if isinstance(confirmed, Verdict) else confirmed.verdict
    final = replace(
        was,
        verdict=verdict,
        rate=confirmed.rate if isinstance(confirmed, Confirmed) else None,
        reduced=was.reduced or result.complete,
        minimal=result.complete,
    )
    root = corpus.root_of(path, was.signature)
    if result.complete:
        named = signature.signature(was.subject, was.signature.implementation, verdict)
        final = replace(final, signature=named)
    if root is None or final.signature == was.signature:
        file.becomes(final)
        return Reduced(path, final, *told)
    stays = corpus.write(root, final, choose=corpus_care.better) is None
    corpus.drop(path, was)
    target = corpus.path_of(root, final.signature)
    return Reduced(target, corpus.read(target), *told, merged=stays)
