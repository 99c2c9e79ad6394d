"""harness.case: the JSON of a case, what it refuses, and the geometry of views."""

# ruff: noqa: SIM300 - the expected value stands first

import itertools
import json
import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.case import (
    FORMAT,
    MAX_BYTES,
    MAX_DEPTH,
    Build,
    Case,
    CaseError,
    Fill,
    Planted,
    Subject,
    View,
    contiguous,
    tidy,
    total_bytes,
    validate,
)
from harness.operators import top_k_mask_logits
from harness.strategies import SCALES
from tests.harness.making import drawn, mask_case

CASES = top_k_mask_logits.cases(SCALES["cpu", "dev"])


def read(text):
    """What a reader of a file does: decode, then validate."""
    subject = msgspec.json.decode(text, type=Subject)
    validate(subject)
    return subject


@drawn(300)
@given(CASES)
def test_json_round_trip_is_the_identity(case):
    """A drawn case is valid, and its JSON reads back as an equal case with an equal key."""
    again = read(case.key())
    assert case == again
    assert case.key() == again.key()


def test_builds_round_trip_too():
    """A build's JSON reads back as a Build, not as a Case."""
    build = Build("top_k_mask_logits", {"dtype": "float32"}, "sm_90a")
    again = read(build.key())
    assert isinstance(again, Build)
    assert build == again


def test_keys_do_not_depend_on_the_order_of_names():
    """Two equal cases whose dicts were filled in another order have one key."""
    a = Case("x", {"a": 1, "b": 2})
    b = Case("x", {"b": 2, "a": 1})
    assert a.key() == b.key()


def test_keys_tell_the_zeros_apart():
    """A fill with -0.0 compares equal to one with 0.0, but makes other bits, so its key differs."""
    a = mask_case(fill=Fill("cycle", 0, (0.0,)))
    b = mask_case(fill=Fill("cycle", 0, (-0.0,)))
    assert a.key() != b.key()


def edited(**changes):
    """The JSON of a plain case with some fields replaced, by dotted path."""
    value = json.loads(mask_case(form="out").key())
    for path, new in changes.items():
        *parents, last = path.split("__")
        place = value
        for parent in parents:
            place = place[parent]
        place[last] = new
    return json.dumps(value).encode()


