"""The exact overlap test behind the checks of every operator."""

import itertools
import random

import torch

from impls.overlap import Region, overlaps_itself, region_of, share_a_byte


def _bytes(region):
    indices = itertools.product(*(range(number) for number, _ in region.steps))
    starts = {region.start + sum(i * p for i, (_, p) in zip(index, region.steps)) for index in indices}
    return {start + j for start in starts for j in range(region.width)}


def test_rows_share_what_their_sets_of_addresses_share():
    """On every small combination of start, number, pitch and width."""
    shapes = [
        Region(100, w, ((n, p),)) for n, p, w in itertools.product((0, 1, 2, 4), (0, 1, 2, 3, 5, 7), (0, 1, 2, 4))
    ]
    addresses = [_bytes(shape) for shape in shapes]
    for a, b in itertools.product(range(len(shapes)), repeat=2):
        for start in range(-3, 20, 2):
            expected = not addresses[a].isdisjoint({address + start for address in addresses[b]})
            moved = shapes[b]._replace(start=100 + start)
            assert expected == share_a_byte(shapes[a], moved), (shapes[a], moved)


def test_regions_of_any_rank_share_what_their_sets_of_addresses_share():
    """On drawn pairs of up to three steps each, nested or not."""
    draw = random.Random(1)
    seen = set()
    for _ in range(10000):
        a, b = (
            Region(
                draw.randrange(60),
                draw.choice((1, 1, 2, 3, 5)),
                tuple(
                    (draw.choice((1, 2, 3, 4, 5, 9)), draw.choice((0, 1, 2, 3, 5, 7, 11, 12, 13, 20, 31, 40)))
                    for _ in range(draw.choice((0, 1, 1, 2, 2, 3)))
                ),
            )
            for _ in range(2)
        )
        expected = bool(_bytes(a) & _bytes(b))
        assert expected == share_a_byte(a, b), (a, b)
        seen.add(expected)
    assert {True, False} == seen


def test_a_tensor_overlaps_itself_when_two_indices_have_one_address():
    """On drawn shapes and strides of rank three."""
    draw = random.Random(2)
    memory = torch.zeros(400)
    for _ in range(5000):
        shape = [draw.randrange(5) for _ in range(3)]
        strides = [draw.choice((0, 1, 2, 3, 4, 5, 6, 7, 9, 12, 16, 20)) for _ in range(3)]
        indices = list(itertools.product(*map(range, shape)))
        addresses = {sum(i * s for i, s in zip(index, strides)) for index in indices}
        assert (len(addresses) < len(indices)) == overlaps_itself(memory.as_strided(shape, strides)), (shape, strides)


def test_the_bytes_of_a_tensor():
    """Of any strides, dense or not."""
    memory = torch.zeros(200, dtype=torch.float16)
    for shape, strides in (
        ((3, 4, 5), (20, 5, 1)),
        ((3, 4, 5), (40, 6, 1)),
        ((2, 3), (50, 7)),
        ((4,), (3,)),
        ((), ()),
        ((0, 2), (2, 1)),
    ):
        x = memory.as_strided(shape, strides, 3)
        addresses = {
            memory.data_ptr() + 2 * (3 + sum(i * s for i, s in zip(index, strides)))
            for index in itertools.product(*map(range, shape))
        }
        assert {address + j for address in addresses for j in range(2)} == _bytes(region_of(x))


def test_overlap_of_a_million_rows_is_found_at_the_last():
    """Sets of different pitches that meet in one byte, of the last row, share it; one byte less and they don't."""
    n = 1 << 20
    rows = Region(0, 4, ((n, 8),))
    other = Region(rows.end - 1 - 10 * 12, 1, ((11, 12),))
    assert share_a_byte(rows, Region(rows.end - 1, 1, ((2, 12),)))
    assert not share_a_byte(rows, Region(rows.end, 1, ((2, 12),)))
    assert share_a_byte(rows, other)
    assert not share_a_byte(Region(0, 4, ((n, 24),)), Region(4, 2, ((n, 12),)))
    assert share_a_byte(Region(0, 4, ((n, 24),)), Region(3, 2, ((n, 12),)))


def test_rows_of_large_coprime_pitches_meet_where_the_remainders_say():
    """Pitches p and p + 1 from one start meet again after p rows, and not one row sooner."""
    p = 10007
    assert not share_a_byte(Region(p, 1, ((p - 1, p),)), Region(p + 1, 1, ((p - 1, p + 1),)))
    assert share_a_byte(Region(p, 1, ((p + 1, p),)), Region(p + 1, 1, ((p, p + 1),)))


def test_heads_between_heads_share_nothing():
    """Slices of one fused projection, of other head counts, interleave; a slice one element wider meets its neighbour."""
    fused = torch.zeros(5, 8, 10, dtype=torch.float16)
    query, key = region_of(fused[:, :6, :8]), region_of(fused[:, 6:, :8])
    assert not share_a_byte(query, key)
    assert not share_a_byte(region_of(fused[:, :, :8]), region_of(fused[:, :, 8:]))
    assert share_a_byte(region_of(fused[:, :, :9]), region_of(fused[1:, 2:, 8:]))
