"""CUDA source to cubin, through NVRTC and the disk cache. No GPU and no driver are needed."""

import functools
import hashlib
import json
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from . import cache, headers

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
    from cuda.bindings import nvrtc

    result, major, minor = nvrtc.nvrtcVersion()
    if int(result):
        raise RuntimeError(f"nvrtcVersion failed: {result}")
    return f"{major}.{minor}"


def _nvrtc(text: str, source: Path, needs_cuda_headers: bool, arch: str, options: BuildOptions) -> bytes:
    from cuda.core import Program, ProgramOptions

    include_path = [str(source.parent), str(headers.SHARED)]
    if needs_cuda_headers:
        if (cuda := headers.cuda_include_directory()) is None:
            hint = "no CUDA headers found: install the wheels nvidia-cuda-runtime and nvidia-cuda-crt, or set CUDA_HOME"
            raise BuildError("nvrtc", hint, hint)
        include_path.append(str(cuda))
    macros: list[str | tuple[str, str]] = [*options.defines]
    if not options.half_operators:
        macros += _NO_HALF_OPERATORS
    nvrtc_options = ProgramOptions(
        name=source.name, arch=arch, std=options.std, include_path=include_path, define_macro=macros or None
    )
    try:
        return bytes(Program(options.whole(source.name, text), "c++", nvrtc_options).compile("cubin").code)
    except Exception as error:
        # cuda.core has no public class for this: the compiler's log is in the message.
        message = str(error)
        log = message.partition("compilation log:")[2].strip() or message
        first = next((line for line in log.splitlines() if "error" in line), message.splitlines()[0])
        raise BuildError("nvrtc", f"{source.name} for {arch}: {first.strip()}", log) from error
