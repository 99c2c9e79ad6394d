"""harness.values: what a fill spells out, which values are plainer, and where single steps over them lead."""

# ruff: noqa: SIM300 - the expected value stands first

import math

import pytest
import torch
from hypothesis import given
from msgspec.structs import replace

from harness.case import Case, Fill, Planted, View, tidy, validate
from harness.fill import make_bits
from harness.operators import top_k_mask_logits
from harness.reduce import reduce
from harness.strategies import SCALES
from harness.values import EXPLICIT, explicit, is_explicit, rank, sliced, spelled, value_steps
from tests.harness.making import drawn, mask_case

CASES = top_k_mask_logits.cases(SCALES["cpu", "dev"])


def bits(fill, view):
    return make_bits(fill, getattr(torch, view.dtype), view.extent, "cpu").tolist()


def values(case, name="logits"):
    """The elements of a tensor, in row-major order."""
    view = case.tensors[name]
    dtype = getattr(torch, view.dtype)
    return make_bits(case.fills[name], dtype, view.extent, "cpu").view(dtype).tolist()


@drawn(100)
@given(CASES)
def test_a_fill_spelled_out_has_the_same_bits(case):
    """Of any kind, with what is planted in it."""
    for name, fill in case.fills.items():
        view = case.tensors[name]
        if 0 < math.prod(view.extent) <= EXPLICIT:
            assert bits(fill, view) == bits(explicit(spelled(fill, view)), view)


def test_one_value_is_no_list():
    """A constant stays one value; -0.0 is another value than 0.0."""
    assert Fill("cycle", 0, (2.0,)) == explicit((2.0, 2.0, 2.0))
    assert 2 == len(explicit((0.0, -0.0)).values)
    view = View(0, "float32", (1, 3), (3, 1))
    assert [False, True, False, True] == [
        is_explicit(fill, view)
        for fill in (
            Fill("cycle", 0, (1.0,)),
            Fill("cycle", 0, (1.0, 2.0, 1.0)),
            Fill("cycle", 0, (1.0, 2.0)),
            Fill("cycle", 0, (1.0,), (Planted(1, 2.0),)),
        )
    ]


def test_few_exceptions_are_told_as_such():
    """One element of eight is another: the seven, and where it is. Three are a list."""
    one, three = (0.0,) * 7 + (2.5,), (0.0,) * 5 + (1.0, 2.0, 3.0)
    assert Fill("cycle", 0, (0.0,), (Planted(7, 2.5),)) == explicit(one)
    assert Fill("cycle", 0, three) == explicit(three)


def test_the_order_of_values():
    """Zero, one, small integers, negative ones, infinities and NaN, large integers, short fractions, long ones, bits."""
    order = [0.0, -0.0, 1.0, 2.0, 16.0, -1.0, -2.0, "-inf", "inf", "nan", 17.0, -1000.0, 0.5, -0.5, 0.123, "0x7fc00001"]
    assert order == sorted([*order[8:], *order[:8]], key=rank)


def needs_large(case):
    return any(v > 2.5 for v in values(case))


MINIMA = {
    "one value above 2.5": (needs_large, 2, (3.0,)),
    "two different values": (lambda c: len(set(values(c))) > 1, 4, (0.0, 1.0)),
    "a sum of 3": (lambda c: sum(v for v in values(c) if math.isfinite(v)) >= 3, 4, (3.0,)),
    "a NaN beside a number below zero": (
        lambda c: any(math.isnan(v) for v in values(c)) and any(v < 0 for v in values(c)),
        2,
        None,
    ),
    "a fraction": (lambda c: any(v % 1 not in (0, math.inf) for v in values(c) if math.isfinite(v)), 2, (0.5,)),
}
"""Of a 1 × n tensor that holds specials: what fails, the columns it is given, and its smallest values, sorted."""


@pytest.mark.parametrize("name", MINIMA)
def test_values_go_to_a_minimum_derived_by_hand(name):
    """Zeros where nothing matters, and what matters as plain as it can be."""
    fails, columns, expected = MINIMA[name]
    seed = next(s for s in range(1000) if fails(mask_case(1, columns, fill=Fill("specials", s))) and s > 3)
    case = mask_case(1, columns, fill=Fill("specials", seed))
    result = reduce(case, fails, budget=3000, passes=(value_steps,))
    assert result.complete
    assert fails(result.smallest)
    if expected is not None:
        assert expected == tuple(sorted(values(result.smallest)))
    else:
        assert ["-1.0", "nan"] == sorted(map(str, values(result.smallest)))


