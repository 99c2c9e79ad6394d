"""No right kernel is accused, whatever it is given: values of every size, infinities, NaN, every option, at random."""

# ruff: noqa: SIM300 - the expected value stands first

import math
import random

import pytest
import torch

from oracles.rounding import A100, CUDA_CORE, H100, UNKNOWN
from oracles.single_prefill import FREE, Semantics, judge, reference
from tests.oracles.simulated import Kernel

KINDS = ("normal", "normal", "large", "tiny", "heavy", "bits", "any bits", "positive", "rarely infinite", "edge")


def values(choose, torch_random, shape, dtype):
    """Elements of some kind."""
    kind = choose(KINDS)
    x = torch.randn(shape, generator=torch_random)
    if kind == "large":
        x *= choose((30, 300, 3000))
    elif kind == "tiny":
        x *= choose((1e-3, 1e-6, 1e-7))
    elif kind == "heavy":
        x *= torch.exp(3 * torch.randn(shape, generator=torch_random))
    elif kind == "positive":
        x = x.abs() * choose((1, 20, 40))
    elif kind == "edge":
        x = torch.sign(x) * choose((65504.0, 60000.0, 2.0))
    elif kind == "rarely infinite":
        where = torch.rand(shape, generator=torch_random)
        for limit, bad in ((0.004, math.inf), (0.002, -math.inf), (0.0005, math.nan)):
            x[where < limit] = bad
    elif kind in ("bits", "any bits"):
        bits = torch.randint(-(2**15), 2**15, shape, generator=torch_random).to(torch.int16).view(dtype)
        return bits if kind == "any bits" else bits.nan_to_num(1, 1, 1)
    return x.to(dtype)


def wave(s, head, qo_idx, kv_idx, qo_len, kv_len):
    return s * 0.5 + (kv_idx - qo_idx) * 0.125 + torch.sin(s)


def judged_call(seed):
    """One call, a kernel with the declared arithmetic, and the oracle's judgements and reference."""
    choose = random.Random(seed).choice
    torch_random = torch.Generator().manual_seed(seed)
    dtype = choose((torch.float16, torch.float16, torch.bfloat16))
    kv_heads, qo_len, kv_len = choose((1, 2)), choose((1, 3, 8)), choose((1, 2, 5, 17, 70))
    heads = kv_heads * choose((1, 2))
    q, k, v = (
        values(choose, torch_random, shape, dtype)
        for shape in ((qo_len, heads, 64), (kv_len, kv_heads, 64), (kv_len, kv_heads, 64))
    )
    half_sums = dtype == torch.float16 and choose((True, False))
    core = choose((A100, H100) if half_sums else (A100, H100, CUDA_CORE))
    hook = choose((None,) * 5 + (wave,))
    kernel = Kernel(
        core,
        half_sums,
        tanh=choose(("exact", "approximate")),
        p=choose(("input", "float32")) if core == CUDA_CORE else "input",
        fp16_scale=choose(("after", "power_of_two")),
        tile=choose((16, 32, 64, None)),
        row_sum=choose(("float32", "p")),
        lse=choose(("log2", "ln")),
        back_to_half=choose((True, False)),
        transform=hook,
        seed=seed,
    )
    scale = choose((None, None, None, 0.0, -0.125, 1.0, 1e-4, 100.0, 1e-39, 2.0**-13))
    soft_cap = None if hook else choose((None, None, 50.0, 1.0, 1e4, 1e-3))
    slopes = (
        None if hook or choose((True, False)) else torch.randn(heads, generator=torch_random) * choose((0.1, 1, 99))
    )
    mask, window = choose(("none", "causal", "custom")), choose((-1, -1, 0, 3, 20))
    place, kv = torch.arange(qo_len)[:, None] + kv_len - qo_len, torch.arange(kv_len)
    custom = torch.rand(qo_len, kv_len, generator=torch_random) < choose((0.1, 0.5, 0.9)) if mask == "custom" else None
    allowed = torch.ones(qo_len, kv_len, dtype=torch.bool) if custom is None else custom
    allowed = allowed & (kv <= place) if mask == "causal" else allowed
    allowed = allowed & (kv >= place - window) if window >= 0 else allowed
    out, lse = kernel(q, k, v, allowed=allowed, scale=scale, soft_cap=soft_cap, slopes=slopes)
    ref = reference(
        q,
        k,
        v,
        causal=mask == "causal",
        window_left=window,
        logits_soft_cap=soft_cap,
        alibi_slopes=slopes,
        custom_mask=custom,
        sm_scale=scale,
        use_fp16_qk_reduction=half_sums,
        return_lse=True,
        semantics=Semantics(
            lse=kernel.lse,
            tanh=kernel.tanh,
            p=kernel.p,
            fp16_scale=kernel.fp16_scale,
            order=choose(("any", "sequential")),
            tile=str(kernel.tile or "all"),
            sum=kernel.row_sum,
            logits_transform=hook,
            tensor_core=choose((core, UNKNOWN)),
        ),
    )
    return judge({"out": out, "lse": lse}, ref), ref


CALLS = 80


@pytest.mark.parametrize("start", range(0, 4 * CALLS, CALLS))
def test_right_kernels_are_never_accused(start):
    """And most of what they give is judged: few rows are free, few calls vacuous. Bounds are never NaN."""
    free = vacuous = elements = 0
    for seed in range(start, start + CALLS):
        judged, ref = judged_call(seed)
        assert [None, None] == [j.kind for j in judged.values()], seed
        assert not any(bool(bound.isnan().any()) for bound in ref.bound.values()), seed
        vacuous += judged["out"].vacuous
        free += int((ref.extra["out"] & FREE > 0).sum())
        elements += ref.extra["out"].numel()
    assert vacuous <= CALLS / 5
    assert free <= elements / 5
