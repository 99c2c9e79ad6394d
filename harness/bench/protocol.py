"""What the bench and its child say to each other: one struct a message, msgpack, over a pair of pipes."""

from __future__ import annotations

import msgspec

from harness.bench.report import Floor, Result
from harness.bench.workload import Workload


class Describe(msgspec.Struct, tag="describe"):
    """Answered by Machine."""


class Inspect(msgspec.Struct, tag="inspect"):
    """What an implementation is called, and whether it can run here. Answered by Inspected or Unusable."""

    operator: str
    spec: str


class MeasureFloor(msgspec.Struct, tag="floor"):
    """Answered by FloorIs."""

    workload: Workload
    seconds: float
    seed: int


class Measure(msgspec.Struct, tag="measure"):
    """Judge and time one configuration. Answered by Measured. spec: an implementation's, or a competitor's name."""

    workload: Workload
    spec: str
    seconds: float
    seed: int
    warm: bool = True


class Machine(msgspec.Struct, tag="machine"):
    found: dict[str, str]


class Inspected(msgspec.Struct, tag="inspected"):
    name: str
    cannot_run: str | None


class Unusable(msgspec.Struct, tag="unusable"):
    reason: str


class Doing(msgspec.Struct, tag="doing"):
    """What it does now, before a reply; the clock starts anew. A first call may compile, which takes longer."""

    what: str
    may_compile: bool = False


class FloorIs(msgspec.Struct, tag="floor_is"):
    floor: Floor


class Measured(msgspec.Struct, tag="measured"):
    """last: the process has lost its device, or cannot be trusted with another capture, and ends."""

    result: Result
    last: bool = False


class Failed(msgspec.Struct, tag="failed"):
    """The harness itself failed."""

    text: str


Request = Describe | Inspect | MeasureFloor | Measure
Reply = Machine | Inspected | Unusable | Doing | FloorIs | Measured | Failed

encode = msgspec.msgpack.encode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode
