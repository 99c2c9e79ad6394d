"""harness.sandbox: children that die, hang, print and exit; what the parent makes of it; and that none outlives it."""

# ruff: noqa: SIM300 - the expected value stands first

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from harness import sandbox
from harness.case import Build, CaseError, Fill
from harness.child import environment_for
from harness.journal import Journal, Record, left_behind
from harness.sandbox import Engine, HarnessError, Limits, UnusableImplementation
from tests.harness.endtoend import wait_until
from tests.harness.making import NAME, mask_case

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
QUICK = Limits(run=3.0, first_call=0.0, build=4.0, start=120.0)
CASE = mask_case()
TURN = Fill("spread", 3)


def spec(name):
    return f"{HERE / 'hostile.py'}:{name}"


@pytest.fixture(scope="module")
def engine():
    """One engine for all that leave it usable, which is everything."""
    with Engine("cpu", limits=QUICK) as made:
        yield made


def kinds(engine, *names, case=CASE):
    return [verdict.kind for verdict in engine.judge(case, [spec(name) for name in names])]


def alive(pid):
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("segfaults", "process_died"),
        ("aborts", "process_died"),
        ("ends_the_process", "process_died"),
        ("interrupts", "process_died"),
        ("hangs_deaf", "hang"),
        ("exits", "refused"),
        ("prints", "pass"),
        ("leaves_threads", "pass"),
        ("changes_folder", "pass"),
    ],
)
def test_what_happens_to_the_child_is_that_implementations_verdict_alone(engine, name, kind):
    """The one before it and the ones after it are judged, and so is the next case."""
    assert ["pass", kind, "pass", "pass"] == kinds(engine, "good", name, "good", "good")
    assert ["pass"] == kinds(engine, "good", case=mask_case(3, 7))


def test_a_death_is_told_with_its_signal_and_last_words(engine):
    """The signal is the evidence, what was printed is the log."""
    deaths = engine.deaths
    verdict = engine.judge(CASE, [spec("aborts")])[0]
    assert "died of SIGABRT" == verdict.evidence.error
    assert "last words" in verdict.evidence.log
    assert deaths + 1 == engine.deaths
    assert "died of exit status N" == engine.judge(CASE, [spec("ends_the_process")])[0].evidence.error


def test_a_hang_is_told_with_the_place_where_it_hung(engine):
    """The child's Python stack is in the log."""
    verdict = engine.judge(CASE, [spec("hangs")])[0]
    assert "did not come back in time" == verdict.evidence.error
    assert "in hangs" in verdict.evidence.log


def test_two_in_a_row_that_die(engine):
    """Each costs one process, none costs a verdict."""
    assert [
        "process_died",
        "process_died",
        "pass",
        "process_died",
    ] == kinds(engine, "segfaults", "aborts", "good", "segfaults")


@pytest.mark.parametrize("name", ["dies_later", "dies_when_poked"])
def test_a_child_that_dies_after_its_answer_does_not_end_the_campaign(engine, name):
    """A process that breaks between two cases (a timer, a corrupted heap) is replaced, and the next case judged."""
    assert ["pass"] == kinds(engine, name)
    child = engine._child
    if name == "dies_later":
        assert wait_until(lambda: not alive(child.process.pid))
    try:
        assert ["pass"] == kinds(engine, "good", case=mask_case(2, 6))
    finally:
        if engine._child is child:
            child.end()
            engine._child = None


def test_history_lists_what_the_present_child_judged(engine):
    """Oldest first; a fresh process has none, and a process that remembers is told from it."""
    engine.fresh()
    assert [] == list(engine.history)
    first, second = mask_case(2, 5, fill=TURN), mask_case(3, 4, fill=TURN)
    assert ["pass"] == kinds(engine, "remembers", case=first)
    assert ["pass"] != kinds(engine, "remembers", case=second)
    assert [first, second] == list(engine.history)
    engine.fresh()
    assert [] == list(engine.history)
    assert ["pass"] == kinds(engine, "remembers", case=second)


