"""Every fact of facts.py, on every backend that can run here."""

import json

import pytest

from impls.cuda_build import host
from impls.single_prefill import BACKENDS
from tests.impls.running import run_python
from tests.impls.single_prefill.facts import FACTS

FACTS_MODULE = "tests.impls.single_prefill.facts"


@pytest.fixture(scope="module")
def interpreted():
    """The report of all facts with Triton interpreting on the CPU."""
    return json.loads(run_python("-m", FACTS_MODULE, "triton", "cpu", TRITON_INTERPRET="1"))


@pytest.mark.parametrize("fact", FACTS)
def test_torch_on_the_cpu(fact):
    """The torch backend keeps the contract on CPU tensors."""
    FACTS[fact]("torch", "cpu")


@pytest.mark.skipif(host.unavailable() is not None, reason=str(host.unavailable()))
@pytest.mark.parametrize("fact", FACTS)
def test_cuda_on_the_cpu(fact):
    """The CUDA kernel's own source keeps the contract where g++ runs it."""
    FACTS[fact]("cuda", "cpu")


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
