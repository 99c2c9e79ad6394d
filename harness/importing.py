"""A call that was captured elsewhere -> a case: its tensors' layouts, who shares memory with whom, and every bit of its values.

Few values stand in the case itself; more go to a file beside the entry (`harness.stored`).
"""

from __future__ import annotations

from pathlib import Path

import torch
from msgspec.structs import replace
from torch import Tensor

from harness import stored
from harness.captured import Captured
from harness.case import MAX_STORED_BYTES, Case, CaseError, Fill, View, tidy, validate
from harness.fill import INT, literals
from harness.operators import Operator
from harness.values import EXPLICIT, explicit


def case_of(captured: Captured, operator: Operator, folder: Path) -> Case:
    """The case of a captured call. Values that are too many to spell out are written into `folder`.

    Raises CaseError, with one line, for what is no call of the operator: unknown names, missing ones, too large tensors.
    """
    _check_names(captured, operator)
    tensors, params = dict(captured.tensors), dict(captured.params)
    views = _views(tensors)
    if "form" not in params:
        params["form"] = _form(views, operator)
        if params["form"] not in ("new", "out"):
            views.pop("out")
    if params["form"] not in operator.FORMS:
        raise CaseError(f"unknown form {params['form']!r}; known are {', '.join(operator.FORMS)}")
    if (params["form"] == "out") != ("out" in views):
        raise CaseError(
            f"form {params['form']!r} and {'a' if 'out' in views else 'no'} tensor 'out' do not go together"
        )
    sizes = _sizes(tensors)
    case = tidy(Case(operator.NAME, params, tuple(sizes.values()), views))
    validate(case)
    fills = {
        name: _fill(name, view, tensors[name], folder) for name, view in views.items() if name not in operator.OUTPUTS
    }
    case = replace(case, fills=fills)
    validate(case)
    return case


def why_illegal(case: Case, captured: Captured, operator: Operator) -> str | None:
    """Why the contract forbids the call, or None. Raises CaseError where no call can be made of it."""
    try:
        return operator.contract(operator.bind(case, {name: captured.tensors[name] for name in case.tensors}))
    except (KeyError, TypeError, ValueError) as error:
        raise CaseError(f"no call of {operator.NAME}: {error}") from None


def _check_names(captured: Captured, operator: Operator) -> None:
    known = operator.dimensions(Case(operator.NAME, captured.params))
    for what, given, there in (
        ("tensor", captured.tensors, known),
        ("parameter", captured.params, operator.PARAMS),
    ):
        for name in given:
            if name not in there:
                raise CaseError(f"{operator.NAME} has no {what} {name!r}; it has {', '.join(there)}")
    both = sorted(captured.tensors.keys() & captured.params.keys())
    missing = [n for n in operator.REQUIRED if n not in captured.tensors and n not in captured.params]
    if both or missing:
        raise CaseError(f"{both[0]!r} is a tensor and a parameter" if both else f"{missing[0]!r} is missing")


def _form(views: dict[str, View], operator: Operator) -> str:
    """How the output was given, where the file does not say: as it looks. That is never in place, in the operator's sense."""
    if "out" not in views:
        return "new"
    main = next(name for name in views if name in operator.REQUIRED)
    same = f"out_is_{main}"
    return same if views["out"] == views[main] and same in operator.FORMS else "out"


def _key(x: Tensor) -> tuple[int, int]:
    """The same for two tensors of one storage; an empty storage is nobody else's."""
    storage = x.untyped_storage()
    return (storage.data_ptr(), storage.nbytes()) if storage.nbytes() else (0, id(x))


def _sizes(tensors: dict[str, Tensor]) -> dict[tuple[int, int], int]:
    """Storage -> its bytes, in the order in which tensors come to them."""
    return {_key(x): x.untyped_storage().nbytes() for x in tensors.values()}


def _views(tensors: dict[str, Tensor]) -> dict[str, View]:
    index = {key: number for number, key in enumerate(_sizes(tensors))}
    return {
        name: View(
            index[_key(x)],
            str(x.dtype).removeprefix("torch."),
            tuple(x.shape),
            tuple(x.stride()),
            int(x.storage_offset()) * x.element_size(),
        )
        for name, x in tensors.items()
    }


def _fill(name: str, view: View, x: Tensor, folder: Path) -> Fill:
    x = x.as_strided(view.filled.shape, view.filled.strides)
    if (size := x.numel() * x.element_size()) > MAX_STORED_BYTES:
        raise CaseError(f"tensor {name!r}: {size} bytes of values; an entry has at most {MAX_STORED_BYTES} of a tensor")
    if not x.numel():
        return Fill("cycle")
    bits = x.contiguous().view(INT[view.itemsize]).reshape(-1)
    if x.dtype == torch.bool and bool((bits > 1).any()):
        raise CaseError(f"tensor {name!r}: a bool that is neither 0 nor 1")
    if bool((bits == bits[0]).all()):
        return Fill("cycle", 0, literals(bits[:1].view(x.dtype)))
    if x.numel() <= EXPLICIT:
        return explicit(literals(x))
    return Fill("file", file=stored.put(x, folder))