def test_a_case_that_says_something_impossible_is_the_callers_error(engine):
    """Not a finding, and the next case works."""
    with pytest.raises(CaseError):
        engine.judge(mask_case(fill=Fill("noise")), [spec("good")])
    assert ["pass"] == kinds(engine, "good")


def write(folder, text, name="mine.py"):
    path = folder / name
    path.write_text(text)
    return path


def test_an_implementation_that_cannot_be_used_is_one_line_for_the_user(engine, tmp_path):
    """No such file, no such function, a syntax error, an import error, unknown semantics: each says what is wrong."""
    broken = write(tmp_path, "def mask(:\n", "broken.py")
    missing = write(tmp_path, "import no_such_module_at_all\n", "missing.py")
    odd = write(tmp_path, "SEMANTICS = {'ties': 'some'}\ndef mask(logits, k, *, out=None): ...\n", "odd.py")
    exits = write(tmp_path, "raise RuntimeError('not today')\n", "today.py")
    for wanted, words in {
        f"{tmp_path / 'none.py'}:mask": "none.py",
        f"{odd}:other": "other",
        f"{broken}:mask": "SyntaxError",
        f"{missing}:mask": "no_such_module_at_all",
        f"{odd}:mask": "some",
        f"{exits}:mask": "not today",
        "no_such_module_at_all:mask": "no_such_module_at_all",
        "cutlass": "cutlass",
    }.items():
        with pytest.raises(UnusableImplementation, match=words) as caught:
            engine.inspect(NAME, wanted)
        assert 1 == len(str(caught.value).splitlines())


def test_an_unsupported_that_asks_for_the_dtype_does_not_break_inspection(engine, tmp_path):
    """`unsupported(params)` may look at any build parameter of the operator: a fault there is the user's, in one line."""
    text = (
        "from tests.harness.making import right\n"
        "def unsupported(params): return 'no bfloat16' if params['dtype'] == 'bfloat16' else None\n"
        "def mask(logits, k, *, out=None): return right(logits, k, out=out)\n"
    )
    mine = f"{write(tmp_path, text, 'asks.py')}:mask"
    assert engine.inspect(NAME, mine).cannot_run is None
    assert ["pass"] == [verdict.kind for verdict in engine.judge(CASE, [mine])]
    assert ["skip"] == [verdict.kind for verdict in engine.judge(mask_case(dtype="bfloat16"), [mine])]


def test_a_fault_in_the_users_unsupported_is_no_harness_error(engine, tmp_path):
    """What the hooks of the user's module raise is UnusableImplementation, whenever they are asked."""
    text = "def {}(params): raise RuntimeError('oh')\ndef mask(logits, k, *, out=None): ...\n"
    with pytest.raises(UnusableImplementation, match="oh"):
        engine.inspect(NAME, f"{write(tmp_path, text.format('unavailable'), 'faulty.py')}:mask")
    with pytest.raises(UnusableImplementation, match="oh"):
        engine.judge(mask_case(), [f"{write(tmp_path, text.format('unsupported'), 'picky.py')}:mask"])
    assert ["pass"] == kinds(engine, "good")


def test_a_call_is_judged_with_what_its_contract_and_its_output_look_like(engine):
    """Why it must raise, if it must; the wrong output, if it was asked for and there is one."""
    engine.judge(mask_case(k=-1), [spec("good")], picture=True)
    assert ("k is negative", None) == (engine.forbidden, engine.mismatch)
    zeros = spec("returns_zeros")
    engine.judge(CASE, [zeros])
    assert (None, None) == (engine.forbidden, engine.mismatch)
    (verdict,) = engine.judge(CASE, [zeros], picture=True)
    assert verdict.evidence.worst == engine.mismatch.worst[0]
    assert CASE.tensors["logits"].shape == engine.mismatch.shape
    engine.judge(CASE, [spec("good")], picture=True)
    assert engine.mismatch is None


def test_an_implementation_is_inspected(engine):
    """Its name is the function's as one would import it from here; it cannot build, and runs here."""
    about = engine.inspect(NAME, spec("good"))
    assert ("tests.harness.hostile.good", False, None) == (about.name, about.can_build, about.cannot_run)


