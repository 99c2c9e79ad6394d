"""The generator of `harness.fill`, as a script has it: the mixer, and a function for each kind of fill that it uses.

What is known when the script is written (the dtype, a fill's values) stands in the functions as numbers. They make the
bits that `fill.make_bits` makes; the tests compare every kind and dtype. For up to 2^31 elements.
"""

from __future__ import annotations

import math

import torch

from harness.case import Fill
from harness.fill import FLOAT_LAYOUT, INT, encode
from harness.repro import spell

MIX = '''
def mix(x):
    """Scramble 32 bits (lowbias32): of an int, or of each element of an int64 tensor."""
    x = (x ^ x >> 16) * 0x7FEB352D & 0xFFFFFFFF
    x = (x ^ x >> 15) * 0x846CA68B & 0xFFFFFFFF
    return x ^ x >> 16
'''

WORDS = '''
def words(seed, count, stream=0):
    """32 random bits for each of `count` elements, on any device and by any version of torch the same."""
    key = mix(seed ^ mix(0x9E3779B9 * (stream + 1) & 0xFFFFFFFF))
    return mix(torch.arange(count) * 0x9E3779B1 & 0xFFFFFFFF ^ key)
'''


class Generator:
    """Collects the functions that a script's fills need."""

    def __init__(self) -> None:
        self._named: dict[tuple[str, torch.dtype, tuple[object, ...]], str] = {}
        self._texts: list[str] = []

    @property
    def functions(self) -> list[str]:
        """The functions' texts; none when none was asked for."""
        random = any("words(" in text or "mix(" in text for text in self._texts)
        return [*([MIX, WORDS] if random else []), *self._texts]

    def call(self, fill: Fill, dtype: torch.dtype, shape: tuple[int, ...]) -> str:
        """An expression for the fill's tensor of that shape, on the CPU, without planted values. The shape has elements.

        Raises NoScript for values that nothing makes, since they were stored.
        """
        if fill.kind == "file":
            raise spell.NoScript("more values than a script can spell out lie in a file; use `warpcheck repro`")
        values = fill.values if fill.kind in ("cycle", "choice", "uniform", "dominant", "near", "outlier") else ()
        key = fill.kind, dtype, values
        if key not in self._named:
            count = sum(kind == fill.kind for kind, _, _ in self._named)
            self._named[key] = name = f"{fill.kind}_{count + 1}" if count else fill.kind
            self._texts.append(_function(name, fill, dtype))
        return f"{self._named[key]}({fill.seed}, {spell.tuple_of(shape)})"

    def plant(self, name: str, fill: Fill, dtype: torch.dtype, count: int) -> list[str]:
        """Statements that put a fill's planted values into the contiguous tensor `name`."""
        lines = []
        for index, value in {p.index % count: p.value for p in fill.planted}.items():
            raw = encode((value,), dtype)
            odd = bool(spell.odd(raw.view(dtype)))
            bits = f".view({INT[dtype.itemsize]})" if odd else ""
            lines.append(f"{name}.view(-1){bits}[{index}] = {int(raw) if odd else spell.numbers(raw.view(dtype))[0]}")
        return lines


def _function(name: str, fill: Fill, dtype: torch.dtype) -> str:
    lines, tell = _BODIES[fill.kind](fill, dtype) if _special(fill.kind, dtype) else _integers(fill, dtype)
    body = "\n    ".join(lines)
    return f'\ndef {name}(seed, shape):\n    """{tell}"""\n    count = prod(shape)\n    {body}\n'


def _special(kind: str, dtype: torch.dtype) -> bool:
    """Whether a kind is more than random bits for this dtype."""
    return dtype.is_floating_point or kind in ("cycle", "choice", "near", "sorted")


def _made(bits: str, dtype: torch.dtype) -> str:
    """Integers with the bits of the dtype's values (more bits than it has may be set) -> the tensor."""
    if dtype == torch.bool:
        return f"return (({bits}) & 1).bool().view(shape)"
    whole = INT[dtype.itemsize]
    whole_bits = bits if bits.isidentifier() else f"({bits})"
    narrow = whole_bits if whole == torch.int64 else f"{whole_bits}.to({whole})"
    return f"return {narrow}{'' if whole == dtype else f'.view({dtype})'}.view(shape)"


def _random(dtype: torch.dtype) -> str:
    return "words(seed, count)" if dtype.itemsize < 8 else "(words(seed, count) << 32 | words(seed, count, 1))"


def _integers(fill: Fill, dtype: torch.dtype) -> tuple[list[str], str]:
    return [_made(_random(dtype), dtype)], "Random bits."


def _table(fill: Fill, dtype: torch.dtype, default: tuple[int, ...], index: str) -> list[str]:
    raw = encode(fill.values or default, dtype)
    return [*spell.define("table", raw.view(dtype)), f"return table[{index}].view(shape)"]


def _cycle(fill: Fill, dtype: torch.dtype) -> tuple[list[str], str]:
    return _table(fill, dtype, (1,), "torch.arange(count) % len(table)"), "The values of a table, over and over."


def _choice(fill: Fill, dtype: torch.dtype) -> tuple[list[str], str]:
    return _table(fill, dtype, (0, 1), "words(seed, count) * len(table) >> 32"), "Random values of a table."


def _exponent(scale: float, digits: int) -> int:
    return math.frexp(scale)[1] - 1 - digits if math.isfinite(scale) else 0


def _steps(dtype: torch.dtype) -> tuple[str, int]:
    """Whole numbers, as `n`, that the mantissa holds; and its digits."""
    digits = min(FLOAT_LAYOUT[dtype][1], 29)
    return f"n = ((words(seed, count) * {2 << digits} >> 32) - {1 << digits}).double()", digits


