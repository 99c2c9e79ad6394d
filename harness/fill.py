"""Fills: from a kind, a seed and a position to a value, with the same bits on every device and every torch version.

Element i of seed s depends on (s, i) alone: a counter-based generator, built of 32-bit integer operations. Values are
made as *bit patterns*, by shifts and masks, and reinterpreted; no floating-point operation takes part, so there is
nothing for a device or a fast-math flag to do differently. The mixer is `lowbias32` (C. Wellons, "Prospecting for hash
functions", 2018): two multiplications, bias 0.17.

Where elements of a tensor overlap in memory, the fill is laid over the memory instead, so that it stays well defined.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from msgspec.structs import replace
from torch import Tensor

from harness import stored
from harness.case import FILL_KINDS, CaseError, Fill, Number, bit_pattern, fits

CHUNK = 1 << 24
"""Elements made at a time: bounds the scratch memory of a large fill."""

INT = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
MASK32 = 0xFFFFFFFF

# (exponent bits, mantissa bits)
FLOAT_LAYOUT = {
    torch.float16: (5, 10),
    torch.bfloat16: (8, 7),
    torch.float32: (8, 23),
    torch.float64: (11, 52),
}


def mix(x: int) -> int:
    """lowbias32 on a Python int: the reference that the tensor version is tested against."""
    x &= MASK32
    x ^= x >> 16
    x = (x * 0x7FEB352D) & MASK32
    x ^= x >> 15
    x = (x * 0x846CA68B) & MASK32
    return x ^ (x >> 16)


def _signed(x: int) -> int:
    """The int32 that has x's bits."""
    return x - (1 << 32) if x >= 1 << 31 else x


def _shift(x: Tensor, count: int) -> Tensor:
    """Logical right shift of int32 (torch's is arithmetic)."""
    return (x >> count) & ((1 << (32 - count)) - 1)


def words(seed: int, start: int, count: int, device: torch.device | str, stream: int = 0) -> Tensor:
    """Random 32-bit words number start … start+count of one stream of a seed: int32 [count], all bits random.

    start + count must not cross a multiple of 2^32 (the upper half of the counter goes into the key).
    """
    key = mix(seed ^ mix((start >> 32) + 0x9E3779B9 * (stream + 1)))
    low = start & MASK32
    x = torch.arange(low, low + count, dtype=torch.int64, device=device).to(torch.int32)
    x = x * _signed(0x9E3779B1) ^ _signed(key)
    x = x ^ _shift(x, 16)
    x = x * _signed(0x7FEB352D)
    x = x ^ _shift(x, 15)
    x = x * _signed(0x846CA68B)
    return x ^ _shift(x, 16)


def below(random: Tensor, n: int) -> Tensor:
    """int64 in [0, n) from 32-bit words: the high half of a 32 × 31-bit product (n < 2^31)."""
    return ((random.to(torch.int64) & MASK32) * n) >> 32


def encode(values: tuple[Number, ...], dtype: torch.dtype) -> Tensor:
    """The values as integers with the bits of `dtype`, on the CPU. Integers wrap, floats round once, to nearest even.

    Raises CaseError for a value that is none of the dtype.
    """
    for value in values:
        if not fits(value, str(dtype).removeprefix("torch.")):
            raise CaseError(f"a value that {dtype} cannot hold")
    size = dtype.itemsize * 8
    wrapped = [_bits(v, dtype) & ((1 << size) - 1) for v in values]
    signed = [v - (1 << size) if v >> (size - 1) else v for v in wrapped] if size > 8 else wrapped
    return torch.tensor(signed, dtype=INT[dtype.itemsize])


def _bits(value: Number, dtype: torch.dtype) -> int:
    """The bits of a value of a dtype that can hold it; of an integer, also those that wrap."""
    pattern = bit_pattern(value)
    if pattern is not None:
        return pattern
    if dtype == torch.bool:
        return int(bool(value))
    return _float_bits(float(value), dtype) if dtype.is_floating_point else int(value)