BUILDS = """
import os, signal, time
BUILD_AXES = {"std": ("c++17", "c++20")}
ARCHS = ("sm_80", "sm_90a")
def mask(logits, k, *, out=None): ...
def build(params, arch):
    if arch == "sm_90a": os.kill(os.getpid(), signal.SIGSEGV)
    if params["std"] == "c++20": time.sleep(3600)
    if params["dtype"] == "float16": raise RuntimeError("k.cu(3): error: no halves")
"""


def test_builds_that_fail_crash_or_hang(tmp_path):
    """The compiler has limits of its own, and the next compilation works."""
    mine = f"{write(tmp_path, BUILDS)}:mask"
    with Engine("cpu", build_only=True, limits=QUICK) as engine:
        assert engine.inspect(NAME, mine).can_build
        variants = engine.builds(NAME, mine, {"dtype": "float32"})
        assert [
            ("sm_80", "c++17"),
            ("sm_80", "c++20"),
            ("sm_90a", "c++17"),
            ("sm_90a", "c++20"),
        ] == [(build.arch, build.params["std"]) for build in variants]
        assert ["pass", "build_timeout", "build_crash"] == [engine.build(b, mine).kind for b in variants[:3]]
        half = engine.builds(NAME, mine, {"dtype": "float16"})[0]
        verdict = engine.build(half, mine)
        assert ("build_error", "RuntimeError: no halves") == (verdict.kind, verdict.evidence.error)


LEAKS = """
import os
kept = []
def mask(logits, k, *, out=None): ...
def build(params, arch):
    kept.append(b"x" * (params["megabytes"] << 20))
    raise RuntimeError(f"{len(kept)} of {os.getpid()}")
"""


def test_a_child_that_compilations_have_made_large_makes_way(tmp_path, monkeypatch):
    """For another, which has compiled nothing; until then it is one child that compiles."""
    monkeypatch.setattr(sandbox, "GROWTH", 32 << 20)
    mine = f"{write(tmp_path, LEAKS)}:mask"
    with Engine("cpu", build_only=True, limits=QUICK) as engine:
        said = [engine.build(Build(NAME, {"megabytes": n}, "sm_80"), mine).evidence.log for n in (64, 1, 64, 1, 1)]
        assert ["1", "2", "3", "1", "2"] == [text.split()[0] for text in said]
        assert 2 == len({text.split()[-1] for text in said})
        engine.fresh()
        assert "1" == engine.build(Build(NAME, {"megabytes": 1}, "sm_80"), mine).evidence.log.split()[0]


DRIVER = """
import sys
from pathlib import Path
from harness.journal import Journal
from harness.sandbox import Engine, Limits
from tests.harness.making import mask_case

engine = Engine("cpu", limits=Limits(run=600.0), journal=Journal(Path(sys.argv[1]), f"{__import__('os').getpid()}-0"))
engine.inspect("top_k_mask_logits", sys.argv[2])
print(engine._child.process.pid, flush=True)
engine.judge(mask_case(), [sys.argv[2]])
"""


@pytest.fixture
def driver(tmp_path):
    """A parent process of its own, judging a kernel that hangs: (process, pid of its child, folder of its journal)."""
    folder = tmp_path / "journal"
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder), spec("hangs")],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
    )
    child = int(process.stdout.readline())
    yield process, child, folder
    process.kill()
    process.wait()
    process.stdout.close()


def journal_names_a_case(folder):
    return any(path.stat().st_size for path in folder.glob("*.json"))


def test_killing_the_parent_ends_the_child_and_leaves_the_case_in_the_journal(driver):
    """kill -9, nothing tidied up: no orphan, and the next campaign finds what was under test."""
    process, child, folder = driver
    assert wait_until(lambda: journal_names_a_case(folder))
    assert [] == list(left_behind(folder))
    assert alive(child)
    process.kill()
    process.wait()
    assert wait_until(lambda: not alive(child))
    assert [Record(CASE, (spec("hangs"),), "cpu")] == [record for _, record in left_behind(folder)]


