"""`warpcheck repro` and harness.repro: the script of every kind of failure shows it, and passes once the kernel is mended."""

# ruff: noqa: SIM300 - the expected value stands first

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from harness import corpus, implementations, repro, signature
from harness.case import FORMAT, Build, Case, Fill, Planted, View
from harness.corpus import Entry
from harness.judge import Judge
from harness.repro import NoScript
from harness.sandbox import Engine, Limits
from harness.verdict import Evidence, Verdict
from tests.harness.endtoend import LONG, clean_environment, fix, judged, user_folder, warpcheck
from tests.harness.making import NAME, PLAIN, mask_case, prefill_case

TIES = Fill("cycle", 0, (1.0, 3.0, 3.0, 3.0, 2.0))
SPREAD = Fill("spread", 11)
SIZES = Fill("cycle", 0, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0))


def out_view(batch=2, vocab=5, *, pitch=None, dtype="float32", storage=1, offset=0):
    return View(storage, dtype, (batch, vocab), (pitch or vocab, 1), offset)


def with_k(k, **kwargs):
    case = mask_case(**kwargs)
    return replace(case, params={**case.params, "k": k})


def k_tensor(dtype, values, *, fill=SPREAD, stride=1, **params):
    """A call whose k is a tensor of any dtype and stride."""
    batch = len(values)
    tensors = {
        "logits": View(0, "float32", (batch, 5), (5, 1)),
        "k": View(1, dtype, (batch,), (stride,)),
    }
    size = 8 * (1 + (batch - 1) * stride)
    return Case(
        NAME, {"form": "new", **params}, (20 * batch, size), tensors, {"logits": fill, "k": Fill("cycle", 0, values)}
    )


def expanded(batch=3, vocab=5):
    """All rows are one row of memory."""
    view = View(0, "float32", (batch, vocab), (0, 1))
    return Case(NAME, {"form": "new", "k": 2}, (vocab * 4,), {"logits": view}, {"logits": TIES})


def shifted_out():
    """out is logits, one element further: forbidden."""
    tensors = {"logits": View(0, "float32", (2, 5), (5, 1)), "out": View(0, "float32", (2, 5), (5, 1), 4)}
    return Case(NAME, {"form": "out", "k": 2}, (44,), tensors, {"logits": SPREAD})


RAW = Fill("raw", 5)
SPECIALS = Fill("specials", 7)
NANS = Fill("cycle", 0, (1.0, "nan", 2.0, "nan", -1.0))
PLANTED = Fill("cycle", 0, (1.0, 2.0), (Planted(3, "nan"), Planted(6, "inf"), Planted(7, -0.0)))

