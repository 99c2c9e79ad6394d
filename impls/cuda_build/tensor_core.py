"""How a device's tensor cores sum: found out with a few crafted products, since no document says it.

The questions are those of M. Fasi, N. Higham, M. Mikaitis and S. Pranesh, "Numerical behavior of NVIDIA tensor cores",
PeerJ Computer Science 7:e330, 2021.
"""

from pathlib import Path
from typing import NamedTuple

import torch

from .launch import Kernel

_SCALE = 2.0**-12
"""What the kernel multiplies each element of a row by."""

_kernel = Kernel(Path(__file__).with_name("tensor_core.cu"), "multiply", "PPPP")


class TensorCore(NamedTuple):
    """block: products that are summed at once. extra_bits: kept below the 24 bits of the largest term while they are.
    truncates: whether a float32 sum is cut (or rounded to nearest); half_to_nearest: whether a half sum is rounded so."""

    block: int
    extra_bits: int
    truncates: bool
    half_to_nearest: bool


def probe(device: torch.device) -> TensorCore:
    """Asks the tensor cores of a device, through mma.sync with half inputs. Raises what a build or a launch raises."""
    tiny = 2.0**-24  # half of the last bit of 1.0: alone it is lost, two of them are not if they are summed first
    pairs = _sums(device, [{0: tiny, other: tiny} for other in range(1, 16)])[0]
    block = 1 + sum(value > 1.0 for value in pairs)
    # 2^n products of 2^-(23 + n) make one last bit, if n bits are kept below it.
    kept = _sums(device, [dict.fromkeys(range(1 << n), 2.0 ** -(23 + n)) for n in range(1, 5) if 1 << n <= block])[0]
    extra_bits = sum(value > 1.0 for value in kept)
    single, half = _sums(device, [{0: 2.0**-23, 1: 2.0**-24}, {0: 2.0**-10, 1: 2.0**-11}])
    return TensorCore(block, extra_bits, single[0] == 1.0 + 2.0**-23, half[1] == 1.0 + 2.0**-9)


def _sums(device: torch.device, rows: list[dict[int, float]]) -> tuple[list[float], list[float]]:
    """1 plus the products of each row (position -> value), as float32 and half accumulators give it."""
    products = torch.zeros(16, 16)
    for row, terms in enumerate(rows):
        for position, value in terms.items():
            products[row, position] = value / _SCALE
    a, c = products.half().to(device), torch.ones(16, device=device)
    single, half = torch.zeros_like(c), torch.zeros_like(c)
    index = -1 if device.index is None else device.index
    _kernel(index, (1, 1, 1), 32, *(x.data_ptr() for x in (a, c, single, half)))
    return single.tolist()[: len(rows)], half.tolist()[: len(rows)]
