"""harness.command: what the commands share."""

# ruff: noqa: SIM300 - the expected value stands first

from pathlib import Path

import click
import pytest
from rich.console import Console

from harness import command
from harness.replay import NotShown
from harness.verdict import Verdict
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


def test_a_file_to_write_lies_in_a_folder_that_is_there(tmp_path):
    """Before any work is done for it; - is stdout where that is offered, else a file of that name."""
    assert tmp_path / "a.py" == command.OutputFile().convert(str(tmp_path / "a.py"), None, None)
    assert Path("-") == command.OutputFile(allow_dash=True).convert("-", None, None)
    with pytest.raises(click.BadParameter, match="there is no folder"):
        command.OutputFile().convert(str(tmp_path / "no" / "a.py"), None, None)
    with pytest.raises(click.BadParameter, match="is a directory"):
        command.OutputFile().convert(str(tmp_path), None, None)


@pytest.mark.parametrize(
    ("verdict", "status", "words"),
    [
        (Verdict("skip", "no [such] chip"), 125, "cannot run here: no [such] chip"),
        (Verdict("pass"), 1, "the failure does not show here: it passes"),
        (
            Verdict("hang", "no end"),
            1,
            "the failure does not show here: it fails in another way than it says, hang: no end",
        ),
    ],
)
def test_an_entry_that_does_not_show_its_failure(capsys, monkeypatch, verdict, status, words):
    """One line, by every command: 125 where nothing is known, 1 where it is known that the entry is wrong."""

    @command.clear_errors
    def judging():
        raise NotShown(verdict)

    monkeypatch.setattr(command, "err", Console(stderr=True, width=400))
    with pytest.raises(SystemExit) as ended:
        judging()
    assert (status, words, "") == (ended.value.code, (said := capsys.readouterr()).err.strip(), said.out)
