"""What is timed: workloads, competitors, and what an operator says of both in its module `benchmarks`."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import msgspec
import torch
from torch import Tensor

from harness import operators
from harness.operators import Call

Tensors = Mapping[str, Tensor]


class Workload(msgspec.Struct, frozen=True):
    """One call to time. name: what it is written as (`Benchmarks.workload` reads it). against: the name of the plain
    workload of the same shape, to whose time this one's is compared; "" for a plain one."""

    operator: str
    name: str
    params: dict[str, Any]
    against: str = ""


class Cost(msgspec.Struct, frozen=True):
    """What no implementation can do without: bytes of device memory, and operations of products in `dtype`."""

    read: int
    written: int
    flops: float = 0.0
    dtype: str = ""


@dataclass(frozen=True)
class Competitor:
    """Somebody else's kernel for an operator.

    package: what has to be installed. run: makes the call; its result is the operator's outputs. semantics: SEMANTICS by
    which its result may be judged, in the order they are tried: right by one of them is right. unsupported: why a
    workload is not for it, or None.
    """

    name: str
    package: str
    run: Callable[[Workload, Tensors], Any]
    semantics: tuple[Mapping[str, Any], ...] = ({},)
    unsupported: Callable[[Workload], str | None] = lambda workload: None

    @property
    def installed(self) -> bool:
        """Whether the package is there; it is not imported."""
        return importlib.util.find_spec(self.package) is not None


@dataclass(frozen=True)
class Part:
    """A part of a result that can be judged by itself: the call that it answers, and that part, by output."""

    call: Call
    outputs: dict[str, Tensor]


class Benchmarks(Protocol):
    """What the module `benchmarks` of an operator provides."""

    SETS: Mapping[str, Sequence[str]]
    """Named sets of workloads, as they are written; the first is the default."""
    COMPETITORS: Sequence[Competitor]
    """The first one that is installed is the baseline if none is chosen."""

    def workload(self, text: str) -> Workload:
        """The workload that a text describes. Raises ValueError, in one line."""

    def cost(self, workload: Workload) -> Cost:
        """The least that a call costs."""

    def inputs(self, workload: Workload, seed: int, device: str) -> dict[str, Tensor]:
        """The call's tensors, new ones, on the device. Another seed gives other values of the same kind."""

    def calls(self, workload: Workload, tensors: Tensors) -> Sequence[Call]:
        """The call on these tensors in an implementation's own terms, the preferred way first."""

    def build_params(self, workload: Workload) -> dict[str, Any]:
        """What `unsupported` of an implementation is told of it."""

    def parts(self, workload: Workload, tensors: Tensors, outputs: dict[str, Tensor]) -> Iterator[Part]:
        """What is judged of a result, in pieces for which the oracle has memory and time."""

    def judged(self, workload: Workload) -> str:
        """How much of a result that is, in words."""


class BadWorkload(ValueError):
    """No such set or workload, or the operator has nothing to time; the message is one line."""


def of(operator: str) -> Benchmarks:
    """The benchmarks of an operator. Raises UnknownOperator, or BadWorkload where it has none."""
    name = f"{operators.get(operator).__name__}.benchmarks"  # type: ignore[attr-defined]
    try:
        return cast(Benchmarks, importlib.import_module(name))
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise BadWorkload(f"nothing of {operator} can be timed: it has no module `benchmarks`") from None


def timed_operators() -> list[str]:
    """The operators that have benchmarks."""
    return [name for name in operators.names() if _has_benchmarks(name)]


def _has_benchmarks(operator: str) -> bool:
    try:
        return importlib.util.find_spec(f"harness.operators.{operator}.benchmarks") is not None
    except ModuleNotFoundError:  # the operator is one file
        return False


def chosen(operator: str, sets: Sequence[str], shapes: Sequence[str]) -> list[Workload]:
    """The workloads of named sets and of shapes written out, each once; without any, those of the default set.

    Where one is compared with a plain one, that comes before it. Raises BadWorkload.
    """
    benchmarks = of(operator)
    for name in sets:
        if name not in benchmarks.SETS:
            raise BadWorkload(f"{operator} has no set {name!r}; there are: {', '.join(benchmarks.SETS)}")
    texts = [text for name in sets for text in benchmarks.SETS[name]] + list(shapes)
    if not texts:
        texts = list(next(iter(benchmarks.SETS.values())))
    found: dict[str, Workload] = {}
    for text in texts:
        each = workload(operator, text)
        if each.against and each.against not in found:
            found[each.against] = workload(operator, each.against)
        found.setdefault(each.name, each)
    return list(found.values())


def workload(operator: str, text: str) -> Workload:
    """The workload that a text describes. Raises BadWorkload."""
    try:
        return of(operator).workload(text)
    except ValueError as error:
        raise BadWorkload(f"{text!r} is no workload of {operator}: {error}") from None


def words(text: str, flags: Sequence[str], options: Mapping[str, type]) -> tuple[list[str], dict[str, Any]]:
    """Takes a workload's text apart: the words that stand alone, and `option=value` and flags by name.

    Raises ValueError for an option that is not known, or given twice, or has no value of its type.
    """
    alone: list[str] = []
    found: dict[str, Any] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        if name in flags and not equals:
            found[name] = True
        elif not equals:
            alone.append(word)
        elif name not in options:
            raise ValueError(f"unknown option {name!r}; there are: {', '.join([*options, *flags])}")
        elif name in found:
            raise ValueError(f"{name} is given twice")
        else:
            try:
                found[name] = options[name](value)
            except ValueError:
                raise ValueError(f"{name}={value} is no {options[name].__name__}") from None
    return alone, found


def normal(shape: Sequence[int], dtype: torch.dtype, seed: int, device: str) -> Tensor:
    """Normal values of mean 0 and deviation 1, reproducible on one device."""
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(tuple(shape), generator=generator, device=device, dtype=torch.float32).to(dtype)
