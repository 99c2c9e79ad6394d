"""The host twins of ptx.cuh: matrix instructions against an exact model, approximations against their documented errors."""

# ruff: noqa: SIM300
import math
from fractions import Fraction

import pytest
import torch

from impls.cuda_build import Kernel, tensor_core
from impls.cuda_build.host import HostOptions, executing, unavailable

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

SOURCE = """
#include "ptx.cuh"

// Fragments as PTX lays them out, from plain matrices a [16][16], b [16][8], c [16][8]; `loaded` fragments come by ldmatrix.
extern "C" __global__ void f(const unsigned short* a, const unsigned short* b, float* c, int bfloat16, int half_sums,
                             int* differ) {
  __shared__ __align__(16) unsigned short rows[16][16], columns[16][8];
  const int lane = threadIdx.x, group = lane / 4, pair = lane % 4 * 2;
  for (int i = lane; i < 256; i += 32) rows[i / 16][i % 16] = a[i];
  for (int i = lane; i < 128; i += 32) columns[i / 8][i % 8] = b[i];
  __syncwarp();
  unsigned int fa[4], fb[2], loaded[4];
  for (int r = 0; r < 4; ++r) {
    const unsigned short* element = &rows[group + r % 2 * 8][pair + r / 2 * 8];
    fa[r] = element[0] | element[1] << 16;
  }
  for (int r = 0; r < 2; ++r) fb[r] = columns[pair + r * 8][group] | columns[pair + r * 8 + 1][group] << 16;
  ptx::ldmatrix_x4(loaded, &rows[lane % 16][lane / 16 * 8]);
  for (int r = 0; r < 4; ++r) *differ += loaded[r] != fa[r];
  ptx::ldmatrix_x4_trans(loaded, columns[lane % 16]);
  for (int r = 0; r < 2; ++r) *differ += loaded[r] != fb[r];

  float* first = c + group * 8 + pair;
  float* second = first + 64;
  if (half_sums) {
    unsigned int d[2] = {ptx::pack_half(first[0], first[1]), ptx::pack_half(second[0], second[1])};
    ptx::mma_m16n8k16_f16(d, fa, fb);
    const float2 low = ptx::unpack_half(d[0]), high = ptx::unpack_half(d[1]);
    first[0] = low.x, first[1] = low.y, second[0] = high.x, second[1] = high.y;
  } else {
    float d[4] = {first[0], first[1], second[0], second[1]};
    if (bfloat16) ptx::mma_m16n8k16_f32<ptx::Bfloat16>(d, fa, fb);
    else ptx::mma_m16n8k16_f32<ptx::Half>(d, fa, fb);
    first[0] = d[0], first[1] = d[1], second[0] = d[2], second[1] = d[3];
  }
}

extern "C" __global__ void g(const float* in, float* out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    out[i] = ptx::ex2(in[i]), out[n + i] = ptx::lg2(in[i]), out[2 * n + i] = ptx::rcp(in[i]);
    out[3 * n + i] = ptx::tanh_approx(in[i]);
    const float2 pair = ptx::unpack_bfloat16(ptx::pack_bfloat16(in[i], in[i]));
    out[4 * n + i] = pair.x == pair.y || in[i] != in[i] ? pair.y : -1;
  }
}
"""

