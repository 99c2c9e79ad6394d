"""Kernels on a device: built, loaded and launched on torch's current stream.

A launch costs about as much as the driver's own call: one struct.pack into a buffer that the thread owns, and cuLaunchKernel
on a pointer array that was made once.
"""

import ctypes
import functools
import struct
import threading
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver

from . import host
from .build import SUPPORTED_ARCHS, BuildOptions, compile_cubin

# Code for an arch runs on later minor versions of the same major one, unless its name ends in "a".
_ARCH_OF_CAPABILITY = {
    (8, 0): "sm_80",
    (8, 6): "sm_80",
    (8, 7): "sm_80",
    (8, 9): "sm_89",
    (9, 0): "sm_90a",
    (10, 0): "sm_100a",
    (12, 0): "sm_120a",
}


@functools.cache
def arch_of_device(index: int) -> str | None:
    """The arch to build for CUDA device `index`, or None if these kernels don't support it."""
    return _ARCH_OF_CAPABILITY.get(torch.cuda.get_device_capability(index))


def unavailable(device: torch.device) -> str | None:
    """Why no kernel can run on `device`, or None."""
    if device.type == "cpu":
        return host.unavailable()
    if device.type != "cuda" or torch.version.cuda is None:
        return f"it needs tensors on an NVIDIA GPU, or on the CPU for testing; got {device}"
    if arch_of_device(device.index) is None:
        return f"{torch.cuda.get_device_name(device)} is none of {', '.join(SUPPORTED_ARCHS)}"
    return None


@functools.cache
def sm_count(index: int) -> int:
    """The number of streaming multiprocessors of CUDA device `index`; of the CPU (negative) two, so that grids are small."""
    if index < 0:
        return 2
    return torch.cuda.get_device_properties(index).multi_processor_count


class _Arguments(threading.local):
    """Where one thread packs the arguments of one kernel: `buffer`, and the address of the pointers into it."""

    def __init__(self, layout: str) -> None:
        self.buffer = ctypes.create_string_buffer(struct.calcsize(layout))
        base = ctypes.addressof(self.buffer)
        # The native layout of struct is C's, so each argument ends where the layout up to it does.
        ends = [struct.calcsize(layout[: i + 1]) for i in range(1, len(layout))]
        starts = [base + end - struct.calcsize(code) for end, code in zip(ends, layout[1:])]
        self._pointers = (ctypes.c_void_p * len(starts))(*starts)
        self.address = ctypes.addressof(self._pointers)


class _Configuration(threading.local):
    """What one thread launches a kernel in clusters with; `value` lacks the grid, the block and the stream."""

    def __init__(self, cluster: int, shared_bytes: int) -> None:
        self.value = driver.CUlaunchConfig()
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        size = attribute.value.clusterDim
        size.x, size.y, size.z = cluster, 1, 1
        self.value.attrs, self.value.numAttrs = [attribute], 1
        self.value.sharedMemBytes = shared_bytes
        self.value.blockDimY = self.value.blockDimZ = 1


