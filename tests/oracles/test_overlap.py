"""oracles.overlap against sets of bytes."""

import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st

from oracles.overlap import overlaps_itself, same_view, share_a_byte
from tests.harness.making import drawn

BUFFER = torch.zeros(64, dtype=torch.uint8)


@st.composite
def windows(draw):
    """Any strided window of rank 0 to 3 on a small buffer, of elements of 1, 2 or 4 bytes."""
    dtype = draw(st.sampled_from((torch.uint8, torch.float16, torch.int32)))
    room = 64 // dtype.itemsize
    rank = draw(st.integers(0, 3))
    shape = tuple(draw(st.integers(0, 4)) for _ in range(rank))
    strides = tuple(draw(st.integers(0, 7)) for _ in range(rank))
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if 0 not in shape else 0
    if span > room:
        shape, strides, span = (3,) * rank, (1,) * rank, 1 + 2 * rank
    return BUFFER.view(dtype).as_strided(shape, strides, draw(st.integers(0, room - span)))


@st.composite
def rows(draw):
    """A window whose last stride is 1, as most tensors have: rows that touch, interleave or overlap."""
    dtype = draw(st.sampled_from((torch.float16, torch.float32)))
    batch, width, pitch = draw(st.integers(0, 4)), draw(st.integers(0, 4)), draw(st.integers(0, 6))
    room = 64 // dtype.itemsize
    span = (batch - 1) * pitch + width if batch and width else 0
    if span > room:
        batch, span = 1, width
    return BUFFER.view(dtype).as_strided((batch, width), (pitch, 1), draw(st.integers(0, room - span)))


def addresses(x):
    """Of every element, in order of its index."""
    size = x.element_size()
    indices = itertools.product(*map(range, x.shape))
    return [x.data_ptr() + size * sum(i * s for i, s in zip(at, x.stride())) for at in indices]


def covered(x):
    return {address + byte for address in addresses(x) for byte in range(x.element_size())}


@drawn(600)
@given(rows() | windows(), rows() | windows())
def test_sharing_a_byte_is_exact(a, b):
    """Rows that overlap, interleaved rows, an empty tensor inside another, any rank, either way round."""
    expected = bool(covered(a) & covered(b))
    assert expected == share_a_byte(a, b)
    assert expected == share_a_byte(b, a)


@drawn(400)
@given(rows() | windows())
def test_overlapping_itself_is_exact(x):
    """Expanded, with rows nearer than they are long, with strides that meet by chance."""
    places = addresses(x)
    assert (len(set(places)) < len(places)) == overlaps_itself(x)


@drawn(300)
@given(rows() | windows(), rows() | windows())
def test_the_same_view_is_every_index_at_the_same_place(a, b):
    """For tensors that hold anything, of one dtype."""
    if a.dtype == b.dtype and a.numel():
        assert (a.shape == b.shape and addresses(a) == addresses(b)) == same_view(a, b)


def test_a_large_dense_tensor_is_one_run():
    """Neither time nor memory goes with the number of rows where they touch."""
    a = torch.empty(1 << 20, 16, 2, dtype=torch.uint8)
    assert share_a_byte(a, a[5:6, 3])
    assert not overlaps_itself(a)
    assert not share_a_byte(a[: 1 << 19], a[1 << 19 :])
