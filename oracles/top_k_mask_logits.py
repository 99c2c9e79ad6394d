"""top_k_mask_logits: keep every element of a row that is at least its k-th largest, make all others -inf.

    logits  [batch, vocab]  float32, float16 or bfloat16
    k       int, or int32/int64 [batch]
    out     [batch, vocab]  as logits

Nothing is computed, only chosen: a kept element has its input's bits, there is no tolerance, and the float64 copy (exact
for all three dtypes) serves only to rank. NaN ranks above +inf as in torch.topk, −0.0 equals +0.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from oracles.judgement import Judgement, Reference, Right, bits
from oracles.overlap import same_view, share_a_byte

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Semantics:
    """Where libraries differ, and an implementation may say what it does.

    ties: "all" keeps every element equal to the k-th largest; "exactly_k" keeps k of them, whichever.
    nan: "keep" leaves a selected NaN as it is; "mask" turns it into -inf after it took its slot; "unspecified" leaves
    rows that hold a NaN unjudged, but for this: each element is its input or -inf.
    """

    ties: Literal["all", "exactly_k"] = "all"
    nan: Literal["keep", "mask", "unspecified"] = "keep"


def contract(logits: object, k: object, out: object, *, in_place: bool) -> str | None:
    """Why this call must raise ValueError or TypeError, or None when it is legal.

    The reasons are few and name no sizes: they tell findings apart.
    """
    if not isinstance(logits, Tensor):
        return "logits is no tensor"
    if logits.ndim != 2:
        return "logits is not 2-D"
    if logits.dtype not in DTYPES:
        return "logits has an unsupported dtype"
    if logits.shape[1] > 1 and logits.stride(1) != 1:
        return "logits has a last stride other than 1"
    return _contract_k(logits, k) or _contract_out(logits, k, out, in_place)


def _contract_k(logits: Tensor, k: object) -> str | None:
    if isinstance(k, Tensor):
        if k.dtype not in (torch.int32, torch.int64):
            return "k tensor has an unsupported dtype"
        if k.shape != logits.shape[:1]:
            return "k tensor is not [batch]"
        if k.device != logits.device:
            return "k tensor is on another device"
        return None
    if isinstance(k, bool) or not isinstance(k, int):
        return "k is neither an int nor a tensor"
    return "k is negative" if k < 0 else None


def _contract_out(logits: Tensor, k: object, out: object, in_place: bool) -> str | None:
    if out is None and not in_place:
        return None
    target = logits if in_place else out
    if not isinstance(target, Tensor):
        return "out is no tensor"
    if target is not logits:
        if target.shape != logits.shape:
            return "out has another shape"
        if target.dtype != logits.dtype:
            return "out has another dtype"
        if target.device != logits.device:
            return "out is on another device"
        if target.shape[1] > 1 and target.stride(1) != 1:
            return "out has a last stride other than 1"
    if target.shape[0] > 1 and target.shape[1] > 0 and target.stride(0) < target.shape[1]:
        return "rows of the written tensor overlap"
    if not same_view(target, logits) and share_a_byte(target, logits):
        return "out overlaps logits partially"
    if isinstance(k, Tensor) and share_a_byte(target, k):
        return "the written tensor overlaps k"
    return None


def reference(logits: Tensor, k: int | Tensor, semantics: Semantics) -> Reference:
    """The choice, in float64. The call must be legal by `contract`; logits and k must be the oracle's own copies.

    extra holds, all [batch, vocab]: `bits` the input as integers; `required` and `allowed`, which elements must and may
    stay; and [batch]: `quota`, how many of the merely allowed ones stay (-1: not counted).
    """
    batch, vocab = logits.shape
    x = logits.to(torch.float64)
    per_row = k.to(torch.int64) if isinstance(k, Tensor) else torch.full((batch,), min(k, vocab), device=logits.device)
    slots = per_row.clamp(0, vocab)[:, None]
    nan = x.isnan()
    if vocab:
        # torch.sort puts NaN last in ascending order, which is the rank the contract gives it; but on CUDA, in rows of
        # more than 32 elements, a NaN with its sign bit set comes first (torch 2.11): give it the positive one's bits.
        threshold = torch.where(nan, torch.nan, x).sort(dim=1).values.gather(1, (vocab - slots).clamp(max=vocab - 1))
    else:
        threshold = x.new_zeros(batch, 1)
    above = (x > threshold) | (nan & ~threshold.isnan())
    tied = (x == threshold) | (nan & threshold.isnan())
    above, tied = above & (slots > 0), tied & (slots > 0)
    required, allowed = above | tied, above | tied
    quota = torch.full((batch,), -1, dtype=torch.int64, device=logits.device)
    if semantics.ties == "exactly_k":
        required = above
        # Ties at -inf look the same kept or masked, so they cannot be counted.
        countable = threshold[:, 0] != -torch.inf
        quota = torch.where(countable, slots[:, 0] - above.sum(1), quota)
    if semantics.nan == "mask":
        required, allowed = required & ~nan, allowed & ~nan
        quota = torch.where(nan.any(1) & threshold[:, 0].isnan(), -1, quota)
    elif semantics.nan == "unspecified":
        odd = nan.any(1, keepdim=True)
        required, allowed = required & ~odd, allowed | odd
        quota = torch.where(odd[:, 0], -1, quota)
    want = torch.where(required | (allowed & (quota < 0)[:, None]), x, -torch.inf)
    return Reference(
        want={"out": want},
        bound={"out": torch.zeros_like(want)},
        dtype={"out": logits.dtype},
        extra={"bits": bits(logits), "required": required, "allowed": allowed, "quota": quota},
        unique=semantics == Semantics(),
    )


def judge(outputs: dict[str, Tensor], ref: Reference) -> dict[str, Judgement]:
    """Compare an output [batch, vocab] with the reference, bit for bit.

    wrong_nan: a NaN was invented, altered or lost. wrong_inf: an infinity was invented, or -inf became something finite
    that is not the input. wrong_set: an element was kept or masked that should not have been, or too many or too few of a
    tie. divergence: a kept element has another value.
    """
    got = outputs["out"]
    source, required, allowed = ref.extra["bits"], ref.extra["required"], ref.extra["allowed"]
    minus_inf = bits(torch.full((), -torch.inf, dtype=got.dtype, device=got.device))
    got_bits = bits(got)
    kept, masked = got_bits == source, got_bits == minus_inf
    right = (kept & allowed) | (masked & ~required)
    quota = ref.extra["quota"]
    if bool(right.all() & (quota < 0).all()):  # nearly always, and one wait for the device
        return {"out": Judgement(None, ~right, ref.want["out"], ref.bound["out"])}
    invented = ~kept & ~masked
    want = ref.want["out"]
    was_nan = source.view(got.dtype).isnan()
    wrong_nan = ~right & ((got.isnan() & invented) | (was_nan & required & ~kept))
    wrong_inf = ~right & invented & (want.isinf() | got.isinf())
    optional = kept & allowed & ~required
    miscounted = ((optional.sum(1) != quota) & (quota >= 0))[:, None]
    wrong_set = (~right & ~invented) | (miscounted & allowed & ~required)
    kinds = {"wrong_nan": wrong_nan, "wrong_inf": wrong_inf, "wrong_set": wrong_set, "divergence": ~right}
    found = torch.stack([mask.any() for mask in kinds.values()]).tolist()  # one wait for the device
    for (kind, mask), present in zip(kinds.items(), found):
        if present:
            return {"out": Judgement(kind, mask, want, ref.bound["out"], ratio=float("inf"))}
    return {"out": Judgement(None, torch.zeros_like(right), want, ref.bound["out"])}


def rights(ref: Reference) -> dict[str, Right]:
    """The same, to be checked without this module: an element that may stay or go wants to stay, and -inf is also right."""
    source, allowed, quota = ref.extra["bits"], ref.extra["allowed"], ref.extra["quota"]
    minus_inf = bits(torch.full((), -torch.inf, dtype=ref.dtype["out"], device=source.device))
    want = torch.where(allowed, source, minus_inf).view(ref.dtype["out"])
    optional = allowed & ~ref.extra["required"]
    if not bool(optional.any()):
        return {"out": Right(want)}
    return {"out": Right(want, also={"-inf": optional}, quota=quota if bool((quota >= 0).any()) else None)}
