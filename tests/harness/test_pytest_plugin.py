"""harness.pytest_plugin: one GPU a worker, skips that say why, a header."""

# ruff: noqa: SIM300 - the expected value stands first

import os
import subprocess
import sys

import pytest

from harness import environment, pytest_plugin
from tests.harness.endtoend import LONG, ROOT, clean_environment

VISIBLE = "CUDA_VISIBLE_DEVICES"
WORKER = "PYTEST_XDIST_WORKER"


def pinned(before):
    """What `pin` makes of an environment; the process's own says something else, and is left alone."""
    found = dict(before)
    pytest_plugin.pin(found)
    return found


@pytest.mark.parametrize(
    ("worker", "chosen", "one"),
    [
        ("gw0", "0,1,2,3", "0"),
        ("gw3", "0,1,2,3", "3"),
        ("gw4", "0,1,2,3", "0"),
        ("gw1", "6,2", "2"),
        ("gw5", "GPU-aa,GPU-bb", "GPU-bb"),
        ("gw12", "7", "7"),
    ],
)
def test_a_worker_gets_one_of_the_gpus_that_were_chosen(monkeypatch, worker, chosen, one):
    """In turn, in the caller's own words."""
    monkeypatch.setenv(VISIBLE, "41,42,43")
    assert {WORKER: worker, VISIBLE: one} == pinned({WORKER: worker, VISIBLE: chosen})


@pytest.mark.parametrize(("worker", "one"), [("gw0", "6"), ("gw1", "2"), ("gw2", "6"), ("gw13", "2")])
def test_the_process_itself_is_pinned(monkeypatch, worker, one):
    """What the plugin does when it is loaded."""
    monkeypatch.setenv(VISIBLE, "6,2")
    monkeypatch.setenv(WORKER, worker)
    pytest_plugin.pin()
    assert one == pytest_plugin.os.environ[VISIBLE]
    pytest_plugin.pin()  # a process that the worker starts inherits both, and loads the plugin too
    assert one == pytest_plugin.os.environ[VISIBLE]


@pytest.mark.parametrize(
    "before", [{}, {VISIBLE: "0,1"}, {WORKER: "master", VISIBLE: "0,1"}, {WORKER: "", VISIBLE: "3"}]
)
def test_without_xdist_the_choice_is_left_alone(monkeypatch, before):
    """As it is with a worker that is none."""
    monkeypatch.setenv(VISIBLE, "41,42")
    assert before == pinned(before)


def test_a_choice_of_no_gpu_stays_one(monkeypatch):
    """An empty list is a choice too."""
    monkeypatch.setenv(VISIBLE, "")
    assert {WORKER: "gw1", VISIBLE: ""} == pinned({WORKER: "gw1", VISIBLE: ""})


@pytest.mark.parametrize(("cores", "workers", "threads"), [(16, 4, "4"), (16, 5, "3"), (2, 8, "1")])
def test_workers_share_the_cores(monkeypatch, cores, workers, threads):
    """Each has as many threads as cores are left for it, and at least one: as many as there are cores would make all wait."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    environment = {WORKER: "gw1", VISIBLE: "", "PYTEST_XDIST_WORKER_COUNT": str(workers)}
    assert {**environment, "OMP_NUM_THREADS": threads} == pinned(environment)


def test_the_callers_number_of_threads_stays():
    """It is a choice."""
    environment = {WORKER: "gw1", VISIBLE: "", "PYTEST_XDIST_WORKER_COUNT": "4", "OMP_NUM_THREADS": "7"}
    assert environment == pinned(environment)


TESTS = """
import os
import pytest

@pytest.mark.gpu
def test_on_a_gpu():
    raise AssertionError("it must not run")

def test_anywhere():
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A user's test run without a GPU, in a process of its own, with nothing loaded but this plugin."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "test_it.py").write_text(TESTS)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "harness.pytest_plugin", "-rs", "--strict-markers", "-p", "no:cacheprovider"],
        cwd=folder,
        env=clean_environment(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )  # fmt: skip


def test_a_test_that_needs_a_gpu_is_skipped_with_a_sentence(run):
    """The whole of it is in the report; other tests run, and the marker is known."""
    assert 0 == run.returncode, run.stdout
    assert "1 passed, 1 skipped" in run.stdout
    assert pytest_plugin.WHY_SKIPPED in run.stdout


def test_the_header_says_what_is_under_test(run):
    """Versions, and the GPUs that are visible."""
    assert f"torch {environment.software()['torch']}" in run.stdout
    assert "warpcheck: GPUs visible: none\n" in run.stdout


@pytest.mark.gpu
def test_a_gpu_test_runs_where_there_is_one():
    """And is pinned to one GPU under xdist."""
    import torch

    assert torch.cuda.is_available()
