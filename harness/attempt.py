"""One call of one implementation: what it raised, what it returned, what it changed, before any value is judged."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness.case import Case
from harness.memory import Memory, PoisonFresh
from harness.normalise import normalise
from harness.operators import Call, Operator
from harness.verdict import MAX_LOG, Evidence, Verdict, build_error
from oracles.judgement import Reference


class DeviceBroken(Exception):
    """The device reported an error that this process cannot recover from. `verdict` is the finding; end the process."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.message)
        self.verdict = verdict


@dataclass
class Attempt:
    """What one run gave: a problem that needs no reference, or outputs (name -> contiguous copy), or, for an illegal call
    that was refused as it should be, neither."""

    problem: Verdict | None = None
    outputs: dict[str, Tensor] | None = None


@dataclass
class Bench:
    """Where a case's calls are made.

    reason: why the call must raise, or None. reference: what a legal call's outputs have to look like.
    """

    case: Case
    operator: Operator
    memory: Memory
    reason: str | None
    reference: Reference | None

    def call(self) -> Call:
        """The call, on tensors that are new objects each time."""
        return self.operator.bind(self.case, self.memory.views())

    def run(self, call: Call, function: Callable[..., Any], poison: int) -> tuple[Any, BaseException | None]:
        """Make the call, in memory that was reset with this poison: what it returned or raised. Raises DeviceBroken."""
        result: Any = None
        error: BaseException | None = None
        try:
            with PoisonFresh(poison):
                result = function(*call.args, **call.kwargs)
        except (Exception, SystemExit, GeneratorExit) as raised:
            error = raised
        _synchronise(self.memory.device, error)
        return result, error

    def examine(self, call: Call, result: Any, error: BaseException | None) -> Attempt:
        """Everything about a finished call that is not a value."""
        legal = self.reason is None
        after = self.memory.snapshot()
        changed = self.memory.changed(call.writes if legal and error is None else frozenset(), after)
        if error is not None:
            return Attempt(self._raised(error, changed))
        if not legal:
            assert self.reason is not None
            return Attempt(Verdict("accepted_illegal", self.reason, Evidence(error=self.reason)))
        if changed is not None:
            return Attempt(_memory_verdict(changed))
        return self._collect(call, result, after)

    def _raised(self, error: BaseException, changed: dict[str, Any] | None) -> Verdict | None:
        text = traceback.format_exception_only(error)[0].strip().partition("\n")[0]
        log = "".join(traceback.format_exception(error))[-MAX_LOG:]
        if (known := build_failure(error) or execution_failure(error)) is not None:
            return known
        if self.reason is None:
            return Verdict("refused", f"raised on a legal call: {text}", Evidence(error=normalise(text), log=log))
        if not isinstance(error, (ValueError, TypeError)):
            evidence = Evidence(error=f"{type(error).__name__} where {self.reason}", log=log)
            return Verdict("unclear_error", f"not a ValueError or TypeError, where {self.reason}: {text}", evidence)
        if changed is not None:
            found = _memory_verdict(changed)
            return Verdict(found.kind, f"refused the call ({text}), but {found.message}", found.evidence)
        return None

    def _collect(self, call: Call, result: Any, after: list[Tensor]) -> Attempt:
        """Check number, type, identity, shape, dtype and device of the outputs, then copy them (home).

        What was written into a given tensor is read from the case's own memory, not from the object that came back: that
        may have been pointed elsewhere.
        """
        assert self.reference is not None
        names = self.operator.OUTPUTS[: len(call.returns)]
        results = result if isinstance(result, (tuple, list)) else (result,)
        if len(results) != len(names):
            return _wrong_metadata(f"returned {len(results)} values instead of {len(names)}")
        outputs = {}
        for name, got, given in zip(names, results, call.returns):
            if not isinstance(got, Tensor):
                return _wrong_metadata(f"returned {type(got).__name__} for {name}")
            shape, dtype = self.reference.want[name].shape, self.reference.dtype[name]
            if (got.shape, got.dtype, got.device.type) != (shape, dtype, self.memory.device.type) or got.is_sparse:
                return _wrong_metadata(
                    f"{name}: {got.dtype} {list(got.shape)} on {got.device.type} instead of {dtype} {list(shape)} on "
                    f"{self.memory.device.type}",
                    error=f"{name}: wrong " + ("dtype" if got.dtype != dtype else "shape, layout or device"),
                )
            if given is None:
                if self.memory.holds(got):
                    return _wrong_metadata(f"{name}: the fresh output shares memory with an input")
                outputs[name] = got.detach().to(self.memory.home, memory_format=torch.contiguous_format, copy=True)
                continue
            if got is not given:
                return _wrong_metadata(f"{name}: did not return the tensor that it was given to write")
            written = _name_of(given, call, self.case)
            window = self.memory.tensors[written]
            if (got.data_ptr(), got.stride()) != (window.data_ptr(), window.stride()) and got.numel():
                return _wrong_metadata(f"{name}: the tensor that it was given was pointed at other memory")
            outputs[name] = self.memory.read(written, after)
        return Attempt(outputs=outputs)


def _name_of(given: Tensor, call: Call, case: Case) -> str:
    """The case's name for a tensor that a call writes (a call writes at most one tensor of each shape and place)."""
    names = [name for name in case.tensors if name in call.writes]
    return names[[t is given for t in call.returns if t is not None].index(True)] if len(names) > 1 else names[0]


def _synchronise(device: torch.device, error: BaseException | None) -> None:
    if device.type != "cuda":
        return
    try:
        torch.cuda.synchronize(device)
    except RuntimeError as broken:
        log = "".join(traceback.format_exception(error or broken))[-MAX_LOG:]
        text = str(broken).partition("\n")[0]
        raise DeviceBroken(Verdict("device_error", text, Evidence(error=normalise(text), log=log))) from None


def build_failure(error: BaseException) -> Verdict | None:
    """The verdict on an error that comes from a compiler, known by its `tool` and `log` or as one of Triton's."""
    log, tool = getattr(error, "log", None), getattr(error, "tool", None)
    if log is None or tool is None:
        if not type(error).__module__.startswith("triton.compiler"):
            return None
        log, tool = str(error), "triton"
    return build_error(str(tool), str(log))


def execution_failure(error: BaseException) -> Verdict | None:
    """The verdict on an error by which an executor tells that a kernel hung or broke: its `kind` is that of the verdict."""
    if (kind := getattr(error, "kind", None)) not in ("hang", "device_error"):
        return None
    text = str(error).partition("\n")[0]
    evidence = Evidence(error=normalise(text), log=str(error)[-MAX_LOG:], alive=kind == "device_error")
    return Verdict(str(kind), text, evidence)


def _wrong_metadata(message: str, error: str = "") -> Attempt:
    return Attempt(Verdict("wrong_metadata", message, Evidence(error=normalise(error or message))))


def _memory_verdict(changed: dict[str, Any]) -> Verdict:
    where = f"byte {changed['byte']} of storage {changed['storage']}, {changed['count']} bytes in all"
    if changed["what"] == "input":
        return Verdict("changed_input", f"changed its input {changed['tensor']} ({where})")
    return Verdict("wrote_outside", f"wrote outside its output ({where})")
