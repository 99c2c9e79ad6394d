"""Variants of the backends compile for every architecture, without a GPU."""

# ruff: noqa: SIM300 - the expected value stands first

import itertools
import re

import pytest
from triton import compile as compile_source
from triton.backends.compiler import GPUTarget

from impls.cuda_build import SUPPORTED_ARCHS
from impls.single_prefill import torch, triton
from tests.impls.running import run_python

PLAIN = {
    "dtype": "float16", "head_dim": 64, "fp16_qk": False, "mask": "none", "window": False, "soft_cap": False, "alibi": False,
}  # fmt: skip
ALL_FEATURES = {**PLAIN, "mask": "custom", "window": True, "soft_cap": True, "alibi": True}
PARAMS = (
    {**ALL_FEATURES, "dtype": "bfloat16", "head_dim": 256},
    {**PLAIN, "head_dim": 128, "soft_cap": True, "tuning": 4},
    {**PLAIN, "head_dim": 128, "fp16_qk": True, "mask": "causal"},
    {**ALL_FEATURES, "fp16_qk": True, "tuning": 5},
    {**PLAIN, "dtype": "bfloat16", "mask": "causal", "window": True, "tuning": 3},
)


def test_the_architectures_are_those_of_the_build():
    """The Triton backend builds for all supported architectures."""
    assert SUPPORTED_ARCHS == triton.ARCHS


@pytest.mark.parametrize(("arch", "params"), list(zip(triton.ARCHS, PARAMS)))
def test_triton_builds(arch, params):
    """Another set of parameters for each architecture."""
    triton.build(params, arch)


@pytest.mark.parametrize("arch", triton.ARCHS)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("custom_mask", [False, True])
def test_every_tuning_fits_into_shared_memory(custom_mask, head_dim, arch):
    """Blocks are halved until they do, and stay as large as a matrix instruction needs."""
    capability = int(re.sub(r"\D", "", arch))
    for tuning in triton.TUNING:
        blocks, options = triton._fitted(tuning, head_dim, custom_mask, capability)
        assert min(blocks.values()) >= int(triton.SEMANTICS["tile"]) >= 16
        assert options["num_warps"] >= 1
        assert 2 * head_dim * (blocks["BLOCK_Q"] + 2 * blocks["BLOCK_KV"]) < triton._shared_memory(capability)


def test_aligned_tensors_are_copied_sixteen_bytes_at_a_time():
    """The hints reach the compiler: keys and values come by asynchronous copies, and unaligned ones don't."""
    found = {}
    for constants, options in triton._variants(PLAIN, triton.TUNING[0], 80):
        source = triton._ast_source(PLAIN, constants)
        ptx = compile_source(source, target=GPUTarget("cuda", 80, 32), options=options).asm["ptx"]
        found[constants["ALIGNED"]] = "cp.async.cg.shared.global" in ptx
    assert {True: True, False: False} == found


@pytest.mark.parametrize("backend", [triton, torch])
def test_supported_parameters_are_said_to_be(backend):
    """All combinations but bfloat16 with the flag are supported by each backend, and other values are named in the reason."""
    for dtype, head_dim, mask, *flags in itertools.product(
        ("float16", "bfloat16"), (64, 128, 256), ("none", "causal", "custom"), *[(False, True)] * 4
    ):
        params = {"dtype": dtype, "head_dim": head_dim, "mask": mask}
        params |= dict(zip(("window", "soft_cap", "alibi", "fp16_qk"), flags))
        reason = backend.unsupported(params)
        assert (reason is None) == (dtype == "float16" or not params["fp16_qk"]), reason
    wrong = {"dtype": "float32", "head_dim": 96, "mask": "causal_top_left", "window": 1, "alibi": None, "tuning": 6}
    for name, value in wrong.items():
        assert name in backend.unsupported({**PLAIN, name: value})
    assert "float16" in backend.unsupported({**PLAIN, "dtype": "bfloat16", "fp16_qk": True})


def test_a_build_that_is_not_supported_raises():
    """Unknown parameters and architectures are ValueErrors before any compiler runs."""
    with pytest.raises(ValueError, match="float32"):
        triton.build({**PLAIN, "dtype": "float32"}, "sm_90a")
    with pytest.raises(ValueError, match="sm_10"):
        triton.build(PLAIN, "sm_10")


def test_triton_says_that_its_interpreter_cannot_build():
    """A module imported under TRITON_INTERPRET=1 has no compiled functions, and says so."""
    code = f"""
from impls.single_prefill import triton
try:
    triton.build({PLAIN!r}, "sm_90a")
except RuntimeError as error:
    print(error)
"""
    assert "TRITON_INTERPRET" in run_python("-c", code, TRITON_INTERPRET="1")
