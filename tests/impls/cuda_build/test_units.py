"""Translation units as single files: headers inlined as the preprocessor would read them, and nothing compiled."""

# ruff: noqa: SIM300 - the expected value stands first

import importlib
import re
import shutil
import subprocess

import pytest

from impls.cuda_build import BuildError, BuildOptions, build, compile_cubin, nvrtc, translation_units, units
from impls.cuda_build.units import flattened


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache of the test's own, and a folder for sources."""
    monkeypatch.setenv("WARPCHECK_CACHE", str(tmp_path / "cache"))
    return tmp_path


def preprocessed(folder, text, name):
    """The lines that g++ makes of a text."""
    file = folder / name
    file.write_text(text)
    command = ["g++", "-E", "-P", "-x", "c++", "-I", str(folder / "shared"), str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


HEADERS = {
    "once.cuh": "#pragma once\nint once;\n",
    "sub/once.cuh": "#pragma once\nint sub;\n",
    "guarded.cuh": "// a comment\n#ifndef GUARD_H\n#define GUARD_H\n#include <once.cuh>\nint guarded;\n#endif  // GUARD_H\n",
    "again.cuh": "int X;\n",
    "deep.cuh": '#pragma once\n#include "guarded.cuh"\n#include "once.cuh"\nint deep;\n',
    "cycle_a.cuh": '#pragma once\n#include "cycle_b.cuh"\nint a;\n',
    "cycle_b.cuh": '#pragma once\n#include "cycle_a.cuh"\nint b;\n',
}

SOURCES = {
    "once": '#include "once.cuh"\n#include "once.cuh"\nint end;\n',
    "guarded": '#include "guarded.cuh"\n#include "guarded.cuh"\n#include "once.cuh"\n',
    "every time": '#define X x1\n#include "again.cuh"\n#undef X\n#define X x2\n#include "again.cuh"\n',
    "deep": '#include "deep.cuh"\n#include "guarded.cuh"\n',
    "first in a branch that is not taken": '#if 0\n#include "once.cuh"\n#endif\n#include "once.cuh"\nint end;\n',
    "one of two branches": '#ifdef A\n#include "deep.cuh"\n#else\n#include "once.cuh"\n#endif\n#include "deep.cuh"\n',
    "in a comment": '/*\n#include "once.cuh"\n*/\nint a; // #include\n#include "again.cuh"\n',
    "in a literal": 'const char* s = R"x(\n#include "once.cuh"\n)x"; const char* t = "/*"; char q = \'"\';\n'
    '#include "once.cuh"\n',
    "spaces": "  #  include   <once.cuh>  // why\nint end;\n",
    "two of one name": '#if 0\n#include "once.cuh"\n#include "sub/once.cuh"\n#endif\n'
    '#include "once.cuh"\n#include "sub/once.cuh"\n',
    "a cycle": '#include "cycle_a.cuh"\n#include "cycle_b.cuh"\n',
}


@pytest.mark.parametrize("what", SOURCES)
def test_a_flat_source_is_the_same_to_the_preprocessor(folder, what):
    """And includes none of the headers that were found."""
    shared = folder / "shared"
    (shared / "sub").mkdir(parents=True)
    for name, text in HEADERS.items():
        (shared / name).write_text(text)
    flat = flattened(SOURCES[what], folder, [shared])
    expected = preprocessed(folder, SOURCES[what], "source.cu")
    assert expected == preprocessed(folder, flat, "flat.cu")
    shutil.rmtree(shared)
    assert expected == preprocessed(folder, flat, "flat.cu")


def test_what_is_beside_the_file_comes_first(folder):
    """For quotes; angle brackets look in the folders alone. What is nowhere stays."""
    (folder / "shared").mkdir()
    (folder / "x.cuh").write_text("int beside;")
    (folder / "shared" / "x.cuh").write_text("int shared;")
    text = '#include "x.cuh"\n#include <x.cuh>\n#include <cuda_fp16.h>\n'
    assert "int beside;\nint shared;\n#include <cuda_fp16.h>\n" == flattened(text, folder, [folder / "shared"])


def test_a_header_without_end(folder):
    """Is an error of one line that names it."""
    (folder / "x.cuh").write_text('#include "x.cuh"\n')
    with pytest.raises(ValueError, match=r"^x\.cuh is included 100 headers deep$"):
        flattened('#include "x.cuh"\n', folder, [])


def test_nothing_is_compiled_while_units_are_collected(folder, monkeypatch):
    """Not even looked up; afterwards it is as before."""
    source = folder / "kernel.cu"
    source.write_text('extern "C" __global__ void f(int* p) { *p = N; }\n')
    options = BuildOptions(defines=(("N", "7"),), half_operators=False)
    with monkeypatch.context() as patched:
        patched.setattr(build, "_nvrtc", None)
        with translation_units() as found:
            assert b"" == compile_cubin(source, "sm_80", options)
    (unit,) = found
    assert ("nvrtc", "kernel.cu") == (unit.tool, unit.name)
    assert "#define N 7\n#define __CUDA_NO_HALF_OPERATORS__ 1\n" in unit.text
    assert units.collected() is None
    assert b"\x7fELF" == compile_cubin(source, "sm_80", options)[:4]


@pytest.mark.parametrize("backend", ["impls.single_prefill.cuda", "impls.top_k_mask_logits.cuda"])
def test_a_flat_kernel_is_the_same_code(backend, monkeypatch):
    """Bit for bit the machine code of the real ones, whose headers include one another."""
    module = importlib.import_module(backend)
    stored = []
    monkeypatch.setattr(build.cache, "store", lambda key, cubin: stored.append(cubin))
    params = {"dtype": "float16", "half_operators": False}
    module.build(params, "sm_80")
    with module.translation_units() as found:
        module.build(params, "sm_80")
    flat = []
    for unit in found:
        flags = [word for word in unit.command if word.startswith("--")]
        flat.append(nvrtc.compile_unit(unit.text.encode(), unit.name, flags))
        assert [] == re.findall(r'^ *# *include *"(.*)"', unit.text, re.MULTILINE)
    assert stored == flat
    assert stored


BROKEN = {
    "in the file": ("int f() { return nothing; }\n", ""),
    "in a header": (
        '#include "own.cuh"\n',
        "#pragma once\n#include <cuda_fp16.h>\ninline __device__ float f(half2 h) { return h * 2.0; }\n",
    ),
    "in the prelude": ("", ""),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_unit_fails_on_its_own_as_the_build_does(folder, what):
    """The same message, from the command that the unit names; 1 is its exit status."""
    source = folder / "kernel.cu"
    source.write_text(BROKEN[what][0])
    (folder / "own.cuh").write_text(BROKEN[what][1])
    options = BuildOptions(std="c++20", prelude="int g = unknown;" if what == "in the prelude" else "")
    with pytest.raises(BuildError) as caught:
        compile_cubin(source, "sm_90a", options)
    with translation_units() as found:
        compile_cubin(source, "sm_90a", options)
    (folder / "elsewhere").mkdir()
    file = folder / "elsewhere" / found[0].name
    file.write_text(found[0].text)
    done = subprocess.run([*found[0].command, str(file)], capture_output=True, text=True)
    assert 1 == done.returncode

    def messages(log):
        return [line.partition("error: ")[2] for line in log.splitlines() if "error: " in line]

    assert messages(caught.value.log) == messages(done.stderr) != []


@pytest.mark.parametrize(("text", "status"), [("struct S {};", 0), ("struct S {}", 1), (None, 125)])
def test_the_command_of_a_unit(folder, text, status):
    """0 it compiles, 1 it does not, 125 there is nothing to compile or no compiler."""
    source = folder / "kernel.cu"
    source.write_text("")
    with translation_units() as found:
        compile_cubin(source, "sm_80")
    file = folder / "x.cu"
    if text is not None:
        file.write_text(text)
    assert status == subprocess.run([*found[0].command, str(file)], capture_output=True).returncode
