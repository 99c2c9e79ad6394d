"""Every implementation under impls/: reject or correct, on drawn calls; and every variant that they need compiles."""

# ruff: noqa: SIM300 - the expected value stands first

from __future__ import annotations

import itertools
import os
import random

import pytest

from harness import gpus, implementations, operators
from harness.property import check
from harness.sandbox import Engine
from tests.harness.making import prefill_case

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
TARGETS = [(operator, spec) for operator in operators.names() for spec in implementations.available(operator)]


SLOW = {
    ("single_prefill", "triton"): 20,
    ("single_prefill", "cuda"): 60,
    ("top_k_mask_logits", "triton"): 80,
}
"""Examples on the CPU, where Triton's interpreter takes half a second for a small attention, and a variant a second of g++."""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("operator", "spec"), TARGETS, ids=lambda value: value)
def test_reject_or_correct(operator: str, spec: str, device: str) -> None:
    """No drawn call is answered wrongly, nothing outside the output changes, and illegal calls raise clear errors."""
    slow = device == "cpu" and (operator, spec) in SLOW
    examples = SLOW[operator, spec] if slow and "WARPCHECK_PROFILE" not in os.environ else None
    check(
        operator,
        spec,
        device=device,
        examples=examples,
        seconds=None,
        illegal=True,
        seed=None,
        corpus=None,
        profile=None,
    )


SAMPLE = {"triton": 7}
"""Builds of an implementation, where not 30: `warpcheck build` makes all there are, which takes an hour."""


@pytest.mark.parametrize(("operator", "spec"), TARGETS, ids=lambda value: value)
def test_builds(operator: str, spec: str) -> None:
    """Of every implementation's build matrix the plainest variant, and a sample with every architecture in it, compile."""
    with Engine("cpu", build_only=True) as engine:
        if not engine.inspect(operator, spec).can_build:
            pytest.skip("nothing is compiled ahead of a call")
        found = [engine.builds(operator, spec, params) for params in operators.get(operator).build_matrix()]
        plainest, *others = {build.key(): build for build in itertools.chain(*found)}.values()
        by_arch = {build.arch: build for build in others}
        sample = random.Random(len(others)).sample(others, min(SAMPLE.get(spec, 30), len(others)) - len(by_arch))
        for build in (plainest, *by_arch.values(), *sample):
            verdict = engine.build(build, spec)
            assert "pass" == verdict.kind, f"{build}: {verdict.message}"


EXAMPLE = {"causal": True, "use_fp16_qk_reduction": True, "return_lse": True}


@pytest.mark.parametrize("spec", implementations.available("single_prefill"))
@pytest.mark.parametrize("device", DEVICES)
def test_the_example_that_does_not_build_elsewhere(spec: str, device: str) -> None:
    """The call of FlashInfer's documentation (128 queries, 4096 keys, 32 heads on 4, causal) with fp16 reduction of q·k, which
    its own kernels do not compile for: it runs, and is inside its bound. On the CPU with fewer heads and keys."""
    kv_len, heads = (4096, (32, 4)) if device == "cuda" else (640, (4, 1))
    case = prefill_case(128, kv_len, heads=heads, dim=128, **EXAMPLE)
    with Engine(device) as engine:
        (verdict,) = engine.judge(case, [spec])
    assert "pass" == verdict.kind, verdict.message
    assert 0 < verdict.ratio <= 1
    assert not verdict.vacuous


def test_gpu_is_pinned() -> None:
    """An xdist worker sees one GPU at most."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert len(gpus.visible()) <= 1
