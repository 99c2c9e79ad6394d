"""The bound of oracles.single_prefill against a simulated kernel: never exceeded, and come near to in every mode.

The floors say that the bound is a test: the worst element of each mode reaches a twentieth of it. (For the LSE of a kernel
with float32 sums the bound is dominated by truncations that would all have to point one way; one-key rows of
same-sign data come nearest.)
"""

# ruff: noqa: SIM300 - the expected value stands first

import itertools
import math

import pytest
import torch

from oracles.rounding import A100, CUDA_CORE, H100, UNKNOWN, V100
from oracles.single_prefill import FINITE, Semantics, judge, reference
from tests.oracles.simulated import Kernel, causal, draw

SHAPES = ((12, 1), (12, 1), (12, 5), (8, 40), (4, 150))
"""(qo, kv): with one key the LSE is the score; with few, single errors show; then several tiles."""
FLOOR = 0.05


def ratios(kernel, tensors, *, soft_cap=None, slopes=None, mask=None, order="sequential", core=None, **options):
    """Judge the kernel's outputs; the largest ratio of each. They must be right by the kernel's own core, and UNKNOWN."""
    q, k, v = tensors
    allowed = mask if mask is not None else torch.ones(len(q), len(k), dtype=torch.bool)
    out, lse = kernel(q, k, v, allowed=allowed, scale=options.get("sm_scale"), soft_cap=soft_cap, slopes=slopes)
    largest = {}
    for model in (core or kernel.core, *(() if kernel.core == V100 else (UNKNOWN,))):
        semantics = Semantics(
            lse=kernel.lse,
            tanh=kernel.tanh,
            p=kernel.p,
            fp16_scale=kernel.fp16_scale,
            fp16_sums="rounded" if kernel.once else "accumulated",
            order=order,
            tile=str(kernel.tile or "all"),
            sum=kernel.row_sum,
            logits_transform=kernel.transform,
            tensor_core=model,
        )
        ref = reference(
            q,
            k,
            v,
            logits_soft_cap=soft_cap,
            alibi_slopes=slopes,
            custom_mask=mask,
            use_fp16_qk_reduction=kernel.half_sums,
            return_lse=True,
            semantics=semantics,
            **options,
        )
        judged = judge({"out": out, "lse": lse}, ref)
        assert {"out": None, "lse": None} == {name: j.kind for name, j in judged.items()}, model
        largest = largest or {name: j.ratio for name, j in judged.items()}
    return largest


def worst(kernels, shapes=SHAPES, dtype=torch.float16, d=64, **options):
    """The largest ratio of each output over some shapes, of normal and of positive data."""
    found = {"out": 0.0, "lse": 0.0}
    for seed, (qo_len, kv_len) in enumerate(shapes):
        tensors = draw(2, 1, qo_len, kv_len, d, dtype, seed)
        if seed == 0:
            tensors = tuple(x.abs() for x in tensors)
        for kernel in kernels:
            for name, ratio in ratios(kernel, tensors, **options).items():
                found[name] = max(found[name], ratio)
    return found


def assert_near(found, lse_floor=FLOOR):
    assert 1 >= max(found.values())
    assert FLOOR <= found["out"], found
    assert lse_floor <= found["lse"], found


ARITHMETIC = {
    "float32 sums, exact tanh": {},
    "float32 sums, approximate tanh": {"tanh": "approximate"},
    "float16 sums": {"half_sums": True},
}


@pytest.mark.parametrize("arithmetic", ARITHMETIC)
@pytest.mark.parametrize("soft_cap", [None, 50.0, 5.0])
@pytest.mark.parametrize("scale", [None, 0.5, 2.0])
def test_the_27_settings(scale, soft_cap, arithmetic):
    """Scales × soft caps × arithmetics, as in the design's experiment."""
    kernels = [Kernel(core, **ARITHMETIC[arithmetic]) for core in (A100, H100)]
    assert_near(worst(kernels, sm_scale=scale, soft_cap=soft_cap))


