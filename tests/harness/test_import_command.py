"""`warpcheck import`: a captured call is judged in a process of its own and becomes an entry, or one line says why not."""

# ruff: noqa: SIM300 - the expected value stands first

import contextlib

import pytest
import torch

from harness import corpus, import_command
from harness.memory import Memory
from harness.sandbox import Engine
from tests.harness import hostile
from tests.harness.endtoend import user_folder, warpcheck
from tests.harness.making import NAME
from tests.harness.test_captured import Evil, safetensors
from tests.harness.test_cli import fails_clearly
from tests.harness.test_corpus import everything
from tests.harness.test_stored import bits

TIES = torch.tensor([[1.0, 3.0, 3.0, 3.0, 2.0], [5.0, 4.0, 3.0, 2.0, 1.0]])


KERNELS = """
from mask import *


def unavailable(device):
    return "no such chip"
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Where the command is run and kernels are."""
    folder = user_folder(tmp_path_factory.mktemp("user"))
    (folder / "chip.py").write_text(KERNELS)
    return folder


@pytest.fixture(scope="module")
def engine(home):
    """One for all tests: a process costs an import of torch."""
    with contextlib.chdir(home), Engine("cpu") as engine:
        engine.environment()
        yield engine


@pytest.fixture
def imported(home, engine, tmp_path, monkeypatch):
    """Run the command on a file of the test's own folder, with a corpus there."""

    def run(file, *args, kernel="mask.py:drops_ties"):
        own = ("--device", "cpu", "--corpus", tmp_path / "corpus")
        return warpcheck(home, "import", tmp_path / file, "--operator", NAME, "--impl", kernel, *own, *args)

    engine.fresh()
    monkeypatch.setattr(import_command, "Engine", lambda *_, **__: contextlib.nullcontext(engine))
    return run


def test_a_failing_call_becomes_an_open_entry(tmp_path):
    """In a process of its own. Not reduced, with its verdict, its layout and its bits; `repro` shows it again."""
    home = user_folder(tmp_path)
    buffer = torch.zeros(2, 9)
    buffer[:, 2:7] = TIES
    torch.save({"logits": buffer[:, 2:7], "params": {"k": 2}}, home / "call.pt")
    done = warpcheck(home, "import", "call.pt", "--operator", NAME, "--impl", "mask.py:drops_ties", "--device", "cpu")
    assert 1 == done.returncode, done.stderr
    (path,) = corpus.paths(home / "corpus")
    fails, wrote, hint = done.stdout.splitlines()
    assert "fails on cpu: wrong_set" in fails
    assert f"wrote {path.relative_to(home)}" == wrote
    assert f"warpcheck reduce {path.relative_to(home)}" in hint
    entry = corpus.read(path)
    assert ("open", False, "wrong_set", "cpu") == (entry.status, entry.reduced, entry.verdict.kind, entry.device)
    assert "torch" in entry.environment
    view = entry.subject.tensors["logits"]
    assert ((2, 5), (9, 1), 8) == (view.shape, view.strides, view.offset)
    assert 1 == warpcheck(home, "repro", path, "--device", "cpu").returncode
    assert 0 == warpcheck(home, "show", path).returncode


def test_a_known_failure_is_said_to_be(tmp_path, imported):
    """It fails all the same; what is there stays."""
    torch.save({"logits": TIES, "params": {"k": 2}}, tmp_path / "call.pt")
    imported("call.pt")
    again = imported("call.pt")
    assert "known: " in again.stdout
    assert 1 == again.returncode
    assert 1 == len(everything(tmp_path / "corpus"))


def test_a_large_call_takes_its_values_along(tmp_path, home, engine, imported):
    """In a file beside the entry, from which every process judges it; the capture is not needed any more."""
    x = TIES.repeat(1, 200)
    torch.save({"logits": x, "params": {"k": 150}}, tmp_path / "call.pt")
    assert 1 == imported("call.pt").returncode
    (tmp_path / "call.pt").unlink()
    (path,) = corpus.paths(tmp_path / "corpus")
    assert 2 == len(everything(tmp_path / "corpus"))
    entry = corpus.read(path)
    assert bits(x) == bits(Memory(entry.subject, "cpu").read("logits"))
    assert entry.verdict == engine.judge(entry.subject, [entry.implementation])[0]
    assert "beside the entry" in warpcheck(home, "show", path).stdout


def test_a_passing_call_is_kept_on_demand_alone(tmp_path, home, imported):
    """As one that must pass, named by its file; another file is another entry, the same again its successor."""
    torch.save({"logits": TIES, "params": {"k": 2}}, tmp_path / "call.pt")
    torch.save({"logits": TIES + 1}, tmp_path / "other one.pt")
    (tmp_path / "params.json").write_text('{"k": 3}')
    done = imported("call.pt", kernel="mask.py:good")
    assert (0, []) == (done.returncode, corpus.paths(tmp_path / "corpus"))
    assert "passes on cpu" in done.stdout
    assert "--keep" in done.stdout
    for file, more in (("call.pt", ()), ("other one.pt", ("--params", tmp_path / "params.json")), ("call.pt", ())):
        assert 0 == imported(file, "--keep", *more, kernel="mask.py:good").returncode
    paths = corpus.paths(tmp_path / "corpus")
    entries = [corpus.read(path) for path in paths]
    assert {("fixed", "pass", 2, "call call"), ("fixed", "pass", 3, "call other-one")} == {
        (e.status, e.verdict.kind, e.subject.params["k"], e.signature.error) for e in entries
    }
    assert 2 == len(entries)
    assert "pass" in warpcheck(home, "show", paths[0]).stdout


