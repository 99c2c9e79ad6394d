"""The case of one failure made small on an engine, and shown again in a process that has judged nothing.

What is kept is the failure, not just any: its kind and, where it speaks, its words; of one that comes and goes also its rate.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from harness import features
from harness.case import Case, tidy
from harness.history import Calls, reduce_history
from harness.limits import patience
from harness.rate import Rate, keeps, measured
from harness.reduce import Reduction, reduce
from harness.sandbox import Engine
from harness.signature import same
from harness.steps import feature_steps, grown, ordinary
from harness.verdict import COSTLY, Verdict

SOMETIMES = "nondeterministic"
SOMETIMES_PAIRS = 8
"""A fault that shows in one of five runs escapes 16 of them once in 35 times."""
CONFIRM_PAIRS = 10
"""In a fresh process, before a failure is called steady or said to need a history."""
RATE_PAIRS = 50
RATE_SECONDS = 20.0
"""For the rate that goes into the entry: 100 runs, or as many as fit into that time, 20 at least."""
REFERENCE_PAIRS = 32
CALLS = 1200
HISTORY_CALLS = 16
"""Each takes a process of its own."""
COSTLY_CALLS = 90


def pairs_for(verdict: Verdict) -> int:
    """Runs under each poison that show such a failure again, if it is there."""
    return SOMETIMES_PAIRS if verdict.kind == SOMETIMES else 1


@dataclass(frozen=True)
class Confirmed:
    """What a fresh process shows: the case, its verdict, the calls to make before it, and the rate of what comes and goes."""

    case: Case
    verdict: Verdict
    context: tuple[Case, ...] = ()
    rate: Rate | None = None
    shown: bool = True
    """False: no fresh process showed it; the verdict is that of a used one."""


class Minimiser:
    """Makes failures of one implementation small. `best` is the verdict on the smallest case so far."""

    def __init__(
        self,
        engine: Engine,
        spec: str,
        verdict: Verdict,
        *,
        ours: Callable[[Case, Verdict], bool] = lambda case, verdict: True,
        deadline: float = float("inf"),
        reference: float | None = None,
        better: Callable[[Case, Verdict], None] = lambda case, verdict: None,
    ) -> None:
        """ours: of failures of the same kind and words, which belong to this one. deadline: on the monotonic clock; what is
        tried later does not fail. reference: the rate to stay near, of a failure that comes and goes; measured where it is
        not known. better: told of each smaller case."""
        self.engine, self.spec, self.verdict, self.best = engine, spec, verdict, verdict
        self._ours, self._deadline, self._better = ours, deadline, better
        self._reference = reference
        self.calls = 0

    def fails(self, case: Case) -> bool:
        """Whether a smaller case shows the failure still; if so, it is the smallest so far."""
        if self.late():
            return False
        self.calls += 1
        found = self._sometimes(case) if self.verdict.kind == SOMETIMES else self._steadily(case)
        if found is None:
            return False
        self.best = found
        self._better(case, found)
        return True

    def late(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() > self._deadline

    def _judge(self, case: Case, pairs: int) -> Verdict:
        return self.engine.judge(case, [self.spec], pairs=pairs, sure=False)[0]

    def _steadily(self, case: Case) -> Verdict | None:
        verdict = self._judge(case, 1)
        return verdict if self._is_it(case, verdict) else None

    def _is_it(self, case: Case, verdict: Verdict) -> bool:
        return same(verdict, self.verdict) and self._ours(case, verdict)

    def _sometimes(self, case: Case) -> Verdict | None:
        """The verdict if the failure comes nearly as often as it did in the case it was found in."""
        last: Verdict | None = None

        def sample(pairs: int) -> tuple[int, int] | None:
            nonlocal last
            verdict = self._judge(case, pairs)
            if not verdict.failed:
                return (0, 2 * pairs) if verdict.kind == "pass" else None
            if self._is_it(case, verdict):
                last = verdict
                return verdict.evidence.failed, verdict.evidence.runs
            # A batch that failed in every run looks steady, and what nearly always fails often does.
            if verdict.stage not in ("values", "memory"):
                return None
            if last is None:
                last = replace(self.verdict, evidence=replace(verdict.evidence, failed=2 * pairs, runs=2 * pairs))
            return 2 * pairs, 2 * pairs

        if self._reference is None or keeps(sample, self._reference) is None:
            return None
        return last

    def reduce(self, case: Case, budget: int | None = None) -> Reduction[Case]:
        """The smallest case that steps lead to from `case`, which shows the failure.

        budget: judgements at most; None is what a campaign spends on a failure of this kind.
        """
        if self.verdict.kind == SOMETIMES and self._reference is None:
            self._reference = self._rate_of(case)
        allowed = budget or (COSTLY_CALLS if self.verdict.costly else CALLS)
        with patience(self.engine, self.verdict.kind):
            result = reduce(case, self.fails, budget=allowed, late=self.late)
            if self.verdict.costly or self.verdict.kind == SOMETIMES or not result.complete:
                return result
            return self._grown_anew(result, allowed)

    def _grown_anew(self, result: Reduction[Case], budget: int) -> Reduction[Case]:
        """Sizes got tiny first, where more than one feature may be what makes the bug visible: where there is room and the
        numbers are ordinary, fewer may do."""
        best = self.best
        for what, step in feature_steps(ordinary(grown(result.smallest))):
            if self.fails(tidy(step)):
                other = reduce(tidy(step), self.fails, budget=budget, late=self.late)
                if len(features.traits(other.smallest)) < len(features.traits(result.smallest)):
                    return dataclasses.replace(other, removed=(*result.removed, what, *other.removed))
                self.best = best
                self._better(result.smallest, best)
                break
        return result

    def _rate_of(self, case: Case) -> float:
        """How often the case that was found fails: a fresh sample, since the one that found it was lucky."""
        found = self._judge(case, REFERENCE_PAIRS)
        evidence = found.evidence if found.kind == SOMETIMES else self.verdict.evidence
        return max(evidence.failed, 1) / max(evidence.runs, 1)

    def confirm(self, smallest: Case, original: Case, history: tuple[Case, ...]) -> Confirmed:
        """Show the failure in a process that has judged nothing.

        Where neither the smallest case nor the one that was found fails there, the fault needs a history: then the one that
        was found is judged after the calls that ran before it, and of those the ones that matter are kept. The verdict can be
        of another kind than the one that was reduced; whoever asks has to begin anew with it.
        """
        pairs = 1 if self.verdict.kind in COSTLY else CONFIRM_PAIRS
        if (
            self.verdict.kind == SOMETIMES
        ):  # all these runs are its rate, so as many as fit into the time that it is worth
            in_time = RATE_SECONDS / 2 / max(self.engine.fastest, 1e-6)
            pairs = int(min(RATE_PAIRS, max(CONFIRM_PAIRS, in_time)))
        for case in (smallest,) if smallest == original else (smallest, original):
            verdict = self.fresh((), case, pairs)
            if verdict.kind == SOMETIMES:
                return Confirmed(case, verdict, rate=measured(verdict.evidence.failed, verdict.evidence.runs))
            if same(verdict, self.verdict):
                return Confirmed(case, verdict)
        if verdict.failed:
            return Confirmed(original, verdict)  # in other words than in the used process
        for count in dict.fromkeys((1, 2, len(history)) if history else ()):
            before = history[-count:]
            verdict = self.fresh(before, original, pairs_for(self.verdict))
            if verdict.failed:
                return self.small_history(Calls(before, original), verdict)[0]
        return Confirmed(smallest, _in_used_process(self.best), shown=False)

    def small_history(
        self,
        calls: Calls,
        verdict: Verdict,
        budget: int = HISTORY_CALLS,
        better: Callable[[Calls, Verdict], None] = lambda calls, verdict: None,
    ) -> tuple[Confirmed, Reduction[Calls]]:
        """The calls that a failure needs, made small together; each try is one in a process of its own."""
        best = verdict

        def fails(candidate: Calls) -> bool:
            nonlocal best
            self.calls += 1
            found = self.fresh(candidate.before, candidate.case, pairs_for(verdict))
            if not same(found, verdict):
                return False
            best = _in_used_process(found)
            better(candidate, best)
            return True

        result = reduce_history(calls, fails, budget=budget, late=self.late)
        small = result.smallest
        return Confirmed(small.case, _in_used_process(best), small.before), result

    def fresh(self, before: tuple[Case, ...], case: Case, pairs: int) -> Verdict:
        """Judge a case in a process that has judged nothing but the calls before it."""
        self.engine.fresh()
        for other in before:
            self.engine.judge(other, [self.spec])
        return self.engine.judge(case, [self.spec], pairs=pairs)[0]


def _in_used_process(verdict: Verdict) -> Verdict:
    return replace(verdict, evidence=replace(verdict.evidence, used_process=True))
