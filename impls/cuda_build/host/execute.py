"""Loading and calling what `compiler` builds."""

import contextlib
import ctypes
import functools
import os
import struct
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..build import BuildOptions
from . import compiler, shared_variables

# Products that a tensor core sums at once, and the bits it keeps beyond float's 24.
_TENSOR_CORES = {"sm_80": (8, 1), "sm_89": (8, 1), "sm_90a": (16, 2), "sm_100a": (16, 2), "sm_120a": (16, 2)}

_MAX_GRID = (2**31 - 1, 65535, 65535)
_MAX_THREADS = 1024
_MAX_SHARED = 227 * 1024
_MAX_CLUSTER = 16
_WITHOUT_CLUSTERS = ("sm_80", "sm_89")
_KINDS: dict[int, Literal["hang", "device_error"]] = {1: "hang", 2: "device_error"}


class HostExecutionError(RuntimeError):
    """A kernel on the CPU did what would hang a GPU (`kind` "hang") or is an error there ("device_error").

    Memory is left as the kernel had it; the process goes on.
    """

    def __init__(self, kind: Literal["hang", "device_error"], message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> tuple[type["HostExecutionError"], tuple[str, str]]:
        return HostExecutionError, (self.kind, str(self))


@dataclass(frozen=True)
class HostOptions:
    """How kernels run on the CPU."""

    arch: str = "sm_90a"
    """Whose tensor cores mma follows."""
    seed: int | None = None
    """Threads and blocks take turns in an arbitrary order drawn from it; None is a fixed order, one block after another."""
    blocks: int = 4
    """With a seed, how many blocks are in flight at once; of clusters as many as hold so many blocks, and one at least."""
    poison: int | None = 0xFF
    """The byte that fills shared memory when a block starts; None leaves what the block before left."""
    checks: frozenset[str] = frozenset()
    """Of "race" (two threads touch the same bytes, one writes, and nothing orders them), "memory" (accesses outside of shared
    memory and of `memory`, misaligned ones, reads of shared memory that nobody has written) and "undefined" (what C++ leaves
    undefined: overflow, shifts …)."""
    memory: tuple[tuple[int, int], ...] = ()
    """For the check "memory": (address, bytes) of all that kernels may read or write; empty: anything."""
    budget: float = 60.0
    """Seconds of CPU time a launch may take; a longer one is a hang."""

    def __post_init__(self) -> None:
        if self.arch not in _TENSOR_CORES:
            raise ValueError(f"arch must be one of {', '.join(_TENSOR_CORES)}, got {self.arch!r}")
        if unknown := set(self.checks) - set(compiler.CHECKS):
            raise ValueError(f"checks are {', '.join(compiler.CHECKS)}, not {', '.join(sorted(unknown))}")


_options = HostOptions()


def current_options() -> HostOptions:
    """How kernels run on the CPU now."""
    return _options


@contextlib.contextmanager
def executing(options: HostOptions) -> Iterator[None]:
    """Runs kernels with `options` inside the `with`, in every thread of the process."""
    global _options
    before, _options = _options, options
    try:
        yield
    finally:
        _options = before


class _Index(ctypes.Structure):
    _fields_ = [(axis, ctypes.c_uint) for axis in "xyz"]


class _Entry(ctypes.Structure):
    _fields_ = [
        ("call", ctypes.c_void_p),
        ("sizes", ctypes.POINTER(ctypes.c_int)),
        ("parameters", ctypes.c_int),
        ("anchor", ctypes.c_void_p),
        ("tls_start", ctypes.c_ssize_t),
        ("tls_size", ctypes.c_size_t),
        ("image_begin", ctypes.c_void_p),
        ("image_end", ctypes.c_void_p),
    ]


class _Range(ctypes.Structure):
    _fields_ = [("begin", ctypes.c_void_p), ("end", ctypes.c_void_p)]


class _Launch(ctypes.Structure):
    _fields_ = [
        ("entry", ctypes.POINTER(_Entry)),
        ("arguments", ctypes.c_void_p),
        ("grid", _Index),
        ("block", _Index),
        ("shared_bytes", ctypes.c_size_t),
        ("poison", ctypes.c_int),
        ("tensor_block", ctypes.c_int),
        ("tensor_extra_bits", ctypes.c_int),
        ("resident", ctypes.c_int),
        ("cluster", ctypes.c_int),
        ("seeded", ctypes.c_int),
        ("seed", ctypes.c_uint64),
        ("budget", ctypes.c_double),
        ("check_races", ctypes.c_int),
        ("check_memory", ctypes.c_int),
        ("memory", ctypes.POINTER(_Range)),
        ("memory_count", ctypes.c_int),
        ("variables", ctypes.POINTER(_Range)),
        ("variable_count", ctypes.c_int),
        ("switches", ctypes.c_uint64),
    ]


class HostKernel:
    """One `extern "C"` entry point of a CUDA source file, compiled for the CPU on first use. Safe to share between threads.

    The parameters are those of `impls.cuda_build.Kernel`.
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
        self._source = source
        self._name = name
        self._sizes = [struct.calcsize(f"@{code}") for code in parameters]
        self._options = options
        self._shared_bytes = shared_bytes
        self._cluster = cluster
        self._lock = threading.Lock()
        self._loaded: dict[frozenset[str], tuple[_Entry, ctypes.Array[_Range]]] = {}

    def __call__(self, grid: tuple[int, int, int], block: int, arguments: int) -> None:
        """Runs the kernel to its end. `arguments` is the address of an array of pointers to the arguments.

        Raises BuildError, ValueError for a launch that a driver would refuse, and HostExecutionError.
        """
        fits = 1 <= block <= _MAX_THREADS and self._shared_bytes <= _MAX_SHARED
        if not fits or not all(1 <= size <= most for size, most in zip(grid, _MAX_GRID)):
            raise ValueError(
                f"no GPU takes grid {grid}, {block} threads and {self._shared_bytes} bytes of shared memory"
            )
        how = _options
        if not 1 <= self._cluster <= _MAX_CLUSTER or grid[0] % self._cluster:
            raise ValueError(f"no GPU takes clusters of {self._cluster} blocks in grid {grid}")
        if self._cluster > 1 and how.arch in _WITHOUT_CLUSTERS:
            raise ValueError(f"{how.arch} has no clusters")
        entry, variables = self._loaded.get(how.checks) or self._load(how.checks)
        memory = _ranges((address, address + size) for address, size in how.memory)
        tensor_block, extra_bits = _TENSOR_CORES[how.arch]
        launch = _Launch(
            entry=ctypes.pointer(entry),
            arguments=arguments,
            grid=grid,
            block=(block, 1, 1),
            shared_bytes=self._shared_bytes,
            poison=-1 if how.poison is None else how.poison,
            tensor_block=tensor_block,
            tensor_extra_bits=extra_bits,
            # Whole clusters, one at least: their blocks run together.
            resident=-(-(1 if how.seed is None else max(how.blocks, 1)) // self._cluster) * self._cluster,
            cluster=self._cluster,
            seeded=how.seed is not None,
            seed=how.seed or 0,
            budget=how.budget,
            check_races="race" in how.checks,
            check_memory="memory" in how.checks,
            memory=memory,
            memory_count=len(memory),
            variables=variables,
            variable_count=len(variables),
        )
        message = ctypes.create_string_buffer(1024)
        status = _runtime().warpcheck_launch(ctypes.byref(launch), message, len(message))
        if status:
            raise HostExecutionError(_KINDS[status], f"{self._name}: {message.value.decode(errors='replace')}")

    def _load(self, checks: frozenset[str]) -> tuple[_Entry, ctypes.Array[_Range]]:
        with self._lock:
            if checks not in self._loaded:
                runtime = _runtime()
                code = compiler.compile_kernel(self._source, self._name, self._options, checks)
                entry = _Entry.in_dll(_open(code, ctypes.RTLD_LOCAL), "warpcheck_entry")
                if (sizes := entry.sizes[: entry.parameters]) != self._sizes:
                    raise ValueError(f"{self._name} takes parameters of {sizes} bytes, not {self._sizes}")
                if error := runtime.warpcheck_prepare(ctypes.byref(entry)):
                    raise RuntimeError(f"{self._name}: {error.decode()}")
                self._loaded[checks] = entry, _ranges(shared_variables.places(code))
            return self._loaded[checks]


def _ranges(pairs: Iterable[tuple[int, int]]) -> ctypes.Array[_Range]:
    ranges = [_Range(*pair) for pair in pairs]
    return (_Range * len(ranges))(*ranges)


_runtime_lock = threading.Lock()


def _runtime() -> ctypes.CDLL:
    with _runtime_lock:  # there must not be two, and a cache alone would let two threads make one each
        return _load_runtime()


@functools.cache
def _load_runtime() -> ctypes.CDLL:
    # Global, so that kernels find it.
    library = _open(compiler.compile_runtime(), ctypes.RTLD_GLOBAL)
    library.warpcheck_prepare.restype = ctypes.c_char_p
    return library


def _open(code: bytes, mode: int) -> ctypes.CDLL:
    """The library, which needs no file once it is loaded."""
    file, path = tempfile.mkstemp(prefix="warpcheck-", suffix=".so")
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(code)
        return ctypes.CDLL(path, mode=mode)
    finally:
        os.unlink(path)
