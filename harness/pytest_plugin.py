"""The pytest plugin: one GPU a worker, a marker for tests that need one, a header that says what is under test.

It is loaded before any test module, so that CUDA_VISIBLE_DEVICES is set before anything can import torch.
"""

from __future__ import annotations

import os
import re

import pytest

from harness import gpus

WHY_SKIPPED = "This test runs kernels on a GPU, and no GPU is visible here (`warpcheck doctor` says more)."


def pin(environment: dict[str, str] | os._Environ[str] = os.environ) -> None:
    """Give an xdist worker one of the GPUs that the caller chose; without xdist, leave the choice alone."""
    worker = re.fullmatch(r"gw(\d+)", environment.get("PYTEST_XDIST_WORKER", ""))
    if worker is not None and (gpu := gpus.share(int(worker[1]), environment)) is not None:
        environment["CUDA_VISIBLE_DEVICES"] = gpu


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
    return [f"warpcheck: {versions}", f"warpcheck: GPUs visible: {', '.join(names) or 'none'}"]
