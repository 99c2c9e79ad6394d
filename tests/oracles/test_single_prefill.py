"""oracles.single_prefill: the answer against plain Python, and how outputs are judged by it."""

# ruff: noqa: SIM300 - the expected value stands first

import itertools
import math

import pytest
import torch

from oracles import single_prefill
from oracles.rounding import A100, UNKNOWN
from oracles.single_prefill import Semantics, judge, reference
from tests.oracles.simulated import draw, infinite, small

NAN, INF = math.nan, math.inf


def by_hand(q, k, v, allowed, scale, soft_cap, slopes):
    """Out [qo][Hq][D] and natural LSE [qo][Hq] in plain Python."""
    q, k, v = q.tolist(), k.tolist(), v.tolist()
    group = len(q[0]) // len(k[0])
    outs, lses = [], []
    for i, row in enumerate(q):
        outs.append([])
        lses.append([])
        for h, x in enumerate(row):
            weights = {}
            for j in range(len(k)):
                if not allowed[i][j]:
                    continue
                s = scale * math.fsum(a * b for a, b in zip(x, k[j][h // group]))
                if slopes is not None:
                    s += slopes[h] * (j - (i + len(k) - len(q)))
                if soft_cap:
                    s = soft_cap * math.tanh(s / soft_cap)
                weights[j] = s
            top = max(weights.values(), default=0.0)
            total = math.fsum(math.exp(s - top) for s in weights.values())
            outs[-1].append(
                [
                    math.fsum(math.exp(s - top) / total * v[j][h // group][c] for j, s in weights.items())
                    for c in range(len(x))
                ]
            )
            lses[-1].append(top + math.log(total) if weights else -INF)
    return torch.tensor(outs, dtype=torch.float64), torch.tensor(lses, dtype=torch.float64)


def allowed_by_hand(qo_len, kv_len, causal, window, mask):
    return [
        [
            (not causal or j <= i + kv_len - qo_len)
            and (window < 0 or j >= i + kv_len - qo_len - window)
            and (mask is None or bool(mask[i, j]))
            for j in range(kv_len)
        ]
        for i in range(qo_len)
    ]


@pytest.mark.parametrize("mask", ["none", "causal", "custom"])
@pytest.mark.parametrize("window", [-1, 0, 1, 3, 1 << 70])
@pytest.mark.parametrize("lengths", [(1, 1), (3, 5), (5, 3), (4, 4)])
def test_the_answer_is_that_of_plain_python(lengths, window, mask):
    """Both layouts, grouped heads, scales of 0 and below, soft cap, ALiBi, every mask; queries may outnumber keys."""
    qo_len, kv_len = lengths
    custom = (
        torch.rand(lengths, generator=torch.Generator().manual_seed(window % 7)) < 0.5 if mask == "custom" else None
    )
    allowed = allowed_by_hand(qo_len, kv_len, mask == "causal", window, custom)
    choices = itertools.cycle(
        itertools.product((None, 0, -0.3), (None, 0, 2.5), (None, torch.tensor([0.5, -1, 0, 2.0])))
    )
    for heads, dtype in (((4, 2), torch.float16), ((4, 4), torch.bfloat16), ((4, 1), torch.float16)):
        scale, soft_cap, slopes = next(itertools.islice(choices, kv_len, None))
        q, k, v = draw(*heads, qo_len, kv_len, 64, dtype, qo_len)
        want, lse = by_hand(
            q, k, v, allowed, 0.125 if scale is None else scale, soft_cap, None if slopes is None else slopes.tolist()
        )
        options = {
            "causal": mask == "causal",
            "window_left": window,
            "custom_mask": custom,
            "sm_scale": scale,
            "logits_soft_cap": soft_cap,
            "alibi_slopes": slopes,
        }
        ref = reference(q, k, v, return_lse=True, **options)
        assert torch.allclose(want, ref.want["out"], rtol=1e-12, atol=1e-14)
        assert torch.allclose(lse / math.log(2), ref.want["lse"], rtol=1e-12, atol=1e-14)
        hnd = reference(q, k.transpose(0, 1), v.transpose(0, 1), kv_layout="HND", **options)
        assert torch.equal(ref.want["out"], hnd.want["out"])
        assert ["out"] == list(hnd.want)
        assert {"out": dtype, "lse": torch.float32} == ref.dtype


def test_slices_of_rows_change_nothing(monkeypatch):
    """Memory is bounded by taking few rows at a time: the same answer, all masks and the hook included."""
    q, k, v = draw(4, 2, 9, 13, 64, torch.float16, 0, 3.0)
    v[2, 0, 1], k[4, 1, 0] = NAN, INF
    options = [
        {"causal": True, "alibi_slopes": torch.arange(4.0)},
        {
            "custom_mask": torch.rand(9, 13, generator=torch.Generator().manual_seed(0)) < 0.6,
            "logits_soft_cap": 3.0,
            "window_left": 4,
        },
        {"use_fp16_qk_reduction": True, "semantics": Semantics(order="sequential", tensor_core=A100)},
        {"semantics": Semantics(logits_transform=lambda s, h, i, j, n, m: s + (j - i) * 0.1 + h)},
    ]
    whole = [reference(q, k, v, return_lse=True, **chosen) for chosen in options]
    monkeypatch.setattr(single_prefill, "SLICE", 60)
    for chosen, before in zip(options, whole):
        after = reference(q, k, v, return_lse=True, **chosen)
        for name in ("out", "lse"):
            assert torch.allclose(before.want[name], after.want[name], rtol=1e-12, atol=1e-13, equal_nan=True)
            assert torch.allclose(before.bound[name], after.bound[name], rtol=1e-6)
            assert torch.equal(before.extra[name], after.extra[name])


@pytest.mark.parametrize(("qo_len", "kv_len"), [(0, 3), (3, 0), (0, 0)])
def test_empty_calls(qo_len, kv_len):
    """No queries: no output. No keys: zeros and -inf."""
    q, k, v = draw(2, 1, qo_len, kv_len, 64, torch.float16, 0)
    ref = reference(q, k, v, causal=True, return_lse=True)
    out, lse = torch.zeros(qo_len, 2, 64, dtype=torch.float16), torch.full((qo_len, 2), -INF)
    assert [None, None] == [j.kind for j in judge({"out": out, "lse": lse}, ref).values()]
    if qo_len:
        assert ["divergence", "wrong_inf"] == [j.kind for j in judge({"out": out + 1, "lse": -lse}, ref).values()]


def test_expanded_inputs_and_strided_masks():
    """Views are their values."""
    q, k, v = draw(2, 2, 4, 6, 64, torch.float16, 5)
    mask = (torch.rand(6, 8, generator=torch.Generator().manual_seed(1)) < 0.5).t()[::2]
    views = (q[:1].expand(4, 2, 64), k[:1].expand(6, 2, 64), v.transpose(0, 1).contiguous().transpose(0, 1))
    before = reference(*views, custom_mask=mask, return_lse=True)
    after = reference(*(x.contiguous() for x in views), custom_mask=mask.contiguous(), return_lse=True)
    assert torch.equal(before.want["out"], after.want["out"])
    assert before.checksum() == after.checksum()


def test_kinds():
    """States first, the lost ones too, then values; the elements in question are marked."""
    q, k, v = draw(1, 1, 3, 4, 64, torch.float16, 0)
    q[2] = NAN
    ref = reference(q, k, v)
    good = ref.want["out"].half()
    assert judge({"out": good}, ref)["out"].kind is None

    def judged(place, value):
        changed = good.clone()
        changed[place] = value
        return judge({"out": changed}, ref)["out"]

    expected = {
        ((0, 0, 3), NAN): "wrong_nan",
        ((2, 0, 5), 1.0): "wrong_nan",
        ((2, 0, 5), INF): "wrong_inf",
        ((0, 0, 3), -INF): "wrong_inf",
        ((1, 0, 9), 3.0): "divergence",
    }
    for (place, value), kind in expected.items():
        found = judged(place, value)
        assert kind == found.kind
        assert [list(place)] == found.wrong.nonzero().tolist()
    two = judged((0, 0, 3), NAN)
    assert 1 >= two.ratio


def test_an_infinity_that_is_missing():
    """wrong_nan where NaN would have been right as well: the row must not be finite."""
    ref = reference(*infinite(1), return_lse=True)
    found = judge({"out": torch.zeros(1, 1, 64).half(), "lse": torch.zeros(1, 1)}, ref)
    assert ["wrong_nan", "wrong_nan"] == [j.kind for j in found.values()]
    empty = reference(*small(), custom_mask=torch.zeros(1, 4, dtype=torch.bool), return_lse=True)
    found = judge({"out": torch.zeros(1, 1, 64).half(), "lse": torch.zeros(1, 1)}, empty)
    assert [None, "wrong_inf"] == [j.kind for j in found.values()]


def test_vacuous_is_a_bound_that_zeros_would_pass():
    """Of most elements; a logarithm near 0 is no weaker for that."""
    q, k, v = draw(1, 1, 4, 8, 64, torch.float16, 0)
    ref = reference(q, k, v, return_lse=True)
    outputs = {name: want.to(ref.dtype[name]) for name, want in ref.want.items()}
    assert [False, False] == [j.vacuous for j in judge(outputs, ref).values()]
    opposite = torch.cat([v[:4], -v[:4]])
    same = k[:1].expand_as(k)
    ref = reference(q, same, opposite, return_lse=True)
    found = judge({**outputs, "out": outputs["out"] * 0}, ref)
    assert found["out"].vacuous
    assert not found["lse"].vacuous
    one = reference(q * 0, k[:1], v[:1], return_lse=True)
    assert not judge({"out": v[:1].expand(4, 1, 64), "lse": torch.zeros(4, 1)}, one)["lse"].vacuous


def test_the_models_are_part_of_the_semantics():
    """Hashable, so that references are shared; UNKNOWN by default."""
    assert UNKNOWN == Semantics().tensor_core
    assert 2 == len({Semantics(), Semantics(tensor_core=A100), Semantics(tensor_core=A100)})
    assert not reference(*small()).unique
