"""The kernels of the Triton backend. One program masks one row; `triton.py` chooses the kernel and starts it.

All of them rank a row by `_order`, a total order of the bits that refines the order of `formats`' keys, and keep what is not
below the least number of the k-th element's class (`_class`): the same elements that the keys keep.

A short row lies in registers, where its k-th element is found by bisection. A long row (`mask_long_rows`) is streamed:

- Small k: the k-th largest of any part of the row is at most the k-th largest of the row. A sample of the row gives such a
  lower bound, and one pass reads the row, writes what is not below the bound and -inf for the rest, and notes which elements
  are above it. Those are few; the k-th among them is the answer, and the noted elements below it are overwritten.
- Larger k: the sample gives a bracket for the k-th element. A pass that only reads counts what is above the bracket and notes
  what is in it, and a last pass writes. A bracket that holds too much is narrowed by what the pass has counted.
- Whatever defeats this (too many noted elements for the registers, a bracket that missed) ends in `_radix_select`.

In place is safe. No element is written before all of its row that the choice depends on was read, with one exception: the
pass for small k writes -inf over elements below its bound. At least k elements are not below it, and those keep their bits
until the answer is known, so that the k-th largest stays what it was, also for a pass that reads the row again. Each
element is written by the thread that has read it, or after a barrier.

Loops over tensors are `while`: the interpreter of Triton 3.6 cannot make a range of them under NumPy 2.4.
"""

import triton
import triton.language as tl

_CAPACITY = tl.constexpr(8)
"""Noted elements that fit in a lane, 16 elements of each tile being one lane's: as many words, as many elements in all."""

_TRIES = tl.constexpr(4)
"""Brackets that are tried before the radix select."""


@triton.jit
def _order(bits: tl.tensor, INFINITY: tl.constexpr, WIDTH: tl.constexpr) -> tl.tensor:
    """Bits as uint32 in the order of the values: 0 is -inf, 2 * INFINITY + 1 is +inf, all NaNs are above.

    -0.0 is INFINITY and +0.0 one more; NaNs differ by sign and payload. Three instructions.
    """
    bits = bits.to(tl.int32)  # extends the sign
    ordered = bits ^ ((bits >> 31) & ((1 << (WIDTH - 1)) - 1))
    # It wraps around on purpose: a negative NaN is below -inf in `ordered`, and above all else as an unsigned number here.
    return tl.add(ordered, INFINITY + 1, sanitize_overflow=False).to(tl.uint32, bitcast=True)


@triton.jit
def _class(order: tl.tensor, INFINITY: tl.constexpr) -> tl.tensor:
    """The least number of the values that rank the same: the zeros are one class, the NaNs another."""
    order = tl.where(order == INFINITY + 1, order - 1, order)
    return tl.where(order > 2 * INFINITY + 1, 2 * INFINITY + 2, order).to(tl.uint32)


@triton.jit
def _next_class(order: tl.tensor, INFINITY: tl.constexpr) -> tl.tensor:
    """The least number above that of a class; of the NaNs, the largest number that one of them has."""
    following = order + tl.where(order == INFINITY, 2, 1).to(tl.uint32)
    return tl.where(order > 2 * INFINITY + 1, ~(order ^ order), following)


@triton.jit
def _count(values: tl.tensor, least: tl.tensor) -> tl.tensor:
    """How many of `values`, of any shape, are not below `least`."""
    return tl.sum(tl.ravel((values >= least).to(tl.int32)), 0)


@triton.jit
def _bisect(values: tl.tensor, rank: tl.tensor, slack: tl.tensor, low: tl.tensor, high: tl.tensor) -> tl.tensor:
    """A number in [low, high] that at least `rank` and, if there is one, at most rank + slack of `values` are not below.

    If there is none, it is the largest such number, and one of `values`. At least `rank` values must not be below `low`, and
    fewer not below high + 1.
    """
    most = rank + slack
    count = most + 1
    while (low < high) & (count > most):
        middle = high - ((high - low) >> 1)
        found = _count(values, middle)
        if found >= rank:
            low = middle
            count = found
        else:
            high = middle - 1
    return low


