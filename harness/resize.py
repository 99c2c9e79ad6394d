"""A case with other sizes: by dimension name, in every tensor that has the dimension, padding kept."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from harness.case import Case, View

Dimensions = Mapping[str, tuple[str, ...]]
"""Tensor name -> a name for each of its dimensions (`Operator.dimensions`)."""


def sizes(case: Case, dimensions: Dimensions) -> dict[str, int]:
    """The size of each dimension: what the first tensor that has it says."""
    found: dict[str, int] = {}
    for tensor, names in dimensions.items():
        if tensor in case.tensors:
            for name, size in zip(names, case.tensors[tensor].shape):
                found.setdefault(name, size)
    return found


def resized(case: Case, dimensions: Dimensions, new: Mapping[str, int]) -> Case:
    """The case with dimensions of other sizes; a tensor that disagrees with the first about a size keeps its own."""
    old = sizes(case, dimensions)
    tensors = dict(case.tensors)
    for tensor, names in dimensions.items():
        if (view := tensors.get(tensor)) is None or len(names) != len(view.shape):
            continue
        shape = tuple(new.get(n, size) if size == old[n] else size for n, size in zip(names, view.shape))
        tensors[tensor] = resize(view, shape)
    return replace(case, tensors=tensors)


def resize(view: View, shape: tuple[int, ...]) -> View:
    """The view with another shape and the same padding: what each pitch has beyond the dimensions inside it stays."""
    strides = list(view.strides)
    inner = sorted((i for i, stride in enumerate(view.strides) if stride), key=lambda i: (view.strides[i], -i))
    old_reach, new_reach = 1, 1
    for i in inner:
        padding = view.strides[i] - old_reach
        strides[i] = max(new_reach + padding, 0)
        old_reach, new_reach = view.strides[i] * view.shape[i], strides[i] * shape[i]
    return replace(view, shape=shape, strides=tuple(strides))
