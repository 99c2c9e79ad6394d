"""CUDA's execution model on the CPU: each primitive against its definition, with kernels written for the purpose."""

# ruff: noqa: SIM300
import random

import pytest
import torch

from impls.cuda_build import Kernel, headers
from impls.cuda_build.host import HostOptions, compiler, executing, unavailable

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

ALL = 0xFFFFFFFF
WORDS = [random.Random(1).getrandbits(32) for _ in range(32)]


@pytest.fixture
def launch(tmp_path):
    """launch(text, *arguments, grid, block, shared): runs `extern "C" __global__ void f(…)` of the text on the CPU."""

    def run(text, *arguments, grid=(1, 1, 1), block=32, shared=0):
        source = tmp_path / "f.cu"
        source.write_text(text)
        codes = "".join("P" if isinstance(a, torch.Tensor) else "i" for a in arguments)
        values = [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments]
        Kernel(source, "f", codes, shared_bytes=shared)(-1, grid, block, *values)

    return run


def ints(*shape):
    """Zeros that a kernel writes to, as 64-bit numbers."""
    return torch.zeros(*shape, dtype=torch.int64)


def test_indices(launch):
    """Every thread of every block runs once, and knows who it is."""
    out = ints(2 * 3 * 40, 4)
    launch(
        """extern "C" __global__ void __launch_bounds__(40) f(long long* out) {
          const int block = blockIdx.y * gridDim.x + blockIdx.x;
          long long* mine = out + 4 * (block * blockDim.x + threadIdx.x);
          mine[0] += threadIdx.x; mine[1] += blockIdx.x; mine[2] += blockIdx.y; mine[3] += warpSize;
        }""",
        out,
        grid=(2, 3, 1),
        block=40,
    )
    assert [[t, x, y, 32] for y in range(3) for x in range(2) for t in range(40)] == out.tolist()


SHUFFLES = {
    "__shfl_sync": lambda lane, n, width: lane // width * width + n % width,
    "__shfl_up_sync": lambda lane, n, width: lane - n if n <= lane % width else lane,
    "__shfl_down_sync": lambda lane, n, width: lane + n if lane % width + n < width else lane,
    "__shfl_xor_sync": lambda lane, n, width: lane ^ n if lane ^ n <= lane | (width - 1) else lane,
}


def test_shuffles(launch):
    """All four kinds, for whole warps and parts of them, by their definitions in the programming guide."""
    cases = [(name, n, width) for name in SHUFFLES for n, width in ((1, 32), (5, 32), (3, 8), (7, 16), (1, 2))]
    lines = [f"*out++ = {name}(0xFFFFFFFFu, lane, {n}, {width});" for name, n, width in cases]
    out = ints(32, len(cases))
    launch(
        f"""extern "C" __global__ void f(long long* out) {{
          const int lane = threadIdx.x;
          out += lane * {len(cases)};
          {" ".join(lines)}
        }}""",
        out,
    )
    assert [[SHUFFLES[name](lane, n, width) for name, n, width in cases] for lane in range(32)] == out.tolist()


@pytest.mark.parametrize(
    "type_name",
    ["int", "unsigned int", "long long", "unsigned long long", "float", "double", "__half", "__nv_bfloat162"],
)
def test_shuffles_move_every_type(launch, type_name):
    """A value arrives with all its bits."""
    out, values = torch.zeros(32, dtype=torch.int64), torch.arange(32) * 0x0123456701234567
    launch(
        f"""extern "C" __global__ void f(const long long* in, long long* out) {{
          {type_name} value, got;
          memcpy(&value, in + threadIdx.x, sizeof value);
          got = __shfl_xor_sync(0xFFFFFFFFu, value, 3);
          memcpy(out + threadIdx.x, &got, sizeof got);
        }}""",
        values,
        out,
    )
    size = {"__half": 2, "int": 4, "unsigned int": 4, "float": 4, "__nv_bfloat162": 4}.get(type_name, 8)
    mask = (1 << 8 * size) - 1
    assert [values[lane ^ 3].item() & mask for lane in range(32)] == [x & mask for x in out.tolist()]


