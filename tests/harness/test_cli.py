"""The command: what it prints, and that whatever a user can get wrong is one line and exit status 2."""

# ruff: noqa: SIM300 - the expected value stands first

import json
import os
import re

import pytest
from msgspec.structs import replace

from harness import __version__, cli, corpus, gpus
from harness.case import Fill
from tests.harness.endtoend import entries, fuzz, judged, user_folder, warpcheck, warpcheck_process
from tests.harness.making import NAME, mask_case

TIES = Fill("cycle", 0, (1.0, 3.0, 3.0, 3.0, 2.0))


@pytest.fixture
def folder(tmp_path):
    return user_folder(tmp_path / "user")


@pytest.fixture
def entry(folder):
    """(its file, itself) in the folder's corpus."""
    found = judged(mask_case(fill=TIES), "drops_ties", folder)
    return corpus.write(folder / "corpus", found), found


def fails_clearly(done, *words, status=2):
    """One line on stderr with these words, exit status 2 or another."""
    text = done.stderr.strip()
    assert status == done.returncode, text
    assert "Traceback" not in done.stdout + done.stderr
    for word in words:
        assert word in text
    lines = [line for line in text.splitlines() if not line.startswith(("Usage:", "Try "))]
    assert 1 == len([line for line in lines if line.strip()]), text


BAD_FUZZ = {
    "operator": (["--operator", "softmax"], ("unknown operator 'softmax'", NAME)),
    "implementation": (["--impl", "cutlass"], ("unknown implementation 'cutlass'", "FILE.py:FUNCTION")),
    "no function": (["--operator", NAME, "--impl", "mask.py:nope"], ("has no function 'nope'",)),
    "no file": (["--operator", NAME, "--impl", "nope.py:mask"], ("no file 'nope.py'",)),
    "no module": (["--operator", NAME, "--impl", "no.such.module:mask"], ("no module named",)),
    "syntax": (["--operator", NAME, "--impl", "syntax.py:mask"], ("SyntaxError",)),
    "raises": (["--operator", NAME, "--impl", "raises.py:mask"], ("OSError: no luck today",)),
    "semantics": (["--operator", NAME, "--impl", "odd.py:mask"], ("SEMANTICS",)),
    "duration": (["--time", "soon"], ("'soon' is no duration; write 90s, 5m or 2h",)),
    "no duration": (["--time", "0s"], ("is no duration",)),
    "negative": (["--time", "-3s"], ("is no duration",)),
    "timeout": (["--timeout", "x"], ("is no duration",)),
    "examples": (["--examples", "0"], ("--examples",)),
    "jobs": (["--jobs", "0"], ("--jobs",)),
    "seed": (["--seed", "-1"], ("--seed",)),
    "profile": (["--profile", "fast"], ("--profile",)),
    "device": (["--device", "tpu"], ("--device",)),
    "corpus is a file": (["--corpus", "mask.py"], ("mask.py",)),
    "log is a folder": (["--log", "."], ("--log",)),
}


@pytest.mark.parametrize("what", BAD_FUZZ)
def test_bad_input_to_fuzz(folder, what):
    """One line that says what is wrong and, where that helps, what there is."""
    (folder / "syntax.py").write_text("def mask(:\n")
    (folder / "raises.py").write_text("raise OSError('no luck today')\n")
    (folder / "odd.py").write_text("SEMANTICS = {'ties': 'some'}\n\n\ndef mask(logits, k, *, out=None):\n    pass\n")
    args, words = BAD_FUZZ[what]
    done = warpcheck(folder, "fuzz", "--device", "cpu", "--examples", "1", "--no-builds", *args)
    fails_clearly(done, *words)


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(["--corpus", "mask.py/corpus"], id="corpus"),
        pytest.param(["--log", "mask.py/log.jsonl"], id="log"),
        pytest.param(["--corpus", "/dev/null/corpus"], id="device"),
    ],
)
def test_a_folder_that_cannot_be_made(folder, args):
    """Below a file, for one."""
    fails_clearly(warpcheck(folder, "fuzz", "--device", "cpu", "--examples", "1", "--impl", "torch", *args))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(folder):
    """Names it, and the reason."""
    (folder / "corpus").mkdir()
    (folder / "corpus").chmod(0o555)
    fails_clearly(fuzz(folder, "good", "--examples", "1"), "corpus", "Permission denied")


@pytest.mark.skipif(bool(gpus.visible()), reason="there is a GPU")
@pytest.mark.parametrize("command", ["fuzz", "replay", "repro", "reduce", "explain", "import"])
def test_cuda_without_a_gpu(folder, entry, command):
    """Says so, and where to look."""
    needed = {"fuzz": [], "replay": [], "import": ["call.pt", "--operator", NAME, "--impl", "torch"]}
    done = warpcheck(folder, command, *needed.get(command, [entry[0]]), "--device", "cuda")
    fails_clearly(done, "no GPU is visible here", "warpcheck doctor")


