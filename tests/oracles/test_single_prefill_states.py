"""oracles.single_prefill: the states that a right kernel may give, rule by rule."""

# ruff: noqa: SIM300 - the expected value stands first

import itertools
import math

import pytest
import torch

from oracles.rounding import A100, H100
from oracles.single_prefill import Semantics, judge, reference
from tests.oracles.simulated import Kernel, draw, infinite, small

NAN, INF = math.nan, math.inf
STATES = {"nan": NAN, "+inf": INF, "-inf": -INF}


def accepted(ref, name="out", place=0):
    """What may stand at an element, of nan, +inf, -inf, the right value (or 0), and a number far from it."""
    want = ref.want[name].to(ref.dtype[name]).view(-1)[place].nan_to_num(0, 0, 0).item()
    values = {**STATES, "right": want, "other": want + 100 if abs(want) < 1000 else want / 2}
    return {state for state, value in values.items() if not wrong_at(ref, name, value, place)}


def wrong_at(ref, name, value, place):
    """Whether that value is wrong at one element where all others are right."""
    outputs = {other: want.to(ref.dtype[other]) for other, want in ref.want.items()}
    outputs[name] = outputs[name].clone()
    outputs[name].view(-1)[place] = value
    judged = judge(outputs, ref)[name]
    assert judged.kind is None or [place] == judged.wrong.reshape(-1).nonzero()[:, 0].tolist()
    return judged.kind is not None


def both(ref):
    """States of the first element of out and of the first LSE."""
    return accepted(ref), accepted(ref, "lse")


def test_finite_rows_have_one_right_value():
    """No NaN, no infinity, nothing else."""
    assert ({"right"}, {"right"}) == both(reference(*small(), return_lse=True))


def test_a_row_without_keys_is_exactly_zero():
    """And its LSE -inf; the smallest subnormal is too much."""
    ref = reference(*small(), custom_mask=torch.zeros(1, 4, dtype=torch.bool), return_lse=True)
    assert ({"right"}, {"-inf"}) == both(ref)
    assert wrong_at(ref, "out", 2.0**-24, 0)
    assert not wrong_at(ref, "out", -0.0, 0)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_an_excluded_key_has_no_influence(bad):
    """Bit for bit the same reference as with a zero there."""
    q, k, v = draw(2, 1, 3, 5, 64, torch.float16, 2)
    k[4] = 0
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[:, 4] = mask[0] = False
    for options in ({}, {"logits_soft_cap": 2.0}, {"use_fp16_qk_reduction": True}, {"sm_scale": 0}):
        before = reference(q, k, v, custom_mask=mask, return_lse=True, **options)
        spoiled = k.clone()
        spoiled[4] = bad
        after = reference(q, spoiled, v, custom_mask=mask, return_lse=True, **options)
        for name in ("out", "lse"):
            assert torch.equal(before.want[name], after.want[name])
            assert torch.equal(before.bound[name], after.bound[name])
            assert torch.equal(before.extra[name], after.extra[name])


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_an_excluded_value_may_make_its_column_nan(bad):
    """0·NaN and 0·inf: that column of rows of that key head, those without any key too; nothing else may change."""
    q, k, v = draw(2, 2, 2, 5, 64, torch.float16, 2)
    v[4, 0, 7] = bad
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[:, 4] = mask[0] = False
    ref = reference(q, k, v, custom_mask=mask, return_lse=True)
    for row, head, column in itertools.product((0, 1), (0, 1), (6, 7)):
        expected = {"nan", "right"} if (head, column) == (0, 7) else {"right"}
        assert expected == accepted(ref, "out", (row * 2 + head) * 64 + column)
    assert {"right"} == accepted(ref, "lse", 2)


@pytest.mark.parametrize(("value", "expected"), [(NAN, {"nan"}), (INF, {"nan", "+inf"}), (-INF, {"nan", "-inf"})])
def test_an_allowed_value_that_is_not_finite(value, expected):
    """Reaches its column, as itself or, where its weight rounds to 0, as NaN; the LSE knows nothing of it."""
    q, k, v = small()
    v[2, 0, 0] = value
    ref = reference(q, k, v, return_lse=True)
    assert (expected, {"right"}) == both(ref)
    assert {"right"} == accepted(ref, "out", 1)
    v[3, 0, 0] = -value
    assert {"nan"} == accepted(reference(q, k, v))


