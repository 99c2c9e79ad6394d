"""harness.normalise: the first error of real logs, without what changes from run to run."""

# ruff: noqa: SIM300 - the expected value stands first

import pytest

from harness.normalise import first_error, normalise, without_folders

LOGS = {
    "nvrtc": (
        '/home/me/.cache/warpcheck/k.cu(48): warning #177-D: variable "n" was declared but never referenced\n'
        "      int n = 0;\n          ^\n\n"
        '/home/me/.cache/warpcheck/k.cu(112): error: more than one operator "*" matches these operands:\n'
        '            built-in operator "arithmetic * arithmetic"\n'
        '          detected during instantiation of class "Prefill<T> [with T=__half]" at line 130\n\n'
        '1 error detected in the compilation of "/home/me/.cache/warpcheck/k.cu".\n',
        'more than one operator "*" matches these operands:',
    ),
    "nvrtc, default name": (
        'default_program(12): error: identifier "__hfma2" is undefined\n',
        'identifier "__hfma2" is undefined',
    ),
    "nvrtc, missing header": (
        'default_program(3): catastrophic error: cannot open source file "cuda/std/limits"\n',
        "missing header cuda/std/limits",
    ),
    "nvcc with a number": (
        'kernels/a.cu(12): error #20: identifier "foo" is undefined\n1 error detected.\n',
        'identifier "foo" is undefined',
    ),
    "nvcc static assertion": (
        '/usr/include/x.cuh(9): error: static assertion failed with "D must be 64, 128 or 256"\n',
        'static assertion failed with "D must be N, N or N"',
    ),
    "g++": (
        "In file included from /tmp/tmpabc123/main.cpp:3:\n/tmp/tmpabc123/x.h: In function 'int f(int)':\n"
        "/tmp/tmpabc123/x.h:17:5: error: 'foo' was not declared in this scope\n   17 |     foo();\n",
        "'foo' was not declared in this scope",
    ),
    "g++ fatal": (
        "main.cpp:1:10: fatal error: nope.h: No such file or directory\ncompilation terminated.\n",
        "missing header nope.h",
    ),
    "ptxas error": (
        "ptxas info    : 0 bytes gmem\n"
        "ptxas /tmp/tmpxft_0001_00.ptx, line 131; error   : Illegal operand type to instruction 'ld'\n"
        "ptxas fatal   : Ptx assembly aborted due to errors\n",
        "Illegal operand type to instruction 'ld'",
    ),
    "ptxas too much": (
        "ptxas error   : Entry function '_Z6kernelPf' uses too much shared data (0x1c400 bytes, 0xc000 max)\n",
        "Entry function 'SYMBOL' uses too much shared data (ADDRESS bytes, ADDRESS max)",
    ),
    "ptxas fatal": (
        "ptxas info    : 0 bytes gmem\nptxas fatal   : Unresolved extern function 'vprintf'\n",
        "Unresolved extern function 'vprintf'",
    ),
    "nvcc fatal": (
        "nvcc warning : Support for offline compilation will be removed\n"
        "nvcc fatal   : Unsupported gpu architecture 'compute_13'\n",
        "Unsupported gpu architecture 'ARCH'",
    ),
    "linker": (
        "/usr/bin/ld: /tmp/ccX.o: in function `main':\nx.cpp:(.text+0x5): undefined reference to `launch'\n"
        "collect2: error: ld returned 1 exit status\n",
        "undefined reference to `launch'",
    ),
    "triton, in the source": (
        "at 12:15:\n    offs = tl.arange(0, BLOCK)\n    x = tl.load(p + offs, other=0)\n               ^\n"
        "ValueError('`other` cannot be provided without `mask`')",
        "`other` cannot be provided without `mask`",
    ),
    "triton, mlir": (
        "/home/me/kernel.py:33:20: error: 'tt.dot' op expected the last dimension of the first operand to be equal to "
        "the second-to-last dimension of the second operand\n    acc = tl.dot(a, b)\n          ^\n",
        "'tt.dot' op expected the last dimension of the first operand to be equal to the second-to-last dimension of the "
        "second operand",
    ),
    "triton, by its class": (
        'Traceback (most recent call last):\n  File "/home/me/k.py", line 12, in build\n    compile()\n'
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 262144, Hardware limit: 232448.\n",
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: N, Hardware limit: N.",
    ),
    "nvlink": (
        "nvlink error   : Undefined reference to '_Z6helperi' in '/tmp/tmpxft_0001.o'\n",
        "Undefined reference to 'SYMBOL' in 'FILE'",
    ),
    "a Python traceback": (
        'Traceback (most recent call last):\n  File "/home/me/k.py", line 12, in build\n    x = errors[3]\n'
        "my.own.BuildError: no such thing\n",
        "my.own.BuildError: no such thing",
    ),
    "a silent tool": ("", "no output"),
    "no error line": ("\n  killed by the system\nbye\n", "killed by the system"),
}


