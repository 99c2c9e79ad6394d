"""mbarriers and bulk copies on the CPU, and what checks find when a wait, a fence or a byte is missing."""

# ruff: noqa: SIM300
import pytest
import torch

from impls.cuda_build import Kernel
from impls.cuda_build.host import HostExecutionError, HostOptions, executing, unavailable
from impls.cuda_build.host.compiler import CHECKS

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

# A ring of two tiles: the first warp's lane 0 loads tiles as they become free, the second warp doubles them in place and stores
# them. No barrier of the block after the start. `fault` leaves something out.
SOURCE = """
#include "ptx_hopper.cuh"

enum { kRight, kTryWait, kNoWait, kWrongStage, kNoFree, kNoInitFence, kNoInit, kTwiceInit, kNoProxyFence, kNoReadWait, kNoCommit,
       kShortBytes, kLongBytes, kOddSize, kOddPlace, kTooMany, kNeverAwaited, kOverwritten, kNoStart, kNotShared, kPast };

constexpr int kTiles = 6, kStages = 2;

extern "C" __global__ void f(int fault, const int* in, int* out) {
  __shared__ alignas(128) int tile[kStages][32];
  __shared__ unsigned long long full[kStages], free_[kStages];
  const int t = threadIdx.x, lane = t % 32;
  if (t == 0 && fault != kNoInit) {
    for (int s = 0; s < kStages; ++s) {
      ptx::mbarrier_init(&full[s], 1);
      ptx::mbarrier_init(&free_[s], 32);
      if (fault == kTwiceInit) ptx::mbarrier_init(&full[s], 1);
    }
    if (fault != kNoInitFence) ptx::fence_mbarrier_init();
  }
  if (fault != kNoStart) __syncthreads();
  if (t < 32) {
    for (int i = 0; lane == 0 && i < kTiles; ++i) {
      const int s = i % kStages;
      if (fault != kNoFree) ptx::mbarrier_wait(&free_[s], (i / kStages & 1) ^ 1);
      if (fault == kOverwritten) free_[s] = 0;
      unsigned int bytes = fault == kShortBytes ? 112 : fault == kLongBytes ? 144 : 128;
      ptx::mbarrier_arrive_expect(&full[s], bytes);
      if (fault == kTooMany) ptx::mbarrier_arrive(&full[s]);
      void* const to = fault == kNotShared ? (void*)out : tile[s];
      const int* const from = in + 32 * i + (fault == kOddPlace) + (fault == kPast ? 32 : 0);
      ptx::bulk_load(to, from, fault == kOddSize ? 120 : 128, &full[s], ptx::evict_first());
    }
    return;
  }
  for (int i = 0; i < (fault == kNeverAwaited ? kTiles - 1 : kTiles); ++i) {
    const int s = i % kStages;
    const unsigned int parity = i / kStages & 1;
    if (fault == kTryWait) while (!ptx::mbarrier_try_wait(&full[s], parity)) {}
    else if (fault == kWrongStage) ptx::mbarrier_wait(&full[s ^ 1], parity);
    else if (fault != kNoWait) ptx::mbarrier_wait(&full[s], parity);
    tile[s][lane] *= 2;
    if (fault != kNoProxyFence) ptx::fence_proxy_async();
    __syncwarp();
    if (lane == 0) {
      ptx::bulk_store(out + 32 * i, tile[s], 128);
      if (fault != kNoCommit) ptx::bulk_commit();
      if (fault != kNoReadWait) ptx::bulk_wait_read<0>();
    }
    __syncwarp();
    ptx::mbarrier_arrive(&free_[s]);
  }
  if (fault == kNeverAwaited) ptx::mbarrier_arrive(&free_[0]);
}
"""
NAMES = SOURCE.partition("enum {")[2].partition("}")[0].replace(",", "").split()

