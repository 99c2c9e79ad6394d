"""harness.settle_build: one entry for one bug, whichever of its builds is met first; by compilers of plain Python."""

# ruff: noqa: SIM300 - the expected value stands first

import itertools

import pytest

from harness import operators, settle_build
from harness.case import Build
from harness.ledger import Ledger
from harness.record import Recorder
from harness.sandbox import Limits
from harness.settle_build import BuildSettler
from harness.verdict import PASS, Evidence, Verdict
from tests.harness.endtoend import entries
from tests.harness.making import NAME

SPEC = "mine.py:mask"
ARCHS = ("sm_80", "sm_90a")
STDS = ("c++17", "c++20")
LIMITS = Limits(build=100.0)


def builds(params):
    """As `Implementation.builds` lists them: architectures × an axis, a tuning where it is not the default."""
    given = {name: value for name, value in params.items() if name != "tuning" or value}
    return tuple(Build(NAME, {**given, "std": std}, arch) for arch in ARCHS for std in STDS)


MATRIX = [build for params in operators.get(NAME).build_matrix() for build in builds(params)]


def failed(words, kind="build_error"):
    return Verdict(kind, f"message of {words}", Evidence(error=words))


class Compiler:
    """In the place of an engine: `rule(build)` is what a build comes to. It counts, and notes its limits."""

    def __init__(self, rule):
        self.rule, self.limits, self.used, self.fresh_ones = rule, LIMITS, [], 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def builds(self, operator, spec, params):
        return builds(params)

    def build(self, build, spec):
        self.used.append((build, self.limits.build))
        return self.rule(build)

    def fresh(self):
        self.fresh_ones += 1


class Desk:
    """A settler on an empty corpus, its compiler and its events."""

    def __init__(self, rule, folder, monkeypatch):
        self.compiler, self.corpus, self.events = Compiler(rule), folder, []
        monkeypatch.setattr(settle_build, "Engine", lambda *args, **kwargs: self.compiler)
        self.ledger = Ledger(folder)
        recorder = Recorder(self.ledger, self.events.append, {"torch": "x"}, {SPEC: "mine"}, "cpu")
        self.settler = BuildSettler(recorder, LIMITS)

    def meet(self, *found):
        for build in found:
            if (verdict := self.compiler.rule(build)).failed:
                self.settler.meet(build, SPEC, verdict)

    def settle(self, *found):
        self.meet(*found)
        self.settler.settle()
        return entries(self.corpus)

    def told(self, what):
        return [event for event in self.events if event["event"] == what]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    return lambda rule, folder=tmp_path / "corpus": Desk(rule, folder, monkeypatch)


def summary(entry):
    return (*entry.subject.params.values(), entry.subject.arch)


def no_half(build):
    return failed("no such type") if build.params["dtype"] != "float32" else PASS


def test_one_bug_is_one_entry(desk):
    """Of all builds that fail alike, the plainest parameters and the first architecture; the message is that build's."""
    here = desk(lambda b: failed("half") if b.params["dtype"] != "float32" and b.params["std"] == "c++20" else PASS)
    (entry,) = here.settle(*reversed(MATRIX))
    assert ("float16", "int", "c++20", "sm_80") == summary(entry)
    assert ("message of half", True, {"torch": "x"}) == (entry.verdict.message, entry.reduced, entry.environment)
    assert [True, False] == [event["unreduced"] for event in here.told("finding")]
    assert [entry.signature] == here.ledger.new
    assert [] == here.told("known")


def test_the_verdict_is_that_of_the_build_that_is_kept(desk):
    """Not of the one that was found: its log speaks of another architecture."""
    here = desk(lambda b: Verdict("build_error", f"for {b.arch}", Evidence(error="half")))
    (entry,) = here.settle(MATRIX[-1])
    assert ("for sm_80", "sm_80") == (entry.verdict.message, entry.subject.arch)


def two_voices(build):
    """One bug, which one toolchain option words differently; it needs float16 or bfloat16, and int64."""
    if build.params["dtype"] == "float32" or build.params["k"] != "int64":
        return PASS
    return failed("more than one operator" if build.params["std"] == "c++17" else "no operator")


@pytest.mark.parametrize("found", [MATRIX, MATRIX[::-1], MATRIX[1:], MATRIX[-1:]], ids=["all", "back", "late", "last"])
def test_a_bug_with_two_voices_is_one_entry(desk, found):
    """One step plainer it fails too, in other words: the plainer build's words are the bug's, whichever came first."""
    here = desk(two_voices)
    (entry,) = here.settle(*found)
    assert ("float16", "int64", "c++17", "sm_80") == summary(entry)
    assert "more than one operator" == entry.signature.error
    assert {str(entry.signature)} == {event["signature"] for event in here.told("known")}
    assert {entry.signature} == set(here.ledger.owner.values())
    assert 2 == len(here.ledger.owner)


def test_two_bugs_are_two_entries(desk):
    """Each shows without the other's flag, so each keeps its own, also where both show."""

    def rule(build):
        if build.params["std"] == "c++20":
            return failed("std")
        return failed("int64") if build.params["k"] == "int64" else PASS

    found = desk(rule).settle(*MATRIX)
    assert {("float32", "int", "c++20", "sm_80"), ("float32", "int64", "c++17", "sm_80")} == set(map(summary, found))


