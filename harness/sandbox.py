"""Judging in a child process that may die or hang. The parent holds the truth and never touches CUDA.

A child is spawned (never forked: CUDA does not survive it). When it dies, hangs or loses its device, it is killed and
its pipes with it, since a late reply would answer the next question; the event becomes a verdict, and the next child
takes over. From the first such event on, a spare child is kept warm, so that a kernel that dies on every call does not
cost an import of torch each time.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

from harness import operators, protocol
from harness.case import Build, Case, CaseError, Params
from harness.child import Child, environment_for
from harness.interesting import Unit
from harness.journal import Journal
from harness.limits import Limits
from harness.mismatch import Mismatch
from harness.normalise import normalise
from harness.protocol import (
    Builds,
    Calling,
    Environment,
    Failed,
    Inspected,
    Judged,
    Prepared,
    Reply,
    Request,
    Unfit,
    Units,
    Unusable,
)
from harness.verdict import Evidence, Verdict, skip

HISTORY = 17
"""Cases that are remembered: the last one, and the sixteen that may have led to it."""

GROWTH = 512 << 20
"""Bytes that compilations may leave behind in a child before another takes over: compilers leak."""

PATIENCE = 5
"""How many times its limit a call may take by the clock while it uses no processor time."""


class HarnessError(RuntimeError):
    """The harness itself failed: a bug in it, or a machine that cannot hold the case. Never a finding."""


class UnusableImplementation(ValueError):
    """An implementation that cannot be loaded; the message is one line for the user."""


class Engine:
    """Judges cases and builds on one device, through one child at a time.

    device: "cpu" or "cuda". build_only: the child compiles; Triton's interpreter, which cannot, is off.
    visible: CUDA_VISIBLE_DEVICES of the child; None inherits.
    """

    def __init__(
        self,
        device: str,
        *,
        build_only: bool = False,
        limits: Limits | None = None,
        journal: Journal | None = None,
        visible: str | None = None,
    ) -> None:
        self.device = device
        self.limits = limits or Limits()
        self.journal = journal
        self.timing: dict[str, float] = defaultdict(float)
        self.deaths = 0
        self.failures = 0
        """Cases that the harness itself failed on: bugs of its own, told in `warnings`."""
        self.history: deque[Case] = deque(maxlen=HISTORY)
        """What the present child has judged last, oldest first."""
        self._built: int | None = None
        """The present child's memory after its first compilation; None before."""
        self.warnings: list[str] = []
        """What a person should hear of, one line each; whoever reads them takes them out."""
        self._compiled: set[tuple[str, str]] = set()
        """(spec, variant) that have run: their binaries are in some cache now."""
        self._compiles: set[str] = set()
        """Specs whose CUDA kernels are compiled for the CPU."""
        self.fastest = 0.0
        """Seconds of the fastest call of the kernel that was judged last; 0 when there was none."""
        self.forbidden: str | None = None
        """Why the call that was judged last must raise; None when it is legal."""
        self.mismatch: Mismatch | None = None
        """What the output judged last looks like; None where no picture was asked for, or nothing is wrong with a value."""
        self._environment = environment_for(device, build_only, visible)
        self._child: Child | None = None
        self._spare: Child | None = None

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the children and the journal."""
        for child in (self._child, self._spare):
            if child is not None:
                child.end()
        self._child = self._spare = None
        if self.journal is not None:
            self.journal.close()
            self.journal = None

    def fresh(self) -> None:
        """Go on in a process that has judged nothing."""
        if self._child is not None and (self.history or self._built is not None):
            self._child.end()
            self._child = None
        self.history.clear()

    def inspect(self, operator: str, spec: str) -> Inspected:
        """What an implementation is. Raises UnusableImplementation when it cannot be loaded."""
        reply = self._ask(protocol.Inspect(operator, spec, self.device), self.limits.start)
        assert isinstance(reply, Inspected)
        if reply.executes:
            self._compiles.add(spec)
        return reply

    def environment(self) -> dict[str, str]:
        """Versions and device, as the child sees them."""
        reply = self._ask(protocol.DescribeEnvironment(self.device), self.limits.start)
        assert isinstance(reply, Environment)
        return reply.found

    def builds(self, operator: str, spec: str, params: Params) -> tuple[Build, ...]:
        """Every compilation that calls with these parameters can need."""
        reply = self._ask(protocol.ListBuilds(operator, spec, params), self.limits.start)
        assert isinstance(reply, Builds)
        return reply.builds

    def units(self, build: Build, spec: str) -> tuple[Unit, ...]:
        """What a build hands to its compiler. Raises UnusableImplementation where it keeps that to itself."""
        reply = self._ask(protocol.ListUnits(build, spec), self.limits.start)
        assert isinstance(reply, Units)
        return reply.units

    def judge(
        self, case: Case, specs: Sequence[str], *, pairs: int = 1, sure: bool = True, picture: bool = False
    ) -> list[Verdict]:
        """One verdict for each implementation, in order (`pairs`, `sure` and `picture` are `Judge.judge`'s).

        Raises CaseError for a case that says something impossible, HarnessError when a fresh process cannot make it.
        """
        verdicts: list[Verdict] = []
        if self.journal is not None:
            self.journal.begin(case, tuple(specs), self.device)
        while len(verdicts) < len(specs):
            verdicts += self._judge_some(protocol.JudgeCase(case, tuple(specs[len(verdicts) :]), pairs, sure, picture))
        if self.journal is not None:
            self.journal.end()
        return verdicts

    def build(self, build: Build, spec: str) -> Verdict:
        """Compile one variant."""
        if self.journal is not None:
            self.journal.begin(build, (spec,), self.device)
        if self._child is not None and self._built is not None and self._child.memory() > self._built + GROWTH:
            self.fresh()
        child = self._send(protocol.JudgeBuild(build, spec)) or self._send(protocol.JudgeBuild(build, spec))
        if child is None:
            raise HarnessError("two processes died before they were asked anything")
        reply = self._receive(child, self.limits.build)
        if self.journal is not None:
            self.journal.end()
        if isinstance(reply, Judged):
            if self._built is None:
                self._built = child.memory()
            return reply.verdict
        died, evidence = self._bury(child, reply)
        return Verdict("build_crash" if died else "build_timeout", f"the compiler {evidence.error}", evidence)

    def _judge_some(self, request: protocol.JudgeCase) -> list[Verdict]:
        """Judge until the child is lost. Nothing when a used process failed before an implementation ran: try again."""
        start = time.perf_counter()
        case, specs = request.case, request.specs
        used = bool(self.history)
        self.forbidden = self.mismatch = None
        child = self._send(request)
        reply = self._receive(child, self.limits.start) if child is not None else None
        if isinstance(reply, Unfit):
            if reply.retry and used:
                self.fresh()
                return []
            if reply.retry:
                return [skip(f"cannot be made here: {reply.reason}")] * len(specs)
            raise CaseError(f"the case cannot be made: {reply.reason}")
        if child is None or not isinstance(reply, Prepared):
            evidence = self._bury(child, reply)[1] if child is not None else Evidence(error="died")
            if not used:
                raise HarnessError(f"the case could not be made: the process {evidence.error}\n{evidence.log}")
            # What ran before has done it: a heap that was corrupted, a timer that went off.
            self.warnings.append(f"a process {evidence.error} between two cases; the one before may be to blame")
            return []
        self.forbidden = reply.forbidden
        verdicts: list[Verdict] = []
        inside: dict[str, float] = {}
        self.fastest = 0.0
        for spec in specs:
            variant = (spec, _variant(case))
            may_compile = (self.device != "cpu" or spec in self._compiles) and variant not in self._compiled
            self._compiled.add(variant)
            try:
                reply = self._await_verdict(child, self.limits.first_call if may_compile else 0)
            except HarnessError as error:
                # A night of fuzzing must not end at one case; whoever runs it hears of it, and of how many there were.
                self.failures += 1
                self.warnings.append(
                    f"the harness failed, not a kernel: {telling_line(error)} on {case.key().decode()}"
                )
                verdicts.append(skip(f"the harness failed: {telling_line(error)}"))
                child.end()
                self._child = None
                break
            if not isinstance(reply, Judged):
                died, evidence = self._bury(child, reply)
                verdicts.append(Verdict("process_died" if died else "hang", f"the process {evidence.error}", evidence))
                break
            verdicts.append(reply.verdict)
            inside, self.fastest, self.mismatch = reply.timing, reply.fastest, reply.mismatch
            if reply.broken:
                self._bury(child, reply)
                break
        else:
            self.history.append(case)
        for what, seconds in inside.items():
            self.timing[what] += seconds
        self.timing["piping"] += max(0.0, time.perf_counter() - start - sum(inside.values()))
        return verdicts

    def _await_verdict(self, child: Child, extra: float) -> Reply | str | None:
        """The next reply that is not Calling; every call has its own time, the first one `extra` seconds more."""
        reply = self._receive(child, self.limits.run)
        while isinstance(reply, Calling):
            reply = self._receive(child, self.limits.run + extra)
            extra = 0
        return reply

    def _ask(self, request: Request, limit: float) -> Reply:
        child = self._send(request) or self._send(request)
        if child is None:
            raise HarnessError("two processes died before they were asked anything")
        reply = self._receive(child, limit)
        if reply is None or isinstance(reply, str):
            _, evidence = self._bury(child, reply)
            raise HarnessError(f"a child process {evidence.error}\n{evidence.log}")
        return reply

    def _send(self, request: Request) -> Child | None:
        """Ask the child something. None when it turns out to be dead; the next call starts another."""
        child = self._child
        if child is None:
            child = self._child = self._spare or Child(self.device, self._environment)
            self._spare = None
            self._built = None
            self.history.clear()
        if self.deaths and self._spare is None:
            self._spare = Child(self.device, self._environment)
        try:
            child.requests.send_bytes(protocol.encode(request))
        except OSError:
            self._bury(child, None)
            return None
        return child

    def _receive(self, child: Child, limit: float) -> Reply | str | None:
        """A reply; None when the child is dead, "late" when it says nothing in time."""
        try:
            if not self._in_time(child, limit):
                return "late"
            reply = protocol.decode_reply(child.replies.recv_bytes())
        except (EOFError, OSError):
            return None
        if isinstance(reply, Failed):
            raise HarnessError(reply.text)
        if isinstance(reply, Unusable):
            raise UnusableImplementation(reply.reason)
        return reply

    def _in_time(self, child: Child, limit: float) -> bool:
        """Wait for a reply. On the CPU the limit is of the child's own CPU time: a busy machine is no hang (a child that
        sleeps gets `PATIENCE` times the limit). While a compiler that it started is at work, a build's limit applies."""
        start, used = time.monotonic(), child.cpu_seconds()
        while not child.replies.poll(limit if self.device != "cpu" else limit / 4):
            waited = time.monotonic() - start
            if waited < self.limits.build and child.compiles():
                continue
            if waited >= limit and (self.device != "cpu" or child.cpu_seconds() - used >= limit):
                return False
            if waited >= limit * PATIENCE:
                return False
        return True

    def _bury(self, child: Child, reply: Any) -> tuple[bool, Evidence]:
        """Take a lost child away. Returns whether it died of itself, and what speaks for that."""
        how, log = child.bury(hung=reply == "late")
        self._child = None
        self.deaths += 1
        if reply == "late":
            return False, Evidence(error="did not come back in time", log=log)
        return True, Evidence(error=normalise(f"died of {how}", 80), log=log)


def _variant(case: Case) -> str:
    """What selects another binary, roughly. Only a longer time limit depends on it."""
    try:
        params = operators.get(case.operator).build_params(case)
    except (KeyError, ValueError):  # no such operator, or no such call: whoever makes it says so
        params = {}
    dtypes = sorted(view.dtype for view in case.tensors.values())
    return repr((params, case.tuning, case.checks, dtypes))


def telling_line(error: BaseException) -> str:
    """The line of an error's text that says most: the last one of a traceback, the first of anything else."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1 if lines[0].startswith("Traceback") else 0]
