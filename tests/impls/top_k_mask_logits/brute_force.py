"""What top_k_mask_logits must return, by sorting Python floats row by row. Shares nothing with the implementations."""

import math

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.float16, torch.bfloat16)

# Patterns that a selection can get wrong: signed zeros, infinities, the smallest and largest numbers of each sign, ties, quiet
# and signalling NaNs of both signs and with payloads.
NASTY = {
    torch.float32: (
        [0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x7F800000, 0xFF800000, 0x00000001, 0x80000001, 0x007FFFFF]
        + [0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000, 0x3F800000, 0x3F800001, 0xBF800000, 0xBF800000]
        + [0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC12345, 0x42F6E979, 0xC2F6E979]
    ),
    torch.float16: (
        [0x0000, 0x8000, 0x7C00, 0xFC00, 0x7C00, 0xFC00, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00]
        + [0x3C00, 0x3C01, 0xBC00, 0xBC00, 0x7E00, 0xFE00, 0x7C01, 0xFC01, 0x7FFF, 0xFFFF, 0x7D23, 0x57B5, 0xD7B5]
    ),
    torch.bfloat16: (
        [0x0000, 0x8000, 0x7F80, 0xFF80, 0x7F80, 0xFF80, 0x0001, 0x8001, 0x007F, 0x807F, 0x0080, 0x7F7F, 0xFF7F, 0x3F80]
        + [0x3F80, 0x3F81, 0xBF80, 0xBF80, 0x7FC0, 0xFFC0, 0x7F81, 0xFF81, 0x7FFF, 0xFFFF, 0x7FD2, 0x42F7, 0xC2F7]
    ),
}


def bits(x: Tensor) -> Tensor:
    """A float tensor as signed integers of the same size; NaNs compare equal there if their payloads do."""
    return x.view(torch.int32 if x.dtype == torch.float32 else torch.int16)


def from_bits(patterns: list[int], dtype: torch.dtype) -> Tensor:
    """Unsigned patterns to a 1-D tensor."""
    width = 8 * dtype.itemsize
    signed = [p - (1 << width) if p >> (width - 1) else p for p in patterns]
    return torch.tensor(signed, dtype=torch.int32 if width == 32 else torch.int16).view(dtype)


def nasty_rows(dtype: torch.dtype, rows: int, vocab: int, seed: int = 0) -> Tensor:
    """Rows of `NASTY` patterns in random order, on the CPU."""
    pool = from_bits(NASTY[dtype], dtype)
    return pool[torch.randint(len(pool), (rows, vocab), generator=torch.Generator().manual_seed(seed))]


def expected(logits: Tensor, k: int | Tensor) -> Tensor:
    """The bits of the right answer, on the CPU."""
    logits = logits.detach().cpu()
    ks = [k] * logits.shape[0] if isinstance(k, int) else k.tolist()
    answer = bits(logits).clone(memory_format=torch.contiguous_format)
    minus_inf = bits(torch.tensor([-math.inf], dtype=logits.dtype))[0]
    for row, row_k in enumerate(ks):
        # (is NaN, value): every NaN ranks the same and above all else; -0.0 == 0.0 in Python.
        ranks = [(True, 0.0) if math.isnan(x) else (False, x) for x in logits[row].tolist()]
        if row_k <= 0:
            answer[row] = minus_inf
        elif row_k < len(ranks):
            kth = sorted(ranks)[-row_k]
            answer[row, [i for i, rank in enumerate(ranks) if rank < kth]] = minus_inf
    return answer
