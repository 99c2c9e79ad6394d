"""harness.normalise on real logs: the same bug over architectures, standards, versions and names is one; others are others."""

# ruff: noqa: SIM300 - the expected value stands first

import itertools

import pytest

from harness.normalise import errors, first_error, normalise
from tests.harness.make_logs import CUDA, CXX, LOGS, PTXAS, TRITON, read

BUGS = {"nvrtc": CUDA, "nvcc": CUDA, "g++": CXX, "ptxas": PTXAS, "triton": TRITON}
SAID = {path.stem: read(path) for path in sorted(LOGS.glob("*.txt"))}

VARIANTS = {"sm_80", "sm_90a", "c++20", "renamed"}
VERSIONS = {"nvrtc": {"12.9"}, "ptxas": {"12.9"}, "triton": {"3.6"}}


def test_every_bug_has_its_log():
    """Of every tool, in every variant; Triton and NVIDIA's in another version too."""
    assert {f"{tool}-{bug}" for tool, bugs in BUGS.items() for bug in bugs} == set(SAID)
    for name, said in SAID.items():
        assert VARIANTS | VERSIONS.get(name.partition("-")[0], set()) == set(said), name


@pytest.mark.parametrize("name", SAID)
def test_one_bug_is_one_error(name):
    """Whatever the architecture, the standard, the names of variables, the sizes and the version of the compiler."""
    found = {variant: first_error(log) for variant, log in SAID[name].items()}
    assert 1 == len(set(found.values())), found


@pytest.mark.parametrize("tool", BUGS)
def test_two_bugs_are_two_errors(tool):
    """Of one tool, any two."""
    found = {bug: first_error(SAID[f"{tool}-{bug}"]["sm_80"]) for bug in BUGS[tool]}
    assert [] == [(a, b, found[a]) for a, b in itertools.combinations(found, 2) if found[a] == found[b]]


WORDS = {
    "nvrtc-undeclared_function": 'identifier "fused_tanh" is undefined',
    "nvrtc-half_times_float": 'more than one operator "*" matches these operands: __half * float',
    "nvrtc-no_overload": 'no instance of overloaded function "load" matches the argument list: (Tile, int)',
    "nvrtc-missing_header": "missing header attention/tiles.cuh",
    "nvcc-missing_header": "missing header attention/tiles.cuh",
    "g++-missing_header": "missing header attention/tiles.cuh",
    "nvrtc-redeclared": '"NAME" has already been declared in the current scope',
    "g++-redeclared": "conflicting declaration 'float NAME'",
    "g++-const": "assignment of read-only location 'EXPRESSION'",
    "g++-no_member": "'struct Params' has no member named 'row_stride'",
    "g++-undefined_reference": "undefined reference to `launch(int)'",
    "ptxas-shared": "Entry function 'SYMBOL' uses too much shared data (ADDRESS bytes, ADDRESS max)",
    "triton-dot_dtypes": "Both operands must be same dtype. Got fp32 and fp16",
    "triton-undefined_name": "scores is not defined",
    "triton-ptxas": "Unknown modifier '.f99'",
}


@pytest.mark.parametrize("name", WORDS)
def test_what_is_left_of_a_log(name):
    """Types, functions, members and headers; no variable."""
    assert WORDS[name] == first_error(SAID[name]["renamed"])


@pytest.mark.parametrize("name", SAID)
def test_normalising_again_changes_nothing(name):
    """What an entry holds can be compared with what is seen today."""
    for log in SAID[name].values():
        for error in errors(log):
            assert error == normalise(error)


@pytest.mark.parametrize("name", SAID)
def test_no_log_has_a_place_of_the_machine_it_was_made_on(name):
    """They are the same whoever makes them."""
    for log in SAID[name].values():
        for place in ("/tmp/", "/home/", "/root/", "/usr/local/", "site-packages"):
            assert place not in log


NAMES = [
    ('variable "row" is not a type name', 'variable "column" is not a type name'),
    ("redeclaration of 'int row'", "redeclaration of 'int column'"),
    ("error: passing ‘x’ as ‘this’", "error: passing 'x' as 'this'"),
    ("'a' was not declared in this scope; did you mean 'b'?", "'a' was not declared in this scope"),
]


@pytest.mark.parametrize(("a", "b"), NAMES)
def test_what_is_said_to_be_a_variable_has_no_name(a, b):
    """Nor do the quotes of a locale, or a suggestion, make another bug."""
    assert first_error(a) == first_error(b)


OTHERS = [
    ("redefinition of 'struct Tile'", "redefinition of 'struct Row'"),
    ("redefinition of 'float f(float)'", "redefinition of 'float g(float)'"),
    ("redeclaration of 'int row'", "redeclaration of 'float row'"),
    ('identifier "a" is undefined', 'identifier "b" is undefined'),
    ("a/x.h: No such file or directory", "b/x.h: No such file or directory"),
]


@pytest.mark.parametrize(("a", "b"), OTHERS)
def test_what_may_be_a_type_or_a_function_keeps_its_name(a, b):
    """Also a name that the compiler does not know."""
    assert first_error(a) != first_error(b)


def test_other_errors_keep_their_names():
    """A parameter of a call that is refused is no variable of a compiler's."""
    for text in ('parameter "k" must be an int', "cannot load: a/b.so: No such file or directory"):
        assert text.replace("a/b.so", "FILE") == normalise(text)


def test_every_error_of_a_log():
    """Not the first alone; with the types of each, const or not."""
    log = (
        'k.cu(3): error: no operator "*" matches these operands\n            operand types are: __half * const float\n'
        'k.cu(4): error: expected a ";"\n\n2 errors detected in the compilation of "k.cu".\n'
    )
    assert ['no operator "*" matches these operands: __half * float', 'expected a ";"'] == errors(log)
