"""Which calls of single_prefill the contract forbids, and why."""

import math

import pytest
import torch

from oracles.single_prefill import contract

Q = torch.zeros(3, 4, 64, dtype=torch.float16)
K = torch.zeros(5, 2, 64, dtype=torch.float16)
V = torch.ones(5, 2, 64, dtype=torch.float16)
H = K.transpose(0, 1).contiguous()
WIDE = torch.zeros(3, 4, 129, dtype=torch.float16)[..., :128:2]
MASK = torch.ones(3, 5, dtype=torch.bool)
SLOPES = torch.zeros(4)
MEMORY = torch.zeros(4096, dtype=torch.float16)


def at(offset, shape=(3, 4, 64), strides=None):
    dense = (shape[1] * shape[2], shape[2], 1)
    return MEMORY.as_strided(shape, strides or dense, offset)


REASONS = [
    ((None, K, V), {}, "q is no tensor"),
    ((Q, [1], V), {}, "k is no tensor"),
    ((Q, K, 3), {}, "v is no tensor"),
    ((Q[0], K, V), {}, "q, k or v is not 3-D"),
    ((Q, K[None], V[None]), {}, "q, k or v is not 3-D"),
    ((Q, K, V[1:]), {}, "k and v differ in shape"),
    ((Q, K, H), {}, "k and v differ in shape"),
    ((Q[..., :32], K, V), {}, "head dims differ"),
    ((Q[..., :32], K[..., :32], V[..., :32]), {}, "head dim is not supported"),
    ((torch.zeros(3, 4, 96), K.new_zeros(5, 2, 96), V.new_zeros(5, 2, 96)), {}, "head dim is not supported"),
    ((Q[:, :0], K, V), {}, "there are no heads"),
    ((Q, K[:, :0], V[:, :0]), {}, "there are no heads"),
    ((Q[:, :3], K, V), {}, "query heads are not a multiple of key heads"),
    ((Q[:, :1], K, V), {}, "query heads are not a multiple of key heads"),
    ((Q, K, V), {"kv_layout": "HND"}, "query heads are not a multiple of key heads"),
    (
        (Q, K[:1].expand(2**31 - 65538, 2, 64), V[:1].expand(2**31 - 65538, 2, 64)),
        {},
        "more queries and keys than 32 bits count",
    ),
    ((Q.float(), K.float(), V.float()), {}, "q has an unsupported dtype"),
    ((Q, K.bfloat16(), V.bfloat16()), {}, "q, k and v differ in dtype"),
    ((Q, K, V.float()), {}, "q, k and v differ in dtype"),
    ((Q, K.to("meta"), V.to("meta")), {}, "q, k and v are on different devices"),
    ((WIDE, K, V), {}, "q, k or v has a last stride other than 1"),
    ((Q, K.new_zeros(1).expand(5, 2, 64), V), {}, "q, k or v has a last stride other than 1"),
    ((Q, K, V), {"causal": 1}, "causal is no bool"),
    ((Q, K, V), {"use_fp16_qk_reduction": None}, "use_fp16_qk_reduction is no bool"),
    ((Q, K, V), {"return_lse": "yes"}, "return_lse is no bool"),
    ((Q, K, V), {"kv_layout": "nhd"}, "kv_layout is neither NHD nor HND"),
    ((Q, K, V), {"kv_layout": 0}, "kv_layout is neither NHD nor HND"),
    ((Q, K, V), {"window_left": 1.0}, "window_left is no int"),
    ((Q, K, V), {"window_left": True}, "window_left is no int"),
    ((Q, K, V), {"window_left": None}, "window_left is no int"),
    ((Q, K, V), {"sm_scale": math.inf}, "sm_scale is no finite number"),
    ((Q, K, V), {"sm_scale": math.nan}, "sm_scale is no finite number"),
    ((Q, K, V), {"sm_scale": True}, "sm_scale is no finite number"),
    ((Q, K, V), {"sm_scale": "1"}, "sm_scale is no finite number"),
    ((Q, K, V), {"sm_scale": 10**400}, "sm_scale is no finite number"),
    ((Q, K, V), {"sm_scale": torch.ones(())}, "sm_scale is no finite number"),
    ((Q, K, V), {"logits_soft_cap": math.inf}, "logits_soft_cap is no finite number"),
    ((Q, K, V), {"logits_soft_cap": False}, "logits_soft_cap is no finite number"),
    ((Q, K, V), {"logits_soft_cap": -1.0}, "logits_soft_cap is negative"),
    (
        (Q.bfloat16(), K.bfloat16(), V.bfloat16()),
        {"use_fp16_qk_reduction": True},
        "use_fp16_qk_reduction with bfloat16",
    ),
    ((Q, K, V), {"alibi_slopes": 0.5}, "alibi_slopes is no tensor"),
    ((Q, K, V), {"alibi_slopes": SLOPES.half()}, "alibi_slopes is not float32"),
    ((Q, K, V), {"alibi_slopes": SLOPES[:2]}, "alibi_slopes is not [query heads]"),
    ((Q, K, V), {"alibi_slopes": SLOPES[None]}, "alibi_slopes is not [query heads]"),
    ((Q, K, V), {"alibi_slopes": SLOPES.to("meta")}, "alibi_slopes is on another device"),
    ((Q, K, V), {"custom_mask": True}, "custom_mask is no tensor"),
    ((Q, K, V), {"custom_mask": MASK.to(torch.uint8)}, "custom_mask is not bool"),
    ((Q, K, V), {"custom_mask": MASK.t()}, "custom_mask is not [qo_len, kv_len]"),
    ((Q, K, V), {"custom_mask": MASK[:, :2]}, "custom_mask is not [qo_len, kv_len]"),
    ((Q, K, V), {"custom_mask": MASK.reshape(-1)}, "custom_mask is not [qo_len, kv_len]"),
    ((Q, K, V), {"custom_mask": MASK.to("meta")}, "custom_mask is on another device"),
    ((Q, K, V), {"custom_mask": MASK, "causal": True}, "custom_mask with causal"),
    ((Q, K, V), {"out": "out"}, "out is no tensor"),
    ((Q, K, V), {"out": Q[:2]}, "out has another shape"),
    ((Q, K, V), {"out": Q.bfloat16()}, "out has another dtype"),
    ((Q, K, V), {"out": Q.to("meta")}, "out is on another device"),
    ((Q, K, V), {"out": WIDE}, "out has a last stride other than 1"),
    ((Q, K, V), {"out": Q.new_zeros(1, 4, 64).expand(3, 4, 64)}, "out overlaps itself"),
    ((Q, K, V), {"out": at(0, strides=(128, 63, 1))}, "out overlaps itself"),
    ((Q[:1].expand(3, 4, 64), K, V), {"out": Q[:1].expand(3, 4, 64)}, "out overlaps itself"),
    ((at(0), K, V), {"out": at(1)}, "out overlaps q partially"),
    ((at(0), K, V), {"out": at(64)}, "out overlaps q partially"),
    ((at(0), K, V), {"out": at(0, strides=(512, 64, 1))}, "out overlaps q partially"),
    ((at(0), K, V), {"out": at(0, strides=(64, 192, 1))}, "out overlaps q partially"),
    ((at(0)[:1].expand(3, 4, 64), K, V), {"out": at(0)}, "out overlaps q partially"),
    ((Q, at(0, (5, 2, 64)), V), {"out": at(600)}, "out overlaps k"),
    ((Q, K, at(0, (5, 2, 64))), {"out": at(0)}, "out overlaps v"),
    (
        (Q, K, V),
        {"out": at(0), "custom_mask": at(700, (1, 1, 8)).view(torch.bool).view(-1)[:15].view(3, 5)},
        "out overlaps custom_mask",
    ),
    (
        (Q, K, V),
        {"out": at(0), "alibi_slopes": MEMORY[700:708].view(torch.float32)},
        "out overlaps alibi_slopes",
    ),
]