def test_a_nan_score_makes_the_row_nan():
    """Out and LSE, whatever else is in the row: from q or k, or from inf − inf."""
    for place in ("q", "k", "difference"):
        q, k, v = small()
        if place == "q":
            q[0, 0, 3] = NAN
        elif place == "k":
            k[1, 0, 3] = NAN
        else:
            q[0, 0, :2] = torch.tensor([INF, -INF])
            k[:, 0, :2] = 1
        k[2] = 60000
        v[3] = INF
        for options in ({}, {"logits_soft_cap": 1.0}, {"use_fp16_qk_reduction": True, "sm_scale": -1.0}):
            assert ({"nan"}, {"nan"}) == both(reference(q, k, v, return_lse=True, **options))


def test_infinite_scores():
    """+inf makes NaN of the row; -inf is a key that is not there; nothing but -inf may be either."""
    q, k, v = infinite(1)
    assert ({"nan", "+inf", "-inf"}, {"nan", "+inf"}) == both(reference(q, k, v, return_lse=True))
    q[0, 0, 0], k[:, 0, 0] = -INF, torch.tensor([0.0, 1, 0, 0])
    assert {"nan"} == accepted(reference(q, k, v))  # −inf·0
    k[:, 0, 0] = 1
    assert ({"nan", "right"}, {"nan", "-inf"}) == both(reference(q, k, v, return_lse=True))
    assert 0 == reference(q, k, v).want["out"].abs().max()


def test_minus_infinity_by_value_vanishes():
    """Beside finite scores, by ALiBi with an infinite slope; and its value is no more than an excluded one's."""
    q, k, v = small()
    slope = torch.tensor([INF])
    ref = reference(q, k[1:], v[1:], alibi_slopes=torch.tensor([0.0]), return_lse=True)
    # The last key stands at distance 0, where inf·0 is NaN.
    assert {"nan"} == accepted(reference(q, k, v, alibi_slopes=slope))
    transform = Semantics(logits_transform=lambda s, h, i, j, n, m: torch.where(j == 0, -INF, s))
    gone = reference(q, k, v, return_lse=True, semantics=transform)
    assert torch.allclose(ref.want["out"], gone.want["out"])
    assert torch.allclose(ref.want["lse"], gone.want["lse"])
    assert ({"right"}, {"right"}) == both(gone)
    v[0, 0, 0] = NAN
    assert {"nan", "right"} == accepted(reference(q, k, v, semantics=transform))


def test_a_soft_cap_brings_infinity_back():
    """cap·tanh(±inf) is ±cap."""
    q, k, v = infinite(1)
    capped = reference(q, k, v, logits_soft_cap=3.0, return_lse=True)
    assert ({"right"}, {"right"}) == both(capped)
    weights = torch.tensor([-3.0, 3, -3, -3], dtype=torch.float64).softmax(0)
    assert torch.allclose(weights @ v[:, 0].double(), capped.want["out"][0, 0])


def test_infinity_times_a_scale_of_zero_is_anybodys():
    """NaN, or the row of zeros that a kernel gets which leaves the product out."""
    for tensors in (infinite(1), infinite(-1)):
        ref = reference(*tensors, sm_scale=0.0, return_lse=True)
        assert {"nan", "+inf", "-inf", "right", "other"} == accepted(ref)
    assert {"right"} == accepted(reference(*small(), sm_scale=0.0))


@pytest.mark.parametrize("options", [{"sm_scale": 1e300}, {"logits_soft_cap": 1e300}, {"logits_soft_cap": 1e-45}])
def test_what_float32_cannot_hold_is_not_judged(options):
    """But for rows without any key."""
    mask = torch.tensor([[True] * 4, [False] * 4])
    q, k, v = draw(1, 1, 2, 4, 64, torch.float16, 0)
    ref = reference(q, k, v, custom_mask=mask, return_lse=True, **options)
    assert {"nan", "+inf", "-inf", "right", "other"} == accepted(ref) == accepted(ref, "lse")
    assert {"right"} == accepted(ref, "out", 64)
    assert {"-inf"} == accepted(ref, "lse", 1)