@pytest.mark.parametrize("half_sums", [False, True])
@pytest.mark.parametrize("core", [V100, A100, H100, CUDA_CORE])
def test_every_tensor_core(core, half_sums):
    """Each by its own model; and, but for V100, by the unknown one. A chain with float16 sums exists on no device."""
    if core == CUDA_CORE and half_sums:
        return
    assert_near(worst([Kernel(core, half_sums)]))


@pytest.mark.parametrize("d", [128, 256])
@pytest.mark.parametrize("half_sums", [False, True])
def test_larger_head_dims(d, half_sums):
    """Longer sums, more roundings."""
    assert_near(worst([Kernel(H100, half_sums)], SHAPES[:4], d=d))


@pytest.mark.parametrize("tile", [16, 32, 64, 128, None])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_dtypes_and_tiles(dtype, tile):
    """bfloat16 rounds P and out eight times as coarsely; a tile a rescaling, or none."""
    assert_near(worst([Kernel(H100, tile=tile)], dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("p", ["input", "float32"])
@pytest.mark.parametrize("row_sum", ["float32", "p"])
def test_what_is_rounded_before_the_product(p, row_sum, dtype):
    """P, or nothing; the row sum of rounded P or of what it was."""
    core = CUDA_CORE if p == "float32" else A100
    assert_near(worst([Kernel(core, p=p, row_sum=row_sum)], dtype=dtype))


@pytest.mark.parametrize("fp16_scale", ["after", "power_of_two"])
@pytest.mark.parametrize("back_to_half", [False, True])
@pytest.mark.parametrize("size", [1.0, 0.01, 3e-4, 8.0])
def test_float16_sums(size, back_to_half, fp16_scale):
    """Either side of the scale, rounded back after the transform or not, for scores of any size, subnormal q included."""
    kernel = Kernel(A100, half_sums=True, back_to_half=back_to_half, fp16_scale=fp16_scale)
    found = {"out": 0.0, "lse": 0.0}
    for qo_len, kv_len in SHAPES:
        tensors = draw(2, 1, qo_len, kv_len, 64, torch.float16, kv_len, size)
        for order in ("sequential", "any"):
            for name, ratio in ratios(kernel, tensors, order=order, sm_scale=0.07).items():
                found[name] = max(found[name], ratio)
    # Small scores leave the allowance for half, a unit of 1/2^24 of everything, unused.
    assert_near(found, FLOOR if size >= 1 else 0.02)


@pytest.mark.parametrize("order", ["sequential", "any"])
@pytest.mark.parametrize("size", [1.0, 3e-4, 8.0])
def test_float16_sums_that_are_rounded_once(size, order):
    """A sum in float32 has the bound of one rounding, which accumulation in half does not keep."""
    kernel = Kernel(A100, half_sums=True, once=True, fp16_scale="power_of_two")
    found = {"out": 0.0, "lse": 0.0}
    for qo_len, kv_len in SHAPES:
        tensors = draw(2, 1, qo_len, kv_len, 64, torch.float16, kv_len, size)
        for name, ratio in ratios(kernel, tensors, order=order, sm_scale=0.07).items():
            found[name] = max(found[name], ratio)
    assert_near(found, FLOOR if size >= 1 else 0.02)


def test_sums_that_are_rounded_once_overflow_by_their_end_alone():
    """Partial sums past 65504 that come back: right for what is rounded once, infinite for what is accumulated in half."""
    q, k, v = (torch.ones(1, 1, 64, dtype=torch.float16) for _ in "qkv")
    k[0, 0, :32], k[0, 0, 32:] = 4e3, -4e3
    right = reference(q, k, v, sm_scale=1.0, use_fp16_qk_reduction=True, semantics=Semantics(fp16_sums="rounded"))
    assert bool((right.extra["out"] == FINITE).all())
    half = Semantics(fp16_sums="accumulated", order="sequential", tensor_core=H100)
    accumulated = reference(q, k, v, sm_scale=1.0, use_fp16_qk_reduction=True, semantics=half)
    assert not bool((accumulated.extra["out"] & FINITE).any())


def test_any_order_has_the_wider_bound():
    """The a priori form, still with something to show: q·k of any order is known to sum|q·k| alone."""
    tensors = draw(2, 1, 16, 40, 64, torch.float16, 3)
    for half_sums in (False, True):
        known = ratios(Kernel(H100, half_sums), tensors)
        unknown = ratios(Kernel(H100, half_sums), tensors, order="any")
        assert unknown["lse"] < known["lse"]
        assert FLOOR <= unknown["out"]


@pytest.mark.parametrize("soft_cap", [None, 8.0])
@pytest.mark.parametrize("slope", [0.01, 1.0, -30.0])
def test_alibi(slope, soft_cap):
    """Its product and its sum are rounded; large slopes make large scores."""
    slopes = torch.tensor([slope, slope / 3])
    assert_near(worst([Kernel(H100)], slopes=slopes, soft_cap=soft_cap), 0.03)


def test_masks():
    """Rows of few keys, of none, scattered keys."""
    for seed in range(4):
        random = torch.Generator().manual_seed(seed)
        tensors = draw(2, 2, 20, 150, 64, torch.float16, seed)
        for mask in (causal(20, 150), causal(20, 150).flip(1), torch.rand(20, 150, generator=random) < 0.05):
            found = ratios(Kernel(A100, tile=16), tensors, mask=mask)
            assert FLOOR <= found["out"]


def wavy(s, head, qo_idx, kv_idx, qo_len, kv_len):
    return s + torch.sin(3 * s) / (1 + head) + (kv_idx - qo_idx) * 0.25 / max(kv_len, qo_len)


@pytest.mark.parametrize("half_sums", [False, True])
def test_a_users_transform(half_sums):
    """eps goes through it by values; its own rounding has an allowance."""
    assert_near(worst([Kernel(H100, half_sums, back_to_half=True, transform=wavy)]), 0.02)


@pytest.mark.parametrize("size", [100.0, 2000.0])
def test_large_scores(size):
    """One key takes all, or scores so large that their errors exceed 1: never outside, and no bound is infinite or NaN."""
    for dtype in (torch.float16, torch.bfloat16):
        for half_sums in (False, True)[: 2 if dtype == torch.float16 else 1]:
            tensors = draw(2, 1, 16, 40, 64, dtype, 0, size)
            ratios(Kernel(A100, half_sums), tensors)
    ref = reference(*tensors, return_lse=True)
    assert all(bool(bound.isfinite().all()) for bound in ref.bound.values())


# Wrong kernels, on plain normal data: the least that the bound has to see.

Q, K, V = draw(4, 2, 24, 40, 64, torch.float16, 11)
ALL = torch.ones(24, 40, dtype=torch.bool)
SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])


