"""harness.jobs: workers that are processes; what they say is added up, whatever becomes of them."""

# ruff: noqa: SIM300 - the expected value stands first

import sys

import pytest

from harness import jobs
from harness.fuzz import Config
from harness.sandbox import HarnessError, UnusableImplementation

CONFIG = Config(("op",), {"op": ("mine.py:mask",)}, "cpu", cases=7)

PROGRESS = """
import json, sys
def progress(cases):
    state = {"cases": cases, "passed": cases, "skipped": 0, "failed": 0, "vacuous": 0, "ratio": 0.0, "known": 0, "idle": ""}
    print(json.dumps({"event": "progress", "cases": cases, "builds": 0, "builds_pending": 0, "findings": 1, "deaths": 0,
                      "harness_failures": 0,
                      "seconds": 1.0, "hunting": "", "targets": {"op/mine": state}, "timing": {"oracle": 0.5}}), flush=True)
"""


@pytest.fixture
def scripted(tmp_path, monkeypatch):
    """Start workers that run a script instead: what they would do is `script`'s."""
    interpreter = tmp_path / "python"
    real = sys.executable
    monkeypatch.setattr(sys, "executable", str(interpreter))

    def script(text):
        (tmp_path / "script.py").write_text(PROGRESS + text)
        interpreter.write_text(f"#!/bin/sh\nexec {real} {tmp_path / 'script.py'}\n")
        interpreter.chmod(0o755)

    return script


def ran(count=2):
    events = []
    jobs.run(CONFIG, count, events.append)
    return events


def test_progress_is_the_sum(scripted):
    """Of the latest that each worker said."""
    scripted("sys.stdin.read(); progress(1); progress(3)")
    last = ran()[-1]
    assert (6, 2, 6, {"oracle": 1.0}) == (
        last["cases"],
        last["findings"],
        last["targets"]["op/mine"]["cases"],
        last["timing"],
    )


def test_the_start_is_told_once_and_findings_are_all_told(scripted):
    """By the first worker; each finding as it comes."""
    scripted("sys.stdin.read(); print(json.dumps({'event': 'start'})); print(json.dumps({'event': 'finding'}))")
    assert ["finding", "finding", "finding", "start"] == sorted(event["event"] for event in ran(3))


def test_a_worker_that_warns_a_lot_is_not_stopped_by_it(scripted):
    """More than a pipe holds, on stderr, in the middle of its work."""
    scripted("sys.stdin.read(); progress(1); sys.stderr.write('a warning\\n' * 100_000); progress(2)")
    assert 4 == ran()[-1]["cases"]


@pytest.mark.parametrize(
    ("status", "error"), [(jobs.USAGE, UnusableImplementation), (1, HarnessError)], ids=["usage", "other"]
)
@pytest.mark.parametrize("read", ["sys.stdin.read()", "0"], ids=["late", "before it was told what to do"])
def test_how_a_worker_ended_is_told_with_its_last_words(scripted, read, status, error):
    """After much else that it said."""
    scripted(f"{read}; sys.stderr.write('noise\\n' * 50_000 + 'the reason\\n'); sys.exit({status})")
    with pytest.raises(error, match="the reason"):
        ran()


def test_a_silent_end_is_told_too(scripted):
    """With its status."""
    scripted("sys.exit(3)")
    with pytest.raises(HarnessError, match="status 3: it said nothing"):
        ran()


def test_workers_share_the_cases_and_one_compiles():
    """Nothing is lost in the division; seeds and names differ."""
    parts = [jobs._share(CONFIG, i, 3) for i in range(3)]
    assert [3, 2, 2] == [part.cases for part in parts]
    assert [True, False, False] == [part.builds for part in parts]
    assert 3 == len({part.seed for part in parts}) == len({part.name for part in parts})
