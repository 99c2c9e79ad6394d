"""tests.failures: a run that is killed has told of the failures it has seen."""

# ruff: noqa: SIM300

import subprocess
import sys

import pytest

from tests.harness.endtoend import LONG, ROOT, clean_environment

TESTS = """
import os
import signal
import time
from pathlib import Path

import pytest

def test_fails():
    assert 1 == 2, "told"

@pytest.fixture
def broken():
    raise RuntimeError("before it began")

def test_has_no_fixture(broken):
    pass

def test_passes():
    pass

def test_kills_the_run():
    while "before it began" not in Path("told").read_text():  # reports travel
        time.sleep(0.01)
    os.kill({victim}, signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("options", "victim"), [((), "os.getpid()"), (("-n", "1"), "os.getppid()")], ids=["alone", "xdist"]
)
def test_failures_outlive_the_run(tmp_path, options, victim):
    """Each once, with its name and what pytest says of it, in the order in which they happened."""
    (tmp_path / "test_it.py").write_text(TESTS.format(victim=victim))
    (tmp_path / "told").write_text("of the run before")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.failures", "--failures-to", "told", *options]
    environment = clean_environment(PYTHONPATH=str(ROOT))
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=LONG, check=False)
    assert done.returncode < 0
    told = (tmp_path / "told").read_text()
    heads = [line.partition(",")[0] for line in told.splitlines() if line.startswith("== ")]
    assert ["== test_it.py::test_fails", "== test_it.py::test_has_no_fixture"] == heads
    assert "AssertionError: told" in told
    assert "RuntimeError: before it began" in told