def run(kernel=None, tensors=(Q, K, V), allowed=ALL, **options):
    return (kernel or Kernel(A100))(*tensors, allowed=allowed, **options)


def wrong_gqa():
    k, v = (x.repeat(1, 2, 1) for x in (K, V))
    return run(tensors=(Q, k, v))


WRONG = {
    "soft cap after the mask": (
        lambda: run(Kernel(A100, late_cap=True), allowed=causal(24, 40), soft_cap=5.0),
        {"causal": True, "logits_soft_cap": 5.0},
    ),
    "soft cap ignored": (run, {"logits_soft_cap": 5.0}),
    "natural logarithm": (lambda: run(Kernel(A100, lse="ln")), {}),
    "causal from the top left": (
        lambda: run(allowed=torch.arange(40) <= torch.arange(24)[:, None]),
        {"causal": True},
    ),
    "mask ignored": (run, {"causal": True}),
    "window one too wide": (
        lambda: run(allowed=torch.arange(40) >= torch.arange(24)[:, None] + 16 - 6),
        {"window_left": 5},
    ),
    "last key dropped": (lambda: run(allowed=torch.arange(40).expand(24, 40) < 39), {}),
    "zeros": (lambda: (torch.zeros_like(Q), run()[1]), {}),
    "the input": (lambda: (Q, run()[1]), {}),
    "heads shuffled": (lambda: (run()[0].roll(1, 1), run()[1]), {}),
    "columns shuffled": (lambda: (run()[0].roll(1, 2), run()[1]), {}),
    "rows shuffled": (lambda: (run()[0].roll(1, 0), run()[1]), {}),
    "rounded twice": (lambda: run(Kernel(A100, twice=True)), {"causal": False}),
    "scaled twice": (lambda: run(scale=1 / 64), {}),
    "not scaled": (lambda: run(scale=1.0), {}),
    "no scale for 0": (run, {"sm_scale": 0.0}),
    "heads of keys interleaved": (wrong_gqa, {}),
    "ALiBi ignored": (run, {"alibi_slopes": SLOPES}),
    # The same for all keys of a row: only the LSE knows.
    "ALiBi from the top left": (
        lambda: (run(slopes=SLOPES)[0], run(slopes=SLOPES)[1] + SLOPES * 16 / math.log(2)),
        {"alibi_slopes": SLOPES},
    ),
    "ALiBi after the soft cap": (lambda: run(slopes=SLOPES), {"alibi_slopes": SLOPES, "logits_soft_cap": 5.0}),
    "approximate tanh, not declared": (
        lambda: run(Kernel(A100, tanh="approximate"), soft_cap=50.0, scale=2.0),
        {"logits_soft_cap": 50.0, "sm_scale": 2.0},
    ),
    "float16 sums, not asked for": (lambda: run(Kernel(A100, half_sums=True)), {}),
}


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_kernels_are_caught(fault):
    """Each on one small call, by the model that allows the most and without a known order."""
    made, options = WRONG[fault]
    out, lse = made()
    judged = judge({"out": out, "lse": lse}, reference(Q, K, V, return_lse=True, **options))
    assert "divergence" in [j.kind for j in judged.values()]
    assert 1 < max(j.ratio for j in judged.values())
    assert not any(j.vacuous for j in judged.values())


