"""Is a result right? By the operator's oracle, in parts for which there is memory and time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

from harness import mismatch, operators
from harness.bench import workload as workloads
from harness.bench.workload import Tensors, Workload


class Wrong(Exception):
    """A result is wrong; the message says where, in one line."""


class Judged(NamedTuple):
    """ratio: the largest |error| / bound. vacuous: the bound is so wide that passing proves nothing."""

    ratio: float
    vacuous: bool


def judge(
    workload: Workload,
    tensors: Tensors,
    outputs: dict[str, Tensor],
    semantics: tuple[Mapping[str, Any], ...],
    device: str,
) -> Judged:
    """Judge one result on the inputs `tensors` as they were before the call. Raises Wrong."""
    first: Wrong | None = None
    for words in semantics:
        try:
            return _by(workload, tensors, outputs, words, device)
        except Wrong as wrong:
            first = first or wrong
    assert first is not None
    raise first


def _by(
    workload: Workload, tensors: Tensors, outputs: dict[str, Tensor], words: Mapping[str, Any], device: str
) -> Judged:
    operator = operators.get(workload.operator)
    semantics = operator.semantics(words, device)
    ratio, vacuous = 0.0, False
    for number, part in enumerate(workloads.of(workload.operator).parts(workload, tensors, outputs)):
        reference = operator.reference(part.call, semantics)
        for name, got in part.outputs.items():
            want, dtype = reference.want[name].shape, reference.dtype[name]
            if (got.shape, got.dtype) != (want, dtype):
                raise Wrong(f"{name} is {got.dtype} {list(got.shape)} instead of {dtype} {list(want)}")
        for name, found in operator.judge(part.outputs, reference).items():
            if found.kind is not None:
                (worst,) = mismatch.worst(name, part.outputs[name], found.wrong, found)
                place = f"{name}{list(worst.index)} of part {number + 1} is {worst.got}, should be {worst.want}"
                raise Wrong(f"{found.kind}: {place}; {int(found.wrong.sum())} of {found.wrong.numel()} wrong")
            ratio = max(ratio, found.ratio if math.isfinite(found.ratio) else 0.0)
            vacuous = vacuous or found.vacuous
    return Judged(ratio, vacuous)
