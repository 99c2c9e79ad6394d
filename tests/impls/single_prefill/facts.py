"""Facts about single_prefill that hold on every backend and device. Each takes (backend, device) and asserts.

test_backends.py runs them in its own process, on a GPU, and in a process where Triton interprets:
`TRITON_INTERPRET=1 python -m tests.impls.single_prefill.facts triton cpu` prints a report as JSON.
"""

import importlib
import sys

import torch

from impls.single_prefill import single_prefill
from tests.impls.running import facts_of, print_report
from tests.impls.single_prefill.brute_force import DTYPES, HEAD_DIMS, check, expected, inputs

SLOPES = torch.tensor([0.5, -0.25, 0.0625, 1.0, 0.125, 2.0, 0.0, -1.0])


def _smallest(backend):
    """Tuning keywords for many tiles in little time, where the backend has any."""
    choices = getattr(importlib.import_module(f"impls.single_prefill.{backend}"), "TUNING", ({},))
    return choices[-1] if backend == "triton" else choices[0]


def _call(backend, device, q, k, v, tuning=None, **options):
    """(out, lse) on the device, of tensors on the CPU."""
    options = {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    tuning = _smallest(backend) if tuning is None else tuning
    return single_prefill(
        q.to(device), k.to(device), v.to(device), return_lse=True, backend=backend, **options, **tuning
    )


def _check(backend, device, q, k, v, tuning=None, **options):
    check(_call(backend, device, q, k, v, tuning, **options), q, k, v, **options)


def _mask(qo_len, kv_len, share=0.4, seed=0):
    return torch.rand(qo_len, kv_len, generator=torch.Generator().manual_seed(seed)) < share


def _same(expected, actual):
    """Bit for bit, NaNs by position."""
    return torch.equal(expected.isnan(), actual.isnan()) and torch.equal(
        expected.nan_to_num(7.0), actual.nan_to_num(7.0)
    )


def features_alone_and_together(backend, device):
    """Masks, windows, soft cap, ALiBi, scales and the float16 sum, over all dtypes and head dimensions."""
    qo_len, kv_len = 18, 30
    mask = _mask(qo_len, kv_len)
    slopes = SLOPES[:2]
    calls = (
        {},
        {"causal": True},
        {"custom_mask": mask},
        {"window_left": 6},
        {"causal": True, "window_left": 5},
        {"custom_mask": mask, "window_left": 9, "logits_soft_cap": 3.0},
        {"logits_soft_cap": 2.0, "causal": True},
        {"alibi_slopes": slopes},
        {"alibi_slopes": slopes, "causal": True, "sm_scale": 0.5},
        {"alibi_slopes": slopes, "logits_soft_cap": 5.0, "window_left": 11, "sm_scale": -0.3},
        {"alibi_slopes": slopes, "custom_mask": mask, "sm_scale": -0.01},
        {"causal": True, "logits_soft_cap": 4.0, "window_left": 3, "alibi_slopes": slopes},
    )
    for i, options in enumerate(calls):
        for dtype, flag in ((torch.float16, False), (torch.bfloat16, False), (torch.float16, True)):
            head_dim = HEAD_DIMS[(i + DTYPES.index(dtype) + 2 * flag) % 3]
            q, k, v = inputs(qo_len, kv_len, 2, 1, head_dim, dtype, seed=i)
            _check(backend, device, q, k, v, **options, use_fp16_qk_reduction=flag)


def lengths_on_both_sides_of_a_tile(backend, device):
    """Causal and windowed, with more queries than keys and more keys than queries."""
    for i, (qo_len, kv_len) in enumerate(((1, 1), (1, 33), (16, 15), (15, 16), (17, 31), (33, 17), (2, 49), (48, 32))):
        q, k, v = inputs(qo_len, kv_len, dtype=DTYPES[i % 2], seed=i)
        for window in (-1, 0, 14, 15, 16, 17, 1000)[i % 2 :: 2]:
            _check(backend, device, q, k, v, causal=True, window_left=window)


def heads_share_keys_in_groups(backend, device):
    """Query head h takes key head h // group, for groups that are no power of two as well; each head has its slope."""
    for i, group in enumerate((1, 3, 4, 5, 7, 8)):
        kv_heads = 2 if group <= 4 else 1
        q, k, v = inputs(3, 5, group * kv_heads, kv_heads, dtype=DTYPES[i % 2], seed=i)
        _check(backend, device, q, k, v, alibi_slopes=SLOPES[: group * kv_heads])


def zero_lengths_are_legal(backend, device):
    """Without queries the results are empty; without keys the output is zero and the LSE -inf."""
    for qo_len, kv_len in ((0, 5), (5, 0), (0, 0)):
        q, k, v = inputs(qo_len, kv_len, 2, 1)
        for options in (
            {},
            {"causal": True, "window_left": 2},
            {"custom_mask": torch.ones(qo_len, kv_len, dtype=torch.bool)},
        ):
            out, lse = _call(backend, device, q, k, v, **options)
            assert (tuple(q.shape), tuple(q.shape[:2])) == (tuple(out.shape), tuple(lse.shape))
            assert bool((out == 0).all())
            assert bool((lse == -torch.inf).all())


def rows_without_keys_are_zero(backend, device):
    """Causal with more queries than keys, windows that lie before the keys, rows that a mask hides, and all at once."""
    mask = _mask(21, 18, 0.5)
    mask[3] = mask[20] = False
    for options in ({"causal": True}, {"custom_mask": mask}, {"custom_mask": mask, "window_left": 0}):
        q, k, v = inputs(21, 18)
        out, lse = _call(backend, device, q, k, v, **options)
        empty = expected(q, k, v, **options)[1] == -torch.inf
        assert bool(empty.any())
        assert torch.equal(empty, lse.cpu() == -torch.inf)
        assert bool((out.cpu()[empty] == 0).all())
        check((out, lse), q, k, v, **options)


def any_layout_works(backend, device):
    """HND, padded rows and heads, any offset, expanded keys and queries; nothing around the output changes."""
    q, k, v = inputs(5, 7, 4, 2, seed=3)
    want = _call(backend, device, q, k, v)
    for offset, pad in ((0, 8), (8, 0), (1, 0), (0, 3), (3, 5)):
        memory = torch.full((4, 9000), 7.0, dtype=q.dtype, device=device)
        views = []
        for row, x in enumerate((q, k.transpose(0, 1), v, q)):
            heads, head_dim = x.shape[1:]
            view = memory[row].as_strided(
                x.shape, (heads * (head_dim + pad) + pad, head_dim + pad, 1), row * 9000 + offset
            )
            views.append(view.copy_(x))
        views[2] = views[2].transpose(0, 1)
        before = memory.clone()
        out, lse = single_prefill(
            views[0],
            views[1],
            views[2],
            kv_layout="HND",
            out=views[3],
            return_lse=True,
            backend=backend,
            **_smallest(backend),
        )
        assert out is views[3]
        check((out, lse), q, k, v)
        torch.testing.assert_close(want[0], out, rtol=0, atol=2e-3)
        out.copy_(q)
        assert torch.equal(before, memory)
    _check(backend, device, q[:1, :, :].expand(5, 4, 64), k[:, :1].expand(7, 2, 64), v[:1].expand(7, 2, 64))


def masks_and_slopes_may_have_any_strides(backend, device):
    """A transposed mask, one with every second column, and expanded and strided slopes."""
    q, k, v = inputs(9, 20, 4, 4, seed=4)
    mask = _mask(20, 18).to(device)
    wide = SLOPES.repeat_interleave(2).to(device)
    for custom_mask in (mask[:, :9].t(), _mask(9, 40).to(device)[:, ::2], mask[0, :1].expand(9, 20)):
        for slopes in (wide[::2][:4], wide[:1].expand(4)):
            options = {"custom_mask": custom_mask, "alibi_slopes": slopes}
            actual = single_prefill(
                *(x.to(device) for x in (q, k, v)), return_lse=True, backend=backend, **options, **_smallest(backend)
            )
            check(actual, q, k, v, **{name: x.cpu() for name, x in options.items()})


def hidden_keys_never_show(backend, device):
    """NaN and inf in keys that the mask, the causal rule or the window hides change nothing, and neither does what follows k."""
    for dtype in DTYPES:
        q, k, v = inputs(6, 21, 2, 1, dtype=dtype, seed=5)
        hidden = torch.zeros(21, dtype=torch.bool)
        hidden[[0, 4, 20]] = True
        bad = k.clone()
        bad[hidden] = torch.tensor([torch.nan, torch.inf, -torch.inf], dtype=dtype)[:, None, None]
        options = {"custom_mask": ~hidden.expand(6, 21)}
        want = _call(backend, device, q, k, v, **options)
        assert all(map(_same, want, _call(backend, device, q, bad, v, **options)))

        memory = torch.full((2, 30, 1, 64), torch.nan, dtype=dtype)
        memory[0, :17], memory[1, :17] = k[:17], v[:17]
        want = _call(backend, device, q, k[:17], v[:17])
        actual = single_prefill(
            q.to(device), *memory.to(device)[:, :17], return_lse=True, backend=backend, **_smallest(backend)
        )
        assert all(map(_same, want, actual))

        late = k.clone()
        late[18] = torch.nan
        out, lse = _call(backend, device, q, late, v, causal=True)
        check((out[:3], lse[:3]), q[:3], k[:18], v[:18], causal=True)


def a_nan_score_makes_its_row_nan(backend, device):
    """Output and LSE of just the rows and heads that see it, wherever in the row it is."""
    for dtype in DTYPES:
        for place in (0, 17, 39):
            q, k, v = inputs(4, 40, 2, 2, dtype=dtype, seed=6)
            k[place, 1, 5] = torch.nan
            q[3, 0] = torch.nan
            mask = torch.ones(4, 40, dtype=torch.bool)
            mask[2, place] = False
            for options in ({"custom_mask": mask}, {"custom_mask": mask, "logits_soft_cap": 1.0}):
                out, lse = (x.cpu() for x in _call(backend, device, q, k, v, **options))
                want = torch.tensor([[False, True], [False, True], [False, False], [True, True]])
                assert torch.equal(want, lse.isnan()), (dtype, place)
                assert torch.equal(want[:, :, None].expand(4, 2, 64), out.isnan()), (dtype, place)


def scores_of_minus_infinity_weigh_nothing(backend, device):
    """A key whose score is truly -inf counts for nothing, and one of -1e30 for everything when it is alone."""
    q = torch.ones(2, 1, 64, dtype=torch.bfloat16)
    k = torch.zeros(3, 1, 64, dtype=torch.bfloat16)
    v = torch.tensor([1.0, 2.0, 4.0]).bfloat16()[:, None, None].repeat(1, 1, 64)
    k[0, 0, 0] = -torch.inf
    out, lse = (x.cpu() for x in _call(backend, device, q, k, v, sm_scale=1.0))
    assert torch.equal(torch.full_like(out, 3.0), out)
    assert torch.equal(torch.ones_like(lse), lse)
    k[:, 0, 0] = torch.tensor([-1e30, -2e30, -torch.inf])
    out, lse = (x.cpu() for x in _call(backend, device, q, k, v, sm_scale=1.0))
    assert torch.equal(torch.full_like(out, 1.0), out)
    torch.testing.assert_close(torch.full_like(lse, float(k[0, 0, 0]) * 1.4426950408889634), lse)


def scales_of_any_sign_and_size(backend, device):
    """Zero averages the values seen, a negative scale prefers what is unlike, and one too small for float32 is zero."""
    q, k, v = inputs(5, 18, seed=8)
    for scale in (0, 0.0, -0.0, -1.0, 3.0, 1e-3, 1e-45, 1e-300, -1e-41):
        _check(backend, device, q, k, v, sm_scale=scale, causal=True)
        _check(backend, device, q, k, v, sm_scale=scale, logits_soft_cap=1.0, alibi_slopes=SLOPES[:1])


def outputs_are_rounded_to_nearest_even(backend, device):
    """The mean of two neighbours is a tie, and goes to the even one, up or down."""
    for dtype in DTYPES:
        step = torch.finfo(dtype).eps
        low, middle, high = 1.0, 1.0 + step, 1.0 + 2 * step
        q, k, v = inputs(1, 2, dtype=dtype)
        v[0] = middle
        v[1, :, :32], v[1, :, 32:] = low, high
        out = _call(backend, device, q, k, v, sm_scale=0.0)[0].cpu()
        assert ([low] * 32 + [high] * 32) == out[0, 0].tolist(), dtype


def soft_caps_of_any_size(backend, device):
    """From caps that make all scores equal to caps far above them: tanh has no absolute error that they would magnify."""
    q, k, v = inputs(3, 18, seed=9)
    for cap in (0, 1e-300, 1e-30, 1e-3, 0.7, 30.0, 1e6, 1e20, 1e300):
        _check(backend, device, q, k, v, logits_soft_cap=cap, sm_scale=1.0)


def float16_sums_have_room_below_one(backend, device):
    """q is scaled by a power of two first: q·k of 102400 at a scale of 1/8 stays finite, and is right."""
    q = torch.full((2, 1, 64), 40.0, dtype=torch.float16)
    k = torch.full((17, 1, 64), 40.0, dtype=torch.float16)
    k[3] = 41.0
    v = inputs(2, 17)[2]
    out, lse = (x.cpu() for x in _call(backend, device, q, k, v, use_fp16_qk_reduction=True))
    want, want_lse = expected(q, k, v)
    torch.testing.assert_close(want, out.double(), rtol=0, atol=4e-3)
    torch.testing.assert_close(want_lse, lse.double(), rtol=1e-3, atol=0)


def out_may_be_new_or_given_or_q(backend, device):
    """All three give the same bits, and the tensor given comes back; rows of out may lie between rows of q."""
    for dtype in DTYPES:
        q, k, v = (x.to(device) for x in inputs(37, 20, 2, 1, dtype=dtype, seed=10))
        tuning = _smallest(backend)
        want, lse = single_prefill(q, k, v, causal=True, return_lse=True, backend=backend, **tuning)
        assert ((128, 64, 1), dtype, device) == (want.stride(), want.dtype, want.device.type)
        assert ((2, 1), torch.float32, device) == (lse.stride(), lse.dtype, lse.device.type)
        fused = torch.stack([q, torch.full_like(q, torch.nan)], 1)
        for query, out in ((q, torch.full_like(q, torch.nan)), (fused[:, 0], fused[:, 1]), (q.clone(), None)):
            out = query if out is None else out
            assert out is single_prefill(query, k, v, causal=True, out=out, backend=backend, **tuning)
            assert torch.equal(want, out)
        assert torch.equal(q, fused[:, 0])
        query = q.clone()
        other = query.view(37, 2, 64)
        assert other is single_prefill(query, k, v, causal=True, out=other, backend=backend, **tuning)
        assert torch.equal(want, query)


def every_choice_of_tuning_is_right_and_repeatable(backend, device):
    """Each of TUNING is within the tolerances, and gives the same bits twice, with or without the LSE."""
    choices = getattr(importlib.import_module(f"impls.single_prefill.{backend}"), "TUNING", ({},))
    for i, tuning in enumerate(choices):
        for dtype, options in (
            (DTYPES[i % 2], {}),
            (torch.float16, {"causal": True}),
            (torch.float16, {"window_left": 20}),
        ):
            q, k, v = inputs(20, 70, 1, 1, dtype=dtype, seed=i)
            q, k, v = (x.to(device) for x in (q, k, v))
            first, second = (
                single_prefill(q, k, v, return_lse=True, backend=backend, **options, **tuning) for _ in range(2)
            )
            assert all(map(_same, first, second))
            check(first, q, k, v, **options)
            out = single_prefill(q, k, v, backend=backend, **options, **tuning)
            assert _same(first[0], out) or "sdpa" in tuning
            check((out, first[1]), q, k, v, **options)


def an_illegal_call_writes_nothing(backend, device):
    """Partial overlaps of out with q, any with the other tensors, and an out that overlaps itself, leave memory as it was."""
    memory = torch.arange(6000.0, device=device).to(torch.float16)
    shape, strides = (3, 2, 64), (128, 64, 1)
    q, k, v = (memory.as_strided(shape, strides, start) for start in (0, 1000, 2000))
    slopes, mask = memory[3000:3004].view(torch.float32), memory[3100:3105].view(torch.bool)[:9].view(3, 3)
    outs = [memory.as_strided(shape, *view) for view in (
        (strides, 1), (strides, 128), (strides, 64), ((192, 64, 1), 0), (strides, 383), (strides, 1000), (strides, 1383),
        (strides, 2000), (strides, 2003), (strides, 3003), (strides, 3104), ((64, 64, 1), 4000), ((100, 65, 1), 4000),
        ((0, 64, 1), 4000),
    )]  # fmt: skip
    before = memory.clone()
    for out in outs:
        try:
            single_prefill(q, k, v, custom_mask=mask, alibi_slopes=slopes, out=out, backend=backend)
        except ValueError:
            assert torch.equal(before, memory)
        else:
            raise AssertionError(f"accepted out with strides {out.stride()} at {out.storage_offset()}")


FACTS = facts_of(dict(globals()))


if __name__ == "__main__":
    print_report(FACTS, *sys.argv[1:3])