def test_an_illegal_call(tmp_path, imported):
    """Refused as it should be: the line says what the contract says. Accepted: a finding."""
    torch.save({"logits": TIES, "out": TIES[:, :4], "params": {"k": 2}}, tmp_path / "call.pt")
    done = imported("call.pt", kernel="mask.py:good")
    assert 0 == done.returncode, done.stderr
    assert "the contract forbids the call (out " in done.stdout
    assert [] == corpus.paths(tmp_path / "corpus")
    done = imported("call.pt", kernel="mask.py:accepts_anything")
    assert 1 == done.returncode
    assert "accepted_illegal" in done.stdout


def test_safetensors_with_params_beside_it(tmp_path, imported):
    """Which win over those inside."""
    safetensors(tmp_path / "call.safetensors", {"logits": TIES}, metadata={"params": '{"k": 4}'})
    (tmp_path / "params.json").write_text('{"k": 2}')
    assert 0 == imported("call.safetensors").returncode, "with k = 4 no tie is dropped"
    done = imported("call.safetensors", "--params", tmp_path / "params.json")
    assert 1 == done.returncode, done.stderr
    (path,) = corpus.paths(tmp_path / "corpus")
    assert 2 == corpus.read(path).subject.params["k"]


def test_what_cannot_be_judged_here(tmp_path, imported):
    """Exit status 125, as `repro` has it; nothing is written."""
    torch.save({"logits": TIES, "params": {"k": 2}}, tmp_path / "call.pt")
    done = imported("call.pt", kernel="chip.py:good")
    assert 125 == done.returncode, done.stdout + done.stderr
    assert "cannot run here: no such chip" in done.stderr
    assert not (tmp_path / "corpus").exists()


def test_a_call_that_kills_its_process(tmp_path, imported):
    """Is a finding like any: the command lives."""
    torch.save({"logits": TIES, "params": {"k": 2}}, tmp_path / "call.pt")
    done = imported("call.pt", kernel=f"{hostile.__file__}:aborts")
    assert 1 == done.returncode, done.stderr
    assert "process_died" in done.stdout


def save(**what):
    return lambda folder: torch.save(what, folder / "call")


BAD = {
    "gone": (lambda folder: None, (), ("call", "No such file")),
    "endless": (lambda folder: (folder / "call").symlink_to("/dev/zero"), (), ("call", "device")),
    "text": (lambda folder: (folder / "call").write_text("x" * 50), (), ("neither",)),
    "class": (lambda folder: torch.save({"logits": Evil(folder / "was here")}, folder / "call"), (), ("never code",)),
    "tensor": (save(scores=TIES), (), ("no tensor 'scores'", "logits, k, out")),
    "missing": (save(logits=TIES), (), ("'k' is missing",)),
    "params": (save(logits=TIES, params={"top": 1}), (), ("no parameter 'top'",)),
    "no params": (save(logits=TIES), ("--params", "list.json"), ("list.json", "JSON object")),
    "form": (save(logits=TIES, params={"k": 1, "form": "x"}), (), ("unknown form 'x'",)),
    "gone params": (save(logits=TIES), ("--params", "gone.json"), ("gone.json", "No such file")),
    "elements": (save(logits=torch.ones(1).expand(1 << 31, 1 << 31), params={"k": 1}), (), ("call", "at most")),
    "operator": (save(logits=TIES), ("--operator", "softmax"), ("unknown operator 'softmax'",)),
    "implementation": (save(logits=TIES, params={"k": 1}), ("--impl", "mask.py:nope"), ("has no function 'nope'",)),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_line(tmp_path, home, imported, what):
    """Exit status 2, and nothing is written."""
    make, args, words = BAD[what]
    (home / "list.json").write_text("[1]")
    make(tmp_path)
    fails_clearly(imported("call", *args), *words)
    assert not (tmp_path / "was here").exists()
    assert not (tmp_path / "corpus").exists()


def test_a_corpus_that_cannot_be_made(tmp_path, imported):
    """Its line comes after the verdict's."""
    torch.save({"logits": TIES, "params": {"k": 2}}, tmp_path / "call.pt")
    (tmp_path / "file").touch()
    done = imported("call.pt", "--corpus", tmp_path / "file" / "corpus")
    fails_clearly(done, "Not a directory")
    assert "fails on cpu" in done.stdout


def test_help(tmp_path):
    """How to capture, and how to import."""
    done = warpcheck(tmp_path, "import", "--help")
    assert 0 == done.returncode
    assert "torch.save(" in done.stdout
