"""harness.resize: other sizes, the same layout."""

# ruff: noqa: SIM300 - the expected value stands first

import pytest
from msgspec.structs import replace

from harness.case import View
from harness.resize import resize, resized, sizes
from tests.harness.making import mask_case

DIMENSIONS = {"logits": ("batch", "vocab"), "k": ("batch",), "out": ("batch", "vocab")}


def test_sizes_are_those_of_the_first_tensor():
    """A tensor that disagrees comes later and does not count."""
    case = mask_case(3, 7, k=(1, 2, 3))
    broken = replace(case, tensors={**case.tensors, "k": View(1, "int64", (5,), (1,))})
    assert {"batch": 3, "vocab": 7} == sizes(broken, DIMENSIONS)


def test_every_tensor_with_the_dimension_is_resized():
    """Several dimensions at once; what disagrees about a size keeps it."""
    case = mask_case(4, 8, k=(1, 2, 3, 4), form="out")
    smaller = resized(case, DIMENSIONS, {"batch": 2, "vocab": 5})
    assert {"logits": (2, 5), "k": (2,), "out": (2, 5)} == {n: v.shape for n, v in smaller.tensors.items()}
    broken = replace(case, tensors={**case.tensors, "k": View(1, "int64", (5,), (1,))})
    assert (5,) == resized(broken, DIMENSIONS, {"batch": 2}).tensors["k"].shape


@pytest.mark.parametrize(
    ("shape", "strides", "new_shape", "new_strides"),
    [
        ((4, 10), (10, 1), (4, 3), (3, 1)),
        ((4, 10), (13, 1), (4, 3), (6, 1)),
        ((4, 10), (13, 1), (2, 10), (13, 1)),
        ((4, 10), (9, 1), (4, 3), (2, 1)),
        ((4, 10), (0, 1), (4, 3), (0, 1)),
        ((4, 10), (20, 1), (4, 3), (13, 1)),
        ((2, 3, 5), (30, 10, 2), (2, 3, 4), (24, 8, 2)),
        ((2, 3, 5), (5, 10, 1), (2, 3, 4), (4, 8, 1)),
        ((7,), (3,), (2,), (3,)),
    ],
)
def test_resizing_keeps_the_padding(shape, strides, new_shape, new_strides):
    """What a pitch has beyond what lies inside it stays: padding, overlap by one, an expanded dimension, a transposed order."""
    view = View(0, "float32", shape, strides, 8)
    assert View(0, "float32", new_shape, new_strides, 8) == resize(view, new_shape)
