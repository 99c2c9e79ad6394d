"""Clusters on the CPU: ranks, shared memory of peers, the cluster's barrier, and what checks find when it is missing."""

# ruff: noqa: SIM300
import pytest
import torch

from impls.cuda_build import Kernel, launch
from impls.cuda_build.host import HostExecutionError, HostOptions, executing, unavailable
from impls.cuda_build.host.compiler import CHECKS

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

# Each thread reads what the next block of its cluster has in static and in dynamic shared memory, and adds to a word of the first
# block. `fault` leaves something out.
SOURCE = """
#include "ptx_hopper.cuh"

enum { kRight, kSplit, kNoBarrier, kBlockBarrier, kRelaxed, kTooEarly, kNoEnd, kNoStart, kGone, kTwice, kOnlyWait, kTwoPlaces,
       kMissing, kAtomics, kPlainSum, kRank, kNotShared, kPastEnd, kUnset, kLater };

extern "C" __global__ void f(int fault, int* out, int* flag) {
  __shared__ int mine[64];
  __shared__ unsigned int sum;
  extern __shared__ int dynamic[];
  const int t = threadIdx.x;
  const unsigned int rank = ptx::cluster_ctarank(), size = ptx::cluster_nctarank(), next = (rank + 1) % size;
  int* const result = out + 3 * (blockIdx.x * blockDim.x + t);
  if (t == 0) sum = 0;
  if (fault == kRank) { ptx::mapa(mine, size); return; }
  if (fault == kNotShared) { ptx::mapa(out, 0); return; }
  if (fault == kOnlyWait) ptx::cluster_wait();
  if (fault == kMissing && rank == 1 && t == 3) return;
  if (fault == kMissing && rank == 0 && t == 3) __syncthreads();
  if (fault == kTwoPlaces) {
    if (t % 2) ptx::cluster_sync();
    else ptx::cluster_sync();
  }
  if (fault == kTwice) {
    ptx::cluster_arrive();
    ptx::cluster_arrive();
  }
  if (fault == kNoStart) *ptx::mapa(mine + t, next) = t;
  ptx::cluster_sync();
  if (fault == kUnset) { result[0] = *ptx::mapa(mine + t, next); ptx::cluster_sync(); return; }
  mine[t] = blockIdx.x * 100 + t;
  dynamic[t] = -mine[t];
  switch (fault) {
    case kNoBarrier: break;
    case kBlockBarrier: __syncthreads(); break;
    case kSplit:
      ptx::cluster_arrive();
      result[2] = 0;
      ptx::cluster_wait();
      break;
    case kRelaxed:
      ptx::cluster_arrive_relaxed();
      ptx::cluster_wait();
      break;
    case kTooEarly:
      ptx::cluster_arrive();
      mine[t] = t + 1;
      ptx::cluster_wait();
      break;
    default: ptx::cluster_sync();
  }
  if (fault == kGone && rank == 1) return;
  if (fault == kGone) {
    while (atomicAdd(flag, 0) == 0 && t < 0) {}
    ptx::cluster_sync();
    result[0] = *ptx::mapa(mine + t, 1);
    return;
  }
  result[0] = ptx::mapa(mine, next)[63 - t + (fault == kPastEnd)];
  result[1] = ptx::mapa(dynamic, next)[63 - t];
  if (fault == kPlainSum) *ptx::mapa(&sum, 0) += t;
  else if (t % 2) atomicAdd(ptx::mapa(&sum, 0), (unsigned int)t);
  else ptx::cluster_add(ptx::mapa(&sum, 0), t);
  if (fault == kLater) mine[t] = 0;
  if (fault == kNoEnd) return;
  ptx::cluster_sync();
  result[2] = rank == 0 ? (int)sum : (int)rank;
}
"""
NAMES = SOURCE.partition("enum {")[2].partition("}")[0].replace(",", "").split()
CLUSTER = 4

