"""harness.record: what is in the corpus, and what was said, when a failure is found, settled, or known after all."""

# ruff: noqa: SIM300 - the expected value stands first

import time

import pytest

from harness.ledger import Ledger
from harness.record import Recorder
from harness.signature import Signature
from harness.verdict import Verdict
from tests.harness.endtoend import entries
from tests.harness.making import NAME, mask_case

SPEC = "mine.py:mask"
FAILED = Verdict("wrong_set", "out[0, 1] is 2")
FOUND, SMALL = mask_case(3, 7, dtype="float16"), mask_case(1, 2)


@pytest.fixture
def said():
    return []


@pytest.fixture
def recorder(tmp_path, said):
    return Recorder(Ledger(tmp_path), said.append, {"torch": "x"}, {SPEC: "mine"}, "cpu")


def test_a_failure_is_kept_as_it_was_found(recorder, tmp_path, said):
    """Not reduced; a second one of its signature that is no smaller is no news."""
    was = recorder.unreduced(FOUND, SPEC, FAILED)
    assert [(FOUND, False, "mine", "cpu")] == [
        (entry.subject, entry.reduced, entry.signature.implementation, entry.device) for entry in entries(tmp_path)
    ]
    assert [(True, str(was))] == [(event["unreduced"], event["signature"]) for event in said]
    assert recorder.unreduced(FOUND, SPEC, FAILED) is None
    assert 1 == len(said)


def test_the_minimal_case_takes_its_place(recorder, tmp_path, said):
    """Its signature may be another: then the unreduced entry goes, and the event names it."""
    was = recorder.unreduced(FOUND, SPEC, FAILED)
    final = recorder.entry(SMALL, SPEC, FAILED, reduced=True)
    recorder.settled(final, was, 12, time.monotonic())
    assert was != final.signature
    assert [final] == entries(tmp_path)
    assert [final.signature] == recorder.ledger.new
    assert ("finding", False, str(final.signature), str(was), 12) == tuple(
        said[-1][key] for key in ("event", "unreduced", "signature", "was", "calls")
    )


def test_what_is_recorded_already_is_known(recorder, tmp_path, said):
    """By another worker: one entry, and no second finding."""
    final = recorder.entry(SMALL, SPEC, FAILED, reduced=True)
    Ledger(tmp_path).add(final)
    recorder.settled(final, None, 1, time.monotonic())
    assert (["known"], []) == ([event["event"] for event in said], recorder.ledger.new)
    assert 1 == len(entries(tmp_path))


def test_a_known_bugs_failure_leaves_no_entry(recorder, tmp_path, said):
    """The one that was made of it goes."""
    was = recorder.unreduced(FOUND, SPEC, FAILED)
    recorder.known(was, Signature(NAME, "mine", "wrong_nan"), FAILED)
    assert [] == entries(tmp_path)
    assert ("known", str(was), "wrong_set") == tuple(said[-1][key] for key in ("event", "was", "as"))


def test_the_known_bugs_own_entry_stays(recorder, tmp_path):
    """Also where it has the signature of the failure as it was found."""
    was = recorder.unreduced(FOUND, SPEC, FAILED)
    recorder.known(was, was, FAILED)
    assert 1 == len(entries(tmp_path))