def test_an_element_that_matters_keeps_its_row_and_column():
    """Rows and columns beside it go, the last ones and the first ones alike."""
    spelled_out = tuple(7.5 if i == 5 else 0.25 * i for i in range(12))
    case = mask_case(3, 4, fill=Fill("cycle", 0, spelled_out))
    result = reduce(case, lambda c: 7.5 in values(c), budget=2000)
    assert ((1, 1), [7.5]) == (result.smallest.tensors["logits"].shape, values(result.smallest))


def test_slicing_keeps_the_elements_of_the_indices():
    """Rows 0 and 2, then columns 3 and 1, of three by four; a tensor without the dimension stays."""
    case = mask_case(3, 4, k=(5, 6, 7), fill=Fill("cycle", 0, tuple(float(i) for i in range(12))))
    rows = sliced(case, "batch", (0, 2))
    assert ([0, 1, 2, 3, 8, 9, 10, 11], [5, 7]) == (values(rows), values(rows, "k"))
    columns = sliced(rows, "vocab", (3, 1))
    assert ([3, 1, 11, 9], [5, 7]) == (values(columns), values(columns, "k"))


def test_a_smaller_size_keeps_explicit_values_where_they_are():
    """Two columns less: each row keeps its first two values."""
    case = mask_case(2, 4, fill=Fill("cycle", 0, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)))
    result = reduce(case, lambda c: 5.0 in values(c) and c.tensors["logits"].shape[0] == 2, budget=30)
    assert 5.0 in values(result.smallest)
    assert [0.0, 5.0] == sorted(values(result.smallest)) or [1.0, 5.0] == sorted(values(result.smallest))


def test_what_is_planted_is_spelled_out_with_the_rest():
    """A planted value becomes a value among others."""
    case = mask_case(1, 3, fill=Fill("spread", 9, (), (Planted(1, "nan"),)))
    (step,) = [step for what, step in value_steps(case) if what == "spelled out: logits"]
    assert "nan" == step.fills["logits"].values[1]


def test_elements_that_overlap_are_spelled_out_once():
    """Of an expanded tensor the memory under it."""
    view = View(0, "float32", (3, 2), (0, 1))
    case = tidy(Case("top_k_mask_logits", {"form": "new", "k": 1}, (8,), {"logits": view}, {"logits": Fill("spread")}))
    (step,) = [step for what, step in value_steps(case) if what == "spelled out: logits"]
    assert 2 == len(step.fills["logits"].values)


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [("int32", -(2**31), -1), ("int64", -(2**63), -1), ("int32", 2**31 - 1, 1), ("int64", 7, 1)],
)
def test_integers_do_not_wrap_on_their_way(dtype, value, expected):
    """What is not zero goes to one, and what is negative to minus one, in few steps."""
    case = mask_case(2, 3, k=(0, 0))
    view = replace(case.tensors["k"], dtype=dtype)
    start = tidy(
        replace(case, tensors={**case.tensors, "k": view}, fills={**case.fills, "k": Fill("cycle", 0, (0, value))})
    )
    sign = lambda c: (values(c, "k")[-1] > 0) - (values(c, "k")[-1] < 0)  # noqa: E731
    result = reduce(start, lambda c: "k" in c.tensors and sign(c) == sign(start), budget=200, passes=(value_steps,))
    assert (True, expected) == (result.complete, values(result.smallest, "k")[-1])


def test_fractions_end_where_nothing_plainer_is():
    """Eight different ones that all matter: in few steps, and at an end."""
    case = mask_case(1, 8, fill=Fill("spread", 3))
    start = tidy(case)
    fails = lambda c: len({v for v in values(c) if v % 1}) == 8  # noqa: E731
    assert fails(start)
    result = reduce(start, fails, budget=1200, passes=(value_steps,))
    assert result.complete


def test_large_tensors_are_not_spelled_out():
    """An entry stays a page."""
    assert [] == list(value_steps(mask_case(1, EXPLICIT + 1, fill=Fill("spread"))))


@drawn(60)
@given(CASES)
def test_every_step_is_a_valid_case(case):
    """It can be judged, and written to a file."""
    for _, step in value_steps(tidy(case)):
        validate(tidy(step))
