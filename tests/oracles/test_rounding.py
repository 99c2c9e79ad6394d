"""oracles.rounding: formats, the simulated tensor core, and the bounds of dot products against it."""

# ruff: noqa: SIM300 - the expected value stands first

import itertools
import math
from fractions import Fraction

import pytest
import torch

from oracles.rounding import (
    A100,
    CUDA_CORE,
    H100,
    LARGEST,
    MODELS,
    OVERFLOW,
    U16,
    U32,
    UNKNOWN,
    V100,
    dot_error,
    exponent_of,
    gamma,
    gammas,
    model_of,
    power_of_two,
    round_to,
    simulate_matmul,
)

FORMATS = (torch.float16, torch.bfloat16, torch.float32)
ACCUMULATORS = (torch.float32, torch.float16)


def float64(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_gamma():
    """n·u / (1 − n·u), infinite when that proves nothing."""
    assert Fraction(3, 2**24 - 3) == pytest.approx(gamma(3, U32), rel=1e-15)
    assert 0 == gamma(0, U32)
    assert math.inf == gamma(2**24, U32)
    many = torch.tensor([0.0, 3.0, 2.0**24, 2.0**25], dtype=torch.float64)
    assert [gamma(n, U32) for n in many.tolist()] == gammas(many, U32).tolist()


@pytest.mark.parametrize("dtype", FORMATS)
def test_rounding_to_nearest_is_that_of_torch(dtype):
    """Of float32 numbers (torch rounds others twice), from below the subnormals to beyond the largest."""
    random = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (20000,), generator=random, dtype=torch.int64).to(torch.int32)
    x = torch.cat([bits.view(torch.float32).nan_to_num(0, 0, 0), torch.randn(20000, generator=random)])
    assert torch.equal(x.to(dtype).double(), round_to(x.double(), dtype))


def test_rounding_happens_once():
    """A number just above a tie of float16, which float32 would put on the tie."""
    tie = 1 + 2.0**-11
    assert [1.0, 1 + 2.0**-10, 1 + 2.0**-10] == round_to(
        float64(tie, tie + 2.0**-40, tie + 2.0**-20), torch.float16
    ).tolist()


@pytest.mark.parametrize("dtype", FORMATS)
def test_overflow_begins_half_a_unit_past_the_largest(dtype):
    """To nearest; and infinities and NaN stay."""
    limit, largest = OVERFLOW[dtype], LARGEST[dtype]
    got = round_to(float64(limit, -limit, math.nextafter(limit, 0), math.inf, math.nan), dtype)
    assert [math.inf, -math.inf, largest, math.inf] == got[:4].tolist()
    assert bool(got[4].isnan())


def test_truncation_is_toward_zero():
    """On both sides, subnormals too."""
    step = 2.0**-23
    x = float64(1 + 1.9 * step, -1 - 1.9 * step, 1.5 * 2.0**-149, -0.9 * 2.0**-149)
    assert [1 + step, -1 - step, 2.0**-149, 0.0] == round_to(x, torch.float32, truncate=True).tolist()


def test_powers_and_exponents():
    """Exact over the range of float64's normal numbers."""
    exponents = torch.arange(-1022, 1024)
    assert [math.ldexp(1.0, e) for e in range(-1022, 1024)] == power_of_two(exponents).tolist()
    assert torch.equal(exponents, exponent_of(power_of_two(exponents) * -1.5))
    assert int(exponent_of(float64(0.0))) < -1100


def one_dot(terms, core, accumulator=torch.float32, c=0.0):
    """c plus the terms, each as a product with 1."""
    a = float64(*terms)[None]
    return simulate_matmul(a, torch.ones_like(a).mT, core, accumulator, torch.full((1, 1), c)).item()


@pytest.mark.parametrize("core", [V100, A100, H100])
def test_what_a_probe_of_the_device_would_see(core):
    """Extra bits, block size and truncation, by sums of numbers that are half of the last place of 1 and less."""
    half = 2.0**-24
    assert 1.0 == one_dot([half], core, c=1.0)
    # Two halves of the last place make one if a bit below it is kept; else each is lost by itself.
    assert (1.0 if core.extra_bits == 0 else 1 + 2 * half) == one_dot([half, half], core, c=1.0)
    # So they do not when they come in different blocks.
    assert 1.0 == one_dot([half] + [0.0] * (core.block - 1) + [half], core, c=1.0)
    # Four quarters need two bits.
    assert (1 + 2 * half if core.extra_bits == 2 else 1.0) == one_dot([half / 2] * 4, core, c=1.0)
    # A float32 result is cut off, a float16 one rounded to even.
    assert 1 + 2 * half == one_dot([2 * half, half], core, c=1.0)
    assert [1.0, 1 + 2.0**-9] == [one_dot([x * 2.0**-11], core, torch.float16, c=1.0) for x in (1, 3)]


def test_order_inside_a_block_is_irrelevant():
    """Sums of any permutation are equal; across blocks they are not."""
    terms = [1.0, 2.0**-24, 3.0, -2.0, 2.0**-25, 2.0**-23, -1.0, 2.0**-24]
    orders = list(itertools.permutations(terms))[::577]
    assert 1 == len({one_dot(order, A100) for order in orders})
    assert 1 < len({one_dot(order, V100) for order in orders})


