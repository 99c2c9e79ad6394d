"""Other values of the parameters of top_k_mask_logits, one at a time."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from harness.alternatives import FRESH, Alternative, dtypes, outs
from harness.case import ITEMSIZE, Case, Fill, View, contiguous
from harness.operators.top_k_mask_logits.shapes import DTYPES, TIED
from harness.rules import Value

_FORMS = {
    "new": FRESH,
    "out_is_logits": "in place (out is logits)",
    "in_place": "in place (top_k_mask_logits_)",
}
_KS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65)
_LARGE = (1 << 30, (1 << 31) + 1, (1 << 40) + 1, -1, -2)
"""And such as no call may have."""


def alternatives(case: Case) -> Iterator[Alternative]:
    yield from dtypes(case, TIED, DTYPES)
    yield from outs(case, "logits", _FORMS)
    yield from _k(case)
    yield from _kinds_of_k(case)


def _k(case: Case) -> Iterator[Alternative]:
    """The same k for every row, as it is given: an int, or a tensor's elements."""
    shape = case.tensors["logits"].shape
    vocab = shape[-1] if shape else 1
    numbers = dict.fromkeys((*_KS, vocab // 2, max(vocab - 1, 0), vocab, vocab + 1, *_LARGE))
    if (k := case.tensors.get("k")) is None:
        yield "k", _number(case.params.get("k")), case
        for number in numbers:
            yield "k", number, replace(case, params={**case.params, "k": number})
    elif (fill := case.fills.get("k")) is not None:
        constant = fill.kind == "cycle" and len(fill.values) == 1 and not fill.planted
        yield "k", _number(fill.values[0]) if constant else f"{fill.kind} {list(fill.values)}", case
        for number in numbers:
            if k.dtype != "int32" or number < 1 << 31:
                yield "k", number, replace(case, fills={**case.fills, "k": Fill("cycle", 0, (number,))})


def _number(value: object) -> Value:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _kinds_of_k(case: Case) -> Iterator[Alternative]:
    """k as an int, or as a tensor of either dtype; an int only where all rows have the same."""
    k, fill = case.tensors.get("k"), case.fills.get("k")
    alike = k is None or (fill is not None and fill.kind == "cycle" and len(fill.values) == 1 and not fill.planted)
    value = case.params.get("k") if k is None else fill.values[0] if fill is not None and alike else None
    yield "type of k", type(value).__name__ if k is None else f"{k.dtype} tensor", case
    if isinstance(value, int) and not isinstance(value, bool):
        if k is None:
            fill = Fill("cycle", 0, (value,))
        tensors = {name: view for name, view in case.tensors.items() if name != "k"}
        fills = {name: other for name, other in case.fills.items() if name != "k"}
        yield "type of k", "int", replace(case, params={**case.params, "k": value}, tensors=tensors, fills=fills)
    if fill is None:
        return
    params = {name: other for name, other in case.params.items() if name != "k"}
    for dtype in ("int32", "int64"):
        rows = case.tensors["logits"].shape[:1]
        view = k or View(len(case.storages), dtype, rows, contiguous(rows))
        tensors = {
            **case.tensors,
            "k": replace(view, dtype=dtype, offset=view.offset // view.itemsize * ITEMSIZE[dtype]),
        }
        fills, storages = {**case.fills, "k": fill}, (*case.storages, 0)
        made = replace(case, params=params, tensors=tensors, fills=fills, storages=storages)
        yield "type of k", f"{dtype} tensor", made
