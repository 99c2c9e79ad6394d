"""What is timed, made one: an implementation, or a competitor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from harness import implementations, operators
from harness.bench import workload as workloads
from harness.bench.timing import Thunk
from harness.bench.workload import Competitor, Tensors, Workload
from harness.implementations import Implementation
from harness.operators import Call


@dataclass(frozen=True)
class Bound:
    """A call that can be made again and again. writes: names of the tensors that it changes."""

    call: Thunk
    writes: frozenset[str]


@dataclass(frozen=True)
class Subject:
    """semantics: as a module's SEMANTICS; right by one of them is right. deterministic: equal calls give equal bits."""

    name: str
    semantics: tuple[Mapping[str, Any], ...]
    deterministic: bool
    kernel: Implementation | Competitor

    def unsupported(self, workload: Workload) -> str | None:
        """Why the workload is not for it, said before anything is built; None when it is."""
        if isinstance(self.kernel, Competitor):
            return self.kernel.unsupported(workload)
        params = workloads.of(workload.operator).build_params(workload)
        return self.kernel.unsupported(self.kernel.tuned(params))

    def bind(self, workload: Workload, tensors: Tensors) -> Bound | str:
        """The call on these tensors, or why the function has no such call."""
        kernel = self.kernel
        if isinstance(kernel, Competitor):
            return Bound(partial(kernel.run, workload, tensors), frozenset())
        why = ""
        for call in workloads.of(workload.operator).calls(workload, tensors):
            function = kernel.in_place if call.method else kernel.function
            missing = [n for n in call.kwargs if kernel.parameters is not None and n not in kernel.parameters]
            if function is not None and not missing:
                return Bound(partial(function, *call.args, **_keywords(kernel, call)), call.writes)
            why = f"takes no argument {missing[0]!r}" if missing else "has no in-place spelling"
        return why


def _keywords(kernel: Implementation, call: Call) -> dict[str, Any]:
    """The call's, and those of the default tuning."""
    return {**call.kwargs, **kernel.tuning(0)}


def load(operator: str, spec: str, device: str) -> Subject:
    """A competitor by its name, or an implementation by its spec, on "cpu" or "cuda". Raises UnknownImplementation."""
    for competitor in workloads.of(operator).COMPETITORS:
        if competitor.name == spec:
            return Subject(spec, competitor.semantics, False, competitor)
    found = implementations.load(operator, spec)
    return Subject(found.name, (found.semantics(device),), not found.nondeterministic, found)


def outputs_of(operator: str, result: Any) -> dict[str, Tensor]:
    """What a call returned, by name. Raises TypeError for what is no result of the operator's."""
    results = result if isinstance(result, (tuple, list)) else (result,)
    names = operators.get(operator).OUTPUTS
    if not results or len(results) > len(names) or not all(isinstance(each, Tensor) for each in results):
        raise TypeError(f"returned {type(result).__name__}, not {' and '.join(names)}")
    return dict(zip(names, results))