def test_another_kind_of_failure_is_another_bug(desk):
    """A compiler that crashes next to one that complains."""

    def rule(build):
        if build.params["std"] == "c++20":
            return failed("the compiler died", "build_crash")
        return failed("half") if build.params["dtype"] == "float16" else PASS

    assert ["build_crash", "build_error"] == sorted(entry.verdict.kind for entry in desk(rule).settle(*MATRIX))


def test_what_is_known_is_left_alone(desk):
    """An open entry of the corpus: nothing is compiled, nothing said."""
    desk(no_half).settle(*MATRIX)
    again = desk(no_half)
    again.settle(*MATRIX)
    assert ([], []) == (again.compiler.used, again.events)


def test_what_another_worker_recorded_first_is_known(desk):
    """It is settled all the same, and no news."""
    here = desk(no_half)
    here.meet(MATRIX[-1])
    desk(no_half).settle(MATRIX[-1])
    here.settler.settle()
    assert [] == here.ledger.new
    assert [False] == [event["unreduced"] for event in here.told("known")]
    assert 1 == len(entries(here.corpus))


def test_a_failure_is_kept_before_anything_is_tried(desk):
    """As it was found, one of each sort, also when an interrupt comes while it is reduced."""
    here = desk(no_half)
    here.meet(*MATRIX)
    ((entry,), (waiting,)) = entries(here.corpus), here.settler.waiting.values()
    assert (False, waiting.build) == (entry.reduced, entry.subject)

    def interrupted(build):
        raise KeyboardInterrupt

    here.compiler.rule = interrupted
    with pytest.raises(KeyboardInterrupt):
        here.settler.settle()
    assert [False] == [entry.reduced for entry in entries(here.corpus)]


def test_what_fails_while_its_like_is_settled_is_not_taken_in_again(desk):
    """Results come in meanwhile: `idle` is called before every compilation."""
    here = desk(no_half)
    here.settler.idle = lambda: here.meet(*MATRIX)
    assert 1 == len(here.settle(MATRIX[-1]))
    assert 2 == len(here.events)


def test_what_a_fresh_process_does_not_show_is_kept_with_a_warning(desk):
    """It was seen: it is an entry as it was found, which says so."""
    here = desk(lambda b: PASS)
    here.settler.meet(MATRIX[5], SPEC, failed("once"))
    (entry,) = here.settle()
    assert (MATRIX[5], True, True) == (entry.subject, entry.reduced, entry.verdict.evidence.used_process)
    assert "a fresh process does not show it" in here.told("warning")[0]["text"]


def test_what_is_kept_was_seen_in_a_process_that_had_compiled_nothing(desk):
    """The last build is the one that is kept, after a change of processes."""
    here = desk(no_half)
    (entry,) = here.settle(MATRIX[-1])
    assert (entry.subject, 1) == (here.compiler.used[-1][0], here.compiler.fresh_ones)


def test_a_timeout_is_looked_for_with_less_patience(desk):
    """A tenth of the limit while it is reduced, few tries, and all of the limit when it is confirmed."""
    here = desk(lambda b: failed("did not come back in time", "build_timeout"))
    (entry,) = here.settle(MATRIX[-1])
    *tries, (kept, limit) = here.compiler.used
    assert {10.0} == {seconds for _, seconds in tries}
    assert len(tries) <= settle_build.COSTLY_CALLS
    assert (entry.subject, 100.0) == (kept, limit)


def test_a_tuning_goes_where_it_does_not_matter(desk):
    """And stays where it does, with the other parameters plain."""
    tuned = Build(NAME, {"dtype": "bfloat16", "k": "int64", "tuning": 2, "std": "c++20"}, "sm_90a")
    (entry,) = desk(lambda b: failed("x")).settle(tuned)
    assert {"dtype": "float32", "k": "int", "std": "c++17"} == entry.subject.params


def test_a_tuning_that_matters_stays(desk):
    """With everything else as plain as can be."""
    tuned = Build(NAME, {"dtype": "bfloat16", "k": "int64", "tuning": 2, "std": "c++20"}, "sm_90a")
    (entry,) = desk(lambda b: failed("x") if b.params.get("tuning") == 2 else PASS).settle(tuned)
    assert {"dtype": "float32", "k": "int", "std": "c++17", "tuning": 2} == entry.subject.params


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_any_one_build_that_fails_leads_to_the_plainest(desk, dtype, tmp_path):
    """For faults that need two flags at once: whichever build is met, one entry, the same."""
    kinds = ("int", "int32", "int64")
    for number, (k, std, arch) in enumerate(itertools.product(kinds, STDS, ARCHS)):
        needs = {"dtype": dtype, "std": std}
        here = desk(
            lambda b, needs=needs: failed("x") if needs.items() <= b.params.items() else PASS,
            tmp_path / str(number),
        )
        (entry,) = here.settle(Build(NAME, {"dtype": dtype, "k": k, "std": std}, arch))
        assert (dtype, "int", std, "sm_80") == summary(entry)
