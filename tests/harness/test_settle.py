"""harness.settle: what is reduced, confirmed, recognised, withdrawn, left unreduced."""

# ruff: noqa: SIM300 - the expected value stands first

import contextlib

import pytest

from harness import corpus
from harness.case import Fill
from harness.ledger import Ledger
from harness.minimise import pairs_for
from harness.record import Recorder
from harness.replay import Replayer, outcome
from harness.sandbox import Engine, Limits
from harness.settle import Found, Settler
from harness.signature import bucket
from harness.verdict import Evidence, Verdict
from tests.harness.endtoend import entries, judged, user_folder
from tests.harness.making import mask_case

LIMITS = Limits(run=60.0)
TIES = Fill("cycle", 0, (1.0, 3.0, 3.0, 3.0, 2.0))
SPREAD = Fill("spread", 11)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return user_folder(tmp_path_factory.mktemp("kernels"))


@pytest.fixture(scope="module")
def engine(folder):
    """One for all tests; its children start in the folder of the kernels."""
    with contextlib.chdir(folder), Engine("cpu", limits=LIMITS) as made:
        made.judge(mask_case(), ["mask.py:good"])
        yield made


class Desk:
    """A settler on an empty corpus, its events, and what it is given to settle."""

    def __init__(self, engine, folder, tmp_path):
        self.engine, self.kernels, self.corpus, self.events = engine, folder, tmp_path / "corpus", []
        self.ledger = Ledger(self.corpus)
        self.names = {}
        recorder = Recorder(self.ledger, self.events.append, {"torch": "x"}, self.names, "cpu")
        self.settler = Settler(engine, recorder)

    def found(self, case, function, *, history=(), pairs=1):
        """A failure as a campaign meets it: judged, after the calls of its history."""
        spec = f"mask.py:{function}"
        self.names[spec] = f"mask.{function}"
        with contextlib.chdir(self.kernels):
            if history:
                self.engine.fresh()
            for other in history:
                self.engine.judge(other, [spec])
            verdict = self.engine.judge(case, [spec], pairs=pairs)[0]
        assert verdict.failed
        return Found(case, spec, verdict, bucket(case, self.names[spec], verdict), tuple(history))

    def settle(self, found):
        self.settler.record_unreduced(found)
        with contextlib.chdir(self.kernels):
            self.settler.settle(found)
        return entries(self.corpus)

    def told(self, what):
        return [event for event in self.events if event["event"] == what]


@pytest.fixture
def desk(engine, folder, tmp_path):
    return Desk(engine, folder, tmp_path)


def test_a_failure_is_kept_as_it_was_found_before_anything_is_tried(desk):
    """On disk, marked as not reduced, and said so."""
    found = desk.found(mask_case(3, 7, dtype="float16", fill=TIES, pitch=9, offset=2), "drops_ties")
    desk.settler.record_unreduced(found)
    assert [(found.case, False)] == [(entry.subject, entry.reduced) for entry in entries(desk.corpus)]
    assert [True] == [event["unreduced"] for event in desk.told("finding")]


def test_what_is_settled_is_small_and_alone(desk):
    """The reduced entry takes the place of the unreduced one; its case is the smallest that shows the bug."""
    (entry,) = desk.settle(desk.found(mask_case(3, 7, dtype="float16", fill=TIES, pitch=9, offset=2), "drops_ties"))
    assert (True, (1, 2), "float32", {"form": "new", "k": 1}) == (
        entry.reduced,
        entry.subject.tensors["logits"].shape,
        entry.subject.tensors["logits"].dtype,
        entry.subject.params,
    )
    assert [True, False] == [event["unreduced"] for event in desk.told("finding")]
    assert [entry.signature] == desk.ledger.new
    assert {"torch": "x"} == entry.environment


def test_the_same_bug_in_other_clothes_is_known(desk):
    """Met again in another dtype, form and layout: no second entry, and the bucket is the first one's from then on."""
    (entry,) = desk.settle(desk.found(mask_case(fill=TIES), "drops_ties"))
    again = desk.found(mask_case(2, 6, dtype="bfloat16", form="out", fill=TIES), "drops_ties")
    desk.settle(again)
    assert [entry.signature] == [other.signature for other in entries(desk.corpus)]
    assert [str(entry.signature)] == [event["signature"] for event in desk.told("known")]
    assert entry.signature == desk.ledger.owner[again.bucket]


def test_recognise_needs_no_hunt_for_what_is_known(desk):
    """With its features turned off it is a bug that is known; a failure of another kind is not."""
    (entry,) = desk.settle(desk.found(mask_case(fill=TIES), "drops_ties"))
    other = desk.found(mask_case(2, 6, dtype="float16", fill=TIES, form="out"), "drops_ties")
    with contextlib.chdir(desk.kernels):
        owner = desk.settler.recognise(other.case, other.spec, other.verdict, other.bucket)
        dtype = desk.found(mask_case(fill=SPREAD), "other_dtype")
        none = desk.settler.recognise(dtype.case, dtype.spec, dtype.verdict, dtype.bucket)
    assert (entry.signature, None) == (owner, none)


