"""`warpcheck build` from end to end: compilers of plain Python that fail, crash and wait; interrupts; what is left behind."""

# ruff: noqa: SIM300 - the expected value stands first

import contextlib
import json
import os
import signal

import pytest

from harness import journal
from harness.build_campaign import BuildCampaign, BuildConfig, seconds_left
from tests.harness.endtoend import Running, entries, events, told, wait_until, warpcheck, warpcheck_process
from tests.harness.making import NAME

SOURCE = '''
import os, pathlib, signal, time

ARCHS = ("sm_80", "sm_90a")
BUILD_AXES = {"std": ("c++17", "c++20")}
room = pathlib.Path(os.environ.get("WAITING_ROOM", "."))


def mask(logits, k, *, out=None):
    raise NotImplementedError


def unsupported(params):
    return "no int64 there" if params["k"] == "int64" and params.get("arch") == "sm_90a" else None


def build(params, arch):
    """Nine parameters, two architectures, two standards: 36 builds, of which 6 are unsupported, 10 fail, 2 crash."""
    if params["dtype"] != "float32" and params["std"] == "c++20":
        raise RuntimeError(f"k.cu(3): error: no halves for {arch}")
    if params["dtype"] == "bfloat16" and params["k"] == "int32":
        os.kill(os.getpid(), signal.SIGSEGV)


class Waiting:
    """Builds that say so in a file, and wait for `go`."""

    def build(self, params, arch):
        name = "-".join([*params.values(), arch])
        (room / f"begun-{name}").write_text(str(os.getpid()))
        while not (room / "go").exists():
            time.sleep(0.01)
'''

WAITING = "\n\nbuild = Waiting().build\n"
"""Appended, it makes every build wait."""

FAILS_THEN_WAITS = """

def unsupported(params):
    return None

def build(params, arch, wait=Waiting().build):
    if params["std"] == "c++20":
        raise RuntimeError("error: no such standard")
    wait(params, arch)
"""


def user_folder(folder, more=""):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine.py").write_text(SOURCE + more)
    return folder


def command(*args, impl="mine.py:mask"):
    return ("build", "--operator", NAME, "--impl", impl, "--log", "log.jsonl", *args)


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """One campaign over all builds of a compiler with two bugs: (folder, what the command did)."""
    folder = user_folder(tmp_path_factory.mktemp("broken"))
    return folder, warpcheck_process(folder, *command("--jobs", "2"))


def summary(folder):
    return told(folder / "log.jsonl", "summary")[-1]


def test_each_bug_is_one_finding(broken):
    """However many builds it breaks: the plainest parameters, the first architecture, reduced; exit status 1."""
    folder, done = broken
    assert 1 == done.returncode, done.stderr
    found = {entry.verdict.kind: entry for entry in entries(folder / "corpus")}
    assert {
        "build_error": ({"dtype": "float16", "k": "int", "std": "c++20"}, "sm_80", True),
        "build_crash": ({"dtype": "bfloat16", "k": "int32", "std": "c++17"}, "sm_80", True),
    } == {kind: (entry.subject.params, entry.subject.arch, entry.reduced) for kind, entry in found.items()}
    assert "RuntimeError: no halves for ARCH" == found["build_error"].signature.error
    assert "died of SIGSEGV" == found["build_crash"].signature.error
    assert 2 == len(entries(folder / "corpus"))


def test_every_build_is_counted(broken):
    """By architecture: built, unsupported, failed; and by what it failed of."""
    state = summary(broken[0])
    assert {
        "sm_80": {"cells": 18, "done": 18, "built": 11, "failed": 7},
        "sm_90a": {"cells": 18, "done": 18, "built": 7, "failed": 5, "unsupported": 6},
    } == state["targets"][f"{NAME}/mine.mask"]
    assert (36, 36, 2) == tuple(state[key] for key in ("cells", "done", "findings"))
    prefix = f"{NAME}/mine.mask"
    assert {
        f"{prefix} build_error (RuntimeError: no halves for ARCH)": 10,
        f"{prefix} build_crash (died of SIGSEGV)": 2,
    } == state["failures"]


def test_what_it_prints(broken):
    """What there is to do, a table by architecture, and each finding with how many builds it breaks."""
    done = broken[1]
    assert "36 builds, 2 at a time" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [f"{NAME}/mine.mask", "sm_80", "18", "11", "0", "7"] in rows
    assert [f"{NAME}/mine.mask", "sm_90a", "18", "7", "6", "5"] in rows
    assert "(RuntimeError: no halves for ARCH), 10 builds" in done.stdout
    assert "warpcheck repro corpus/" in done.stdout


