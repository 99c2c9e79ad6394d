"""What the tensors of top_k_mask_logits are called, their dimensions, and the values of its parameters."""

from __future__ import annotations

from collections.abc import Mapping

from harness.case import Case

NAME = "top_k_mask_logits"
DTYPES = ("float32", "float16", "bfloat16")
TIED = ("logits", "out")
"""Have one dtype."""
FORMS = ("new", "out", "out_is_logits", "in_place")
"""From the plainest."""


def dimensions(case: Case) -> Mapping[str, tuple[str, ...]]:
    return {"logits": ("batch", "vocab"), "k": ("batch",), "out": ("batch", "vocab")}
