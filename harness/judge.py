"""One case on one implementation -> verdict, in this process. The sandbox puts a process around it.

A call is made twice, once under each poison (`harness.memory`). When both runs agree and are right, that is a pass.
When anything is wrong the pair is repeated until it is clear whether the failure is steady, depends on the poison (and so
on memory that nobody wrote) or comes and goes; only then is it given a name.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
from torch import Tensor

from harness import mismatch, operators, pattern
from harness.attempt import Attempt, Bench, build_failure
from harness.case import Build, Case, CaseError
from harness.execution import executing
from harness.implementations import Implementation
from harness.memory import Memory, is_poison
from harness.mismatch import Mismatch
from harness.normalise import first_error
from harness.runs import Outputs, Runs, difference, equal
from harness.verdict import MAX_LOG, PASS, Element, Evidence, Verdict, skip
from oracles.judgement import Judgement, Reference

PAIRS_ON_FAILURE = 5
"""Pairs of runs before a failure gets its name: a fault that shows in one run of five passes for a steady one in fewer
than one of a thousand."""
PAIRS_ON_POISON = 12
"""Before it is called one that depends on the poison. Of failures that come and go, at whatever rate, fewer than one in
eight million keep to one poison for so long; with five pairs it is one in five hundred."""


class Judge:
    """A case made real on a device: data, contract and reference, shared by the implementations that are judged on it.

    timing: seconds spent, by what on: data, oracle, kernel, compare. fastest: seconds of the fastest call of the
    implementation that was judged last (the others may have compiled), or infinity.
    """

    def __init__(self, case: Case, device: str) -> None:
        self.timing: dict[str, float] = defaultdict(float)
        self.fastest = math.inf
        self.case = case
        self.operator = operators.get(case.operator)
        with self._clock("data"):
            self.memory = Memory(case, device)
            self.call = self.operator.bind(case, self.memory.tensors)
            self._pure = self.operator.bind(case, self.memory.originals())
        with self._clock("oracle"):
            self.reason = self.operator.contract(self.call)
        unfilled = [name for name in case.tensors if name not in case.fills and name not in self.call.writes]
        if self.reason is None and unfilled:
            # What is read would be poison, and every right kernel accused of depending on it.
            raise CaseError(f"a legal call reads tensor {unfilled[0]!r}, which has no fill")
        self._references: dict[Any, tuple[Reference, int | None]] = {}
        self._announce: Callable[[], None] = lambda: None
        self._picture = False
        self._pictures: dict[Element, Mismatch] = {}

    @contextlib.contextmanager
    def _clock(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.timing[what] += time.perf_counter() - start

    def judge(
        self,
        implementation: Implementation,
        *,
        pairs: int = 1,
        sure: bool = True,
        picture: bool = False,
        announce: Callable[[], None] = lambda: None,
    ) -> Verdict:
        """Judge one implementation; `pairs` is how often it runs under each poison even if nothing is wrong.

        Not `sure` is for shrinking: a failure gets its name from two pairs, since the kind that is looked for is known.
        `picture` keeps what `mismatch` tells of a failure. `announce` is called before each call of the kernel.

        Raises DeviceBroken when the device is lost, ValueError for an implementation that declares unknown semantics.
        """
        self._announce, self._picture = announce, picture
        self._pictures.clear()
        self.fastest = math.inf
        params = {**self.operator.build_params(self.case), "tuning": self.case.tuning}
        why = implementation.unsupported(implementation.tuned(params)) or self._cannot_take(implementation)
        if why is not None:
            return skip(why)
        with self._clock("oracle"):
            reference, checksum = self._reference(implementation)
        runs = Runs()
        verdict = self._run(implementation, reference, runs, pairs, PAIRS_ON_FAILURE if sure else 2)
        found = self._name(runs, reference, deterministic=not implementation.nondeterministic)
        if sure and found is not None and found.kind == "depends_on_poison":
            self._run(implementation, reference, runs, PAIRS_ON_POISON, 0)
            found = self._name(runs, reference, deterministic=not implementation.nondeterministic)
        with self._clock("compare"):
            if checksum is not None and reference is not None and reference.checksum() != checksum:
                self._references.clear()
                return Verdict("wrote_outside", "the oracle's own memory was overwritten")
        if found is None and reference is not None and not implementation.nondeterministic:
            found = self._order(implementation, reference, runs.first[0])
            if found is None and not reference.unique:
                found = self._relations(implementation, runs.first[0])
        return found or verdict

    def mismatch(self, verdict: Verdict) -> Mismatch | None:
        """The output that the last verdict, which was asked for with `picture`, speaks of; None where it speaks of none."""
        worst = verdict.evidence.worst
        return self._pictures.get(worst) if worst is not None else None

    def _reference(self, implementation: Implementation) -> tuple[Reference | None, int | None]:
        """The oracle's answer for a legal call, and its checksum; made once for all that share the semantics."""
        if self.reason is not None:
            return None, None
        device = self.memory.device.type
        semantics = self.operator.semantics(implementation.semantics(device), device)
        if semantics not in self._references:
            reference = self.operator.reference(self._pure, semantics)
            # Where the reference is not on the kernel's device, no write of the kernel's can reach it.
            reachable = self.memory.home == self.memory.device
            self._references[semantics] = reference, reference.checksum() if reachable else None
        return self._references[semantics]

    def _cannot_take(self, implementation: Implementation) -> str | None:
        if self.case.checks and not implementation.executes(self.memory.device.type):
            return f"{', '.join(self.case.checks)}: not checked, since no CUDA kernel of it runs on the CPU"
        if self.call.method:
            return None if implementation.in_place else "has no in-place spelling"
        known = implementation.parameters
        missing = [name for name in self.call.kwargs if known is not None and name not in known]
        return f"takes no argument {missing[0]!r}" if missing else None

    def _run(
        self, implementation: Implementation, reference: Reference | None, runs: Runs, pairs: int, if_failing: int
    ) -> Verdict:
        """Add pairs of runs until it is clear what they show; the verdict that stands if that is nothing."""
        bench = Bench(self.case, self.operator, self.memory, self.reason, reference)
        verdict = PASS
        while runs.total < 2 * pairs:
            for poison in (0, 1):
                attempt = self._attempt(bench, implementation, poison)
                with self._clock("compare"):
                    problem = attempt.problem
                    if attempt.outputs is not None and reference is not None:
                        judged = self._values(attempt.outputs, reference, runs)
                        problem = judged if judged.failed else None
                        verdict = (
                            max(verdict, judged, key=lambda v: (v.ratio, v.vacuous)) if not judged.failed else verdict
                        )
                    runs.add(poison, problem, attempt.outputs)
            if runs.failures or not runs.same or (runs.differ and not implementation.nondeterministic):
                pairs = max(pairs, if_failing)
        return verdict

    def _attempt(self, bench: Bench, implementation: Implementation, poison: int, *, ordered: bool = False) -> Attempt:
        """One call; `ordered` runs threads in order, whatever the case says."""
        function = implementation.in_place if self.call.method else implementation.function
        assert function is not None
        with self._clock("data"):
            self.memory.reset(poison)
            call = bench.call()
        case = msgspec.structs.replace(self.case, schedule=0) if ordered else self.case
        self._announce()
        before = self.timing["kernel"]
        with self._clock("kernel"), executing(implementation, case, self.memory, poison):
            result, error = bench.run(call, partial(function, **implementation.tuning(self.case.tuning)), poison)
        self.fastest = min(self.fastest, self.timing["kernel"] - before)
        with self._clock("compare"):
            return bench.examine(call, result, error)

    def _name(self, runs: Runs, reference: Reference | None, *, deterministic: bool) -> Verdict | None:
        """The failure that the runs show, if they show one."""
        failures = runs.failures
        if not failures and not deterministic:
            return None
        if not runs.steady:
            if not failures:
                message = "equal calls give results with different bits"
                return Verdict("nondeterministic", message, Evidence(failed=runs.others, runs=runs.total))
            worst = failures[0]
            message = f"{len(failures)} of {runs.total} equal calls failed ({worst.kind}: {worst.message})"
            evidence = Evidence(worst=worst.evidence.worst, failed=len(failures), runs=runs.total)
            return Verdict("nondeterministic", message, evidence)
        if runs.differ:
            return self._depends(runs, reference)
        return failures[0] if failures else None

    def _depends(self, runs: Runs, reference: Reference | None) -> Verdict:
        """Two poisons, two results: elements that hold the outputs' poison were not written, others were computed from
        memory that is no input."""
        a, b = runs.first[0], runs.first[1]
        for name in a:
            unwritten = is_poison(a[name], 0) & is_poison(b[name], 1)
            if bool(unwritten.any()):
                evidence = self._evidence(name, a[name], unwritten, _wanted(name, unwritten, reference))
                message = f"{evidence.wrong} of {evidence.total} elements were never written"
                return Verdict("unwritten_output", message, evidence)
        if runs.failures and runs.failures[0].stage != "values":
            return runs.failures[0]
        name, mask = difference(a, b)
        evidence = self._evidence(name, a[name], mask, _wanted(name, mask, reference))
        return Verdict("depends_on_poison", "the result depends on memory that nobody wrote", evidence)

    def _values(self, outputs: Outputs, reference: Reference, runs: Runs) -> Verdict:
        """Outputs against the reference; what has the bits of a run that was right is right."""
        if 0 in runs.first and not runs.failures and equal(runs.first[0], outputs):
            return PASS
        ratio, vacuous = 0.0, False
        for name, judgement in self.operator.judge(outputs, reference).items():
            if judgement.kind is not None:
                evidence = self._evidence(name, outputs[name], judgement.wrong, judgement)
                worst = evidence.worst
                assert worst is not None
                place = f"{name}{list(worst.index)} is {worst.got}, should be {worst.want}"
                message = f"{place}; {evidence.wrong} of {evidence.total} wrong"
                finite = judgement.ratio if math.isfinite(judgement.ratio) else 0.0
                return Verdict(judgement.kind, message, evidence, finite)
            ratio, vacuous = max(ratio, judgement.ratio), vacuous or judgement.vacuous
        return Verdict("pass", ratio=ratio, vacuous=vacuous)

    def _evidence(self, name: str, got: Tensor, wrong: Tensor, judgement: Judgement | None) -> Evidence:
        """How many elements are wrong, where, and the worst of them (the first, where there is no bound)."""
        (element,) = mismatch.worst(name, got, wrong, judgement)
        if self._picture:
            self._pictures[element] = mismatch.mismatch(name, got, wrong, judgement)
        return Evidence(element, int(wrong.sum()), wrong.numel(), pattern.describe(wrong))

    def _order(self, implementation: Implementation, reference: Reference, outputs: Outputs) -> Verdict | None:
        """No order of threads may make a difference."""
        if not self.case.schedule or not implementation.executes(self.memory.device.type):
            return None
        bench = Bench(self.case, self.operator, self.memory, None, reference)
        attempt = self._attempt(bench, implementation, 0, ordered=True)
        if attempt.outputs is None or equal(outputs, attempt.outputs):
            return None
        message = "elements have other bits than when threads run in order"
        return self._differs("order_differs", outputs, attempt.outputs, message)

    def _differs(self, kind: str, outputs: Outputs, others: Outputs, message: str) -> Verdict:
        name, mask = difference(outputs, others)
        evidence = self._evidence(name, outputs[name], mask, None)
        return Verdict(kind, f"{evidence.wrong} of {evidence.total} {message}", evidence)

    def _relations(self, implementation: Implementation, outputs: Outputs) -> Verdict | None:
        """Where more than one result is right, the same call said differently must still give the same one."""
        for kind, other in self.operator.relations(self.case):
            judge = Judge(other, str(self.memory.device))
            if judge.reason is not None or judge._cannot_take(implementation):
                continue
            reference, _ = judge._reference(implementation)
            bench = Bench(other, self.operator, judge.memory, None, reference)
            attempt = judge._attempt(bench, implementation, 0)
            if attempt.outputs is None or equal(outputs, attempt.outputs):
                continue
            message = "elements have other bits than in the plainer call"
            return self._differs(kind, outputs, attempt.outputs, message)
        return None


def _wanted(name: str, wrong: Tensor, reference: Reference | None) -> Judgement | None:
    """What elements that are wrong for another reason than their values should be."""
    return None if reference is None else Judgement(None, wrong, reference.want[name], reference.bound[name])


def judge_build(build: Build, implementation: Implementation) -> Verdict:
    """Compile one variant. What the implementation called unsupported is skipped; any other failure is a finding."""
    if (why := implementation.unsupported({**build.params, "arch": build.arch})) is not None:
        return skip(why)
    try:
        implementation.build(build)
    except Exception as error:
        known = build_failure(error)
        if known is not None:
            return known
        first = f"{type(error).__name__}: {first_error(str(error))}"
        return Verdict("build_error", first, Evidence(error=first, log=str(error)[-MAX_LOG:]))
    return PASS
