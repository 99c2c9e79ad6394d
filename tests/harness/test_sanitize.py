"""`warpcheck sanitize`: findings of checks, kept with the check they need; and what it says where nothing can be checked."""

# ruff: noqa: SIM300 - the expected value stands first

from pathlib import Path

import pytest

from harness import corpus, environment
from harness.case import Case
from harness.normalise import normalise
from harness.sanitize import COLUMNS, Column
from harness.sanitize_command import _cell
from tests.harness.endtoend import ROOT, entries, told, user_folder, warpcheck
from tests.harness.making import NAME

FAULTY = f"{Path(ROOT) / 'tests/planted/cuda/mask.py'}:missing_barrier"

needs_gxx = pytest.mark.skipif(environment.host_compiler() is None, reason="no g++")


def sanitize(folder, *args, **more):
    return warpcheck(folder, "sanitize", "--seed", "1", *args, **more)


@pytest.fixture
def folder(tmp_path):
    return user_folder(tmp_path / "user")


@needs_gxx
def test_a_finding_from_start_to_end(folder):
    """Found with exit status 1, kept with its check, known the next time, shown and reproduced; no script is made of it."""
    chosen = ("--operator", NAME, "--impl", FAULTY, "--schedules", "1")
    first = sanitize(folder, *chosen, "--examples", "6", "--log", "log.jsonl")
    assert 1 == first.returncode, first.stderr
    (entry,) = entries(folder / "corpus")
    (path,) = corpus.paths(folder / "corpus")
    assert isinstance(entry.subject, Case)
    assert ("device_error", ("race",), 0) == (entry.signature.kind, entry.subject.checks, entry.subject.schedule)
    assert entry.signature.error in first.stdout
    (start,) = told(folder / "log.jsonl", "start")
    assert ["race", "memory", "undefined"] == start["checks"]
    (summary,) = told(folder / "log.jsonl", "summary")
    (state,) = summary["targets"].values()
    assert (6, list(COLUMNS)) == (state["cases"], list(state["columns"]))
    assert state["columns"]["race"]["failed"] + state["skipped"] == 6

    again = sanitize(folder, *chosen, path)
    assert (0, 1) == (again.returncode, len(entries(folder / "corpus"))), again.stdout
    assert "1 of 1 cases" in again.stdout

    assert "checked for race" in warpcheck(folder, "show", path).stdout
    reproduced = warpcheck(folder, "repro", path, "--device", "cpu")
    assert (1, True) == (reproduced.returncode, "reproduces device_error" in reproduced.stdout)
    script = warpcheck(folder, "repro", path, "--script", "bug.py")
    assert (2, True) == (script.returncode, "warpcheck repro" in script.stderr)
    replayed = warpcheck(folder, "replay", path)
    assert (0, True) == (replayed.returncode, "as expected" in replayed.stdout)


@needs_gxx
def test_right_kernels_have_no_findings(folder):
    """And only what was asked for is done."""
    done = sanitize(
        folder, "--operator", NAME, "--impl", "cuda", "--examples", "3", "--checks", "memory", "--schedules", "0"
    )
    assert 0 == done.returncode, done.stdout
    assert "nothing new" in done.stdout
    assert "sanitizing top_k_mask_logits/cuda on the CPU: memory, poison and 0 orders of threads" in done.stdout


def test_without_a_compiler(folder, tmp_path):
    """It cannot run here, as repro says it: 125, and what to install."""
    from harness.sandbox import Engine

    inspect = Engine.inspect

    def without(self, operator, spec):
        about = inspect(self, operator, spec)
        about.cannot_run = "no g++: install it"
        return about

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "inspect", without)
        done = sanitize(folder, "--operator", NAME, "--examples", "1")
    assert (125, "cannot run here: no g++: install it") == (done.returncode, done.stderr.strip())


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--impl", "torch"], "none of these is a CUDA kernel that runs on the CPU"),
        (["--impl", "cuda", "--checks", "race,leaks"], "'leaks' is no check; there are: race, memory, undefined"),
        (["nowhere.json"], "nowhere.json"),
        (["mask.py"], "not an entry"),
        (["--impl", "cutlass"], "unknown implementation 'cutlass'"),
    ],
)
def test_bad_input(folder, args, words):
    """One line, exit status 2."""
    done = sanitize(folder, "--operator", NAME, *args)
    assert (2, True) == (done.returncode, words in done.stderr), done.stderr


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (
            "f: race: shared memory that thread 3 wrote is read with no barrier between [thread (1, 0, 0) of block (0, 0, 2)]",
            "f: race: shared memory, no barrier between",
        ),
        (
            "f: race: global memory that thread 0 of block 1 read is written, and nothing orders blocks [thread (1, 0, 0) of "
            "block (0, 0, 0)]",
            "f: race: global memory, nothing orders blocks",
        ),
        (
            "f: race: shared memory that thread 3 read is written by a bulk copy, and there is no barrier between [thread (1, 0, "
            "0) of block (0, 0, 2)]",
            "f: race: shared memory, no barrier between",
        ),
        (
            "f: no thread of block (0, 0, 0) can go on: of 64 threads 3 have exited, 61 wait at the barrier in line 9",
            "f: no thread of block SHAPE can go on",
        ),
        (
            "f: the mask 0xffffffff of __shfl_sync names a lane that has exited or never was",
            "f: the mask ADDRESS of __shfl_sync names a lane that has exited",
        ),
    ],
)
def test_one_bug_has_one_text(said, kept):
    """Which thread it was, and which of two accesses came first, tells no bugs apart."""
    assert kept == normalise(said)


def test_a_cell_of_the_table():
    """Counts, and how many times slower; nothing where nothing ran."""
    assert "–" == _cell(vars(Column()))
    assert "3 pass, 2.5×" == _cell(vars(Column(3, 0, 5.0, 2.0)))
    assert "3 pass, 1 fail, 2.5×" == _cell(vars(Column(3, 1, 5.0, 2.0)))
    assert "3 pass" == _cell(vars(Column(3, 0, 2.0, 2.0)))
