"""From a build entry to a minimal source: the commands, with a reducer of three lines in the place of a real one."""

# ruff: noqa: SIM300 - the expected value stands first

import os
import subprocess
import sys

import msgspec
import pytest
from msgspec.structs import replace

from harness import corpus, reduce_source
from harness.case import FORMAT, Build
from harness.corpus import Entry
from harness.interesting import Question, Unit
from harness.reduce_source import Flat, NoSource
from harness.signature import signature
from harness.verdict import build_error
from tests.harness.endtoend import ROOT, Running, judged, user_folder, warpcheck
from tests.harness.making import mask_case

SPEC = "tests/planted/single_prefill/no_cast.py:half_times_float"
OFF = dict.fromkeys(("window", "soft_cap", "alibi"), False)
PARAMS = {"dtype": "float16", "head_dim": 64, "fp16_qk": True, "mask": "none", "half_operators": True, **OFF}
LOG = (
    'no_cast.cu(8): error: more than one operator "*" matches these operands:\n'
    '            built-in operator "arithmetic * arithmetic"\n            operand types are: __half * float\n'
)

REDUCER = """#!{python}
# Tries to leave out each line, in a folder of its own, and calls the test as Shrink Ray does (all ways) or as C-Vise does.
import os, shutil, subprocess, sys, tempfile
*options, test, name = sys.argv[1:]
lines = open(name).read().splitlines(keepends=True)
print("reducing", *options, flush=True)
for i in reversed(range(len(lines))):
    with tempfile.TemporaryDirectory() as folder:
        candidate = os.path.join(folder, name)
        open(candidate, "w").writelines(lines[:i] + lines[i + 1:])
        arguments = [candidate] if "{protocol}" == "shrinkray" else []
        if subprocess.run([test, *arguments], cwd=folder, stdin=open(candidate)).returncode == 0:
            del lines[i]
            shutil.copy(candidate, name + ".new")
            os.replace(name + ".new", name)
            {after}
"""


def reducer(folder, protocol="shrinkray", after="pass"):
    """A program of that name in a folder for the PATH."""
    folder.mkdir(exist_ok=True)
    path = folder / protocol
    path.write_text(REDUCER.format(python=sys.executable, protocol=protocol, after=after))
    path.chmod(0o755)
    return path


@pytest.fixture
def entry(tmp_path, monkeypatch):
    """(file of the entry of half times float, itself); sources are compiled for real."""
    monkeypatch.setenv("WARPCHECK_CACHE", str(tmp_path / "cache"))
    build, verdict = Build("single_prefill", PARAMS, "sm_80"), build_error("nvrtc", LOG)
    made = Entry(FORMAT, signature(build, "no_cast", verdict), build, verdict, f"{ROOT}/{SPEC}", "cpu")
    return corpus.write(tmp_path / "corpus", made), made


@pytest.fixture
def compiler(tmp_path):
    """A unit of five lines whose compiler refuses those with "bug" and "here", and calls any without "good" something else."""
    script = tmp_path / "compiler.sh"
    script.write_text(
        'grep -q good "$1" || { echo "x.cu(1): error: no good" >&2; exit 1; }\n'
        'grep -q bug "$1" && grep -q here "$1" && { echo "x.cu(2): error: a bug" >&2; exit 1; }\nexit 0\n'
    )
    text = "good\nfirst\nbug\nmore\nhere\n"
    command = ("sh", str(script))
    return Flat(
        Unit("nvrtc", "x.cu", text, command), Question("x.cu", "nvrtc", command, "build_error", "nvrtc: a bug", 9.0, ())
    )


@pytest.mark.parametrize("protocol", reduce_source.REDUCERS)
def test_a_reducer_leaves_what_shows_the_bug(tmp_path, compiler, protocol):
    """By either way to call a test; options are passed on."""
    bench = reduce_source.prepare(compiler, tmp_path / "work folder")
    program = reducer(tmp_path / "bin", protocol)
    assert "finished" == reduce_source.run_reducer(str(program), bench, ["--fast"], 60.0, print)
    assert b"good\nbug\nhere\n" == reduce_source.result(bench, compiler, tmp_path / "small.cu")
    head, how, *lines = (tmp_path / "small.cu").read_text().splitlines()
    assert "// build_error: nvrtc: a bug" == head
    assert "// compile with: nvrtc " == how
    assert ["good", "bug", "here"] == lines