def literals(x: Tensor) -> tuple[Number, ...]:
    """The elements of a tensor, in row-major order, as numbers that `encode` turns back into the same bits, and JSON keeps.

    Plain numbers where they say all (-0.0 among them), "nan", "inf" and "-inf", and a bit pattern for any other NaN. Raises
    CaseError for a bool that is neither 0 nor 1, which has no meaning in torch.
    """
    x = x.detach().cpu().reshape(-1)
    bits = x.view(INT[x.dtype.itemsize]).tolist()
    if x.dtype == torch.bool and any(b > 1 for b in bits):
        raise CaseError("a bool that is neither 0 nor 1")
    if not x.dtype.is_floating_point:
        return tuple(int(v) for v in x.tolist())
    mask = (1 << 8 * x.dtype.itemsize) - 1
    return tuple(_literal(v, b & mask, x.dtype) for v, b in zip(x.double().tolist(), bits))


def _literal(value: float, bits: int, dtype: torch.dtype) -> Number:
    if math.isfinite(value):
        return value
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return "nan" if bits == _float_bits(math.nan, dtype) else f"0x{bits:0{2 * dtype.itemsize}x}"


def _scale_of(fill: Fill, dtype: torch.dtype) -> float:
    """The scale of `uniform` and `dominant`: 1 by default."""
    value = (fill.values or (1.0,))[0]
    return float(encode((value,), dtype).view(dtype)) if bit_pattern(value) is not None else float(value)


def _float_bits(value: float, dtype: torch.dtype) -> int:
    """The bit pattern of the value of a float dtype that is nearest; torch goes from float64 to 16 bits by way of float32."""
    exponent_bits, mantissa_bits = FLOAT_LAYOUT[dtype]
    sign = (math.copysign(1.0, value) < 0) << (exponent_bits + mantissa_bits)
    inf = ((1 << exponent_bits) - 1) << mantissa_bits
    if not math.isfinite(value):
        return sign | inf | (math.isnan(value) << (mantissa_bits - 1))
    # The exponent field, at least 1 (which subnormals share), and the value in units of its last place.
    bias = (1 << (exponent_bits - 1)) - 1
    field = max(math.frexp(value)[1] - 1 + bias, 1) if value else 1
    units = round(math.ldexp(abs(value), mantissa_bits + bias - field))
    # Of a normal number the units have a leading one, which adds 1 to the field; so has what rounds up to the next field.
    return sign | min(((field - 1) << mantissa_bits) + units, inf)


Maker = Callable[[Fill, torch.dtype, int, int, tuple[int, ...], torch.device], Tensor]
"""(fill, dtype, start, count, shape, device) -> the bits of elements start … start+count, an integer tensor [count]."""


def _cycle(fill: Fill, dtype: torch.dtype, start: int, count: int, _: tuple[int, ...], device: torch.device) -> Tensor:
    table = encode(fill.values or (1,), dtype).to(device)
    return table[torch.arange(start, start + count, device=device) % len(table)]


def _choice(fill: Fill, dtype: torch.dtype, start: int, count: int, _: tuple[int, ...], device: torch.device) -> Tensor:
    table = encode(fill.values or (0, 1), dtype).to(device)
    return table[below(words(fill.seed, start, count, device), len(table))]


def _raw(fill: Fill, dtype: torch.dtype, start: int, count: int, _: tuple[int, ...], device: torch.device) -> Tensor:
    low = words(fill.seed, start, count, device)
    if dtype == torch.bool:
        return (low & 1).to(torch.uint8)
    if dtype.itemsize == 8:
        return low.to(torch.int64) << 32 | (words(fill.seed, start, count, device, stream=1).to(torch.int64) & MASK32)
    return low.to(INT[dtype.itemsize])