# The range of float16 sums.

EITHER = {"nan", "+inf", "-inf", "right"}
OVERFLOWS = {"nan", "+inf", "-inf"}
FINITE = {"right"}
FLAG = {"use_fp16_qk_reduction": True, "return_lse": True}
KNOWN = Semantics(order="sequential", tensor_core=H100)


def sums(*steps, keys=2):
    """A row whose first score's sums over 16 places of d each are the steps, and whose other scores are 0."""
    q, k = torch.zeros(1, 1, 64), torch.zeros(keys, 1, 64)
    q[..., ::16] = 64
    for i, step in enumerate(steps):
        k[0, 0, 16 * i] = step / 64
    return q.half(), k.half(), draw(1, 1, 1, keys, 64, torch.float16, 3)[2]


@pytest.mark.parametrize(
    ("steps", "known", "unknown"),
    [
        ((60000,), FINITE, FINITE),
        ((65472, -65472), EITHER, EITHER),
        ((48000, 47000, -90000), OVERFLOWS, EITHER),
        ((48000, -90000, 47000), FINITE, EITHER),
        ((40000, 20000, 4000, -64000), FINITE, FINITE),
        ((48000, 47000), OVERFLOWS, OVERFLOWS),
        ((48000, 17600), EITHER, EITHER),
        ((-48000, 47000, -48000, -50000), FINITE, FINITE),
        ((-48000, -48000, 70000, 66000), FINITE, EITHER),
        ((48000, -47000, -90000), FINITE, FINITE),
    ],
)
def test_the_range_of_float16_sums(steps, known, unknown):
    """Finite, overflowing or either, by the partial sums where their order is known; else by the sums of each sign, and
    by the final one. What is -inf is gone, and what the row is then is known."""
    assert known == accepted(reference(*sums(*steps), **FLAG, semantics=KNOWN))
    for semantics in (Semantics(), Semantics(order="sequential"), Semantics(tensor_core=H100)):
        found = accepted(reference(*sums(*steps), **FLAG, semantics=semantics))
        assert unknown == found if semantics.order == "any" else found in (known, unknown)


def test_an_overflow_downward_vanishes():
    """exp(-inf) = 0, where the exact score would have had no weight either; but a scale may make it heavy."""
    q, k, v = sums(-48000, -47000)
    ref = reference(q, k, v, **FLAG, semantics=KNOWN)
    assert torch.allclose(v[1, 0].double(), ref.want["out"][0, 0])
    light = reference(q, k, v, **FLAG, semantics=KNOWN, sm_scale=1e-6)
    assert torch.allclose(v[1, 0].double(), light.want["out"][0, 0])
    # The exact answer, for a sum that may overflow or not: the bound reaches from one to the other.
    maybe = reference(*sums(-48000, -17600), **FLAG, semantics=KNOWN, sm_scale=1e-6)
    exact, without = maybe.want["out"][0, 0], v[1, 0].double()
    assert {"right"} == accepted(maybe)
    assert bool(((exact - without).abs() <= maybe.bound["out"][0, 0]).all())


def test_where_the_scale_goes_decides():
    """A power of two before the sum keeps it in range; a negative scale turns +inf into a key that vanishes."""
    q, k, v = sums(48000, 47000)
    before = Semantics(order="sequential", tensor_core=H100, fp16_scale="power_of_two")
    assert FINITE == accepted(reference(q, k, v, **FLAG, semantics=before))
    assert OVERFLOWS == accepted(reference(q, k, v, **FLAG, semantics=before, sm_scale=1.0))
    turned = reference(q, k, v, **FLAG, semantics=KNOWN, sm_scale=-0.1)
    assert FINITE == accepted(turned)
    assert torch.allclose(v[1, 0].double(), turned.want["out"][0, 0])


