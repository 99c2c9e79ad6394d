"""Every variant of every backend compiles for every architecture, without a GPU."""

import itertools
import re

import pytest

from impls.cuda_build import SUPPORTED_ARCHS
from impls.top_k_mask_logits import cuda, torch, triton
from tests.impls.running import run_python

PARAMS = [{"dtype": d, "k": k} for d in ("float32", "float16", "bfloat16") for k in ("int", "int32", "int64")]


def test_the_architectures_are_those_of_the_build():
    """Both compiled backends build for all supported architectures."""
    assert (SUPPORTED_ARCHS, SUPPORTED_ARCHS) == (cuda.ARCHS, triton.ARCHS)


@pytest.mark.parametrize("arch", cuda.ARCHS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_cuda_builds(dtype, arch):
    """In both language standards, with and without the operators of half."""
    for values in itertools.product(*cuda.BUILD_AXES.values()):
        cuda.build({"dtype": dtype, "k": "int", **dict(zip(cuda.BUILD_AXES, values))}, arch)


@pytest.mark.parametrize("arch", triton.ARCHS)
def test_triton_builds(arch):
    """Two of the nine combinations of parameters for each architecture, so that all nine are met."""
    index = triton.ARCHS.index(arch)
    for params in (PARAMS[index], PARAMS[(5 + index) % 9]):
        triton.build(params, arch)


@pytest.mark.parametrize("backend", [cuda, triton, torch])
def test_supported_parameters_are_said_to_be(backend):
    """All nine combinations are supported by each backend, and other values are named in the reason."""
    assert all(backend.unsupported(params) is None for params in PARAMS)
    assert "float64" in backend.unsupported({"dtype": "float64", "k": "int"})
    assert "int16" in backend.unsupported({"dtype": "float32", "k": "int16"})


@pytest.mark.parametrize("backend", [cuda, triton])
def test_a_build_that_is_not_supported_raises(backend):
    """Unknown parameters and architectures are ValueErrors before any compiler runs."""
    with pytest.raises(ValueError, match="float64"):
        backend.build({"dtype": "float64", "k": "int"}, "sm_90a")
    with pytest.raises(ValueError, match="sm_10"):
        backend.build(PARAMS[0], "sm_10")


@pytest.mark.parametrize("plan", [triton.PLANS[0], triton.PLANS[-2], triton.PLANS[-1]])
def test_no_masked_load_in_triton_has_a_negative_default(plan):
    """Two of 16 bits are packed wrongly by Triton 3.6 where a mask is constant over them: every other one is a NaN."""
    constants = triton._constants(plan, triton.formats.BY_NAME["float16"], True)
    source = triton._ast_source("int", plan, constants)
    target = triton.GPUTarget("cuda", 90, 32)
    ttir = triton.triton.compile(source, target=target, options=plan.options).asm["ttir"]
    defaults = re.findall(r"tt\.load %\S+, %\S+, (%\S+)", ttir)
    assert defaults
    values = [re.search(rf"{re.escape(name)} = arith\.constant dense<(-?\d+)>", ttir) for name in defaults]
    assert not [value[1] for value in values if value and value[1].startswith("-")]


def test_triton_says_that_its_interpreter_cannot_build():
    """A module imported under TRITON_INTERPRET=1 has no compiled functions, and says so."""
    code = """
from impls.top_k_mask_logits import triton
try:
    triton.build({"dtype": "float32", "k": "int"}, "sm_90a")
except RuntimeError as error:
    print(error)
"""
    assert "TRITON_INTERPRET" in run_python("-c", code, TRITON_INTERPRET="1")
