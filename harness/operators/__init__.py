"""One module an operator: its parameters, its strategy, how its call is made.

A module here with the names of the `Operator` protocol is an operator; nothing else has to be told of it. The tensors'
roles are said by *dimension names*, and everything that is generic (layouts, alias relations, guard zones, shrinking of
sizes) works from those.

A module `benchmarks` in an operator's package (`harness.bench.workload.Benchmarks`) is what `warpcheck bench` times of it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, cast

from hypothesis.strategies import SearchStrategy
from torch import Tensor

from harness.case import Case, Params
from harness.rules import Value
from harness.strategies import Scale
from oracles.judgement import Judgement, Reference, Right


@dataclass(frozen=True)
class Call:
    """One call, ready to be made: what `bind` makes of a case and its tensors.

    method: which of the implementation's functions: "" the operator itself, "_" its in-place spelling.
    writes: names of the case's tensors that the call may change.
    returns: per output, the tensor (an argument) that has to come back, or None for a fresh one.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    method: str = ""
    writes: frozenset[str] = frozenset()
    returns: tuple[Tensor | None, ...] = (None,)


class Operator(Protocol):
    """What a module in this folder provides."""

    NAME: str
    OUTPUTS: tuple[str, ...]
    """Names of what a call returns, in order."""
    FORMS: tuple[str, ...]
    """What `form` may be among the params, from the plainest: "new" (no out), "out" (the tensor `out`), "out_is_" and the name
    of an input (that very object), and an operator's own."""
    PARAMS: tuple[str, ...]
    """Names that a case's params may have."""
    REQUIRED: tuple[str, ...]
    """Names without which there is no call, each of a tensor or a parameter, the main tensor first."""

    def dimensions(self, case: Case) -> Mapping[str, tuple[str, ...]]:
        """Tensor name -> a name for each of its dimensions; dimensions of one name have one size in a legal call.

        The first tensor is the main one: its dtype is what the operator's kernels are specialised for.
        """

    def cases(self, scale: Scale, *, illegal: bool = True) -> SearchStrategy[Case]:
        """Calls, the simplest first; with `illegal`, some that the contract forbids."""

    def bind(self, case: Case, tensors: Mapping[str, Tensor]) -> Call:
        """The call that a case describes."""

    def contract(self, call: Call) -> str | None:
        """Why the call must raise, or None when it is legal."""

    def semantics(self, declared: Mapping[str, Any], device: str) -> Any:
        """An implementation's SEMANTICS on "cpu" or "cuda", in the oracle's terms.

        Raises ValueError for words the oracle does not know.
        """

    def reference(self, call: Call, semantics: Any) -> Reference:
        """The oracle's answer; `call` holds copies that no kernel sees."""

    def judge(self, outputs: dict[str, Tensor], reference: Reference) -> dict[str, Judgement]:
        """Each output against its reference."""

    def rights(self, reference: Reference) -> dict[str, Right]:
        """What `judge` goes by, in terms that a script without the oracle can check."""

    def why(self, case: Case, semantics: Any) -> str:
        """The contract in a clause or two, in ASCII: which result is right for this call, and how near it has to come."""

    def build_params(self, case: Case) -> Params:
        """What an implementation's `build` and `unsupported` are told of a case: whatever selects another binary."""

    def build_matrix(self) -> Iterator[Params]:
        """Every value of `build_params` that a legal call can have, the plainest first."""

    def relations(self, case: Case) -> Iterator[tuple[str, Case]]:
        """Other calls whose result must be this one's bit for bit: (kind of failure otherwise, case)."""

    def simpler(self, case: Case) -> Iterator[Case]:
        """The case with one of the operator's own features turned off or one parameter simpler, plainest first."""

    def alternatives(self, case: Case) -> Iterator[tuple[str, Value, Case]]:
        """Each of the operator's own parameters, its dtype and where its output lies included, with other values: (parameter,
        value, the case with nothing but that changed). Of each parameter the case's own value comes first."""

    def flags(self, case: Case) -> str:
        """The case's flag set, by which the summary tells ratios apart; "" where the operator is exact."""

    def features(self, case: Case) -> Iterator[str]:
        """The operator's own features that the case uses beyond the plainest call, as short stable words."""


class UnknownOperator(ValueError):
    """There is none of the name; the message is one line."""


@cache
def names() -> list[str]:
    """The operators there are."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


@cache
def get(name: str) -> Operator:
    """An operator by name. Raises UnknownOperator, naming those there are."""
    if name not in names():
        raise UnknownOperator(f"unknown operator {name!r}; there are: {', '.join(names())}")
    return cast(Operator, importlib.import_module(f"{__name__}.{name}"))