@pytest.mark.parametrize(("tensors", "options", "reason"), REASONS, ids=range(len(REASONS)))
def test_why_a_call_is_illegal(tensors, options, reason):
    """The first reason that applies, in words without sizes."""
    assert reason == contract(*tensors, **options)


LEGAL = [
    ((Q, K, V), {}),
    ((Q, H, H), {"kv_layout": "HND"}),
    ((Q[:0], K, V), {}),
    ((Q, K[:0], V[:0]), {"custom_mask": MASK[:, :0]}),
    ((Q.bfloat16(), K.bfloat16(), V.bfloat16()), {"return_lse": True}),
    ((Q, K, V), {"use_fp16_qk_reduction": True, "causal": True, "window_left": 0}),
    ((Q, K, V), {"sm_scale": 0, "logits_soft_cap": 0, "window_left": -7}),
    ((Q, K, V), {"sm_scale": -2.5, "logits_soft_cap": 1e-30, "window_left": 1 << 70}),
    ((Q, K, V), {"custom_mask": MASK.t().contiguous().t(), "window_left": 2}),
    ((Q, K, V), {"custom_mask": MASK[:1, :1].expand(3, 5), "alibi_slopes": torch.zeros(8)[::2]}),
    ((Q[:1].expand(3, 4, 64), K[:1].expand(5, 2, 64), V), {"out": torch.empty_like(Q)}),
    ((at(0, strides=(64, 64, 1)), K, V), {"out": torch.empty_like(Q)}),
    ((Q, K, V), {"out": Q}),
    ((Q, K, V), {"out": Q.view(3, 4, 64)}),
    ((at(0), K, V), {"out": at(768)}),
    ((at(0, strides=(512, 64, 1)), K, V), {"out": at(256, strides=(512, 64, 1))}),
    ((at(0, strides=(512, 128, 1)), K, V), {"out": at(64, strides=(512, 128, 1))}),
    ((Q[:0], K, V), {"out": K[:0, :1].expand(0, 4, 64)}),
]


@pytest.mark.parametrize(("tensors", "options"), LEGAL, ids=range(len(LEGAL)))
def test_legal_calls(tensors, options):
    """Zero lengths, any strides but the last, expanded inputs, masks of any strides, out beside q or q itself."""
    assert contract(*tensors, **options) is None