MODELS = {"sm_80": (8, 1), "sm_90a": (16, 2)}
TYPES = {"half": (torch.float16, False), "bfloat16": (torch.bfloat16, False), "half sums": (torch.float16, True)}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The file with both kernels."""
    path = tmp_path_factory.mktemp("source") / "mma.cu"
    path.write_text(SOURCE)
    return path


@pytest.fixture(scope="module")
def multiply(source):
    """c + a @ b by one mma of 16-bit matrices; checks that ldmatrix gives the fragments that are read by hand."""
    kernel = Kernel(source, "f", "PPPiiP")

    def run(a, b, c, half_sums, arch="sm_90a"):
        a, b, d = a.contiguous(), b.contiguous(), c.float().contiguous()
        differ = torch.zeros(1, dtype=torch.int32)
        flags = (a.dtype == torch.bfloat16, half_sums)
        with executing(HostOptions(arch=arch)):
            kernel(-1, (1, 1, 1), 32, a.data_ptr(), b.data_ptr(), d.data_ptr(), *flags, differ.data_ptr())
        assert [0] == differ.tolist()
        return d

    return run


def rounded(value, bits, least, truncate):
    """A Fraction as a number of `bits` bits and exponents from `least` on: truncated, or to nearest even."""
    if value == 0:
        return Fraction(0)
    unit = Fraction(2) ** (max(exponent(value), least) - bits + 1)
    return (int(value / unit) if truncate else round(value / unit)) * unit


def exponent(value):
    """e with 2^e <= |value| < 2^(e + 1)."""
    value = abs(value)
    e = value.numerator.bit_length() - value.denominator.bit_length()
    return e if Fraction(2) ** e <= value else e - 1


def simulated(c, products, block, extra_bits, half_sums):
    """The model of a tensor core, in exact arithmetic."""
    for start in range(0, len(products), block):
        terms = [c, *products[start : start + block]]
        if any(terms):
            unit = Fraction(2) ** (max(exponent(term) for term in terms if term) - 23 - extra_bits)
            c = sum(int(term / unit) for term in terms) * unit
        c = rounded(c, 11, -14, False) if half_sums else rounded(c, 24, -126, True)
    return c


@pytest.mark.parametrize("arch", MODELS)
@pytest.mark.parametrize("kind", TYPES)
def test_mma_is_the_model_of_its_architecture(multiply, arch, kind):
    """Bit for bit, on values whose exponents differ enough for every truncation to matter, cancellation included."""
    dtype, half_sums = TYPES[kind]
    generator = torch.Generator().manual_seed(0)
    scale = 2.0 ** torch.randint(-6, 5, (40, 16), generator=generator)
    values = (torch.randn(40, 16, generator=generator) * scale).to(dtype)
    a, b, c = values[:16], values[16:32].T[:, :8], values[32:].T.half()
    d = multiply(a, b, c, half_sums, arch)
    exact = [[Fraction(x) for x in row] for row in a.tolist()], [[Fraction(x) for x in row] for row in b.T.tolist()]
    expected = [
        [
            float(simulated(Fraction(c[i, j].item()), [x * y for x, y in zip(row, column)], *MODELS[arch], half_sums))
            for j, column in enumerate(exact[1])
        ]
        for i, row in enumerate(exact[0])
    ]
    assert expected == d.tolist()


@pytest.mark.parametrize("kind", TYPES)
def test_mma_of_small_integers_is_exact(multiply, kind):
    """Every product in its place."""
    dtype, half_sums = TYPES[kind]
    generator = torch.Generator().manual_seed(1)
    a, b, c = (torch.randint(-8, 9, shape, generator=generator) for shape in ((16, 16), (16, 8), (16, 8)))
    assert (a @ b + c).tolist() == multiply(a.to(dtype), b.to(dtype), c, half_sums).tolist()


@pytest.mark.parametrize("kind", TYPES)
def test_mma_of_numbers_that_are_not_finite(multiply, kind):
    """inf stays, inf - inf and NaN are NaN, and a row without them does not notice; sums past the format are inf."""
    dtype, half_sums = TYPES[kind]
    a, b, c = torch.ones(16, 16), torch.ones(16, 8), torch.zeros(16, 8)
    a[0, 3], a[1, 5], a[2, 1], a[2, 2], a[3] = math.inf, math.nan, math.inf, -math.inf, 60000.0
    b[:, 1] = 2.0**60 if dtype is torch.bfloat16 else 60000.0
    d = multiply(a.to(dtype), b.to(dtype), c, half_sums)
    assert [math.inf, True, True, 16.0] == [
        d[0, 0].item(),
        d[1, 0].isnan().item(),
        d[2, 0].isnan().item(),
        d[4, 0].item(),
    ]
    assert half_sums == d[3, 1].isinf().item()


@pytest.mark.parametrize("arch", MODELS)
def test_the_probe_of_tensor_cores_finds_the_model(arch):
    """What asks a GPU how it sums gets the host's own answer from the host."""
    with executing(HostOptions(arch=arch)):
        found = tensor_core.probe(torch.device("cpu"))
    assert (*MODELS[arch], True, True) == tuple(found)


def test_approximations_have_the_documented_errors(source):
    """ex2, lg2 and rcp within 2^-22, tanh within 2^-11, and errors there are: nobody may count on exact results."""
    generator = torch.Generator().manual_seed(2)
    x = torch.rand(4096, generator=generator) * 20 + 2.0**-10
    x[2048:] = -x[2048:]
    out = torch.zeros(5, len(x))
    Kernel(source, "g", "PPi")(-1, (1, 1, 1), 64, x.data_ptr(), out.data_ptr(), len(x))
    exact = x.double()
    error = [
        (out[i] / f(exact) - 1).abs().max().item() for i, f in ((0, torch.exp2), (2, torch.reciprocal), (3, torch.tanh))
    ]
    assert [True] * 3 == [2**-24 < e <= bound for e, bound in zip(error, (2**-22, 2**-22, 2**-11))], error
    assert 2**-22 >= (out[1] - exact.log2())[:2048].abs().max() / 5
    assert out[3].abs().max() <= 1
    assert torch.equal(x.bfloat16().float(), out[4])


def test_approximations_of_special_values(source):
    """Infinities, zeros, NaN, exact powers, and subnormal results, which ex2 flushes."""
    x = torch.tensor([0.0, -0.0, 3.0, -126.0, -126.5, -math.inf, math.inf, math.nan, 2.0**-140])
    out = torch.zeros(5, len(x))
    Kernel(source, "g", "PPi")(-1, (1, 1, 1), 32, x.data_ptr(), out.data_ptr(), len(x))
    assert ["1.0", "1.0", "8.0", str(2.0**-126), "0.0", "0.0", "inf", "nan", "1.0"] == [str(y) for y in out[0].tolist()]
    assert ["inf", "-inf"] == [str(y) for y in out[2, :2].tolist()]
    assert ["0.0", "-0.0", "-1.0", "1.0", "nan"] == [str(y) for y in out[3, [0, 1, 5, 6, 7]].tolist()]
