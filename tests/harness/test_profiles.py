"""harness.profiles: how a campaign's time is shared."""

import math

import pytest

from harness.profiles import share


@pytest.mark.parametrize(
    ("seconds", "operators", "expected"), [(60.0, 2, 7.5), (60.0, 1, 15.0), (None, 2, math.inf), (3600.0, 2, 450.0)]
)
def test_every_operator_has_its_turns(seconds, operators, expected):
    """Four in a campaign's time, however slow another operator's kernels are to compile."""
    assert expected == share(seconds, operators)
