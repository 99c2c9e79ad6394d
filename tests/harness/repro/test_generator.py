"""harness.repro.generator: a script's own few lines make the bits of `harness.fill`."""

# ruff: noqa: SIM300 - the expected value stands first

import math

import pytest
import torch

from harness.case import FILL_KINDS, ITEMSIZE, Fill, Planted, Stored
from harness.fill import make_bits
from harness.repro.generator import Generator
from harness.repro.spell import NoScript

SHAPES = ((7,), (3, 37), (2, 3, 16))
SEEDS = (0, 7, (1 << 32) - 1)


def made(generator, expression, more=()):
    """The tensor of an expression beside a generator's functions, after some statements that change it."""
    names = {"torch": torch, **{name: getattr(math, name) for name in ("prod", "inf", "nan")}}
    exec("\n\n".join([*generator.functions, f"x = {expression}", *more]), names)
    return names["x"]


def assert_same(x, fill, shape):
    want = make_bits(fill, x.dtype, shape, "cpu")
    assert shape == tuple(x.shape)
    assert torch.equal(want, x.contiguous().view(want.dtype).view(-1))


@pytest.mark.parametrize("dtype", ITEMSIZE)
@pytest.mark.parametrize("kind", [kind for kind in FILL_KINDS if kind != "file"])
def test_a_script_makes_the_bits_of_the_harness(kind, dtype):
    """Every kind and dtype, with the values of the kind or without, for several seeds and shapes."""
    floats = getattr(torch, dtype).is_floating_point
    for values in ((), (3.0,), (-1.5, 0.1, 2.0)) if floats else ((), (3,), (300, -1, 2)):
        generator = Generator()
        for seed in SEEDS:
            for shape in SHAPES:
                fill = Fill(kind, seed, values)
                x = made(generator, generator.call(fill, getattr(torch, dtype), shape))
                assert getattr(torch, dtype) == x.dtype
                assert_same(x, fill, shape)


def test_stored_values_are_nobody_s_to_make():
    """They are spelled out, or there is no script."""
    with pytest.raises(NoScript, match="lie in a file"):
        Generator().call(Fill("file", file=Stored("0" * 64, "float32", (7,))), torch.float32, (7,))


@pytest.mark.parametrize("scale", [1e-8, 1e300, 0.0, "inf"])
@pytest.mark.parametrize("kind", ["uniform", "dominant"])
def test_any_scale(kind, scale):
    """Those that the dtype cannot hold included."""
    fill = Fill(kind, 3, (scale,))
    generator = Generator()
    assert_same(made(generator, generator.call(fill, torch.float32, (4, 5))), fill, (4, 5))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int64"])
def test_planted_values_are_planted(dtype):
    """The last of two at one place stays."""
    odd = "nan" if dtype != "int64" else -9
    fill = Fill("spread", 5, (), (Planted(3, odd), Planted(6, 2), Planted(6, 1), Planted(19, -3)))
    generator = Generator()
    call = generator.call(fill, getattr(torch, dtype), (4, 5))
    planted = generator.plant("x", fill, getattr(torch, dtype), 20)
    assert_same(made(generator, call, planted), fill, (4, 5))


def test_only_what_is_used_is_written():
    """One function for a kind, however many tensors use it; no mixer where nothing is random; none at all for none."""
    generator = Generator()
    assert [] == generator.functions
    assert "cycle(0, (5,))" == generator.call(Fill("cycle", 0, (1.0,)), torch.float32, (5,))
    assert 1 == len(generator.functions)
    for seed in range(3):
        assert f"spread({seed}, (2, 3))" == generator.call(Fill("spread", seed), torch.float16, (2, 3))
    assert ["mix", "words", "cycle", "spread"] == [
        text.strip().partition("(")[0].removeprefix("def ") for text in generator.functions
    ]
    assert "spread_2(0, (2, 3))" == generator.call(Fill("spread", 0), torch.float32, (2, 3))
