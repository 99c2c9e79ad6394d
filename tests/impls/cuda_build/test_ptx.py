"""ptx.cuh and ptx_hopper.cuh: every function builds for the architectures that have it, and its twin does the same."""

# ruff: noqa: SIM300
import re

import pytest
import torch

from impls.cuda_build import Kernel, compile_cubin, headers
from impls.cuda_build.host import HostExecutionError, HostOptions, executing, unavailable

on_host = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

USES = {
    "ptx.cuh": """
      unsigned int r[4], d[2] = {};
      float c[4] = {};
      uint4* const q = (uint4*)p;
      const unsigned int b[2] = {1, 2};
      __shared__ alignas(16) unsigned int shared[128];
      ptx::ldmatrix_x4(r, shared), ptx::ldmatrix_x4_trans(r, shared);
      ptx::mma_m16n8k16_f32<ptx::Half>(c, r, b), ptx::mma_m16n8k16_f32<ptx::Bfloat16>(c, r, b);
      ptx::mma_m16n8k16_f16(d, r, b);
      ptx::cp_async_16(shared, p, true), ptx::cp_async_commit(), ptx::cp_async_wait<1>();
      c[0] = ptx::ex2(c[0]) + ptx::lg2(c[1]) + ptx::rcp(c[2]) + ptx::tanh_approx(c[3]);
      const float2 pair = ptx::unpack_half(ptx::pack_half(c[0], c[1])), also = ptx::unpack_bfloat16(ptx::pack_bfloat16(1, c[2]));
      d[0] = ptx::hfma2(ptx::hadd2(d[0], d[1]), ptx::hmul2(r[0], r[1]), ptx::opaque(r[2]));
      d[1] = ptx::hgtu2(d[0], d[1]) ^ ptx::bgtu2(r[0], r[1]);
      if (threadIdx.x < 64) ptx::barrier_sync(1, 64);
      else ptx::barrier_arrive(2, 64);
      ptx::prefetch_l2(q);
      ptx::store_streaming(q, ptx::load_read_only(q + 1));
      ptx::store_streaming(q + 2, ptx::load_streaming(q + 3));
      ptx::store_streaming(q + 4, ptx::load_streaming(q + 5, ptx::evict_first()), ptx::evict_last());
      p[0] = d[0] + c[0] + pair.x + also.y + ptx::globaltimer() + clock64() + ptx::shared_address(shared);
      __nanosleep(20);
      p[1] = __reduce_add_sync(~0u, p[0]);
    """,
    "ptx_hopper.cuh": """
      __shared__ alignas(16) unsigned long long barrier[2];
      __shared__ alignas(16) unsigned int shared[64];
      ptx::mbarrier_init(barrier, 1), ptx::fence_mbarrier_init();
      ptx::cluster_arrive_relaxed(), ptx::cluster_wait(), ptx::cluster_arrive(), ptx::cluster_wait(), ptx::cluster_sync();
      unsigned int* const peer = ptx::mapa(shared, ptx::cluster_ctarank() ^ 1);
      *peer = ptx::cluster_nctarank(), atomicAdd(peer, 1u), ptx::cluster_add(peer, 1u);
      ptx::mbarrier_arrive(barrier), ptx::mbarrier_arrive_expect(barrier, 64);
      ptx::mbarrier_arrive_cluster(ptx::mapa(barrier, 0u));
      ptx::bulk_load(shared, p, 64, barrier), ptx::bulk_load(shared, p, 64, barrier, ptx::evict_first());
      ptx::mbarrier_wait(barrier, 0), ptx::mbarrier_wait_cluster(barrier, 1), p[0] = ptx::mbarrier_try_wait(barrier, 0);
      ptx::fence_proxy_async();
      ptx::bulk_store(p, shared, 64), ptx::bulk_store(p, shared, 64, ptx::evict_last()), ptx::bulk_commit();
      ptx::bulk_wait_read<1>(), ptx::bulk_wait<0>(), ptx::mbarrier_inval(barrier);
    """,
}
ARCHS = {"ptx.cuh": ("sm_80", "sm_90a", "sm_120a"), "ptx_hopper.cuh": ("sm_90a", "sm_100a", "sm_120a")}


@pytest.mark.parametrize("header", USES)
def test_every_function_is_used_here(header):
    """So that the other tests cover what is added."""
    text = (headers.SHARED / header).read_text()
    functions = set(re.findall(r"__forceinline__ [\w* ]+?\**(\w+)(?:<\w+>)?\(", text))
    assert set() == {name for name in functions if f"ptx::{name}" not in USES[header]}
    assert 15 < len(functions)


@pytest.mark.parametrize(("header", "arch"), [(header, arch) for header in ARCHS for arch in ARCHS[header]])
def test_they_build_for_the_device(tmp_path, header, arch):
    """Through NVRTC and its assembler."""
    source = tmp_path / "f.cu"
    source.write_text(f'#include "{header}"\nextern "C" __global__ void f(unsigned int* p) {{ {USES[header]} }}\n')
    assert b"\x7fELF" == compile_cubin(source, arch)[:4]


def test_an_old_architecture_may_include_what_it_does_not_use(tmp_path):
    """One source for all, chosen by the caller."""
    source = tmp_path / "f.cu"
    source.write_text('#include "ptx_hopper.cuh"\nextern "C" __global__ void f(float* p) { *p = ptx::ex2(*p); }\n')
    assert b"\x7fELF" == compile_cubin(source, "sm_80")[:4]