@pytest.mark.parametrize("name", LOGS)
def test_the_first_error_is_found(name):
    """Of compilers, linkers and Triton: the message, without place, number and path."""
    log, expected = LOGS[name]
    assert expected == first_error(log)


@pytest.mark.parametrize("name", LOGS)
def test_an_error_is_the_same_elsewhere(name):
    """In another folder, at another line, for another architecture."""
    log, _ = LOGS[name]
    moved = log
    for old, new in (
        ("/home/me/.cache/warpcheck/", "/build/agent-7/"),
        ("/home/me/", "/root/x.y/"),
        ("/tmp/tmpabc123/", "/tmp/tmpzz9/"),
        ("(12)", "(7)"),
        ("(112)", "(9113)"),
        (":17:5", ":2:31"),
        ("line 131", "line 2"),
    ):
        moved = moved.replace(old, new)
    assert first_error(log) == first_error(moved)


SAME = [
    ("an illegal access at 0x7f3a00000000", "an illegal access at 0x7f3b12340010"),
    ("CUDA error in /a/b/c.py:12", "CUDA error in /x/c.py:99"),
    ("shape [2, 3] of 17 elements", "shape [128, 32000] of 4 elements"),
    ("expected (2, 3)", "expected (4, 5, 6)"),
    ("built for sm_90a", "built for sm_120"),
    ("on cuda:0", "on cuda:7"),
    ("took 1.5e-3 s", "took 22 s"),
    ("undefined _ZN4x1fEv", "undefined _ZN4other1gEv"),
    ("two  spaces\n and lines", "two spaces and lines"),
    ("\x1b[31mred\x1b[0m", "red"),
    ("tile 128x64 is too large", "tile 32x16 is too large"),
    ("tensor<16x128xf16, #blocked>", "tensor<64x32xf16, #blocked>"),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_what_changes_from_run_to_run_goes(a, b):
    """Addresses, paths, shapes, sizes, architectures, device numbers, mangled names, colours."""
    assert normalise(a) == normalise(b)


DIFFERENT = [
    ('identifier "__hmul" is undefined', 'identifier "__hadd" is undefined'),
    ("expected float16", "expected float32"),
    ("unsupported f16", "unsupported bf16"),
    ("TypeError: no", "ValueError: no"),
    ("__half2", "__half"),
    ("tensor<16x128xf16>", "tensor<16x128xbf16>"),
    ("2x faster", "2 x faster"),
]


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_what_tells_failures_apart_stays(a, b):
    """Types, identifiers, words."""
    assert normalise(a) != normalise(b)


def test_text_is_cut():
    """One line of at most `limit` characters."""
    assert 80 == len(normalise("word " * 100, 80).ljust(80))
    assert "\n" not in normalise("a\nb")


def test_normalising_twice_changes_nothing():
    """What is stored can be normalised again."""
    for log, _ in LOGS.values():
        once = first_error(log)
        assert once == normalise(once)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "declared at line 5025 of /a/venv-1/lib/python3.11/cu13/include/cuda_fp16.h)",
            "declared at line 5025 of cuda_fp16.h)",
        ),
        ('File "/a/b c/x.py", line 3, in f', 'File "x.py", line 3, in f'),
        ('File "/a/b/torch/_ops.py", line 3, in f', 'File "_ops.py", line 3, in f'),
        ("/a/b/c.cu(12): error: no a / b here, and 1/2 of it", "c.cu(12): error: no a / b here, and 1/2 of it"),
        ("see https://example.org/a/b/c.html and ../b/c.cu", "see https://example.org/a/b/c.html and ../b/c.cu"),
        ("torch/_ops.py is relative, /tmp is a folder", "torch/_ops.py is relative, /tmp is a folder"),
    ],
)
def test_a_text_without_this_machines_folders(text, expected):
    """Absolute paths are cut to their file; relative ones, divisions and addresses stay."""
    assert expected == without_folders(text)
