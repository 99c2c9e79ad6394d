"""harness.build_queue: each variant once, results in order, errors where they are seen."""

# ruff: noqa: SIM300 - the expected value stands first

import threading
import time

import pytest

from harness.build_queue import BuildQueue
from harness.case import Build
from harness.verdict import PASS, Verdict

ARCHS = ("sm_80", "sm_90a")
FAILED = Verdict("build_error", "no")


class Engine:
    """Builds at once; or when `gate` opens; or raises."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.error = None
        self.built = []
        self.closed = False

    def builds(self, operator, spec, params):
        return tuple(Build(operator, params, arch) for arch in ARCHS)

    def build(self, build, spec):
        assert self.gate.wait(60)
        if self.error is not None:
            raise self.error
        self.built.append((build, spec))
        return FAILED if build.arch == "sm_90a" else PASS

    def close(self):
        self.closed = True
        self.gate.set()


@pytest.fixture
def queue():
    made = BuildQueue(Engine())
    yield made
    made.close()


def finished(queue):
    """All results, when nothing is pending."""
    results, end = [], time.monotonic() + 60
    while queue.pending and time.monotonic() < end:
        results += queue.drain()
        time.sleep(0.005)
    return results + list(queue.drain())


HALF, SINGLE = {"dtype": "float16"}, {"dtype": "float32"}


def test_every_variant_is_built_once(queue):
    """However often its parameters are drawn; for every implementation that is watched."""
    queue.watch("op", ("a", "b"))
    for params in (HALF, SINGLE, HALF, dict(HALF)):
        queue.add("op", params)
    results = finished(queue)
    assert 8 == len(results) == queue.done
    assert 8 == len({(build.key(), spec) for build, spec, _ in results})
    assert {("sm_80", "pass"), ("sm_90a", "build_error")} == {(b.arch, v.kind) for b, _, v in results}
    assert [
        (HALF, "sm_80"),
        (HALF, "sm_90a"),
        (SINGLE, "sm_80"),
        (SINGLE, "sm_90a"),
    ] == [(b.params, b.arch) for b in queue.seen("op", "a")]


def test_two_operators_with_the_same_parameters_are_both_built(queue):
    """By implementations of the same name."""
    queue.watch("one", ("cuda",))
    queue.watch("two", ("cuda",))
    queue.add("one", HALF)
    queue.add("two", HALF)
    assert {"one", "two"} == {build.operator for build, _, _ in finished(queue)}
    assert [{"one"}, {"two"}] == [{b.operator for b in queue.seen(name, "cuda")} for name in ("one", "two")]


def test_what_is_not_watched_is_not_built(queue):
    """And no thread is started for it."""
    queue.watch("op", ())
    queue.add("op", HALF)
    queue.add("other", HALF)
    assert 0 == queue.pending
    assert [] == finished(queue)


def test_pending_counts_down_to_nothing(queue):
    """Unlisted parameters count as one, listed ones as their variants."""
    queue.engine.gate.clear()
    queue.watch("op", ("a",))
    queue.add("op", HALF)
    assert queue.pending in (1, 2)
    queue.engine.gate.set()
    finished(queue)
    assert 0 == queue.pending


def test_an_error_of_the_thread_is_raised_where_it_is_seen(queue):
    """By drain, after the results that were ready; nothing is pending any more."""
    queue.engine.error = RuntimeError("broken")
    queue.watch("op", ("a",))
    queue.add("op", HALF)
    end = time.monotonic() + 60
    while queue.error is None and time.monotonic() < end:
        time.sleep(0.005)
    assert 0 == queue.pending
    with pytest.raises(RuntimeError, match="broken"):
        list(queue.drain())


def test_closing_stops_between_two_builds(queue):
    """The engine is closed, what was not begun is not built."""
    queue.engine.gate.clear()
    queue.watch("op", ("a",))
    queue.add("op", HALF)
    queue.add("op", SINGLE)
    thread = queue._thread
    queue.close()
    thread.join(60)
    assert queue.engine.closed
    assert not thread.is_alive()
    assert len(queue.engine.built) <= 1
    assert queue.error is None


def test_closing_without_work_is_fine():
    """No thread was ever started."""
    made = BuildQueue(Engine())
    made.close()
    assert made.engine.closed