def test_the_log_has_each_finding_twice(broken):
    """As it was found, then reduced; start first, summary last; and no journal is left."""
    log = broken[0] / "log.jsonl"
    assert ("start", "summary") == (events(log)[0]["event"], events(log)[-1]["event"])
    findings = told(log, "finding")
    assert [2, 2] == [sum(event["unreduced"] is kind for event in findings) for kind in (True, False)]
    assert {event["signature"] for event in findings} == set(summary(broken[0])["new"])
    assert [] == list((broken[0] / "corpus" / journal.FOLDER).iterdir())


def test_what_is_known_is_counted_and_not_new(broken, tmp_path):
    """Another campaign on the corpus: exit status 0, the failures are counted, the entries stay as they are."""
    folder = user_folder(tmp_path)
    for path in (broken[0] / "corpus").rglob("*.json"):
        here = folder / path.relative_to(broken[0])
        here.parent.mkdir(parents=True, exist_ok=True)
        here.write_bytes(path.read_bytes())
    before = entries(folder / "corpus")
    done = warpcheck(folder, *command())
    assert 0 == done.returncode, done.stdout
    assert "2 known failures" in done.stdout
    assert "no halves for ARCH), 10 builds" in done.stdout
    assert "nothing new" in done.stdout
    assert ([], [12]) == (told(folder / "log.jsonl", "finding"), [sum(summary(folder)["failures"].values())])
    assert before == entries(folder / "corpus")


def test_an_entry_is_shown_again(broken):
    """`repro` compiles it: it fails; mended, it passes."""
    folder = broken[0]
    (path,) = (folder / "corpus").rglob("build_error*.json")
    assert 1 == warpcheck(folder, "repro", path).returncode
    mended = user_folder(folder / "mended", "\n\ndef build(params, arch):\n    pass\n")
    assert 0 == warpcheck(mended, "repro", path).returncode


def test_architectures_can_be_chosen(tmp_path):
    """Once or several times, with commas; the others are left out."""
    folder = user_folder(tmp_path, "\n\ndef build(params, arch):\n    pass\n")
    done = warpcheck(folder, *command("--arch", "sm_90a, sm_90a", "--arch", "sm_90a"))
    assert 0 == done.returncode
    assert ["sm_90a"] == list(summary(folder)["targets"][f"{NAME}/mine.mask"])
    assert (18, 18) == tuple(summary(folder)[key] for key in ("cells", "done"))


def fails_clearly(done, *words):
    """One line on stderr with these words, exit status 2."""
    assert 2 == done.returncode, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert 1 == len([line for line in done.stderr.splitlines() if line.strip() and not line.startswith("Usage")])
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        pytest.param(["--impl", "torch"], ("nothing to compile: no `build` in", f"{NAME}/torch"), id="no build"),
        pytest.param(["--arch", "sm_70,sm_80"], ("nothing is built for sm_70", "sm_80, sm_89"), id="architecture"),
        pytest.param(["--operator", "softmax"], ("unknown operator 'softmax'",), id="operator"),
        pytest.param(["--impl", "cutlass"], ("unknown implementation 'cutlass'",), id="implementation"),
        pytest.param(["--operator", NAME, "--impl", "nope.py:mask"], ("no file 'nope.py'",), id="file"),
        pytest.param(["--corpus", "mine.py/corpus"], ("mine.py",), id="corpus"),
    ],
)
def test_bad_input(tmp_path, args, words):
    """One line that says what is wrong and, where that helps, what there is."""
    if "--arch" in args:
        args = ["--operator", NAME, "--impl", "cuda", *args]
    fails_clearly(warpcheck(user_folder(tmp_path), "build", *args), *words)


@pytest.mark.parametrize("args", [["--jobs", "0"], ["--time", "soon"], ["--timeout", "0"]])
def test_bad_numbers(tmp_path, args):
    """As with every command."""
    assert 2 == warpcheck(tmp_path, "build", *args).returncode


def test_a_fault_in_unsupported_is_the_users(tmp_path):
    """For one of many parameters: one line, exit status 2."""
    more = "\n\ndef unsupported(params):\n    return {'float32': None, 'float16': None}[params['dtype']]\n"
    fails_clearly(warpcheck(user_folder(tmp_path, more), *command()), "unsupported(", "KeyError")


