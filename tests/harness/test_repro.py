"""`warpcheck repro` and harness.repro: the script of every kind of failure shows it, and passes once the kernel is mended."""

# ruff: noqa: SIM300 - the expected value stands first

import contextlib
import json
import math
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
from harness.rate import measured
from harness.repro import NoScript
from harness.repro.writer import repeats_of
from harness.sandbox import Engine, Limits
from harness.verdict import Evidence, Verdict
from tests.harness.endtoend import LONG, clean_environment, fix, judged, user_folder, warpcheck
from tests.harness.making import NAME, PLAIN, mask_case

TIES = Fill("cycle", 0, (1.0, 3.0, 3.0, 3.0, 2.0))
SPREAD = Fill("spread", 11)
SIZES = Fill("cycle", 0, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0))


def write(entry, source, target, implementation=None):
    """The script of an entry, as a file."""
    target.write_text(repro.script(entry, path=source.name, implementation=implementation), encoding="utf-8")


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
        # Enough runs that it is seen to come and go.
        entry = judged(case, function, folders[0], pairs=4 if what == "comes-and-goes" else 1)
        found[what] = entry, folders[0].parent / f"{what}.py"
        if entry.verdict.failed:
            write(entry, Path(f"{what}.json"), found[what][1])
    return found


@pytest.fixture(scope="module")
def shown(folders, made):
    """what -> what its script does beside the bug, and beside the mended kernel."""
    paths = [path for _, path in made.values() if path.exists()]
    before, after = (run_scripts(folder, paths) for folder in folders)
    return {what: (before[path], after[path]) for what, (_, path) in made.items() if path in before}


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
    assert "BUG" in text, text[-1500:]


@pytest.mark.parametrize("what", list(FAULTS))
def test_the_script_exits_0_once_the_kernel_is_mended(shown, what):
    """The same file, in a folder where the kernel is right."""
    _, (status, text) = shown[what]
    assert 0 == status, text[-1500:]
    assert "passes" == text.splitlines()[-1]


def test_a_script_says_what_is_wrong(shown):
    """Got and expected of a wrong result, the byte of a stray write, what became of an illegal call."""
    assert "out[0, 3] is -inf, should be 3.0" in shown["ties"][0][1]
    assert "out[0, 1]" not in shown["ties"][0][1]
    assert "wrote outside its output: byte 40 of memory 1" in shown["outside"][0][1]
    assert "its input logits[0, 0] is" in shown["input"][0][1]
    assert "the call was accepted" in shown["illegal-negative"][0][1]
    assert "raised ValueError on a legal call: k must be positive" in shown["refused"][0][1]
    assert "it depends on memory that holds no input" in shown["poison"][0][1]


MACHINERY = ("GUARD", "Poisoned", "faulthandler", "as_strided", "def ", "try:", "subprocess")


def test_a_plain_wrong_number_has_a_plain_script(made):
    """Tensors, a call and a comparison, in 45 lines at most; what other kinds of failure need is not there."""
    for what in ("ties", "k-int64", "in-place", "nan"):
        text = made[what][1].read_text(encoding="utf-8")
        assert [] == [word for word in MACHINERY if word in text], what
        assert len([line for line in text.splitlines() if line]) <= 45


@pytest.mark.parametrize(
    ("what", "needed"),
    [
        ("outside", {"GUARD", "as_strided"}),
        ("input", set()),
        ("unwritten-fresh", {"Poisoned", "def "}),
        ("unwritten-given", set()),
        ("poison", {"GUARD", "Poisoned", "as_strided", "def "}),
        ("in-place-strided", {"as_strided"}),
        ("refused", {"try:"}),
        ("illegal-bool", {"try:"}),
        ("comes-and-goes", {"def "}),
    ],
)
def test_a_script_has_the_machinery_that_its_failure_needs(made, what, needed):
    """And none of the rest."""
    text = made[what][1].read_text(encoding="utf-8")
    assert needed == {word for word in MACHINERY if word in text}


def test_a_script_is_one_file_that_names_no_harness(made):
    """No import of this project stands in it, and its head says what it is and how it was made."""
    for what, (entry, path) in made.items():
        text = path.read_text(encoding="utf-8")
        imports = [line for line in text.splitlines() if line.startswith(("import ", "from "))]
        assert not any("harness" in line or "oracles" in line or "impls" in line for line in imports), what
        assert str(entry.signature) == text.splitlines()[0].strip('"')
        assert f"warpcheck repro {what}.json --script" in text