def test_when_the_time_is_up_the_smallest_so_far_is_the_result(tmp_path, compiler):
    """The reducer is stopped, and that is told."""
    bench = reduce_source.prepare(compiler, tmp_path / "work")
    program = reducer(tmp_path / "bin", after="import time; time.sleep(600)")
    told = []
    ending = reduce_source.run_reducer(str(program), bench, [], 3.0, told.append)
    assert ("stopped after 3 s", ["3 s are up: stopping shrinkray"]) == (ending, told)
    so_far = (compiler.unit.text.encode(), b"good\nfirst\nbug\nhere\n")  # by then, on a machine that is slow or not
    assert reduce_source.result(bench, compiler, tmp_path / "small.cu") in so_far


def test_a_reducer_that_spoils_the_candidate_gives_no_result(tmp_path, compiler):
    """What it left is not taken on trust."""
    bench = reduce_source.prepare(compiler, tmp_path / "work")
    program = reducer(tmp_path / "bin", after="open(name, 'w').write('nothing'); sys.exit(3)")
    assert "ended with exit status 3" == reduce_source.run_reducer(str(program), bench, [], 60.0, print)
    assert reduce_source.result(bench, compiler, tmp_path / "small.cu") is None
    assert not (tmp_path / "small.cu").exists()


def test_an_earlier_run_is_gone_on_with(tmp_path, compiler):
    """If its candidate is smaller and the question the same; else it starts anew."""
    bench = reduce_source.prepare(compiler, tmp_path / "work")
    bench.candidate.write_text("good\nbug\nhere\n")
    assert "good\nbug\nhere\n" == reduce_source.prepare(compiler, tmp_path / "work").candidate.read_text()
    bench.candidate.write_text("good\nbug\n")
    assert compiler.unit.text == reduce_source.prepare(compiler, tmp_path / "work").candidate.read_text()
    bench.candidate.write_text("good\nbug\nhere\n")
    other = Flat(compiler.unit, msgspec.structs.replace(compiler.question, error="nvrtc: another"))
    assert compiler.unit.text == reduce_source.prepare(other, tmp_path / "work").candidate.read_text()


