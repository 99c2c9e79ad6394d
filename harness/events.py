"""What a campaign says while it runs: plain JSON objects, one a line in the log.

start     device, seed, environment, targets, known (entries in the corpus)
resumed   a case that an earlier campaign left under test
progress  cases, builds, findings, and the state of every target
finding   a new signature, with its entry's file; `unreduced` first, then reduced
withdrawn a finding that a later one explains
known     a failure that turned out to be a known bug's
warning   what a person should read
summary   the last progress, with the outcome
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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

    def count(self, verdict: Verdict) -> None:
        self.cases += 1
        if verdict.failed:
            self.failed += 1
        elif verdict.kind == "skip":
            self.skipped += 1
            self.why_skipped = self.why_skipped or verdict.message
        else:
            self.passed += 1
            self.vacuous += verdict.vacuous
            self.ratio = max(self.ratio, verdict.ratio)

    def state(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in ("operator", "name")}


def merge_states(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """The counts of two workers on one target, together."""
    return {
        key: max(value, b[key]) if key == "ratio" else (value or b[key]) if isinstance(value, str) else value + b[key]
        for key, value in a.items()
    }
