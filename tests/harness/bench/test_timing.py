"""harness.bench.timing: statistics, how many samples and buffers, and what a device is asked to do."""

# ruff: noqa: SIM300 - the expected value stands first

import contextlib
from types import SimpleNamespace

import pytest
import torch

from harness.bench import timing
from harness.bench.timing import FEWEST, LEAST, MOST, Cpu, Cuda, buffers_for, measure, summary


class Scripted:
    """Calls that take the seconds they are told to, by a clock of their own."""

    method = "graph"

    def __init__(self, seconds, overhead=0.0):
        self.now, self.ran, self._seconds, self._overhead = 0.0, 0, list(seconds), overhead

    def seconds(self, before):
        before()
        took = self._seconds[min(self.ran, len(self._seconds) - 1)]
        self.ran += 1
        self.now += took + self._overhead
        return took

    def results(self):
        return []

    def clock(self):
        return self.now


def test_summary():
    """The median and the quartiles of one call, whatever the order of the samples."""
    found = summary([8.0, 2.0, 4.0, 6.0, 10.0], 2, "graph")
    assert (3.0, 2.0, 4.0, 5, 2, "graph") == (
        found.median,
        found.low,
        found.high,
        found.samples,
        found.calls,
        found.method,
    )
    assert 2 / 3 == found.spread
    one = summary([3.0], 1, "clock")
    assert (3.0, 3.0, 3.0, 0.0) == (one.median, one.low, one.high, one.spread)


def test_a_short_call_is_sampled_for_its_time():
    """The first two replays, which are slow, do not count."""
    prepared = Scripted([9.0, 5.0, 0.25])
    found = measure(prepared, 1, lambda: None, 10.0, clock=prepared.clock)
    assert 0.25 == found.median
    assert 40 == found.samples


def test_restoring_takes_of_the_time_and_is_not_in_it():
    """Of the budget, and in none of the samples."""
    prepared = Scripted([0.25], overhead=0.75)
    found = measure(prepared, 1, lambda: None, 20.0, clock=prepared.clock)
    assert (0.25, 20) == (found.median, found.samples)


@pytest.mark.parametrize(("seconds", "samples"), [(1e-9, MOST), (0.5, FEWEST), (4.0, LEAST)])
def test_never_too_many_nor_too_few(seconds, samples):
    """The most of very short ones, the fewest of long ones, and less only where those would take several times too long."""
    prepared = Scripted([seconds])
    assert samples == measure(prepared, 1, lambda: None, 1.0, clock=prepared.clock).samples


def test_before_comes_before_every_replay():
    """Those that do not count too: they would mask what is masked already."""
    prepared, restored = Scripted([0.5]), []
    found = measure(prepared, 1, lambda: restored.append(prepared.ran), 4.0, clock=prepared.clock)
    assert list(range(found.samples + 2)) == restored


@pytest.mark.parametrize(
    ("size", "seconds", "count"),
    [
        (1 << 19, 0, 360),
        (1 << 10, 0, 1024),
        (100 << 20, 0, 4),
        (100 << 20, 1, 2),
        (1 << 30, 0, 2),
        (3 << 30, 0, 1),
        (0, 0, 1024),
    ],
)
def test_buffers(size, seconds, count):
    """Three caches of 60 MiB together; four calls at least, unless they are large or long; not more than a thousand."""
    assert count == buffers_for(size, 60 << 20, seconds)


def test_the_processor_as_a_device():
    """Calls are made in order after what comes before, and their results kept."""
    done = []
    prepared = Cpu().prepare([lambda: done.append("a") or 1, lambda: done.append("b") or 2])
    found = timing.measure(prepared, 2, lambda: done.append("before"), 0.0)
    assert ["before", "a", "b"] == done[:3]
    assert ["before", "a", "b"] * (len(done) // 3) == done
    assert ([1, 2], "clock", 2) == (prepared.results(), found.method, found.calls)


class FakeGpu:
    """What `Cuda` asks of torch.cuda, told in order; `capturable` is whether calls can be captured."""

    def __init__(self, monkeypatch, capturable):
        self.done, self._capturable = [], capturable
        fakes = {
            "CUDAGraph": lambda: SimpleNamespace(replay=lambda: self.done.append("replay")),
            "graph": self._graph,
            "Event": self._event,
            "_sleep": lambda cycles: self.done.append(("spin", cycles)),
            "synchronize": lambda: None,
            "current_stream": lambda: "stream",
            "set_stream": lambda stream: self.done.append(("back to", stream)),
        }
        for name, fake in fakes.items():
            monkeypatch.setattr(torch.cuda, name, fake)

    @contextlib.contextmanager
    def _graph(self, graph):
        self.done.append("capture")
        yield
        if not self._capturable:
            raise RuntimeError("operation not permitted when stream is capturing")

    def _event(self, enable_timing):
        return SimpleNamespace(
            record=lambda: self.done.append("event"), synchronize=lambda: None, elapsed_time=lambda end: 3.0
        )


def test_a_graph_is_captured_once_and_replayed(monkeypatch):
    """Between two events, after what comes before and a spin; milliseconds become seconds."""
    gpu = FakeGpu(monkeypatch, capturable=True)
    prepared = object.__new__(Cuda).prepare([lambda: gpu.done.append("call") or 7] * 2)
    assert ("graph", ["capture", "call", "call"], [7, 7]) == (prepared.method, gpu.done, prepared.results())
    gpu.done.clear()
    assert 3e-3 == prepared.seconds(lambda: gpu.done.append("before"))
    before, (spin, _), *rest = gpu.done
    assert ("before", "spin", ["event", "replay", "event"]) == (before, spin, rest)


def test_what_cannot_be_captured_is_called_between_events(monkeypatch):
    """On the stream that was current before, with a spin that is longer the more calls there are."""
    gpu = FakeGpu(monkeypatch, capturable=False)
    calls = [lambda: gpu.done.append("call") or 7] * 2
    device = object.__new__(Cuda)
    prepared = device.prepare(calls)
    assert ("events", True, ("back to", "stream")) == (prepared.method, device.spoiled, gpu.done[-1])
    gpu.done.clear()
    prepared.seconds(lambda: gpu.done.append("before"))
    before, (spin, cycles), *rest = gpu.done
    assert ("before", "spin", ["event", "call", "call", "event"]) == (before, spin, rest)
    assert [7, 7] == prepared.results()
    gpu.done.clear()
    object.__new__(Cuda).prepare(calls * 5).seconds(lambda: None)
    assert cycles < next(step[1] for step in gpu.done if step[0] == "spin")
