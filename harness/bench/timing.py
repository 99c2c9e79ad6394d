"""Times calls on a device. What a time means stands in `harness.bench`; here is how it is taken."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
import torch
from torch import Tensor

Thunk = Callable[[], Any]

LEAST, FEWEST, MOST = 3, 7, 200
"""Samples of one time: `FEWEST` unless they take `OVERTIME` times as long as they may, and then `LEAST`."""
OVERTIME = 5
LONG = 5e-3
"""Seconds of a call so long that the start of a replay weighs nothing."""
CACHES_READ = 4
"""Times the size of the L2 cache that is read to evict what is in it."""
_SPIN, _SPIN_EACH, _SPIN_EACH_EAGER = 200_000, 6_000, 200_000
"""Clock cycles, of which 2000 are about 1 us: longer than the host needs to queue a replay, with so much more for each call in
it, or so much more for each plain call."""


class Timing(msgspec.Struct, frozen=True):
    """Seconds of one call: the median of the samples, and the quartiles below and above it.

    calls: how many a sample was of. method: "graph", "events" (around plain calls) or "clock" (no GPU).
    """

    median: float
    low: float
    high: float
    samples: int
    calls: int
    method: str

    @property
    def spread(self) -> float:
        """From quartile to quartile, as a fraction of the median."""
        return (self.high - self.low) / self.median if self.median else 0.0


def summary(seconds: Sequence[float], calls: int, method: str) -> Timing:
    """Of samples of so many calls each."""
    each = sorted(s / calls for s in seconds)
    low, median, high = statistics.quantiles(each, n=4, method="inclusive") if len(each) > 1 else each * 3
    return Timing(median, low, high, len(each), calls, method)


class Prepared(Protocol):
    """Calls that can be timed over and over."""

    method: str

    def seconds(self, before: Thunk) -> float:
        """Make the calls, once `before` is done on the device, which is not timed."""

    def results(self) -> list[Any]:
        """What the calls returned the last time."""


class Device(Protocol):
    """Where calls are timed."""

    name: str
    """As torch knows it."""
    cache: int
    """Bytes of its L2 cache."""
    spoiled: bool
    """Whether a process that has used it should end: a capture that failed leaves torch's allocator believing in it."""

    def synchronise(self) -> None: ...

    def evict(self) -> None:
        """Read so much other memory that nothing of a call's is left in the cache."""

    def allocated(self) -> int:
        """Bytes of device memory in use."""

    def peak(self, call: Thunk) -> int:
        """Make a call; the most bytes of device memory that were in use meanwhile."""

    def prepare(self, calls: Sequence[Thunk]) -> Prepared: ...


def measure(
    prepared: Prepared,
    calls: int,
    before: Thunk,
    seconds: float,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Samples of prepared calls for about so many seconds, restoring included.

    The first replay is thrown away, and with short ones a second: they bring code to the device, and its clocks up.
    """
    start = clock()
    prepared.seconds(before)
    if clock() - start < seconds:
        prepared.seconds(before)
    start = clock()
    samples: list[float] = []
    while len(samples) < MOST:
        samples.append(prepared.seconds(before))
        spent = clock() - start
        if len(samples) >= (FEWEST if spent < OVERTIME * seconds else LEAST) and spent >= seconds:
            break
    return summary(samples, calls, prepared.method)


def buffers_for(size: int, cache: int, seconds: float = 0.0) -> int:
    """How many buffers of a call that touches `size` bytes are cold: three caches together. At least four, so that the start of
    a replay weighs little, where a call does not take long and they are not of half a gigabyte and more."""
    cold = min(1024, -(-3 * cache // max(1, size)))
    return max(1, cold, 0 if seconds > LONG else min(4, (2 << 30) // max(1, size)))


class Cuda:
    """The present CUDA device."""

    name = "cuda"

    def __init__(self) -> None:
        self.cache = int(torch.cuda.get_device_properties(0).L2_cache_size)
        self._other = torch.zeros(CACHES_READ * self.cache // 4, device="cuda")
        self._sum = torch.zeros((), device="cuda")
        self.spoiled = False

    def synchronise(self) -> None:
        torch.cuda.synchronize()

    def evict(self) -> None:
        torch.sum(self._other, dim=0, out=self._sum)

    def allocated(self) -> int:
        return torch.cuda.memory_allocated()

    def peak(self, call: Thunk) -> int:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()

    def prepare(self, calls: Sequence[Thunk]) -> Prepared:
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        results: list[Any] = []
        try:
            with torch.cuda.graph(graph):
                # One by one: a result that is let go would be the next call's, and then in the cache.
                for call in calls:
                    results.append(call())
        except Exception:
            self.spoiled = True
            results.clear()
            torch.cuda.set_stream(stream)  # which a capture that cannot be ended leaves another
            torch.cuda.synchronize()  # raises where more is lost than the capture
            return _Events(calls)
        return _Graph(graph, results)


class _Graph:
    method = "graph"

    def __init__(self, graph: torch.cuda.CUDAGraph, results: list[Any]) -> None:
        self._graph, self._results = graph, results
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def seconds(self, before: Thunk) -> float:
        before()
        torch.cuda._sleep(_SPIN + _SPIN_EACH * len(self._results))
        self._start.record()
        self._graph.replay()
        self._end.record()
        self._end.synchronize()
        return self._start.elapsed_time(self._end) / 1e3

    def results(self) -> list[Any]:
        return self._results


class _Events:
    method = "events"

    def __init__(self, calls: Sequence[Thunk]) -> None:
        self._calls = calls
        self._results: list[Any] = []
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def seconds(self, before: Thunk) -> float:
        self._results.clear()
        before()
        torch.cuda._sleep(_SPIN + _SPIN_EACH_EAGER * len(self._calls))
        self._start.record()
        self._results += [call() for call in self._calls]
        self._end.record()
        self._end.synchronize()
        return self._start.elapsed_time(self._end) / 1e3

    def results(self) -> list[Any]:
        return self._results


class Cpu:
    """The processor, by its clock: to try the harness where there is no GPU. Its times are no benchmark."""

    name = "cpu"
    cache = 1 << 16
    spoiled = False

    def synchronise(self) -> None:
        pass

    def evict(self) -> None:
        pass

    def allocated(self) -> int:
        return 0

    def peak(self, call: Thunk) -> int:
        call()
        return 0

    def prepare(self, calls: Sequence[Thunk]) -> Prepared:
        return _Plain(calls)


class _Plain:
    method = "clock"

    def __init__(self, calls: Sequence[Thunk]) -> None:
        self._calls = calls
        self._results: list[Any] = []

    def seconds(self, before: Thunk) -> float:
        before()
        start = time.perf_counter()
        self._results = [call() for call in self._calls]
        return time.perf_counter() - start

    def results(self) -> list[Any]:
        return self._results


def bytes_of(tensors: Sequence[Tensor]) -> int:
    """Of all of them."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
