"""What a campaign says while it runs: plain JSON objects, one a line in the log.

start     targets, environment, known (entries in the corpus); of fuzzing: device, seed; of building: archs, jobs, cells; of
          sanitizing: checks, schedules, seed
resumed   what an earlier campaign left under test
progress  findings, and the state of every target; of fuzzing: cases, builds; of building: cells, done, left (seconds),
          failures (cells by signature); of sanitizing: done, total (cases)
finding   a new signature, with its entry's file; `unreduced` first, then reduced (`was`: what it was called before)
withdrawn a finding that a later one explains
known     a failure (`was`) that turned out to be a known bug's
warning   what a person should read
summary   the last progress, with the outcome
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from harness.verdict import Verdict

Event = dict[str, Any]
Emit = Callable[[Event], None]


@dataclass
class TargetStats:
    """Counts of one target: operator × implementation × device. `idle` says why nothing runs there, if so."""

    operator: str
    name: str
    idle: str = ""
    cases: int = 0
    passed: int = 0
    skipped: int = 0
    why_skipped: str = ""
    vacuous: int = 0
    failed: int = 0
    known: int = 0
    ratio: float = 0.0
    """The largest error over bound of any case that passed."""
    ratios: dict[str, float] = field(default_factory=dict)
    """The same by flag set (`Operator.flags`): how sharp the bound is, and a kernel that gets worse, show there."""
    features: dict[str, int] = field(default_factory=dict)
    """How many cases used each of the operator's features (`Operator.features`)."""

    def count(self, verdict: Verdict, flags: str = "", features: Iterable[str] = ()) -> None:
        """Count a case that was judged; `flags` is its flag set, `features` what it uses."""
        self.cases += 1
        for word in features:
            self.features[word] = self.features.get(word, 0) + 1
        if verdict.failed:
            self.failed += 1
        elif verdict.kind == "skip":
            self.skipped += 1
            self.why_skipped = self.why_skipped or verdict.message
        else:
            self.passed += 1
            self.vacuous += verdict.vacuous
            self.ratio = max(self.ratio, verdict.ratio)
            if flags and verdict.ratio:
                self.ratios[flags] = max(self.ratios.get(flags, 0.0), verdict.ratio)

    def state(self) -> dict[str, Any]:
        state = {k: v for k, v in vars(self).items() if k not in ("operator", "name")}
        return state | {"ratios": dict(self.ratios), "features": dict(self.features)}


def merge_states(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """The counts of two workers on one target, together."""
    return {key: _merge(key, value, b[key]) for key, value in a.items()}


def _merge(key: str, a: Any, b: Any) -> Any:
    if key == "ratio":
        return max(a, b)
    if key == "ratios":
        return {flags: max(a.get(flags, 0.0), b.get(flags, 0.0)) for flags in sorted({*a, *b})}
    if key == "features":
        return {word: a.get(word, 0) + b.get(word, 0) for word in sorted({*a, *b})}
    return a or b if isinstance(a, str) else a + b
