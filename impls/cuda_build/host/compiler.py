"""CUDA source to a shared object for this machine, through g++ and the disk cache."""

import functools
import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from pathlib import Path

from .. import build, cache, headers
from ..build import BuildError, BuildOptions
from . import shared_variables

_HERE = Path(__file__).parent
_PRELUDE = "cuda_host.h"

# CUDA code reinterprets memory freely, wraps around, and (here) contracts nothing.
_COMMON_FLAGS = (
    *("-std=c++20", "-fPIC", "-w", "-fno-strict-aliasing", "-U_FORTIFY_SOURCE", "-fno-gnu-unique"),
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
)
_KERNEL_FLAGS = (*_COMMON_FLAGS, "-O1", "-fwrapv", "-fvisibility=hidden", "-fno-exceptions")
_RUNTIME_FLAGS = (*_COMMON_FLAGS, "-O3", "-fno-semantic-interposition", "-DWARPCHECK_STACK_KIB=128")

# Each check: how a kernel is compiled for it. Their calls go to the runtime (checked.h), never to the sanitizers' libraries.
_ACCESSES = ("-fsanitize=thread", "--param=tsan-distinguish-volatile=1")
CHECKS = {
    "race": _ACCESSES,
    "memory": (*_ACCESSES, "-fsanitize=alignment,bounds", "-DWARPCHECK_UNDEFINED"),
    "undefined": ("-fno-wrapv", "-fsanitize=undefined", "-fno-sanitize=vptr", "-DWARPCHECK_UNDEFINED"),
}

# CUDA's headers ask for this file, which is part of another package; on the host every such choice is the last one.
_NV_TARGET = "#pragma once\n#define NV_IF_ELSE_TARGET(condition, device, ...) {__VA_ARGS__}\n"

_DYNAMIC_SHARED = re.compile(
    r"\bextern\s+__shared__\s+((?:(?:__align__|alignas)\s*\([^)]*\)\s*)?)([^;\[\]]+?)(\w+)\s*\[\s*\]\s*;"
)
# g++ wants an alignment in front of all specifiers.
_ALIGNED_SHARED = re.compile(r"\b__shared__\s+(alignas\s*\((?:[^()]|\([^()]*\))*\))")


@functools.cache
def unavailable() -> str | None:
    """Why kernels cannot run on this CPU, or None."""
    if shutil.which("g++") is None:
        return (
            "CUDA kernels run on the CPU through g++, which is not installed: install g++ 11 or newer (apt install g++)"
        )
    if headers.cuda_include_directory() is None:
        return "no CUDA headers found: install the wheels nvidia-cuda-runtime and nvidia-cuda-crt, or set CUDA_HOME"
    return None


def compile_runtime() -> bytes:
    """The shared object with the scheduler, from the cache if it is there. Raises BuildError."""
    _require()
    key = _key({"runtime": _own_files(), "flags": _RUNTIME_FLAGS})

    def make(output: Path) -> None:
        # As one file, which takes half the time and lets small functions be inlined.
        whole = output.parent / "runtime.cpp"
        _write(whole, "".join(f'#include "{path}"\n' for path in sorted(_HERE.glob("*.cpp"))))
        _gxx([*_RUNTIME_FLAGS, "-shared", str(whole), "-o", str(output)], "the runtime")

    return _cached(key, make)


def compile_kernel(source: Path, name: str, options: BuildOptions | None = None, checks: Collection[str] = ()) -> bytes:
    """A shared object with the entry point `name` of `source`, from the cache if it is there.

    `checks` are keys of CHECKS. `options.std` is not used: the host header needs C++20. Raises BuildError.
    """
    _require()
    options = options or BuildOptions()
    text = source.read_text()
    project, _ = headers.project_headers(source)
    macros = [f"-D{macro}={value}" for macro, value in options.defines]
    if not options.half_operators:
        macros += [f"-D{macro}" for macro in build._NO_HALF_OPERATORS]
    flags = [*_KERNEL_FLAGS, *macros, *dict.fromkeys(flag for check in sorted(checks) for flag in CHECKS[check])]
    key = _key(
        {
            "source": text,
            "name": name,
            "headers": {header: hashlib.sha256(content).hexdigest() for header, content in project.items()},
            "cuda_headers": headers.cuda_header_version(),
            "own": _own_files(),
            "options": asdict(options),
            "flags": flags,
        }
    )

    def make(output: Path) -> None:
        folder = output.parent
        whole = options.whole(source.name, f'#line 1 "{source.name}"\n{_rewrite(text)}')
        _write(folder / "built.cpp", f"{whole}\nWARPCHECK_ENTRY({name})\n")
        _write(folder / "nv" / "target", _NV_TARGET)
        for header, content in project.items():
            # Found before the one it is a copy of. A header outside of the source's folder is not copied.
            rewritten = _rewrite(before := content.decode())
            if rewritten != before and ".." not in Path(header).parts:
                _write(folder / header, f'#line 1 "{header}"\n{rewritten}')
        places = ["-I", str(source.parent), "-I", str(headers.SHARED), "-isystem", str(folder)]
        places += ["-isystem", str(headers.cuda_include_directory()), "-include", str(_HERE / _PRELUDE)]
        command = [*flags, *places, str(folder / "built.cpp")]
        if checks:
            # Assembled without the sanitizers' flags: their libraries would be linked.
            assembly = folder / "built.s"
            _gxx([*command, "-S", "-o", str(assembly)], source.name)
            assembly.write_text(shared_variables.guarded(assembly.read_text()))
            command = [str(assembly)]
        _gxx([*command, "-shared", "-o", str(output)], source.name)

    return _cached(key, make)


def _require() -> None:
    if reason := unavailable():
        raise BuildError("g++", reason, reason)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _rewrite(text: str) -> str:
    """Dynamic shared memory as a pointer to the block's: C++ has no spelling for `extern __shared__ T name[]`."""
    text = _DYNAMIC_SHARED.sub(r"\2* const \3 = static_cast<\2*>(warpcheck::dynamic_shared());", text)
    return _ALIGNED_SHARED.sub(r"\1 __shared__", text)


def _key(parts: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps({**parts, "gxx": _gxx_version()}, sort_keys=True).encode()).hexdigest() + ".so"


def _cached(key: str, make: Callable[[Path], None]) -> bytes:
    with build._lock_of(key):
        if (found := cache.load(key)) is not None:
            return found
        with tempfile.TemporaryDirectory(prefix="warpcheck-") as folder:
            output = Path(folder) / "built.so"
            make(output)
            code = output.read_bytes()
        cache.store(key, code)
        return code


def _gxx(arguments: Sequence[str], what: str) -> None:
    done = subprocess.run(["g++", *arguments], capture_output=True, text=True)
    if done.returncode:
        log = done.stderr.strip()
        first = next((line for line in log.splitlines() if "error" in line), log[:200])
        raise BuildError("g++", f"{what} for the CPU: {first.strip()}", log)


@functools.cache
def _gxx_version() -> str:
    return subprocess.run(["g++", "--version"], capture_output=True, text=True).stdout.partition("\n")[0]


def _own_files() -> dict[str, str]:
    """All that goes into a build besides the source: also what rewrites it."""
    files = [*_HERE.glob("*.h"), *_HERE.glob("*.cpp"), Path(__file__), Path(shared_variables.__file__)]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}
