"""Rounding errors: unit roundoffs, gamma_n, and models of how tensor cores add, as bounds and as a simulation.

A bound here is a theorem about a model, never a tuned threshold. Sources:

- N. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., SIAM 2002, Lemma 3.1 (gamma_n) and section 4.2
  (the error of a sum is at most the sum of the roundings of its partial sums).
- Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ CS 7:e330, 2021.
- Khattak, Mikaitis, "Accurate Models of NVIDIA Tensor Cores", arXiv:2512.07004.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

U16 = 2.0**-11
UBF = 2.0**-8
U32 = 2.0**-24
U64 = 2.0**-53
"""Unit roundoffs, to nearest, of float16, bfloat16, float32 and float64. Truncation doubles them."""

UNIT = {torch.float16: U16, torch.bfloat16: UBF, torch.float32: U32, torch.float64: U64}
DIGITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24}
"""Significant bits, the hidden one included."""
LOWEST = {torch.float16: -14, torch.bfloat16: -126, torch.float32: -126}
"""Exponent of the smallest normal number."""
LARGEST = {dtype: torch.finfo(dtype).max for dtype in DIGITS}
OVERFLOW = {dtype: LARGEST[dtype] * (1 + UNIT[dtype] / (2 - 2 * UNIT[dtype])) for dtype in DIGITS}
"""What rounds to infinity, to nearest: half a unit past the largest number (65520 in float16)."""
FLUSHED = 2.0**-126
"""A float32 result below this may become 0 (flush to zero), in any kernel."""


def gamma(n: float, unit: float) -> float:
    """n·u / (1 − n·u): bounds the relative error of n roundings in a row. Infinite when n·u >= 1."""
    return n * unit / (1 - n * unit) if n * unit < 1 else math.inf


def gammas(n: Tensor, unit: float) -> Tensor:
    """`gamma` of each element."""
    return torch.where(n * unit < 1, n * unit / (1 - n * unit), math.inf)


@dataclass(frozen=True)
class TensorCore:
    """How D = C + (a block of products) is computed.

    Products are exact. They and C are aligned to the largest exponent among them and truncated to 24 + extra_bits bits,
    then added exactly (so their order does not matter), then rounded: a float16 result to nearest even, a float32 one
    by truncation where `truncates`. Subnormals are kept.

    block: products a block. certain: every result of a block is really rounded to the accumulator's format; otherwise
    this is known of the last one alone, and the bounds hold for several kinds of hardware.
    """

    block: int
    extra_bits: int
    truncates: bool = True
    certain: bool = True

    def blocks(self, length: int) -> int:
        """Roundings in a dot product."""
        return -(-length // self.block)

    def unit(self, accumulator: torch.dtype) -> float:
        """Relative error of one rounding of the accumulator (float32 or float16)."""
        return UNIT[accumulator] * (2 if self.truncates and accumulator == torch.float32 else 1)

    @property
    def alignment(self) -> float:
        """Error of one block's truncations, relative to the largest of its terms.

        The largest term is aligned to itself and has at most 24 bits, so only `block` of the block + 1 terms lose
        anything, each less than the last of its 24 + extra_bits bits.
        """
        return self.block * 2.0 ** (-23 - self.extra_bits)

    def relative(self, blocks: Tensor, accumulator: torch.dtype = torch.float32) -> Tensor:
        """Error of a sum of so many blocks relative to the sum of its terms' magnitudes, in whatever order they come.

        The a priori form: no partial sum exceeds T = sum|a_i·b_i|, so each block errs by at most (unit + alignment)·T,
        a little more because the computed partial sums err themselves.
        """
        return torch.expm1(blocks * self.growth(accumulator))

    def growth(self, accumulator: torch.dtype) -> float:
        """log of the factor by which one more block may magnify the errors of those before it."""
        return math.log1p(self.unit(accumulator)) + math.log1p(self.alignment)


V100 = TensorCore(4, 0)
A100 = TensorCore(8, 1)
H100 = TensorCore(16, 2)
CUDA_CORE = TensorCore(1, 29, truncates=False)
"""A chain of fused multiply-adds: one product a rounding, nothing lost to alignment (53 bits hold it)."""

UNKNOWN = TensorCore(8, 1, certain=False)
"""The weakest of A100 to H200 and of float32 chains on CPU or CUDA cores, which round a float16 sum once, at its end.

