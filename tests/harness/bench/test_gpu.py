"""The bench on a GPU: what it says of kernels whose times and memory are known in their order of magnitude."""

# ruff: noqa: SIM300 - the expected value stands first

from pathlib import Path

import pytest

from harness.bench import workload as workloads
from harness.bench.configuration import measure, measure_floor
from harness.bench.meter import Meter
from harness.bench.protocol import Measure, MeasureFloor
from harness.bench.timing import Cuda
from tests.harness.bench import kernels

pytestmark = pytest.mark.gpu

FILE = Path(kernels.__file__)
MASK = workloads.workload("top_k_mask_logits", "float32 64x32000 k=50")
PREFILL = workloads.workload("single_prefill", "float16 qo=1024 heads=8/2 d=128 causal")


@pytest.fixture(scope="module")
def device():
    return Cuda()


def result(device, spec, workload=MASK):
    return measure(Measure(workload, spec, 0.05, 0), device, lambda doing: None)


def test_the_mask_in_place(device):
    """Is captured, allocates nothing, and is not faster than a copy of its bytes by more than the noise."""
    floor = measure_floor(MeasureFloor(MASK, 0.05, 0), device, lambda doing: None)
    found = result(device, "cuda")
    assert ("measured", "", 0, "graph") == (found.status, found.why, found.extra, found.cold.method)
    assert found.cold.calls * 64 * 32000 * 4 >= 3 * device.cache
    assert floor.copy_cold.median < 1.1 * found.cold.median


def test_out_of_place_allocates_its_result(device):
    """At least."""
    found = result(device, "topk+where")
    assert ("measured", "") == (found.status, found.why)
    assert 64 * 32000 * 4 <= found.extra


def test_what_cannot_be_captured_is_timed_by_events():
    """A kernel that waits for the device, here; its times are marked. The next one is captured, by another process."""
    with Meter("cuda") as meter:
        found, after = (
            meter.measure(Measure(MASK, spec, 0.05, 0), "mine") for spec in (f"{FILE}:waits_for_device", "cuda")
        )
    assert ("measured", "", "events") == (found.status, found.why, found.cold.method)
    assert ("measured", "", "graph", 1) == (after.status, after.why, after.cold.method, meter.deaths)


def test_what_is_wrong_has_no_time(device):
    """Nor what changes its input."""
    assert ["wrong", "wrong"] == [result(device, f"{FILE}:{name}").status for name in ("wrong", "changes")]


@pytest.mark.parametrize("spec", ["cuda", "triton", "torch", "sdpa flash", "sdpa cudnn"])
def test_attention(device, spec):
    """Every one is right and captured."""
    found = result(device, spec, PREFILL)
    assert ("measured", "", "graph") == (found.status, found.why, found.cold.method)
    assert 0 < found.ratio < 1


def test_the_matmul_ceiling(device):
    """Is above the card's rate without tensor cores, and one call's operations take no less time than it says."""
    floor = measure_floor(MeasureFloor(PREFILL, 0.05, 0), device, lambda doing: None)
    assert 2e13 < floor.flops < 5e15
    assert floor.seconds() < result(device, "sdpa flash", PREFILL).cold.median
