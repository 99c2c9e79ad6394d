"""Which calls are legal, said by the checks alone, and what they make of the scalars."""

import math

import numpy as np
import pytest
import torch

from impls.single_prefill import (
    LogitsTransform,
    arguments,
    dispatch,
    single_prefill,
    single_prefill_with_kv_cache,
    triton,
)

TRANSFORM = LogitsTransform("struct Hook {};", "Hook")


def _half(*shape, **options):
    return torch.zeros(*shape, dtype=torch.float16, **options)


def _tensors():
    """q, k, v, out, a mask and slopes that are legal together."""
    filled = {name: _half(3, 4, 64).fill_(i) for i, name in enumerate(("q", "out"))}
    filled |= {name: _half(5, 2, 64).fill_(i + 0.5) for i, name in enumerate(("k", "v"))}
    return filled | {"custom_mask": torch.ones(3, 5, dtype=torch.bool), "alibi_slopes": torch.ones(4)}


def _call(**changes):
    options = {**_tensors(), **changes}
    return single_prefill(options.pop("q"), options.pop("k"), options.pop("v"), **options)


def test_the_operator_has_its_own_name_too():
    """The harness finds a function by the operator's name; FlashInfer's name is the same function."""
    assert single_prefill is single_prefill_with_kv_cache


def test_the_tensors_of_these_tests_are_legal():
    """Otherwise nothing below would prove anything."""
    out = _tensors()["out"]
    assert _call(out=out) is out


@pytest.mark.parametrize("name", ["q", "k", "v", "out", "custom_mask", "alibi_slopes"])
@pytest.mark.parametrize(
    ("error", "change"),
    [
        (TypeError, lambda x: x.tolist()),
        (TypeError, lambda x: 3),
        (ValueError, lambda x: x.to_sparse()),
        (TypeError, lambda x: x.double()),
        (TypeError, lambda x: x.to(torch.int8)),
        (TypeError, lambda x: x.bfloat16()),
        (ValueError, lambda x: x[None]),
        (ValueError, lambda x: x[0]),
        (ValueError, lambda x: torch.cat([x, x])[: len(x) + 1]),
        (ValueError, lambda x: torch.empty_like(x, device="meta")),
        (ValueError, lambda x: x[..., :2]),
        (ValueError, lambda x: torch.cat([x, x], -1)),
    ],
)
def test_a_wrong_tensor_raises(name, error, change):
    """No tensor, not strided, another dtype, rank, shape or device: each of the six is refused, and out keeps its values."""
    tensors = _tensors()
    out = tensors["out"]
    if name == "q" and error is ValueError:
        del tensors["out"]  # which would be as wrong
    wrong = change(tensors[name])
    with pytest.raises(error):
        _call(**{**tensors, name: wrong})
    assert torch.equal(_tensors()["out"], out)


@pytest.mark.parametrize(
    ("error", "changes"),
    [
        (ValueError, {"k": _half(5, 2, 64), "v": _half(5, 2, 128)}),
        (ValueError, {"k": _half(5, 2, 64), "v": _half(6, 2, 64)}),
        (ValueError, {"k": _half(5, 3, 64), "v": _half(5, 3, 64)}),
        (ValueError, {"k": _half(5, 8, 64), "v": _half(5, 8, 64)}),
        (ValueError, {"k": _half(5, 0, 64), "v": _half(5, 0, 64)}),
        (ValueError, {"q": _half(3, 0, 64), "out": None, "alibi_slopes": None}),
        (ValueError, {"k": _half(5, 2, 128), "v": _half(5, 2, 128)}),
        (ValueError, {"k": _half(64, 2, 5).transpose(0, 2)}),
        (ValueError, {"v": _half(5, 2, 128)[:, :, ::2]}),
        (ValueError, {"v": _half(5, 2, 1).expand(5, 2, 64)}),
        (ValueError, {"q": _half(3, 4, 128)[:, :, ::2]}),
        (ValueError, {"out": _half(3, 4, 128)[:, :, ::2]}),
        (ValueError, {"out": _half(1, 4, 64).expand(3, 4, 64)}),
        (ValueError, {"out": _half(3, 1, 64).expand(3, 4, 64)}),
        (ValueError, {"out": _half(2000).as_strided((3, 4, 64), (256, 63, 1))}),
        (ValueError, {"out": _half(2000).as_strided((3, 4, 64), (192, 64, 1))}),
        (ValueError, {"custom_mask": torch.ones(5, 3, dtype=torch.bool)}),
        (ValueError, {"custom_mask": torch.ones(3, 5, dtype=torch.bool), "causal": True}),
        (ValueError, {"alibi_slopes": torch.ones(2)}),
        (ValueError, {"kv_layout": "HND"}),
        (ValueError, {"kv_layout": "nhd"}),
        (ValueError, {"kv_layout": None}),
        (TypeError, {"causal": 1, "custom_mask": None}),
        (TypeError, {"causal": None}),
        (TypeError, {"return_lse": 0}),
        (TypeError, {"use_fp16_qk_reduction": "yes"}),
        (TypeError, {"window_left": True}),
        (TypeError, {"window_left": 2.0}),
        (TypeError, {"window_left": None}),
        (TypeError, {"sm_scale": True}),
        (TypeError, {"sm_scale": "1"}),
        (TypeError, {"sm_scale": torch.tensor(1.0)}),
        (TypeError, {"sm_scale": 1j}),
        (ValueError, {"sm_scale": math.inf}),
        (ValueError, {"sm_scale": math.nan}),
        (ValueError, {"sm_scale": 10**400}),
        (TypeError, {"logits_soft_cap": False}),
        (TypeError, {"logits_soft_cap": "30"}),
        (ValueError, {"logits_soft_cap": -1e-30}),
        (ValueError, {"logits_soft_cap": math.inf}),
        (ValueError, {"logits_soft_cap": math.nan}),
        (TypeError, {"logits_transform": "s"}),
        (ValueError, {"logits_transform": TRANSFORM}),
        (ValueError, {"logits_transform": TRANSFORM, "alibi_slopes": None, "logits_soft_cap": 3.0}),
        (ValueError, {"logits_transform": TRANSFORM, "alibi_slopes": None}),
        (ValueError, {"backend": "triton"}),
        (ValueError, {"backend": ""}),
        (ValueError, {"backend": None}),
        (TypeError, {"block_q": 64}),
        (TypeError, {"softcap": 3.0}),
        (ValueError, {"sdpa": 1}),
        (ValueError, {"q": _half(3, 4, 64, requires_grad=True)}),
        (ValueError, {"v": _half(5, 2, 64, requires_grad=True)}),
        (ValueError, {"out": _half(3, 4, 64, requires_grad=True)}),
        (ValueError, {"alibi_slopes": torch.ones(4, requires_grad=True)}),
        (ValueError, {"alibi_slopes": torch.zeros(4, dtype=torch.complex64).conj().imag}),
        (ValueError, {"k": _half(1, 2, 64).expand(1 << 31, 2, 64), "v": _half(1, 2, 64).expand(1 << 31, 2, 64)}),
    ],
    ids=str,
)
def test_a_wrong_call_raises_and_writes_nothing(error, changes):
    """Every reason of the contract, with out as it was."""
    out = _tensors()["out"]
    with pytest.raises(error):
        _call(**{"out": out, **changes})
    assert torch.equal(_tensors()["out"], out)


