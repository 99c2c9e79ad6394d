"""The scripts of planted faults of both operators, in processes that can import neither harness nor oracles: they show the
bug, and pass beside a correct kernel."""

# ruff: noqa: SIM300 - the expected value stands first

import json
import subprocess
import sys
from collections import Counter

import pytest

from harness import implementations, repro
from tests.elsewhere import ROOT, lay_out
from tests.harness.endtoend import LONG, clean_environment
from tests.harness.repro.portable import SUBJECTS, entry, mended

RUNNER = """
import json, os, runpy, sys, traceback
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("harness", "oracles"):
            raise ModuleNotFoundError(f"there is no {name} here", name=name)

sys.meta_path.insert(0, Absent())
import torch  # once for all: each script runs in a fork of this process, as its own __main__
seen = {}
for script in sys.argv[1:]:
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.dup2(write, 1), os.dup2(write, 2)
        try:
            runpy.run_path(script, run_name="__main__")
            status = 0
        except SystemExit as end:
            status = end.code or 0
        except BaseException:
            traceback.print_exc()
            status = 99
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(status)
    os.close(write)
    with os.fdopen(read, errors="replace") as pipe:
        text = pipe.read()
    seen[script] = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text]
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def entries():
    return {subject: entry(subject) for subject in SUBJECTS}


@pytest.fixture(scope="module")
def shown(entries, tmp_path_factory):
    """subject -> (status, output) of its script, and of the script with a correct kernel."""
    folder = tmp_path_factory.mktemp("elsewhere")
    lay_out(folder)
    names = {}
    for number, subject in enumerate(SUBJECTS):
        implementation = implementations.load(subject.case.operator, str(ROOT / subject.spec))
        text = repro.script(entries[subject], path="entry.json", implementation=implementation)
        text = text.replace("dump_traceback_later(60", "dump_traceback_later(3")
        for name, content in ((f"{number}.py", text), (f"{number}-right.py", mended(text, subject))):
            (folder / name).write_text(content, encoding="utf-8")
            names[subject, "right" in name] = name
    (folder / "runner.py").write_text(RUNNER)
    done = subprocess.run(
        [sys.executable, "runner.py", *names.values()],
        cwd=folder,
        env=clean_environment(PYTHONPATH="."),
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    seen = json.loads(done.stdout)
    return {subject: (seen[names[subject, False]], seen[names[subject, True]]) for subject in SUBJECTS}


def name_of(subject):
    return f"{subject.case.operator}-{subject.function}"


@pytest.mark.parametrize("subject", SUBJECTS, ids=name_of)
def test_the_entry_is_what_it_is_meant_to_be(entries, subject):
    """The judge gives the hand-made call the kind that its script has to show."""
    assert subject.kind == entries[subject].verdict.kind, entries[subject].verdict.message


def test_there_are_enough_of_them():
    """More than ten entries, of most kinds that a call can have, over both operators."""
    assert 20 < len(SUBJECTS)
    assert 12 < len({subject.kind for subject in SUBJECTS})
    assert 5 < min(Counter(subject.case.operator for subject in SUBJECTS).values())


@pytest.mark.parametrize("subject", SUBJECTS, ids=name_of)
def test_the_script_shows_the_bug(shown, subject):
    """Exit status 1, and words that say so."""
    (status, text), _ = shown[subject]
    assert 1 == status, text[-1500:]
    assert "Timeout" in text if subject.kind == "hang" else "BUG" in text


@pytest.mark.parametrize("subject", SUBJECTS, ids=name_of)
def test_the_script_passes_beside_a_correct_kernel(shown, subject):
    """The same text with the import of a look-alike; one that rounds in another order included."""
    _, (status, text) = shown[subject]
    assert 0 == status, text[-1500:]
    assert "passes" == text.splitlines()[-1]