def test_the_journal_names_the_case_while_it_runs_and_not_after(tmp_path):
    """Seen by the kernel itself: the file holds the case during the call, and nothing when its verdict is known."""
    seen, folder = tmp_path / "seen", tmp_path / "journal"
    text = (
        "from tests.harness.making import right\n"
        f"def mask(logits, k, *, out=None):\n"
        f"    import pathlib, os\n"
        f"    record = next(pathlib.Path({str(folder)!r}).iterdir())\n"
        f"    pathlib.Path({str(seen)!r}).write_bytes(record.read_bytes())\n"
        f"    if k == 1: os.kill(os.getpid(), 9)\n"
        f"    return right(logits, k, out=out)\n"
    )
    mine = f"{write(tmp_path, text)}:mask"
    with Engine("cpu", limits=QUICK, journal=Journal(folder, "1-0")) as engine:
        for case in (mask_case(3, 9), mask_case(k=1), mask_case(1, 2)):
            engine.judge(case, [mine])
            assert Record(case, (mine,), "cpu") == msgspec.json.decode(seen.read_bytes(), type=Record)
            assert [b""] == [path.read_bytes() for path in folder.iterdir()]
    assert [] == list(folder.iterdir())


def test_closing_ends_all_children():
    """The spare one as well."""
    with Engine("cpu", limits=QUICK) as other:
        other.judge(CASE, [spec("segfaults"), spec("good")])
        pids = [c.process.pid for c in (other._child, other._spare) if c is not None]
        assert [True] * len(pids) == [alive(pid) for pid in pids]
        assert pids
    assert [False] * len(pids) == [alive(pid) for pid in pids]


def test_an_errors_line_is_the_one_that_says_most():
    """The last one of a traceback, the first of a message with a log behind it; the type where there is none."""
    traceback = "Traceback (most recent call last):\n  File ...\nKeyError: 'form'\n"
    assert "KeyError: 'form'" == sandbox.telling_line(HarnessError(traceback))
    assert "the process died" == sandbox.telling_line(HarnessError("the process died\nFatal Python error: Aborted\n"))
    assert "HarnessError" == sandbox.telling_line(HarnessError())


def test_an_unusable_python_is_a_harness_error():
    """A child that cannot even start says so."""
    with Engine("cpu", limits=QUICK) as engine:
        engine._environment["PYTHONPATH"] = "/nonexistent"
        engine._environment["PYTHONHOME"] = "/nonexistent"
        with pytest.raises(HarnessError, match="a child process"):
            engine.environment()


def test_the_child_sees_no_gpu_on_cpu_and_the_chosen_one_on_cuda(monkeypatch):
    """CUDA_VISIBLE_DEVICES of the child; the interpreter is on for calls on the CPU and off for builds."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert ("", "1") == tuple(
        map(environment_for("cpu", False, None).get, ("CUDA_VISIBLE_DEVICES", "TRITON_INTERPRET"))
    )
    assert ("", None) == tuple(
        map(environment_for("cpu", True, None).get, ("CUDA_VISIBLE_DEVICES", "TRITON_INTERPRET"))
    )
    assert ("3", None) == tuple(
        map(environment_for("cuda", False, "3").get, ("CUDA_VISIBLE_DEVICES", "TRITON_INTERPRET"))
    )


def test_a_failure_of_the_harness_ends_no_campaign(engine, monkeypatch):
    """The case is skipped, counted and told of, with what it was; the other implementation and the next case are judged."""
    real = engine._receive
    monkeypatch.setattr(engine, "failures", 0)

    def receive(child, limit):
        reply = real(child, limit)
        if type(reply).__name__ == "Judged" and not engine.failures:
            raise HarnessError("Traceback ...\nKeyError: 'oh'")
        return reply

    monkeypatch.setattr(engine, "_receive", receive)
    engine.fresh()
    engine.warnings.clear()
    verdicts = engine.judge(mask_case(2, 5), [spec("good"), spec("good")])
    assert [("skip", "the harness failed: KeyError: 'oh'"), ("pass", "")] == [(v.kind, v.message) for v in verdicts]
    assert 1 == engine.failures
    assert "KeyError: 'oh'" in engine.warnings[0]
    assert '"shape":[2,5]' in engine.warnings[0]
