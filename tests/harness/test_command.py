"""harness.command: what the commands share."""

# ruff: noqa: SIM300 - the expected value stands first

import pytest

from harness import command
from tests.harness.making import NAME


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("0.5s", 0.5), ("10 s", 10)]
)
def test_durations(text, seconds):
    """In seconds unless a unit says otherwise."""
    assert seconds == command.Duration().convert(text, None, None)


def test_targets():
    """By default all that there is; a name picks one; a function of a file is taken as it stands."""
    assert "torch" in command._targets(None, ())[NAME]
    assert ("torch",) == command._targets(None, ("torch",))[NAME]
    assert ("mine.py:mask", "torch") == command._targets(NAME, ("mine.py:mask", "torch"))[NAME]
    with pytest.raises(ValueError, match="unknown implementation"):
        command._targets(NAME, ("nope",))
