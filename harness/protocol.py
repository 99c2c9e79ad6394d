"""What the sandbox and its child say to each other: one struct a message, msgpack, over a pair of pipes."""

from __future__ import annotations

import msgspec

from harness.case import Build, Case, Params
from harness.interesting import Unit
from harness.mismatch import Mismatch
from harness.verdict import Verdict


class Inspect(msgspec.Struct, tag="inspect"):
    """Load an implementation and say what it is. Answered by Inspected or Unusable."""

    operator: str
    spec: str
    device: str


class JudgeCase(msgspec.Struct, tag="case"):
    """Judge a case on several implementations. Answered by Prepared, then for each, in order, some Calling and one Judged."""

    case: Case
    specs: tuple[str, ...]
    pairs: int
    sure: bool = True
    picture: bool = False
    """Whether Judged also brings what the wrong output looks like."""


class JudgeBuild(msgspec.Struct, tag="build"):
    """Compile one variant. Answered by one Judged."""

    build: Build
    spec: str


class ListBuilds(msgspec.Struct, tag="list_builds"):
    """Which compilations calls with these parameters can need. Answered by Builds."""

    operator: str
    spec: str
    params: Params


class ListUnits(msgspec.Struct, tag="list_units"):
    """What a build hands to its compiler. Answered by Units or Unusable."""

    build: Build
    spec: str


class DescribeEnvironment(msgspec.Struct, tag="environment"):
    """Answered by Environment."""

    device: str


class Inspected(msgspec.Struct, tag="inspected"):
    name: str
    can_build: bool
    executes: bool
    """Whether CUDA kernels run on the CPU here, in an order and under checks that a case chooses."""
    cannot_run: str | None
    """Why no call at all can run on this device (only its builds are checked), or None."""
    tunings: int = 1
    """How many choices `Case.tuning` has."""


class Unusable(msgspec.Struct, tag="unusable"):
    """No such implementation, or its file cannot be imported."""

    reason: str


class Prepared(msgspec.Struct, tag="prepared"):
    """Data and contract of the case are made; from here on it is the implementation that runs."""

    forbidden: str | None = None
    """Why the call must raise, or None when it is legal."""


class Unfit(msgspec.Struct, tag="unfit"):
    """The case cannot be made here: it says something impossible, or does not fit in memory."""

    reason: str
    retry: bool
    """A process that has judged nothing may fare better: memory can have leaked."""


class Calling(msgspec.Struct, tag="calling"):
    """The implementation is about to be called, once: the clock of that call starts."""


class Judged(msgspec.Struct, tag="judged"):
    verdict: Verdict
    timing: dict[str, float] = {}
    """Seconds: data, oracle, kernel, compare; for the case so far."""
    fastest: float = 0.0
    """Seconds of the implementation's fastest call; 0 where there was none."""
    broken: bool = False
    """The process lost its device and ends."""
    mismatch: Mismatch | None = None


class Builds(msgspec.Struct, tag="builds"):
    builds: tuple[Build, ...]


class Units(msgspec.Struct, tag="units"):
    units: tuple[Unit, ...]


class Environment(msgspec.Struct, tag="environment_is"):
    found: dict[str, str]


class Failed(msgspec.Struct, tag="failed"):
    """The harness itself failed; a bug in it, never a finding."""

    text: str


Request = Inspect | JudgeCase | JudgeBuild | ListBuilds | ListUnits | DescribeEnvironment
Reply = Inspected | Unusable | Unfit | Prepared | Calling | Judged | Builds | Units | Environment | Failed

encode = msgspec.msgpack.encode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode
