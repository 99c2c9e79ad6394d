"""Whether two sets of rows in memory share a byte: exactly, not by bounding boxes.

Interleaved rows lie inside each other's bounds and share nothing; rows at another pitch may share one byte in a million.
"""

from typing import NamedTuple

import torch


class Rows(NamedTuple):
    """`number` runs of `width` bytes, the first at address `start`, each `pitch` bytes after the one before."""

    start: int
    number: int
    pitch: int
    width: int

    @property
    def end(self) -> int:
        """The address after the last byte."""
        return self.start + (self.number - 1) * self.pitch + self.width


def rows_of(x: torch.Tensor) -> Rows:
    """The bytes of a 2-D tensor whose last stride is 1 (or whose last size is 1), or of a 1-D tensor of any stride."""
    size = x.element_size()
    width = x.shape[1] * size if x.dim() == 2 else size
    return Rows(x.data_ptr(), x.shape[0], x.stride(0) * size, width)


def share_a_byte(a: Rows, b: Rows) -> bool:
    """Whether any byte belongs to both. Constant time, but for sets of different pitches within each other's bounds."""
    if not (a.number and a.width and b.number and b.width) or a.end <= b.start or b.end <= a.start:
        return False
    a, b = _joined(a), _joined(b)
    # Rows i of a and j of b share a byte iff -a.width < (a.start + i * a.pitch) - (b.start + j * b.pitch) < b.width.
    distance = a.start - b.start
    if a.number == 1 or b.number == 1 or a.pitch == b.pitch:
        # The left sides are then distance + m * pitch for a whole range of m, and the one just below b.width decides.
        pitch = b.pitch if a.number == 1 else a.pitch
        lowest, highest = -(b.number - 1), a.number - 1
        if a.number == 1 and b.number == 1:
            return -a.width < distance < b.width
        m = min(highest, (b.width - 1 - distance) // pitch)
        return m >= lowest and distance + m * pitch > -a.width
    # Ask of each row of a: the last row of b that starts before its end, does it end after its start?
    starts = torch.arange(a.number, dtype=torch.int64) * a.pitch + distance
    last = torch.div(starts + (a.width - 1), b.pitch, rounding_mode="floor").clamp_(max=b.number - 1)
    return bool(((last >= 0) & (last * b.pitch + b.width > starts)).any())


def _joined(rows: Rows) -> Rows:
    """The same bytes as one run, where the rows leave no gap."""
    if rows.number == 1 or rows.pitch <= rows.width:
        return Rows(rows.start, 1, 0, rows.end - rows.start)
    return rows