def test_a_shuffle_from_a_lane_that_takes_no_part_is_garbage(launch):
    """The value is undefined; here it is all ones, so that nobody mistakes it for a right one."""
    out = ints(32)
    launch(
        """extern "C" __global__ void f(long long* out) {
          if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xFFFFu, (int)threadIdx.x, threadIdx.x + 8);
        }""",
        out,
    )
    assert [*range(8, 16), *[-1] * 8] == out.tolist()[:16]


def test_warp_operations_of_two_halves_of_a_warp(launch):
    """Votes, matches and reductions see the lanes of their mask, whatever the other lanes do meanwhile."""
    out = ints(32, 10)
    launch(
        """extern "C" __global__ void f(const unsigned int* in, long long* out) {
          const int lane = threadIdx.x;
          const unsigned int x = in[lane];
          out += lane * 10;
          unsigned int mask = 0x55555555u;
          if (lane % 2) {
            mask = ~mask;
            __syncwarp(mask);
          }
          *out++ = __ballot_sync(mask, x & 4);
          *out++ = __any_sync(mask, lane == 5);
          *out++ = __all_sync(mask, lane % 2);
          *out++ = __match_any_sync(mask, x % 4);
          *out++ = __reduce_add_sync(mask, x);
          *out++ = __reduce_min_sync(mask, (int)x);
          *out++ = __reduce_max_sync(mask, x);
          *out++ = __reduce_and_sync(mask, x | 0xFF);
          *out++ = __reduce_or_sync(mask, x & 0xFF);
          *out++ = __reduce_xor_sync(mask, x);
        }""",
        torch.tensor(WORDS, dtype=torch.int64).to(torch.uint32),
        out,
    )

    def expected(lane):
        lanes = range(lane % 2, 32, 2)
        xs = [WORDS[i] for i in lanes]
        signed = [x - (x >> 31 << 32) for x in xs]
        bits = [
            sum(1 << i for i in lanes if WORDS[i] & 4),
            int(5 in lanes),
            lane % 2,
            sum(1 << i for i in lanes if WORDS[i] % 4 == WORDS[lane] % 4),
            sum(xs) & ALL,
            min(signed),
            max(xs),
        ]
        all_and, all_or, all_xor = ALL, 0, 0
        for x in xs:
            all_and, all_or, all_xor = all_and & (x | 0xFF), all_or | (x & 0xFF), all_xor ^ x
        return [*bits, all_and, all_or, all_xor]

    assert [expected(lane) for lane in range(32)] == out.tolist()


def test_barriers_that_count(launch):
    """__syncthreads_count, _and and _or, in a block with a part of a warp, and after some threads have left."""
    out = ints(70, 4)
    launch(
        """extern "C" __global__ void f(long long* out) {
          __shared__ int last;
          const int t = threadIdx.x;
          out += 4 * t;
          out[0] = __syncthreads_count(t % 3 == 0);
          out[1] = __syncthreads_and(t < 69);
          out[2] = __syncthreads_or(t == 69);
          if (t >= 40) return;
          if (t == 39) last = t;
          __syncthreads();
          out[3] = last;
        }""",
        out,
        block=70,
    )
    assert [[24, 0, 1, 39 if t < 40 else 0] for t in range(70)] == out.tolist()