def _uniform(
    fill: Fill, dtype: torch.dtype, start: int, count: int, _: tuple[int, ...], device: torch.device
) -> Tensor:
    """Floats: evenly spread in [-scale, scale), the scale (1 by default) taken down to a power of two. Integers: any.

    Every value is n · 2^e with an n that the mantissa holds, so that making it from n rounds nothing.
    """
    if not dtype.is_floating_point:
        return _raw(fill, dtype, start, count, (), device)
    digits = min(FLOAT_LAYOUT[dtype][1], 29)
    scale = _scale_of(fill, dtype)
    exponent = math.frexp(scale)[1] - 1 - digits if math.isfinite(scale) else 0
    n = below(words(fill.seed, start, count, device), 2 << digits) - (1 << digits)
    return (n.to(torch.float64) * 2.0**exponent).to(dtype).view(INT[dtype.itemsize])


def _dominant(
    fill: Fill, dtype: torch.dtype, start: int, count: int, shape: tuple[int, ...], device: torch.device
) -> Tensor:
    """`uniform`, but for one row (all dimensions but the last are rows; which one is drawn), which is 16 times as large."""
    small = _uniform(fill, dtype, start, count, shape, device)
    if not dtype.is_floating_point:
        return small
    columns = max(shape[-1] if shape else 1, 1)
    row = mix(fill.seed) % max(math.prod(shape[:-1]), 1)
    index = torch.arange(start, start + count, device=device)
    scale = 16.0 * _scale_of(fill, dtype)
    large = _uniform(replace(fill, values=(scale,)), dtype, start, count, shape, device)
    return torch.where(index // columns == row, large, small)


def _spread(fill: Fill, dtype: torch.dtype, start: int, count: int, _: tuple[int, ...], device: torch.device) -> Tensor:
    """Floats: sign and mantissa random, exponent one of 8 around 1, so log-uniform in ±[2^-4, 2^4). Integers: any."""
    if not dtype.is_floating_point:
        return _raw(fill, dtype, start, count, (), device)
    exponent_bits, mantissa_bits = FLOAT_LAYOUT[dtype]
    random = _raw(fill, dtype, start, count, (), device)
    keep = (1 << mantissa_bits) - 1
    sign = 1 << (exponent_bits + mantissa_bits)
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = below(words(fill.seed, start, count, device, stream=2), 8).to(random.dtype) + (bias - 4)
    return (random & (keep - (sign << 1) + sign)) | (exponent << mantissa_bits)


def _near(fill: Fill, dtype: torch.dtype, start: int, count: int, _: tuple[int, ...], device: torch.device) -> Tensor:
    """One value but for its 3 lowest bits: every leading digit of a radix select is shared, the spread is tiny."""
    base = int(encode((fill.values or (1.5,))[:1], dtype)[0]) & ~7
    return below(words(fill.seed, start, count, device), 8).to(INT[dtype.itemsize]) | base


def _sorted(
    fill: Fill, dtype: torch.dtype, start: int, count: int, shape: tuple[int, ...], device: torch.device
) -> Tensor:
    """Rising along the last dimension (falling when the seed is odd), from −2 to 2 in the order of the bit patterns."""
    columns = max(shape[-1] if shape else 1, 1)
    column = torch.arange(start, start + count, device=device) % columns
    if fill.seed % 2:
        column = columns - 1 - column
    if not dtype.is_floating_point:
        return column.to(INT[dtype.itemsize])
    two = int(encode((2.0,), dtype)[0])
    # Ordered keys −two … two; a key below 0 is the bit pattern of its absolute value with the sign bit set. They are
    # column * 2 * two // columns − two, in a way that does not leave 64 bits.
    whole, rest = divmod(two, columns)
    key = 2 * column * whole + 2 * column * rest // columns - two
    sign = -(1 << (8 * dtype.itemsize - 1))
    return torch.where(key < 0, key.abs() | sign, key).to(INT[dtype.itemsize])


def _specials(
    fill: Fill, dtype: torch.dtype, start: int, count: int, _: tuple[int, ...], device: torch.device
) -> Tensor:
    """Half `spread`; the rest NaN (two payloads, both signs), ±inf, ±0, subnormals, the largest and smallest finite."""
    ordinary = _spread(fill, dtype, start, count, (), device)
    if not dtype.is_floating_point:
        return ordinary
    exponent_bits, mantissa_bits = FLOAT_LAYOUT[dtype]
    inf = ((1 << exponent_bits) - 1) << mantissa_bits
    sign = -(1 << (exponent_bits + mantissa_bits))
    quiet = 1 << (mantissa_bits - 1)
    positive = [0, 1, inf, inf - 1, inf | quiet, inf | quiet | 1, 1 << mantissa_bits, (1 << mantissa_bits) - 1]
    table = torch.tensor([p | s for p in positive for s in (0, sign)], dtype=INT[dtype.itemsize], device=device)
    pick = below(words(fill.seed, start, count, device, stream=3), 2 * len(table))
    return torch.where(pick < len(table), table[pick % len(table)], ordinary)


def _outlier(
    fill: Fill, dtype: torch.dtype, start: int, count: int, shape: tuple[int, ...], device: torch.device
) -> Tensor:
    """`near`, with one element a row (its column drawn) replaced by a huge value: 1e30, or the largest finite one."""
    if not dtype.is_floating_point:
        return _raw(fill, dtype, start, count, (), device)
    columns = max(shape[-1] if shape else 1, 1)
    index = torch.arange(start, start + count, device=device)
    huge = 1e30 if dtype in (torch.float32, torch.bfloat16, torch.float64) else 65504.0
    at = mix(fill.seed) % columns
    return torch.where(
        index % columns == at, encode((huge,), dtype).to(device), _near(fill, dtype, start, count, (), device)
    )


def _mostly_minus_inf(
    fill: Fill, dtype: torch.dtype, start: int, count: int, _: tuple[int, ...], device: torch.device
) -> Tensor:
    """-inf, but for about one element in eight, which is `spread`. Integers: any."""
    if not dtype.is_floating_point:
        return _raw(fill, dtype, start, count, (), device)
    pick = below(words(fill.seed, start, count, device, stream=3), 8) == 0
    return torch.where(pick, _spread(fill, dtype, start, count, (), device), encode(("-inf",), dtype).to(device))


def _file(
    fill: Fill, dtype: torch.dtype, start: int, count: int, shape: tuple[int, ...], device: torch.device
) -> Tensor:
    """The values that were stored: as they were, bit for bit, for a view of the dtype and shape that they had."""
    if fill.file is None:
        raise CaseError("a fill of the kind `file` that names none")
    made = stored.fitted(stored.values(fill.file), dtype, shape).reshape(-1)
    return made[start : start + count].contiguous().view(INT[dtype.itemsize]).to(device)


_MAKERS: tuple[Maker, ...] = (
    _cycle, _choice, _uniform, _dominant, _spread, _near, _sorted, _outlier, _mostly_minus_inf, _specials, _raw, _file,
)  # fmt: skip

KINDS: dict[str, Maker] = dict(zip(FILL_KINDS, _MAKERS, strict=True))
"""Every kind, from the plainest to the wildest. `cycle` repeats its values (one value is a constant, as many values as
elements are explicit values); `choice` draws from them; `file` has them in a file."""


def make_bits(fill: Fill, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device | str) -> Tensor:
    """The fill of a view, as integers: [numel], row-major. Raises CaseError for an unknown kind."""
    if fill.kind not in KINDS:
        raise CaseError(f"unknown fill kind {fill.kind!r}; known are {', '.join(KINDS)}")
    device = torch.device(device)
    count = math.prod(shape)
    chunk = max(count, 1) if fill.kind == "file" else CHUNK  # a file is read once, and no scratch is needed beside it
    parts = [
        KINDS[fill.kind](fill, dtype, start, min(chunk, count - start), shape, device)
        for start in range(0, count, chunk)
    ]
    if not parts:
        return torch.empty(0, dtype=INT[dtype.itemsize], device=device)
    result = parts[0] if len(parts) == 1 else torch.cat(parts)
    if dtype == torch.bool:
        result &= 1  # whatever a kind makes of integers, other bytes are no bool
    if planted := {p.index % count: p.value for p in fill.planted}:  # of two at one place, the last
        result[torch.tensor(list(planted), device=device)] = encode(tuple(planted.values()), dtype).to(device)
    return result
