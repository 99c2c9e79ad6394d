"""What the runs of one case gave, and whether they agree."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from harness.verdict import Verdict
from oracles.judgement import bits

Outputs = dict[str, Tensor]


@dataclass
class Runs:
    """What the runs of one case gave, by poison number.

    problems: a verdict or None for each run, in order. first: the outputs of the first run. others: how many later ones had
    other bits.
    """

    problems: dict[int, list[Verdict | None]] = field(default_factory=lambda: {0: [], 1: []})
    first: dict[int, Outputs] = field(default_factory=dict)
    others: int = 0

    def add(self, poison: int, problem: Verdict | None, outputs: Outputs | None) -> None:
        self.problems[poison].append(problem)
        if outputs is not None:
            self.others += not equal(self.first.setdefault(poison, outputs), outputs)

    @property
    def same(self) -> bool:
        return self.others == 0

    @property
    def failures(self) -> list[Verdict]:
        """The problems there were, those that need no reference first."""
        found = [p for problems in self.problems.values() for p in problems if p is not None]
        return sorted(found, key=lambda p: p.stage not in ("build", "call", "memory"))

    @property
    def total(self) -> int:
        return sum(map(len, self.problems.values()))

    @property
    def differ(self) -> bool:
        """Whether the two poisons gave different results."""
        return len(self.first) == 2 and not equal(self.first[0], self.first[1])

    @property
    def steady(self) -> bool:
        """Whether equal calls gave equal results."""
        return self.same and all(len({p.kind if p else "" for p in found}) <= 1 for found in self.problems.values())


def equal(a: Outputs, b: Outputs) -> bool:
    """Whether two sets of outputs have the same bits."""
    return all(torch.equal(bits(a[name]), bits(b[name])) for name in a)


def difference(a: Outputs, b: Outputs) -> tuple[str, Tensor]:
    """The first output that differs, and a mask of where."""
    name = next(name for name in a if not torch.equal(bits(a[name]), bits(b[name])))
    return name, bits(a[name]) != bits(b[name])