def test_what_is_lost_before_the_sum_is_allowed_for():
    """q times a power of two is rounded to half: subnormals lose bits, and the bound knows how many."""
    q, k, v = sums(1e-3, keys=3)
    q[:] = 2.0**-14 * (1 + 2.0**-10)
    k[:] = torch.randn(3, 1, 64, generator=torch.Generator().manual_seed(0)).half() * 100
    bounds = {
        word: reference(q, k, v, **FLAG, sm_scale=2.0**-6, semantics=Semantics(fp16_scale=word)).bound["lse"]
        for word in ("after", "power_of_two")
    }
    kernel = Kernel(A100, half_sums=True, fp16_scale="power_of_two")
    out, lse = kernel(q, k, v, allowed=torch.ones(1, 3, dtype=torch.bool), scale=2.0**-6)
    ref = reference(q, k, v, **FLAG, sm_scale=2.0**-6, semantics=Semantics(fp16_scale="power_of_two"))
    assert [None, None] == [j.kind for j in judge({"out": out, "lse": lse}, ref).values()]
    assert bool((bounds["after"] < bounds["power_of_two"]).all())


def test_a_soft_cap_after_an_overflow():
    """±cap, which is what the exact score gives when the cap is small, and the bound reaches both when it is not."""
    for cap, semantics in itertools.product((50.0, 6e4), (KNOWN, Semantics())):
        q, k, v = sums(48000, 17600)
        ref = reference(q, k, v, **FLAG, logits_soft_cap=cap, sm_scale=1.0, semantics=semantics)
        assert {"right"} == accepted(ref)
        high = torch.tensor([cap, 0.0], dtype=torch.float64).softmax(0)
        assert bool((((high @ v[:, 0].double()) - ref.want["out"][0, 0]).abs() <= ref.bound["out"][0, 0]).all())
        assert not wrong_at(ref, "lse", cap / math.log(2), 0)


def test_a_transformed_score_may_be_rounded_to_half():
    """From 65504 on it may be +inf; a kernel that keeps it in float32 is right too."""
    for scale, expected in ((4.0, FINITE), (6.0, EITHER)):
        ref = reference(*sums(12000), **FLAG, sm_scale=scale, semantics=KNOWN)
        assert expected == accepted(ref)
    assert FINITE == accepted(reference(*sums(12000), sm_scale=6.0))


def test_rows_of_which_every_score_may_vanish_are_free():
    """-inf everywhere: NaN, or zeros; else the exact answer."""
    ref = reference(*sums(-12000, keys=1), **FLAG, sm_scale=6.0)
    assert {"nan", "-inf", "right"} <= accepted(ref, "lse")
    assert {"nan", "right"} <= accepted(ref)


def test_a_hook_on_sums_that_may_overflow_is_not_judged():
    """What it makes of infinity is its own affair."""
    hook = Semantics(logits_transform=lambda s, h, i, j, n, m: s.clamp(-5, 5), tensor_core=H100)
    assert "other" in accepted(reference(*sums(48000, 17600), **FLAG, semantics=hook))
    assert FINITE == accepted(reference(*sums(12000), **FLAG, semantics=hook))


# The range of float32, which bfloat16 inputs reach.


def test_float32_sums_may_overflow():
    """From half of the largest number on, either way at once included; whatever the order."""
    q, k, v = small(dtype=torch.bfloat16)
    q[0, 0, :2], k[1, 0, :2] = 1e20, torch.tensor([1e19, -1e19])
    assert EITHER == accepted(reference(q, k, v))
    k[1, 0, :2] = 1e19
    assert EITHER == accepted(reference(q, k, v, sm_scale=1e-30))
    k[1, 0, :2] = 1e17
    assert FINITE == accepted(reference(q, k, v))
    assert EITHER == accepted(reference(q, k, v, sm_scale=10.0))
    slopes = torch.tensor([-1e38])
    assert EITHER == accepted(reference(*small(), alibi_slopes=slopes))


def test_sums_of_large_values_may_overflow():
    """Only their column; and a value that its bound takes past the largest bfloat16 may be that infinity alone."""
    q, k, v = small(dtype=torch.bfloat16)
    v[:, 0, 0], v[:, 0, 1] = 3e38, 1e30
    ref = reference(q, k, v)
    assert EITHER == accepted(ref)
    assert FINITE == accepted(ref, "out", 1)
    q, k, v = small()
    v[:, 0, 0], v[:, 0, 1] = 65504, -65504
    ref = reference(q, k, v)
    assert [{"+inf", "right"}, {"-inf", "right"}, {"right"}] == [accepted(ref, "out", i) for i in range(3)]