def test_the_script_of_a_dying_kernel_exits_1(folders, tmp_path):
    """The call is made in a child process, which dies as the kernel does; it passes once that does not."""
    case = mask_case(dtype="float16", fill=SPREAD)
    verdict = Verdict("process_died", "the process died", Evidence(error="died of SIGSEGV"))
    entry = replace(judged(case, "good", folders[1]), verdict=verdict, implementation="mask.py:dies")
    path = tmp_path / "dies.py"
    write(entry, Path("dies.json"), path)
    (died, told), (passed, text) = (run_scripts(folder, [path])[path] for folder in folders)
    assert (1, "BUG: the process ended with status -11") == (died, told.splitlines()[-1])
    assert (0, "passes") == (passed, text.splitlines()[-1])


def test_the_script_of_a_hanging_kernel_gives_up_and_says_where(folders, tmp_path):
    """It has a limit of its own, after which it prints the stack and exits 1."""
    case = mask_case(dtype="bfloat16", fill=SPREAD)
    entry = replace(judged(case, "good", folders[1]), verdict=Verdict("hang", "late"), implementation="mask.py:hangs")
    text = repro.script(entry, path="hangs.json")
    assert "dump_traceback_later(60, exit=True)" in text
    path = tmp_path / "hangs.py"
    path.write_text(text.replace("dump_traceback_later(60", "dump_traceback_later(1"))
    status, told = run_scripts(folders[0], [path])[path]
    assert 1 == status
    assert "in hangs" in told


def test_a_case_that_no_script_can_hold_is_refused(folders):
    """More elements than the oracle answers in seconds; nothing of that size is allocated."""
    entry = replace(judged(mask_case(fill=TIES), "drops_ties", folders[0]), subject=mask_case(1, 1 << 35, fill=SPREAD))
    with pytest.raises(NoScript, match="use `warpcheck repro"):
        repro.script(entry, path="x.json")


@pytest.mark.parametrize(
    ("more", "words"), [({"schedule": 7}, "an order of threads"), ({"checks": ("race",)}, "a check of the kernel's")]
)
def test_failures_that_need_an_order_or_a_check_have_no_script(folders, more, words):
    """One line, with the command that can show them."""
    entry = judged(mask_case(fill=TIES), "drops_ties", folders[0])
    with pytest.raises(NoScript, match=words) as refused:
        repro.script(replace(entry, subject=replace(entry.subject, **more)), path="corpus/x.json")
    assert str(refused.value).endswith("use `warpcheck repro x.json`")


def test_a_script_makes_the_calls_that_have_to_come_before(folders, tmp_path):
    """A kernel that is wrong at every call whose sizes are others than those of the process's first."""
    entry = judged(mask_case(fill=TIES), "drops_ties", folders[0])
    case = mask_case(2, 4, fill=TIES)
    verdict = Verdict("wrong_set", "", Evidence(used_process=True))
    entry = replace(entry, subject=case, verdict=verdict, implementation="mask.py:remembers")
    with_context, without = tmp_path / "with.py", tmp_path / "without.py"
    write(
        replace(entry, context=(mask_case(1, 3), mask_case(3, 2, form="out_is_logits"))), Path("x.json"), with_context
    )
    write(entry, Path("x.json"), without)
    seen = run_scripts(folders[0], [with_context, without])
    assert (1, 0) == (seen[with_context][0], seen[without][0]), seen
    assert 0 == run_scripts(folders[1], [with_context])[with_context][0]