def test_the_kernel_they_are_made_of_is_right():
    """Otherwise the test above would prove nothing."""
    every = {"allowed": causal(24, 40), "soft_cap": 5.0, "slopes": SLOPES}
    out, lse = run(**every)
    ref = reference(Q, K, V, causal=True, logits_soft_cap=5.0, alibi_slopes=SLOPES, return_lse=True)
    assert [None, None] == [j.kind for j in judge({"out": out, "lse": lse}, ref).values()]


def test_one_unit_in_the_last_place_too_many_is_caught():
    """A float16 output of rows with one key, which are v itself: two units off, and the ratio says so."""
    q, k, v = Q, K[:1], V[:1]
    out, _ = run(tensors=(q, k, v), allowed=ALL[:, :1])
    ref = reference(q, k, v)
    off = (out.view(torch.int16) + 3).view(torch.float16)
    assert judge({"out": out}, ref)["out"].kind is None
    judged = judge({"out": off}, ref)["out"]
    assert "divergence" == judged.kind
    assert 1 < judged.ratio < 4


def test_the_bound_is_that_of_the_design():
    """For one key nothing but roundings is left: P's, the output's, and a few of float32."""
    ref = reference(Q, K[:1], V[:1], return_lse=True)
    size = ref.want["out"].abs()
    assert torch.allclose(ref.bound["out"], size * 2 * 2.0**-11, rtol=0.02, atol=2.0**-24)
    for score, bound in zip(ref.want["lse"].reshape(-1).tolist(), ref.bound["lse"].reshape(-1).tolist()):
        assert math.isfinite(score)
        assert 2.0**-22 < bound < 1e-3


@pytest.mark.parametrize("pair", list(itertools.combinations([16, 64, None], 2)))
def test_fewer_rescalings_make_a_smaller_bound(pair):
    """The words reach the bound: tiles, P, the logarithm."""
    wide, narrow = (
        reference(Q, K, V, return_lse=True, semantics=Semantics(tile=str(tile or "all"))).bound["lse"] for tile in pair
    )
    assert bool((narrow < wide).all()) or pair == (64, None)
    p = [reference(Q, K, V, semantics=Semantics(p=p)).bound["out"] for p in ("input", "float32")]
    assert bool((p[1] < p[0]).all())
    lse = [reference(Q, K, V, return_lse=True, semantics=Semantics(lse=base)) for base in ("log2", "ln")]
    assert torch.allclose(lse[0].want["lse"] * math.log(2), lse[1].want["lse"])
    assert torch.allclose(lse[0].bound["lse"] * math.log(2), lse[1].bound["lse"])
