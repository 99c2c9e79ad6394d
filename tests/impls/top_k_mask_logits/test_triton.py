# ruff: noqa: SIM300
"""Long rows in Triton: what is done to which, and that everything done is right, under the interpreter's small tiles."""

import json

import pytest

from tests.impls.running import run_python


@pytest.fixture(scope="module")
def report():
    return json.loads(run_python("-m", "tests.impls.top_k_mask_logits.triton_paths", TRITON_INTERPRET="1"))


def test_every_row_comes_out_right_in_place_and_not(report):
    """In all three dtypes, whichever way was taken."""
    assert [] == report["wrong"]


@pytest.mark.parametrize(
    ("row", "passes"),
    [
        ("ordinary, small k", ["write"]),
        ("ascending", ["write"]),
        ("descending", ["write"]),
        ("all equal, small k", ["write"]),
        ("two values, small k", ["write"]),
        ("zeros of both signs", ["write"]),
        ("all -inf, small k", ["write"]),
        ("all NaN", ["write"]),
        ("large ones outside of the sample", ["write"]),
        ("all equal, large k", ["read"]),
        ("all -inf, large k", ["read"]),
        ("ordinary, k = vocab - 1", ["read"]),
        ("two values, k at the step", ["read", "read"]),
        ("two values, k after the step", ["read", "read"]),
    ],
)
def test_passes_over_a_row(report, row, passes):
    """A small k takes one pass that writes, a large one few that read, and none of these rows the radix select."""
    assert passes == report["ways"][row]


@pytest.mark.parametrize(
    ("row", "first"),
    [("too many to note", "write"), ("the sample is misleading", "read"), ("ordinary, large k", "read")],
)
def test_what_defeats_the_brackets_takes_the_radix_select(report, row, first):
    """After the bounded number of passes, be it after one that has written."""
    passes = report["ways"][row]
    assert (first, "radix") == (passes[0], passes[-1])
    assert len(passes) <= 6
