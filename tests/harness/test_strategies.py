"""harness.strategies: what is drawn, how far it reaches, and how it lies in memory."""

# ruff: noqa: SIM300 - the expected value stands first

import itertools

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from harness import strategies
from harness.case import View, contiguous
from harness.fill import KINDS
from harness.operators import top_k_mask_logits
from harness.strategies import LEGAL_RELATIONS, RELATIONS, SCALES, Layout, related_view
from tests.harness.making import drawn

SCALE = SCALES["cpu", "dev"]
LEGAL = top_k_mask_logits.cases(SCALE, illegal=False)


def size_strategy(limit, named=()):
    return st.composite(lambda draw: strategies.draw_size(draw, limit, named))()


@drawn(200)
@given(st.integers(0, 5000).flatmap(lambda limit: st.tuples(st.just(limit), size_strategy(limit, (32000, 77)))))
def test_sizes_stay_below_their_limit(pair):
    """Of every class, for any limit."""
    limit, size = pair
    assert 0 <= size <= limit


@pytest.mark.parametrize("size", [0, 1, 2, 17, 31, 33, 129, 1023, 1025, 4097, 32000])
def test_the_sizes_that_kernels_fear_are_drawn(size):
    """Beside the multiples of tiles, nothing, one, and real vocabularies."""
    assert size == find(size_strategy(40_000, (32000,)), lambda n: n == size, settings=drawn(20_000))


def test_the_simplest_size_is_one():
    """That is where shrinking ends."""
    assert 1 == find(size_strategy(5000), lambda n: True, settings=drawn(50))


def cells(view):
    """Byte offsets of the elements, brute force."""
    indices = itertools.product(*map(range, view.shape))
    return [view.offset + view.itemsize * sum(i * s for i, s in zip(index, view.strides)) for index in indices]


def taken(view):
    return {cell + i for cell in cells(view) for i in range(view.itemsize)}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("pitch", [5, 8])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_relations_are_what_their_names_say(relation, pitch, dtype):
    """Legal ones share no byte or all of them; the others share some, or have rows that overlap."""
    a, b = related_view(View(0, dtype, (3, 5), (pitch, 1), 2 * 4), relation, 1)
    own = len(set(cells(b))) < 15
    shared = taken(a) & taken(b) if a.storage == b.storage else set()
    assert (relation == "own_rows") == own
    assert (relation == "same") == (a == b)
    assert (relation in LEGAL_RELATIONS) == (not own and (not shared or a == b))
    assert (relation in ("apart", "own_rows")) == (a.storage != b.storage)


def test_an_unknown_relation_is_an_error():
    """By name."""
    with pytest.raises(ValueError, match="sideways"):
        related_view(View(0, "float32", (3, 5), (5, 1)), "sideways", 1)


@pytest.mark.parametrize(
    ("layout", "strides", "offset"),
    [
        (Layout(), (5, 1), 0),
        (Layout(pad=3), (8, 1), 0),
        (Layout(pad=-1), (4, 1), 0),
        (Layout(offset=3), (5, 1), 6),
        (Layout(expanded=True), (0, 1), 0),
    ],
)
def test_layouts_lie_as_they_say(layout, strides, offset):
    """Pitch, and start in bytes."""
    assert View(0, "float16", (3, 5), strides, offset) == layout.view(0, "float16", (3, 5))


def test_layouts_of_one_dimension_have_a_step():
    """Padding is between elements; expanded is a step of 0."""
    assert (1,) == Layout().strides((4,))
    assert (4,) == Layout(pad=3).strides((4,))
    assert (0,) == Layout(expanded=True).strides((4,))


@drawn(200)
@given(st.composite(lambda draw: strategies.draw_float_fill(draw))())
def test_fills_are_of_known_kinds(fill):
    """With seeds of 32 bits."""
    assert fill.kind in KINDS
    assert 0 <= fill.seed < 1 << 32


@drawn(300)
@given(LEGAL)
def test_cases_keep_to_their_scale(case):
    """Elements and rows."""
    batch, vocab = case.tensors["logits"].shape
    assert batch * vocab <= SCALE.elements
    assert batch <= SCALE.rows


def test_the_simplest_case_is_the_plainest_call():
    """Without features, one by one element, k = 1."""
    case = find(LEGAL, lambda c: True, settings=drawn(50))
    view = case.tensors["logits"]
    assert {"form": "new", "k": 1} == case.params
    assert ("float32", (1, 1), contiguous((1, 1)), 0) == (view.dtype, view.shape, view.strides, view.offset)


FEATURES = {
    "in place": lambda c: c.params["form"] == "in_place",
    "bfloat16, in place, padded": lambda c: (
        c.tensors["logits"].dtype == "bfloat16"
        and c.params["form"] == "in_place"
        and c.tensors["logits"].strides[0] > c.tensors["logits"].shape[1]
    ),
    "interleaved": lambda c: "out" in c.tensors and c.tensors["out"].storage == 0 and c.tensors["out"].offset > 0,
    "expanded": lambda c: c.tensors["logits"].strides[0] == 0,
    "overlapping rows": lambda c: 0 < c.tensors["logits"].strides[0] < c.tensors["logits"].shape[1],
    "strided k": lambda c: "k" in c.tensors and c.tensors["k"].strides[0] > 1,
    "k beyond 32 bits": lambda c: "k" in c.fills and any(v > 1 << 32 for v in c.fills["k"].values),
    "k = 0": lambda c: c.params.get("k") == 0,
    "no rows": lambda c: c.tensors["logits"].shape[0] == 0,
    "no columns": lambda c: c.tensors["logits"].shape[1] == 0,
    "planted": lambda c: c.fills["logits"].planted,
    "misaligned by 2 bytes": lambda c: c.tensors["logits"].offset % 4 == 2,
    "a row of 4097": lambda c: c.tensors["logits"].shape[1] == 4097,
}


@pytest.mark.parametrize("name", FEATURES)
def test_every_feature_is_reachable(name):
    """Within some thousand cases, alone or with two others."""
    assert FEATURES[name](find(LEGAL, FEATURES[name], settings=drawn(8000)))
