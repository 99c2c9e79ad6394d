"""harness.gpus: the caller's choice of GPUs, without touching CUDA."""

# ruff: noqa: SIM300 - the expected value stands first

import subprocess
import sys

import pytest

from harness import gpus

VARIABLE = "CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ("", []),
        ("-1", []),
        ("0", ["0"]),
        ("3,1", ["3", "1"]),
        (" 2 , 0 ", ["2", "0"]),
        ("0,-1,2", ["0"]),
        ("GPU-8932f937,MIG-aa/1/0", ["GPU-8932f937", "MIG-aa/1/0"]),
    ],
)
def test_the_callers_words_come_back(monkeypatch, chosen, names):
    """Indices, UUIDs and MIG names, in order; -1 ends the list, as it does for CUDA."""
    monkeypatch.setenv(VARIABLE, chosen)
    assert names == gpus.visible()


def test_workers_take_turns(monkeypatch):
    """Over the chosen ones; none where there is none."""
    monkeypatch.setenv(VARIABLE, "5,7")
    assert ["5", "7", "5"] == [gpus.share(i) for i in range(3)]
    monkeypatch.setenv(VARIABLE, "")
    assert gpus.share(0) is None


def test_devices_are_resolved(monkeypatch):
    """auto is a GPU if there is one; asking for one that is not there is an error."""
    monkeypatch.setenv(VARIABLE, "0")
    assert ["cuda", "cpu", "cuda"] == [gpus.resolve(d) for d in ("auto", "cpu", "cuda")]
    monkeypatch.setenv(VARIABLE, "")
    assert ["cpu", "cpu"] == [gpus.resolve(d) for d in ("auto", "cpu")]
    with pytest.raises(ValueError, match="no GPU is visible"):
        gpus.resolve("cuda")


def test_looking_needs_no_torch():
    """The plugin asks before anything can import it."""
    code = "import sys; from harness import gpus; gpus.visible(); print('torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "False\n" == said
