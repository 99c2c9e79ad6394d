"""Whether sets of bytes in memory meet: exactly, not by bounding boxes.

Interleaved rows lie inside each other's bounds and share nothing; rows at another pitch may share one byte in a million.
"""

from typing import NamedTuple

from torch import Tensor


class Region(NamedTuple):
    """Runs of `width` bytes, one at `start` + i0 * p0 + i1 * p1 + … for all 0 <= i < n of each (n, p) in `steps`."""

    start: int
    width: int
    steps: tuple[tuple[int, int], ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is no byte in it."""
        return not self.width or any(not number for number, _ in self.steps)

    @property
    def end(self) -> int:
        """The address after the last byte; `start` and this are the bounds of a region that is not empty."""
        return self.start + self.width + sum((number - 1) * pitch for number, pitch in self.steps)


def region_of(x: Tensor) -> Region:
    """The bytes of a strided tensor."""
    size = x.element_size()
    if x.is_contiguous():
        return Region(x.data_ptr(), x.numel() * size)
    steps = tuple((number, stride * size) for number, stride in zip(x.shape, x.stride()))
    if steps[-1][1] == size:
        return Region(x.data_ptr(), steps[-1][0] * size, steps[:-1])
    return Region(x.data_ptr(), size, steps)


def share_a_byte(a: Region, b: Region) -> bool:
    """Whether any byte belongs to both. Quick, but for three or more pitches that differ and are not nested."""
    if a.end <= b.start or b.end <= a.start or a.empty or b.empty:
        return False
    # Runs of a and b that start at x and y share a byte iff 0 <= x - y + a.width - 1 < a.width + b.width - 1.
    terms = [(-pitch, number - 1) for number, pitch in a.steps] + [(pitch, number - 1) for number, pitch in b.steps]
    return _reaches(a.start - b.start + a.width - 1, a.width + b.width - 1, terms)


def overlaps_itself(x: Tensor) -> bool:
    """Whether two indices of a strided tensor share a byte."""
    if x.is_contiguous() or not x.numel():
        return False
    # Two indices differ; take the first dimension where they do, and call the later index of that dimension the first.
    steps = [(number - 1, stride) for number, stride in zip(x.shape, x.stride()) if number > 1]
    for i, (number, stride) in enumerate(steps):
        rest = [term for n, s in steps[i + 1 :] for term in ((s, n), (-s, n))]
        if _reaches(-stride, 1, [(stride, number - 1), *rest]):
            return True
    return False


def _reaches(target: int, length: int, terms: list[tuple[int, int]]) -> bool:
    """Whether target = y + sum of c * x has a solution with 0 <= y < length and 0 <= x <= n for every (c, n) of `terms`."""
    counts: dict[int, int] = {}
    for c, n in terms:
        if c < 0:  # count from the other end
            target -= c * n
        counts[abs(c)] = counts.get(abs(c), 0) + n
    # A step that is no longer than the interval makes a longer interval of it.
    steps = sorted((c, n) for c, n in counts.items() if c and n)
    while steps and steps[0][0] <= length:
        c, n = steps.pop(0)
        length += c * n
    return _solve(target, length, steps)


def _solve(target: int, length: int, steps: list[tuple[int, int]]) -> bool:
    """`_reaches` for coefficients that ascend and are all greater than `length`."""
    if not steps:
        return 0 <= target < length
    *rest, (c, n) = steps
    reach = length + sum(d * m for d, m in rest)
    # Only these values of the largest coefficient's x leave a target that the rest may reach; mostly one or two.
    lowest, highest = max(0, -((reach - 1 - target) // c)), min(n, target // c)
    if len(steps) == 2 and highest - lowest > 1:
        # What is left is then inside the rest's bounds, and only its remainder decides.
        return _meets_remainders(target - highest * c, c, rest[0][0], length, highest - lowest)
    return any(_solve(target - x * c, length, rest) for x in range(lowest, highest + 1))


def _meets_remainders(start: int, step: int, modulus: int, length: int, last: int) -> bool:
    """Whether (start + i * step) % modulus < length for some 0 <= i <= last; 0 < length < modulus."""
    start %= modulus
    if start < length:
        return True
    low = modulus - start
    i = _first(step, modulus, low, low + length - 1)
    return i is not None and i <= last


def _first(a: int, m: int, low: int, high: int) -> int | None:
    """The least i >= 0 with low <= a * i % m <= high, where 0 < low <= high < m: as Euclid finds a common divisor."""
    a %= m
    if not a:
        return None
    if 2 * a > m:
        a, low, high = m - a, m - high, m - low
    i = -(-low // a)
    if i * a <= high:
        return i
    # No multiple of a lies in [low, high]: ask how often m has to be added until one lies there.
    j = _first(-m % a, a, low % a, high % a)
    return None if j is None else -(-(low + m * j) // a)