def test_infinities_and_nan_go_through():
    """As IEEE addition has them, and by overflow."""
    assert math.inf == one_dot([math.inf, 1.0], A100)
    assert math.isnan(one_dot([math.inf, -math.inf], A100))
    assert math.isnan(one_dot([math.nan, 1.0], A100))
    assert math.inf == one_dot([65504.0, 16.0], H100, torch.float16)
    assert 65504.0 == one_dot([65504.0, 15.0], H100, torch.float16)
    # Beyond the range between two blocks, and back: too late.
    assert math.inf == one_dot([65504.0, 65504.0] + [0.0] * 6 + [-65504.0] * 2, A100, torch.float16)
    assert 0.0 == one_dot([65504.0, 65504.0] + [0.0] * 6 + [-65504.0] * 2, H100, torch.float16)


def test_without_a_tensor_core_it_is_a_chain_of_fused_multiply_adds():
    """Which float64 can imitate: product and sum are exact in it, or nearly."""
    a = torch.randn(1, 64, generator=torch.Generator().manual_seed(1)).half().double()
    b = torch.randn(64, 1, generator=torch.Generator().manual_seed(2)).half().double()
    total = 0.0
    for x, y in zip(a[0], b[:, 0]):
        total = torch.tensor(total + x.item() * y.item(), dtype=torch.float64).float().item()
    assert total == simulate_matmul(a, b, CUDA_CORE).item()


def data(sign, d, seed, dtype=torch.float16):
    random = torch.Generator().manual_seed(seed)
    a, b = torch.randn(24, d, generator=random), torch.randn(d, 24, generator=random)
    if sign == "same":
        a, b = a.abs(), b.abs()
    if sign == "spread":
        a, b = a * torch.exp(1.5 * torch.randn(a.shape, generator=random)), b
    return a.to(dtype).double(), b.to(dtype).double()


def partial_sums(a, b, block):
    return sum((a[:, : i + block] @ b[: i + block]).abs() for i in range(0, a.shape[1], block))


@pytest.mark.parametrize("accumulator", ACCUMULATORS)
@pytest.mark.parametrize("name", MODELS)
def test_dot_products_are_within_their_bound_and_near_it(name, accumulator):
    """Both forms, all models, random, same-sign and widely spread data; the running form is never the wider by much."""
    core = MODELS[name]
    worst = {"running": 0.0, "a priori": 0.0}
    for d, sign in itertools.product((64, 128, 256), ("random", "same", "spread")):
        a, b = data(sign, d, d)
        total, exact = a.abs() @ b.abs(), a @ b
        error = (simulate_matmul(a, b, core, accumulator) - exact).abs()
        running = dot_error(core, d, total, accumulator, partial_sums(a, b, core.block))
        before = dot_error(core, d, total, accumulator)
        assert bool((running <= before * (1 + 2 / core.blocks(d))).all())
        worst["running"] = max(worst["running"], float((error / running).max()))
        worst["a priori"] = max(worst["a priori"], float((error / before).max()))
    assert 1 >= max(worst.values())
    assert 0.1 <= worst["running"], worst
    assert 0.06 <= worst["a priori"], worst


@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize("core", [A100, H100, CUDA_CORE])
def test_the_unknown_model_covers_every_other(core, d):
    """Its bounds are the largest in both forms; float16 sums of a chain are rounded once, at the end."""
    for sign in ("random", "same", "spread"):
        a, b = data(sign, d, d)
        total = a.abs() @ b.abs()
        partial = {c: partial_sums(a, b, c.block) for c in (core, UNKNOWN)}
        for accumulator in ACCUMULATORS if core.block > 1 else (torch.float32,):
            assert bool((dot_error(UNKNOWN, d, total, accumulator) >= dot_error(core, d, total, accumulator)).all())
            running = [dot_error(c, d, total, accumulator, partial[c]) for c in (core, UNKNOWN)]
            assert bool((running[1] >= running[0]).all())
        once = round_to(simulate_matmul(a, b, CUDA_CORE), torch.float16)
        error = (once - a @ b).abs()
        assert bool((error <= dot_error(UNKNOWN, d, total, torch.float16, partial[UNKNOWN])).all())


@pytest.mark.parametrize("length", [1, 7, 8, 9, 100, 4096])
def test_the_unknown_model_covers_long_sums(length):
    """A priori, for any number of terms."""
    blocks = {core: torch.tensor(float(core.blocks(length))) for core in (A100, H100, CUDA_CORE, UNKNOWN)}
    most = UNKNOWN.relative(blocks[UNKNOWN])
    assert all(bool(core.relative(n) <= most) for core, n in blocks.items())


def test_the_figures_of_the_design():
    """d = 128 with float16 sums on an H200: about 0.0039·T."""
    assert 128 / 16 * U16 == pytest.approx(float(dot_error(H100, 128, torch.ones(()), torch.float16)), rel=0.02)
    assert H100 == model_of("sm_90")
    assert A100 == model_of("sm_89")
    assert UNKNOWN == model_of("sm_75")
