"""Single steps from a case towards the plainest call: a feature off, a dimension smaller, a fill simpler.

A step is a whole candidate case. They know only views, dimension names and the operator's own `simpler`, and so work on any
case, drawn or written by hand. Each lowers some measure; none is the inverse of another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from harness import features, operators
from harness.case import Case, Fill, Planted, View, contiguous
from harness.fill import KINDS
from harness.resize import resized, sizes
from harness.strategies import Layout
from harness.values import PLAIN_FILLS, filled, is_explicit, sliced

Step = tuple[str, Case]
"""What it takes away, in a few words, and what is left."""


def all_steps(case: Case) -> Iterator[Step]:
    """Every single step from a case, the ones that take away most first."""
    yield from size_steps(case, least=COARSE)  # first, since every later judgement costs what the case is large
    yield from feature_steps(case)
    yield from size_steps(case)
    yield from fill_steps(case)
    yield from lower_steps(case)


PLAIN_SCHEDULES = 4
"""In order, and so many seeds less one: an order that matters is most often found again among the first few."""

COARSE = 4
"""No dimension gets smaller before features are off: with one key or one row, a bug may show in one place alone, and seem to
need the feature that makes the place visible."""


def feature_steps(case: Case) -> Iterator[Step]:
    """Turn one feature off: the operator's own, a shared storage, a layout."""
    for simple in operators.get(case.operator).simpler(case):
        yield _told(case, simple), simple
    for simpler in range(case.tuning):
        yield "tuning", replace(case, tuning=simpler)
    for simpler in range(min(case.schedule, PLAIN_SCHEDULES)):
        yield "schedule", replace(case, schedule=simpler)
    for name, view in case.tensors.items():
        others = [v for n, v in case.tensors.items() if n != name and v.storage == view.storage]
        if others:
            own = View(len(case.storages), view.dtype, view.shape, contiguous(view.shape))
            yield f"{name} shares memory", _with(case, name, own)
        for layout in PLAINER:
            if layout == _layout_of(view):
                break
            yield f"layout of {name}", _with(case, name, layout.view(view.storage, view.dtype, view.shape))
        if view.offset:
            yield f"offset of {name}", _with(case, name, replace(view, offset=0))


def _told(case: Case, simple: Case) -> str:
    """What the operator took away: words that no longer hold, or the parameter that changed."""
    gone = [word for word in features.traits(case) if word not in features.traits(simple)]
    changed = [name for name in case.params if case.params[name] != simple.params.get(name)]
    if gone or len(changed) != 1:
        return ", ".join(gone) or "a feature of the call"
    name = changed[0]
    return f"{name} {case.params[name]} -> {simple.params[name]}" if name in simple.params else name


PLAINER = (
    Layout(),
    Layout(pad=1),
    Layout(inner=1),
    Layout(step=2),
    Layout(turned=True),
    Layout(offset=1),
    Layout(expanded=True),
    Layout(pad=-1),
)
"""Layouts from the plainest: a fault that shows for several of them ends at the first, whichever it was found with."""


def _layout_of(view: View) -> Layout | None:
    """The entry of PLAINER that gives this view, if one does."""
    return next((p for p in PLAINER if p.view(view.storage, view.dtype, view.shape) == view), None)


def size_steps(case: Case, *, least: int = 1) -> Iterator[Step]:
    """Make one dimension smaller in every tensor that has it."""
    for name, size, smaller in _smaller(case, least):
        yield f"{name} {size} -> {smaller}", sliced(case, name, range(smaller))


