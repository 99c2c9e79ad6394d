"""CUDA's integer functions and half arithmetic on the CPU, against their definitions."""

# ruff: noqa: SIM300
import math
import random

import pytest
import torch

from impls.cuda_build import Kernel
from impls.cuda_build.host import unavailable

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

ALL = 0xFFFFFFFF
WORDS = [random.Random(1).getrandbits(32) for _ in range(32)]


@pytest.fixture
def launch(tmp_path):
    """launch(text, *tensors, block): runs one block of `extern "C" __global__ void f(…)` of the text on the CPU."""

    def run(text, *tensors, block=32):
        source = tmp_path / "f.cu"
        source.write_text(text)
        Kernel(source, "f", "P" * len(tensors))(-1, (1, 1, 1), block, *(x.data_ptr() for x in tensors))

    return run


def test_integer_functions(launch):
    """Bit counting, permutation and wide products."""
    out = torch.zeros(32, 13, dtype=torch.int64)
    launch(
        """extern "C" __global__ void f(const unsigned int* in, long long* out) {
          const unsigned int x = in[threadIdx.x], y = in[(threadIdx.x + 1) % 32];
          const unsigned long long wide = (unsigned long long)x << 32 | y;
          out += 13 * threadIdx.x;
          *out++ = __popc(x); *out++ = __popcll(wide); *out++ = __clz(x >> 5); *out++ = __clzll(wide >> 40);
          *out++ = __ffs(x & ~7u); *out++ = __brev(x); *out++ = __byte_perm(x, y, 0x7240);
          *out++ = __umulhi(x, y); *out++ = __mulhi((int)x, (int)y); *out++ = __umul64hi(wide, wide) >> 1;
          *out++ = __funnelshift_l(x, y, 9); *out++ = __funnelshift_r(x, y, 9); *out++ = min(x, y) - max((int)x, (int)y);
        }""",
        torch.tensor(WORDS, dtype=torch.int64).to(torch.uint32),
        out,
    )

    def signed(x):
        return x - (x >> 31 << 32)

    def expected(x, y):
        wide = x << 32 | y
        eight = (y << 32 | x).to_bytes(8, "little")
        return [
            x.bit_count(),
            wide.bit_count(),
            32 - (x >> 5).bit_length(),
            64 - (wide >> 40).bit_length(),
            ((x & ~7) & -(x & ~7)).bit_length(),
            int(f"{x:032b}"[::-1], 2),
            int.from_bytes(bytes(eight[i] for i in (0, 4, 2, 7)), "little"),
            x * y >> 32,
            signed(x) * signed(y) >> 32,
            wide * wide >> 65,
            (wide_of(y, x) << 9 & (1 << 64) - 1) >> 32,
            wide_of(y, x) >> 9 & ALL,
            (min(x, y) - max(signed(x), signed(y))) & ALL,
        ]

    def wide_of(high, low):
        return high << 32 | low

    assert [expected(WORDS[i], WORDS[(i + 1) % 32]) for i in range(32)] == out.tolist()


def test_half_arithmetic_rounds_once(launch):
    """__hfma and the operators of half and bfloat16 are the exact result, rounded to nearest even."""
    generator = torch.Generator().manual_seed(0)
    for dtype, name in ((torch.float16, "__half"), (torch.bfloat16, "__nv_bfloat16")):
        scales = 2.0 ** torch.randint(-9, 6, (3, 512), generator=generator)
        x = (torch.randn(3, 512, generator=generator, dtype=torch.float64) * scales).to(dtype)
        out = torch.zeros(3, 512, dtype=dtype)
        launch(
            f"""extern "C" __global__ void f(const {name}* in, {name}* out) {{
              const int i = threadIdx.x;
              const {name} x = in[i], y = in[512 + i], z = in[1024 + i];
              out[i] = __hfma(x, y, z), out[512 + i] = x + y, out[1024 + i] = __hmul(x, z);
            }}""",
            x,
            out,
            block=512,
        )
        a, b, c = x.double()
        # Products of these are exact in float64, and so are sums here; torch rounds float64 to half by way of float32.
        expected = [[once(value, dtype) for value in row] for row in (a * b + c, a + b, a * c)]
        assert expected == out.double().tolist()


def once(value, dtype):
    """The nearest number of the format, ties to even."""
    value = float(value)
    bits, least = {torch.float16: (11, -14), torch.bfloat16: (8, -126)}[dtype]
    if value == 0:
        return value
    unit = 2.0 ** (max(math.frexp(value)[1] - 1, least) - bits + 1)
    return round(value / unit) * unit


def test_fused_multiply_add_of_half_meets_a_tie(launch):
    """1 + 2^-11 is a tie between two halves; a term too small for float64's sum to keep still decides it."""
    x = torch.tensor([1.0 + 2**-10, 1.0, 2**-24, 0.0, -(2**-24)]).half()
    out = torch.zeros(2, dtype=torch.float16)
    launch(
        """extern "C" __global__ void f(const __half* in, __half* out) {
          out[0] = __hfma(__float2half(0x1p-12f), __float2half(2.0f + 0x1p-9f), in[1]);
          out[1] = __hfma(__float2half(0x1p-12f), __float2half(2.0f - 0x1p-9f), in[1]);
        }""",
        x,
        out,
        block=1,
    )
    assert [1.0 + 2**-10, 1.0] == out.tolist()
