"""harness.build_queue: each variant once, something of everything early, errors where they are seen."""

# ruff: noqa: SIM300 - the expected value stands first

import threading

import pytest

from harness.build_queue import BuildQueue
from harness.case import Build
from harness.verdict import PASS, Verdict
from tests.harness.endtoend import wait_until

ARCHS = ("sm_80", "sm_90a")
FAILED = Verdict("build_error", "no")


class Engine:
    """Builds at once; or when `gate` opens; or raises. What has begun, and what was built, is listed."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.error = None
        self.begun = []
        self.built = []
        self.closed = False

    def builds(self, operator, spec, params):
        return tuple(Build(operator, params, arch) for arch in ARCHS)

    def build(self, build, spec):
        self.begun.append(build)
        assert self.gate.wait(60)
        if self.error is not None:
            raise self.error
        self.built.append((build, spec))
        return FAILED if build.arch == "sm_90a" else PASS

    def close(self):
        self.closed = True
        self.gate.set()


@pytest.fixture
def engine():
    return Engine()


@pytest.fixture
def queue(engine):
    made = BuildQueue([engine])
    yield made
    made.close()


def finished(queue):
    """All results, when nothing is pending."""
    assert wait_until(lambda: not queue.pending)
    return list(queue.drain())


HALF, SINGLE = {"dtype": "float16"}, {"dtype": "float32"}


def test_every_variant_is_built_once(queue):
    """However often its parameters are drawn; for every implementation that is watched."""
    queue.watch("op", ("a", "b"))
    for params in (HALF, SINGLE, HALF, dict(HALF)):
        queue.add("op", params)
    results = finished(queue)
    assert 8 == len(results) == queue.done
    assert 8 == len({(built.build.key(), built.spec) for built in results})
    assert {("sm_80", "pass"), ("sm_90a", "build_error")} == {(r.build.arch, r.verdict.kind) for r in results}


def test_two_operators_with_the_same_parameters_are_both_built(queue):
    """By implementations of the same name."""
    queue.watch("one", ("cuda",))
    queue.watch("two", ("cuda",))
    queue.add("one", HALF)
    queue.add("two", HALF)
    assert ["one", "one", "two", "two"] == sorted(built.build.operator for built in finished(queue))


def test_something_of_everything_comes_early(queue, engine):
    """Each parameters' first variant before anyone's second; neighbours begin with different architectures."""
    engine.gate.clear()
    queue.watch("op", ("a",))
    sizes = [{"n": n} for n in range(4)]
    queue.add("op", {"n": -1})
    assert wait_until(lambda: engine.begun)  # what is added while it builds is ordered when it has built
    for params in sizes:
        queue.add("op", params)
    engine.gate.set()
    built = [(r.build.params["n"], r.build.arch) for r in finished(queue)]
    assert (-1, "sm_80") == built[0]
    assert [(0, "sm_90a"), (1, "sm_80"), (2, "sm_90a"), (3, "sm_80")] == built[1:5]
    assert [(-1, "sm_90a"), (0, "sm_80"), (1, "sm_90a"), (2, "sm_80"), (3, "sm_90a")] == built[5:]


def test_what_was_left_behind_comes_first(queue, engine):
    """A variant that is named in `first`, before all others that wait."""
    engine.gate.clear()
    queue.watch("op", ("a",))
    queue.first.add(("a", Build("op", {"n": 3}, "sm_90a").key()))
    for n in range(4):
        queue.add("op", {"n": n})
    engine.gate.set()
    assert 8 == len(finished(queue))
    assert (3, "sm_90a") in [(build.params["n"], build.arch) for build in engine.begun[:2]]


def test_other_architectures_are_left_out(queue):
    """Of those that an implementation names, the ones asked for are built."""
    queue.watch("op", ("a",), ("sm_90a", "sm_70"))
    queue.add("op", HALF)
    assert ["sm_90a"] == [built.build.arch for built in finished(queue)]


def test_several_engines_build_at_once():
    """One variant each, none twice."""
    engines = [Engine(), Engine(), Engine()]
    for engine in engines:
        engine.gate.clear()
    queue = BuildQueue(engines)
    queue.watch("op", ("a",))
    for n in range(4):
        queue.add("op", {"n": n})
    assert wait_until(lambda: all(engine.begun for engine in engines))
    for engine in engines:
        engine.gate.set()
    assert 8 == len({built.build.key() for built in finished(queue)})
    queue.close()
    assert all(engine.closed for engine in engines)


def test_what_is_not_watched_is_not_built(queue):
    """And no thread is started for it."""
    queue.watch("op", ())
    queue.add("op", HALF)
    queue.add("other", HALF)
    assert 0 == queue.pending
    assert [] == finished(queue)


def test_pending_counts_down_to_nothing(queue, engine):
    """Unlisted parameters count as one, listed ones as their variants."""
    engine.gate.clear()
    queue.watch("op", ("a",))
    queue.add("op", HALF)
    assert queue.pending in (1, 2)
    engine.gate.set()
    finished(queue)
    assert 0 == queue.pending


def test_an_error_of_a_thread_is_raised_where_it_is_seen(queue, engine):
    """By drain, after the results that were ready; nothing is pending any more."""
    engine.error = RuntimeError("broken")
    queue.watch("op", ("a",))
    queue.add("op", HALF)
    assert wait_until(lambda: queue.error is not None)
    assert 0 == queue.pending
    with pytest.raises(RuntimeError, match="broken"):
        list(queue.drain())


def test_stopping_begins_nothing_any_more(queue, engine):
    """What is being built comes to its end, and its result can be had."""
    engine.gate.clear()
    queue.watch("op", ("a",))
    queue.add("op", HALF)
    queue.add("op", SINGLE)
    assert wait_until(lambda: engine.begun)
    queue.stop()
    engine.gate.set()
    (thread,) = queue._threads
    thread.join(60)
    assert not thread.is_alive()
    assert 1 == len(list(queue.drain())) == len(engine.begun)


def test_closing_stops_between_two_builds(queue, engine):
    """The engine is closed, what was not begun is not built."""
    engine.gate.clear()
    queue.watch("op", ("a",))
    queue.add("op", HALF)
    queue.add("op", SINGLE)
    (thread,) = queue._threads
    queue.close()
    thread.join(60)
    assert engine.closed
    assert not thread.is_alive()
    assert len(engine.built) <= 1
    assert queue.error is None


def test_closing_without_work_is_fine(engine):
    """No thread was ever started."""
    BuildQueue([engine]).close()
    assert engine.closed