RACE = "race: shared memory that "
FAULTS = {
    "kNoWait": ("race", RACE),
    "kWrongStage": ("race", RACE + "a bulk copy wrote is read"),
    "kNoFree": ("race", RACE),
    "kNoInitFence": ("race", "without a fence after its initialisation"),
    "kNoStart": ("race", "an mbarrier is used, and nothing orders that after its initialisation"),
    "kNoProxyFence": ("race", "no fence.proxy.async is between"),
    "kPast": ("memory", "reads 128 bytes outside of every tensor"),
    "kNoInit": (None, "an mbarrier is used that has not been initialised"),
    "kTwiceInit": (None, "initialised again"),
    "kNoReadWait": (None, "no cp.async.bulk.wait_group"),
    "kNoCommit": (None, "no cp.async.bulk.wait_group"),
    "kOddSize": (None, "a bulk copy of 120 bytes, which is no multiple of 16"),
    "kOddPlace": (None, "at an address that is no multiple of 16"),
    "kTooMany": (None, "more arrivals in a phase than the 1"),
    "kNeverAwaited": (None, "a bulk copy into its shared memory is on its way"),
    "kOverwritten": (None, "an mbarrier has been overwritten"),
    "kNotShared": (None, "a bulk copy to what is not shared memory"),
}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """Runs the source with one block of 64 threads, and gives what it wrote."""
    source = tmp_path_factory.mktemp("source") / "bulk.cu"
    source.write_text(SOURCE)
    compiled = Kernel(source, "f", "iPP")

    def run(fault, *checks, **options):
        room = torch.arange(192 + 36, dtype=torch.int32)
        values = room[-room.data_ptr() % 16 // 4 :][:192]
        out = torch.zeros(192 + 4, dtype=torch.int32)
        result = out[-out.data_ptr() % 16 // 4 :][:192]
        memory = tuple((x.data_ptr(), x.nbytes) for x in (values, result))
        with executing(HostOptions(checks=frozenset(checks), memory=memory, budget=5, **options)):
            compiled(-1, (1, 1, 1), 64, NAMES.index(fault), values.data_ptr(), result.data_ptr())
        assert values.tolist() == list(range(values[0], values[0] + 192))
        return [x - 2 * values[0].item() for x in result.tolist()]

    return run


EXPECTED = [2 * i for i in range(192)]


@pytest.mark.parametrize("how", ["kRight", "kTryWait"])
def test_a_ring_of_tiles(kernel, how):
    """Loads, arrivals of threads and bytes, stores: right in the fixed order, in others, and under every check."""
    assert [EXPECTED] * 2 == [kernel(how), kernel(how, *CHECKS)]
    assert [EXPECTED] * 20 == [kernel(how, *(CHECKS if seed % 2 else ()), seed=seed) for seed in range(20)]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(kernel, fault):
    """By the check that is for it, or by any run."""
    check, reason = FAULTS[fault]
    with pytest.raises(HostExecutionError) as caught:
        kernel(fault, *([check] if check else []))
    assert ("device_error", True) == (caught.value.kind, reason in str(caught.value)), str(caught.value)


@pytest.mark.parametrize("fault", ["kShortBytes", "kLongBytes"])
def test_bytes_that_are_not_those_announced_are_a_hang(kernel, fault):
    """The phase never ends, and the verdict says who waits in which line."""
    line = 1 + SOURCE.splitlines().index(next(x for x in SOURCE.splitlines() if "kNoWait) ptx::mbarrier_wait(" in x))
    with pytest.raises(HostExecutionError, match=f"32 wait at the mbarrier in line {line}") as caught:
        kernel(fault)
    assert "hang" == caught.value.kind


def test_a_missing_wait_shows_without_checks(kernel):
    """A copy is as late as it may be, so what is read too early is the poison."""
    assert EXPECTED != kernel("kWrongStage")


# Phases, arrivals at a peer's mbarrier, and loads into a peer's memory.
CLUSTER = """
#include "ptx_hopper.cuh"
extern "C" __global__ void f(int wrong, const int* in, int* out) {
  __shared__ alignas(16) int got[32];
  __shared__ unsigned long long barrier, bytes;
  const int t = threadIdx.x;
  const unsigned int rank = ptx::cluster_ctarank();
  if (t == 0) {
    ptx::mbarrier_init(&barrier, 64), ptx::mbarrier_init(&bytes, 1);
    ptx::fence_mbarrier_init();
  }
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
  got[t] = 10 * rank + t;
  ptx::mbarrier_arrive(&barrier);
  if (!wrong) ptx::mbarrier_arrive_cluster(ptx::mapa(&barrier, rank ^ 1));
  else ptx::mbarrier_arrive(&barrier);
  ptx::mbarrier_wait_cluster(&barrier, 0);
  out[64 * rank + t] = *ptx::mapa(got + t, rank ^ 1);
  ptx::fence_proxy_async();
  ptx::cluster_sync();
  if (t == 0) {
    ptx::mbarrier_arrive_expect(&bytes, 128);
    const unsigned int to = rank ^ 1;
    ptx::bulk_load(ptx::mapa(got, to), in + 32 * rank, 128, ptx::mapa(&bytes, to));
  }
  ptx::mbarrier_wait(&bytes, 0);
  out[64 * rank + 32 + t] = got[t];
  ptx::cluster_sync();
}
"""


def test_blocks_of_a_cluster_arrive_at_and_load_for_each_other(tmp_path):
    """A peer's arrivals order what it wrote; a copy may go to a peer, whose mbarrier counts it. Without them it is a race."""
    source = tmp_path / "cluster.cu"
    source.write_text(CLUSTER)
    kernel = Kernel(source, "f", "iPP", cluster=2)
    values, out = torch.arange(68, dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    values = values[-values.data_ptr() % 16 // 4 :][:64]
    first = values[0].item()
    lanes = range(32)
    expected = [*[10 + t for t in lanes], *[first + 32 + t for t in lanes], *lanes, *[first + t for t in lanes]]
    for seed in (None, *range(10)):
        with executing(HostOptions(checks=frozenset(CHECKS), seed=seed)):
            kernel(-1, (2, 1, 1), 32, 0, values.data_ptr(), out.data_ptr())
        assert expected == out.tolist(), seed
    with (
        executing(HostOptions(checks=frozenset({"race"}))),
        pytest.raises(HostExecutionError, match="race: shared memory that thread"),
    ):
        kernel(-1, (2, 1, 1), 32, 1, values.data_ptr(), out.data_ptr())


@pytest.mark.gpu
@pytest.mark.parametrize("how", ["kRight", "kTryWait"])
def test_a_gpu_agrees(tmp_path, how):
    """The ring of tiles on a device."""
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("the GPU has no bulk copies")
    source = tmp_path / "bulk.cu"
    source.write_text(SOURCE)
    values = torch.arange(192, dtype=torch.int32, device="cuda")
    out = torch.zeros_like(values)
    device = torch.cuda.current_device()
    Kernel(source, "f", "iPP")(device, (1, 1, 1), 64, NAMES.index(how), values.data_ptr(), out.data_ptr())
    assert EXPECTED == out.tolist()