FAULTS = {
    # what: (function, case, kind)
    "ties": ("drops_ties", mask_case(fill=TIES), "wrong_set"),
    "ties-float16": ("drops_ties", mask_case(3, 7, dtype="float16", fill=TIES), "wrong_set"),
    "ties-bfloat16": ("drops_ties", mask_case(3, 7, dtype="bfloat16", fill=TIES), "wrong_set"),
    "outside": ("writes_outside", mask_case(fill=SPREAD, form="out"), "wrote_outside"),
    "outside-in-the-gap": (
        "writes_outside",
        mask_case(fill=SPREAD, form="out", out=out_view(pitch=8)),
        "wrote_outside",
    ),
    "input": ("changes_input", mask_case(fill=SPREAD), "changed_input"),
    "input-beside-out": ("changes_input", mask_case(fill=SPREAD, form="out"), "changed_input"),
    "illegal-bool": ("trusts", with_k(True, fill=SPREAD), "accepted_illegal"),
    "illegal-negative": ("trusts", with_k(-1, fill=SPREAD), "accepted_illegal"),
    "illegal-by-assertion": ("asserts", with_k(-1, fill=SPREAD), "unclear_error"),
    "illegal-overlap": ("asserts", shifted_out(), "unclear_error"),
    "illegal-dtype": ("asserts", k_tensor("float32", (1.0, 1.0)), "unclear_error"),
    "illegal-k-elsewhere": ("asserts", k_tensor("int64", (1, 1), k_on="other"), "unclear_error"),
    "illegal-list": ("asserts", with_k([2, 2], fill=SPREAD), "unclear_error"),
    "unwritten-fresh": ("leaves_last_column", mask_case(fill=SPREAD), "unwritten_output"),
    "unwritten-given": ("leaves_last_column", mask_case(fill=SPREAD, form="out"), "unwritten_output"),
    "unwritten-float16": ("leaves_last_column", mask_case(dtype="float16", fill=SPREAD), "unwritten_output"),
    "poison": ("reads_the_gap", mask_case(fill=SPREAD, pitch=8), "depends_on_poison"),
    "nan-payload": ("washes_nan", mask_case(2, 48, dtype="float16", k=40, fill=RAW), "wrong_nan"),
    "nan-payload-one-row": ("washes_nan", mask_case(1, 24, dtype="bfloat16", k=24, fill=SPECIALS), "wrong_nan"),
    "nan-payload-bfloat16": ("washes_nan", mask_case(2, 12, dtype="bfloat16", k=12, fill=SPECIALS), "wrong_nan"),
    "nan-payload-float32": ("washes_nan", mask_case(2, 12, k=12, fill=SPECIALS), "wrong_nan"),
    "nan": ("erases_nan", mask_case(fill=NANS, k=3), "wrong_nan"),
    "nan-planted": ("erases_nan", mask_case(2, 6, fill=PLANTED, k=4), "wrong_nan"),
    "strided": ("ignores_pitch", mask_case(fill=SIZES, pitch=8, k=1), "depends_on_poison"),
    "misaligned": ("aligns_down", mask_case(fill=SIZES, offset=4, k=1), "depends_on_poison"),
    "misaligned-float16": ("aligns_down", mask_case(dtype="float16", fill=SIZES, offset=6, k=1), "depends_on_poison"),
    "k-int64": ("halves_k", k_tensor("int64", (3, 1, 2)), "wrong_set"),
    "k-int64-clipped": ("halves_k", k_tensor("int64", ((1 << 33) + 1, -3, 2)), "wrong_set"),
    "in-place": ("wrong_in_place", mask_case(fill=SPREAD, form="in_place"), "wrong_set"),
    "in-place-strided": (
        "wrong_in_place",
        mask_case(fill=SPREAD, form="in_place", pitch=9, offset=4),
        "wrong_set",
    ),
    "out-is-logits": ("rereads", mask_case(fill=SPREAD, form="out_is_logits"), "wrong_set"),
    "refused": ("refuses_zero", mask_case(fill=SPREAD, k=0), "refused"),
    "expanded": ("drops_ties", expanded(), "wrong_set"),
    "other-tensor": ("other_tensor", mask_case(fill=SPREAD, form="out"), "wrong_metadata"),
    "other-dtype": ("other_dtype", mask_case(fill=SPREAD), "wrong_metadata"),
    "other-dtype-empty": ("other_dtype", mask_case(0, 5, fill=SPREAD), "wrong_metadata"),
    "comes-and-goes": ("comes_and_goes", mask_case(fill=SPREAD), "nondeterministic"),
    "scratch": ("makes_a_scalar", mask_case(fill=TIES), "wrong_set"),
}

DRIVER = """
import os, sys, traceback
import torch  # once for all: each script runs in a fork of this process, as its own __main__
scripts, seen = sys.argv[1:], {}
for script in scripts:
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.dup2(write, 1), os.dup2(write, 2)
        import runpy
        status = 0
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            status = end.code or 0
        except BaseException:
            traceback.print_exc()
            status = 1
        if "harness" in sys.modules:
            print("IMPORTS THE HARNESS")
            status = 77
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    os.close(write)
    with os.fdopen(read, errors="replace") as pipe:
        text = pipe.read()
    seen[script] = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text]
import json
print(json.dumps(seen))
"""