@triton.jit
def _largest(values: tl.tensor, rank: tl.tensor, low: tl.tensor, high: tl.tensor) -> tl.tensor:
    """The rank-th largest of `values`; `low` and `high` as for `_bisect`."""
    bound = _bisect(values, rank, 0, low, high)
    return tl.min(tl.ravel(tl.where(values >= bound, values, ~(bound ^ bound))), 0)


@triton.jit
def _row_k(k_rows: tl.tensor, k_stride: tl.tensor, k_scalar: tl.tensor, row: tl.tensor) -> tl.tensor:
    k = k_scalar
    if k_rows is not None:
        k = tl.load(k_rows + row * k_stride).to(tl.int64)
    return k


# No specialisation on values or alignment: the variants are then exactly those that `triton.py` lists, and build covers them.
@triton.jit(
    do_not_specialize=["logits_stride", "out_stride", "batch", "vocab", "k_stride", "k_scalar"],
    do_not_specialize_on_alignment=["logits", "out", "k_rows"],
)
def mask_short_rows(
    logits: tl.tensor,
    out: tl.tensor,
    logits_stride: tl.int64,
    out_stride: tl.int64,
    batch: tl.int64,
    vocab: tl.int64,
    k_rows: tl.tensor,
    k_stride: tl.int64,
    k_scalar: tl.int64,
    INFINITY: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Rows of at most BLOCK elements: one read, the choice in registers, one write."""
    MINUS_INFINITY: tl.constexpr = INFINITY - (1 << (WIDTH - 1))
    lanes = tl.arange(0, BLOCK)
    inside = lanes < vocab
    row = tl.program_id(0).to(tl.int64)
    while row < batch:
        source = logits + row * logits_stride
        target = out + row * out_stride
        k = _row_k(k_rows, k_stride, k_scalar, row)
        if (k < vocab) | (source.to(tl.uint64) != target.to(tl.uint64)):
            bits = tl.load(source + lanes, mask=inside, other=MINUS_INFINITY)
            order = _order(bits, INFINITY, WIDTH)
            least = tl.full((), 0, tl.uint32)  # keeps all
            if (k > 0) & (k < vocab):
                # What lies outside counts as -inf, and bisection asks for no count of that.
                highest = tl.max(order, 0)
                least = _class(_largest(order, k.to(tl.int32), least, highest), INFINITY)
            tl.store(target + lanes, tl.where((order >= least) & (k > 0), bits, MINUS_INFINITY), mask=inside)
        row += tl.num_programs(0)


@triton.jit
def _lanes(LANES: tl.constexpr, VECTOR: tl.constexpr) -> tl.tensor:
    """Offsets of a tile, [parts, LANES, VECTOR]: a lane has 16 elements, in parts of VECTOR adjacent ones (16 bytes)."""
    parts = tl.arange(0, 16 // VECTOR)[:, None, None] * (LANES * VECTOR)
    return parts + tl.arange(0, LANES)[None, :, None] * VECTOR + tl.arange(0, VECTOR)[None, None, :]


@triton.jit
def _inside(offsets: tl.tensor, start: tl.tensor, first: tl.tensor, end: tl.tensor) -> tl.tensor:
    """Which of a tile's elements are in the row. The bounds are made 32 bits wide for the sake of registers."""
    begin = tl.maximum(first - start, 0).to(tl.int32)
    stop = tl.minimum(end - start, 1 << 30).to(tl.int32)
    return (offsets >= begin) & (offsets < stop)


@triton.jit
def _load(
    base: tl.tensor, start: tl.tensor, first: tl.tensor, end: tl.tensor, OTHER: tl.constexpr, LANES: tl.constexpr,
    VECTOR: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """The tile at `start` of the row base[first:end]; OTHER outside of the row. `base` is aligned to 16 bytes."""
    offsets = _lanes(LANES, VECTOR)
    at = tl.multiple_of(base + start, 16)
    if (start >= first) & (start + 16 * LANES <= end):
        bits = tl.load(at + offsets)
    else:
        bits = tl.load(at + offsets, mask=_inside(offsets, start, first, end), other=OTHER)
    return bits


@triton.jit
def _store(
    base: tl.tensor, start: tl.tensor, first: tl.tensor, end: tl.tensor, bits: tl.tensor, ALIGNED: tl.constexpr,
    LANES: tl.constexpr, VECTOR: tl.constexpr,
) -> None:  # fmt: skip
    """Writes a tile's part inside of the row. ALIGNED: `base` is aligned to 16 bytes."""
    offsets = _lanes(LANES, VECTOR)
    at = base + tl.multiple_of(start, 16)
    if ALIGNED:
        at = tl.multiple_of(base + start, 16)
    if (start >= first) & (start + 16 * LANES <= end):
        tl.store(at + offsets, bits)
    else:
        tl.store(at + offsets, bits, mask=_inside(offsets, start, first, end))


@triton.jit
def _fold(values: tl.tensor) -> tl.tensor:
    """The sum over a lane's elements, [LANES]."""
    return tl.sum(tl.sum(values, 2), 0)


@triton.jit
def _sample(
    base: tl.tensor, first: tl.tensor, end: tl.tensor, turn: tl.tensor, TURNS: tl.constexpr, INFINITY: tl.constexpr,
    WIDTH: tl.constexpr, LANES: tl.constexpr, VECTOR: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """A tile's worth of elements in pieces of 512 bytes, evenly spread; TURNS of them share no element. Missing ones are 0."""
    MINUS_INFINITY: tl.constexpr = INFINITY - (1 << (WIDTH - 1))
    PIECE: tl.constexpr = VECTOR * (32 if LANES >= 32 else LANES)
    whole = (first + VECTOR - 1) // VECTOR * VECTOR
    pieces = (end - whole) // PIECE
    step = tl.maximum(pieces // (16 * LANES // PIECE * TURNS), 1)
    offsets = _lanes(LANES, VECTOR)
    piece = ((offsets // PIECE) * TURNS + turn) * step
    bits = tl.load(tl.multiple_of(base + whole, 16) + (piece * PIECE + offsets % PIECE), mask=piece < pieces, other=MINUS_INFINITY)
    return _order(bits, INFINITY, WIDTH)


@triton.jit
def _stream(
    base: tl.tensor, out_base: tl.tensor, first: tl.tensor, end: tl.tensor, keep: tl.tensor, low: tl.tensor,
    high: tl.tensor, WRITE: tl.constexpr, INFINITY: tl.constexpr, WIDTH: tl.constexpr, ALIGNED: tl.constexpr, LANES: tl.constexpr,
    VECTOR: tl.constexpr,
):  # fmt: skip
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
    start = tl.full((), 0, tl.int32)
    tile = tl.full((), 0, tl.int32)
    while start < end:
        bits = _load(base, start, first, end, MINUS_INFINITY, LANES, VECTOR)
        order = _order(bits, INFINITY, WIDTH)
        if WRITE:
            kept = tl.where(order >= keep, bits, MINUS_INFINITY).to(bits.dtype)
            _store(out_base, start, first, end, kept, ALIGNED, LANES, VECTOR)
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
        start += TILE
        tile += 1

    offsets = tl.full((LANES, _CAPACITY), -1, tl.int32)
    column = tl.arange(0, _CAPACITY)[None, :]
    lane = tl.arange(0, LANES)
    taken = tl.full((), 0, tl.int32)
    left = tl.max(word0 & 65535, 0)
    while (left > 0) & (taken < _CAPACITY):
        flags = word0 & 65535
        lowest = flags & -flags
        # The exponent of a power of two is its logarithm.
        which = (lowest.to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127
        at = (word0 >> 16) * TILE + which // VECTOR * (LANES * VECTOR) + lane * VECTOR + which % VECTOR
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
def _orders_at(base: tl.tensor, offsets: tl.tensor, INFINITY: tl.constexpr, WIDTH: tl.constexpr) -> tl.tensor:
    """The noted elements by `_order`, 0 where there is none."""
    MINUS_INFINITY: tl.constexpr = INFINITY - (1 << (WIDTH - 1))
    return _order(tl.load(base + offsets, mask=offsets >= 0, other=MINUS_INFINITY), INFINITY, WIDTH)


@triton.jit
def _radix_select(
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
            order = _class(_order(tl.load(source + offsets, mask=inside, other=0), INFINITY, WIDTH), INFINITY)
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


@triton.jit
def _bracket(
    sample: tl.tensor, rank: tl.tensor, population: tl.tensor, lowest: tl.tensor, highest: tl.tensor
):  # fmt: skip
    """Where the rank-th largest of `population` elements in [lowest, highest] is likely to be.

    That is three standard deviations of its rank in the sample's part that is in there, and the whole where the sample has
    too little to say.
    """
    within = tl.where((sample >= lowest) & (sample <= highest), sample, 0)
    size = _count(within, tl.maximum(lowest, 1))
    share = rank.to(tl.float32) / population.to(tl.float32)
    middle = share * size.to(tl.float32)
    spread = tl.sqrt(tl.maximum(middle * (1 - share), 0))
    upper = (middle - 3 * spread - 2).to(tl.int32)
    lower = (middle + 3 * spread + 3).to(tl.int32)
    slack = (spread / 2).to(tl.int32)
    zero = tl.full((), 0, tl.uint32)
    top = tl.max(tl.ravel(within), 0)
    low, high = lowest, highest
    if upper > slack:
        high = _bisect(within, upper - slack, slack, zero, top)
    if lower + slack < size:
        low = _bisect(within, lower, slack, zero, top)
    return low, high


@triton.jit
def _narrower(lowest: tl.tensor, highest: tl.tensor, rank: tl.tensor, population: tl.tensor, trim: tl.tensor):
    """A bracket for the rank-th largest of `population` elements in [lowest, highest]. None is wrong, but it may be of no use.

    With `trim`, without the ends: often they are elements of the sample, and most others may equal them. Otherwise values are
    taken to lie evenly, and the guess allows for two standard deviations of a uniform rank.
    """
    low, high = lowest + 1, highest - 1
    if not trim:
        width = (highest - lowest).to(tl.float32)
        size = tl.maximum(population, 1).to(tl.float32)
        middle = width * (1 - (rank.to(tl.float32) - 0.5) / size)
        margin = width / tl.sqrt(size) + 1
        # Bounded for the conversions; a float32 may be past the end by its rounding.
        low = lowest + tl.minimum(tl.maximum(middle - margin, 0), 2147483648.0).to(tl.uint32)
        high = lowest + tl.minimum(tl.minimum(middle + margin, width), 2147483648.0).to(tl.uint32)
        high = tl.minimum(high, highest)
    return tl.minimum(low, highest), high


@triton.jit(
    do_not_specialize=["logits_stride", "out_stride", "batch", "vocab", "k_stride", "k_scalar"],
    do_not_specialize_on_alignment=["logits", "out", "k_rows"],
)
def mask_long_rows(
    logits: tl.tensor,
    out: tl.tensor,
    logits_stride: tl.int64,
    out_stride: tl.int64,
    batch: tl.int64,
    vocab: tl.int64,
    k_rows: tl.tensor,
    k_stride: tl.int64,
    k_scalar: tl.int64,
    INFINITY: tl.constexpr,
    WIDTH: tl.constexpr,
    LANES: tl.constexpr,
    TURNS: tl.constexpr,
    ALIGNED: tl.constexpr,
) -> None:
    """Rows of any length. ALIGNED: each row of `out` has the alignment to 16 bytes of its row of `logits`."""
    MINUS_INFINITY: tl.constexpr = INFINITY - (1 << (WIDTH - 1))
    VECTOR: tl.constexpr = 128 // WIDTH
    TILE: tl.constexpr = 16 * LANES
    row = tl.program_id(0).to(tl.int64)
    while row < batch:
        source = logits + row * logits_stride
        target = out + row * out_stride
        k = _row_k(k_rows, k_stride, k_scalar, row)
        # Tiles are counted from the 16-byte boundary at or before the row.
        first = ((source.to(tl.uint64) & 15) // (WIDTH // 8)).to(tl.int64)
        end = first + vocab
        base, out_base = source - first, target - first

        least = tl.full((), 0, tl.uint32)  # keeps all: the answer for k >= vocab
        written = (k >= vocab) & (source.to(tl.uint64) == target.to(tl.uint64))
        if (k > 0) & (k < vocab):
            limit = ~tl.full((), 0, tl.uint32)
            found = tl.full((), 0, tl.int32)
            # A word numbers 2^15 tiles, and a lane's counts have 15 bits.
            if end <= 1024 * TILE:
                first32, end32, k32 = first.to(tl.int32), end.to(tl.int32), k.to(tl.int32)
                if (k <= LANES // 2) & (2 * k * vocab <= 3 * TURNS * TILE * LANES):
                    best = tl.full((LANES,), 0, tl.uint32)
                    turn = tl.full((), 0, tl.int32)
                    while turn < TURNS:
                        part = _sample(base, first32, end32, turn, TURNS, INFINITY, WIDTH, LANES, VECTOR)
                        best = tl.maximum(best, tl.max(tl.max(part, 2), 0))
                        turn += 1
                    bound = _bisect(best, k32, k32 >> 3, least, tl.max(best, 0))
                    bound = _class(bound, INFINITY)
                    # Ties of the bound are noted, unless there seem to be many: then it is likely to be the answer.
                    tied = _count(best, bound) > k32 + (k32 >> 1) + 1
                    low = tl.maximum(tl.where(tied, _next_class(bound, INFINITY), bound), 1)
                    offsets, overflow, _, _ = _stream(
                        base, out_base, first32, end32, bound, low, limit, True, INFINITY, WIDTH, ALIGNED, LANES, VECTOR
                    )
                    # Every element has been written when one of them is written again.
                    tl.debug_barrier()
                    if not overflow:
                        noted = _orders_at(out_base, offsets, INFINITY, WIDTH)
                        least = bound
                        if _count(noted, low) >= k32:
                            least = _class(_largest(noted, k32, low, tl.max(tl.ravel(noted), 0)), INFINITY)
                        tl.store(out_base + offsets, MINUS_INFINITY, mask=(offsets >= 0) & (noted < least))
                        found += 1
                        written = (least == bound) | (~tied)
                if found == 0:
                    # The k-th largest is in [lowest, highest]; `over` elements are above that, `under` not below it.
                    lowest, highest = least ^ least, limit
                    over, under = tl.full((), 0, tl.int32), vocab.to(tl.int32)
                    tries = tl.full((), 0, tl.int32)
                    while (found == 0) & (tries < _TRIES):
                        sample = _sample(base, first32, end32, 0, 1, INFINITY, WIDTH, LANES, VECTOR)
                        low, high = _bracket(sample, k32 - over, under - over, lowest, highest)
                        if (tries > 0) & (low <= lowest) & (high >= highest):
                            # What is more likely to help first, then the other, in turn.
                            trim = (under - over > TILE) == (tries % 2 == 1)
                            low, high = _narrower(lowest, highest, k32 - over, under - over, trim)
                        low = tl.maximum(low, 1)
                        high = tl.maximum(high, low)
                        offsets, overflow, above, through = _stream(
                            base, out_base, first32, end32, low, low, high, False, INFINITY, WIDTH, ALIGNED, LANES, VECTOR
                        )
                        if k32 <= above:
                            lowest, under = high + 1, above
                        elif k32 > through:
                            highest, over = low - 1, through
                        else:
                            lowest, highest, over, under = low, high, above, through
                            if (not overflow) & (low < high):
                                inside = _orders_at(base, offsets, INFINITY, WIDTH)
                                lowest = _largest(inside, k32 - above, low, high)
                                highest = lowest
                        found = (lowest == highest).to(tl.int32)
                        least = _class(lowest, INFINITY)
                        tries += 1
            if found == 0:
                least = _radix_select(source, vocab, k, INFINITY, WIDTH, LANES)

        if not written:
            # From the end, which the caches may still hold.
            start = (end - 1) // TILE * TILE
            while start >= 0:
                bits = _load(base, start, first, end, MINUS_INFINITY, LANES, VECTOR)
                kept = (_order(bits, INFINITY, WIDTH) >= least) & (k > 0)
                bits = tl.where(kept, bits, MINUS_INFINITY).to(bits.dtype)
                _store(out_base, start, first, end, bits, ALIGNED, LANES, VECTOR)
                start -= TILE
        row += tl.num_programs(0)
