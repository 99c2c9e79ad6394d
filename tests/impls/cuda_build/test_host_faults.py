"""Kernels that would hang or break a GPU, on the CPU: a verdict, and a process that goes on."""

# ruff: noqa: SIM300
import pickle
import threading

import pytest
import torch

from impls.cuda_build import BuildError, Kernel
from impls.cuda_build.host import HostExecutionError, HostOptions, executing, unavailable

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

# One source, so that it is compiled once: `fault` says what goes wrong.
SOURCE = """
__device__ int deep(int n, int* p) {
  volatile int room[256];
  room[n % 256] = n;
  return n < 0 ? 0 : deep(n + 1, p) + room[*p % 256];
}

extern "C" __global__ void f(int fault, int* p, int* unset) {
  const int t = threadIdx.x, lane = t % 32;
  const unsigned int all = 0xFFFFFFFFu;
  switch (fault) {
    case 0: p[t] = t; break;
    case 1: if (t != 5) __syncthreads(); else __shfl_sync(all, t, 0); break;
    case 2: if (lane < 16) p[t] = __shfl_sync(all, t, 3); else __syncthreads(); break;
    case 3: for (volatile int i = 0; i >= 0; i = i * 3 & 0xFFFF) {} break;
    case 4: while (atomicAdd(unset, 0) == 0) {} break;
    case 5: while (*(volatile int*)unset == 0) {} break;
    case 6: if (lane == 7) return; __syncwarp(0xFFu); p[t] = __shfl_sync(all, t, 0); break;
    case 7: if (lane != 7) __ballot_sync(all, 1); break;
    case 8: if (lane < 16) __ballot_sync(0xFFFF0000u, 1); break;
    case 9: if (t < 32) { if (lane % 2) __any_sync(all, 1); else __shfl_sync(all, t, 1); } break;
    case 10: if (t < 32)
        __syncthreads();
      else
        __syncthreads();
      break;
    case 11: p[t] = *(volatile int*)(unsigned long long)(t * 4); break;
    case 12: p[t] = t / *(volatile int*)unset; break;
    case 13: atomicAdd((int*)((char*)p + 2), 1); break;
    case 14: __trap(); break;
    case 15: p[t] = deep(0, p); break;
    case 16: *(volatile int*)0x7fff00000000000ull = 1; break;
    case 17: *(volatile int*)0x400000000000ull = 1; break;
  }
}
"""

HANGS = {
    1: "63 wait at the barrier",
    2: "16 of warp 0 wait in __shfl_sync with mask 0xffffffff",
    3: "no end after",
    4: "no end after",
    5: "no end after",
}
ERRORS = {
    6: "the mask 0x000000ff of __syncwarp names a lane that has exited",
    7: "the mask 0xffffffff of __ballot_sync names a lane that has exited",
    8: "lacks the calling lane",
    9: "in different operations",
    10: "at different barriers, lines 23 and 25",
    11: "close to address zero",
    12: "division by zero",
    13: "misaligned address",
    14: "a trap",
    15: "a stack that is full",
    16: "an address where nothing is",
    17: "an address where nothing is",
}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """Runs the source with a fault, two blocks of 64 threads, and gives what it wrote."""
    source = tmp_path_factory.mktemp("source") / "faults.cu"
    source.write_text(SOURCE)
    compiled = Kernel(source, "f", "iPP")

    def run(fault, **options):
        out, unset = torch.zeros(64, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
        with executing(HostOptions(budget=0.2, **options)):
            compiled(-1, (2, 1, 1), 64, fault, out.data_ptr(), unset.data_ptr())
        return out.tolist()

    return run


@pytest.mark.parametrize("fault", HANGS)
@pytest.mark.parametrize("seed", [None, 1])
def test_a_hang_has_an_end(kernel, fault, seed):
    """Threads that wait for ever, or run for ever, are a "hang" that says who waits where."""
    with pytest.raises(HostExecutionError) as caught:
        kernel(fault, seed=seed)
    assert ("hang", True) == (caught.value.kind, HANGS[fault] in str(caught.value)), str(caught.value)
    assert [*range(64)] == kernel(0), "the next launch is as if nothing had been"


@pytest.mark.parametrize("fault", ERRORS)
def test_an_error_is_a_device_error(kernel, fault):
    """What a GPU answers with an error, or is not allowed to be asked at all, is a "device_error" with the reason."""
    with pytest.raises(HostExecutionError) as caught:
        kernel(fault)
    assert ("device_error", True) == (caught.value.kind, ERRORS[fault] in str(caught.value)), str(caught.value)
    assert [*range(64)] == kernel(0), "the next launch is as if nothing had been"


def test_the_thread_is_named(kernel):
    """An error says which thread of which block met it."""
    with pytest.raises(HostExecutionError, match=r"\[thread \(0, 0, 0\) of block \(0, 0, 0\)\]"):
        kernel(14)


def test_faults_and_right_launches_in_several_threads(kernel):
    """Each operating system thread has a machine of its own, and a fault in one leaves the others alone."""
    results = {}

    def work(number):
        results[number] = []
        for _ in range(20):
            try:
                results[number].append(kernel(14 if number % 2 else 0) == [*range(64)])
            except HostExecutionError:
                results[number].append("error")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: ["error" if number % 2 else True] * 20 for number in range(4)} == results


def test_an_error_survives_pickling():
    """Workers send it home."""
    error = pickle.loads(pickle.dumps(HostExecutionError("hang", "why")))
    assert ("hang", "why") == (error.kind, str(error))


def test_a_source_that_does_not_compile(tmp_path):
    """It is a BuildError of g++ with the source's own name and line."""
    source = tmp_path / "wrong.cu"
    source.write_text('extern "C" __global__ void f(int* p) {\n  *p = nothing;\n}\n')
    with pytest.raises(
        BuildError, match=r"^g\+\+: wrong.cu for the CPU: wrong.cu:2:8: error: .nothing. was not declared"
    ):
        Kernel(source, "f", "P")(-1, (1, 1, 1), 1, 0)


@pytest.mark.parametrize("codes", ["Pi", "PP", "Pqq"])
def test_parameters_of_other_sizes_are_refused(tmp_path, codes):
    """The source says what its parameters are, so a call that packs others is found before it runs."""
    source = tmp_path / "f.cu"
    source.write_text('extern "C" __global__ void f(int* p, long long n) {}')
    if codes == "PP":  # as large as what it should be
        Kernel(source, "f", codes)(-1, (1, 1, 1), 1, 0, 0)
        return
    with pytest.raises(ValueError, match="takes parameters of"):
        Kernel(source, "f", codes)(-1, (1, 1, 1), 1, *[0] * len(codes))


@pytest.mark.parametrize(
    ("grid", "block", "shared"),
    [((0, 1, 1), 32, 0), ((1, 65536, 1), 32, 0), ((1, 1, 1), 1025, 0), ((1, 1, 1), 1, 233_000)],
)
def test_a_launch_that_no_driver_takes_is_refused(tmp_path, grid, block, shared):
    """Grids, blocks and shared memory have a GPU's limits."""
    source = tmp_path / "f.cu"
    source.write_text('extern "C" __global__ void f() {}')
    with pytest.raises(ValueError, match="no GPU takes"):
        Kernel(source, "f", "", shared_bytes=shared)(-1, grid, block)


@pytest.mark.parametrize("options", [{"arch": "sm_70"}, {"checks": frozenset({"rice"})}])
def test_options_are_checked(options):
    """An arch without a model and a check that is none are ValueErrors that list what there is."""
    with pytest.raises(ValueError, match=r"sm_80|race, memory, undefined"):
        HostOptions(**options)
