"""Every implementation under impls/: reject or correct, on drawn calls; and every variant that they need compiles."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from harness import gpus, implementations, operators
from harness.property import check
from harness.sandbox import Engine

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
TARGETS = [(operator, spec) for operator in operators.names() for spec in implementations.available(operator)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("operator", "spec"), TARGETS, ids=lambda value: value)
def test_reject_or_correct(operator: str, spec: str, device: str) -> None:
    """No drawn call is answered wrongly, nothing outside the output changes, and illegal calls raise clear errors."""
    slow = device == "cpu" and spec == "triton"
    examples = 100 if slow and "WARPCHECK_PROFILE" not in os.environ else None
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


@pytest.mark.parametrize("operator", operators.names())
def test_builds(operator: str) -> None:
    """Every variant of every implementation compiles, for all architectures and toolchain options."""
    kinds = Counter()
    with Engine("cpu", build_only=True) as engine:
        for spec in implementations.available(operator):
            if engine.inspect(operator, spec).can_build:
                for params in operators.get(operator).build_matrix():
                    for build in engine.builds(operator, spec, params):
                        verdict = engine.build(build, spec)
                        assert not verdict.failed, f"{build}: {verdict.message}"
                        kinds[verdict.kind] += 1
    assert {"pass"} == set(kinds)


def test_gpu_is_pinned() -> None:
    """An xdist worker sees one GPU at most."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert len(gpus.visible()) <= 1
