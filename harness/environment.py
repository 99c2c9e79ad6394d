"""What a result depends on besides the case: GPU, driver, CUDA, torch, triton, Python. No host names, no paths."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


@cache
def software() -> dict[str, str]:
    """Versions of what takes part in any result; touches no device."""
    return {
        "python": platform.python_version(),
        "torch": _version("torch"),
        "triton": _version("triton"),
        "nvrtc": _version("nvidia-cuda-nvrtc"),
        "cuda-core": _version("cuda-core"),
        "warpcheck": _version("warpcheck"),
    }


@cache
def host_compiler() -> str | None:
    """The version of g++, which runs CUDA kernels on the CPU; None without one."""
    try:
        done = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return f"g++ {done.stdout.strip()}" if done.returncode == 0 else None


def describe(device: str) -> dict[str, str]:
    """The software and, on "cuda", the GPU and its driver, on "cpu" g++. Initialises CUDA: call it in a child process."""
    found = dict(software())
    if device == "cpu" and (compiler := host_compiler()) is not None:
        found["g++"] = compiler.removeprefix("g++ ")
    found["interpreter"] = os.environ.get("TRITON_INTERPRET", "0")
    if device == "cuda":
        import torch

        properties = torch.cuda.get_device_properties(0)
        found |= {
            "gpu": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": str(properties.multi_processor_count),
            "cuda": str(torch.version.cuda),
            "driver": _driver(),
        }
    return found


def _driver() -> str:
    try:
        from cuda.bindings import nvml  # type: ignore[attr-defined, unused-ignore]

        nvml.init_v2()
        return str(nvml.system_get_driver_version())
    except Exception:
        return "unknown"
