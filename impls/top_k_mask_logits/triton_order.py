"""Rows as numbers in the order of the values, and the search among those that are in registers. For the Triton kernels."""

import triton
import triton.language as tl


@triton.jit
def order_of(bits: tl.tensor, INFINITY: tl.constexpr, WIDTH: tl.constexpr) -> tl.tensor:
    """Bits as uint32 in the order of the values: 0 is -inf, 2 * INFINITY + 1 is +inf, all NaNs are above.

    -0.0 is INFINITY and +0.0 one more; NaNs differ by sign and payload. Three instructions.
    """
    bits = bits.to(tl.int32)  # extends the sign
    ordered = bits ^ ((bits >> 31) & ((1 << (WIDTH - 1)) - 1))
    # It wraps around on purpose: a negative NaN is below -inf in `ordered`, and above all else as an unsigned number here.
    return tl.add(ordered, INFINITY + 1, sanitize_overflow=False).to(tl.uint32, bitcast=True)


@triton.jit
def class_of(order: tl.tensor, INFINITY: tl.constexpr) -> tl.tensor:
    """The least number of the values that rank the same: the zeros are one class, the NaNs another."""
    order = tl.where(order == INFINITY + 1, order - 1, order)
    return tl.where(order > 2 * INFINITY + 1, 2 * INFINITY + 2, order).to(tl.uint32)


@triton.jit
def next_class(order: tl.tensor, INFINITY: tl.constexpr) -> tl.tensor:
    """The least number above that of a class; of the NaNs, the largest number that one of them has."""
    following = order + tl.where(order == INFINITY, 2, 1).to(tl.uint32)
    return tl.where(order > 2 * INFINITY + 1, ~(order ^ order), following)


@triton.jit
def count_from(values: tl.tensor, least: tl.tensor) -> tl.tensor:
    """How many of `values`, of any shape, are not below `least`."""
    return tl.sum(tl.ravel((values >= least).to(tl.int32)), 0)


@triton.jit
def bisect(values: tl.tensor, rank: tl.tensor, slack: tl.tensor, low: tl.tensor, high: tl.tensor) -> tl.tensor:
    """A number in [low, high] that at least `rank` and, if there is one, at most rank + slack of `values` are not below.

    If there is none, it is the largest such number, and one of `values`. At least `rank` values must not be below `low`, and
    fewer not below high + 1.
    """
    most = rank + slack
    count = most + 1
    while (low < high) & (count > most):
        middle = high - ((high - low) >> 1)
        found = count_from(values, middle)
        if found >= rank:
            low = middle
            count = found
        else:
            high = middle - 1
    return low


@triton.jit
def largest(values: tl.tensor, rank: tl.tensor, low: tl.tensor, high: tl.tensor) -> tl.tensor:
    """The rank-th largest of `values`; `low` and `high` as for `bisect`."""
    bound = bisect(values, rank, 0, low, high)
    return tl.min(tl.ravel(tl.where(values >= bound, values, ~(bound ^ bound))), 0)
