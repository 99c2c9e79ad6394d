"""Compilations beside other work: threads, each of which feeds one build engine; each variant is built once a campaign.

Of several variants that one set of parameters has (architectures × toolchain options), a first one is built for all the
parameters before a second one is for any, and neighbouring parameters begin with different ones: wherever it stops, it
has seen something of everything, and plain parameters first.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from harness.case import Build, Params
from harness.sandbox import Engine
from harness.verdict import Verdict


class Built(NamedTuple):
    build: Build
    spec: str
    verdict: Verdict
    seconds: float


class _Parameters(NamedTuple):
    """Whose variants are to be listed; the how-manieth of its implementation they are."""

    operator: str
    spec: str
    params: Params
    position: int


class _Variant(NamedTuple):
    build: Build
    spec: str


_FIRST, _LISTING, _BUILDING = range(3)
"""What goes before what."""


class BuildQueue:
    """Give it parameters; take out verdicts.

    first: (spec, `Build.key()`) of variants that go before all others.
    done: variants judged. pending: known ones still to do (parameters whose variants are not listed yet count as one).
    """

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.engines = engines
        self.first: set[tuple[str, bytes]] = set()
        self.done = 0
        self._specs: dict[str, tuple[str, ...]] = {}
        self._archs: dict[str, Collection[str]] = {}
        self._asked: set[tuple[str, str, str]] = set()
        self._positions: Counter[tuple[str, str]] = Counter()
        self._number = itertools.count()
        self._todo: queue.PriorityQueue[tuple[tuple[int, ...], int, _Parameters | _Variant | None]]
        self._todo = queue.PriorityQueue()
        self._results: queue.SimpleQueue[Built] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._listed: set[tuple[str, bytes]] = set()
        self._unlisted = 0
        self._stop = threading.Event()
        self.error: BaseException | None = None
        self._threads: list[threading.Thread] = []

    def watch(self, operator: str, specs: tuple[str, ...], archs: Collection[str] = ()) -> None:
        """Build these implementations for the operator's parameters from now on; for these architectures, or all."""
        self._specs[operator], self._archs[operator] = specs, archs

    def add(self, operator: str, params: Params) -> None:
        """Queue every variant that these parameters need and that was not queued before."""
        for spec in self._specs.get(operator, ()):
            key = (operator, spec, repr(sorted(params.items())))
            if key in self._asked:
                continue
            self._asked.add(key)
            with self._lock:
                self._unlisted += 1
            position = self._positions[operator, spec]
            self._positions[operator, spec] += 1
            self._put((_LISTING,), _Parameters(operator, spec, params, position))
        if not self._threads and self._asked:
            # A child dies with the thread that made it, so each thread is what owns an engine.
            for engine in self.engines:
                thread = threading.Thread(target=self._work, args=(engine,), name="warpcheck-builds", daemon=True)
                self._threads.append(thread)
                thread.start()

    def drain(self) -> Iterator[Built]:
        """The verdicts since the last call. Raises what went wrong in a thread, if anything did."""
        while True:
            try:
                yield self._results.get_nowait()
            except queue.Empty:
                break
        if self.error is not None:
            raise self.error

    @property
    def pending(self) -> int:
        with self._lock:
            return 0 if self.error else len(self._listed) + self._unlisted - self.done

    def stop(self) -> None:
        """Begin no compilation any more."""
        if not self._stop.is_set():
            self._stop.set()
            for _ in self._threads:
                self._put((_FIRST,), None)

    def close(self) -> None:
        """Stop after the present compilations, or kill those that take long."""
        self.stop()
        end = time.monotonic() + 1
        for thread in self._threads:
            thread.join(timeout=max(0.0, end - time.monotonic()))
        for engine in self.engines:
            engine.close()

    def _put(self, priority: tuple[int, ...], task: _Parameters | _Variant | None) -> None:
        self._todo.put((priority, next(self._number), task))

    def _work(self, engine: Engine) -> None:
        try:
            while not self._stop.is_set():
                task = self._todo.get()[-1]
                if isinstance(task, _Parameters):
                    self._list(engine, task)
                elif task is not None and not self._stop.is_set():
                    start = time.perf_counter()
                    verdict = engine.build(task.build, task.spec)
                    self._results.put(Built(task.build, task.spec, verdict, time.perf_counter() - start))
                    with self._lock:
                        self.done += 1
        except BaseException as error:
            if not self._stop.is_set():
                self.error = error
                self.stop()

    def _list(self, engine: Engine, task: _Parameters) -> None:
        archs = self._archs[task.operator]
        variants = [b for b in engine.builds(task.operator, task.spec, task.params) if not archs or b.arch in archs]
        with self._lock:
            fresh = [(i, b) for i, b in enumerate(variants) if (task.spec, b.key()) not in self._listed]
            self._listed.update((task.spec, build.key()) for _, build in fresh)
            self._unlisted -= 1
        for i, build in fresh:
            turn = (i - task.position) % len(variants)
            early = (task.spec, build.key()) in self.first
            self._put((_FIRST,) if early else (_BUILDING, turn, task.position), _Variant(build, task.spec))
