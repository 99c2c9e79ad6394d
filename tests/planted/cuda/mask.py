"""Masks in CUDA, each with one fault that takes threads to show. They run on the CPU, where it is seen, or on a GPU.

Float32 alone: what is broken in them has nothing to do with the format.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from impls.cuda_build import Kernel, execution, host
from tests.planted.top_k_mask_logits.arguments import prepare
from tests.planted.top_k_mask_logits.torch_ops import row_k

__all__ = ["execution"]

THREADS = 64


def unsupported(params: Mapping[str, object]) -> str | None:
    """Why not."""
    return None if params["dtype"] == "float32" else "float32 alone"


def unavailable(device: torch.device) -> str | None:
    """Why not here."""
    return host.unavailable() if device.type == "cpu" else None


@functools.cache
def kernel(name: str) -> Kernel:
    return Kernel(Path(__file__).with_name(f"{name}.cu"), "mask", "PPqqiiP")


def launch(
    name: str, logits: Tensor, k: int | Tensor, out: Tensor | None, *, blocks: int = 0, halves: int = 1
) -> Tensor:
    """A block a row, or `blocks` for all of them; `halves` blocks in y."""
    out = prepare(logits, k, out)
    if logits.numel() and logits.dtype == torch.float32:
        batch, vocab = logits.shape
        ks = row_k(k, logits).to(torch.int64).contiguous()
        kernel(name)(
            logits.get_device(), (min(batch, blocks or batch), halves, 1), THREADS, logits.data_ptr(), out.data_ptr(),
            logits.stride(0), out.stride(0), batch, vocab, ks.data_ptr(),
        )  # fmt: skip
    return out


def missing_barrier(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Partial sums are read with no __syncthreads before."""
    return launch("missing_barrier", logits, k, out)


def divergent_barrier(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Rows shorter than the block: some threads skip a barrier."""
    return launch("divergent_barrier", logits, k, out)


def wrong_mask(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Rows shorter than a warp: a shuffle's mask lacks lanes that call it."""
    return launch("wrong_mask", logits, k, out)


def past_shared(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """An index one past shared memory."""
    return launch("past_shared", logits, k, out)


def unwritten_shared(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Rows shorter than the block: shared memory is read that nobody has written."""
    return launch("unwritten_shared", logits, k, out)


def in_place_blocks(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Two blocks a row: in place, one reads what the other overwrites."""
    return launch("in_place_blocks", logits, k, out, halves=2)


def row_offset_int(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """A row's offset as a signed 32-bit number."""
    return launch("row_offset_int", logits, k, out)


def misaligned_vector(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Loads of 16 bytes from rows that start anywhere."""
    return launch("misaligned_vector", logits, k, out)


def stale_histogram(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Two persistent blocks, whose histogram is not cleared when a row begins."""
    return launch("stale_histogram", logits, k, out, blocks=2)


def late_reader(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """A thread reads what another may not have written yet: right in order, wrong in some others."""
    return launch("late_reader", logits, k, out)


def noncandidates_kept(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """A threshold that separates the candidates from each other, and not from what is none."""
    return launch("noncandidates_kept", logits, k, out)


def range_wraps(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """The upper end of a range of keys is computed with 32 bits, and wraps around at the highest key: NaN's."""
    return launch("range_wraps", logits, k, out)


def put_back_before_filled(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """A row is filled and its kept elements are put back, by other threads and with no __syncthreads between."""
    return launch("put_back_before_filled", logits, k, out)


def next_row_too_soon(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """A persistent block clears a counter for the next row while threads still read the last row's."""
    return launch("next_row_too_soon", logits, k, out, blocks=1)
