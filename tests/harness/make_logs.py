"""Makes tests/harness/logs: what real compilers say to wrong programs, each of which has one bug.

    python -m tests.harness.make_logs                              the compilers of this environment
    python -m tests.harness.make_logs --nvrtc LIBRARY --cuda INCLUDE --as 12.9     nvrtc alone, from another version
    python -m tests.harness.make_logs --ptxas PROGRAM --as 12.9                    ptxas alone, from another version
    python -m tests.harness.make_logs --triton --as 3.6            Triton alone: the version that Python finds

A file is called `<tool>-<bug>.txt`, and has a part for each log, under the names of the variants that gave it. The variants
of a bug (another architecture, other names of variables,
parameters and macros, another language standard, another version of the compiler) are one bug; other bugs are others.
Paths of the machine become /build, /cuda and /python, so that they are the same whoever runs it; nothing else is changed.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import click

LOGS = Path(__file__).parent / "logs"
ARCHS = ("sm_80", "sm_90a")

CUDA = {
    "undeclared_function": "__device__ float f(float x) { return fused_tanh(x); }",
    "undeclared_type": "__device__ void f(float* x) { half8* v = reinterpret_cast<half8*>(x); v[0] = v[1]; }",
    "half_times_float": (
        "#include <cuda_fp16.h>\ntemplate <typename T> __device__ T scaled(T score, float scale) { return score * scale; }\n"
        "__global__ void k(__half* x, float c) { x[0] = scaled(x[0], c); }"
    ),
    "half_times_half2": (
        "#include <cuda_fp16.h>\ntemplate <typename T> __device__ T scaled(T score, __half2 scale) { return score * scale; }\n"
        "__global__ void k(__half* x, __half2 c) { x[0] = scaled(x[0], c); }"
    ),
    "half_times_float_no_operators": (
        "#define __CUDA_NO_HALF_OPERATORS__\n#define __CUDA_NO_HALF_CONVERSIONS__\n#include <cuda_fp16.h>\n"
        "__global__ void k(__half* x, float scale) { x[0] = x[0] * scale; }"
    ),
    "half_to_int": (
        "#define __CUDA_NO_HALF_CONVERSIONS__\n#include <cuda_fp16.h>\n"
        "__device__ int f(__half score) { int i = score; return i; }"
    ),
    "no_overload": (
        "struct Tile {};\n__device__ void load(float*, int); __device__ void load(int*, int);\n"
        "__device__ void f(Tile scale) { load(scale, 1); }"
    ),
    "static_assert": 'template <int D> struct Head { static_assert(D % 64 == 0, "head_dim"); };\nHead<{size}> score;',
    "other_static_assert": 'template <int D> struct Head { static_assert(D <= 512, "warps"); };\nHead<{size}6> score;',
    "missing_header": '#include "attention/tiles.cuh"\n__device__ int scale;',
    "other_missing_header": '#include "attention/masks.cuh"\n__device__ int scale;',
    "syntax_semicolon": "__device__ int f(int score) { int scale = score\n return scale; }",
    "syntax_expression": "__device__ int f(int score) { int scale = score + ; return scale; }",
    "pointer_conversion": "__device__ int f(float* score) { int* scale = score; return *scale; }",
    "redeclared": "__device__ void f() { int scale = 0; float scale = 1; }",
    "no_member": "struct Params { int stride; };\n__device__ int f(Params score) { return score.row_stride; }",
    "other_member": "struct Params { int stride; };\n__device__ int f(Params score) { return score.page; }",
    "const": "__global__ void k(const float* score, int scale) { score[scale] = 0; }",
    "too_many_arguments": "__device__ float g(float x);\n__device__ float f(float score) { return g(score, score); }",
}
"""Bug -> source. `score` and `scale` are names of variables, {size} is a number: both differ from variant to variant."""

PTXAS = {
    "shared": "__global__ void k(float* score) { __shared__ float scale[{size}000]; scale[threadIdx.x] = *score; "
    "__syncthreads(); *score = scale[*(int*)score]; }",
    "instruction": '__global__ void k(float* score) { asm volatile("tcgen05.fence::before_thread_sync;"); *score = {size}; }',
    "operand": '__global__ void k(float* score) { asm volatile("ld.global.f32 %0, 1.0;" : "=f"(*score)); }',
    "unknown": '__global__ void k(float* score) { asm volatile("add.f99 %0, %0, %0;" : "+f"(*score)); }',
    "extern": "extern __device__ float helper(float);\n__global__ void k(float* score) { *score = helper(*score); }",
}
"""What the compiler proper lets pass and the assembler does not."""

CXX = {
    **{bug: text for bug, text in CUDA.items() if "cuda_fp16" not in text},
    "half_times_float": (
        "struct half { unsigned short bits; };\ntemplate <typename T> T scaled(T score, float scale) { return score * scale; }\n"
        "half f(half x) { return scaled(x, 2.0f); }"
    ),
    "half_times_double": (
        "struct half { unsigned short bits; };\ntemplate <typename T> T scaled(T score, double scale) { return score * scale; }\n"
        "half f(half x) { return scaled(x, 2.0); }"
    ),
    "undefined_reference": "void launch(int);\nint main() { int score = {size}; launch(score); }",
}

TRITON = {
    "dot_dtypes": "score = tl.load(p + i[:, None] + i[None, :])\n    "
    "acc = tl.dot(score, score.to(tl.float16))\n    tl.store(p + i, acc)",
    "undefined_name": "score = tl.load(p + i)\n    tl.store(p + i, scores)",
    "other_undefined_name": "score = tl.load(p + i)\n    tl.store(p + i, weights)",
    "no_attribute": "score = tl.load(p + i)\n    tl.store(p + i, tl.tanhh(score))",
    "shapes": "score = tl.load(p + i)\n    tl.store(p + i, score + tl.arange(0, {size}))",
    "not_a_power_of_two": "score = tl.load(p + tl.arange(0, 48))\n    tl.store(p + i, score)",
    "static_assert": 'score = tl.load(p + i)\n    tl.static_assert(N % 3 == 0, "block")\n    tl.store(p + i, score)',
    "other_without_mask": "score = tl.load(p + i, other=0)\n    tl.store(p + i, score)",
    "type_changes_in_loop": "score = 0\n    for j in range(n):\n        score = tl.load(p + i)\n    tl.store(p + i, score)",
    "ptxas": 'score = tl.inline_asm_elementwise("add.f99 $0, $1, $1;", "=f,f", [tl.load(p + i)], tl.float32, True, 1)\n'
    "    tl.store(p + i, score)",
}
"""Bug -> body of a kernel of (p, n, N); `score` is the name of a variable."""


def renamed(text: str) -> str:
    """Other names of variables."""
    return re.sub(r"\bscore\b", "logit", re.sub(r"\bscale\b", "sm_scale_log2", text))


def sized(text: str, size: int) -> str:
    return text.replace("{size}", str(size))


def variants(text: str, before: str, sizes: tuple[int, int]) -> Iterator[tuple[str, str, str, str]]:
    """(name, architecture, language standard, source): one thing differs from the first in each."""
    size, other = sizes
    yield "sm_80", "sm_80", "c++17", sized(text, size)
    yield "sm_90a", "sm_90a", "c++17", sized(text, size)
    yield "c++20", "sm_80", "c++20", sized(text, size)
    yield "renamed", "sm_80", "c++17", before + sized(renamed(text), other)


Compiler = Callable[[str, str, str], str]
"""(source, architecture, standard) -> everything it said."""


def nvrtc(library: str, include: str) -> Compiler:
    """A libnvrtc, whatever its version, by its C interface."""
    api = ctypes.CDLL(library)

    def say(text: str, arch: str, std: str) -> str:
        program = ctypes.c_void_p()
        options = [f"--gpu-architecture={arch}".encode(), f"--std={std}".encode(), f"-I{include}".encode()]
        api.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
        api.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        size = ctypes.c_size_t()
        api.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        api.nvrtcGetProgramLog(program, log)
        return log.value.decode()

    return say


def program(*command: str, suffix: str = ".cu", **environment: str) -> Compiler:
    """A compiler that is a program; `{arch}` and `{std}` in its arguments are replaced."""

    def say(text: str, arch: str, std: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / f"kernel{suffix}"
            source.write_text(text)
            filled = [word.format(arch=arch, std=std) for word in command]
            done = subprocess.run(
                [*filled, str(source), "-o", f"{folder}/out"],
                capture_output=True,
                text=True,
                env={**os.environ, "LC_ALL": "C", "TMPDIR": folder, **environment},
            )
            return (done.stdout + done.stderr).replace(folder, "/build")

    return say


def ptxas(assembler: str) -> Compiler:
    """One that is given the PTX that nvcc makes, in a version that older assemblers read too."""

    def say(text: str, arch: str, std: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            source, ptx = Path(folder) / "kernel.cu", Path(folder) / "kernel.ptx"
            source.write_text(text)
            # For sm_90a nvcc assembles what it makes; for sm_80 it leaves that to whoever wants it.
            subprocess.run(["nvcc", "-ptx", "-arch=sm_80", f"-std={std}", str(source), "-o", str(ptx)], check=True)
            ptx.write_text(re.sub(r"\.version [\d.]+", ".version 8.6", ptx.read_text()).replace("sm_80", arch))
            command = [assembler, f"-arch={arch}", str(ptx), "-o", f"{folder}/out"]
            return subprocess.run(command, capture_output=True, text=True).stderr.replace(folder, "/build")

    return say


def triton(text: str, arch: str, std: str) -> str:
    """What Triton's exception says."""
    import triton as package
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    head = (
        "import triton\nimport triton.language as tl\n\n\n"
        "@triton.jit\ndef kernel(p, n, N: tl.constexpr):\n    i = tl.arange(0, N)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        name = f"kernel_{abs(hash((text, arch)))}"
        (Path(folder) / f"{name}.py").write_text(f"{head}    {text.strip()}\n")
        sys.path.insert(0, folder)
        try:
            kernel = importlib.import_module(name).kernel
            source = ASTSource(kernel, {"p": "*fp32", "n": "i32", "N": "constexpr"}, {(2,): 64})
            package.compile(source, target=GPUTarget("cuda", int(arch[3:5]), 32))
        except Exception as error:
            return str(error).replace(folder, "/build").replace(name, "kernel")
        finally:
            sys.path.remove(folder)
    raise AssertionError(f"it compiles: {text}")


def portable(log: str) -> str:
    """Without the places of this machine."""
    log = re.sub(r"[^\s\"'`(]*/(?:include|cu1\d/include)/(?=cuda_|crt/|vector)", "/cuda/include/", log)
    log = re.sub(r"[^\s]*(?=/triton/backends/)", "/python", log)
    return re.sub(r"/tmp/(?:tmp)?", "/build/", log)


MARK = "==== "


def record_all(tool: str, bugs: dict[str, str], compiler: Compiler, version: str | None = None) -> None:
    """Every variant of every bug; of another version, one, which is added to the file or replaces what was there of it."""
    for bug, text in bugs.items():
        path = LOGS / f"{tool}-{bug}.txt"
        said = read(path) if version is not None else {}
        form = ("# moved\n\n    ", (32, 128)) if tool == "triton" else ("// moved\n\n", (96, 80))
        for variant, arch, std, source in variants(text, *form):
            if version is None or variant == "sm_80":
                said[version or variant] = portable(compiler(source, arch, std)).strip()
        path.write_text("".join(f"{MARK}{', '.join(who)}\n{log}\n" for log, who in grouped(said).items()))


def grouped(said: dict[str, str]) -> dict[str, list[str]]:
    """Log -> the variants that say it."""
    found: dict[str, list[str]] = {}
    for variant, log in said.items():
        found.setdefault(log, []).append(variant)
    return found


def read(path: Path) -> dict[str, str]:
    """Variant -> log, of a file."""
    found = {}
    for part in path.read_text(encoding="utf-8").split(MARK)[1:]:
        names, _, log = part.partition("\n")
        found |= dict.fromkeys(names.split(", "), log)
    return found


@click.command()
@click.option("--nvrtc", "library", help="A libnvrtc.so; with --cuda.")
@click.option("--cuda", "include", help="The folder with that version's cuda_fp16.h.")
@click.option("--ptxas", "assembler", help="A ptxas.")
@click.option("--triton", "only_triton", is_flag=True, help="Only Triton.")
@click.option("--as", "version", help="What another version than the first is called.")
def main(
    library: str | None, include: str | None, assembler: str | None, only_triton: bool, version: str | None
) -> None:
    """Write the logs; see above."""
    everything = not (library or assembler or only_triton)
    LOGS.mkdir(exist_ok=True)
    if everything or library:
        if library is None or include is None:
            from cuda import pathfinder

            from impls.cuda_build import headers

            library = str(pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path)
            include = str(headers.cuda_include_directory())
        record_all("nvrtc", CUDA, nvrtc(library, include), version)
    if everything:
        record_all("nvcc", CUDA, program("nvcc", "-cubin", "-arch={arch}", "-std={std}"))
        record_all("g++", CXX, program("g++", "-std={std}", "-D__device__=", "-D__global__=", suffix=".cpp"))
    if everything or assembler:
        record_all("ptxas", PTXAS, ptxas(assembler or "ptxas"), version)
    if everything or only_triton:
        record_all("triton", TRITON, triton, version)


if __name__ == "__main__":
    main()