def test_atomics(launch):
    """All threads' updates count, on shared and on global memory, and each gets the value before its own."""
    out, total, before = ints(12), torch.zeros(1, dtype=torch.float32), ints(64)
    launch(
        """extern "C" __global__ void f(long long* out, float* total, long long* before) {
          __shared__ unsigned int word[8];
          __shared__ unsigned long long wide;
          __shared__ int low, high;
          const unsigned int t = threadIdx.x;
          if (t == 0) {
            for (int i = 0; i < 8; ++i) word[i] = i == 3 ? ~0u : 0;
            wide = 1ull << 40, low = 5, high = -5;
          }
          __syncthreads();
          before[t] = atomicAdd(&word[0], 1u);
          atomicAdd(&wide, 1ull << 33);
          atomicMin(&low, -(int)t);
          atomicMax(&high, (int)t);
          atomicOr(&word[1], 1u << t % 32);
          atomicXor(&word[2], t);
          atomicAnd(&word[3], ~(1u << t % 7));
          atomicInc(&word[4], 9u);
          atomicSub(&word[5], 1u);
          for (unsigned int seen = 0, now; (now = atomicCAS(&word[6], seen, seen + 2)) != seen; seen = now) {}
          if (t == 0) atomicExch(&word[7], 77u);
          atomicAdd(total, 0.5f);
          __syncthreads();
          if (t < 8) out[t] = word[t];
          if (t == 8) out[8] = wide, out[9] = low, out[10] = high;
        }""",
        out,
        total,
        before,
        block=64,
    )
    xor = 0
    for t in range(64):
        xor ^= t
    words = [64, ALL, xor, ALL & ~127, 64 % 10, ALL & -64, 128, 77]
    assert [*words, (1 << 40) + (64 << 33), -63, 63, 0] == out.tolist()
    assert [32.0] == total.tolist()
    assert list(range(64)) == sorted(before.tolist())


def test_dynamic_shared_memory(launch):
    """Every spelling gives the block's own memory, as large as the launch says, and aligned."""
    out = ints(3, 2)
    launch(
        """template <typename T> __device__ T* all() {
          extern __shared__ __align__(128) unsigned char bytes[];
          return reinterpret_cast<T*>(bytes);
        }
        extern "C" __global__ void f(long long* out) {
          extern __shared__ int shared[];
          extern __shared__ alignas(16) uint4 vectors [];
          shared[255 - threadIdx.x] = threadIdx.x * (blockIdx.x + 1);
          __syncthreads();
          if (threadIdx.x == 0) {
            out[2 * blockIdx.x] = all<int>()[0] + (int)vectors[63].w;
            out[2 * blockIdx.x + 1] = reinterpret_cast<unsigned long long>(shared) % 128;
          }
        }""",
        out,
        grid=(3, 1, 1),
        block=256,
        shared=1024,
    )
    assert [[255, 0], [510, 0], [765, 0]] == out.tolist()


@pytest.mark.parametrize("poison", [0x00, 0xFF, 0xA5])
def test_shared_memory_is_poisoned_at_block_start(launch, poison):
    """No block sees what the one before left in static or dynamic shared memory."""
    out = ints(2, 2)
    with executing(HostOptions(poison=poison)):
        launch(
            """extern "C" __global__ void f(long long* out) {
              __shared__ unsigned int before[4];
              extern __shared__ unsigned int also[];
              out[2 * blockIdx.x] = before[3], out[2 * blockIdx.x + 1] = also[3];
              before[3] = also[3] = 7;
            }""",
            out,
            grid=(2, 1, 1),
            block=1,
            shared=16,
        )
    assert [[poison * 0x01010101] * 2] * 2 == out.tolist()


def test_active_lanes_are_always_a_set_that_can_meet(launch):
    """A mask from __activemask in a branch works: here it is the calling lane alone, which a kernel must expect too."""
    out = ints(32)
    launch(
        """extern "C" __global__ void f(long long* out) {
          if (threadIdx.x % 3) out[threadIdx.x] = __popc(__ballot_sync(__activemask(), 1));
        }""",
        out,
    )
    assert [int(lane % 3 > 0) for lane in range(32)] == out.tolist()


@pytest.mark.parametrize("missing", ["g++", "headers"])
def test_what_is_missing_is_said(monkeypatch, missing):
    """Without a compiler or CUDA's headers the reason names what to install."""
    if missing == "g++":
        monkeypatch.setattr(compiler.shutil, "which", lambda name: None)
    else:
        monkeypatch.setattr(headers, "cuda_include_directory", lambda: None)
    unavailable.cache_clear()
    try:
        assert "install" in (unavailable() or "")
    finally:
        unavailable.cache_clear()
