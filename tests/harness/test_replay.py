"""harness.replay: every outcome, and one line for whatever cannot be judged."""

# ruff: noqa: SIM300 - the expected value stands first

import pytest
from msgspec.structs import replace

from harness import corpus, signature
from harness.case import FORMAT
from harness.corpus import Entry
from harness.replay import Replayer, _line
from harness.verdict import Verdict
from tests.harness import hostile
from tests.harness.making import mask_case

CASE = mask_case()
FAILED = Verdict("wrong_set", "m")


@pytest.fixture(scope="module")
def replayer():
    with Replayer("cpu") as made:
        yield made


def replayed(replayer, folder, case=CASE, kernel="good", **rest):
    name = signature.signature(CASE, "mine", FAILED)
    path = corpus.write(folder, Entry(FORMAT, name, case, FAILED, f"{hostile.__file__}:{kernel}", "cpu", **rest))
    return replayer.replay(path)


@pytest.mark.parametrize(
    ("kernel", "status", "expected"),
    [
        ("good", "fixed", "as expected"),
        ("good", "open", "now passes"),
        ("segfaults", "open", "as expected"),
        ("segfaults", "fixed", "fails"),
        ("not_there", "open", "cannot run"),
    ],
)
def test_what_an_entry_comes_to(replayer, tmp_path, kernel, status, expected):
    """By its status, and what its implementation does today."""
    found = replayed(replayer, tmp_path, kernel=kernel, status=status)
    assert expected == found.outcome
    assert 1 == len(found.verdict.message.splitlines()) or found.verdict.kind == "pass"


NO_CALLS = {
    "a kind of fill that is none": replace(CASE, fills={"logits": replace(CASE.fills["logits"], kind="noise")}),
    "a parameter that is missing": replace(CASE, params={"k": 1}),
    "a tensor that is missing": replace(CASE, tensors={}, fills={}),
    "an operator that is none": replace(CASE, operator="no_such_operator"),
}


@pytest.mark.parametrize("name", NO_CALLS)
def test_a_case_that_is_no_call_is_unreadable(replayer, tmp_path, name):
    """In one line that says what is wrong, as an entry's own case and as its context."""
    for found in (
        replayed(replayer, tmp_path, NO_CALLS[name]),
        replayed(replayer, tmp_path / "context", context=(NO_CALLS[name],)),
    ):
        assert "unreadable" == found.outcome, found.verdict.message
        assert 1 == len(found.verdict.message.splitlines())
        assert "Traceback" not in found.verdict.message
    assert "now passes" == replayed(replayer, tmp_path / "next").outcome


def test_an_errors_line_is_the_one_that_says_most():
    """The last one of a traceback, the first of a message with a log behind it."""
    assert "KeyError: 'form'" == _line("Traceback (most recent call last):\n  File ...\nKeyError: 'form'\n")
    assert "the process died" == _line("the process died\nFatal Python error: Aborted\n")
    assert _line("")
