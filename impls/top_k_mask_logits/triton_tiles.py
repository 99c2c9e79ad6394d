"""A row tile by tile, for the Triton kernel for long rows: loads and stores, the sample, the pass that notes, the radix select.

A tile is an array [parts, LANES, VECTOR] of 16 elements a lane, counted from the 16-byte boundary at or before the row's first
element, so that loads are 16 bytes wide whatever the alignment of the row. Lanes go round by a few from tile to tile, so that
no stride by a power of two stays in one lane.
"""

import triton
import triton.language as tl

from .triton_order import class_of, order_of

_CAPACITY = tl.constexpr(8)
"""Elements that a lane can note, and tiles in which it can note some."""


@triton.jit
def _first_of(tile: tl.tensor, LANES: tl.constexpr, VECTOR: tl.constexpr) -> tl.tensor:
    """Where in a part of that tile each lane's elements begin, [LANES].

    Whole lines of 128 bytes change places: a warp's access stays aligned to them.
    """
    STEP: tl.constexpr = 40 if LANES >= 64 else 3
    return ((tl.arange(0, LANES) + tile * STEP) & (LANES - 1)) * VECTOR


@triton.jit
def _offsets(tile: tl.tensor, LANES: tl.constexpr, VECTOR: tl.constexpr) -> tl.tensor:
    """Offsets of a tile, [parts, LANES, VECTOR]: a lane has 16 elements, in parts of VECTOR adjacent ones (16 bytes)."""
    parts = tl.arange(0, 16 // VECTOR)[:, None, None] * (LANES * VECTOR)
    return parts + _first_of(tile, LANES, VECTOR)[None, :, None] + tl.arange(0, VECTOR)[None, None, :]


@triton.jit
def _inside(offsets: tl.tensor, start: tl.tensor, first: tl.tensor, end: tl.tensor) -> tl.tensor:
    """Which of a tile's elements are in the row. The bounds are made 32 bits wide for the sake of registers."""
    begin = tl.maximum(first - start, 0).to(tl.int32)
    stop = tl.minimum(end - start, 1 << 30).to(tl.int32)
    return (offsets >= begin) & (offsets < stop)


@triton.jit
def load_some(pointers: tl.tensor, wanted: tl.tensor, size: tl.tensor, OTHER: tl.constexpr) -> tl.tensor:
    """Bits where they are wanted, OTHER elsewhere. `size` is any number that is not negative.

    OTHER never is the load's default as a constant: of a negative one of 16 bits, Triton 3.6 packs two by their 32 bits, so that
    every other one is 0xffff, a NaN, where the mask is constant over what is loaded at once. That `size` is not negative is
    found out too late for that. (A `where` behind the load would cost time: ptxas then waits for one load after the other.)
    """
    other = tl.where(size >= 0, OTHER, 0).to(pointers.dtype.element_ty)
    return tl.load(pointers, mask=wanted, other=other)


@triton.jit
def _is_whole(tile: tl.tensor, first: tl.tensor, end: tl.tensor, LANES: tl.constexpr) -> tl.tensor:
    """Whether all of a tile is in the row base[first:end]; false for a tile before or behind it."""
    return (tile * (16 * LANES) >= first) & ((tile + 1) * (16 * LANES) <= end)


@triton.jit
def load_whole(
    base: tl.tensor, tile: tl.tensor, first: tl.tensor, end: tl.tensor, LANES: tl.constexpr, VECTOR: tl.constexpr
) -> tl.tensor:
    """That tile, if it is whole; else anything, and nothing is read. `base` is aligned to 16 bytes.

    To be called a tile ahead: memory then works on the next while one is worked on.
    """
    at = tl.multiple_of(base + tile * (16 * LANES), 16)
    # As a comparison of parts, since the interpreter takes no scalar for a mask.
    wanted = tl.arange(0, 16 // VECTOR)[:, None, None] < tl.where(_is_whole(tile, first, end, LANES), 16, 0)
    return tl.load(at + _offsets(tile, LANES, VECTOR), mask=wanted)


@triton.jit
def complete_tile(
    loaded: tl.tensor, base: tl.tensor, tile: tl.tensor, first: tl.tensor, end: tl.tensor, OTHER: tl.constexpr,
    LANES: tl.constexpr, VECTOR: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """The tile that `load_whole` gave, or the part of it that is in the row, and OTHER outside."""
    if not _is_whole(tile, first, end, LANES):
        start = tile * (16 * LANES)
        offsets = _offsets(tile, LANES, VECTOR)
        loaded = load_some(base + start + offsets, _inside(offsets, start, first, end), first, OTHER)
    return loaded


@triton.jit
def store_tile(
    base: tl.tensor, tile: tl.tensor, first: tl.tensor, end: tl.tensor, bits: tl.tensor, ALIGNED: tl.constexpr,
    LANES: tl.constexpr, VECTOR: tl.constexpr,
) -> None:  # fmt: skip
    """Writes a tile's part inside of the row. ALIGNED: `base` is aligned to 16 bytes."""
    start = tile * (16 * LANES)
    offsets = _offsets(tile, LANES, VECTOR)
    at = base + start
    if ALIGNED:
        at = tl.multiple_of(at, 16)
    if _is_whole(tile, first, end, LANES):
        tl.store(at + offsets, bits)
    else:
        tl.store(at + offsets, bits, mask=_inside(offsets, start, first, end))


@triton.jit
def _fold(values: tl.tensor) -> tl.tensor:
    """The sum over a lane's elements, [LANES]."""
    return tl.sum(tl.sum(values, 2), 0)


@triton.jit
def _pieces(first: tl.tensor, end: tl.tensor, VECTOR: tl.constexpr) -> tl.tensor:
    """Whole pieces of 128 bytes from the first 16-byte boundary in the row."""
    return (end - (first + VECTOR - 1) // VECTOR * VECTOR) // (8 * VECTOR)


@triton.jit
def sample_size(first: tl.tensor, end: tl.tensor, LANES: tl.constexpr, VECTOR: tl.constexpr) -> tl.tensor:
    """How many elements of `sample_row`, with one turn, are of the row."""
    return tl.minimum(_pieces(first, end, VECTOR) * (8 * VECTOR), 16 * LANES)


@triton.jit
def sample_row(
    base: tl.tensor, first: tl.tensor, end: tl.tensor, turn: tl.tensor, TURNS: tl.constexpr, INFINITY: tl.constexpr,
    WIDTH: tl.constexpr, LANES: tl.constexpr, VECTOR: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """A tile's worth of bits in pieces of 128 bytes, evenly spread; TURNS of them share no element. Missing ones are -inf.

    Neighbours among the pieces go to different lanes, so that large elements that stand together do.
    """
    MINUS_INFINITY: tl.constexpr = INFINITY - (1 << (WIDTH - 1))
    PIECE: tl.constexpr = VECTOR * 8
    COUNT: tl.constexpr = 16 * LANES // PIECE * TURNS
    whole = (first + VECTOR - 1) // VECTOR * VECTOR
    pieces = _pieces(first, end, VECTOR)
    offsets = _offsets(0, LANES, VECTOR)
    piece = offsets // PIECE + turn * (COUNT // TURNS)
    # In the middle of each of COUNT equal stretches; below 2^31, since a row has at most 1024 tiles.
    piece = tl.where(pieces > COUNT, (2 * piece + 1) * pieces // (2 * COUNT), piece)
    at = tl.multiple_of(base + whole, 16) + (piece * PIECE + offsets % PIECE)
    return load_some(at, piece < pieces, first, MINUS_INFINITY)


@triton.jit
def stream(
    base: tl.tensor, out_base: tl.tensor, first: tl.tensor, end: tl.tensor, keep: tl.tensor, low: tl.tensor,
    high: tl.tensor, WRITE: tl.constexpr, INFINITY: tl.constexpr, WIDTH: tl.constexpr, ALIGNED: tl.constexpr, LANES: tl.constexpr,
    VECTOR: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:  # fmt: skip
    """Reads the row once and notes where it is in [low, high], low > 0.

    With WRITE, writes what is not below `keep`, and -inf for the rest. Without it, counts.

    Returns the noted elements' offsets from `base`, int32 [LANES, _CAPACITY], -1 where there is none; whether there was no
    room for some; and how many elements are above `high`, and how many not below `low`.
    """
    MINUS_INFINITY: tl.constexpr = INFINITY - (1 << (WIDTH - 1))
    TILE: tl.constexpr = 16 * LANES
    element = tl.arange(0, 16 // VECTOR)[:, None, None] * VECTOR + tl.arange(0, VECTOR)[None, None, :]
    flag = (tl.full((16 // VECTOR, 1, VECTOR), 1, tl.int32) << element).to(tl.int32)
    # A word says in its lower half which of a lane's 16 elements of a tile were noted, and in its upper half which tile.
    none = tl.full((LANES,), 0, tl.int32)
    word0, word1, word2, word3, word4, word5, word6, word7 = none, none, none, none, none, none, none, none
    lost, counts = none, none
    tile = tl.full((), 0, tl.int32)
    ahead = load_whole(base, tile, first, end, LANES, VECTOR)
    while tile * TILE < end:
        bits = ahead
        ahead = load_whole(base, tile + 1, first, end, LANES, VECTOR)
        bits = complete_tile(bits, base, tile, first, end, MINUS_INFINITY, LANES, VECTOR)
        order = order_of(bits, INFINITY, WIDTH)
        if WRITE:
            kept = tl.where(order >= keep, bits, MINUS_INFINITY).to(bits.dtype)
            store_tile(out_base, tile, first, end, kept, ALIGNED, LANES, VECTOR)
            noted = order >= low
        else:
            noted = (order >= low) & (order <= high)
            counts += _fold((order > high).to(tl.int32) + tl.where(order >= low, 65536, 0))
        flags = _fold(tl.where(noted, flag, 0))
        some = flags != 0
        lost = lost | tl.where(some, word7, 0)
        word7 = tl.where(some, word6, word7)
        word6 = tl.where(some, word5, word6)
        word5 = tl.where(some, word4, word5)
        word4 = tl.where(some, word3, word4)
        word3 = tl.where(some, word2, word3)
        word2 = tl.where(some, word1, word2)
        word1 = tl.where(some, word0, word1)
        word0 = tl.where(some, flags | (tile << 16), word0)
        tile += 1

    offsets = tl.full((LANES, _CAPACITY), -1, tl.int32)
    column = tl.arange(0, _CAPACITY)[None, :]
    taken = tl.full((), 0, tl.int32)
    left = tl.max(word0 & 65535, 0)
    while (left > 0) & (taken < _CAPACITY):
        flags = word0 & 65535
        lowest = flags & -flags
        # The exponent of a power of two is its logarithm.
        which = (lowest.to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127
        seen = word0 >> 16
        at = seen * TILE + which // VECTOR * (LANES * VECTOR) + _first_of(seen, LANES, VECTOR) + which % VECTOR
        at = tl.where(flags != 0, at, -1)
        offsets = tl.where(column == taken, at[:, None], offsets)
        empty = (flags ^ lowest) == 0
        word0 = tl.where(empty, word1, word0 ^ lowest)
        word1 = tl.where(empty, word2, word1)
        word2 = tl.where(empty, word3, word2)
        word3 = tl.where(empty, word4, word3)
        word4 = tl.where(empty, word5, word4)
        word5 = tl.where(empty, word6, word5)
        word6 = tl.where(empty, word7, word6)
        word7 = tl.where(empty, 0, word7)
        left = tl.max(word0 & 65535, 0)
        taken += 1
    overflow = (left > 0) | (tl.max(lost & 65535, 0) > 0)
    return offsets, overflow, tl.sum(counts & 65535, 0), tl.sum(counts >> 16, 0)


@triton.jit
def orders_at(
    base: tl.tensor, offsets: tl.tensor, first: tl.tensor, INFINITY: tl.constexpr, WIDTH: tl.constexpr
) -> tl.tensor:
    """The noted elements of the row base[first:] by `order_of`, 0 where there is none."""
    MINUS_INFINITY: tl.constexpr = INFINITY - (1 << (WIDTH - 1))
    return order_of(load_some(base + offsets, offsets >= 0, first, MINUS_INFINITY), INFINITY, WIDTH)


@triton.jit
def radix_select(
    source: tl.tensor, vocab: tl.tensor, k: tl.tensor, INFINITY: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr
) -> tl.tensor:
    """The class of the k-th largest element, 0 < k < vocab, of a row of any length: a pass for each 8 bits, from the top."""
    TILE: tl.constexpr = 16 * LANES
    bins = tl.arange(0, 256)
    least = tl.full((), 0, tl.uint32)
    rank = k
    for digit in range(WIDTH // 8):
        shift = WIDTH - 8 - 8 * digit
        histogram = tl.full((256,), 0, tl.int64)
        start = tl.full((), 0, tl.int64)
        while start < vocab:
            offsets = start + tl.arange(0, TILE)
            inside = offsets < vocab
            order = class_of(order_of(tl.load(source + offsets, mask=inside, other=0), INFINITY, WIDTH), INFINITY)
            # Those that share the digits found so far. The first shift would be by all 32 bits, so it is made in two.
            same = ((order ^ least) >> shift >> 8) == 0
            histogram += tl.histogram(((order >> shift) & 255).to(tl.int32), 256, mask=inside & same)
            start += TILE
        # Bins from the top hold more and more elements; the rank-th largest is in the last bin that has seen that many.
        through = tl.cumsum(histogram, 0, reverse=True)
        chosen = tl.sum((through >= rank).to(tl.int32), 0) - 1
        rank -= tl.sum(tl.where(bins > chosen, histogram, 0), 0)
        least |= chosen.to(tl.uint32) << shift
    return least
