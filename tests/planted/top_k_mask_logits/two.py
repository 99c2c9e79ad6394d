"""Two faults in one kernel: each has to be found, and neither may hide the other or be taken for it."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.planted.top_k_mask_logits.arguments import prepare
from tests.planted.top_k_mask_logits.in_place import in_place_rereads
from tests.planted.top_k_mask_logits.layout import k_int64_read_as_int32
from tests.planted.top_k_mask_logits.torch_ops import keys, kth_largest, row_k, write
from tests.planted.top_k_mask_logits.values import erases_nan


def rereads_and_halves_k(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Two of one kind: in place, rows are read again after they were written; elsewhere an int64 k is read as int32."""
    in_place = out is logits
    return in_place_rereads(logits, k, out=out) if in_place else k_int64_read_as_int32(logits, k, out=out)


def erases_nan_and_takes_one_too_many(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Two kinds, and cases that show either: a float32 NaN becomes -inf, and a float16 row keeps one element more than k."""
    if logits.dtype == torch.float32:
        return erases_nan(logits, k, out=out)
    out = prepare(logits, k, out)
    key = keys(logits)
    slots = row_k(k, logits)
    more = (slots + 1).clamp(max=logits.shape[1]) if logits.dtype == torch.float16 else slots
    return write(out, logits, key >= kth_largest(key, torch.where(slots > 0, more, slots)))
