"""The neighbours of a case: each of its parameters with other values, one at a time. Pure; nothing is judged here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from harness import operators
from harness.case import FLOATS, Build, Case, Fill, Subject, View, tidy
from harness.resize import sizes
from harness.rules import Value
from harness.steps import PLAINER
from harness.strategies import Layout
from harness.values import filled, sliced

LARGEST = {"cpu": 4097, "cuda": 65537}
"""Of the last dimension of a tensor."""
MOST_ROWS = {"cpu": 257, "cuda": 4097}
"""Of any other: each is a program, which costs most under an interpreter."""
MOST_ELEMENTS = {"cpu": 1 << 17, "cuda": 1 << 24}
"""Of a variant's tensors together, as far as the case itself has no more."""
ELEMENTS_OFF = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 64)
"""Starts of a tensor: around the vectors of every element size, and their multiples."""
ORDERS = 4
"""Arbitrary orders of threads that are tried."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a subject, and what the subject is with other values of it.

    values: the subject's own among them, as `own`; the most telling first. between: makes the subject with any other
    number, where the parameter is a size.
    """

    name: str
    own: Value
    values: dict[Value, Subject]
    between: Callable[[int], Case] | None = None


def parameters(case: Case, device: str, *, tunings: int = 1, schedules: bool = False) -> list[Parameter]:
    """All parameters of a case that have another value to try, on "cpu" or "cuda".

    tunings: choices that the implementation has. schedules: whether its threads can run in another order there.
    """
    case = tidy(case)
    found: dict[str, list[tuple[Value, Case]]] = {}
    between: dict[str, Callable[[int], Case]] = {}
    for name, value, variant in operators.get(case.operator).alternatives(case):
        found.setdefault(name, []).append((value, variant))
    for name, size in _dimensions(case).items():
        between[name] = _resizer(case, name)
        room = max(_elements(case), MOST_ELEMENTS[device])
        top = LARGEST[device] if _is_last(case, name) else MOST_ROWS[device]
        variants = ((value, between[name](value)) for value in neighbours(size, max(top, size)))
        found[name] = [(size, case), *((value, v) for value, v in variants if _elements(v) <= room)]
    for name, view in case.tensors.items():
        found[f"layout of {name}"] = list(_layouts(case, name))
        found[f"offset of {name}"] = [
            (n * view.itemsize, _moved(case, name, replace(view, offset=n * view.itemsize)))
            for n in dict.fromkeys((view.offset // view.itemsize, *ELEMENTS_OFF))
        ]
        if view.dtype in FLOATS and name in case.fills:
            found[f"values of {name}"] = list(_fills(case, name))
    chosen = case.tuning % tunings
    found["tuning"] = [(f"choice {n}", replace(case, tuning=n)) for n in dict.fromkeys((chosen, *range(tunings)))]
    found["tuning"][0] = (f"choice {chosen}", case)
    seeds = dict.fromkeys((case.schedule, *range(ORDERS + 1 if schedules else 0)))
    found["order of threads"] = [
        (f"arbitrary (seed {n})" if n else "in order", replace(case, schedule=n)) for n in seeds
    ]
    if case.checks:
        found["checks"] = [(", ".join(case.checks), case), ("none", replace(case, checks=()))]
    made = (_parameter(case, name, values, between.get(name)) for name, values in found.items())
    return [parameter for parameter in made if len(parameter.values) > 1]


def _parameter(
    case: Case, name: str, found: Iterable[tuple[Value, Case]], between: Callable[[int], Case] | None
) -> Parameter:
    """Values that make the same call are one value, under the name that came first, the case's own before all."""
    by_key: dict[bytes, Value] = {}
    values: dict[Value, Subject] = {}
    own = case.key()
    for value, variant in sorted(found, key=lambda pair: tidy(pair[1]).key() != own):
        key = tidy(variant).key()
        if key not in by_key and value not in values:
            by_key[key] = value
            values[value] = tidy(variant)
    return Parameter(name, by_key.get(own, "as it is"), values, between)


def build_parameters(build: Build, matrix: Iterable[Build]) -> list[Parameter]:
    """The parameters of a compilation, with every value that one of `matrix` has and is otherwise the same."""
    found: dict[str, dict[Value, Subject]] = {}
    ours = {**build.params, "architecture": build.arch}
    for other in matrix:
        theirs = {**other.params, "architecture": other.arch}
        differ = [name for name in {**ours, **theirs} if ours.get(name, _DEFAULT) != theirs.get(name, _DEFAULT)]
        if len(differ) == 1:
            name = differ[0]
            values = found.setdefault(name, {_spelled(ours.get(name, _DEFAULT)): build})
            values.setdefault(_spelled(theirs.get(name, _DEFAULT)), other)
    order = [name for name in ours if name in found] + [name for name in found if name not in ours]
    return [Parameter(name, _spelled(ours.get(name, _DEFAULT)), found[name]) for name in order]


_DEFAULT = "default"
"""The value of a parameter that a build does not name."""


def _spelled(value: object) -> Value:
    if isinstance(value, bool):
        return "on" if value else "off"
    return value if isinstance(value, (int, float)) else str(value)


def neighbours(size: int, most: int) -> Iterator[int]:
    """Sizes to try in the place of one, each once, the most telling first: beside it; powers of two and beside them;
    multiples of 4, 8, 16, 32 and 64 and beside these; multiples of itself; zero."""
    powers = [1 << n for n in range(17)]
    multiples = [n * m for m in (4, 8, 16, 32, 64) for n in (3, 5)]
    groups = (
        [size + n for n in (-1, 1, -2, 2)],
        powers[:8],
        [p + n for p in powers[2:8] for n in (1, -1)],
        multiples,
        [p + n for p in powers[8:] for n in (0, 1, -1)],
        [m + n for m in multiples for n in (1, -1)],
        [2 * size, 3 * size, 2 * size + 1],
        [0],
    )
    for value in dict.fromkeys(value for group in groups for value in group):
        if 0 <= value <= most and value != size:
            yield value


def _dimensions(case: Case) -> dict[str, int]:
    return sizes(case, operators.get(case.operator).dimensions(case))


def _resizer(case: Case, name: str) -> Callable[[int], Case]:
    dimensions = operators.get(case.operator).dimensions(case)
    old = sizes(case, dimensions)[name]
    return lambda size: tidy(sliced(case, name, [i % max(old, 1) for i in range(size)]))


def _is_last(case: Case, name: str) -> bool:
    """Whether a dimension is the last one of some tensor that has others: elements, not rows."""
    dimensions = operators.get(case.operator).dimensions(case)
    return any(len(names) > 1 and names[-1] == name for tensor, names in dimensions.items() if tensor in case.tensors)


def _elements(case: Case) -> int:
    """Of all tensors, or of the storages where those are larger (layouts have gaps, views share)."""
    least = min((view.itemsize for view in case.tensors.values()), default=1)
    return max(sum(view.numel for view in case.tensors.values()), sum(case.storages) // least)


_LAYOUTS: tuple[tuple[str, Layout], ...] = (
    *zip(
        (
            "dense",
            "padded (pitch + 1)",
            "padded (inner pitch + 1)",
            "last stride 2",
            "transposed",
            "",
            "expanded",
            "overlapping rows",
        ),
        PLAINER,
        strict=True,
    ),
    ("padded (pitch + 8)", Layout(pad=8)),
)
"""An offset is a parameter of its own."""


def _layouts(case: Case, name: str) -> Iterator[tuple[Value, Case]]:
    view = case.tensors[name]
    for word, layout in _LAYOUTS:
        if word:
            strides = layout.strides(view.shape)
            yield word, _moved(case, name, replace(view, strides=strides))
    yield f"strides {list(view.strides)}", case


def _moved(case: Case, name: str, view: View) -> Case:
    """A tensor somewhere else, and every tensor that is the same view with it: in place stays in place."""
    before = case.tensors[name]
    return replace(case, tensors={n: view if v == before else v for n, v in case.tensors.items()})


_FILLS: tuple[tuple[str, Fill], ...] = (
    *((f"constant ({value})", Fill("cycle", 0, (value,))) for value in (1.0, 0.0, "nan", "-inf")),
    ("ones and twos", Fill("cycle", 0, (1.0, 2.0))),
    ("rising", Fill("sorted", 0)),
    ("falling", Fill("sorted", 1)),
    ("ones or twos at random", Fill("choice", 0, (1.0, 2.0))),
    *(
        (kind.replace("_", " "), Fill(kind))
        for kind in ("uniform", "dominant", "spread", "near", "outlier", "mostly_minus_inf", "specials", "raw")
    ),
)


def _fills(case: Case, name: str) -> Iterator[tuple[Value, Case]]:
    for word, fill in _FILLS:
        yield word, filled(case, name, fill)
    yield _told(case.fills[name]), case


def _told(fill: Fill) -> str:
    """A fill that is none of `_FILLS`."""
    values = ", ".join(str(value) for value in fill.values[:4]) + (", …" if len(fill.values) > 4 else "")
    seed = f"seed {fill.seed}" if fill.seed else ""
    planted = f"{len(fill.planted)} planted" if fill.planted else ""
    return f"{fill.kind} ({'; '.join(filter(None, (values, seed, planted))) or 'as found'})"
