"""A failure that needs other calls before it: all of them made small together, since what they share is often the point.

Every try takes a process of its own, so few of them have to do: what goes first is everything that can go from all calls at
once, and single steps come last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from harness import operators
from harness.case import Case, CaseError, tidy, validate
from harness.reduce import Reduction, descend, reduce
from harness.resize import sizes
from harness.steps import all_steps, feature_steps
from harness.values import sliced


@dataclass(frozen=True)
class Calls:
    """Calls made in one process, in order; the last one fails."""

    before: tuple[Case, ...]
    case: Case

    @property
    def all(self) -> tuple[Case, ...]:
        return (*self.before, self.case)

    def key(self) -> bytes:
        """A canonical text: equal calls have equal keys."""
        return b"\n".join(case.key() for case in self.all)

    def changed(self, change: Callable[[Case], Case]) -> Calls:
        """The same change made to all of them."""
        *before, case = (tidy(change(case)) for case in self.all)
        return Calls(tuple(before), case)


Step = tuple[str, Calls]


def reduce_history(
    calls: Calls, fails: Callable[[Calls], bool], *, budget: int, late: Callable[[], bool] = lambda: False
) -> Reduction[Calls]:
    """Shrink calls, the last of which `fails`; at most `budget` calls of it, and none once `late`."""
    return descend(calls, fails, budget, [partial(_valid, steps) for steps in (_fewer, _together, _singly)], late)


def _valid(steps: Callable[[Calls], Iterator[Step]], calls: Calls) -> Iterator[Step]:
    """Those steps that lead to calls that can be made."""
    for what, made in steps(calls):
        try:
            for case in made.all:
                validate(case)
        except CaseError:
            continue
        yield what, made


def _fewer(calls: Calls) -> Iterator[Step]:
    """One call less before it; but one stays, or the failure would need none."""
    for i in range(len(calls.before) if len(calls.before) > 1 else 0):
        yield "a call before it", Calls(calls.before[:i] + calls.before[i + 1 :], calls.case)


def _together(calls: Calls) -> Iterator[Step]:
    """Everything plain at once but for what a call says in numbers, then for more; one dimension smaller, or one feature
    off, in every call."""
    for what, kept in _KEPT:
        yield f"all but {what}", calls.changed(partial(_plainest, kept))
    for name, size in _sizes(calls.case).items():
        for smaller in dict.fromkeys((1, 2, size // 2, size - 1)):
            if 0 < smaller < size:
                yield f"{name} {size} -> {smaller}", calls.changed(partial(_cut, name, size, smaller))
    for what, _ in feature_steps(calls.case):
        yield what, calls.changed(partial(_without, what))


def _singly(calls: Calls) -> Iterator[Step]:
    """A single step of one call, the failing one first."""
    for what, step in all_steps(calls.case):
        yield what, Calls(calls.before, tidy(step))
    for i, case in enumerate(calls.before):
        for what, step in all_steps(case):
            yield (
                f"{what} of a call before it",
                Calls((*calls.before[:i], tidy(step), *calls.before[i + 1 :]), calls.case),
            )


def _sizes(case: Case) -> dict[str, int]:
    return sizes(case, operators.get(case.operator).dimensions(case))


def _without(what: str, case: Case) -> Case:
    return next((step for told, step in feature_steps(case) if told == what), case)


def _cut(name: str, size: int, smaller: int, case: Case) -> Case:
    return sliced(case, name, range(smaller)) if _sizes(case).get(name) == size else case


def _numbers(case: Case) -> object:
    """What a call says in numbers: its parameters, and the values of tensors of integers."""
    params = {name: value for name, value in case.params.items() if name != "form"}
    return params, {name: fill for name, fill in case.fills.items() if "float" not in case.tensors[name].dtype}


_KEPT: tuple[tuple[str, Callable[[Case], object]], ...] = (
    ("its numbers", _numbers),
    ("its numbers and sizes", lambda case: (_numbers(case), _sizes(case))),
    ("its numbers and dtypes", lambda case: (_numbers(case), sorted(v.dtype for v in case.tensors.values()))),
    ("its numbers and form", lambda case: (_numbers(case), case.params)),
)
"""From the boldest: what stays of each call."""

PLAIN_STEPS = 3000


def _plainest(kept: Callable[[Case], object], case: Case) -> Case:
    """The plainest case of which `kept` says the same. Nothing is judged."""
    wanted = kept(case)
    return reduce(case, lambda other: kept(other) == wanted, budget=PLAIN_STEPS, passes=(all_steps,)).smallest
