"""The torch backend: plain tensor operations on materialised scores, on any device torch knows; or torch's own attention.

Temporaries are bounded by taking heads and queries in slices. In place it allocates too.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from . import formats
from .call import Call

ARCHS: tuple[str, ...] = ()
TUNING: tuple[dict[str, Any], ...] = ({"sdpa": False}, {"sdpa": True})
"""sdpa: `scaled_dot_product_attention` for the calls that it answers as the contract says, plain operations for the others."""

# What holds for both choices. torch's own kernels round P to the inputs' dtype, as the plain operations do, and the smallest
# tile among them has 32 keys.
SEMANTICS = {
    "lse": "log2",
    "tanh": "exact",
    "p": "input",
    "fp16_scale": "power_of_two",
    "fp16_sums": "rounded",
    "order": "any",
    "tile": "32",
}

_SCORES_AT_A_TIME = 1 << 26
"""A slice has at most about this many scores (256 MiB, several times)."""

_LOG2_E = 1.4426950408889634


def unsupported(params: Mapping[str, object]) -> str | None:
    """Why this backend does not take `params`, or None."""
    return formats.unsupported(params, len(TUNING))


def unavailable(device: torch.device) -> str | None:
    """Why this backend cannot run on `device`: never."""
    return None


# Under inference mode, tensors that were made under it may be written, as the other backends write them without asking.
@torch.inference_mode()
def launch(call: Call) -> None:
    """Attends. The call has passed the checks, and qo_len is not zero."""
    if call.tuning["sdpa"] and _sdpa_covers(call):
        _attend_by_sdpa(call)
        return
    for heads, kv_head, rows in _slices(call):
        out, lse = _attend(call, heads, kv_head, rows)
        call.out[rows, heads] = out.transpose(0, 1)
        if call.lse is not None:
            call.lse[rows, heads] = lse.transpose(0, 1)


def _slices(call: Call) -> Iterator[tuple[slice, int, slice]]:
    """(query heads, their key head, rows) that together make the whole."""
    qo_len, heads, _ = call.q.shape
    kv_len, kv_heads, _ = call.k.shape
    group = heads // kv_heads
    heads_step = max(1, min(group, _SCORES_AT_A_TIME // max(1, kv_len)))
    rows_step = max(1, _SCORES_AT_A_TIME // max(1, kv_len * heads_step))
    for kv_head in range(kv_heads):
        end = (kv_head + 1) * group
        for head in range(kv_head * group, end, heads_step):
            for row in range(0, qo_len, rows_step):
                yield slice(head, min(head + heads_step, end)), kv_head, slice(row, min(row + rows_step, qo_len))


def _attend(call: Call, heads: slice, kv_head: int, rows: slice) -> tuple[Tensor, Tensor]:
    """Output [heads, rows, D] and base-2 LSE [heads, rows] of a slice."""
    scores = _scores(call, heads, kv_head, rows)
    if (visible := _visible(call, rows)) is not None:
        scores.masked_fill_(~visible, -torch.inf)
    if call.k.shape[0]:
        largest = scores.amax(2, keepdim=True)
    else:
        largest = scores.new_full((*scores.shape[:2], 1), -torch.inf)
    # A row without keys subtracts 0: -inf - -inf would be NaN.
    p = scores.sub_(largest.masked_fill(largest == -torch.inf, 0.0)).exp_()
    total = p.sum(2, keepdim=True)
    out = torch.matmul(p.to(call.v.dtype).float(), call.v[:, kv_head].float())
    out = torch.where(total == 0, 0.0, out / total)
    return out, (largest * _LOG2_E + total.log2())[:, :, 0]


def _scores(call: Call, heads: slice, kv_head: int, rows: slice) -> Tensor:
    """Scaled and transformed scores [heads, rows, kv_len], float32, before any mask."""
    q = call.q[rows, heads].transpose(0, 1).float()
    k = call.k[:, kv_head].float().t()
    if call.fp16_qk:
        power, scale = formats.split_scale(call.sm_scale)
        # One rounding of the whole sum is never worse than those of its parts.
        sums = torch.matmul((q * power).half().float(), k).half().float()
    else:
        scale = call.sm_scale
        sums = torch.matmul(q, k)
    scores = sums.mul_(scale)
    if call.alibi_slopes is not None:
        scores += call.alibi_slopes[heads, None, None] * _distance(call, rows)
    if call.soft_cap:
        scores = scores.div_(call.soft_cap).tanh_().mul_(call.soft_cap)
    if call.fp16_qk and (call.soft_cap or call.alibi_slopes is not None):
        scores = scores.half().float()
    return scores


def _distance(call: Call, rows: slice) -> Tensor:
    """j - (i + kv_len - qo_len) for each query i of the rows and key j, int64 [rows, kv_len]."""
    qo_len, kv_len = call.q.shape[0], call.k.shape[0]
    queries = torch.arange(rows.start, rows.stop, device=call.q.device) + (kv_len - qo_len)
    return torch.arange(kv_len, device=call.q.device) - queries[:, None]


def _visible(call: Call, rows: slice) -> Tensor | None:
    """Which keys each query sees, bool [rows, kv_len]; None when all see all."""
    parts = []
    if call.custom_mask is not None:
        parts.append(call.custom_mask[rows])
    if call.causal:
        parts.append(_distance(call, rows) <= 0)
    if call.window_left >= 0:
        parts.append(_distance(call, rows) >= -call.window_left)
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else parts[0] & parts[1]


def _sdpa_covers(call: Call) -> bool:
    """Whether torch's attention means the same as this operator, whichever of its kernels it chooses.

    Its is_causal is top-left, so it needs a square; its masks are added, so that NaN would come through, and a row without
    keys would be NaN; its kernels find the largest score before they scale, so the scale must be positive; it returns no LSE;
    and on the CPU it may answer 0 where a score is NaN, so every product must be finite, which takes a look at the values.
    """
    square = call.q.shape[0] == call.k.shape[0] and torch.backends.cuda.flash_sdp_enabled()
    return (
        (not call.causal or square)
        and call.k.shape[0] > 0
        and call.lse is None
        and call.sm_scale > 0
        and call.window_left < 0
        and not call.soft_cap
        and not call.fp16_qk
        and call.alibi_slopes is None
        and call.custom_mask is None
        and _products_are_finite(call)
    )


def _products_are_finite(call: Call) -> bool:
    """Whether no q·k can be NaN or infinite, by the largest magnitudes. Under graph capture nobody can look: False."""
    if call.q.is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    largest = call.q.abs().amax().float() * call.k.abs().amax().float() * call.q.shape[2]
    return bool(largest < torch.finfo(torch.float32).max / 2)


def _attend_by_sdpa(call: Call) -> None:
    group = call.q.shape[1] // call.k.shape[1]
    # Dense copies: torch's kernels trust the alignment of what they are given.
    q, k, v = (x.transpose(0, 1).contiguous()[None] for x in (call.q, call.k, call.v))
    if group > 1:
        k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    out = scaled_dot_product_attention(q, k, v, is_causal=call.causal, scale=call.sm_scale)
    call.out.copy_(out[0].transpose(0, 1))
