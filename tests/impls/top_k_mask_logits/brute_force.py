"""What top_k_mask_logits must return, by sorting Python floats row by row. Shares nothing with the implementations."""

import math

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.float16, torch.bfloat16)

# Bit patterns that a selection can get wrong: signed zeros, infinities, the smallest and largest of each sign, ties, quiet
# and signalling NaNs of both signs and with payloads.
NASTY_TEXT = {
    torch.float32: """
        00000000 80000000 7F800000 FF800000 7F800000 FF800000 00000001 80000001 007FFFFF 807FFFFF 00800000 7F7FFFFF FF7FFFFF
        3F800000 3F800000 3F800001 BF800000 BF800000 7FC00000 FFC00000 7F800001 FF800001 7FFFFFFF FFFFFFFF 7FC12345 42F6E979""",
    torch.float16: """
        0000 8000 7C00 FC00 7C00 FC00 0001 8001 03FF 83FF 0400 7BFF FBFF
        3C00 3C00 3C01 BC00 BC00 7E00 FE00 7C01 FC01 7FFF FFFF 7D23 57B5""",
    torch.bfloat16: """
        0000 8000 7F80 FF80 7F80 FF80 0001 8001 007F 807F 0080 7F7F FF7F
        3F80 3F80 3F81 BF80 BF80 7FC0 FFC0 7F81 FF81 7FFF FFFF 7FD2 42F7""",
}
NASTY = {dtype: [int(pattern, 16) for pattern in text.split()] for dtype, text in NASTY_TEXT.items()}


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
