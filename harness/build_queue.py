"""Compilations beside the judging: a thread feeds one build engine; each variant is built once a campaign."""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Iterator

from harness.case import Build, Params
from harness.sandbox import Engine
from harness.verdict import Verdict

Result = tuple[Build, str, Verdict]


class BuildQueue:
    """Give it the parameters of drawn cases; take out verdicts.

    done: variants judged. pending: known ones still to do (parameters whose variants are not listed yet count as one).
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.done = 0
        self._specs: dict[str, tuple[str, ...]] = {}
        self._asked: set[tuple[str, str, str]] = set()
        self._todo: queue.SimpleQueue[tuple[str, str, Params] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Result] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._variants: dict[tuple[str, str], list[Build]] = defaultdict(list)
        self._listed = 0
        self._unlisted = 0
        self._stop = threading.Event()
        self.error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def watch(self, operator: str, specs: tuple[str, ...]) -> None:
        """Build these implementations for the operator's parameters from now on."""
        self._specs[operator] = specs

    def add(self, operator: str, params: Params) -> None:
        """Queue every variant that these parameters need and that was not queued before."""
        for spec in self._specs.get(operator, ()):
            key = (operator, spec, repr(sorted(params.items())))
            if key in self._asked:
                continue
            self._asked.add(key)
            with self._lock:
                self._unlisted += 1
            self._todo.put((operator, spec, params))
        if self._thread is None and self._asked:
            # The child dies with the thread that made it, so the thread is what owns the engine.
            self._thread = threading.Thread(target=self._work, name="warpcheck-builds", daemon=True)
            self._thread.start()

    def drain(self) -> Iterator[Result]:
        """The verdicts since the last call. Raises what went wrong in the thread, if anything did."""
        while True:
            try:
                yield self._results.get_nowait()
            except queue.Empty:
                break
        if self.error is not None:
            raise self.error

    def seen(self, operator: str, spec: str) -> tuple[Build, ...]:
        """All variants of an operator's implementation that were listed so far, in order."""
        with self._lock:
            return tuple(self._variants[operator, spec])

    @property
    def pending(self) -> int:
        with self._lock:
            return 0 if self.error else self._listed + self._unlisted - self.done

    def close(self) -> None:
        """Stop after the present compilation, or kill it when it takes long."""
        self._stop.set()
        self._todo.put(None)
        if self._thread is not None:
            self._thread.join(timeout=1)
        self.engine.close()

    def _work(self) -> None:
        try:
            while (task := self._todo.get()) is not None and not self._stop.is_set():
                operator, spec, params = task
                builds = self.engine.builds(operator, spec, params)
                with self._lock:
                    builds = tuple(b for b in builds if b not in self._variants[operator, spec])
                    self._variants[operator, spec] += builds
                    self._listed += len(builds)
                    self._unlisted -= 1
                for build in builds:
                    if self._stop.is_set():
                        return
                    self._results.put((build, spec, self.engine.build(build, spec)))
                    with self._lock:
                        self.done += 1
        except BaseException as error:
            if not self._stop.is_set():
                self.error = error
