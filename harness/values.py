"""Values of a fill one by one: where they are few, a case spells them out, and they go to zero, one and small integers.

A fill is *explicit* when it is a cycle of as many values as its tensor has elements. Of two fills the plainer one has fewer
elements that are not zero, then plainer ones (`rank`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

import torch
from msgspec.structs import replace

from harness import operators
from harness.case import FLOATS, Case, Fill, Number, Planted, View
from harness.fill import literals, make_bits
from harness.resize import resized, sizes

EXPLICIT = 512
"""Elements of a tensor that a case may spell out."""
SMALL = 16
"""Integers up to here are small, and so many different values are few."""
LISTED = 16
"""Values of a fill that are told."""
SPARSE = 8
"""Elements from which on a few exceptions read better than a list."""


PLAIN_FILLS = (
    Fill("cycle", 0, (1.0,)),
    Fill("cycle", 0, ("nan",)),
    Fill("cycle", 0, ("-inf",)),
    Fill("cycle", 0, (1.0, 2.0)),
    Fill("cycle", 0, (2.0, 1.0)),
    Fill("sorted"),
    Fill("sorted", 1),
    Fill("choice", 0, (1.0, 2.0)),
    Fill("spread"),
)
"""From the plainest; among the values of one of these nothing is gained by zeros."""


def is_explicit(fill: Fill, view: View) -> bool:
    """Whether a fill spells out every element, and they are not all one value."""
    if fill.kind != "cycle":
        return False
    return len(fill.values) == 1 if fill.planted else 1 < len(fill.values) == math.prod(view.extent)


def spelled(fill: Fill, view: View) -> tuple[Number, ...]:
    """The elements that a fill covers, in row-major order. Raises CaseError where no number says one (`literals`)."""
    dtype = getattr(torch, view.dtype)
    return literals(make_bits(fill, dtype, view.extent, "cpu").view(dtype))


def explicit(values: tuple[Number, ...]) -> Fill:
    """A fill of these values: a list; where nearly all are the same one, that one and where the others are."""
    counts = Counter(map(repr, values))
    common = max(values, key=lambda v: counts[repr(v)])
    others = [Planted(i, v) for i, v in enumerate(values) if repr(v) != repr(common)]
    if not others or (len(values) >= SPARSE and len(others) <= len(values) // 4):
        return Fill("cycle", 0, (common,), tuple(others))
    return Fill("cycle", 0, values)


def in_words(fill: Fill) -> str:
    """A fill in words: its kind, values and seed, and what is planted; of long lists, the beginning."""
    if fill.file is not None:
        return f"values in {fill.file.digest[:12]}… beside the entry"
    values = [*map(str, fill.values[:LISTED]), *(["…"] if len(fill.values) > LISTED else [])]
    planted = [f"[{p.index}] = {p.value}" for p in fill.planted[:LISTED]]
    planted += [f"… ({len(fill.planted)} planted)"] if len(fill.planted) > LISTED else []
    kind = f"{fill.kind} [{', '.join(values)}]" if values else fill.kind
    return ", ".join([kind, *([] if fill.kind == "cycle" else [f"seed {fill.seed}"]), *planted])


def rank(value: Number) -> tuple[float, ...]:
    """How far a value is from the plainest: zero, one, small integers, infinities and NaN, other integers, fractions (halves
    before quarters, then what is short to write), bits."""
    if isinstance(value, str):
        special = ("-inf", "inf", "nan")
        return (3, special.index(value)) if value in special else (6, int(value, 16))
    if value == 0:
        return (0, math.copysign(1.0, value) < 0)
    size, negative = abs(value), value < 0
    if float(value).is_integer():
        return (1 + negative, size) if size <= SMALL else (4, size, negative)
    halvings = value.as_integer_ratio()[1].bit_length() - 1
    return (5, halvings if halvings < SMALL else SMALL + len(repr(value)), size, negative)


def value_steps(case: Case) -> Iterator[tuple[str, Case]]:
    """Spell a fill out; drop one index of a dimension; make many elements, then few, then one, plainer."""
    yield from _drops(case)
    for name, fill in case.fills.items():
        view = case.tensors[name]
        if (fill.kind == "cycle" and fill in PLAIN_FILLS) or not 0 < math.prod(view.extent) <= EXPLICIT:
            continue
        if fill.kind != "cycle" or (fill.planted and not is_explicit(fill, view)):
            yield f"spelled out: {name}", filled(case, name, explicit(spelled(fill, view)))
            continue
        now = _listed(fill, math.prod(view.extent))
        for values in _plainer(now, view.dtype):
            if values != now:
                yield f"values of {name}", filled(case, name, explicit(values))


def _listed(fill: Fill, count: int) -> tuple[Number, ...]:
    """The values of a cycle, one for each element, as they are written: 0.3 is plainer than the float32 next to it."""
    written = fill.values or (1,)
    values = [written[i % len(written)] for i in range(count)]
    for planted in fill.planted:
        values[planted.index % count] = planted.value
    return tuple(values)


def _plainer(values: tuple[Number, ...], dtype: str) -> Iterator[tuple[Number, ...]]:
    """All of them zero, then halves, … then each zero or one; all ones; then one value, everywhere and in one place, another."""
    zero, one = (0.0, 1.0) if dtype in FLOATS else (0, 1)
    everywhere = range(len(values))
    size = len(values)
    while size:
        for start in everywhere[::size]:
            yield _replaced(values, everywhere[start : start + size], zero)
        size //= 2
    yield _replaced(values, everywhere, one)
    for place in everywhere:
        yield _replaced(values, (place,), one)
    different = sorted({repr(v): v for v in values}.values(), key=rank)
    others = different if len(different) <= SMALL else ()
    for value in reversed(different[-SMALL:]):
        places = [i for i, v in enumerate(values) if repr(v) == repr(value)]
        for plainer in dict.fromkeys((*_simple(value, dtype), *others)):
            yield _replaced(values, places, plainer)
            for place in places if others else ():
                yield _replaced(values, (place,), plainer)


def _simple(value: Number, dtype: str) -> tuple[Number, ...]:
    """What may stand for a value: one, two, minus one; itself without its sign, halved, less by one, with fewer digits; a
    power of two."""
    is_float = dtype in FLOATS
    kind = float if is_float else int
    near: tuple[Number, ...] = tuple(kind(v) for v in (1, 2, -1) if _holds(dtype, v))
    if isinstance(value, str) or not math.isfinite(value) or value == 0:
        return near
    logarithm = math.log2(abs(value))
    size: set[float] = {2.0 ** round(logarithm), 2.0 ** round(logarithm / 2)}
    if abs(value) < 2**16:
        whole = int(abs(value))
        size |= {whole // 2, max(whole - 1, 0), whole, round(abs(value)), round(abs(value), 1), round(abs(value), 2)}
    if is_float and not float(value).is_integer():
        size |= {0.5}
    targets = (*near, kind(abs(value)), *sorted((kind(math.copysign(s, value)) for s in size), key=rank))
    return tuple(target for target in targets if _holds(dtype, target))


def _holds(dtype: str, value: Number) -> bool:
    """Whether a dtype has this very value, and does not wrap it into another."""
    if dtype in FLOATS or isinstance(value, str):
        return True
    if dtype == "bool":
        return value in (0, 1)
    range_ = torch.iinfo(getattr(torch, dtype))
    return range_.min <= value <= range_.max


def _replaced(values: tuple[Number, ...], places: Sequence[int], target: Number) -> tuple[Number, ...]:
    """`target` at these places, but where something plainer is."""
    changed = list(values)
    for i in places:
        if rank(target) < rank(changed[i]):
            changed[i] = target
    return tuple(changed)


def _drops(case: Case) -> Iterator[tuple[str, Case]]:
    """One index of a dimension less, whichever, where values are spelled out."""
    dimensions = operators.get(case.operator).dimensions(case)
    for dimension, size in sizes(case, dimensions).items():
        spelled_out = any(
            dimension in names and name in case.fills and is_explicit(case.fills[name], case.tensors[name])
            for name, names in dimensions.items()
        )
        for i in range(size if spelled_out and 1 < size <= SMALL else 0):
            kept = [*range(i), *range(i + 1, size)]
            yield f"{dimension} {size} -> {size - 1}", sliced(case, dimension, kept)


def sliced(case: Case, dimension: str, kept: Sequence[int]) -> Case:
    """The case with these indices of one dimension alone, or some of them twice; explicit values go with their elements."""
    dimensions = operators.get(case.operator).dimensions(case)
    old = sizes(case, dimensions)[dimension]
    smaller = resized(case, dimensions, {dimension: len(kept)})
    fills = dict(case.fills)
    for tensor, names in dimensions.items():
        view = case.tensors.get(tensor)
        if view is None or tensor not in fills or len(names) != len(view.shape) or view.overlaps_itself:
            continue
        if kept and view.numel and dimension in names and is_explicit(fills[tensor], view):
            taken = [kept if n == dimension and size == old else range(size) for n, size in zip(names, view.shape)]
            fills[tensor] = explicit(_taken(spelled(fills[tensor], view), view.shape, taken))
    return replace(smaller, fills=fills)


def _taken(values: tuple[Number, ...], shape: tuple[int, ...], indices: Sequence[Sequence[int]]) -> tuple[Number, ...]:
    """The elements of a row-major array at all combinations of these indices."""
    steps = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return tuple(values[sum(i * step for i, step in zip(index, steps))] for index in product(*indices))


def filled(case: Case, name: str, fill: Fill) -> Case:
    """The case with another fill of one tensor."""
    return replace(case, fills={**case.fills, name: fill})
