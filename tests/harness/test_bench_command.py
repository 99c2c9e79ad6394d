"""`warpcheck bench` from outside: tables and files, a wrong kernel, ctrl-C, and what it says without a GPU."""

# ruff: noqa: SIM300 - the expected value stands first

import shutil
import signal
import xml.etree.ElementTree as ET

import pytest
from msgspec.structs import replace

from harness.bench import report
from tests.harness.bench import kernels
from tests.harness.endtoend import Running, wait_until, warpcheck

NAME = "top_k_mask_logits"
SHAPE = ("--operator", NAME, "--shape", "float32 3x40 k=5")
QUICK = ("--device", "cpu", "--time-per", "0.01s")


@pytest.fixture
def folder(tmp_path):
    shutil.copy(kernels.__file__, tmp_path / "mine.py")
    return tmp_path


def twice(timing):
    """A time that is longer beyond any noise."""
    return replace(timing, **dict.fromkeys(("median", "low", "high"), 2 * timing.high))


def bench(folder, *args):
    return warpcheck(folder, "bench", *args)


def test_without_a_gpu(folder, monkeypatch):
    """125, one line, what can be done instead; nothing is written."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = bench(folder, *SHAPE, "--json", "r.json")
    assert (125, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith("cannot run here: no GPU is visible. Without one nothing can be timed")
    assert 1 == len(done.stderr.strip().splitlines())
    assert not (folder / "r.json").exists()


def test_from_measuring_to_comparing(folder):
    """A wrong kernel is refused with exit status 1; table, JSON, picture and Markdown; both runs compared without measuring."""
    outputs = ("--json", "r.json", "--plot", "r.svg", "--markdown", "r.md")
    chosen = (
        "--impl",
        "mine.py:right",
        "--impl",
        "mine.py:wrong",
        "--impl",
        "topk+where",
        "--baseline",
        "mine.py:right",
    )
    done = bench(folder, *SHAPE, *QUICK, *chosen, *outputs)
    assert 1 == done.returncode, done.stderr
    assert "mine.wrong, float32 3x40 k=5: wrong: wrong_set: out[0, " in done.stdout
    assert "baseline: mine.right" in done.stdout
    assert "no column of flashinfer: it is not installed" in done.stdout
    made = report.read(folder / "r.json")
    assert ["measured", "wrong", "measured"] == [each.status for each in made.results]
    assert (True, {NAME: "mine.right"}) == (made.complete, made.settings.baseline)
    assert ET.parse(folder / "r.svg").getroot().tag.endswith("svg")
    assert "| float32 3x40 k=5 |" in (folder / "r.md").read_text(encoding="utf-8")

    slower = report.read(folder / "r.json")
    slower.results = [replace(each, cold=twice(each.cold)) for each in slower.results if each.cold is not None]
    slower.machine = {**slower.machine, "torch": "9.9"}
    report.write(folder / "slow.json", slower)
    same = bench(folder, "--from", "slow.json", "--compare", "slow.json")
    assert (0, True) == (same.returncode, "2 configurations compared, no changes beyond the noise" in same.stdout)
    worse = bench(folder, "--from", "slow.json", "--compare", "r.json")
    assert 1 == worse.returncode
    assert "slower top_k_mask_logits float32 3x40 k=5, mine.right, cold: " in worse.stdout
    assert "another machine or other software: torch" in worse.stdout


def test_ctrl_c_keeps_what_was_measured(folder):
    """The rows until then, in the file and in the table; no process is left."""
    shapes = ("--operator", NAME, "--shape", "float32 3x40 k=5", "--shape", "float32 3x41 k=5")
    running = Running(
        folder, "bench", *shapes, *QUICK, "--impl", "mine.py:right", "--impl", "mine.py:waits", "--json", "r.json"
    )
    try:
        assert wait_until((folder / "waiting").exists)
        running.process.send_signal(signal.SIGINT)
        assert 0 == running.process.wait(60)
        running.output.seek(0)
        said = running.output.read()
    finally:
        running.process.kill()
    assert "interrupted: what follows is what was measured by then" in said
    assert "mine.right" in said
    made = report.read(folder / "r.json")
    assert (False, ["mine.right"]) == (made.complete, [each.name for each in made.results])


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("--operator", "odd"), "unknown operator 'odd'"),
        (("--set", "odd"), "no operator has the set odd"),
        (("--operator", NAME, "--set", "odd"), "has no set 'odd'; there are: standard"),
        (("--operator", NAME, "--shape", "odd"), "'odd' is no workload of top_k_mask_logits"),
        (("--shape", "float32 3x40 k=5"), "say which operator workload --shape is of"),
        (("--impl", "odd"), "unknown implementation 'odd'"),
        (("--impl", "mine.py:right"), "say which operator function --impl is of"),
        (("--operator", NAME, "--impl", "flashinfer"), "needs the package flashinfer"),
        (("--operator", NAME, "--baseline", "odd"), "the baseline 'odd' is not among"),
        (("--operator", NAME, "--impl", "mine.py:odd", *QUICK), "has no function 'odd'"),
        (("--compare", "absent.json"), "absent.json: No such file"),
        (("--from", "mine.py"), "mine.py: no report"),
        (("--json", "no/r.json"), "there is no folder 'no'"),
        (("--json", "x", "--plot", "x"), "name the same file"),
        (("--time-per", "soon"), "is no duration"),
    ],
)
def test_bad_input_is_one_line(folder, args, why):
    """And exit status 2."""
    done = bench(folder, *args)
    assert (2, "") == (done.returncode, done.stdout)
    assert why in done.stderr
    assert "Traceback" not in done.stderr


def test_the_list(folder):
    """Sets, workloads and competitors, to be copied from."""
    done = bench(folder, "--list")
    assert 0 == done.returncode
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert {NAME, "single_prefill", "--set adversarial", "float32 4096x128256 k=50", "sdpa cudnn"} <= set(lines)
