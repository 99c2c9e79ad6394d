"""How often a failure shows that does not always: a rate, what is known of it, and whether a smaller case keeps it.

The interval is Wilson's ("Probable inference, the law of succession, and statistical inference", JASA 22, 1927): it stays
inside [0, 1] and says something sensible of 0 failures of n.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

Z95 = 1.959964
"""Of a normal distribution, 95 % lie within so many standard deviations."""
Z90, Z99 = 1.644854, 2.575829

CONFIDENCE = 0.99
NEAR = 0.5
"""A smaller case keeps a failure if it shows at least this part of the rate that the case had which was found."""
BATCH = 8
"""Pairs of runs between two looks at whether it is decided."""
MOST_PAIRS = 128
"""Where it is not decided by then, the smaller case keeps the failure unless its 95 % interval says that it does not."""


class Rate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of `runs` equal calls in a process that had judged nothing, `failed` failed."""

    failed: int
    runs: int
    low: float
    """Ends of the 95 % interval."""
    high: float
    repeats: int
    """So many calls show the failure at least once with 99 % confidence, were the rate no more than `low`; 0: unknown."""

    def __str__(self) -> str:
        shown = f"; {self.repeats} calls show it with 99 % confidence" if self.repeats else ""
        return f"{self.failed} of {self.runs} runs, 95 % interval {self.low:.3f} to {self.high:.3f}{shown}"


def measured(failed: int, runs: int) -> Rate:
    """What `failed` failures in `runs` runs say."""
    low, high = wilson(failed, runs)
    return Rate(failed, runs, round(low, 4), round(high, 4), repeats(low))


def wilson(failed: int, runs: int, z: float = Z95) -> tuple[float, float]:
    """The interval of a rate in which the truth lies, as far as z standard deviations go; all of [0, 1] without a run."""
    if runs == 0:
        return 0.0, 1.0
    p, zz = failed / runs, z * z / runs
    middle = (p + zz / 2) / (1 + zz)
    half = z * math.sqrt(p * (1 - p) / runs + zz / (4 * runs)) / (1 + zz)
    # At its ends the interval is exact, whatever the square root rounds to.
    return (max(0.0, middle - half) if failed else 0.0), (min(1.0, middle + half) if failed < runs else 1.0)


def repeats(rate: float, confidence: float = CONFIDENCE) -> int:
    """How many runs show a failure of this rate at least once with this confidence; 0 where no number of runs does."""
    if rate >= 1:
        return 1
    return math.ceil(math.log(1 - confidence) / math.log1p(-rate)) if rate > 0 else 0


Sample = Callable[[int], tuple[int, int] | None]
"""(pairs of runs) -> (failed, runs) of so many more, or None for a failure of another sort."""


def keeps(sample: Sample, reference: float) -> tuple[int, int] | None:
    """Whether what is sampled fails nearly as often as `reference` says: (failed, runs) if so, or None.

    Samples until the rate is above NEAR × reference with 90 % confidence, or below it with 99 % (who gives a step up does
    not come back to it), for MOST_PAIRS pairs at most.
    """
    wanted = NEAR * reference
    failed = runs = 0
    for _ in range(0, MOST_PAIRS, BATCH):
        found = sample(BATCH)
        if found is None:
            return None
        failed, runs = failed + found[0], runs + found[1]
        if wilson(failed, runs, Z99)[1] < wanted:
            return None
        if wilson(failed, runs, Z90)[0] > wanted:
            return failed, runs
    return (failed, runs) if failed and wilson(failed, runs)[1] >= wanted else None
