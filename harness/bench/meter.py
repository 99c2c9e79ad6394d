"""The parent's side of measuring: one child at a time, replaced when it dies or hangs. Never touches CUDA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.bench import protocol
from harness.bench.protocol import (
    Describe,
    Doing,
    Failed,
    FloorIs,
    Inspect,
    Inspected,
    Machine,
    Measure,
    Measured,
    MeasureFloor,
    Reply,
    Request,
    Unusable,
)
from harness.bench.report import Floor, Result, Status
from harness.bench.workload import Workload
from harness.child import Child, environment_for
from harness.sandbox import HarnessError, UnusableImplementation

MODULE = "harness.bench.measure"


@dataclass(frozen=True)
class Patience:
    """Seconds until a child counts as hung: `step` for judging or one time, `first` where something may be compiled (some
    competitors take minutes for that), `start` until it says its first word."""

    step: float = 60.0
    first: float = 600.0
    start: float = 180.0


class Lost(Exception):
    """The child is gone. status: "died" or "hang"."""

    def __init__(self, status: Status, why: str, log: str) -> None:
        super().__init__(why)
        self.status, self.why, self.log = status, why, log


class Meter:
    """Measures on "cuda" (or, to try the harness, "cpu"). tell: is told what is being done, in a word or two."""

    def __init__(
        self,
        device: str,
        *,
        patience: Patience | None = None,
        visible: str | None = None,
        tell: Callable[[str], None] = lambda doing: None,
    ) -> None:
        self.device = device
        self.patience = patience or Patience()
        self.tell = tell
        self.deaths = 0
        self._environment = environment_for(device, False, visible)
        self._child: Child | None = None

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None

    def machine(self) -> dict[str, str]:
        """Versions and device. Raises HarnessError where the device does not start."""
        reply = self._sure(Describe())
        assert isinstance(reply, Machine)
        return reply.found

    def inspect(self, operator: str, spec: str) -> Inspected:
        """What an implementation is. Raises UnusableImplementation when it cannot be loaded."""
        reply = self._sure(Inspect(operator, spec))
        if isinstance(reply, Unusable):
            raise UnusableImplementation(reply.reason)
        assert isinstance(reply, Inspected)
        return reply

    def floor(self, workload: Workload, seconds: float, seed: int) -> Floor:
        """The ceilings for a workload. Raises HarnessError."""
        reply = self._sure(MeasureFloor(workload, seconds, seed))
        assert isinstance(reply, FloorIs)
        return reply.floor

    def measure(self, request: Measure, name: str) -> Result:
        """One configuration; name: what the implementation is called. A child that is lost is a result."""
        try:
            reply = self._ask(request)
        except Lost as lost:
            return Result(
                request.workload.operator, request.workload.name, name, lost.status, why=lost.why, log=lost.log
            )
        assert isinstance(reply, Measured)
        if reply.last:
            self._bury(False)
        return reply.result

    def _sure(self, request: Request) -> Reply:
        try:
            return self._ask(request)
        except Lost as lost:
            raise HarnessError(f"the measuring process {lost.why}\n{lost.log}".strip()) from None

    def _ask(self, request: Request) -> Reply:
        child = self._child or Child(self.device, self._environment, module=MODULE)
        self._child = child
        try:
            child.requests.send_bytes(protocol.encode(request))
        except OSError:  # it died after its last answer, which is not this request's fault
            self._bury(False)
            child = self._child = Child(self.device, self._environment, module=MODULE)
            child.requests.send_bytes(protocol.encode(request))
        limit, what = self.patience.start, "starting"
        while True:
            try:
                if not child.replies.poll(limit):
                    raise self._bury(True, f"{what}: no end in {limit:.0f} s")
                reply = protocol.decode_reply(child.replies.recv_bytes())
            except (EOFError, OSError):
                raise self._bury(False, what) from None
            if isinstance(reply, Failed):
                raise HarnessError(reply.text)
            if not isinstance(reply, Doing):
                return reply
            what = reply.what
            self.tell(what)
            limit = self.patience.first if reply.may_compile else self.patience.step

    def _bury(self, hung: bool, what: str = "") -> Lost:
        child = self._child
        assert child is not None
        how, log = child.bury(hung=hung)
        self._child = None
        self.deaths += 1
        if hung:
            return Lost("hang", what, log)
        return Lost("died", f"died of {how} ({what})", log)
