"""From a compilation that fails to the plainest one of the matrix that fails the same way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import combinations, product
from typing import Any

from msgspec.structs import replace

from harness.case import Build, Params
from harness.reduce import Reduction, descend


def reduce_build(
    build: Build,
    matrix: Collection[Build],
    fails: Callable[[Build], bool],
    *,
    budget: int = 200,
    late: Callable[[], bool] = lambda: False,
) -> Reduction[Build]:
    """The plainest build of `matrix` that steps lead to from `build`, for which `fails` holds: a local minimum."""
    return descend(build, fails, budget, (lambda now: build_steps(now, matrix),), late)


def build_steps(build: Build, matrix: Collection[Build], together: int = 2) -> Iterator[tuple[str, Build]]:
    """Make one parameter plainer, or the architecture an earlier one; then up to `together` of these at once.

    What is plain and early is what the matrix has first.
    """
    there = {other.key() for other in matrix}
    choices = [_choices(other) for other in matrix]
    chosen = _choices(build)
    plainer: dict[str, list[Any]] = {}
    for name, value in chosen.items():
        values = list(dict.fromkeys(other.get(name, _ABSENT) for other in choices))
        plainer[name] = values[: values.index(value)] if value in values else values
    for count in range(1, together + 1):
        for names in combinations(chosen, count):
            for plain in product(*(plainer[name] for name in names)):
                candidate = _chosen(build, {**chosen, **dict(zip(names, plain))})
                if candidate.key() in there:
                    yield " and ".join(names), candidate


_ARCH = "arch"
_ABSENT = object()
"""The value of a parameter that is not there."""


def _choices(build: Build) -> Params:
    """What makes a build, the architecture last."""
    return {**build.params, _ARCH: build.arch}


def _chosen(like: Build, choices: Params) -> Build:
    params = {name: value for name, value in choices.items() if name != _ARCH and value is not _ABSENT}
    return replace(like, params=params, arch=choices[_ARCH])
