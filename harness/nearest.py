"""Which entries of a corpus are nearest to one, and what tells them apart: is it known, in another kernel or dtype?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.case import ITEMSIZE, Build, Subject
from harness.corpus import Entry

KIND, WORDS, IMPLEMENTATION, TRAIT, PARAMETER = 8, 4, 4, 2, 1
"""What each difference adds to the distance: the kind of failure; what it says, where both are of one kind; the
implementation; a trait that one has and the other has not; a parameter of the case that is not the same."""


@dataclass(frozen=True)
class Neighbour:
    """An entry near another. differences: in words, the weightiest first. remark: what they suggest, or ""."""

    path: Path
    entry: Entry
    distance: int
    differences: tuple[str, ...]
    remark: str


def nearest(entry: Entry, others: Iterable[tuple[Path, Entry]], count: int = 3) -> list[Neighbour]:
    """The nearest of the other entries of the operator; the entry itself, by its signature, is none of them."""
    found = [
        _compared(entry, path, other)
        for path, other in others
        if other.signature.operator == entry.signature.operator and other.signature != entry.signature
    ]
    return sorted(found, key=lambda neighbour: (neighbour.distance, str(neighbour.entry.signature)))[:count]


def _compared(entry: Entry, path: Path, other: Entry) -> Neighbour:
    ours, theirs = entry.signature, other.signature
    distance, differences = 0, []
    if ours.kind != theirs.kind:
        distance += KIND
        differences.append(f"{theirs.kind} instead of {ours.kind}")
    elif ours.error != theirs.error:
        distance += WORDS
        differences.append(f"says {theirs.error!r}" if theirs.error else "says nothing")
    if ours.implementation != theirs.implementation:
        distance += IMPLEMENTATION
        differences.append(f"of {theirs.implementation}")
    traits = _parted(ours.traits, theirs.traits)
    distance += TRAIT * len(set(ours.traits) ^ set(theirs.traits))
    differences += traits
    parameters = _parameters(entry.subject, other.subject)
    distance += PARAMETER * len(parameters)
    differences += parameters
    return Neighbour(path, other, distance, tuple(differences), _remark(entry, other))


def _parted(ours: tuple[str, ...], theirs: tuple[str, ...]) -> list[str]:
    more = [trait for trait in theirs if trait not in ours]
    fewer = [trait for trait in ours if trait not in theirs]
    return [*([f"with {', '.join(more)}"] if more else []), *([f"without {', '.join(fewer)}"] if fewer else [])]


def _parameters(ours: Subject, theirs: Subject) -> list[str]:
    if isinstance(ours, Build) != isinstance(theirs, Build):
        return ["a build" if isinstance(theirs, Build) else "a call"]
    mine, yours = dict(ours.params), dict(theirs.params)
    if isinstance(ours, Build) and isinstance(theirs, Build):
        mine["arch"], yours["arch"] = ours.arch, theirs.arch
    names = [name for name in {**mine, **yours} if _spelled(mine, name) != _spelled(yours, name)]
    return [f"{name} {_spelled(yours, name)} instead of {_spelled(mine, name)}" for name in names]


def _spelled(params: dict[str, object], name: str) -> str:
    return repr(params[name]) if name in params else "not given"


def _remark(entry: Entry, other: Entry) -> str:
    """What to look at first."""
    ours, theirs = entry.signature, other.signature
    alike = (ours.kind, ours.error) == (theirs.kind, theirs.error)
    apart = set(ours.traits) ^ set(theirs.traits)
    if ours.implementation != theirs.implementation:
        if alike and not apart:
            return "the same failure in another implementation: perhaps the same slip in both"
        return "the same kind in another implementation" if alike else ""
    if other.status == "fixed" and ours.kind == theirs.kind:
        return "fixed before: perhaps it came back in another form"
    if not alike:
        return "another failure of the same calls: perhaps one cause" if ours.traits == theirs.traits != () else ""
    if apart <= set(ITEMSIZE):
        return (
            f"the same but for {', '.join(t for t in theirs.traits if t in apart)}: perhaps one bug of two code paths"
        )
    if set(ours.traits) < set(theirs.traits) or set(ours.traits) > set(theirs.traits):
        return "one needs a feature more: perhaps it is the other in its clothes"
    return "the same kind, from other features"
