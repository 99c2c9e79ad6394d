"""The torch backend: plain tensor operations, on any device torch knows. It allocates several times the input, also in place."""

from collections.abc import Mapping

import torch
from torch import Tensor

from . import formats
from .formats import FORMATS, Format

ARCHS: tuple[str, ...] = ()
SEMANTICS = {"ties": "all", "nan": "keep"}

_ELEMENTS_AT_A_TIME = 1 << 28
"""Rows are taken in slices of about this many elements, to bound the temporaries (about 2 GiB)."""


def unsupported(params: Mapping[str, object]) -> str | None:
    """Why this backend does not take `params`, or None."""
    return formats.unsupported(params)


def unavailable(device: torch.device) -> str | None:
    """Why this backend cannot run on `device`: never."""
    return None


# Under inference mode, tensors that were made under it may be written, as the other backends write them without asking.
@torch.inference_mode()
def launch(logits: Tensor, k: int | Tensor, out: Tensor) -> None:
    """Masks `logits` into `out`. The arguments have passed `arguments.check`, and no size is zero."""
    format = FORMATS[logits.dtype]
    batch, vocab = logits.shape
    step = max(1, _ELEMENTS_AT_A_TIME // vocab)
    for first in range(0, batch, step):
        rows = slice(first, first + step)
        bits, out_bits = logits[rows].view(format.bits), out[rows].view(format.bits)
        masked = _masked(bits, k if isinstance(k, int) else k[rows], format)
        if out_bits.data_ptr() != bits.data_ptr():
            out_bits.copy_(bits)
        out_bits.masked_fill_(masked, format.minus_infinity)


def _masked(bits: Tensor, k: int | Tensor, format: Format) -> Tensor:
    """Which elements are below the k-th largest of their row, bool [rows, vocab]."""
    magnitude = (bits & (1 << (format.width - 1)) - 1).to(torch.int32)
    keys = torch.where(bits < 0, -magnitude, magnitude).masked_fill_(magnitude > format.infinity, format.infinity + 1)
    if isinstance(k, int):
        if k == 0:
            return torch.ones_like(bits, dtype=torch.bool)
        return keys < keys.topk(k, sorted=False).values.amin(1, keepdim=True)
    # The largest k is known only on the device, so sort the whole row rather than wait for it.
    slots = k.to(torch.int64).clamp(0, bits.shape[1])[:, None]
    kth = keys.sort(1, descending=True).values.gather(1, (slots - 1).clamp_(min=0))
    return (keys < kth) | (slots == 0)
