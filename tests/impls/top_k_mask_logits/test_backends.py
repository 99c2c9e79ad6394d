"""Every fact of facts.py, on every backend that can run here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from impls.top_k_mask_logits import BACKENDS
from tests.impls.top_k_mask_logits.facts import FACTS

ROOT = Path(__file__).parents[3]
FACTS_MODULE = "tests.impls.top_k_mask_logits.facts"


def run_python(*arguments, **environment):
    """Runs Python in a process of its own, with the repository importable; returns its standard output."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": path, **environment}
    result = subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def interpreted():
    """The report of all facts with Triton interpreting on the CPU."""
    return json.loads(run_python("-m", FACTS_MODULE, "triton", "cpu", TRITON_INTERPRET="1"))


@pytest.mark.parametrize("fact", FACTS)
def test_torch_on_the_cpu(fact):
    """The torch backend keeps the contract on CPU tensors."""
    FACTS[fact]("torch", "cpu")


@pytest.mark.parametrize("fact", FACTS)
def test_triton_interpreted(fact, interpreted):
    """The Triton kernel keeps the contract in Triton's interpreter."""
    assert fact in interpreted["ran"]
    assert fact not in interpreted["failures"], interpreted["failures"][fact]


@pytest.mark.gpu
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fact", FACTS)
def test_on_a_gpu(fact, backend):
    """Each backend keeps the contract on CUDA tensors."""
    FACTS[fact](backend, "cuda")
