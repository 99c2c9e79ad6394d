"""`warpcheck doctor`: what this machine can run; broken is only what should work and does not."""

# ruff: noqa: SIM300 - the expected value stands first

import pytest

from harness import doctor, environment, gpus, operators
from harness.doctor import Check
from harness.sandbox import UnusableImplementation
from tests.harness.endtoend import warpcheck


def test_nothing_is_broken_here(tmp_path):
    """Exit status 0; the software, the GPU, builds, targets and the folder are all spoken of, one line each."""
    done = warpcheck(tmp_path, "doctor")
    assert 0 == done.returncode, done.stdout
    states = {line.split(":")[0].split(maxsplit=1)[1]: line.split()[0] for line in done.stdout.splitlines()}
    assert {"software", "GPU", "current folder"} <= states.keys()
    assert "broken" not in states.values()
    for name in operators.names():
        assert f"run {name}/torch on cpu" in states
    assert [] == list(tmp_path.iterdir())


@pytest.mark.skipif(bool(gpus.visible()), reason="there is a GPU")
def test_a_machine_without_a_gpu_is_not_broken():
    """It is absent, and what that means is said."""
    found = doctor._gpu()
    assert "absent" == found.state
    assert "interpreter" in found.detail


@pytest.mark.gpu
def test_a_gpu_is_named():
    """With its driver and CUDA."""
    found = doctor._gpu()
    assert "ok" == found.state
    assert "driver" in found.detail


def test_what_is_broken_makes_the_exit_status(tmp_path, monkeypatch):
    """1, and the line says why, in the words of whatever failed."""
    checks = [Check("a", "ok", "fine"), Check("b", "absent", "none"), Check("c", "broken", "no [/nvrtc] found")]
    monkeypatch.setattr(doctor, "checks", lambda: iter(checks[:2]))
    assert 0 == warpcheck(tmp_path, "doctor").returncode
    checks[2] = Check("c", "broken", "no nvrtc found")
    monkeypatch.setattr(doctor, "checks", lambda: iter(checks))
    done = warpcheck(tmp_path, "doctor")
    assert 1 == done.returncode
    assert "broken c: no nvrtc found" in done.stdout


def test_brackets_in_a_detail_are_no_markup(tmp_path, monkeypatch):
    """Error texts are printed as they are."""
    monkeypatch.setattr(doctor, "checks", lambda: iter([Check("c", "broken", "no [/nvrtc] found")]))
    assert "no [/nvrtc] found" in warpcheck(tmp_path, "doctor").stdout


def test_an_implementation_that_cannot_be_loaded_is_broken(monkeypatch):
    """One line, and the others are still checked."""

    class Engine:
        def __init__(self, *args, **kwargs):
            self.asked = 0

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def inspect(self, operator, spec):
            self.asked += 1
            raise UnusableImplementation(f"cannot load {spec}\nand more")

    monkeypatch.setattr(doctor, "Engine", Engine)
    found = list(doctor._targets("cpu"))
    assert len(found) > 1
    assert {"broken"} == {check.state for check in found}
    assert all(check.detail.startswith("cannot load") and "\n" not in check.detail for check in found)


def test_a_folder_that_cannot_be_written_is_broken(monkeypatch):
    """It says what to do instead."""

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor.tempfile, "TemporaryDirectory", refuse)
    found = doctor._writable()
    assert ("broken", True) == (found.state, "use --corpus" in found.detail)


def test_the_versions_are_those_installed():
    """What a bug report needs."""
    import torch

    assert torch.__version__.startswith(environment.software()["torch"])


@pytest.mark.parametrize(
    ("executed", "state", "words"),
    [
        ({"a/cuda": None, "b/cuda": None}, "ok", "a/cuda, b/cuda run"),
        ({"a/cuda": "no CUDA headers found", "b/cuda": None}, "ok", "b/cuda run"),
        ({"a/cuda": "install g++"}, "absent", "install g++"),
    ],
)
def test_cuda_on_the_cpu(executed, state, words):
    """The compiler and what it runs, or what to install."""
    found = doctor._execution(executed)
    assert ("CUDA on the CPU", state, True) == (found.name, found.state, words in found.detail), found