def test_bfloat16_has_no_float16_sums():
    """The flag is refused, not ignored."""
    tensors = {name: x.bfloat16() for name, x in _tensors().items() if x.dtype == torch.float16}
    with pytest.raises(ValueError, match="float16"):
        _call(**tensors, use_fp16_qk_reduction=True)


def test_what_is_only_read_may_overlap_anything_that_is_only_read():
    """q, k and v in one place, expanded or sliced from one projection, are legal; out within them is not."""
    fused = torch.randn(4, 6, 64, generator=torch.Generator().manual_seed(0)).half()
    q, k, v = fused[:, :4], fused[:, 4:5], fused[:, 5:]
    want = single_prefill(q.clone(), k.clone(), v.clone())
    assert torch.equal(want, single_prefill(q, k, v))
    assert single_prefill(q, q, q).shape == q.shape
    assert single_prefill(q[:1].expand(4, 4, 64), k, k).shape == q.shape
    with pytest.raises(ValueError, match="must not overlap to be written"):
        single_prefill(q[:1].expand(4, 4, 64), k, v, out=q[:1].expand(4, 4, 64))
    with pytest.raises(ValueError, match="share no byte with k"):
        single_prefill(fused[:, :3].clone(), k, v, out=fused[:, 2:5])
    assert q is single_prefill(q, k, v, out=q)
    assert torch.equal(want, fused[:, :4])


def test_strides_of_sizes_one_do_not_matter():
    """A single row or head may have any stride, also in out, and still be the same view as q."""
    memory = torch.randn(200, generator=torch.Generator().manual_seed(1)).half()
    q, k = memory.as_strided((1, 1, 64), (0, 3, 1)), memory[100:164].view(1, 1, 64)
    out = memory.as_strided((1, 1, 64), (7, 0, 1))
    assert out is single_prefill(q, k, k, out=out)


@pytest.mark.parametrize(
    ("sm_scale", "want"),
    [
        (None, 0.125),
        (0, 0.0),
        (-0.0, 0.0),
        (-2, -2.0),
        (np.float32(0.5), 0.5),
        (1e-300, 2.0**-126),
        (-1e-300, -(2.0**-126)),
        (1e300, torch.finfo(torch.float32).max),
    ],
)
def test_any_number_is_a_scale(sm_scale, want):
    """Only None is the default; what float32 cannot hold becomes the nearest that it can, and only zero becomes zero."""
    assert want == arguments.scale_of(sm_scale, 64)


@pytest.mark.parametrize(
    ("soft_cap", "want"), [(None, 0.0), (0, 0.0), (30, 30.0), (0.5, 0.5), (1e-300, 2.0**-120), (1e300, 2.0**125)]
)
def test_any_number_that_is_not_negative_is_a_soft_cap(soft_cap, want):
    """None and zero are off."""
    assert want == arguments.soft_cap_of(soft_cap)


@pytest.mark.parametrize(
    ("window_left", "want"),
    [(-1, -1), (-(1 << 70), -1), (0, 0), (3, 3), (5, 5), (6, 5), (1 << 70, 5), (np.int32(2), 2)],
)
def test_any_integer_is_a_window(window_left, want):
    """Negative is off; one wider than the five keys is as wide as they are."""
    assert want == arguments.window_of(window_left, 5)


def test_a_part_of_a_tuning_picks_the_first_choice_that_has_it():
    """Nothing else than a declared choice is ever launched; a combination that is none is refused."""
    assert triton.TUNING[0] == dispatch._choice(triton, {})
    assert triton.TUNING[2] == dispatch._choice(triton, {"block_q": 64})
    assert triton.TUNING[5] == dispatch._choice(triton, {"block_kv": 16})
    with pytest.raises(ValueError, match="no choice"):
        dispatch._choice(triton, {"block_q": 16, "block_kv": 128})
    with pytest.raises(TypeError, match="block_q, block_kv, num_warps, num_stages"):
        dispatch._choice(triton, {"block_m": 16})
