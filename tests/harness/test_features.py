"""harness.features: what a case uses beyond the plainest call."""

# ruff: noqa: SIM300 - the expected value stands first

import pytest
from hypothesis import given
from msgspec.structs import replace

from harness.case import View
from harness.features import aliases, coarse_traits, layout, relation, traits
from harness.operators import top_k_mask_logits
from harness.strategies import SCALES
from tests.harness.making import drawn, mask_case

CASES = top_k_mask_logits.cases(SCALES["cpu", "dev"])


def view(shape=(3, 4), strides=(4, 1), offset=0, dtype="float32"):
    return View(0, dtype, shape, strides, offset)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (view(), []),
        (view(offset=16), []),
        (view(offset=4), ["misaligned"]),
        (view(strides=(5, 1)), ["padded"]),
        (view(strides=(5, 1), offset=8), ["padded", "misaligned"]),
        (view(strides=(0, 1)), ["expanded"]),
        (view(strides=(3, 1)), ["overlapping"]),
        (view((1, 4), (99, 1)), []),
        (view((3, 1), (1, 7)), []),
        (view((0, 4), (9, 1)), []),
        (view((4,), (2,)), ["padded"]),
        (view((), ()), []),
    ],
)
def test_layouts(what, words):
    """Strides of dimensions of size one say nothing."""
    assert words == layout(what)


@pytest.mark.parametrize(
    ("a", "b", "word"),
    [
        (view(), view(), "same"),
        (view(), view(offset=48), "apart"),
        (view(offset=48), view(), "apart"),
        (view(strides=(8, 1)), view(strides=(8, 1), offset=16), "interleaved"),
        (view(), view(offset=4), "interleaved"),
        (view(), view(dtype="int32"), "interleaved"),
    ],
)
def test_relations(a, b, word):
    """Of two views on one storage."""
    assert word == relation(a, b)


def test_aliases_name_both_tensors():
    """Only those that share a storage."""
    assert [] == aliases(mask_case(form="out", k=(1, 2)))
    assert ["out same logits"] == aliases(mask_case(form="out", out=view((2, 5), (5, 1))))


def test_the_plainest_call_has_its_dtype_alone():
    """Every other word is a feature that can be turned off."""
    assert ("float32",) == traits(mask_case())


def test_a_tuning_other_than_the_default_is_a_trait():
    """It selects another binary."""
    case = mask_case()
    assert ("float32",) == traits(case)
    assert ("float32", "tuned") == traits(replace(case, tuning=3))


@drawn(150)
@given(CASES)
def test_traits_are_stable_words(case):
    """No digits but those of a dtype: nothing of sizes, offsets or seeds."""
    for word in traits(case):
        for dtype in ("float16", "float32", "float64", "int16", "int32", "int64"):
            word = word.replace(dtype, "")
        assert not any(c.isdigit() for c in word), word
    assert set(coarse_traits(case)) <= set(traits(case))
