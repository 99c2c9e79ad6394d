"""harness.rate: intervals of a rate, how many repeats show a failure, what keeps one."""

# ruff: noqa: SIM300 - the expected value stands first

import math
import random

import pytest

from harness.rate import MOST_PAIRS, keeps, measured, repeats, wilson


@pytest.mark.parametrize(
    ("failed", "runs", "expected"),
    [
        (0, 10, (0.0, 0.2775)),
        (10, 10, (0.7225, 1.0)),
        (1, 5, (0.0362, 0.6245)),
        (20, 100, (0.1334, 0.2888)),
        (500, 1000, (0.4691, 0.5309)),
    ],
)
def test_the_interval_is_wilsons(failed, runs, expected):
    """Values of the formula, worked out apart from this code."""
    assert expected == pytest.approx(wilson(failed, runs), abs=5e-5)


def test_nothing_is_known_without_a_run():
    """The whole of [0, 1], and no number of repeats."""
    assert (0.0, 1.0) == wilson(0, 0)
    assert 0 == measured(0, 0).repeats


@pytest.mark.parametrize(("rate", "expected"), [(0.0, 0), (1.0, 1), (0.995, 1), (0.5, 7), (0.2, 21), (0.001, 4603)])
def test_repeats_that_show_a_failure_with_99_percent(rate, expected):
    """The least n with (1 - rate)^n <= 0.01."""
    assert expected == repeats(rate)


@pytest.mark.parametrize(("rate", "runs"), [(0.2, 60), (0.05, 200), (0.5, 32)])
def test_the_interval_holds_the_truth_about_as_often_as_it_says(rate, runs):
    """Over all outcomes of an experiment, each with its binomial probability: 95 %, within two and a half points."""
    likely = {n: math.comb(runs, n) * rate**n * (1 - rate) ** (runs - n) for n in range(runs + 1)}
    held = sum(p for n, p in likely.items() if wilson(n, runs)[0] <= rate <= wilson(n, runs)[1])
    assert 0.95 == pytest.approx(held, abs=0.025)


def sampler(rate, seed):
    source = random.Random(seed)
    asked = []

    def sample(pairs):
        asked.append(pairs)
        return sum(source.random() < rate for _ in range(2 * pairs)), 2 * pairs

    return sample, asked


def test_what_fails_as_often_is_kept_and_what_never_does_is_not():
    """At a rate of one in five, for 200 seeds each: nothing that never fails is kept, and everything else is."""
    kept = [keeps(sampler(0.2, seed)[0], 0.2) is not None for seed in range(200)]
    never = [keeps(sampler(0.0, seed)[0], 0.2) for seed in range(200)]
    assert [None] * 200 == never
    assert [True] * 200 == kept


def test_what_fails_far_less_often_is_given_up():
    """One in fifty for one in five: at most one candidate of twenty slips through."""
    assert sum(keeps(sampler(0.02, seed)[0], 0.2) is not None for seed in range(200)) <= 10


def test_another_failure_is_none_of_ours():
    """A sample that failed otherwise ends it."""
    assert keeps(lambda pairs: None, 0.2) is None


def test_sampling_ends():
    """On the edge, where no interval decides, after the pairs that there are."""
    sample, asked = sampler(0.1, 3)
    keeps(sample, 0.2)
    assert sum(asked) <= MOST_PAIRS
