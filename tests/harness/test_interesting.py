"""harness.interesting: the answer to a reducer, for compilers that refuse, accept, die, hang, or are not there."""

# ruff: noqa: SIM300 - the expected value stands first

import os
import signal
import subprocess
import sys

import msgspec
import pytest

from harness.interesting import Question, as_it_should, compiled, main, others
from tests.harness.endtoend import ROOT, clean_environment, wait_until

COMPILER = """
case "$(cat "$1")" in
  *spawns*) sleep 60 & echo $! > "$1.pid"; exit 0;;
  *hangs*) sleep 60;;
  *dies*) kill -SEGV $$;;
  *odd*) exit 3;;
  *absent*) echo no compiler here >&2; exit 125;;
  *two*) echo 'k.cu(1): error: identifier "f" is undefined' >&2; echo 'k.cu(9): error: expected a ";"' >&2; exit 1;;
  *wrong*) echo 'k.cu(7): error: identifier "f" is undefined' >&2; exit 1;;
  *other*) echo 'k.cu(7): error: identifier "g" is undefined' >&2; exit 1;;
esac
"""
UNDEFINED = 'nvrtc: identifier "f" is undefined'


@pytest.fixture
def ask(tmp_path, capfd):
    """A function: the exit status for a source, asked as a reducer would; and how to ask."""
    script = tmp_path / "compiler.sh"
    script.write_text(COMPILER)

    def asked(text, kind="build_error", error=UNDEFINED, *, limit=30.0, others=(), words=()):
        question = Question("k.cu", "nvrtc", ("sh", str(script)), kind, error, limit, others)
        (tmp_path / "question.json").write_bytes(msgspec.json.encode(question))
        (tmp_path / "k.cu").write_text(text)
        return main([str(tmp_path / "question.json"), str(tmp_path / "k.cu"), *words])

    return asked


@pytest.mark.parametrize(("text", "status"), [("wrong", 0), ("other", 1), ("fine", 1), ("dies", 1), ("absent", 125)])
def test_the_first_error_decides(ask, capfd, text, status):
    """Silently, unless there is no answer."""
    assert status == ask(text)
    out, err = capfd.readouterr()
    assert "" == out
    assert ("nvrtc cannot run: no compiler here\n" if status == 125 else "") == err


CRASHES = [("dies", "build_crash", "died of SIGSEGV", 0), ("odd", "build_crash", "died of exit status N", 0)]


@pytest.mark.parametrize(("text", "kind", "error", "status"), CRASHES)
def test_a_compiler_that_dies_is_an_answer(ask, text, kind, error, status):
    """By the words of the sandbox."""
    assert status == ask(text, kind, error)
    assert 1 == ask("wrong", kind, error)


def test_a_compiler_that_hangs_is_an_answer(ask):
    """It and what it started are ended."""
    hangs = ("build_timeout", "did not come back in time")
    assert 0 == ask("hangs", *hangs, limit=0.2)
    assert 1 == ask("hangs", limit=0.2)
    assert 1 == ask("wrong", *hangs)


def test_what_a_compiler_leaves_running_is_ended(ask, tmp_path):
    """Thousands of candidates would fill the machine."""
    assert 1 == ask("spawns")
    pid = int((tmp_path / "k.cu.pid").read_text())

    def gone():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"

    assert wait_until(gone)


def test_another_error_besides_makes_it_uninteresting(ask):
    """Or a reducer would break what is around the bug; unless the source has it from the start, or it does not matter."""
    assert 1 == ask("two")
    assert 0 == ask("two", others=('expected a ";"',))
    assert 0 == ask("two", others=None)


def test_verbose(ask, capfd):
    """The compiler's words and the answer."""
    ask("other", words=("-v",))
    assert [
        'k.cu(7): error: identifier "g" is undefined',
        f"not interesting: wanted build_error: {UNDEFINED}",
    ] == capfd.readouterr().out.strip().splitlines()


def test_what_cannot_be_asked(ask, tmp_path, capfd):
    """No question, no candidate, no compiler: 125 and one line."""
    ask("wrong")
    question = str(tmp_path / "question.json")
    assert 125 == main([str(tmp_path / "nope.json")])
    assert 125 == main([question, str(tmp_path / "nope.cu")])
    (tmp_path / "question.json").write_text('{"name": 3}')
    assert 125 == main([question])
    assert 3 == len(capfd.readouterr().err.strip().splitlines())
    assert "skip" == compiled("nvrtc", [str(tmp_path / "nope")], tmp_path / "k.cu", 1.0).kind


def test_in_the_folder_of_the_candidate(ask, tmp_path):
    """As C-Vise calls it: no argument, the file is in the current folder. Nothing that takes long is imported."""
    ask("wrong")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "k.cu").write_text("other")
    (tmp_path / "random.py").write_text("raise SystemExit('taken for a module')")
    code = (
        "import sys, harness.interesting as i; s = i.main(sys.argv[1:]); sys.exit(77 if 'torch' in sys.modules else s)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, str(tmp_path / "question.json")],
        cwd=tmp_path / "run",
        env=clean_environment(PYTHONPATH=str(ROOT)),
    )
    assert 1 == done.returncode


def test_a_reducer_that_kills_its_test_kills_the_compiler(ask, tmp_path):
    """Whatever the signal."""
    ask("wrong")
    (tmp_path / "k.cu").write_text("hangs")
    command = [
        sys.executable,
        "-P",
        "-m",
        "harness.interesting",
        str(tmp_path / "question.json"),
        str(tmp_path / "k.cu"),
    ]
    process = subprocess.Popen(command, env=clean_environment(PYTHONPATH=str(ROOT)))

    def child():
        with open(f"/proc/{process.pid}/task/{process.pid}/children") as children:
            return children.read().split()

    assert wait_until(child)
    (compiler,) = child()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert wait_until(lambda: not os.path.exists(f"/proc/{compiler}"))


def test_the_other_errors_of_a_verdict(tmp_path):
    """All but those that say the same as the first."""
    script = tmp_path / "c.sh"
    script.write_text("echo 'a.cu(1): error: one\na.cu(2): error: one\na.cu(3): error: two' >&2; exit 1")
    verdict = compiled("nvcc", ["sh", str(script)], tmp_path, 10.0)
    assert ("nvcc: one", {"two"}) == (verdict.evidence.error, others(verdict))
    assert as_it_should(Question("a", "nvcc", (), "build_error", "nvcc: one", 1.0, ("two",)), verdict)
