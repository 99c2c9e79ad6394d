"""radix_mask.cu on the CPU, the source as it is, against the torch backend: bit for bit."""

import math

import pytest
import torch

from impls.cuda_build.host import HostOptions, executing, unavailable
from impls.cuda_build.host.compiler import CHECKS
from impls.top_k_mask_logits import cuda, top_k_mask_logits

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SHAPES = ((1, 1), (1, 7), (2, 33), (3, 255), (5, 1024), (2, 4099))
FILLS = ("spread", "ties", "special")


def logits(shape, dtype, fill, offset=0):
    """Rows whose first element lies `offset` elements behind a 16-byte boundary."""
    generator = torch.Generator().manual_seed(shape[1])
    x = torch.randn(shape, generator=generator) * 10
    if fill == "ties":
        x = x.round().clamp(-1, 1)
    elif fill == "special":
        kinds = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-41, 65504.0])
        x = torch.where(
            torch.rand(shape, generator=generator) < 0.7, kinds[torch.randint(7, shape, generator=generator)], x
        )
    room = torch.zeros(shape[0], shape[1] + offset, dtype=dtype)
    room[:, offset:] = x.to(dtype)
    return room[:, offset:]


def masked(x, k, out=None):
    """What the kernel makes of x, whatever the backend says about CPU tensors."""
    out = torch.empty_like(x) if out is None else out
    kernel = cuda._radix_kernel(x.dtype)
    rows = (0, 0, 0, k) if isinstance(k, int) else (k.data_ptr(), k.element_size(), k.stride(0), 0)
    sizes = (x.stride(0), out.stride(0), *x.shape)
    kernel(-1, (min(len(x), 2), 1, 1), 1024, x.data_ptr(), out.data_ptr(), *sizes, *rows)
    return out


def bits(x):
    """A tensor's bit patterns, so that NaN equals itself and the zeros differ."""
    return x.view(torch.int32 if x.dtype == torch.float32 else torch.int16).tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("fill", FILLS)
def test_the_torch_backend_agrees(dtype, fill):
    """Every shape, k from 0 to the row's length, aligned rows and others, out of place and in place."""
    for offset, shape in enumerate(SHAPES):
        x = logits(shape, dtype, fill, offset)
        for k in {0, 1, shape[1] // 3, shape[1] - 1, shape[1]}:
            expected = bits(top_k_mask_logits(x, k, backend="torch"))
            assert expected == bits(masked(x, k)), (shape, k)
            assert expected == bits(masked(x.clone(), k, out=None)), (shape, k)
            copy = x.clone()
            assert expected == bits(masked(copy, k, out=copy)), (shape, k)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_a_k_for_each_row(dtype):
    """k by row, strided, and out of range."""
    x = logits((5, 300), torch.float32, "spread")
    k = torch.tensor([[0, 9], [7, 9], [-4, 9], [300, 9], [1000, 9]], dtype=dtype)[:, 0]
    expected = bits(top_k_mask_logits(x, k, backend="torch"))
    assert expected == bits(masked(x, k))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_check_and_order_passes(dtype):
    """No race, no access outside, nothing undefined, whatever the order of threads and blocks, in place too."""
    x = logits((5, 200), dtype, "ties", 1)
    expected = bits(top_k_mask_logits(x, 20, backend="torch"))
    for seed in (None, *range(4)):
        copy = x.clone()
        memory = ((copy.data_ptr(), copy.nbytes),)
        with executing(HostOptions(seed=seed, checks=frozenset(CHECKS), memory=memory)):
            assert expected == bits(masked(copy, 20, out=copy)), seed