def change(path, **more):
    """Put other fields into an entry's file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))


def change_call(path, **more):
    change(path, subject={**json.loads(path.read_text())["subject"], **more})


BAD_ENTRIES = {
    "torn": (lambda path: path.write_bytes(path.read_bytes()[:200]), "not an entry"),
    "empty": (lambda path: path.write_bytes(b""), "not an entry"),
    "binary": (lambda path: path.write_bytes(b"\xff\xfe\x00"), "not an entry"),
    "no object": (lambda path: path.write_text("[1]"), "not an entry"),
    "future": (lambda path: change(path, format=99), "format 99; this version reads formats 1 to 2"),
    "unknown field": (lambda path: change(path, colour="red"), "colour"),
    "a view outside": (lambda path: change_call(path, storages=[4]), "ends at byte 40 of a storage of 4 bytes"),
    "too large": (lambda path: os.truncate(path, 5 << 20), "an entry has at most"),
    "pipe": (lambda path: (path.unlink(), os.mkfifo(path)), "not a file"),
    "gone": (lambda path: path.unlink(), "No such file"),
    "folder": (lambda path: (path.unlink(), path.mkdir()), "Is a directory"),
}


OF_AN_ENTRY = ("show", "reduce", "explain", "repro", "flatten", "interesting", "reduce-source")


@pytest.mark.parametrize("what", BAD_ENTRIES)
@pytest.mark.parametrize("command", OF_AN_ENTRY)
def test_an_entry_that_cannot_be_read(folder, entry, command, what):
    """One line with its path and the reason, whoever reads it; for a reducer of sources that means that nothing can be
    said."""
    spoil, words = BAD_ENTRIES[what]
    spoil(entry[0])
    status = 125 if command == "interesting" else 2
    fails_clearly(warpcheck(folder, command, entry[0]), words, entry[0].name, status=status)


@pytest.mark.parametrize("command", OF_AN_ENTRY)
def test_what_is_done_with_an_entry_is_said_alike(tmp_path, command):
    """The same name for it, a device and a time for a call where calls are judged, and every exit status."""
    text = " ".join(warpcheck(tmp_path, command, "--help").stdout.split())
    assert f"warpcheck {command} [OPTIONS] ENTRY" in text
    judges = command in ("reduce", "explain", "repro")
    assert [judges] * 2 == [option in text for option in ("--device [auto|cpu|cuda]", "--timeout DURATION")]
    statuses = text.rpartition("Exit status")[2].partition(" Options:")[0]
    needed = {"show": "02", "interesting": ("0", "1", "125")}.get(command, ("0", "1", "2", "125"))
    assert [*needed] == [number for number in ("0", "1", "2", "125") if re.search(rf"\b{number}\b", statuses)]


def test_replay_of_an_entry_that_cannot_be_read(folder, entry):
    """It is told among the others, and makes the exit status 2."""
    other = corpus.write(folder / "corpus", judged(mask_case(fill=TIES, dtype="float16"), "drops_ties", folder))
    change(other, format=99)
    done = warpcheck(folder, "replay", "--device", "cpu")
    assert 2 == done.returncode
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "format 99" in lines["unreadable"]
    assert entry[0].name in lines["as"]
    assert "Traceback" not in done.stdout + done.stderr


def test_replay_of_nothing(folder):
    """A path that is not there is the user's error; a folder without entries is not."""
    fails_clearly(warpcheck(folder, "replay", "nowhere", "--device", "cpu"), "nowhere: no such file or folder")
    (folder / "corpus").mkdir()
    done = warpcheck(folder, "replay", "--device", "cpu")
    assert (0, "no entries") == (done.returncode, done.stdout.strip())


def test_every_outcome_of_replay(folder):
    """A line an entry with its outcome, path and kind, a count at the end; a fixed entry that fails makes the status 1."""
    bad = judged(mask_case(fill=TIES), "drops_ties", folder)
    made = {
        "as expected": replace(bad),
        "fails": replace(bad, signature=replace(bad.signature, implementation="b"), status="fixed"),
        "now passes": replace(bad, signature=replace(bad.signature, implementation="c"), implementation="mask.py:good"),
        "cannot run": replace(bad, signature=replace(bad.signature, implementation="d"), implementation="gone.py:mask"),
    }
    paths = {what: corpus.write(folder / "corpus", entry) for what, entry in made.items()}
    done = warpcheck(folder, "replay", "--device", "cpu")
    assert 1 == done.returncode, done.stderr
    *lines, last = done.stdout.splitlines()
    for what, path in paths.items():
        (line,) = [line for line in lines if line.startswith(what)]
        assert str(path.relative_to(folder)) in line
    assert "no file 'gone.py'" in done.stdout
    assert {"1 as expected", "1 fails", "1 now passes", "1 cannot run"} == set(last.split(", "))
    only = warpcheck(folder, "replay", paths["as expected"], paths["now passes"], "--device", "cpu")
    assert (0, 3) == (only.returncode, len(only.stdout.splitlines()))


