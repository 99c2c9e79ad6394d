"""harness.bench.configuration: nothing wrong has a time, and every timed call gets inputs of its own."""

# ruff: noqa: SIM300 - the expected value stands first

from pathlib import Path

import pytest

from harness.bench import configuration, timing
from harness.bench import workload as workloads
from harness.bench.configuration import measure, measure_floor
from harness.bench.protocol import Measure, MeasureFloor
from tests.harness.bench import kernels

FILE = Path(kernels.__file__)
MASK = workloads.workload("top_k_mask_logits", "float32 3x40 k=5")


class Fake(timing.Cpu):
    """The processor with a cache of some buffers; `seen` is what the device was asked to do."""

    cache = 1000

    def __init__(self, prepare=None):
        self.seen, self._prepare = [], prepare

    def evict(self):
        self.seen.append("evict")

    def prepare(self, calls):
        self.seen.append(len(calls))
        return self._prepare(calls) if self._prepare else super().prepare(calls)


class NeverRuns:
    """A graph in which the kernel is not: it was launched on a stream of its own."""

    method = "graph"

    def __init__(self, calls):
        self._results = [call() for call in calls]

    def seconds(self, before):
        before()
        return 1e-6

    def results(self):
        return self._results


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.setattr(configuration, "_COPIES", {})
    monkeypatch.setattr(configuration, "_RATES", {})


def result(function, device=None, workload=MASK, **more):
    spec = function if function in ("topk+where", "torch", "sdpa flash") else f"{FILE}:{function}"
    return measure(Measure(workload, spec, 0.0, 0, **more), device or Fake(), lambda doing: None)


def test_a_right_kernel_has_times():
    """Cold, on buffers three times the cache; warm, on one; how much was judged, and nothing allocated."""
    device = Fake()
    found = result("right", device)
    assert ("measured", "", "every row", 0, 0.0) == (found.status, found.why, found.judged, found.extra, found.ratio)
    assert (7, 1) == (found.cold.calls, found.warm.calls)  # 480 bytes a buffer
    assert [7, 1] == [seen for seen in device.seen if seen != "evict"]
    assert "evict" not in device.seen[device.seen.index(1) :]
    assert device.seen.count("evict") > found.cold.samples


def test_no_warm_time_where_nothing_can_be_warm():
    """Of what does not fit into the cache, or where it was not asked for."""
    device = Fake()
    device.cache = 959  # read 480, write 480
    assert result("right", device).warm is None
    assert result("right", warm=False).warm is None


@pytest.mark.parametrize("function", ["right", "fresh", "torch"])
def test_every_call_gets_inputs_of_its_own(function, monkeypatch):
    """Whether the kernel works in place or not, no call finds what another has left; several inputs take turns."""
    seen = []
    real = configuration.subject.Subject.bind

    def bind(self, workload, tensors):
        bound = real(self, workload, tensors)

        def call():
            seen.append(tensors["logits"].clone())
            return bound.call()

        return configuration.Bound(call, bound.writes)

    monkeypatch.setattr(configuration.subject.Subject, "bind", bind)
    assert "measured" == result(function).status
    assert len(seen) > 2 * timing.FEWEST
    assert not any(bool(logits.isinf().any()) for logits in seen)
    assert configuration.DRAWS == len({logits.numpy().tobytes() for logits in seen})


@pytest.mark.parametrize(
    ("function", "status", "why"),
    [
        ("wrong", "wrong", "wrong_set: out[0, "),
        ("changes", "wrong", "changed_input: the call changed its input logits"),
        ("fades", "wrong", "the timed calls gave other bits than the call that was judged"),
        ("raises", "failed", "RuntimeError: no such kernel"),
        ("absent", "failed", "UnknownImplementation: "),
    ],
)
def test_what_is_wrong_has_no_time(function, status, why, monkeypatch):
    """Whether it is judged or timed at that moment."""
    monkeypatch.setattr(kernels, "calls", 0)
    found = result(function)
    assert (status, None, None) == (found.status, found.cold, found.warm)
    assert why in found.why
    assert "\n" not in found.why


@pytest.mark.parametrize("function", ["right", "torch"])
def test_a_replay_that_does_nothing_has_no_time(function):
    """It would be the fastest of all; that in place the buffers are as restored gives it away."""
    assert "wrong" == result(function, Fake(NeverRuns)).status


@pytest.mark.parametrize(("declared", "status"), [(True, "measured"), (False, "wrong")])
def test_an_implementation_that_may_differ_is_judged_again(declared, status, tmp_path):
    """Other bits that are right as well are no failure of one that declares so, and one of any other."""
    (tmp_path / "turns.py").write_text(f"""
import torch
SEMANTICS = {{"ties": "exactly_k"}}
NONDETERMINISTIC = {declared}
turn = 0
def turns(logits, k):
    global turn
    turn += 1
    kept = torch.arange(k) + turn % 20
    return torch.full_like(logits, -torch.inf).index_copy(1, kept, logits[:, kept])
""")
    equal = workloads.workload("top_k_mask_logits", "float32 3x40 k=5 values=equal")
    found = measure(Measure(equal, f"{tmp_path / 'turns.py'}:turns", 0.0, 0), Fake(), lambda doing: None)
    assert (status, status == "measured") == (found.status, found.cold is not None)


def test_what_is_not_for_an_implementation():
    """Is told without a call."""
    mixed = workloads.workload("top_k_mask_logits", "float32 3x40 k=mixed")
    assert ("unsupported", "torch.topk takes one k for all rows") == (
        (found := result("topk+where", workload=mixed)).status,
        found.why,
    )
    capped = workloads.workload("single_prefill", "float16 qo=8 heads=2 d=64 soft_cap=30")
    found = result("right", workload=capped)
    assert ("unsupported", "takes no argument 'causal'") == (found.status, found.why)


def test_floors():
    """A copy of the bytes for a mask, cold and warm; operations besides for attention, whichever takes longer."""
    device = Fake()
    floor = measure_floor(MeasureFloor(MASK, 0.0, 0), device, lambda doing: None)
    assert (480, 480, 0.0, "") == (floor.cost.read, floor.cost.written, floor.flops, floor.against)
    assert (7, 1) == (floor.copy_cold.calls, floor.copy_warm.calls)
    assert floor.copy_cold.median == floor.seconds()
    workload = workloads.workload("single_prefill", "float16 qo=64 heads=4 d=64 alibi")
    floor = measure_floor(MeasureFloor(workload, 0.0, 0), device, lambda doing: None)
    assert floor.flops > 0
    assert max(floor.copy_cold.median, floor.cost.flops / floor.flops) == floor.seconds()
    assert (None, "float16 qo=64 heads=4 d=64") == (floor.seconds(warm=True), floor.against)