def test_a_result_that_depends_on_the_layout_is_shown_beside_the_plainer_call(tmp_path):
    """Where any of several results is right, both calls stand in the script."""
    source = """
SEMANTICS = {"ties": "exactly_k"}
FIXED = %s

def want(logits, k, *, out=None):
    backwards = not FIXED and logits.stride(0) != logits.shape[1]
    x = logits.flip(1) if backwards else logits.clone()
    places = x.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    x[places >= k] = float("-inf")
    return x.flip(1) if backwards else x
"""
    seen = []
    for fixed in (False, True):
        folder = tmp_path / str(fixed)
        folder.mkdir()
        (folder / "layout.py").write_text(source % fixed)
    with contextlib.chdir(tmp_path / "False"):
        implementation = implementations.load(NAME, "layout.py:want")
        case = mask_case(1, 3, fill=Fill("cycle", 0, (2.0,)), k=1)
        view = replace(case.tensors["logits"], strides=(5, 1))
        case = replace(case, tensors={"logits": view})
        verdict = Judge(case, "cpu").judge(implementation)
        assert "layout_differs" == verdict.kind
        entry = Entry(FORMAT, signature.signature(case, "want", verdict), case, verdict, "layout.py:want", "cpu")
        path = tmp_path / "shows.py"
        write(entry, Path("x.json"), path, implementation)
    for fixed in (False, True):
        seen.append(run_scripts(tmp_path / str(fixed), [path])[path])
    assert [1, 0] == [status for status, _ in seen], seen
    assert "out[0, 0] is -inf and 2.0: the plainer call gives the second" in seen[0][1]


def test_shared_memory_that_nobody_wrote_holds_both_poisons(tmp_path):
    """A CUDA kernel on the CPU depends on what its shared memory starts with, which its own package can say."""
    source = """
import contextlib, torch
FIXED = %s
SHARED = [0]

@contextlib.contextmanager
def execution(schedule=0, checks=(), memory=(), poison=0):
    SHARED[0] = poison
    yield

def mask(logits, k, *, out=None):
    return logits.clone() if FIXED or SHARED[0] < 0x80 else torch.full_like(logits, float("-inf"))
"""
    for fixed in (False, True):
        (tmp_path / str(fixed)).mkdir()
        (tmp_path / str(fixed) / "shared.py").write_text(source % fixed)
    path = tmp_path / "shows.py"
    with contextlib.chdir(tmp_path / "False"):
        implementation = implementations.load(NAME, "shared.py:mask")
        case = mask_case(1, 1, fill=Fill("cycle", 0, (2.0,)), k=1)
        verdict = Judge(case, "cpu").judge(implementation)
        assert "depends_on_poison" == verdict.kind
        entry = Entry(FORMAT, signature.signature(case, "mask", verdict), case, verdict, "shared.py:mask", "cpu")
        write(entry, Path("x.json"), path, implementation)
    assert "with execution(poison=poison), Poisoned(poison):" in path.read_text()
    assert [1, 0] == [run_scripts(tmp_path / str(fixed), [path])[path][0] for fixed in (False, True)]


def test_a_large_output_is_shown_by_the_worst_and_a_sample(folders, tmp_path):
    """The script says so; it fails beside the bug and passes beside the mended kernel."""
    case = mask_case(3, 700, fill=Fill("choice", 5, tuple(range(-40, 40))), k=300)
    entry = judged(case, "drops_ties", folders[0])
    path = tmp_path / "large.py"
    write(entry, Path("x.json"), path)
    text = path.read_text(encoding="utf-8")
    assert "# Of the 2100 elements of out, the one that was worst and a sample." in text
    assert len(text.splitlines()) < 90
    assert [1, 0] == [run_scripts(folder, [path])[path][0] for folder in folders]


def test_a_failure_that_comes_and_goes_is_repeated_often_enough():
    """The entry's own number, or one from the lower end of the rate that was seen; with the rate in words."""
    case = mask_case(1, 2)
    verdict = Verdict("nondeterministic", "", Evidence(failed=2, runs=10))
    entry = Entry(FORMAT, signature.signature(case, "mine", verdict), case, verdict, "mine.py:mask", "cpu")
    low = 0.0567  # of 2 of 10, by Wilson's formula at 95%
    repeats, said = repeats_of(entry)
    assert math.ceil(math.log(0.01) / math.log(1 - low)) == repeats
    assert f"It failed in {measured(2, 10)}." == said
    assert measured(30, 100).repeats == repeats_of(replace(entry, rate=measured(30, 100)))[0]
    assert (200, "How often it fails is not known.") == repeats_of(
        replace(entry, verdict=replace(verdict, evidence=Evidence()))
    )


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
    write(entry, Path("build.json"), path)
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
    write(entry, Path("outer.json"), path)
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