def test_as_many_builds_as_asked_for_run_at_once(tmp_path):
    """Three are inside their compilers together; each variant is built once."""
    folder = user_folder(tmp_path, WAITING)
    with Running(folder, *command("--jobs", "3", "--arch", "sm_80")) as running:
        running.until(lambda: 3 == len(list(folder.glob("begun-*"))))
        assert 3 == len({path.read_text() for path in folder.glob("begun-*")})
        (folder / "go").touch()
        assert 0 == running.wait(), running.text()
    assert 18 == len(list(folder.glob("begun-*"))) == summary(folder)["done"]


def test_ctrl_c_keeps_what_was_found(tmp_path):
    """The table so far, exit status 1 for the finding, the entry in the corpus; no process and no journal is left."""
    folder = user_folder(tmp_path, FAILS_THEN_WAITS)
    with Running(folder, *command("--jobs", "2")) as running:
        running.until(lambda: told(folder / "log.jsonl", "finding") and len(list(folder.glob("begun-*"))) >= 2)
        running.interrupt()
        assert 1 == running.wait(), running.text()
        assert wait_until(lambda: not running.family())
        text = running.text()
    assert ("interrupted" in text, "Traceback" in text) == (True, False)
    assert "architecture" in text
    assert ["RuntimeError: no such standard"] == [entry.signature.error for entry in entries(folder / "corpus")]
    assert (True, 1) == (summary(folder)["interrupted"], len(summary(folder)["new"]))
    assert 0 < summary(folder)["done"] < 36
    assert [] == list((folder / "corpus" / journal.FOLDER).iterdir())


def test_kill_9_leaves_what_was_being_built(tmp_path):
    """The journal names it, and the next campaign builds it first, for it may be what took the machine down."""
    folder = user_folder(tmp_path, WAITING)
    with Running(folder, *command("--jobs", "1")) as running:
        running.until(lambda: list(folder.glob("begun-*")))
        os.kill(running.process.pid, signal.SIGKILL)
        running.wait()
        assert wait_until(lambda: not running.family())
    ((path, record),) = journal.left_behind(folder / "corpus" / journal.FOLDER)
    (folder / "log.jsonl").unlink()
    (folder / "go").touch()
    done = warpcheck(folder, *command("--jobs", "1"), WAITING_ROOM=str(folder))
    assert 0 == done.returncode, done.stdout + done.stderr
    (resumed,) = told(folder / "log.jsonl", "resumed")
    assert (path.name, json.loads(record.subject.key())) == (resumed["journal"], resumed["case"])
    assert not path.exists()


def campaign(folder, **more):
    seen = []
    with contextlib.chdir(folder):
        made = BuildCampaign(BuildConfig({NAME: ("mine.py:mask",)}, corpus=folder / "corpus", **more), seen.append)
        made.run()
    return made, seen


def test_time_that_is_up_ends_it(tmp_path):
    """Nothing is begun any more; what was counted is told; nothing is wrong with that."""
    made, seen = campaign(user_folder(tmp_path), seconds=1e-9)
    assert ("start", "progress") == (seen[0]["event"], seen[-1]["event"])
    assert 36 == seen[-1]["cells"]
    assert 0 == seen[-1]["done"]
    assert made.queue._stop.is_set()


def test_results_are_not_kept(broken, tmp_path):
    """What is in memory at the end are counts, and one failure of each sort, settled by then."""
    made, _ = campaign(user_folder(tmp_path))
    assert {} == made.settler.waiting
    assert [] == list(made.queue.drain())
    assert 2 == len(made.failures)


def test_seconds_left():
    """Each target's builds take what they took so far, the others' what all took; shared among the jobs."""
    cells = {
        "op/quick": {"sm_80": {"cells": 10, "done": 4}, "sm_90a": {"cells": 10, "done": 4}},
        "op/slow": {"sm_80": {"cells": 5, "done": 2}},
        "op/new": {"sm_80": {"cells": 1}},
    }
    spent = {"op/quick": 8.0, "op/slow": 12.0}
    assert (12 * 1.0 + 3 * 6.0 + 1 * 2.0) / 4 == seconds_left(cells, spent, 4)
    assert 0.0 == seconds_left({"op": {"sm_80": {"cells": 2, "done": 2}}}, {"op": 3.0}, 1)
    assert seconds_left({"op": {"sm_80": {"cells": 2}}}, {}, 1) is None
