"""After Hypothesis: fewer features, smaller sizes, plainer values, as long as the failure stays what it is.

Works on any case, drawn, imported or written by hand. The first step that still fails becomes the case, and steps are tried
again from the top until none succeeds: the result is a local minimum. No case is tried twice. The steps are those of
`harness.steps` and `harness.values`; what keeps the failure, and on which engine, is the caller's (`harness.minimise`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from harness.case import Case, CaseError, tidy, validate
from harness.steps import Step, all_steps
from harness.values import value_steps


class Reducible(Protocol):
    """A case, a build, or several calls."""

    def key(self) -> bytes: ...


Smallest = TypeVar("Smallest", bound=Reducible)


@dataclass(frozen=True)
class Reduction(Generic[Smallest]):
    """smallest: what was found. removed: what was taken away, in order. calls: judgements used.
    complete: it is a local minimum (the budget sufficed)."""

    smallest: Smallest
    removed: tuple[str, ...]
    calls: int
    complete: bool


PASSES: tuple[Callable[[Case], Iterator[Step]], ...] = (all_steps, value_steps)
"""Each to its end, in turns, until none finds anything: values are many, and worth a look only where nothing else can go."""


def reduce(
    case: Case,
    fails: Callable[[Case], bool],
    *,
    budget: int = 400,
    passes: Sequence[Callable[[Case], Iterator[Step]]] = PASSES,
    late: Callable[[], bool] = lambda: False,
) -> Reduction[Case]:
    """Shrink `case`, for which `fails` holds, to a local minimum; at most `budget` calls of `fails`, and none once `late`."""
    return descend(case, fails, budget, [_valid(steps) for steps in passes], late)


def _valid(steps: Callable[[Case], Iterator[Step]]) -> Callable[[Case], Iterator[Step]]:
    """Those steps that lead to a case: the bits of a float32 are no value of a float16, to whose dtype one may lead."""

    def kept(case: Case) -> Iterator[Step]:
        for what, step in steps(case):
            candidate = tidy(step)
            try:
                validate(candidate)
            except CaseError:
                continue
            yield what, candidate

    return kept


def descend(
    subject: Smallest,
    fails: Callable[[Smallest], bool],
    budget: int,
    passes: Sequence[Callable[[Smallest], Iterator[tuple[str, Smallest]]]],
    late: Callable[[], bool] = lambda: False,
) -> Reduction[Smallest]:
    """Take steps for which `fails` holds until none is left, or `budget` is spent, or it is `late`."""
    removed: list[str] = []
    seen = {subject.key()}
    calls = turn = without = 0
    while without < len(passes):
        for what, candidate in passes[turn](subject):
            key = candidate.key()
            if key in seen:
                continue
            if calls >= budget or late():
                return Reduction(subject, tuple(removed), calls, complete=False)
            seen.add(key)
            calls += 1
            if fails(candidate):
                removed.append(what)
                subject, without = candidate, 0
                break
        else:
            turn, without = (turn + 1) % len(passes), without + 1
    return Reduction(subject, tuple(removed), calls, complete=True)


def told(removed: Sequence[str]) -> str:
    """What was taken away, for a reader: each thing once, sizes from the first to the last."""
    sizes: dict[str, tuple[str, str]] = {}
    others: Counter[str] = Counter()
    for what in removed:
        name, arrow, after = what.partition(" -> ")
        if arrow:
            dimension, _, before = name.rpartition(" ")
            sizes[dimension] = sizes.get(dimension, (before, ""))[0], after
        else:
            others[what] += 1
    shrunk = [f"{name} {before} -> {after}" for name, (before, after) in sizes.items()]
    return "; ".join([*shrunk, *(what if n == 1 else f"{what} ({n} times)" for what, n in others.items())])
