"""What checked runs on the CPU find in kernels with planted faults, and arbitrary orders of threads."""

# ruff: noqa: SIM300
import pytest
import torch

from impls.cuda_build import Kernel
from impls.cuda_build.host import HostExecutionError, HostOptions, executing, unavailable
from impls.cuda_build.host.compiler import CHECKS

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

# Each case reverses the block's threads' numbers through shared memory, or does something of the kind. Even cases are right,
# the odd one after each is the same with a fault.
SOURCE = """
#include "ptx.cuh"

struct alignas(16) Four { int x[4]; };

extern "C" __global__ void f(int which, int* out, const int* in, int n, long long stride) {
  __shared__ int before, array[64], after;
  __shared__ __align__(16) int copied[256];
  extern __shared__ int dynamic[];
  const int t = threadIdx.x, block = blockIdx.x, last = n - 1;
  int* const mine = out + block * n;
  switch (which) {
    case 0: array[t] = t; __syncthreads(); mine[t] = array[last - t]; break;
    case 1: array[t] = t; mine[t] = array[last - t]; break;  // no barrier before the read
    case 2: dynamic[t] = t; __syncthreads(); mine[t] = dynamic[last - t]; __syncthreads(); dynamic[t] = 0; break;
    case 3: dynamic[t] = t; __syncthreads(); mine[t] = dynamic[last - t]; dynamic[t] = 0; break;  // none after it
    case 4: array[t] = t; __syncwarp(); mine[t] = array[t ^ 1]; break;
    case 5: array[t] = t; __shfl_sync(~0u, t, 0); mine[t] = array[t ^ 1]; break;  // a shuffle orders no memory
    case 6: array[t ^ 32] = t; __syncthreads(); mine[t] = array[t]; break;
    case 7: array[t ^ 32] = t; __syncwarp(); mine[t] = array[t]; break;  // another warp's
    case 8: array[t] = 0; __syncthreads(); atomicAdd(&array[t / 2], t); __syncthreads(); mine[t] = array[t]; break;
    case 9: array[t] = 0; __syncthreads(); array[t / 2] += t; __syncthreads(); mine[t] = array[t]; break;  // not atomic
    case 10: case 11: {
      const int value = in[which == 10 ? block * n + last - t : (block * n + t + n) % (gridDim.x * n)];  // 11: the next block's
      __syncthreads();
      mine[t] = value;  // in place
      break;
    }
    case 12: if (t == 0) atomicAdd(out, 1); break;
    case 13: if (t == 0) out[0] += 1; break;  // all blocks'
    case 14: array[t] = t; __syncthreads(); mine[t] = array[t]; before = after = 0; break;
    case 15: if (t == 0) before = after = 0; array[t] = t; __syncthreads(); mine[t] = (&array[t])[1]; break;  // one past the end
    case 16: dynamic[n - 1 - t] = t; break;
    case 17: dynamic[n - t] = t; break;  // one past the end
    case 18: array[t] = t; __syncthreads(); mine[t] = array[t]; break;
    case 19: if (t) array[t] = t; __syncthreads(); mine[t] = array[t]; break;  // one never written
    case 20: mine[t] = in[block * n + t]; break;
    case 21: mine[t] = in[(block + 1) * n + t]; break;  // past the tensor
    case 22: if (t % 4 == 0) *reinterpret_cast<Four*>(mine + t / 4 * 4) = Four{{t, t, t, t}}; break;
    case 23: if (t % 4 == 0) *reinterpret_cast<Four*>(mine + t / 4 * 4 + 1) = Four{{t, t, t, t}}; break;  // misaligned
    case 24: mine[t] = static_cast<int>(block * stride % 3); break;
    case 25: mine[t] = (block + 1) * static_cast<int>(stride) % 3; break;  // a row's offset in 32 bits
    case 26: mine[t] = 1u << t % 32; break;
    case 27: mine[t] = 1u << t; break;  // more than a word has
    case 28: case 29:
      ptx::cp_async_16(copied + 4 * t, in, true);
      ptx::cp_async_commit();
      if (which == 28) ptx::cp_async_wait<0>();  // 29: no wait
      __syncthreads();
      mine[t] = copied[4 * (last - t)];
      break;
    case 30: case 31:
      copied[4 * t] = t;
      __syncthreads();
      mine[t] = copied[4 * (last - t)];
      if (which == 30) __syncthreads();  // 31: others may still read what the copy replaces
      ptx::cp_async_16(copied + 4 * t, in, true);
      break;
  }
}
"""


