"""What changed between two runs, beyond the noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from harness.bench.report import Report, Result
from harness.bench.timing import Timing

LEAST = 0.03
"""A change of the median by less is noise: runs of one kernel differ by that much from process to process."""

RULE = (
    f"a time counts as changed when its median is another by more than {LEAST:.0%} and the two runs' ranges from quartile to "
    "quartile do not touch"
)

_MATTERS = ("gpu", "driver", "torch", "triton", "cuda", "capability")

Kind = Literal["faster", "slower", "more memory", "less memory", "broke", "mended"]
WORSE = ("slower", "more memory", "broke")


class Change(NamedTuple):
    """old, new: medians in seconds, bytes of extra memory, or why there is no time."""

    kind: Kind
    operator: str
    workload: str
    name: str
    what: str
    old: float | str
    new: float | str


def changed(old: Timing, new: Timing) -> Literal["faster", "slower"] | None:
    """By the rule of `RULE`."""
    if abs(new.median / old.median - 1) <= LEAST:
        return None
    if new.high < old.low:
        return "faster"
    return "slower" if new.low > old.high else None


def changes(old: Report, new: Report) -> Iterator[Change]:
    """Of every configuration that both runs have."""
    for result in new.results:
        before = old.result(result.operator, result.workload, result.name)
        if before is not None:
            yield from _changes(before, result)


def _changes(old: Result, new: Result) -> Iterator[Change]:
    at = (new.operator, new.workload, new.name)
    if (old.status == "measured") != (new.status == "measured"):
        was, now = (r.status if r.status == "measured" else f"{r.status}: {r.why}" for r in (old, new))
        yield Change("mended" if new.status == "measured" else "broke", *at, "status", was, now)
        return
    for what, a, b in (("cold", old.cold, new.cold), ("warm", old.warm, new.warm)):
        if a is not None and b is not None and (kind := changed(a, b)) is not None:
            yield Change(kind, *at, what, a.median, b.median)
    if old.extra is not None and new.extra is not None and old.extra != new.extra:
        yield Change("more memory" if new.extra > old.extra else "less memory", *at, "extra", old.extra, new.extra)


def ceilings(old: Report, new: Report) -> Iterator[Change]:
    """Where the machine itself was faster or slower: every other change has to be read with that in mind."""
    for floor in new.floors:
        before = old.floor(floor.operator, floor.workload)
        if before is not None and (kind := changed(before.copy_cold, floor.copy_cold)) is not None:
            at = (floor.operator, floor.workload, "copy")
            yield Change(kind, *at, "cold", before.copy_cold.median, floor.copy_cold.median)


def machines(old: Report, new: Report) -> list[str]:
    """In what the machines or their software differ, of what bears on times."""
    pairs = ((name, old.machine.get(name, "?"), new.machine.get(name, "?")) for name in _MATTERS)
    return [f"{name} {a} -> {b}" for name, a, b in pairs if a != b]


def compared(old: Report, new: Report) -> int:
    """Configurations that both have."""
    return sum(old.result(r.operator, r.workload, r.name) is not None for r in new.results)
