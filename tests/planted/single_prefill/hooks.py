"""A user's own LogitsTransform in the production CUDA kernel: with its reference right, and with a slip of the sign."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from impls.single_prefill import LogitsTransform, single_prefill_with_kv_cache
from impls.single_prefill.cuda import SEMANTICS as OF_THE_KERNEL

SOURCE = """
struct Nearby {
  __device__ float operator()(float score, const prefill::Position& at) const {
    return score SIGN 0.05f * fabsf(at.distance) * (at.head + 1);
  }
};
"""


def reference(s: Tensor, head: Tensor, qo_idx: Tensor, kv_idx: Tensor, qo_len: int, kv_len: int) -> Tensor:
    """The farther a key, the less it counts, on either side."""
    return s - 0.05 * (kv_idx - (qo_idx + kv_len - qo_len)).abs() * (head + 1)


SEMANTICS = {**OF_THE_KERNEL, "logits_transform": reference}


def _attend(sign: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    hook = LogitsTransform(source=SOURCE.replace("SIGN", sign), name="Nearby")
    return single_prefill_with_kv_cache(*arguments, **keywords, backend="cuda", logits_transform=hook)


def own_transform(
    q: Any, k: Any, v: Any, *, causal: Any = False, sm_scale: Any = None, custom_mask: Any = None, kv_layout: Any = "NHD",
    window_left: Any = -1, use_fp16_qk_reduction: Any = False, return_lse: Any = False, out: Any = None,
) -> Any:  # fmt: skip
    """Right."""
    keywords = dict(locals())
    return _attend("-", tuple(keywords.pop(name) for name in "qkv"), keywords)


def own_transform_slipped(
    q: Any, k: Any, v: Any, *, causal: Any = False, sm_scale: Any = None, custom_mask: Any = None, kv_layout: Any = "NHD",
    window_left: Any = -1, use_fp16_qk_reduction: Any = False, return_lse: Any = False, out: Any = None,
) -> Any:  # fmt: skip
    """The kernel adds what the reference takes away."""
    keywords = dict(locals())
    return _attend("+", tuple(keywords.pop(name) for name in "qkv"), keywords)