def test_the_reducer_that_is_there(tmp_path, monkeypatch):
    """Shrink Ray before C-Vise; another by name or path; None when there is none, an error for one that does not exist."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert reduce_source.find_reducer(None) is None
    assert reduce_source.find_reducer("cvise") is None
    cvise = reducer(tmp_path / "bin", "cvise")
    assert str(cvise) == reduce_source.find_reducer(None)
    shrinkray = reducer(tmp_path / "bin")
    assert str(shrinkray) == reduce_source.find_reducer(None)
    assert str(cvise) == reduce_source.find_reducer(str(cvise))
    with pytest.raises(NoSource, match=r"^delta: no such program$"):
        reduce_source.find_reducer("delta")


def test_from_the_entry_to_the_small_source(tmp_path, entry):
    """Flattened, reduced, checked: for real but for the reducer. What is not needed for the bug is gone, and no new error came.

    `interesting` says of one with the cast that it does not show the bug.
    """
    reducer(tmp_path / "bin")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = warpcheck(tmp_path, "reduce-source", entry[0], "-o", "half.cu", PATH=path)
    assert 0 == done.returncode, done.stderr
    small = tmp_path / "half.cu"
    text = small.read_text()
    assert "FlashInfer" not in text
    assert "#include <cuda_fp16.h>" in text
    assert "return score * scale;" in text
    assert "finished: " in done.stdout
    assert f" -> {len(text.encode()) - len('//'.join(text.splitlines(True)[:2])) + 2} bytes in " in done.stdout
    assert "wrote half.cu" in done.stdout
    assert not (tmp_path / "half.cu.reducing").exists()
    (tmp_path / "no_cast.cu").write_text(text.replace("score * scale", "score"))
    done = warpcheck(tmp_path, "interesting", entry[0])
    assert (1, "", "") == (done.returncode, done.stdout, done.stderr)


def test_without_a_reducer(tmp_path, entry):
    """How to get one, and all that it takes to do it by hand: the words that are printed, run in a shell, reduce."""
    done = warpcheck(tmp_path, "reduce-source", entry[0], PATH=str(tmp_path / "bin"))
    assert 125 == done.returncode, done.stderr
    assert "pip install shrinkray" in done.stderr
    assert "apt install cvise" in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("cd ")]
    by_hand = line.replace("REDUCER", str(reducer(tmp_path / "bin")))
    candidate = tmp_path / "small.cu.reducing" / "no_cast.cu"
    before = candidate.read_text()
    assert 0 == subprocess.run(["bash", "-c", by_hand], capture_output=True).returncode
    assert len(candidate.read_text()) < len(before)


def test_ctrl_c_keeps_the_smallest_so_far(tmp_path, entry, monkeypatch):
    """At a terminal both get it; what is written fails as the entry does, and nothing goes on running."""
    waiting = tmp_path / "waiting"
    reducer(tmp_path / "bin", after=f"import time; open({str(waiting)!r}, 'w').close(); time.sleep(600)")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with Running(tmp_path, "reduce-source", entry[0], "-o", tmp_path / "half.cu") as running:
        running.until(waiting.exists)
        running.interrupt()
        assert 0 == running.wait(), running.text()
        assert "interrupted: " in running.text()
        assert [] == running.family()
    assert "score * scale" in (tmp_path / "half.cu").read_text()


def fails_clearly(done, *words):
    assert 2 == done.returncode, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert 1 == len(done.stderr.strip().splitlines()), done.stderr
    for word in words:
        assert word in done.stderr


def test_what_has_no_source(tmp_path, entry):
    """A call; a kernel that compiles by its own means; one whose source builds; a folder that is not there. One line each."""
    folder = user_folder(tmp_path / "user")
    call = corpus.write(folder / "corpus", judged(mask_case(), "drops_ties", folder))
    fails_clearly(warpcheck(tmp_path, "flatten", call), "the entry is of a call")
    triton = replace(entry[1], implementation="triton", signature=replace(entry[1].signature, implementation="triton"))
    fails_clearly(
        warpcheck(tmp_path, "flatten", corpus.write(folder / "corpus", triton)), "triton", "translation_units"
    )
    mended = replace(entry[1], subject=replace(entry[1].subject, params={**PARAMS, "fp16_qk": False}))
    other = corpus.write(folder / "other", mended)
    for command in ("flatten", "reduce-source"):
        done = warpcheck(tmp_path, command, other)
        assert (1, "") == (done.returncode, done.stdout)
        assert "does not fail as the entry does: it compiles" in done.stderr
    for command in ("flatten", "reduce-source"):
        done = warpcheck(tmp_path, command, entry[0], "-o", "no/such/x.cu")
        assert (2, True) == (done.returncode, "there is no folder 'no/such'" in done.stderr)
    done = warpcheck(tmp_path, "interesting", call, "x.cu")
    assert (125, "") == (done.returncode, done.stdout)


@pytest.mark.parametrize("command", ["flatten", "interesting", "reduce-source"])
def test_help(tmp_path, command):
    """With an example."""
    assert f"warpcheck {command} corpus/" in warpcheck(tmp_path, command, "--help").stdout


def test_flatten(tmp_path, entry):
    """To standard output, or to a file; it compiles alone with the header's words, and fails as the entry does."""
    text = warpcheck(tmp_path, "flatten", entry[0]).stdout
    head, how, *_ = text.splitlines()
    assert '// build_error: nvrtc: more than one operator "*" matches these operands: __half * float' == head
    assert "// compile with: nvrtc --gpu-architecture=sm_80 --std=c++17" == how
    assert "#define ACCUMULATOR __half\n" in text
