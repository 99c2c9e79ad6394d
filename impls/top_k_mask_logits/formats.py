"""The three floating-point formats as bits, and the integer keys that stand for their values.

Every backend ranks a row by the same keys. Read as sign and magnitude, the bits of a float are an integer in the order of the
values, in which -0.0 and +0.0 are both 0; one more than +inf's key stands for every NaN:

    key = inf + 1 if magnitude > inf else -magnitude if negative else magnitude

Nothing but integers is compared, copied or written, so that NaN payloads survive and no flush-to-zero mode makes ties.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Format:
    """One format. The patterns are Python ints."""

    name: str
    bits: torch.dtype
    """The signed integer dtype of the same size."""
    infinity: int
    """The pattern of +inf, which is also its key; -inf's key is its negative."""

    @property
    def width(self) -> int:
        """The size in bits."""
        return 8 * self.bits.itemsize

    @property
    def minus_infinity(self) -> int:
        """The pattern of -inf as a value of `bits`."""
        return self.infinity - (1 << (self.width - 1))


FORMATS = {
    torch.float32: Format("float32", torch.int32, 0x7F800000),
    torch.float16: Format("float16", torch.int16, 0x7C00),
    torch.bfloat16: Format("bfloat16", torch.int16, 0x7F80),
}

BY_NAME = {f.name: f for f in FORMATS.values()}
K_KINDS = ("int", "int32", "int64")


def unsupported(params: Mapping[str, object]) -> str | None:
    """Why no backend takes {"dtype": ..., "k": ...}, or None. What `params` leaves out is not judged."""
    dtype, k = params.get("dtype", "float32"), params.get("k", "int")
    if dtype not in BY_NAME:
        return f"dtype must be one of {', '.join(BY_NAME)}, not {dtype}"
    if k not in K_KINDS:
        return f"k must be one of {', '.join(K_KINDS)}, not {k}"
    return None
