"""harness.jobs: campaigns side by side: how the work is split, the counts added, and what ends them."""

# ruff: noqa: SIM300 - the expected value stands first

import os
import signal

import pytest

from harness import jobs
from harness.fuzz import Config
from harness.sandbox import UnusableImplementation
from tests.harness.endtoend import Running, entries, events, fuzz, told, user_folder, wait_until, warpcheck_process
from tests.harness.making import NAME

CONFIG = Config((NAME,), {NAME: ("torch",)}, "cpu", cases=31, seed=7)


def progress(**more):
    state = {"idle": "", "cases": 3, "passed": 2, "skipped": 1, "vacuous": 0, "failed": 0, "known": 0, "ratio": 0.5}
    return {
        "event": "progress", "worker": "0", "seconds": 2.0, "cases": 3, "hunting": "", "builds": 1, "builds_pending": 0,
        "findings": 1, "deaths": 0, "harness_failures": 0, "targets": {"a/b": state}, "timing": {"oracle": 0.25}, **more,
    }  # fmt: skip


@pytest.mark.parametrize("number", [1, 2, 3, 8, 31, 40])
def test_the_cases_are_split_without_loss(number):
    """The parts add up, and differ by one at most."""
    parts = [jobs._share(CONFIG, i, number).cases for i in range(number)]
    assert 31 == sum(parts)
    assert max(parts) - min(parts) <= 1


def test_each_worker_draws_its_own_and_one_compiles():
    """Other seeds and names, the first one the campaign's own seed; a budget of time is everybody's."""
    shares = [jobs._share(CONFIG, i, 4) for i in range(4)]
    assert 4 == len({share.seed for share in shares})
    assert 7 == shares[0].seed
    assert ["0", "1", "2", "3"] == [share.name for share in shares]
    assert [True, False, False, False] == [share.builds for share in shares]
    assert {None} == {jobs._share(Config((NAME,), {}, "cpu", seconds=9), i, 2).cases for i in range(2)}


def test_workers_on_gpus_take_turns(monkeypatch):
    """Each sees one of those that the caller chose."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,2")
    on_gpu = Config((NAME,), {}, "cuda")
    assert ["5", "2", "5"] == [jobs._share(on_gpu, i, 3).visible for i in range(3)]
    assert jobs._share(CONFIG, 0, 3).visible is None


def test_progress_adds_up():
    """Counts are sums, time and ratio are maxima, and whoever hunts is named."""
    other = progress(seconds=5.0, hunting="wrong_set", timing={"oracle": 0.5, "data": 1.0})
    other["targets"]["a/b"]["ratio"] = 0.75
    total = jobs.add([progress(), other])
    assert (6, 2, 2, 5.0, "wrong_set") == tuple(
        total[key] for key in ("cases", "builds", "findings", "seconds", "hunting")
    )
    assert (6, 4, 2, 0.75) == tuple(total["targets"]["a/b"][key] for key in ("cases", "passed", "skipped", "ratio"))
    assert {"oracle": 0.75, "data": 1.0} == total["timing"]


def test_progress_is_the_sum_of_each_workers_latest():
    """Not of all they ever said; everything else passes."""
    latest, seen = {}, []
    for i, event in [(0, progress()), (0, progress(cases=5))]:
        jobs._take(i, event, latest, seen.append)
    jobs._take(1, progress(cases=2), latest, seen.append)
    jobs._take(1, {"event": "finding"}, latest, seen.append)
    assert ["progress", "progress", "progress", "finding"] == [event["event"] for event in seen]
    assert [3, 5, 7] == [event["cases"] for event in seen if event["event"] == "progress"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """One campaign of two workers: (folder, what the command did)."""
    folder = user_folder(tmp_path_factory.mktemp("pair"))
    args = ("--examples", "161", "--seed", "5", "--jobs", "2", "--log", "log.jsonl")
    return folder, fuzz(folder, "two_bugs", *args, run=warpcheck_process)


def test_two_workers_judge_what_was_asked_for(pair):
    """The summary counts both of them, and there is one start."""
    summary = told(pair[0] / "log.jsonl", "summary")[0]
    assert 161 == summary["cases"]
    assert 161 == summary["targets"][f"{NAME}/mask.two_bugs"]["cases"]
    assert 1 == len(told(pair[0] / "log.jsonl", "start"))
    assert ("start", "summary") == (events(pair[0] / "log.jsonl")[0]["event"], "summary")


def test_two_workers_that_find_the_same_leave_one_entry(pair):
    """Both bugs, each once, all reduced; exit status 1."""
    folder, done = pair
    assert 1 == done.returncode, done.stderr
    found = entries(folder / "corpus")
    assert ["wrong_metadata", "wrong_set"] == sorted(entry.verdict.kind for entry in found)
    assert all(entry.reduced for entry in found)


def test_what_two_workers_find_is_announced_once(pair):
    """A finding in the summary is a new entry: no more of them than there are."""
    summary = told(pair[0] / "log.jsonl", "summary")[0]
    assert len(entries(pair[0] / "corpus")) == len(summary["new"])


def test_what_stops_a_worker_is_told_in_one_line(tmp_path):
    """A file that cannot be loaded is the user's error here as it is with one worker."""
    folder = user_folder(tmp_path)
    (folder / "mask.py").write_text("def mask(:\n")
    config = Config(
        (NAME,), {NAME: (f"{folder}/mask.py:mask",)}, "cpu", cases=4, corpus=folder / "corpus", builds=False
    )
    with pytest.raises(UnusableImplementation, match="SyntaxError"):
        jobs.run(config, 2, lambda event: None)


def test_kill_9_of_the_parent_ends_the_workers(tmp_path):
    """And their children: nothing is left that goes on fuzzing for nobody."""
    folder = user_folder(tmp_path)
    args = ("fuzz", "--operator", NAME, "--impl", "mask.py:good", "--device", "cpu", "--no-builds", "--time", "2h")
    with Running(folder, *args, "--jobs", "2", "--log", "log.jsonl", "--seed", "1") as running:
        running.until(lambda: told(folder / "log.jsonl", "progress") and len(running.family()) >= 5)
        os.kill(running.process.pid, signal.SIGKILL)
        running.wait()
        assert wait_until(lambda: not running.family(), seconds=60)
