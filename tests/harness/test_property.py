"""harness.kernel_property: a user's own test in three lines."""

# ruff: noqa: SIM300 - the expected value stands first

import contextlib
import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from harness import corpus, kernel_property
from harness.implementations import UnknownImplementation
from harness.property import KernelFailure
from tests.harness.endtoend import LONG, ROOT, clean_environment, entries, user_folder
from tests.harness.making import NAME

TESTS = """
from harness import kernel_property
from mask import drops_ties, good

test_good = kernel_property("top_k_mask_logits", good, device="cpu", examples=40, seed=3)
test_bad = kernel_property("top_k_mask_logits", drops_ties, device="cpu", examples=100, seed=3)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return user_folder(tmp_path_factory.mktemp("user"))


@pytest.fixture(scope="module")
def two_workers(folder):
    """A user's tests, one of a right kernel and one of a wrong one, under `pytest -n 2`."""
    (folder / "test_mask.py").write_text(TESTS)
    temporary = folder / "tmp"
    temporary.mkdir()
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "harness.pytest_plugin", "-n", "2", "-rA", "-p", "no:cacheprovider"],
        cwd=folder,
        env=clean_environment(PYTHONPATH=str(ROOT), TMPDIR=str(temporary)),
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )


def test_a_users_test_passes_and_fails_as_its_kernel_does(two_workers):
    """Under xdist: one of each, by name."""
    assert 1 == two_workers.returncode, two_workers.stdout
    assert re.search(r"PASSED .*test_good", two_workers.stdout)
    assert re.search(r"FAILED .*test_bad", two_workers.stdout)
    assert "1 failed, 1 passed" in two_workers.stdout


def test_the_failure_names_the_bug_and_its_entry(two_workers, folder):
    """Signature, evidence, seed, and a command on a file that is there."""
    assert "top_k_mask_logits/mask.drops_ties wrong_set (float32): out[0, 1] is -inf, should be" in two_workers.stdout
    assert "(seed 3)" in two_workers.stdout
    path = Path(re.search(r"warpcheck repro (\S+\.json)", two_workers.stdout)[1])
    assert "wrong_set" == corpus.read(path).verdict.kind


def test_nothing_stays_of_a_test_that_passed(two_workers, folder):
    """One temporary folder is left, the failure's."""
    kept = [path.name for path in (folder / "tmp").iterdir() if path.name.startswith("warpcheck-")]
    assert 1 == len(kept)


def test_called_by_hand(folder, tmp_path):
    """The test is a plain function: it returns, or raises KernelFailure, an AssertionError, with the corpus it was given."""
    with contextlib.chdir(folder):
        test = kernel_property(NAME, "mask.py:drops_ties", device="cpu", examples=100, seed=1, corpus=tmp_path / "kept")
        assert test.__doc__.startswith("mask.py:drops_ties is right or refuses")
        with pytest.raises(KernelFailure, match=r"mask\.drops_ties wrong_set \(float32\)") as raised:
            test()
        assert isinstance(raised.value, AssertionError)
        assert ["wrong_set"] == [entry.verdict.kind for entry in entries(tmp_path / "kept")]
        test()  # its failures are known by now


def test_an_implementation_that_is_built_in_goes_by_its_name(tmp_path):
    """As `warpcheck list` prints it."""
    kernel_property(NAME, "torch", device="cpu", examples=3, seed=1, corpus=tmp_path)()
    assert [] == entries(tmp_path)


def test_illegal_calls_can_be_left_out(folder, tmp_path):
    """Then a kernel that refuses nothing passes."""
    with contextlib.chdir(folder):
        kernel_property(
            NAME, "mask.py:accepts_anything", device="cpu", examples=60, seed=1, illegal=False, corpus=tmp_path
        )()
    assert [] == entries(tmp_path)


def picky(folder, why):
    """A test of a kernel whose module has a function that always says why not."""
    (folder / "picky.py").write_text(
        f"def {why}(about):\n    return 'it needs an abacus'\n\n\ndef mask(logits, k, *, out=None):\n    pass\n"
    )
    return kernel_property(NAME, f"{folder}/picky.py:mask", device="cpu", examples=3, seed=1, corpus=folder / "corpus")


def test_what_cannot_run_here_is_skipped(tmp_path):
    """With the implementation's own reason."""
    with pytest.raises(pytest.skip.Exception, match="it needs an abacus"):
        picky(tmp_path, "unavailable")()


def test_what_was_skipped_at_every_call_has_not_passed(tmp_path):
    """It says so as well."""
    with pytest.raises(pytest.skip.Exception, match="it needs an abacus"):
        picky(tmp_path, "unsupported")()


def test_an_operator_that_there_is_not(folder):
    """Is an error where the test is written, and says which there are."""
    with pytest.raises(ValueError, match=f"unknown operator 'softmax'; there are: .*{NAME}"):
        kernel_property("softmax", "torch")


class Kernel:
    def __call__(self, logits, k, *, out=None):
        return logits

    def method(self, logits, k, *, out=None):
        return logits


def local():
    def kernel(logits, k, *, out=None):
        return logits

    return kernel


UNFINDABLE = {
    "local": local(),
    "lambda": lambda logits, k, *, out=None: logits,
    "method": Kernel().method,
    "partial": functools.partial(print),
    "object": Kernel(),
    "builtin": torch.topk,
}


@pytest.mark.parametrize(
    "what",
    UNFINDABLE,
)
def test_a_function_that_no_other_process_could_find(what):
    """Is an error where the test is written, in words of the user's world."""
    with pytest.raises(UnknownImplementation, match="not a function at the top level of a file"):
        kernel_property(NAME, UNFINDABLE[what])


def test_a_kernel_in_a_package_with_relative_imports(folder, tmp_path, monkeypatch):
    """It is found as the test itself imported it."""
    package = tmp_path / "kernels_of_a_package"
    user_folder(package)
    (package / "__init__.py").touch()
    (package / "outer.py").write_text(
        "from .mask import good\n\n\ndef mask(logits, k, *, out=None):\n    return good(logits, k, out=out)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from kernels_of_a_package.outer import mask

    kernel_property(NAME, mask, device="cpu", examples=3, seed=1, corpus=tmp_path / "corpus")()


def test_the_profile_comes_from_the_environment(monkeypatch, folder, tmp_path):
    """WARPCHECK_PROFILE, unless the test says otherwise; CI=1 changes nothing."""
    from harness import profiles

    monkeypatch.setitem(profiles.EXAMPLES, "pr", 4)
    monkeypatch.setenv("WARPCHECK_PROFILE", "pr")
    monkeypatch.setenv("CI", "1")
    seen = []
    monkeypatch.setattr("harness.fuzz.Campaign.__init__", spy(seen))
    with contextlib.chdir(folder):
        kernel_property(NAME, "mask.py:good", device="cpu", corpus=tmp_path)()
    assert [(4, "pr", False)] == [(config.cases, config.profile, config.builds) for config in seen]
    assert os.environ["CI"] == "1"


def spy(seen):
    from harness.fuzz import Campaign

    real = Campaign.__init__

    def init(self, config, emit):
        seen.append(config)
        real(self, config, emit)

    return init
