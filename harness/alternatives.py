"""What operators' `alternatives` have in common: where an output lies, and other dtypes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from harness.case import Case, View, contiguous, tidy
from harness.rules import Value
from harness.strategies import RELATIONS, related_view

Alternative = tuple[str, Value, Case]
"""(parameter, value, the case with it): a number where the parameter has an order, else a word (`harness.rules`)."""

FRESH = "fresh"
"""No output is given."""

ON = {True: "on", False: "off"}


def outs(case: Case, source: str, forms: Mapping[str, str]) -> Iterator[Alternative]:
    """Every way to give an output of the shape and dtype of the tensor `source`, the case's own first; the contract has the
    last word.

    forms: the operator's forms of a call without a tensor "out" -> the word for each. The form "out" has a tensor, and is
    tried at each relation that it may have to `source`.
    """
    words = {
        "apart": "disjoint (a storage of its own)",
        "after": f"disjoint (behind {source})",
        "interleaved": f"disjoint (rows between those of {source})",
        "same": f"in place (out a view of {source})",
        "shifted_element": "shifted (by an element)",
        "shifted_row": "shifted (by a row)",
        "shifted_bytes": "shifted (by 16 bytes)",
        "pitch": "shifted (another pitch)",
        "own_rows": "rows that overlap",
    }
    view = case.tensors[source]
    rest = {name: v for name, v in case.tensors.items() if name != "out"}
    fills = {name: fill for name, fill in case.fills.items() if name != "out"}
    bare = replace(case, tensors=rest, fills=fills, storages=(*case.storages, 0))
    given = {}
    for how in RELATIONS:
        if how in ("pitch", "own_rows") and view.shape[:1] == (1,):
            continue  # one row has no pitch: it would be a plain output under another name
        moved, out = related_view(view, how, len(case.storages))
        tensors = {**rest, source: moved, "out": out}
        given[words[how]] = replace(bare, params={**case.params, "form": "out"}, tensors=tensors)
    yield "out", _own(case, source, forms, given), case
    for form, word in forms.items():
        yield "out", word, replace(bare, params={**case.params, "form": form})
    for word, made in given.items():
        yield "out", word, made


def plainer_outs(case: Case, source: str, forms: Sequence[str]) -> Iterator[Case]:
    """The call with a plainer output: none that is given, one with a storage of its own, the tensor `source` itself, …

    forms: the operator's, from the plainest; the second has a tensor "out". One that shares its storage with another tensor
    is less plain than all of them.
    """
    view, out = case.tensors[source], case.tensors.get("out")
    rest = {name: v for name, v in case.tensors.items() if name != "out"}
    form = str(case.params.get("form", forms[0]))
    shared = out is not None and any(v.storage == out.storage for v in rest.values())
    known = forms.index(form) if form in forms else len(forms)
    for plainer in forms if shared else forms[:known]:
        own = View(len(case.storages), view.dtype, view.shape, contiguous(view.shape))
        tensors = {**rest, "out": own} if plainer == forms[1] else rest
        params = {**case.params, "form": plainer}
        yield replace(case, params=params, tensors=tensors, storages=(*case.storages, 0))


def _own(case: Case, source: str, forms: Mapping[str, str], given: Mapping[str, Case]) -> str:
    """The word for where the case's own output lies."""
    out, view = case.tensors.get("out"), case.tensors[source]
    if out is None:
        return forms.get(str(case.params.get("form", "new")), "as it was found")
    alike = (word for word, made in given.items() if tidy(made).key() == tidy(case).key())
    apart = out.storage != view.storage and not out.overlaps_itself
    return next(alike, "disjoint (a storage of its own)" if apart else "as it was found")


def dtypes(case: Case, names: Sequence[str], others: Iterable[str]) -> Iterator[Alternative]:
    """The tensors that `retyped` changes of each of these dtypes."""
    for dtype in dict.fromkeys((case.tensors[names[0]].dtype, *others)):
        yield "dtype", dtype, retyped(case, names, dtype)


def retyped(case: Case, names: Sequence[str], dtype: str) -> Case:
    """The same layout, in elements, with the first of these tensors, and those that have its dtype, of another."""
    tensors = dict(case.tensors)
    for name in names:
        if name in tensors and tensors[name].dtype == case.tensors[names[0]].dtype:
            view = tensors[name]
            moved = replace(view, dtype=dtype)
            tensors[name] = replace(moved, offset=view.offset // view.itemsize * moved.itemsize)
    return replace(case, tensors=tensors)
