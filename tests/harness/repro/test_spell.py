"""harness.repro.spell: tensors as Python text that makes the same bits."""

# ruff: noqa: SIM300 - the expected value stands first

import math

import pytest
import torch

from harness.case import FILL_KINDS, ITEMSIZE, Fill
from harness.fill import make_bits
from harness.repro import spell


def again(x):
    """What the statements for a tensor make, and the statements."""
    lines = spell.define("x", x)
    names = {"torch": torch, "nan": math.nan, "inf": math.inf}
    exec("\n".join(lines), names)
    return names["x"], lines


def assert_same(x, y):
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    assert (x.dtype, x.shape) == (y.dtype, y.shape)
    assert torch.equal(x.view(whole), y.view(whole))


@pytest.mark.parametrize("dtype", ITEMSIZE)
@pytest.mark.parametrize("kind", [kind for kind in FILL_KINDS if kind != "file"])
def test_the_text_of_a_tensor_makes_its_bits(kind, dtype):
    """Any values: NaNs of every kind, subnormals, zeros of either sign."""
    for shape in ((9,), (3, 8), (2, 3, 4)):
        dtype_ = getattr(torch, dtype)
        bits = make_bits(Fill(kind, 11), dtype_, shape, "cpu")
        x = (bits.bool() if dtype == "bool" else bits.view(dtype_)).view(shape)
        assert_same(x, again(x)[0])


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (torch.zeros(3, 4), "x = torch.full((3, 4), 0.0, dtype=torch.float32)"),
        (torch.tensor([0.1, -math.inf]), "x = torch.tensor([0.1, -inf], dtype=torch.float32)"),
        (torch.tensor([0.1, 3e38], dtype=torch.bfloat16), "x = torch.tensor([0.1, 3e+38], dtype=torch.bfloat16)"),
        (torch.tensor([[1], [2]]), "x = torch.tensor([[1], [2]], dtype=torch.int64)"),
        (torch.ones(2, 0), "x = torch.empty((2, 0), dtype=torch.float32)"),
        (torch.tensor([True, False]), "x = torch.tensor([True, False], dtype=torch.bool)"),
        (torch.tensor(2.5), "x = torch.full((), 2.5, dtype=torch.float32)"),
    ],
)
def test_few_values_are_one_short_line(x, text):
    """With as few digits as the dtype needs."""
    y, lines = again(x)
    assert [text] == lines
    assert_same(x, y)


def test_one_value_but_for_a_few():
    """A large tensor that is nearly constant is said as that."""
    x = torch.full((2, 5000), -math.inf)
    x[1, 17], x[0, 4999] = 2.0, math.nan
    y, lines = again(x)
    assert 3 == len(lines)
    assert "x[1, 17] = 2.0" in lines
    assert_same(x, y)


def test_a_nan_with_a_payload_is_patched_in():
    """So that the other values stay readable."""
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    x.view(torch.int32)[1, 0] = -4194301
    y, lines = again(x)
    assert "x.view(torch.int32)[1, 0] = -4194301  # a NaN of these bits" == lines[-1]
    assert_same(x, y)


def test_long_lines_are_broken():
    """Nothing wider than a screen, whatever the number of values."""
    _, lines = again(torch.arange(60).view(2, 30) / 7)
    assert max(map(len, lines)) <= 104
