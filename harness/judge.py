"""One case on one implementation -> verdict, in this process. The sandbox puts a process around it.

A call is made twice, once under each poison (`harness.memory`). When both runs agree and are right, that is a pass.
When anything is wrong the pair is repeated until it is clear whether the failure is steady, depends on the poison (and so
on memory that nobody wrote) or comes and goes; only then is it given a name.
"""

from __future__ import annotations

import contextlib
import math
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness import operators, pattern
from harness.case import Build, Case
from harness.implementations import Implementation
from harness.memory import Memory, PoisonFresh, is_poison
from harness.normalise import first_error, normalise
from harness.operators import Call
from harness.verdict import MAX_LOG, PASS, Element, Evidence, Verdict, skip
from oracles.judgement import Judgement, Reference, bits

PAIRS_ON_FAILURE = 5
"""Pairs of runs before a failure gets its name: a fault that shows in one run of five passes for a steady one, or for one
that depends on the poison, in fewer than one of a thousand."""


class DeviceBroken(Exception):
    """The device reported an error that this process cannot recover from. `verdict` is the finding; end the process."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.message)
        self.verdict = verdict


@dataclass
class Attempt:
    """What one run gave: a problem that needs no reference, or outputs (name -> contiguous copy)."""

    problem: Verdict | None = None
    outputs: dict[str, Tensor] | None = None


class Judge:
    """A case made real on a device: data, contract and reference, shared by the implementations that are judged on it.

    timing: seconds spent, by what on: data, oracle, kernel, compare.
    """

    def __init__(self, case: Case, device: str) -> None:
        self.timing: dict[str, float] = defaultdict(float)
        self.case = case
        self.device = torch.device(device)
        self.operator = operators.get(case.operator)
        with self._clock("data"):
            self.memory = Memory(case, device)
            self.call: Call = self.operator.bind(case, self.memory.tensors)
            self._copies = {name: self.memory.copy(name) for name in case.fills}
        with self._clock("oracle"):
            self.reason = self.operator.contract(self.call)
        self._references: dict[Any, tuple[Reference, int]] = {}

    @contextlib.contextmanager
    def _clock(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.timing[what] += time.perf_counter() - start

    def _reference(self, semantics: Any) -> tuple[Reference, int]:
        """The oracle's answer, from copies that no kernel was given, and its checksum."""
        if semantics not in self._references:
            call = self.operator.bind(self.case, {**self.memory.tensors, **self._copies})
            reference = self.operator.reference(call, semantics)
            self._references[semantics] = reference, reference.checksum()
        return self._references[semantics]

    def judge(self, implementation: Implementation, *, pairs: int = 1, sure: bool = True) -> Verdict:
        """Judge one implementation; `pairs` is how often it runs under each poison even if nothing is wrong.

        Not `sure` is for shrinking: a failure gets its name from two pairs, since the kind that is looked for is known.

        Raises DeviceBroken when the device is lost, ValueError for an implementation that declares unknown semantics.
        """
        params = {**self.operator.build_params(self.case), "device": self.device.type}
        if (why := implementation.unsupported(params)) is not None:
            return skip(why)
        if (why := self._cannot_take(implementation)) is not None:
            return skip(why)
        with self._clock("oracle"):
            semantics = self.operator.semantics(implementation.semantics)
            reference, checksum = self._reference(semantics) if self.reason is None else (None, 0)
        verdict = self._judge(implementation, reference, pairs, PAIRS_ON_FAILURE if sure else 2)
        with self._clock("compare"):
            if reference is not None and reference.checksum() != checksum:
                return Verdict("wrote_outside", "the oracle's own memory was overwritten")
        return verdict

    def _cannot_take(self, implementation: Implementation) -> str | None:
        if self.call.method and implementation.in_place is None:
            return "has no in-place spelling"
        missing = [
            n for n in self.call.kwargs if implementation.parameters is not None and n not in implementation.parameters
        ]
        return f"takes no argument {missing[0]!r}" if missing and not self.call.method else None

    def _judge(
        self, implementation: Implementation, reference: Reference | None, pairs: int, if_failing: int
    ) -> Verdict:
        runs: list[tuple[int, Verdict | None, bool]] = []  # poison, problem, same bits as the first run under it
        first: dict[int, dict[str, Tensor]] = {}
        verdict = PASS
        while len(runs) < 2 * pairs:
            for poison in (0, 1):
                attempt = self._attempt(implementation, poison)
                with self._clock("compare"):
                    problem = attempt.problem
                    same = True
                    if attempt.outputs is not None:
                        assert reference is not None
                        judged = self._values(attempt.outputs, reference)
                        problem = judged if judged.failed else None
                        same = poison not in first or _equal(first[poison], attempt.outputs)
                        first.setdefault(poison, attempt.outputs)
                        if not judged.failed and judged.ratio >= verdict.ratio:
                            verdict = judged
                runs.append((poison, problem, same))
            differ = 0 in first and 1 in first and not _equal(first[0], first[1])
            if any(p is not None for _, p, _ in runs) or (differ and not implementation.nondeterministic):
                pairs = max(pairs, if_failing)
        found = self._name(runs, first, implementation)
        if found is None and reference is not None and not reference.unique:
            found = self._relations(implementation, first[0])
        return found or verdict

    def _name(
        self,
        runs: list[tuple[int, Verdict | None, bool]],
        first: dict[int, dict[str, Tensor]],
        implementation: Implementation,
    ) -> Verdict | None:
        """The failure that the runs show, if they show one."""
        problems = [problem for _, problem, _ in runs if problem is not None]
        steady = all(
            len({p.kind if p else "" for poison, p, _ in runs if poison == which}) == 1
            and all(same for poison, _, same in runs if poison == which)
            for which in (0, 1)
        )
        if not steady and (problems or not implementation.nondeterministic):
            worst = problems[0] if problems else Verdict("divergence", "right, but with other bits")
            return Verdict(
                "nondeterministic",
                f"{len(problems)} of {len(runs)} equal calls failed ({worst.kind}: {worst.message})"
                if problems
                else "equal calls give results with different bits",
                Evidence(worst=worst.evidence.worst, failed=len(problems), runs=len(runs)),
            )
        differ = 0 in first and 1 in first and not _equal(first[0], first[1])
        if differ and not (implementation.nondeterministic and not problems):
            return self._depends(first, problems)
        early = [p for p in problems if p.stage in ("call", "memory")]
        return next(iter(early or problems), None)

    def _depends(self, first: dict[int, dict[str, Tensor]], problems: list[Verdict]) -> Verdict:
        """Two poisons, two results: elements that hold the poison itself were not written, others were computed from it."""
        for name, a in first[0].items():
            b = first[1][name]
            unwritten = is_poison(a, 0) & is_poison(b, 1)
            if bool(unwritten.any()):
                evidence = self._evidence(name, a, unwritten, None)
                return Verdict(
                    "unwritten_output", f"{evidence.wrong} of {evidence.total} elements were never written", evidence
                )
        early = [p for p in problems if p.stage in ("call", "memory")]
        if early:
            return early[0]
        name = next(n for n in first[0] if not torch.equal(bits(first[0][n]), bits(first[1][n])))
        mask = bits(first[0][name]) != bits(first[1][name])
        evidence = self._evidence(name, first[0][name], mask, None)
        return Verdict("depends_on_poison", "the result depends on memory that nobody wrote", evidence)

    def _attempt(self, implementation: Implementation, poison: int) -> Attempt:
        function = implementation.in_place if self.call.method else implementation.function
        assert function is not None
        with self._clock("data"):
            self.memory.reset(poison)
        error: BaseException | None = None
        result: Any = None
        with self._clock("kernel"):
            try:
                with PoisonFresh(poison):
                    result = function(*self.call.args, **self.call.kwargs)
            except Exception as raised:
                error = raised
            except (SystemExit, GeneratorExit) as raised:
                error = raised
            self._synchronise(error)
        with self._clock("compare"):
            writable = self.call.writes if self.reason is None and error is None else frozenset[str]()
            changed = self.memory.changed(writable)
            if error is not None:
                return Attempt(self._judge_error(error, changed))
            if self.reason is not None:
                return Attempt(Verdict("accepted_illegal", self.reason, Evidence(error=self.reason)))
            if changed is not None:
                return Attempt(_memory_verdict(changed))
            return self._collect(result)

    def _synchronise(self, error: BaseException | None) -> None:
        if self.device.type != "cuda":
            return
        try:
            torch.cuda.synchronize(self.device)
        except RuntimeError as broken:
            log = "".join(traceback.format_exception(error or broken))[-MAX_LOG:]
            text = str(broken).partition("\n")[0]
            evidence = Evidence(error=normalise(text), log=log)
            raise DeviceBroken(Verdict("device_error", text, evidence)) from None

    def _judge_error(self, error: BaseException, changed: dict[str, Any] | None) -> Verdict | None:
        text = f"{type(error).__name__}: {error}".partition("\n")[0]
        evidence = Evidence(
            error=normalise(text),
            log="".join(traceback.format_exception(error))[-MAX_LOG:],
        )
        if self.reason is None:
            return Verdict("refused", f"raised on a legal call: {text}", evidence)
        if not isinstance(error, (ValueError, TypeError)):
            evidence = Evidence(error=f"{type(error).__name__} where {self.reason}", log=evidence.log)
            return Verdict("unclear_error", f"not a ValueError or TypeError, where {self.reason}: {text}", evidence)
        if changed is not None:
            found = _memory_verdict(changed)
            return Verdict(found.kind, f"refused the call ({text}), but {found.message}", found.evidence)
        return None

    def _collect(self, result: Any) -> Attempt:
        """Check what is not a value: number, type, identity, shape, dtype, device of the outputs; then copy them."""
        names = self.operator.OUTPUTS[: len(self.call.returns)]
        results = result if isinstance(result, (tuple, list)) else (result,)
        if len(results) != len(names):
            return _wrong_metadata(f"returned {len(results)} values instead of {len(names)}")
        reference = next(iter(self._references.values()))[0]
        outputs = {}
        for name, got, expected in zip(names, results, self.call.returns):
            if not isinstance(got, Tensor):
                return _wrong_metadata(f"returned {type(got).__name__} for {name}")
            if expected is not None and got is not expected:
                return _wrong_metadata(f"{name}: did not return the tensor that it was given to write")
            shape, dtype = reference.want[name].shape, reference.dtype[name]
            if (got.shape, got.dtype, got.device.type) != (shape, dtype, self.device.type):
                return _wrong_metadata(
                    f"{name}: {got.dtype} {list(got.shape)} on {got.device.type} instead of {dtype} {list(shape)} on "
                    f"{self.device.type}",
                    error=f"{name}: wrong " + ("dtype" if got.dtype != dtype else "shape or device"),
                )
            if expected is None and self.memory.holds(got):
                return _wrong_metadata(f"{name}: the fresh output shares memory with an input")
            outputs[name] = got.detach().clone(memory_format=torch.contiguous_format)
        return Attempt(outputs=outputs)

    def _values(self, outputs: dict[str, Tensor], reference: Reference) -> Verdict:
        ratio, vacuous = 0.0, False
        for name, judgement in self.operator.judge(outputs, reference).items():
            if judgement.kind is not None:
                evidence = self._evidence(name, outputs[name], judgement.wrong, judgement)
                worst = evidence.worst
                assert worst is not None
                message = (
                    f"{name}{list(worst.index)} is {worst.got}, should be {worst.want}; "
                    f"{evidence.wrong} of {evidence.total} wrong"
                )
                return Verdict(
                    judgement.kind, message, evidence, judgement.ratio if math.isfinite(judgement.ratio) else 0.0
                )
            ratio, vacuous = max(ratio, judgement.ratio), vacuous or judgement.vacuous
        return Verdict("pass", ratio=ratio, vacuous=vacuous) if ratio or vacuous else PASS

    def _evidence(self, name: str, got: Tensor, wrong: Tensor, judgement: Judgement | None) -> Evidence:
        index = wrong.nonzero()[0]
        if judgement is not None and bool((judgement.bound > 0).any()):
            error = ((got.double() - judgement.want).abs() / judgement.bound).nan_to_num(torch.inf, torch.inf)
            index = torch.tensor(torch.where(wrong, error, -1.0).argmax().item()).view(1)
            index = torch.stack(torch.unravel_index(index[0], wrong.shape))
        where = tuple(int(i) for i in index)
        want, bound = (
            ("?", "?")
            if judgement is None
            else (repr(judgement.want[where].item()), repr(judgement.bound[where].item()))
        )
        element = Element(name, where, repr(got[where].item()), want, bound)
        return Evidence(element, int(wrong.sum()), wrong.numel(), pattern.describe(wrong))

    def _relations(self, implementation: Implementation, outputs: dict[str, Tensor]) -> Verdict | None:
        """Where more than one result is right, the same call said differently must still give the same one."""
        for kind, other in self.operator.relations(self.case):
            judge = Judge(other, str(self.device))
            if judge.reason is not None or judge._cannot_take(implementation):
                continue
            judge._reference(self.operator.semantics(implementation.semantics))
            attempt = judge._attempt(implementation, 0)
            if attempt.outputs is None or _equal(outputs, attempt.outputs):
                continue
            name = next(n for n in outputs if not torch.equal(bits(outputs[n]), bits(attempt.outputs[n])))
            evidence = self._evidence(name, outputs[name], bits(outputs[name]) != bits(attempt.outputs[name]), None)
            return Verdict(
                kind,
                f"{evidence.wrong} of {evidence.total} elements have other bits than in the plainer call",
                evidence,
            )
        return None


def judge_build(build: Build, implementation: Implementation) -> Verdict:
    """Compile one variant. What the implementation called unsupported is skipped; any other failure is a finding."""
    if (why := implementation.unsupported({**build.params, "arch": build.arch})) is not None:
        return skip(why)
    try:
        implementation.build(build)
    except Exception as error:
        log = str(getattr(error, "log", "") or error)
        tool = str(getattr(error, "tool", type(error).__name__))
        first = first_error(log)
        return Verdict("build_error", f"{tool}: {first}", Evidence(error=f"{tool}: {first}", log=log[-MAX_LOG:]))
    return PASS


def _equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(bits(a[name]), bits(b[name])) for name in a)


def _wrong_metadata(message: str, error: str = "") -> Attempt:
    return Attempt(Verdict("wrong_metadata", message, Evidence(error=normalise(error or message))))


def _memory_verdict(changed: dict[str, Any]) -> Verdict:
    where = f"byte {changed['byte']} of storage {changed['storage']}, {changed['count']} bytes in all"
    if changed["what"] == "input":
        return Verdict("changed_input", f"changed its input {changed['tensor']} ({where})")
    return Verdict("wrote_outside", f"wrote outside its output ({where})")
