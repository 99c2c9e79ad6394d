"""What the tensors of single_prefill are called, and their dimensions."""

from __future__ import annotations

from collections.abc import Mapping

from harness.case import Case

NAME = "single_prefill"
FORMS = ("new", "out", "out_is_q")
"""From the plainest."""
HEAD_DIMS = (64, 128, 256)


def dimensions(case: Case) -> Mapping[str, tuple[str, ...]]:
    length_first = case.params.get("kv_layout", "NHD") != "HND"
    kv = ("kv_len", "kv_heads", "head_dim") if length_first else ("kv_heads", "kv_len", "head_dim")
    q = ("qo_len", "qo_heads", "head_dim")
    return {"q": q, "k": kv, "v": kv, "out": q, "alibi_slopes": ("qo_heads",), "custom_mask": ("qo_len", "kv_len")}