It is A100's model, since that one's bounds exceed the others' in both forms, for lengths that are multiples of 16 and,
a priori, for all lengths n. A priori, in units of 2^-23·T: A100 ceil(n/8)·(1 + 4); H100 ceil(n/16)·(1 + 4); a chain n/2.
Running: H100's partial sums are every second one of A100's and its alignment term is the same (16·2^-25 = 8·2^-24). A
chain rounds |S_d| <= |S_i| + T_i for each of the 8 products d of block i + 1, in all sum 2^-24·(8·sum|S_i| + 8·T), which
is A100's alignment term alone. With float16, 2^-11·|S_m| for the one rounding is the last term of A100's first sum.
"""

MODELS = {
    "V100": V100,
    "A100": A100,
    "A30": A100,
    "Ada": A100,
    "H100": H100,
    "H200": H100,
    "B200": H100,
    "CUDA core": CUDA_CORE,
    "unknown": UNKNOWN,
}
"""By what the two papers measured. That wgmma adds as mma.sync does is an assumption."""

ARCHITECTURES = {"sm_70": V100, "sm_80": A100, "sm_89": A100, "sm_90": H100, "sm_90a": H100, "sm_100": H100}


def model_of(arch: str) -> TensorCore:
    """The model of an architecture ("sm_90"); UNKNOWN where nobody has measured it."""
    return ARCHITECTURES.get(arch, UNKNOWN)


def dot_error(
    core: TensorCore,
    length: int,
    total: Tensor,
    accumulator: torch.dtype = torch.float32,
    partial: Tensor | None = None,
) -> Tensor:
    """How far a computed dot product of `length` terms is from the exact one, as long as nothing overflows.

    total: T = sum|a_i·b_i|. partial: sum over blocks i = 1 … m of |S_i|, S_i being the exact sum of the first i blocks;
    give it where the order is known (the running form), else the a priori form holds.

    With u the rounding's unit and w = `alignment`, block i errs by at most u·|S_i| + w·max(|S_(i-1)|, T_i) + tiny,
    T_i being the block's own sum of magnitudes, and sum_i max(|S_(i-1)|, T_i) <= min(partial + T, m·T). The computed
    partial sums differ from the exact ones by the errors so far, which the factor (1 + u)^m·(1 + w)^m takes in.
    """
    m = core.blocks(length)
    unit, alignment = core.unit(accumulator), core.alignment
    growth = math.exp(m * core.growth(accumulator))
    # Half of the last place of subnormals; in float32 what is flushed to zero besides.
    tiny = m * (2.0**-25 if accumulator == torch.float16 else (core.block + 1) * FLUSHED)
    if partial is None:
        return (growth * m * (unit + alignment)) * total + growth * tiny
    # partial <= m·T, so its sum with T exceeds m·T by T at most: not worth another pass.
    return (growth * (unit + alignment)) * partial + (growth * alignment) * total + growth * tiny


def power_of_two(exponent: Tensor) -> Tensor:
    """2^exponent as float64, exactly, for integers in [-1022, 1023] (clamped to it)."""
    return ((exponent.to(torch.int64).clamp(-1022, 1023) + 1023) << 52).view(torch.float64)


def exponent_of(x: Tensor) -> Tensor:
    """floor(log2|x|) of finite float64; far below all others for 0."""
    return torch.where(x == 0, -2000, torch.frexp(x).exponent - 1)


def round_to(x: Tensor, dtype: torch.dtype, *, truncate: bool = False) -> Tensor:
    """float64 rounded once to the values of dtype, to nearest even or toward zero; overflow gives infinity.

    (torch converts float64 to 16 bits by way of float32, which rounds twice.)
    """
    place = exponent_of(torch.where(x.isfinite(), x, 0)).clamp(min=LOWEST[dtype]) - (DIGITS[dtype] - 1)
    scaled = x * power_of_two(-place)
    rounded = (scaled.trunc() if truncate else scaled.round()) * power_of_two(place)
    return torch.where(rounded.abs() > LARGEST[dtype], torch.copysign(torch.full_like(x, math.inf), x), rounded)


def simulate_matmul(
    a: Tensor, b: Tensor, core: TensorCore, accumulator: torch.dtype = torch.float32, c: Tensor | None = None
) -> Tensor:
    """c + a [..., M, K] @ b [..., K, N] as a tensor core adds it, in float64 that holds values of `accumulator`.

    a and b hold values of 16-bit formats, c (0 if absent) of the accumulator's. Blocks follow each other along K. A block
    with infinities or NaNs gives what IEEE addition gives.
    """
    a, b = a.to(torch.float64), b.to(torch.float64)
    shape = (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    result = a.new_zeros(shape) if c is None else c.to(torch.float64).expand(shape)
    columns = b.mT
    truncate = core.truncates and accumulator == torch.float32
    for start in range(0, a.shape[-1], core.block):
        of_block = slice(start, start + core.block)
        products = a[..., :, None, of_block] * columns[..., None, :, of_block]
        terms = torch.cat([result.unsqueeze(-1), products], -1)
        finite = terms.isfinite()
        place = exponent_of(torch.where(finite, terms, 0)).amax(-1) - 23 - core.extra_bits
        aligned = (terms * power_of_two(-place).unsqueeze(-1)).trunc().sum(-1) * power_of_two(place)
        result = round_to(torch.where(finite.all(-1), aligned, terms.sum(-1)), accumulator, truncate=truncate)
    return result
