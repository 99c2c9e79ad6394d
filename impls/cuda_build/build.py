"""CUDA source to cubin, through NVRTC and the disk cache. No GPU and no driver are needed."""

import functools
import hashlib
import json
import sys
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from . import cache, headers, nvrtc, units

SUPPORTED_ARCHS = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")

# What torch.utils.cpp_extension defines for every extension, and the bfloat16 operators with them: code that uses half's
# operators or implicit conversions must fail here before it fails in somebody's extension build.
_NO_HALF_OPERATORS = (
    "__CUDA_NO_HALF_OPERATORS__",
    "__CUDA_NO_HALF_CONVERSIONS__",
    "__CUDA_NO_HALF2_OPERATORS__",
    "__CUDA_NO_BFLOAT16_OPERATORS__",
    "__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "__CUDA_NO_BFLOAT162_OPERATORS__",
)


class BuildError(RuntimeError):
    """A compiler refused its input. `tool` names the compiler, `log` is everything it said, str() is one line."""

    def __init__(self, tool: str, summary: str, log: str) -> None:
        super().__init__(f"{tool}: {summary}")
        self.tool = tool
        self.log = log

    def __reduce__(self) -> tuple[type["BuildError"], tuple[str, str, str]]:
        # Exception's own would call BuildError(message), and a build error must survive the trip between processes.
        return BuildError, (self.tool, str(self).removeprefix(f"{self.tool}: "), self.log)


@dataclass(frozen=True)
class BuildOptions:
    """How a source is compiled. Two equal options give the same code."""

    std: Literal["c++17", "c++20"] = "c++17"
    """The language standard."""
    half_operators: bool = True
    """False removes the operators and implicit conversions of half and bfloat16, as torch's extension builds do."""
    defines: tuple[tuple[str, str], ...] = ()
    """Macros, (name, value) each: how a source is told which template to instantiate."""
    prelude: str = ""
    """Source text that is compiled in front of the file: how a caller hands in code of his own."""

    def whole(self, name: str, text: str) -> str:
        """What is compiled: the prelude, then the file `name`, whose lines keep their numbers in messages."""
        return f'{self.prelude}\n#line 1 "{name}"\n{text}' if self.prelude else text


BUILD_AXES: dict[str, tuple[Any, ...]] = {
    "std": get_args(get_type_hints(BuildOptions)["std"]),
    "half_operators": (True, False),
}
"""The options of a build that change no result, and their values: whoever compiles these sources may have any of them."""


def unsupported_options(params: Mapping[str, object]) -> str | None:
    """Why a build with these values of `BUILD_AXES` is none, or None. What `params` leaves out is not judged."""
    for axis, values in BUILD_AXES.items():
        if params.get(axis, values[0]) not in values:
            return f"{axis} must be one of {values}, not {params[axis]!r}"
    return None


def compile_cubin(source: Path, arch: str, options: BuildOptions | None = None) -> bytes:
    """Machine code of `source` for `arch` (one of `SUPPORTED_ARCHS`), from the cache if it is there.

    Raises ValueError for an unknown arch and BuildError when NVRTC refuses the source.
    """
    if arch not in SUPPORTED_ARCHS:
        raise ValueError(f"arch must be one of {', '.join(SUPPORTED_ARCHS)}, got {arch!r}")
    options = options or BuildOptions()
    project, others = headers.project_headers(source)
    others = others or "#include" in options.prelude  # of what? It may be CUDA's
    text = source.read_text()
    if (collected := units.collected()) is not None:
        collected.append(_unit(text, source, others, arch, options))
        return b""
    key = _cache_key(text, project, others, arch, options)
    with _lock_of(key):
        if (cubin := cache.load(key)) is not None:
            return cubin
        cubin = _nvrtc(text, source, others, arch, options)
        cache.store(key, cubin)
        return cubin


def _cache_key(text: str, project: dict[str, bytes], others: bool, arch: str, options: BuildOptions) -> str:
    parts = {
        "source": text,
        "headers": {name: hashlib.sha256(content).hexdigest() for name, content in project.items()},
        "cuda_headers": headers.cuda_header_version() if others else None,
        "options": asdict(options),
        "arch": arch,
        "nvrtc": _nvrtc_version(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest() + ".cubin"


_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
_locks_guard = threading.Lock()


def _lock_of(key: str) -> threading.Lock:
    """One lock a key, so that threads that want the same code compile it once and others don't wait for them."""
    with _locks_guard:
        return _locks[key]


@functools.cache
def _nvrtc_version() -> str:
    from cuda.bindings import nvrtc as binding

    result, major, minor = binding.nvrtcVersion()
    if int(result):
        raise RuntimeError(f"nvrtcVersion failed: {result}")
    return f"{major}.{minor}"


def _nvrtc(text: str, source: Path, needs_cuda_headers: bool, arch: str, options: BuildOptions) -> bytes:
    flags = [
        *_target(arch, options),
        *(f"--include-path={folder}" for folder in (source.parent, headers.SHARED)),
        *_cuda_headers(needs_cuda_headers),
        *(f"--define-macro={name}={value}" for name, value in _macros(options)),
    ]
    try:
        return nvrtc.compile_unit(options.whole(source.name, text).encode(), source.name, flags)
    except nvrtc.CompilationFailed as error:
        first = next((line for line in error.log.splitlines() if "error" in line), error.log.splitlines()[0])
        raise BuildError("nvrtc", f"{source.name} for {arch}: {first.strip()}", error.log) from error


def _unit(text: str, source: Path, needs_cuda_headers: bool, arch: str, options: BuildOptions) -> units.TranslationUnit:
    """What `_nvrtc` would hand to NVRTC, the project's headers and the macros inside."""
    whole = units.flattened(options.whole(source.name, text), source.parent, (source.parent, headers.SHARED))
    macros = "".join(f"#define {name} {value}\n" for name, value in _macros(options))
    flags = (*_target(arch, options), *_cuda_headers(needs_cuda_headers))
    return units.TranslationUnit(
        "nvrtc", source.name, macros + whole, (sys.executable, "-P", str(Path(nvrtc.__file__)), *flags)
    )


def _target(arch: str, options: BuildOptions) -> tuple[str, ...]:
    return f"--gpu-architecture={arch}", f"--std={options.std}"


def _macros(options: BuildOptions) -> tuple[tuple[str, str], ...]:
    without = () if options.half_operators else _NO_HALF_OPERATORS
    return options.defines + tuple((name, "1") for name in without)


def _cuda_headers(needed: bool) -> tuple[str, ...]:
    """The option that finds CUDA's headers. Raises BuildError when they are needed and not there."""
    if not needed:
        return ()
    if (cuda := headers.cuda_include_directory()) is None:
        hint = "no CUDA headers found: install the wheels nvidia-cuda-runtime and nvidia-cuda-crt, or set CUDA_HOME"
        raise BuildError("nvrtc", hint, hint)
    return (f"--include-path={cuda}",)
