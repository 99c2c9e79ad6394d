"""What single_prefill must return, row by row in float64, and how far off it may be. Shares nothing with the implementations."""

import math

import torch
from torch import Tensor

DTYPES = (torch.float16, torch.bfloat16)
HEAD_DIMS = (64, 128, 256)


def inputs(
    qo_len: int, kv_len: int, heads: int = 1, kv_heads: int = 1, head_dim: int = 64, dtype=torch.float16, seed: int = 0
):
    """q, k and v of normal values on the CPU, in layout NHD."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((qo_len, heads, head_dim), (kv_len, kv_heads, head_dim), (kv_len, kv_heads, head_dim))
    return tuple(torch.randn(shape, generator=generator).to(dtype) for shape in shapes)


def visible(i: int, j: int, qo_len: int, kv_len: int, causal=False, window_left=-1, custom_mask=None) -> bool:
    """Whether query i sees key j."""
    position = i + kv_len - qo_len
    if custom_mask is not None and not custom_mask[i, j]:
        return False
    if causal and j > position:
        return False
    return window_left < 0 or j >= position - window_left


def expected(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    kv_layout: str = "NHD",
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    alibi_slopes: Tensor | None = None,
    custom_mask: Tensor | None = None,
    sm_scale: float | None = None,
    use_fp16_qk_reduction: bool = False,
) -> tuple[Tensor, Tensor]:
    """The right output and base-2 LSE, float64 on the CPU; a float16 sum of q·k is taken to be exact."""
    q, k, v = (x.detach().cpu().double() for x in (q, k, v))
    if kv_layout == "HND":
        k, v = k.transpose(0, 1), v.transpose(0, 1)
    (qo_len, heads, head_dim), (kv_len, kv_heads, _) = q.shape, k.shape
    scale = 1 / math.sqrt(head_dim) if sm_scale is None else sm_scale
    out = torch.zeros(qo_len, heads, head_dim, dtype=torch.float64)
    lse = torch.full((qo_len, heads), -math.inf, dtype=torch.float64)
    for i in range(qo_len):
        keys = [j for j in range(kv_len) if visible(i, j, qo_len, kv_len, causal, window_left, custom_mask)]
        if not keys:
            continue
        distance = torch.tensor([j - (i + kv_len - qo_len) for j in keys], dtype=torch.float64)
        for h in range(heads):
            kv_head = h // (heads // kv_heads)
            scores = scale * (k[keys, kv_head] @ q[i, h])
            if alibi_slopes is not None:
                scores = scores + float(alibi_slopes[h]) * distance
            if logits_soft_cap:
                scores = logits_soft_cap * torch.tanh(scores / logits_soft_cap)
            out[i, h] = torch.softmax(scores, 0) @ v[keys, kv_head]
            lse[i, h] = torch.logsumexp(scores, 0) / math.log(2)
    return out, lse


def score_error(
    q: Tensor,
    k: Tensor,
    use_fp16_qk_reduction: bool = False,
    sm_scale: float | None = None,
    logits_soft_cap: float | None = None,
    alibi_slopes: Tensor | None = None,
    **_,
) -> float:
    """How far a score may be off: sums of up to D / 8 roundings in float16, twice for a transform; else float32's; and a
    soft cap's tanh, which may be approximate to 2^-11."""
    if not q.numel() or not k.numel():
        return 2.0**-16
    scale = q.shape[2] ** -0.5 if sm_scale is None else abs(sm_scale)
    largest = float(q.double().abs().amax() * k.double().abs().amax(2).amax()) * q.shape[2] / 4
    sums = scale * largest * (q.shape[2] / 8) * 2.0**-11 if use_fp16_qk_reduction else 2.0**-16
    distances = 0.0 if alibi_slopes is None else float(alibi_slopes.abs().amax()) * (q.shape[0] + max(k.shape[:2]))
    return sums + min(logits_soft_cap or 0.0, 4 * scale * largest + distances) * 2.0**-11


def check(actual, q: Tensor, k: Tensor, v: Tensor, **options) -> None:
    """Asserts that actual = (out, lse) is within simple tolerances of `expected`.

    out: the score error twice (numerator and denominator), a rounding of P and one of the output, all relative to max |v|;
    LSE: the score error, and float32's. Both times some.
    """
    out, lse = (x.detach().cpu().double() for x in actual)
    want, want_lse = expected(q, k, v, **options)
    error = score_error(q, k, **options)
    roundoff = 2.0**-11 if q.dtype == torch.float16 else 2.0**-8
    size = float(v.double().abs().amax()) if v.numel() else 0.0
    torch.testing.assert_close(out, want, rtol=0, atol=size * (2 * error + 2 * roundoff), equal_nan=True)
    torch.testing.assert_close(lse, want_lse, rtol=2.0**-20, atol=2 * error + 2.0**-18, equal_nan=True)