def _smaller(case: Case, least: int) -> Iterator[tuple[str, int, int]]:
    """(dimension, its size, a smaller one): `least` or 2, a half, a quarter less, one less."""
    for name, size in sizes(case, operators.get(case.operator).dimensions(case)).items():
        for smaller in dict.fromkeys((least, 2, size // 2, size - size // 4, size - 1)):
            if least <= smaller < size:
                yield name, size, smaller


def lower_steps(case: Case) -> Iterator[Step]:
    """Make one dimension smaller, and every larger whole number by as much: what is compared to a size has to fall together
    with it, as a k with its row."""
    for name, size, smaller in _smaller(case, 1):
        step = sliced(case, name, range(smaller))
        if (lower := _lowered(step, size - smaller)) != step:
            yield f"{name} {size} -> {smaller}", lower


def _lowered(case: Case, by: int) -> Case:
    """The case with every whole number that is larger than `by` less by it: parameters, and values of integer tensors."""

    def less(value: Any) -> Any:
        return value - by if type(value) is int and value > by else value

    fills = {
        name: replace(fill, values=tuple(map(less, fill.values))) if "int" in case.tensors[name].dtype else fill
        for name, fill in case.fills.items()
    }
    return replace(case, params={name: less(value) for name, value in case.params.items()}, fills=fills)


def empty_steps(case: Case) -> Iterator[Step]:
    """Make one dimension zero. No reduction does: a call without elements is a case of its own, not a smaller one."""
    dimensions = operators.get(case.operator).dimensions(case)
    for name in sizes(case, dimensions):
        yield f"no {name}", resized(case, dimensions, {name: 0})


def grown(case: Case) -> Case:
    """The same call with no dimension smaller than `COARSE`, but for empty ones."""
    dimensions = operators.get(case.operator).dimensions(case)
    small = {name: COARSE for name, size in sizes(case, dimensions).items() if 0 < size < COARSE}
    return resized(case, dimensions, small)


def ordinary(case: Case) -> Case:
    """The same call on ordinary numbers: random ones for every float, no NaN, infinity or repeated value among them."""
    floats = [name for name in case.fills if "float" in case.tensors[name].dtype]
    return replace(case, fills={**case.fills, **{name: Fill("uniform", i) for i, name in enumerate(floats)}})


def fill_steps(case: Case) -> Iterator[Step]:
    """Make one fill plainer: no planted values, one of PLAIN_FILLS, fewer values, a small seed."""
    for name, fill in case.fills.items():
        yield from _planted_steps(case, name, fill)
        spelled_out = is_explicit(fill, case.tensors[name])
        if "float" in case.tensors[name].dtype:
            for plain in PLAIN_FILLS:
                if fill_weight(plain) < fill_weight(replace(fill, planted=())):
                    kept = () if spelled_out else fill.planted
                    yield f"fill of {name}", filled(case, name, replace(plain, planted=kept))
        for i in range(len(fill.values) if len(fill.values) > 1 and not spelled_out else 0):
            fewer = fill.values[:i] + fill.values[i + 1 :]
            yield f"a value of {name}", filled(case, name, replace(fill, values=fewer))
        for seed in (0, 1, 2, 3, fill.seed // 2):
            if seed < fill.seed:
                yield f"seed of {name}", filled(case, name, replace(fill, seed=seed))


def _planted_steps(case: Case, name: str, fill: Fill) -> Iterator[Step]:
    """One planted value less, or at an earlier place. What stands among explicit values goes as they do (`harness.values`)."""
    taken = {planted.index for planted in fill.planted}
    for i, planted in enumerate(fill.planted):
        rest = fill.planted[:i] + fill.planted[i + 1 :]
        if not is_explicit(fill, case.tensors[name]):
            yield f"value planted in {name}", filled(case, name, replace(fill, planted=rest))
        for index in dict.fromkeys((0, planted.index // 2)):
            if index < planted.index and index not in taken:
                moved = sorted((*rest, Planted(index, planted.value)), key=lambda p: p.index)
                yield f"place of a value planted in {name}", filled(case, name, replace(fill, planted=tuple(moved)))


def fill_weight(fill: Fill) -> tuple[int, ...]:
    """What a fill step has to lower: how wild the kind is, how many values, how usual they are, the seed."""
    usual = PLAIN_FILLS.index(fill) if fill in PLAIN_FILLS else len(PLAIN_FILLS)
    return (list(KINDS).index(fill.kind), len(fill.values), usual, len(fill.planted), fill.seed)


def _with(case: Case, name: str, view: View) -> Case:
    storages = case.storages if view.storage < len(case.storages) else (*case.storages, 0)
    return replace(case, storages=storages, tensors={**case.tensors, name: view})