def test_show_prints_the_entry(folder, entry):
    """The signature, the call, got and want; nothing is run."""
    done = warpcheck(folder, "show", entry[0])
    assert 0 == done.returncode
    assert str(entry[1].signature) in done.stdout
    assert "got -inf, want 3.0" in done.stdout
    assert "float32 [2, 5], strides [5, 1]" in done.stdout


def test_list_prints_what_there_is(folder, entry):
    """Operators with their implementations, and the corpus, files that cannot be read included."""
    other = folder / "corpus" / NAME / "x" / "torn.json"
    other.parent.mkdir()
    other.write_text("{")
    done = warpcheck(folder, "list")
    assert 0 == done.returncode
    assert any(line.split() == [NAME, "cuda", "triton", "torch"] for line in done.stdout.splitlines())
    assert f"open  {entry[1].signature}" in done.stdout
    assert str(entry[0].relative_to(folder)) in done.stdout
    assert "unreadable" in done.stdout
    assert "torn.json" in done.stdout


def test_list_without_a_corpus(tmp_path):
    """Is what a new user does first."""
    assert 0 == warpcheck(tmp_path, "list").returncode


def test_a_script_that_cannot_be_made_is_one_line(folder, entry):
    """And nothing is written."""
    ordered = replace(entry[1], subject=replace(entry[1].subject, schedule=7))
    path = corpus.write(folder / "other", ordered)
    done = warpcheck(folder, "repro", path, "--script", "x.py", "--device", "cpu")
    fails_clearly(done, "use `warpcheck repro wrong_set-")
    assert not (folder / "x.py").exists()


def test_an_entry_that_describes_no_call(folder, entry):
    """Whatever is to be done with it; a script is not begun."""
    change_call(entry[0], tensors={}, fills={})
    for command, *options in (["reduce"], ["explain"], ["repro", "--script", "x.py"]):
        done = warpcheck(folder, command, entry[0], *options, "--device", "cpu")
        fails_clearly(done, "the case cannot be made: KeyError: 'logits'")
    assert not (folder / "x.py").exists()


def test_a_script_that_cannot_be_written(folder, entry):
    """Its folder is not there, or is no folder."""
    for option in ("--script", "--markdown"):
        done = warpcheck(folder, "repro", entry[0], option, "no/such/x.py", "--device", "cpu")
        fails_clearly(done, "there is no folder 'no/such'")
    fails_clearly(warpcheck(folder, "repro", entry[0], "--script", ".", "--device", "cpu"), "is a directory")


def test_a_script_and_an_issue(folder, entry):
    """Both at once, to files; either of them to stdout, on which nothing else is then."""
    targets = ("--script", "x.py", "--markdown", "x.md")
    done = warpcheck(folder, "repro", entry[0], *targets, "--device", "cpu")
    assert 1 == done.returncode, done.stderr
    script, issue = ((folder / name).read_text(encoding="utf-8") for name in ("x.py", "x.md"))
    assert script in issue
    for option, text in (("--script", script), ("--markdown", issue)):
        done = warpcheck(folder, "repro", entry[0], option, "-", "--device", "cpu")
        assert (1, text) == (done.returncode, done.stdout)
        assert "reproduces wrong_set" in done.stderr
    for twice in (("--script", "-", "--markdown", "-"), ("--script", "x", "--markdown", "x")):
        fails_clearly(warpcheck(folder, "repro", entry[0], *twice, "--device", "cpu"), "name the same file")


def commands_of(group, *before):
    """Every command, and every group of them, as words."""
    yield list(before)
    for name, found in group.commands.items():
        yield from commands_of(found, *before, name) if hasattr(found, "commands") else [[*before, name]]


@pytest.mark.parametrize("command", list(commands_of(cli.main)), ids=" ".join)
def test_help(tmp_path, command):
    """Every command explains itself."""
    done = warpcheck(tmp_path, *command, "--help")
    assert 0 == done.returncode
    assert "Usage: warpcheck" in done.stdout


def test_the_command_from_outside(folder):
    """As a process: version, an error on stderr alone, no finding, no traceback."""
    assert f"warpcheck, version {__version__}" == warpcheck_process(folder, "--version").stdout.strip()
    done = warpcheck_process(folder, "fuzz", "--operator", NAME, "--impl", "nope.py:mask", "--device", "cpu")
    fails_clearly(done, "no file 'nope.py'")
    assert "" == done.stdout
    assert [] == entries(folder / "corpus")