@on_host
def test_packed_halves(tmp_path):
    """Each half rounded once: against exact arithmetic in float64, whose rounding to half torch does by way of float32."""
    source = tmp_path / "f.cu"
    source.write_text("""
    #include "ptx.cuh"
    extern "C" __global__ void f(const unsigned int* in, unsigned int* out) {
      const unsigned int t = threadIdx.x, x = in[t], y = in[t + 256], z = in[t + 512];
      out[t] = ptx::hfma2(x, y, z), out[t + 256] = ptx::hadd2(x, y), out[t + 512] = ptx::hmul2(x, y);
    }""")
    generator = torch.Generator().manual_seed(0)
    scale = 2.0 ** torch.randint(-12, 8, (3, 512), generator=generator)
    x, y, z = values = (torch.randn(3, 512, generator=generator) * scale).half()
    out = torch.zeros_like(values)
    Kernel(source, "f", "PP")(-1, (1, 1, 1), 256, values.data_ptr(), out.data_ptr())
    # Sums of halves are exact in float, and products; torch rounds those once. A product plus a third is exact in float64.
    assert torch.equal((x.float() + y.float()).half(), out[1])
    assert torch.equal((x.float() * y.float()).half(), out[2])
    exact = x.double() * y.double() + z.double()
    step = torch.nextafter(out[0], torch.tensor(torch.inf, dtype=torch.float16)).double() - out[0].double()
    assert ((exact - out[0].double()).abs() <= step / 2 * 1.001).all()


def test_packed_comparisons(tmp_path):
    """The host's twins say of each of two elements whether it is greater or not comparable: subnormals, both zeros, infinities
    and NaN included."""
    source = tmp_path / "f.cu"
    source.write_text("""
    #include "ptx.cuh"
    extern "C" __global__ void f(const unsigned int* in, unsigned int* out) {
      const unsigned int t = threadIdx.x;
      out[t] = ptx::hgtu2(in[t], in[t + 256]), out[t + 256] = ptx::bgtu2(in[t], in[t + 256]);
    }""")
    few = [
        0,
        0x8000,
        1,
        0x8001,
        0x7F,
        0x3C00,
        0x3F80,
        0xBF80,
        0x7BFF,
        0x7C00,
        0xFC00,
        0x7C01,
        0x7F80,
        0xFF80,
        0x7FC0,
        0xFFFF,
    ]
    pool = torch.tensor([pattern - (pattern >> 15 << 16) for pattern in few], dtype=torch.int16)
    pick = torch.randint(len(few), (2, 512), generator=torch.Generator().manual_seed(0))
    bits = pool[pick]
    out = torch.zeros_like(bits)
    Kernel(source, "f", "PP")(-1, (1, 1, 1), 256, bits.data_ptr(), out.data_ptr())
    for dtype, found in ((torch.half, out[0]), (torch.bfloat16, out[1])):
        x, y = bits.view(dtype).float()
        assert torch.equal(torch.where(x <= y, 0, -1).short(), found), dtype


STREAMS = """
#include "ptx.cuh"
extern "C" __global__ void f(int which, uint4* p, uint4* q) {
  const int t = threadIdx.x;
  if (which == 0) ptx::store_streaming(q + t, ptx::load_read_only(p + t));
  if (which == 1) ptx::store_streaming(q + t, ptx::load_streaming(p + t, ptx::evict_first()), ptx::evict_last());
  if (which == 2) ptx::store_streaming(p + t, ptx::load_read_only(p + t));
  if (which == 3) p[t].x += 1, q[t] = ptx::load_read_only(p + t);
  if (which == 4) p[t].x += 1, q[t].x = __ldg(&p[t].x);
  if (which == 5) p[t].x += 1, q[t] = ptx::load_streaming(p + t);
  if (which == 6) ptx::load_read_only((char*)p + 4);
  if (which == 7) ptx::store_streaming((char*)p + 8, q[0]);
  if (which == 8) {
    if (t < 32) p[t].x = 7, ptx::barrier_arrive(1, 64);
    else ptx::barrier_sync(1, 64), q[t].x = p[t - 32].x;
  }
}
"""


@on_host
def test_hinted_accesses_and_named_barriers(tmp_path):
    """They move what plain ones move. What is written in a launch is not read as read-only; vectors are aligned."""
    source = tmp_path / "f.cu"
    source.write_text(STREAMS)
    kernel = Kernel(source, "f", "iPP")
    room = torch.zeros(2, 64, 4, dtype=torch.int32)
    refused = {
        3: "a read-only load of global memory that thread",
        4: "a read-only load of global memory that thread",
        6: "a misaligned access of 16 bytes",
        7: "a misaligned access of 16 bytes",
    }
    for which in range(9):
        room[0], room[1] = torch.arange(256).view(64, 4), -1
        with executing(HostOptions(checks=frozenset({"race"} if which < 6 or which == 8 else ()))):
            if which in refused:
                with pytest.raises(HostExecutionError, match=refused[which]):
                    kernel(-1, (1, 1, 1), 64, which, room[0].data_ptr(), room[1].data_ptr())
                continue
            kernel(-1, (1, 1, 1), 64, which, room[0].data_ptr(), room[1].data_ptr())
        if which == 8:
            assert [7] * 32 == room[1, 32:, 0].tolist()
        elif which != 2:
            assert room[0].tolist() == room[1].tolist()
