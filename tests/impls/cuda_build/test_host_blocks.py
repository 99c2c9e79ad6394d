"""Blocks that wait for each other and read what others wrote, on the CPU."""

# ruff: noqa: SIM300
import pytest
import torch

from impls.cuda_build import Kernel
from impls.cuda_build.host import HostExecutionError, HostOptions, executing, unavailable

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

# A barrier of the whole grid, whose threads then read what the next block wrote. `fault` leaves a part of it out.
SOURCE = """
enum { kRight, kVolatile, kNoBarrierBefore, kNoFenceBefore, kNoFenceAfter, kNoBarrierAfter, kNothing };

extern "C" __global__ void f(int fault, int* arrived, int* data, int* out) {
  __shared__ int mine;
  const int t = threadIdx.x, block = blockIdx.x, n = blockDim.x;
  if (t == 0) mine = block;
  data[block * n + t] = block * n + t;
  if (fault != kNoBarrierBefore) __syncthreads();
  if (t == 0 && fault != kNothing) {
    if (fault != kNoFenceBefore) __threadfence();
    atomicAdd(arrived, 1);
    if (fault == kVolatile) {
      while (*(volatile int*)arrived < gridDim.x) {}
    } else {
      while (atomicAdd(arrived, 0) < gridDim.x) {}
    }
    if (fault != kNoFenceAfter) __threadfence();
  }
  if (fault != kNoBarrierAfter) {
    __syncthreads();
  } else {
    // Waits, and learns nothing from thread 0.
    while (atomicAdd(arrived, 0) < gridDim.x) {}
  }
  out[block * n + t] = data[(block + 1) % gridDim.x * n + t] + (fault == kNoBarrierAfter ? 0 : 1000 * mine);
}
"""
RIGHT, VOLATILE, *FAULTS = range(7)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """Runs the source with three blocks of 32 threads, in flight together."""
    source = tmp_path_factory.mktemp("source") / "blocks.cu"
    source.write_text(SOURCE)
    compiled = Kernel(source, "f", "iPPP")

    def run(fault, checks=frozenset(), seed=0, blocks=3):
        arrived, data, out = (torch.zeros(size, dtype=torch.int32) for size in (1, 96, 96))
        with executing(HostOptions(budget=0.5, checks=checks, seed=seed, blocks=blocks)):
            compiled(-1, (3, 1, 1), 32, fault, arrived.data_ptr(), data.data_ptr(), out.data_ptr())
        return out.tolist()

    return run


EXPECTED = [(block + 1) % 3 * 32 + t + 1000 * block for block in range(3) for t in range(32)]


def test_blocks_in_flight_together_can_wait_for_each_other(kernel):
    """With a seed they take turns, and static shared memory is each one's own."""
    assert [EXPECTED] * 10 == [kernel(RIGHT, seed=seed) for seed in range(10)]


@pytest.mark.parametrize("options", [{"seed": None}, {"blocks": 2}])
def test_blocks_that_come_one_after_another_cannot(kernel, options):
    """A barrier of the grid with fewer blocks in flight than there are is a hang, as on a GPU that is too small."""
    with pytest.raises(HostExecutionError, match="no end after") as caught:
        kernel(RIGHT, **options)
    assert "hang" == caught.value.kind


@pytest.mark.parametrize("how", [RIGHT, VOLATILE])
def test_fences_and_atomics_order_blocks(kernel, how):
    """What is ordered by the memory model is no race."""
    assert [EXPECTED] * 5 == [kernel(how, frozenset({"race"}), seed) for seed in range(5)]


@pytest.mark.parametrize("fault", FAULTS)
def test_an_order_that_lacks_a_part_is_a_race(kernel, fault):
    """A barrier of the grid without a barrier of the block or a fence on either side: a race with any seed."""
    for seed in range(3):
        with pytest.raises(HostExecutionError, match=r"race: global memory that thread .* and nothing orders blocks"):
            kernel(fault, frozenset({"race"}), seed)