def _line(text):
    """The number of the source's line with the text."""
    return 1 + next(number for number, line in enumerate(SOURCE.splitlines()) if text in line)


FAULTS = {
    1: ("race", "race: shared memory that thread"),
    3: ("race", "race: shared memory that thread"),
    5: ("race", "race: shared memory that thread"),
    7: ("race", "race: shared memory that thread"),
    9: ("race", "race: shared memory that thread"),
    11: ("race", "nothing orders blocks"),
    13: ("race", "nothing orders blocks"),
    15: ("memory", "an access outside of every __shared__ variable"),
    17: ("memory", "an access outside of the block's 256 bytes of shared memory"),
    19: ("memory", "shared memory is read that no thread of the block has written"),
    21: ("memory", "reads 4 bytes outside of every tensor"),
    23: ("memory", "a misaligned or null pointer is used"),
    25: ("undefined", f"undefined behaviour in line {_line('case 25:')}: a signed product overflows"),
    27: ("undefined", f"undefined behaviour in line {_line('case 27:')}: a shift by too much"),
    29: ("memory", "shared memory is read that no thread of the block has written"),
    31: ("race", "race: shared memory that thread"),
}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """Runs a case of the source with three blocks of 64 threads, and gives what it wrote. Case 11 is in place."""
    source = tmp_path_factory.mktemp("source") / "checks.cu"
    source.write_text(SOURCE)
    compiled = Kernel(source, "f", "iPPiq", shared_bytes=256)

    def run(case, *checks, **options):
        out, values = torch.zeros(192, dtype=torch.int32), torch.arange(192, dtype=torch.int32)
        if case in (10, 11):
            values = out
        memory = tuple((tensor.data_ptr(), tensor.nbytes) for tensor in (out, values))
        with executing(HostOptions(checks=frozenset(checks), memory=memory, **options)):
            compiled(-1, (3, 1, 1), 64, case, out.data_ptr(), values.data_ptr(), 64, 1_500_000_000)
        return out

    return run


@pytest.mark.parametrize("case", FAULTS)
def test_a_planted_fault_is_found_by_its_check(kernel, case):
    """The fault is a device_error with the reason, and the right kernel beside it passes every check."""
    check, reason = FAULTS[case]
    kernel(case - 1, *CHECKS)
    with pytest.raises(HostExecutionError) as caught:
        kernel(case, check)
    assert ("device_error", True) == (caught.value.kind, reason in str(caught.value)), str(caught.value)


@pytest.mark.parametrize("case", FAULTS)
def test_checks_mind_their_own_business(kernel, case):
    """What one check finds is nothing to the others, but where a fault is two; an unchecked run ends either way."""
    check, _ = FAULTS[case]
    also = {1: {"memory"}, 7: {"memory"}, 23: {"undefined"}, 29: {"race"}}.get(case, set())
    if case not in (17, 21, 23):  # what these write to is not theirs
        kernel(case)
        kernel(case, *CHECKS.keys() - {check} - also)


@pytest.mark.parametrize("checks", [(), tuple(CHECKS)], ids=["plain", "checked"])
def test_an_arbitrary_order_changes_nothing_in_a_right_kernel(kernel, checks):
    """Forty seeds give the result of the fixed order, whether blocks take turns or not."""
    expected = kernel(2).tolist()
    assert [expected] * 40 == [kernel(2, *checks, seed=seed, blocks=1 + seed % 3).tolist() for seed in range(40)]


def test_an_arbitrary_order_shows_a_race(kernel):
    """A kernel whose threads race gives several results over seeds, and the same one for the same seed."""
    results = [kernel(1, seed=seed).tolist() for seed in range(10)]
    assert 1 < len({tuple(result) for result in results})
    assert results == [kernel(1, seed=seed).tolist() for seed in range(10)]