class Kernel:
    """One `extern "C"` entry point of a CUDA source file; call it to launch it. Safe to share between threads.

    `parameters` gives the C type of each parameter as a `struct` code: P pointer, q long long, i int, f float.
    `shared_bytes` is dynamic shared memory; above 48 KiB the kernel is opted in when it is loaded.
    `cluster` blocks, side by side along x, are a cluster: 1 to 16, sm_90 and newer. More than 8 is not portable: the kernel is
    opted in, and a device may still be unable to (a launch then fails).
    """

    def __init__(
        self,
        source: Path,
        name: str,
        parameters: str,
        *,
        options: BuildOptions | None = None,
        shared_bytes: int = 0,
        cluster: int = 1,
    ) -> None:
        if not 1 <= cluster <= 16:
            raise ValueError(f"a cluster has 1 to 16 blocks, got {cluster}")
        self._source = source
        self._name = name
        self._options = options
        self._shared_bytes = shared_bytes
        self._pack_into = struct.Struct("@" + parameters).pack_into
        self._arguments = _Arguments("@" + parameters)
        self._cluster = cluster
        self._configuration = _Configuration(cluster, shared_bytes) if cluster > 1 else None
        self._on_host = host.HostKernel(
            source, name, parameters, options=options, shared_bytes=shared_bytes, cluster=cluster
        )
        self._loaded: dict[int, tuple[Any, Any]] = {}
        self._lock = threading.Lock()

    def __call__(self, device: int, grid: tuple[int, int, int], block: int, *arguments: int | float) -> None:
        """Launches on CUDA device `device` and torch's current stream there; asynchronous, and capturable in a CUDA graph.

        Pointers are passed as integers. Raises BuildError, or RuntimeError when the device is unsupported or the driver
        refuses the launch.

        A negative device is the CPU: the kernel runs there to its end (see `host`, which raises a HostExecutionError).
        """
        if device < 0:
            self._pack_into(self._arguments.buffer, 0, *arguments)
            self._on_host(grid, block, self._arguments.address)
            return
        if torch.cuda.current_device() != device:
            with torch.cuda.device(device):
                self(device, grid, block, *arguments)
            return
        function, context = self._loaded.get(device) or self._load(device)
        self._pack_into(self._arguments.buffer, 0, *arguments)
        # The driver copies the arguments before it returns, so the thread may use its buffer again.
        address = self._arguments.address
        call: tuple[Any, ...]
        if self._configuration is None:
            launch = driver.cuLaunchKernel
            call = (function, *grid, block, 1, 1, self._shared_bytes, _raw_stream(device), address, 0)
        else:
            launch = driver.cuLaunchKernelEx
            how = self._configuration.value
            how.gridDimX, how.gridDimY, how.gridDimZ = grid
            how.blockDimX, how.hStream = block, _raw_stream(device)
            call = (how, function, address, 0)
        results = launch(*call)
        if results[0]:
            if results[0] == driver.CUresult.CUDA_ERROR_INVALID_CONTEXT:
                # A thread that never called the runtime has no context yet. Nothing was launched: bind torch's, try again.
                _check("cuCtxSetCurrent", driver.cuCtxSetCurrent(context))
                results = launch(*call)
            _check(f"{launch.__name__} of {self._name}", results)

    def _load(self, device: int) -> tuple[Any, Any]:
        with self._lock:
            if loaded := self._loaded.get(device):
                return loaded
            if (arch := arch_of_device(device)) is None:
                raise RuntimeError(f"{torch.cuda.get_device_name(device)} is not supported")
            cubin = compile_cubin(self._source, arch, self._options)
            # torch lives in the primary context. Retaining it returns that one, also in a thread that has none current.
            context = _check("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(device))
            _check("cuCtxPushCurrent", driver.cuCtxPushCurrent(context))
            # A first call may come under graph capture, where the default mode forbids the allocations of a module load.
            relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
            mode = _check("cuThreadExchangeStreamCaptureMode", driver.cuThreadExchangeStreamCaptureMode(relaxed))
            try:
                module = _check("cuModuleLoadData", driver.cuModuleLoadData(cubin))
                function = _check("cuModuleGetFunction", driver.cuModuleGetFunction(module, self._name.encode()))
                if self._shared_bytes > 48 * 1024:
                    limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                    _check("cuFuncSetAttribute", driver.cuFuncSetAttribute(function, limit, self._shared_bytes))
                if self._cluster > 8:
                    allowed = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
                    _check("cuFuncSetAttribute", driver.cuFuncSetAttribute(function, allowed, 1))
            finally:
                driver.cuThreadExchangeStreamCaptureMode(mode)
                driver.cuCtxPopCurrent()
            # Never unloaded: a launch may be in flight, or captured in a graph, for as long as the process lives.
            self._loaded[device] = function, context
            return self._loaded[device]


def _check(call: str, results: tuple[Any, ...]) -> Any:
    """The value of a driver call's (result, value) or (result,), or RuntimeError."""
    if int(results[0]):
        raise RuntimeError(f"{call} failed: {results[0].name}")
    return results[1] if len(results) > 1 else None


def _raw_stream(device: int) -> int:
    # Inductor and Triton launch through this one: it makes no Stream object, which costs ten times as much.
    return torch._C._cuda_getCurrentRawStream(device)
