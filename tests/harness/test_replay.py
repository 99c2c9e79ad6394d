"""harness.replay: every outcome, and one line for whatever cannot be judged."""

# ruff: noqa: SIM300 - the expected value stands first

import pytest
from msgspec.structs import replace

from harness import corpus, signature
from harness.case import FORMAT
from harness.corpus import Entry
from harness.replay import Replayer, outcome
from harness.verdict import PASS, Verdict, skip
from tests.harness import hostile
from tests.harness.making import mask_case

CASE = mask_case()
FAILED = Verdict("wrong_set", "m")


@pytest.fixture(scope="module")
def replayer():
    with Replayer("cpu") as made:
        yield made


def made(case=CASE, kernel="good", **rest):
    name = signature.signature(CASE, "mine", FAILED)
    return Entry(FORMAT, name, case, FAILED, f"{hostile.__file__}:{kernel}", "cpu", **rest)


def replayed(replayer, folder, *args, **rest):
    return replayer.replay(corpus.write(folder, made(*args, **rest)))


@pytest.mark.parametrize(
    ("verdict", "when_open", "when_fixed"),
    [
        (FAILED, "as expected", "fails"),
        (Verdict("hang"), "as expected", "fails"),
        (PASS, "now passes", "as expected"),
        (skip("no GPU"), "cannot run", "cannot run"),
    ],
)
def test_what_a_verdict_means_for_an_entry(verdict, when_open, when_fixed):
    """By its status; another failure than the one it was found with is a failure."""
    assert [when_open, when_fixed] == [outcome(made(status=status), verdict) for status in ("open", "fixed")]


def test_entries_are_judged_as_their_implementations_are_today(replayer, tmp_path):
    """One that is right by now, one that is gone."""
    found = [replayed(replayer, tmp_path / kernel, kernel=kernel) for kernel in ("good", "not_there")]
    assert ["now passes", "cannot run"] == [replay.outcome for replay in found]
    assert "has no function 'not_there'" in found[-1].verdict.message


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


def test_orders_and_checks_need_no_gpu():
    """They are judged on the CPU wherever the rest is; with neither, where the rest is."""
    with Replayer("cuda") as made:
        chosen = [replace(CASE, schedule=1), replace(CASE, checks=("race",)), CASE]
        assert ["cpu", "cpu", "cuda"] == [made.engine(case).device for case in chosen]