HOSTILE = {
    "negative size": {"tensors__logits__shape": [-1, 5]},
    "negative stride": {"tensors__logits__strides": [-5, 1]},
    "negative offset": {"tensors__logits__offset": -4},
    "size 2^62": {"tensors__logits__shape": [1 << 62, 1]},
    "size 2^200": {"tensors__logits__shape": [1 << 200, 1]},
    "product past the limit": {"tensors__logits__shape": [1 << 30, 1 << 30], "tensors__logits__strides": [0, 0]},
    "expanded past the limit": {"tensors__logits__shape": [1 << 39, 5], "tensors__logits__strides": [0, 1]},
    "stride 2^62": {"tensors__logits__strides": [1 << 62, 1]},
    "storage past the limit": {"storages": [2 * MAX_BYTES, 40]},
    "storages past the limit together": {"storages": [MAX_BYTES // 2 + 1, MAX_BYTES // 2]},
    "negative storage": {"storages": [-1, 40]},
    "view leaves its storage by a row": {"tensors__logits__strides": [6, 1]},
    "view leaves its storage by an offset": {"tensors__logits__offset": 4},
    "empty view outside": {"tensors__logits__shape": [0, 5], "tensors__logits__offset": 400},
    "storage that is not there": {"tensors__logits__storage": 2},
    "unknown dtype": {"tensors__logits__dtype": "float12"},
    "dtype that torch has but no case": {"tensors__logits__dtype": "complex64"},
    "dtype of another type": {"tensors__logits__dtype": 4},
    "misaligned offset": {"tensors__logits__offset": 2, "storages": [400, 40]},
    "rank mismatch": {"tensors__logits__strides": [1]},
    "rank 9": {"tensors__logits__shape": [1] * 9, "tensors__logits__strides": [1] * 9},
    "65 storages": {"storages": [40] * 65},
    "unknown field": {"device": "cuda"},
    "unknown field of a view": {"tensors__logits__device": "cuda"},
    "unknown field of a fill": {"fills__logits__code": "print(1)"},
    "unknown tag": {"type": "exec"},
    "format of the future": {"format": FORMAT + 1},
    "format as text": {"format": "1"},
    "operator of another type": {"operator": 7},
    "float size": {"tensors__logits__shape": [2.5, 5]},
    "text size": {"tensors__logits__shape": ["2", 5]},
    "boolean size": {"tensors__logits__shape": [True, 5]},
    "null params": {"params": None},
    "seed 2^32": {"fills__logits__seed": 1 << 32},
    "negative seed": {"fills__logits__seed": -1},
    "fill of no tensor": {"fills": {"bias": {"kind": "cycle"}}},
    "planted outside": {"fills__logits__planted": [{"index": 10, "value": 1.0}]},
    "unknown kind of fill": {"fills__logits__kind": "noise"},
    "a value past every float": {"fills__logits__values": [10**400]},
    "a planted value past every float": {"fills__logits__planted": [{"index": 0, "value": -(10**400)}]},
    "NaN for an integer": {"tensors__logits__dtype": "int32", "fills__logits__values": ["nan"]},
    "infinity planted among integers": {
        "tensors__logits__dtype": "bool",
        "fills__logits__planted": [{"index": 0, "value": "-inf"}],
    },
    "planted text": {"fills__logits__planted": [{"index": 0, "value": "one"}]},
    "text in the values": {"fills__logits__values": ["__import__('os')"]},
    "boolean in the values": {"fills__logits__values": [True]},
    "null in the values": {"fills__logits__values": [None]},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_json_is_a_clear_error(name):
    """What is no case raises CaseError or DecodeError with one line, and allocates nothing of the size it names."""
    text = edited(**HOSTILE[name])
    tracemalloc.start()
    try:
        with pytest.raises((CaseError, msgspec.DecodeError)) as caught:
            read(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 1 == len(str(caught.value).splitlines())
    assert peak < 1 << 20


def test_the_unedited_case_is_valid():
    """The base of the hostile cases is itself fine, so that each is refused for its edit alone."""
    assert mask_case(form="out") == read(edited())


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"type":"call"}', b"{}"])
def test_other_json_is_a_decode_error(text):
    """Half a file, another value, no UTF-8, missing fields."""
    with pytest.raises(msgspec.DecodeError):
        read(text)


@pytest.mark.parametrize("write", ["[{}]", '{{"a": {}}}'], ids=["lists", "objects"])
@pytest.mark.parametrize("kind", ["call", "build"])
def test_parameters_are_no_deeper_than_a_limit(kind, write):
    """So that an entry can be read with every version of Python, or with none: how deep a decoder goes is not in question."""

    def subject(depth):
        value = "1"
        for _ in range(depth):
            value = write.format(value)
        rest = '"arch": "sm_80", ' if kind == "build" else ""
        return f'{{"type": "{kind}", "operator": "o", {rest}"params": {{"x": {value}}}}}'

    assert isinstance(read(subject(MAX_DEPTH)), Case | Build)
    for depth in (MAX_DEPTH + 1, 100, 500):
        with pytest.raises(CaseError, match=r"^parameter 'x': lists and objects that are more than 8 deep$"):
            read(subject(depth))


def test_an_empty_view_may_start_at_the_end_of_its_storage():
    """Zero elements end where they start."""
    validate(Case("x", {}, (8,), {"t": View(0, "float32", (0, 3), (3, 1), 8)}))


views = st.integers(0, 4).flatmap(
    lambda rank: st.builds(
        View,
        st.just(0),
        st.sampled_from(("float16", "float32", "int64")),
        st.tuples(*[st.integers(0, 4)] * rank),
        st.tuples(*[st.integers(0, 7)] * rank),
        st.integers(0, 3).map(lambda n: 8 * n),
    )
)


def addresses(view):
    """Element offsets, one an index: brute force."""
    indices = itertools.product(*map(range, view.shape))
    return [sum(i * s for i, s in zip(index, view.strides)) for index in indices]


@drawn(400)
@given(views)
def test_span_and_end_are_those_of_the_addresses(view):
    """span counts the elements from the first address to the last; end is the byte after it."""
    reached = addresses(view)
    assert (max(reached) + 1 if reached else 0) == view.span
    assert len(reached) == view.numel
    assert view.offset + view.span * view.itemsize == view.end


@drawn(400)
@given(views)
def test_no_overlap_is_overlooked(view):
    """A view whose indices share an element always says so, whatever its strides."""
    reached = addresses(view)
    if len(set(reached)) < len(reached):
        assert view.overlaps_itself


@st.composite
def nested(draw):
    """A view whose pitches each hold the dimensions inside, or are 0, or one too small: what the strategies draw."""
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    strides, reach = [], 1
    for size in reversed(shape):
        strides.append(max(draw(st.sampled_from((reach, reach + 1, reach + 3, reach - 1, 0))), 0))
        reach = max(reach, strides[-1] * size)
    return View(0, "float32", shape, tuple(reversed(strides)))


@drawn(400)
@given(nested())
def test_overlap_is_exact_for_rows_in_a_pitch(view):
    """For two dimensions with a last stride of 1, overlaps_itself agrees with brute force both ways."""
    if len(view.shape) == 2 and view.strides[1] == 1:
        reached = addresses(view)
        assert (len(set(reached)) < len(reached)) == view.overlaps_itself


def test_contiguous_strides():
    """Row-major, with an empty dimension counted as one element wide."""
    assert (15, 5, 1) == contiguous((2, 3, 5))
    assert (5, 5, 1) == contiguous((2, 0, 5))
    assert () == contiguous(())


def test_tidy_cuts_storages_to_what_views_use():
    """Unused storages go, the others end at the last byte used, views follow, and nothing else changes."""
    view = View(3, "float32", (2, 3), (4, 1), 8)
    case = Case("x", {"a": 1}, (100, 100, 100, 100), {"t": view}, {"t": Fill("cycle"), "gone": Fill("raw")})
    tidied = tidy(case)
    assert (8 + 4 * 7,) == tidied.storages
    assert View(0, "float32", (2, 3), (4, 1), 8) == tidied.tensors["t"]
    assert {"t": Fill("cycle")} == tidied.fills
    assert {"a": 1} == tidied.params


def test_tidy_drops_planted_values_that_lost_their_place():
    """After a view got smaller, only planted values inside it stay."""
    fill = Fill("cycle", planted=(Planted(2, 1.0), Planted(3, 2.0)))
    case = tidy(Case("x", {}, (12,), {"t": View(0, "float32", (3,), (1,))}, {"t": fill}))
    assert (Planted(2, 1.0),) == case.fills["t"].planted
    validate(case)


def test_tidy_keeps_aliases():
    """Two views of one storage stay on one storage."""
    a, b = View(1, "float32", (2,), (1,)), View(1, "float32", (2,), (1,), 8)
    tidied = tidy(Case("x", {}, (0, 64), {"a": a, "b": b}))
    assert {0} == {view.storage for view in tidied.tensors.values()}
    assert (16,) == tidied.storages
    assert 16 == total_bytes(tidied)


@drawn(100)
@given(CASES)
def test_tidy_is_idempotent_and_valid(case):
    """Drawn cases are tidy already."""
    assert case == tidy(case)
