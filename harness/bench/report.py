"""What a run of the bench found: pure data, and its JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from harness import files
from harness.bench.timing import Timing
from harness.bench.workload import Cost
from harness.case import CaseError

FORMAT = 1
MAX_REPORT = 64 << 20
"""Bytes of a report's file."""

Status = Literal["measured", "wrong", "failed", "unsupported", "died", "hang"]


class Result(msgspec.Struct, frozen=True):
    """One configuration.

    status: measured, or why there is no time: its result is wrong (which `why` tells), it raised or the device failed, the
    workload is not for it, or its process died or hung. extra: bytes of device memory beyond the inputs, or None.
    judged: how much of the result was. ratio: the largest |error| / bound seen; 0 where the operator is exact.
    """

    operator: str
    workload: str
    name: str
    status: Status
    why: str = ""
    cold: Timing | None = None
    warm: Timing | None = None
    extra: int | None = None
    judged: str = ""
    ratio: float = 0.0
    log: str = ""


class Floor(msgspec.Struct, frozen=True):
    """What a workload costs at least on this machine, from ceilings of the same run.

    copy_cold, copy_warm: of a copy of as many bytes as `cost` has read and written. flops: operations a second of a matrix
    product, 0 where the workload has none.
    """

    operator: str
    workload: str
    cost: Cost
    copy_cold: Timing
    copy_warm: Timing | None = None
    flops: float = 0.0
    against: str = ""

    def seconds(self, warm: bool = False) -> float | None:
        """The least time of a call: of its bytes or of its operations, whichever is more."""
        copy = self.copy_warm if warm else self.copy_cold
        if copy is None:
            return None
        return max(copy.median, self.cost.flops / self.flops if self.flops else 0.0)


class Settings(msgspec.Struct, frozen=True):
    """How a run was asked for. baseline: operator -> name."""

    baseline: dict[str, str] = {}
    seconds: float = 0.0
    seed: int = 0


class Report(msgspec.Struct):
    """A run. complete: it was not ended early."""

    machine: dict[str, str]
    settings: Settings
    floors: list[Floor] = []
    results: list[Result] = []
    complete: bool = False
    format: int = FORMAT

    def floor(self, operator: str, workload: str) -> Floor | None:
        return next((f for f in self.floors if (f.operator, f.workload) == (operator, workload)), None)

    def result(self, operator: str, workload: str, name: str) -> Result | None:
        wanted = (operator, workload, name)
        return next((r for r in self.results if (r.operator, r.workload, r.name) == wanted), None)

    def operators(self) -> list[str]:
        return list(dict.fromkeys(floor.operator for floor in self.floors))

    def workloads(self, operator: str) -> list[Floor]:
        return [floor for floor in self.floors if floor.operator == operator]

    def of(self, floor: Floor) -> list[Result]:
        """The results of one workload, in the order they were measured in."""
        return [r for r in self.results if (r.operator, r.workload) == (floor.operator, floor.workload)]

    def bad(self) -> Iterator[Result]:
        """Configurations that should have a time and have none."""
        return (r for r in self.results if r.status in ("wrong", "failed", "died", "hang"))


def fraction(report: Report, result: Result, *, warm: bool = False) -> float | None:
    """How much of the floor's speed a configuration reaches: 1 is the floor itself."""
    floor = report.floor(result.operator, result.workload)
    timing = result.warm if warm else result.cold
    least = floor.seconds(warm) if floor else None
    return least / timing.median if least is not None and timing is not None else None


def against_baseline(report: Report, result: Result) -> float | None:
    """Cold time as a multiple of the baseline's; None without one, or for itself."""
    name = report.settings.baseline.get(result.operator)
    base = report.result(result.operator, result.workload, name) if name else None
    if base is None or base.cold is None or result.cold is None or base.name == result.name:
        return None
    return result.cold.median / base.cold.median


def against_plain(report: Report, result: Result) -> float | None:
    """Cold time as a multiple of the same implementation's on the plain workload of the same shape."""
    floor = report.floor(result.operator, result.workload)
    if floor is None or not floor.against or result.cold is None:
        return None
    plain = report.result(result.operator, floor.against, result.name)
    return result.cold.median / plain.cold.median if plain is not None and plain.cold is not None else None


def rate(floor: Floor, timing: Timing) -> tuple[float, str]:
    """What a call reaches: operations a second where it has products, bytes a second elsewhere; and the unit."""
    if floor.cost.flops:
        return floor.cost.flops / timing.median, "FLOP/s"
    return (floor.cost.read + floor.cost.written) / timing.median, "B/s"


def write(path: Path, report: Report) -> None:
    """As JSON, whole or not at all."""
    files.write_for_user(path, msgspec.json.format(msgspec.json.encode(report)) + b"\n")


def read(path: Path) -> Report:
    """A report that `write` wrote. Raises CaseError, in one line that names the file."""
    data = files.read(path, MAX_REPORT, "a report")
    try:
        found = msgspec.json.decode(data, type=Report)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CaseError(f"{path}: no report of `warpcheck bench --json`: {error}") from None
    if found.format != FORMAT:
        raise CaseError(f"{path}: a report of format {found.format}; this version reads format {FORMAT}")
    if bad := next((t for t in _timings(found) if not (t.median > 0 and math.isfinite(t.median))), None):
        raise CaseError(f"{path}: a time of {bad.median} s is none")
    return found


def _timings(report: Report) -> Iterator[Timing]:
    every: Iterable[Any] = [t for r in report.results for t in (r.cold, r.warm)]
    every = [*every, *(t for f in report.floors for t in (f.copy_cold, f.copy_warm))]
    return (timing for timing in every if timing is not None)
