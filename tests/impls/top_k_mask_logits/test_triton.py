# ruff: noqa: SIM300
"""Long rows in Triton: what is done to which, and that everything done is right, under the interpreter's small tiles."""

import json

import pytest

from impls.top_k_mask_logits import triton
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
        ("large ones in one lane", ["write"]),
        ("large ones at a stride", ["write"]),
        ("large ones outside of the sample", ["write"]),
        ("too many to note", ["write", "read"]),
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


def test_what_defeats_the_brackets_takes_the_radix_select(report):
    """After the bounded number of passes."""
    assert ["read"] * 4 + ["radix"] == report["ways"]["the sample is misleading"]
    assert all(len(passes) <= 6 for passes in report["ways"].values())


def test_narrow_tiles_take_small_k_that_the_launcher_knows():
    """Up to 98 at 128256 elements, as the kernel decides; a k tensor goes to wide tiles."""
    narrow, wide = triton.PLANS[-2:]
    assert narrow.only_small_k
    takes = [narrow.takes(128256, k) for k in (1, 98, 99, 2048, None)]
    assert [True, True, False, False, False] == takes
    assert (True, False) == (narrow.takes(8192, 128), narrow.takes(8192, 129))
    assert wide.takes(128256, 98)
    assert wide.takes(128256, None)