def run_scripts(folder, paths):
    """path -> (exit status, output) of scripts, in processes that know nothing of this project, in the kernel's folder."""
    driver = folder / "driver.py"
    driver.write_text(DRIVER)
    done = subprocess.run(
        [sys.executable, driver, *paths],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=LONG,
        check=True,
    )
    return {Path(path): tuple(result) for path, result in json.loads(done.stdout).items()}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder of the kernels with their bugs, and of the mended ones."""
    base = tmp_path_factory.mktemp("kernels")
    return user_folder(base / "bugs"), user_folder(base / "fixed", fixed=True)


@pytest.fixture(scope="module")
def made(folders):
    """what -> its entry and script."""
    found = {}
    for what, (function, case, _) in FAULTS.items():
        entry = judged(case, function, folders[0], pairs=4 if what == "comes-and-goes" else 1)
        found[what] = entry, folders[0].parent / f"{what}.py"
        if entry.verdict.failed:
            repro.write(entry, Path(f"{what}.json"), found[what][1])
    return found


@pytest.fixture(scope="module")
def shown(folders, made):
    """what -> what its script does beside the bug, and beside the mended kernel."""
    paths = [path for _, path in made.values() if path.exists()]
    before, after = (run_scripts(folder, paths) for folder in folders)
    return {what: (before[path], after[path]) for what, (_, path) in made.items() if path in before}


PREFILL = {
    "out": ("scores.py:scale_zero_is_default", prefill_case(2, 3, sm_scale=0.0)),
    "lse": ("softmax.py:lse_in_natural_log", prefill_case(2, 3, return_lse=True)),
    "state": ("softmax.py:empty_rows_are_nan", prefill_case(3, 1, causal=True)),
}
"""Faults of an operator that rounds, in its first output, its second, and where a NaN is wrong."""


@pytest.mark.parametrize("what", PREFILL)
def test_a_script_knows_the_bound(what, tmp_path):
    """It fails beside the fault, and passes beside the same kernel without it, which is not right to the last bit."""
    spec, case = PREFILL[what]
    folder = Path(__file__).parents[1] / "planted" / "single_prefill"
    implementation = implementations.load("single_prefill", f"{folder / spec}")
    verdict = Judge(case, "cpu").judge(implementation)
    found = signature.signature(case, implementation.name, verdict)
    entry = Entry(FORMAT, found, case, verdict, f"{folder / spec}", "cpu")
    text = repro.script(entry, path="x.json", implementation=implementation)
    wrong, right = tmp_path / "wrong.py", tmp_path / "right.py"
    wrong.write_text(text)
    right.write_text(text.replace(spec.partition(":")[0], "lookalikes.py").replace(spec.partition(":")[2], "tiled"))
    root = clean_environment(PYTHONPATH=str(folder.parents[2]))
    done = [
        subprocess.run([sys.executable, path], env=root, capture_output=True, text=True, timeout=LONG, check=False)
        for path in (wrong, right)
    ]
    assert [1, 0] == [each.returncode for each in done], [each.stdout + each.stderr for each in done]
    assert "want" in done[0].stdout


@pytest.mark.parametrize("what", FAULTS)
def test_a_hand_written_case_shows_its_fault(made, what):
    """The judge names the kind that the script has to show."""
    entry, _ = made[what]
    assert FAULTS[what][2] == entry.verdict.kind, entry.verdict.message


@pytest.mark.parametrize("what", list(FAULTS))
def test_the_script_exits_1_while_the_bug_is_there(shown, what):
    """In a process that cannot import the harness."""
    (status, text), _ = shown[what]
    assert 1 == status, text[-1500:]
    assert "runs fail" in text, text[-1500:]


@pytest.mark.parametrize("what", list(FAULTS))
def test_the_script_exits_0_once_the_kernel_is_mended(shown, what):
    """The same file, in a folder where the kernel is right."""
    _, (status, text) = shown[what]
    assert 0 == status, text[-1500:]
    assert "passes" == text.splitlines()[-1]


def test_a_script_says_what_is_wrong(shown):
    """Got and want of a wrong result, the byte of a stray write, the reason why a call is illegal."""
    assert "got" in shown["ties"][0][1]
    assert "[1.0, -inf, -inf, -inf, -inf]" not in shown["ties"][0][1]
    assert "want" in shown["ties"][0][1]
    assert "wrote to byte 40 of storage 1" in shown["outside"][0][1]
    assert "wrote to byte 0 of storage 0" in shown["input"][0][1]
    assert "accepted a call where k is negative" in shown["illegal-negative"][0][1]
    assert "on a legal call" in shown["refused"][0][1]


def test_a_script_is_one_file_that_names_no_harness(made):
    """No import of this project stands in it, and its head says what it is and how it was made."""
    for what, (entry, path) in made.items():
        text = path.read_text(encoding="utf-8")
        imports = [line for line in text.splitlines() if line.startswith(("import ", "from "))]
        assert not any("harness" in line or "oracles" in line or "impls" in line for line in imports), what
        assert str(entry.signature) == text.splitlines()[0].strip('"')
        assert f"warpcheck repro {what}.json --script" in text


def test_the_script_of_a_dying_kernel_ends_with_another_status_than_0(folders, tmp_path):
    """It dies as the kernel does, and passes once that does not."""
    case = mask_case(dtype="float16", fill=SPREAD)
    verdict = Verdict("process_died", "the process died", Evidence(error="died of SIGSEGV"))
    entry = replace(judged(case, "good", folders[1]), verdict=verdict, implementation="mask.py:dies")
    path = tmp_path / "dies.py"
    repro.write(entry, Path("dies.json"), path)
    (died, _), (passed, text) = (run_scripts(folder, [path])[path] for folder in folders)
    assert died != 0
    assert (0, "passes") == (passed, text.splitlines()[-1])


def test_the_script_of_a_hanging_kernel_gives_up_and_says_where(folders, tmp_path):
    """It has a limit of its own, after which it prints the stack and exits 1."""
    case = mask_case(dtype="bfloat16", fill=SPREAD)
    entry = replace(judged(case, "good", folders[1]), verdict=Verdict("hang", "late"), implementation="mask.py:hangs")
    text = repro.script(entry, path="hangs.json")
    assert "dump_traceback_later(120, exit=True)" in text
    path = tmp_path / "hangs.py"
    path.write_text(text.replace("dump_traceback_later(120", "dump_traceback_later(1"))
    status, told = run_scripts(folders[0], [path])[path]
    assert 1 == status
    assert "in hangs" in told


def test_large_cases_have_no_script(folders):
    """More elements than a person reads: a clear refusal, which names the command that judges those."""
    entry = replace(judged(mask_case(fill=TIES), "drops_ties", folders[0]), subject=mask_case(1, 5000, fill=SPREAD))
    with pytest.raises(NoScript, match="use `warpcheck repro`"):
        repro.script(entry, path="x.json")


def test_failures_that_need_a_history_have_no_script(folders):
    """The calls before cannot be said in one."""
    entry = judged(mask_case(fill=TIES), "drops_ties", folders[0])
    with pytest.raises(NoScript, match="other calls before it"):
        repro.script(replace(entry, context=(mask_case(),)), path="x.json")


def test_the_script_of_a_build_compiles(folders, tmp_path):
    """Exits 1 with the compiler's words while `build` raises, 0 when it does not."""
    build = Build(NAME, {"dtype": "float32", "k": "int"}, "sm_80")
    entry = judged(mask_case(fill=TIES), "drops_ties", folders[0])
    entry = replace(
        entry,
        subject=build,
        verdict=Verdict("build_error", "cc: no such thing", Evidence(error="cc: no such thing")),
        implementation="building.py:mask",
    )
    path = tmp_path / "build.py"
    repro.write(entry, Path("build.json"), path)
    source = "def build(params, arch):\n    if {0} and arch == 'sm_80': raise RuntimeError('no such thing')\n"
    seen = []
    for broken in (True, False):
        folder = tmp_path / str(broken)
        folder.mkdir()
        (folder / "building.py").write_text(source.format(broken))
        seen.append(run_scripts(folder, [path])[path])
    assert [1, 0] == [status for status, _ in seen]
    assert "no such thing" in seen[0][1]


