"""The kernels of the Triton backend. One program masks one row; `triton.py` chooses the kernel and starts it.

All of them rank a row by `order_of`, a total order of the bits that refines the order of `formats`' keys, and keep what is not
below the least number of the k-th element's class (`class_of`): the same elements that the keys keep.

A short row lies in registers, where its k-th element is found by bisection. A long row (`mask_long_rows`) is streamed:

- Small k: the k-th largest of any part of the row is at most the k-th largest of the row. A sample of the row gives such a
  lower bound, and one pass reads the row, writes what is not below the bound and -inf for the rest, and notes which elements
  it did not mask. Those are few; the k-th among them is the answer, and the noted elements below it are overwritten.
- Larger k: the sample gives a bracket for the k-th element. A pass that only reads counts what is above the bracket and notes
  what is in it, and a last pass writes. If the bracket missed, or holds more than can be noted, what was counted and the
  sample give the next one.
- Whatever defeats this too ends in `radix_select`.

In place is safe. No element is written before all of its row that the choice depends on was read, with one exception: the
pass for small k writes -inf over elements below its bound. At least k elements are not below it, and those keep their bits
until the answer is known, so that the k-th largest stays what it was, also for a pass that reads the row again. Each
element is written by the thread that has read it, or after a barrier.

Loops over tensors are `while`: the interpreter of Triton 3.6 cannot make a range of them under NumPy 2.4.
"""

import triton
import triton.language as tl

from .triton_order import bisect, class_of, count_from, largest, next_class, order_of
from .triton_tiles import (
    complete_tile,
    load_some,
    load_whole,
    orders_at,
    radix_select,
    sample_row,
    sample_size,
    store_tile,
    stream,
)

_TRIES = tl.constexpr(4)
"""Brackets that are tried before the radix select."""


@triton.jit
def _bracket(
    sample: tl.tensor, size: tl.tensor, rank: tl.tensor, population: tl.tensor, lowest: tl.tensor, highest: tl.tensor
) -> tuple[tl.tensor, tl.tensor]:
    """Where the rank-th largest of `population` elements in [lowest, highest] is likely to be.

    That is 2.25 standard deviations of its rank in the sample's part that is in there, and the whole where the sample has too
    little to say. Wider brackets miss less often, but more often hold more than can be noted.
    """
    within = tl.where((sample >= lowest) & (sample <= highest), sample, 0)
    # 0 is what is missing, and also -inf: so the row's are those that are not above.
    beyond = tl.sum(tl.ravel((sample > highest).to(tl.int32)), 0)
    size = tl.where(lowest == 0, size - beyond, count_from(within, tl.maximum(lowest, 1)))
    share = rank.to(tl.float32) / population.to(tl.float32)
    middle = share * size.to(tl.float32)
    spread = tl.sqrt(tl.maximum(middle * (1 - share), 0))
    upper = (middle - 2.25 * spread - 2).to(tl.int32)
    lower = (middle + 2.25 * spread + 3).to(tl.int32)
    slack = (spread / 4).to(tl.int32)
    zero = tl.full((), 0, tl.uint32)
    top = tl.max(tl.ravel(within), 0)
    low, high = lowest, highest
    if upper > slack:
        high = bisect(within, upper - slack, slack, zero, top)
    if lower + slack < size:
        low = bisect(within, lower, slack, zero, top)
    return low, high