def test_a_failure_that_needs_a_history_keeps_the_calls_that_matter(desk):
    """It passes in a fresh process: the entry lists what has to run before it, and no more than that."""
    history = (mask_case(4, 4, fill=SPREAD), mask_case(4, 5, fill=SPREAD), mask_case(4, 6, fill=SPREAD))
    (entry,) = desk.settle(desk.found(mask_case(3, 7, fill=SPREAD), "remembers", history=history))
    assert 1 == len(entry.context)
    assert entry.verdict.evidence.used_process
    assert corpus.weight(entry.subject) < corpus.weight(mask_case(3, 7, fill=SPREAD))
    assert corpus.weight(entry.context[0]) < min(corpus.weight(case) for case in history)
    with contextlib.chdir(desk.kernels), Replayer("cpu", limits=LIMITS) as replayer:
        assert "as expected" == outcome(entry, replayer.judge(entry))
        assert "pass" == replayer.judge(type(entry)(**{**fields(entry), "context": ()})).kind


def fields(entry):
    return {name: getattr(entry, name) for name in entry.__struct_fields__}


def test_a_failure_that_nothing_shows_again_is_kept_with_a_warning(desk):
    """It was seen; what was seen is the entry."""
    found = desk.found(mask_case(fill=TIES), "drops_ties")
    found.spec = "mask.py:good"
    desk.names[found.spec] = "mask.good"
    (entry,) = desk.settle(found)
    assert entry.verdict.evidence.used_process
    assert "neither a fresh process" in desk.told("warning")[0]["text"]


def test_what_comes_and_goes_has_its_rate(desk):
    """nondeterministic, with the runs that failed out of those made, and more runs at the confirmation."""
    (entry,) = desk.settle(desk.found(mask_case(fill=SPREAD), "comes_and_goes", pairs=4))
    evidence = entry.verdict.evidence
    assert "nondeterministic" == entry.verdict.kind
    assert 0 < evidence.failed < evidence.runs
    assert 8 == pairs_for(entry.verdict)
    assert 1 == pairs_for(Verdict("wrong_set"))


def test_a_finding_that_a_later_one_explains_is_withdrawn(desk):
    """An entry of this campaign whose case is one step from the newer bug goes, and its buckets with it."""
    wide = judged(mask_case(2, 5, dtype="bfloat16", fill=TIES, form="out"), "drops_ties", desk.kernels)
    desk.names[wide.implementation] = "mask.drops_ties"
    desk.ledger.add(wide)
    desk.ledger.owner.clear()  # as if that bucket had been nobody's neighbour yet
    (entry,) = desk.settle(desk.found(mask_case(fill=TIES), "drops_ties"))
    assert [str(wide.signature)] == [event["signature"] for event in desk.told("withdrawn")]
    assert [entry.signature] == desk.ledger.new


def test_an_interrupt_leaves_the_unreduced_entry(desk, monkeypatch):
    """KeyboardInterrupt in the middle of reducing passes, and the corpus holds what was found."""
    found = desk.found(mask_case(3, 7, fill=TIES), "drops_ties")

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(desk.engine, "judge", interrupted)
    with pytest.raises(KeyboardInterrupt):
        desk.settle(found)
    assert [False] == [entry.reduced for entry in entries(desk.corpus)]


def test_an_interrupt_at_the_end_leaves_one_entry_or_both(desk, monkeypatch):
    """The unreduced entry goes when the reduced one is on disk, not before."""
    found = desk.found(mask_case(3, 7, fill=TIES), "drops_ties")
    desk.settler.record_unreduced(found)

    def interrupted(self, entry):
        raise KeyboardInterrupt

    monkeypatch.setattr(Ledger, "add", interrupted)
    with contextlib.chdir(desk.kernels), pytest.raises(KeyboardInterrupt):
        desk.settler.settle(found)
    assert [False] == [entry.reduced for entry in entries(desk.corpus)]


def test_a_failure_matches_what_has_its_kind_and_words_alone(desk):
    """Another kind, or another exception, is another bug: shrinking must not slip from one into the other."""
    found = desk.found(mask_case(fill=SPREAD, k=0), "refuses_zero")
    name = "mask.refuses_zero"
    other = Verdict("refused", "x", Evidence(error="ValueError: other words"))
    assert found.matches(found.case, found.verdict, name, desk.ledger)
    assert not found.matches(found.case, other, name, desk.ledger)
    assert not found.matches(found.case, Verdict("wrong_set"), name, desk.ledger)
