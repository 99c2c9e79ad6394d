"""harness.limits: less patience while looking for what waits, and the old limits afterwards."""

# ruff: noqa: SIM300 - the expected value stands first

from types import SimpleNamespace

import pytest

from harness.limits import Limits, patience


@pytest.mark.parametrize(
    ("kind", "shorter"),
    [
        ("hang", Limits(run=2.0, first_call=15.0)),
        ("build_timeout", Limits(build=18.0)),
        ("wrong_set", Limits()),
    ],
)
def test_patience(kind, shorter):
    """A part of the limit that the failure waits for; put back even when something is raised."""
    engine = SimpleNamespace(limits=Limits())
    with patience(engine, kind):
        assert shorter == engine.limits
    with pytest.raises(ZeroDivisionError), patience(engine, kind):
        raise ZeroDivisionError
    assert Limits() == engine.limits


def test_no_limit_goes_below_a_second():
    """A call that is started on a busy machine takes some."""
    assert (1.0, 1.0) == (Limits(run=3.0).shorter("hang").run, Limits(build=3.0).shorter("build_timeout").build)
