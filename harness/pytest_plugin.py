"""The pytest plugin: one GPU a worker and its share of the cores, a marker for tests that need a GPU, a header that says what is
under test.

It is loaded before any test module, so that CUDA_VISIBLE_DEVICES and OMP_NUM_THREADS are set before anything can import torch.
"""

from __future__ import annotations

import os
import re

import pytest

from harness import gpus
from harness.cores import cores

WHY_SKIPPED = "This test runs kernels on a GPU, and no GPU is visible here (`warpcheck doctor` says more)."


def pin(environment: dict[str, str] | os._Environ[str] = os.environ) -> None:
    """Give an xdist worker one of the GPUs that the caller chose, and its share of the cores as threads, unless the
    caller chose their number; without xdist, leave both alone."""
    worker = re.fullmatch(r"gw(\d+)", environment.get("PYTEST_XDIST_WORKER", ""))
    if worker is None:
        return
    if (gpu := gpus.share(int(worker[1]), environment)) is not None:
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    if workers := int(environment.get("PYTEST_XDIST_WORKER_COUNT", "0")):
        environment.setdefault("OMP_NUM_THREADS", str(max(1, cores() // workers)))


pin()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: needs a CUDA device; skipped with a reason elsewhere")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if gpus.visible():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=WHY_SKIPPED))


def pytest_report_header() -> list[str]:
    from harness import environment

    versions = ", ".join(f"{name} {version}" for name, version in environment.software().items())
    names = gpus.visible()
    shown = f"{len(names)} ({', '.join(names)})" if names else "none"
    return [f"warpcheck: {versions}", f"warpcheck: GPUs visible: {shown}"]