def test_a_kernel_that_imports_a_file_beside_it(folders, tmp_path):
    """The script finds the kernel's siblings, as the harness does, wherever the script itself lies."""
    lines = "from mask import drops_ties as right\n\n\ndef mask(logits, k, *, out=None):\n    return right(logits, k, out=out)\n"
    user_folder(tmp_path / "both", fixed=True)
    (tmp_path / "both" / "outer.py").write_text(lines)
    entry = replace(judged(mask_case(fill=TIES), "drops_ties", folders[0]), implementation="outer.py:mask")
    path = tmp_path / "outer_script.py"
    repro.write(entry, Path("outer.json"), path)
    done = subprocess.run(
        [sys.executable, path],
        cwd=tmp_path / "both",
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    assert 0 == done.returncode, done.stdout + done.stderr


def test_repro_follows_the_kernel(tmp_path):
    """1 while the bug is there, 0 once it is mended, 125 without the file: what `git bisect run` takes."""
    folder = user_folder(tmp_path / "user")
    path = corpus.write(folder / "corpus", judged(mask_case(fill=TIES), "drops_ties", folder))
    shown = warpcheck(folder, "repro", path, "--script", "show.py", "--device", "cpu")
    assert 1 == shown.returncode, shown.stderr
    assert "reproduces wrong_set: out[0, 3] is -inf, should be 3.0" in shown.stdout
    assert "python show.py exits 1 while the bug is there" in shown.stdout
    assert 1 == run_scripts(folder, ["show.py"])[Path("show.py")][0]
    fix(folder)
    assert 0 == run_scripts(folder, ["show.py"])[Path("show.py")][0]
    passed = warpcheck(folder, "repro", path, "--device", "cpu")
    assert (0, "passes") == (passed.returncode, passed.stdout.strip())
    os.unlink(folder / "mask.py")
    absent = warpcheck(folder, "repro", path, "--device", "cpu")
    assert 125 == absent.returncode
    assert "cannot run here: no file 'mask.py'" in absent.stderr
    assert "Traceback" not in absent.stderr


def test_repro_of_a_dying_and_of_a_hanging_kernel(folders):
    """The entry's own engine survives them: judged again, they still are what they were."""
    with Engine("cpu", limits=Limits(run=2.0)) as engine, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folders[0])
        kinds = [
            engine.judge(mask_case(dtype=dtype, fill=PLAIN), [f"mask.py:{name}"])[0].kind
            for name, dtype in (("dies", "float16"), ("hangs", "bfloat16"))
        ]
    assert ["process_died", "hang"] == kinds