def _uniform(fill: Fill, dtype: torch.dtype) -> tuple[list[str], str]:
    n, digits = _steps(dtype)
    exponent = _exponent(float((fill.values or (1.0,))[0]), digits)
    tell = f"Evenly spread in [-{2.0 ** (exponent + digits):g}, {2.0 ** (exponent + digits):g})."
    return [n, f"return (n * 2.0**{exponent}).to({dtype}).view(shape)"], tell


def _dominant(fill: Fill, dtype: torch.dtype) -> tuple[list[str], str]:
    n, digits = _steps(dtype)
    scale = float((fill.values or (1.0,))[0])
    small, large = _exponent(scale, digits), _exponent(16.0 * scale, digits)
    lines = [
        n,
        "large = torch.arange(count) // shape[-1] == mix(seed) % prod(shape[:-1])",
        f"return torch.where(large, n * 2.0**{large}, n * 2.0**{small}).to({dtype}).view(shape)",
    ]
    return lines, "Evenly spread, in one row over a range 16 times as large."


def _spread_bits(dtype: torch.dtype) -> str:
    exponent_bits, mantissa_bits = FLOAT_LAYOUT[dtype]
    keep = (1 << mantissa_bits) - 1 | 1 << (exponent_bits + mantissa_bits)
    mask = f"{keep:#x}" if dtype.itemsize < 8 else f"{keep - (1 << 64):#x}"
    bias = (1 << (exponent_bits - 1)) - 1
    return f"{_random(dtype)} & {mask} | (words(seed, count, 2) * 8 >> 32) + {bias - 4} << {mantissa_bits}"


def _spread(fill: Fill, dtype: torch.dtype) -> tuple[list[str], str]:
    return [
        f"bits = {_spread_bits(dtype)}",
        _made("bits", dtype),
    ], "Sign and mantissa random, exponent one of 8 around 1."


def _near_bits(fill: Fill, dtype: torch.dtype) -> str:
    return f"words(seed, count) * 8 >> 32 | {int(encode((fill.values or (1.5,))[:1], dtype)[0]) & ~7}"


def _near(fill: Fill, dtype: torch.dtype) -> tuple[list[str], str]:
    return [_made(_near_bits(fill, dtype), dtype)], "One value but for its 3 lowest bits."


def _sorted(fill: Fill, dtype: torch.dtype) -> tuple[list[str], str]:
    lines = [
        "column = torch.arange(count) % shape[-1]",
        "column = shape[-1] - 1 - column if seed % 2 else column",
    ]
    tell = "Rising along the last dimension, or falling when the seed is odd"
    if not dtype.is_floating_point:
        return [*lines, _made("column", dtype)], f"{tell}."
    two = int(encode((2.0,), dtype)[0])
    sign = -(1 << (8 * dtype.itemsize - 1))
    lines += [
        f"whole, rest = divmod({two:#x}, shape[-1])  # the bits of 2.0",
        f"key = 2 * column * whole + 2 * column * rest // shape[-1] - {two:#x}",
        f"bits = torch.where(key < 0, key.abs() | {sign}, key)",
    ]
    return [*lines, _made("bits", dtype)], f"{tell}: from -2 to 2 by their bits."


def _outlier(fill: Fill, dtype: torch.dtype) -> tuple[list[str], str]:
    huge = 65504.0 if dtype == torch.float16 else 1e30
    lines = [
        "at = torch.arange(count) % shape[-1] == mix(seed) % shape[-1]",
        f"bits = torch.where(at, {int(encode((huge,), dtype)[0])}, {_near_bits(fill, dtype)})",
    ]
    return [
        *lines,
        _made("bits", dtype),
    ], f"One value but for its 3 lowest bits, and one element a row that is {huge:g}."


def _mostly_minus_inf(fill: Fill, dtype: torch.dtype) -> tuple[list[str], str]:
    lines = [
        f"bits = {_spread_bits(dtype)}",
        f"bits = torch.where(words(seed, count, 3) * 8 >> 32 == 0, bits, {int(encode(('-inf',), dtype)[0])})",
    ]
    return [*lines, _made("bits", dtype)], "-inf, but for about one element in eight."


def _specials(fill: Fill, dtype: torch.dtype) -> tuple[list[str], str]:
    exponent_bits, mantissa_bits = FLOAT_LAYOUT[dtype]
    inf = ((1 << exponent_bits) - 1) << mantissa_bits
    quiet = 1 << (mantissa_bits - 1)
    positive = [0, 1, inf, inf - 1, inf | quiet, inf | quiet | 1, 1 << mantissa_bits, (1 << mantissa_bits) - 1]
    sign = -(1 << (exponent_bits + mantissa_bits))
    lines = [
        f"positive = torch.tensor([{', '.join(f'{p:#x}' for p in positive)}])",
        f"table = torch.stack([positive, positive | {sign}], 1).view(-1)",
        f"bits = {_spread_bits(dtype)}",
        "pick = words(seed, count, 3) * 32 >> 32",
        "bits = torch.where(pick < 16, table[pick % 16], bits)",
    ]
    return [*lines, _made("bits", dtype)], "Half of it zeros, infinities, NaNs, subnormals and the largest numbers."


def _raw(fill: Fill, dtype: torch.dtype) -> tuple[list[str], str]:
    return _integers(fill, dtype)


_BODIES = {
    "cycle": _cycle,
    "choice": _choice,
    "uniform": _uniform,
    "dominant": _dominant,
    "spread": _spread,
    "near": _near,
    "sorted": _sorted,
    "outlier": _outlier,
    "mostly_minus_inf": _mostly_minus_inf,
    "specials": _specials,
    "raw": _raw,
}
