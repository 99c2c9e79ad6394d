"""Explicit Hypothesis profiles. Nothing is left to defaults: under CI=1 Hypothesis would derandomise itself silently."""

from __future__ import annotations

import math

from hypothesis import HealthCheck, Phase, Verbosity, settings

KEPT_CHECKS = (HealthCheck.filter_too_much, HealthCheck.large_base_example)
"""These mean that a strategy is wrong. The others speak of time, which belongs to the kernels here."""


ROUNDS = 4
"""Turns that every operator gets in a campaign's time, at least: one whose kernels are still being compiled takes all of it
otherwise."""


def share(seconds: float | None, operators: int) -> float:
    """Seconds that a turn may take."""
    return math.inf if seconds is None else seconds / (ROUNDS * max(operators, 1))


def profile(examples: int) -> settings:
    """For a run of this many examples: random, no database (the corpus is the memory), no deadline, no explain phase."""
    return settings(
        max_examples=examples,
        derandomize=False,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=[check for check in HealthCheck if check not in KEPT_CHECKS],
        report_multiple_bugs=False,  # one at a time: while it shrinks, only its own implementation runs
        print_blob=False,
        verbosity=Verbosity.quiet,
    )


EXAMPLES = {"dev": 200, "pr": 1000, "nightly": 5000}
"""Cases a property test draws, by profile (a campaign has a budget of its own)."""

SHRINK_SECONDS = {"dev": 20.0, "pr": 60.0, "nightly": 300.0}
"""What a failure may cost until it is small, by profile. Hypothesis gets the first third."""

TURN = 400
"""Cases between two looks at the corpus and the clock."""