NOTHING_ORDERS = "race: shared memory that thread"
FAULTS = {
    "kNoBarrier": ("race", NOTHING_ORDERS),
    "kBlockBarrier": ("race", NOTHING_ORDERS),
    "kRelaxed": ("race", NOTHING_ORDERS),
    "kTooEarly": ("race", NOTHING_ORDERS),
    "kPlainSum": ("race", NOTHING_ORDERS),
    "kLater": ("race", NOTHING_ORDERS),
    "kNoEnd": ("race", "race: the block exits, and nothing orders that after thread"),
    "kNoStart": ("memory", "before a cluster barrier"),
    "kUnset": ("memory", "shared memory is read that no thread of the block has written"),
    "kPastEnd": ("memory", "an access outside of every __shared__ variable"),
    "kGone": (None, "mapa to block 1 of the cluster, which has exited"),
    "kTwice": (None, "again before it has waited"),
    "kOnlyWait": (None, "without having arrived"),
    "kTwoPlaces": (None, "lanes of a warp arrive at the cluster barrier in lines"),
    "kRank": (None, "mapa to block 4 of a cluster of 4"),
    "kNotShared": (None, "mapa of an address that is not in shared memory"),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The file."""
    path = tmp_path_factory.mktemp("source") / "clusters.cu"
    path.write_text(SOURCE)
    return path


@pytest.fixture(scope="module")
def kernel(source):
    """Runs it with blocks of 64 threads, two clusters, and gives what each thread wrote."""
    kernels = {size: Kernel(source, "f", "iPP", shared_bytes=256, cluster=size) for size in (1, 2, CLUSTER, 16)}

    def run(fault, *checks, size=CLUSTER, **options):
        out, flag = torch.zeros(2 * size * 64, 3, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
        memory = tuple((x.data_ptr(), x.nbytes) for x in (out, flag))
        with executing(HostOptions(checks=frozenset(checks), memory=memory, budget=5, **options)):
            kernels[size](-1, (2 * size, 1, 1), 64, NAMES.index(fault), out.data_ptr(), flag.data_ptr())
        return out.tolist()

    return run


def expected(size=CLUSTER):
    """What the right kernel gives."""
    rows = []
    for block in range(2 * size):
        other = block // size * size + (block + 1) % size
        last = sum(range(64)) * size if block % size == 0 else block % size
        rows += [[other * 100 + 63 - t, -(other * 100 + 63 - t), last] for t in range(64)]
    return rows


@pytest.mark.parametrize("size", [1, 2, 4, 16])
def test_blocks_of_a_cluster_see_each_others_shared_memory(kernel, size):
    """Static and dynamic, to read and for atomics, in clusters of any size."""
    assert expected(size) == kernel("kRight", size=size)


@pytest.mark.parametrize("fault", ["kRight", "kSplit"])
def test_a_right_kernel_passes_every_check_and_order(kernel, fault):
    """Twenty seeds, with one cluster or two in flight."""
    assert [expected()] * 2 == [kernel(fault), kernel(fault, *CHECKS)]
    assert [expected()] * 20 == [kernel(fault, *CHECKS, seed=seed, blocks=1 + seed % 8) for seed in range(20)]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(kernel, fault):
    """By the check that is for it, or by any run, in the fixed order and in others."""
    check, reason = FAULTS[fault]
    for seed in (None, 0, 1):
        with pytest.raises(HostExecutionError) as caught:
            kernel(fault, *([check] if check else []), seed=seed)
        assert ("device_error", True) == (caught.value.kind, reason in str(caught.value)), str(caught.value)


def test_what_a_check_finds_is_nothing_to_other_checks(kernel):
    """A missing cluster barrier does no harm that "undefined" sees, and an unchecked run ends."""
    for fault in ("kBlockBarrier", "kRelaxed", "kNoEnd", "kLater"):
        kernel(fault)
        kernel(fault, "undefined", *(["memory"] if fault != "kBlockBarrier" else []))


def test_a_cluster_barrier_that_a_thread_does_not_reach_is_a_hang(kernel):
    """The verdict says how many wait, of the block that has one waiting elsewhere."""
    with pytest.raises(
        HostExecutionError, match=r"1 wait at the barrier in line .*, 63 wait at the cluster barrier"
    ) as caught:
        kernel("kMissing")
    assert "hang" == caught.value.kind


def test_a_block_that_has_exited_leaves_nothing_to_read(tmp_path):
    """A pointer taken before is no way around it: "memory" says so, and an unchecked read gets the poison."""
    source = tmp_path / "gone.cu"
    source.write_text("""
    #include "ptx_hopper.cuh"
    extern "C" __global__ void f(int* out) {
      __shared__ int x;
      x = 5;
      int* const peer = ptx::mapa(&x, 1);
      ptx::cluster_sync();
      if (ptx::cluster_ctarank() == 1) return;
      ptx::cluster_sync();
      *out = *peer;
    }""")
    kernel, out = Kernel(source, "f", "P", cluster=2), torch.zeros(1, dtype=torch.int32)
    kernel(-1, (2, 1, 1), 1, out.data_ptr())
    assert [-1] == out.tolist()
    with (
        executing(HostOptions(checks=frozenset({"memory"}))),
        pytest.raises(HostExecutionError, match="shared memory of a block that has exited"),
    ):
        kernel(-1, (2, 1, 1), 1, out.data_ptr())


def test_clusters_that_no_gpu_takes_are_refused(source):
    """Too large, not dividing the grid, on an architecture without them."""
    with pytest.raises(ValueError, match="1 to 16 blocks, got 17"):
        Kernel(source, "f", "iPP", cluster=17)
    kernel = Kernel(source, "f", "iPP", shared_bytes=256, cluster=2)
    with pytest.raises(ValueError, match="clusters of 2 blocks"):
        kernel(-1, (3, 1, 1), 64, 0, 0, 0)
    with executing(HostOptions(arch="sm_89")), pytest.raises(ValueError, match="sm_89 has no clusters"):
        kernel(-1, (2, 1, 1), 64, 0, 0, 0)


def test_what_a_driver_is_asked_for(source, monkeypatch):
    """The cluster's size is an attribute of the launch, beside the grid, the block, the shared memory and the stream."""
    asked = []

    def launched(config, function, arguments, extra):
        (attribute,) = config.attrs
        grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
        block = (config.blockDimX, config.blockDimY, config.blockDimZ)
        size = attribute.value.clusterDim
        asked.append(
            (attribute.id.name, (size.x, size.y, size.z), grid, block, config.sharedMemBytes, int(config.hStream))
        )
        return (launch.driver.CUresult.CUDA_SUCCESS,)

    monkeypatch.setattr(launch.driver, "cuLaunchKernelEx", launched)
    monkeypatch.setattr(launch, "_raw_stream", lambda device: 7 + len(asked))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    kernel = Kernel(source, "f", "iPP", shared_bytes=256, cluster=4)
    monkeypatch.setattr(kernel, "_loaded", {0: ("function", "context")})
    kernel(0, (8, 2, 1), 64, 0, 0, 0)
    kernel(0, (4, 1, 1), 32, 0, 0, 0)
    name = "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"
    assert [
        (name, (4, 1, 1), (8, 2, 1), (64, 1, 1), 256, 7),
        (name, (4, 1, 1), (4, 1, 1), (32, 1, 1), 256, 8),
    ] == asked


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_a_gpu_agrees(source, size):
    """The same kernel on a device, sizes that are not portable included."""
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("the GPU has no clusters")
    if size > 8 and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("only Hopper is known to take clusters of 16")
    out = torch.zeros(2 * size * 64, 3, dtype=torch.int32, device="cuda")
    kernel = Kernel(source, "f", "iPP", shared_bytes=256, cluster=size)
    kernel(torch.cuda.current_device(), (2 * size, 1, 1), 64, NAMES.index("kRight"), out.data_ptr(), 0)
    assert expected(size) == out.tolist()