@triton.jit
def _narrower(
    lowest: tl.tensor, highest: tl.tensor, rank: tl.tensor, population: tl.tensor, trim: tl.tensor
) -> tuple[tl.tensor, tl.tensor]:
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
            bits = load_some(source + lanes, inside, vocab, MINUS_INFINITY)
            order = order_of(bits, INFINITY, WIDTH)
            least = tl.full((), 0, tl.uint32)  # keeps all
            if (k > 0) & (k < vocab):
                # What lies outside counts as -inf, and bisection asks for no count of that.
                highest = tl.max(order, 0)
                least = class_of(largest(order, k.to(tl.int32), least, highest), INFINITY)
            tl.store(target + lanes, tl.where((order >= least) & (k > 0), bits, MINUS_INFINITY), mask=inside)
        row += tl.num_programs(0)


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
                        # Two at a time, which memory then works on together.
                        part = sample_row(base, first32, end32, turn, TURNS, INFINITY, WIDTH, LANES, VECTOR)
                        next_part = sample_row(base, first32, end32, turn + 1, TURNS, INFINITY, WIDTH, LANES, VECTOR)
                        part = tl.maximum(order_of(part, INFINITY, WIDTH), order_of(next_part, INFINITY, WIDTH))
                        best = tl.maximum(best, tl.max(tl.max(part, 2), 0))
                        turn += 2
                    bound = bisect(best, k32, k32 >> 3, least, tl.max(best, 0))
                    bound = class_of(bound, INFINITY)
                    # Ties of the bound are noted, unless there seem to be many: then it is likely to be the answer.
                    tied = count_from(best, bound) > k32 + (k32 >> 1) + 1
                    low = tl.maximum(tl.where(tied, next_class(bound, INFINITY), bound), 1)
                    offsets, overflow, _, _ = stream(
                        base, out_base, first32, end32, bound, low, limit, True, INFINITY, WIDTH, ALIGNED, LANES, VECTOR
                    )
                    # Every element has been written when one of them is written again.
                    tl.debug_barrier()
                    if not overflow:
                        noted = orders_at(out_base, offsets, first32, INFINITY, WIDTH)
                        least = bound
                        if count_from(noted, low) >= k32:
                            least = class_of(largest(noted, k32, low, tl.max(tl.ravel(noted), 0)), INFINITY)
                        tl.store(out_base + offsets, MINUS_INFINITY, mask=(offsets >= 0) & (noted < least))
                        found += 1
                        written = (least == bound) | (~tied)
                if found == 0:
                    # The k-th largest is in [lowest, highest]; `over` elements are above that, `under` not below it.
                    lowest, highest = least ^ least, limit
                    over, under = tl.full((), 0, tl.int32), vocab.to(tl.int32)
                    tries = tl.full((), 0, tl.int32)
                    while (found == 0) & (tries < _TRIES):
                        bits = sample_row(base, first32, end32, 0, 1, INFINITY, WIDTH, LANES, VECTOR)
                        sample = order_of(bits, INFINITY, WIDTH)
                        size = sample_size(first32, end32, LANES, VECTOR)
                        low, high = _bracket(sample, size, k32 - over, under - over, lowest, highest)
                        if (tries > 0) & (low <= lowest) & (high >= highest):
                            # What is more likely to help first, then the other, in turn.
                            trim = (under - over > TILE) == (tries % 2 == 1)
                            low, high = _narrower(lowest, highest, k32 - over, under - over, trim)
                        low = tl.maximum(low, 1)
                        high = tl.maximum(high, low)
                        offsets, overflow, above, through = stream(
                            base, out_base, first32, end32, low, low, high, False, INFINITY, WIDTH, ALIGNED, LANES, VECTOR
                        )  # fmt: skip
                        if k32 <= above:
                            lowest, under = high + 1, above
                        elif k32 > through:
                            highest, over = low - 1, through
                        else:
                            lowest, highest, over, under = low, high, above, through
                            if (not overflow) & (low < high):
                                inside = orders_at(base, offsets, first32, INFINITY, WIDTH)
                                lowest = largest(inside, k32 - above, low, high)
                                highest = lowest
                        found = (lowest == highest).to(tl.int32)
                        least = class_of(lowest, INFINITY)
                        tries += 1
            if found == 0:
                least = radix_select(source, vocab, k, INFINITY, WIDTH, LANES)

        if not written:
            # From the end, which the caches may still hold.
            tile = (end - 1) // TILE
            ahead = load_whole(base, tile, first, end, LANES, VECTOR)
            while tile >= 0:
                bits = ahead
                ahead = load_whole(base, tile - 1, first, end, LANES, VECTOR)
                bits = complete_tile(bits, base, tile, first, end, MINUS_INFINITY, LANES, VECTOR)
                kept = (order_of(bits, INFINITY, WIDTH) >= least) & (k > 0)
                bits = tl.where(kept, bits, MINUS_INFINITY).to(bits.dtype)
                store_tile(out_base, tile, first, end, bits, ALIGNED, LANES, VECTOR)
                tile -= 1
        row += tl.num_programs(0)
