"""harness.reduce_entry and `warpcheck reduce`: an entry's own file becomes small, and stays whole whatever happens."""

# ruff: noqa: SIM300 - the expected value stands first

import contextlib

import pytest
import torch
from msgspec.structs import replace

from harness import corpus, stored
from harness.case import Fill
from harness.minimise import Minimiser
from harness.reduce_entry import reduce_entry
from harness.replay import NotShown, Replayer
from harness.sandbox import Limits
from harness.verdict import Verdict
from tests.harness.endtoend import entries, fix, judged, user_folder, warpcheck
from tests.harness.making import NAME, mask_case

TIES = Fill("cycle", 0, (1.0, 3.0, 3.0, 3.0, 2.0))
SPREAD = Fill("spread", 11)
LARGE = mask_case(5, 40, dtype="bfloat16", form="out", fill=TIES, pitch=48, offset=2)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    return user_folder(tmp_path_factory.mktemp("kernels"))


@pytest.fixture(scope="module")
def replayer(kernels):
    """Its children start in the folder of the kernels."""
    with contextlib.chdir(kernels), Replayer("cpu", limits=Limits(run=60.0)) as made:
        made.judge(judged(mask_case(), "good", kernels))
        yield made


def reduced(path, kernels, replayer, *, calls=2000, seconds=1e9, told=lambda calls, subject: None):
    with contextlib.chdir(kernels):
        return reduce_entry(path, replayer, seconds=seconds, calls=calls, told=told)


def kept(folder, case, function, kernels, *, pairs=1, **fields):
    """The file of an unreduced entry in a corpus."""
    entry = replace(judged(case, function, kernels, pairs=pairs), reduced=False, **fields)
    path = corpus.write(folder, entry)
    assert path is not None
    return path


def test_an_entry_is_made_small_and_gets_the_name_of_what_is_left(kernels, replayer, tmp_path):
    """One file, under the signature of the minimal case; note and status are kept, and what was removed is told."""
    path = kept(tmp_path, LARGE, "drops_ties", kernels, note="seen in production")
    sizes = []
    found = reduced(path, kernels, replayer, told=lambda calls, subject: sizes.append(corpus.weight(subject)))
    assert (True, False, False) == (found.complete, found.merged, found.unconfirmed)
    (entry,) = entries(tmp_path)
    assert entry == found.entry == corpus.read(found.path)
    assert ((1, 2), "float32", True, "seen in production", "open") == (
        entry.subject.tensors["logits"].shape,
        entry.subject.tensors["logits"].dtype,
        entry.reduced,
        entry.note,
        entry.status,
    )
    assert found.path == corpus.path_of(tmp_path, entry.signature) != path
    assert not path.exists()
    assert {"bfloat16", "logits padded"} <= set(" ".join(found.removed).replace(",", "").split(" ")) | {"logits padded"}
    assert sizes
    assert sizes[-1] == min(sizes)


def test_a_file_outside_a_corpus_is_reduced_where_it_lies(kernels, replayer, tmp_path):
    """It keeps its name."""
    source = kept(tmp_path / "corpus", LARGE, "drops_ties", kernels)
    path = tmp_path / "imported.json"
    path.write_bytes(source.read_bytes())
    found = reduced(path, kernels, replayer)
    assert path == found.path
    assert (1, 2) == corpus.read(path).subject.tensors["logits"].shape
    assert source.exists()


def test_a_budget_that_ends_leaves_the_smallest_so_far_and_the_next_run_goes_on(kernels, replayer, tmp_path):
    """After six judgements it is smaller and not called reduced; with more, the end is that of one run alone."""
    path = kept(tmp_path, LARGE, "drops_ties", kernels)
    first = reduced(path, kernels, replayer, calls=6)
    assert (False, False) == (first.complete, first.entry.reduced)
    (between,) = entries(tmp_path)
    assert corpus.weight(between.subject) < corpus.weight(LARGE)
    last = reduced(first.path, kernels, replayer)
    assert last.complete
    alone = kept(tmp_path / "alone", LARGE, "drops_ties", kernels)
    assert reduced(alone, kernels, replayer).entry.subject == last.entry.subject


def test_an_interrupt_keeps_the_smallest_so_far(kernels, replayer, tmp_path):
    """KeyboardInterrupt passes; the file is whole and smaller."""
    path = kept(tmp_path, LARGE, "drops_ties", kernels)
    asked = []

    def interrupted(calls, subject):
        asked.append(subject)
        if len(asked) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reduced(path, kernels, replayer, told=interrupted)
    assert asked[-1] == corpus.read(path).subject
    assert corpus.weight(asked[-1]) < corpus.weight(LARGE)


def test_the_same_bug_twice_becomes_one_entry(kernels, replayer, tmp_path):
    """A second unreduced entry ends at the first one's minimum, and its file goes."""
    reduced(kept(tmp_path, LARGE, "drops_ties", kernels), kernels, replayer)
    (first,) = entries(tmp_path)
    other = kept(tmp_path, mask_case(3, 9, dtype="float16", fill=TIES), "drops_ties", kernels)
    found = reduced(other, kernels, replayer)
    assert found.merged
    assert [first] == entries(tmp_path)
    assert not other.exists()


def test_what_passes_here_is_not_reduced(kernels, replayer, tmp_path):
    """The file stays as it is."""
    path = kept(tmp_path, LARGE, "drops_ties", kernels)
    passing = replace(corpus.read(path), implementation="mask.py:good")
    assert corpus.update(path, corpus.read(path), passing)
    with pytest.raises(NotShown) as shown:
        reduced(path, kernels, replayer)
    assert "pass" == shown.value.verdict.kind
    assert passing == corpus.read(path)


def test_a_smallest_case_that_no_fresh_process_shows_is_taken_back(kernels, replayer, tmp_path, monkeypatch):
    """The entry is what it was."""
    path = kept(tmp_path, LARGE, "drops_ties", kernels)
    before = corpus.read(path)
    monkeypatch.setattr(Minimiser, "fresh", lambda self, calls, case, pairs: Verdict("pass"))
    found = reduced(path, kernels, replayer)
    assert found.unconfirmed
    assert before == corpus.read(path) == found.entry


def test_a_file_that_somebody_changes_meanwhile_is_left_alone(kernels, replayer, tmp_path):
    """A person's note is not written over."""
    path = kept(tmp_path, LARGE, "drops_ties", kernels)

    def annotate(calls, subject):
        there = corpus.read(path)
        corpus.update(path, there, replace(there, note="mine"))

    found = reduced(path, kernels, replayer, told=annotate)
    assert found.lost
    assert "mine" == corpus.read(path).note


def test_what_needs_calls_before_it_is_reduced_with_them(kernels, replayer, tmp_path):
    """Both get smaller, in a process of its own for each try; the failure is still one that needs the other call."""
    first, case = mask_case(2, 4, fill=SPREAD), mask_case(3, 7, fill=SPREAD)
    wrong = replace(judged(case, "drops_ties", kernels), implementation="mask.py:remembers", context=(first,))
    with contextlib.chdir(kernels):
        verdict = replayer.judge(wrong)
    assert verdict.failed
    entry = replace(wrong, verdict=verdict, signature=with_name(wrong.signature), reduced=False)
    path = corpus.write(tmp_path, entry)
    found = reduced(path, kernels, replayer, calls=12)
    assert corpus.weight(found.entry.subject) < corpus.weight(case)
    assert (("needs other calls before it",), True) == (
        found.entry.signature.traits,
        found.entry.verdict.evidence.used_process,
    )
    (before,) = found.entry.context
    assert corpus.weight(before) < corpus.weight(first)
    with contextlib.chdir(kernels):
        assert verdict.kind == replayer.judge(found.entry).kind
        assert "pass" == replayer.judge(replace(found.entry, context=())).kind


def with_name(signature):
    return replace(signature, implementation="mask.remembers")


def test_what_comes_and_goes_is_reduced_with_its_rate(kernels, replayer, tmp_path):
    """Wrong at every third call: the case is the smallest, and the rate in the entry is one in three."""
    path = kept(tmp_path, LARGE, "comes_and_goes", kernels, pairs=4)
    found = reduced(path, kernels, replayer)
    rate = found.entry.rate
    assert rate is not None
    assert (1, 1) == found.entry.subject.tensors["logits"].shape
    assert rate.low <= 1 / 3 <= rate.high
    assert 7 <= rate.repeats <= 20


def test_stored_values_outlive_a_reduction_that_is_taken_back(kernels, replayer, tmp_path, monkeypatch):
    """The file of values is there as long as the entry may need it again, and not longer."""
    values = torch.tensor([[1.0, 3.0, 3.0, 3.0, 2.0]])
    folder = tmp_path / NAME / "mask.drops_ties"
    folder.mkdir(parents=True)
    case = mask_case(1, 5, fill=Fill("file", file=stored.put(values, folder)))
    path = kept(tmp_path, case, "drops_ties", kernels)
    before = corpus.read(path)
    with monkeypatch.context() as patched:
        patched.setattr(Minimiser, "fresh", lambda self, calls, case, pairs: Verdict("pass"))
        assert reduced(path, kernels, replayer).unconfirmed
    assert before == corpus.read(path)
    assert 1 == len(list(folder.glob("*.bin")))
    reduced(path, kernels, replayer)
    assert [] == list(folder.glob("*.bin"))


def test_what_is_cut_off_by_the_clock_is_no_minimum(kernels, replayer, tmp_path):
    """Nothing is judged after the time is over, and nobody calls what is left minimal, or another bug's."""
    path = kept(tmp_path, LARGE, "drops_ties", kernels)
    found = reduced(path, kernels, replayer, seconds=0.0)
    assert (False, 0, path) == (found.complete, found.calls, found.path)
    entry = corpus.read(path)
    assert (False, False, LARGE) == (entry.reduced, entry.minimal, entry.subject)
    assert reduced(path, kernels, replayer).entry.minimal


@pytest.mark.parametrize("status", ["fixed", "open"])
def test_a_person_s_words_outlive_a_merge(kernels, replayer, tmp_path, status):
    """The notes of both; and what fails now is open, even where somebody called the same case fixed."""
    first = reduced(kept(tmp_path, LARGE, "drops_ties", kernels), kernels, replayer).path
    there = corpus.read(first)
    assert corpus.update(first, there, replace(there, status=status, note="as in 1.2"))
    other = kept(tmp_path, mask_case(3, 9, dtype="float16", fill=TIES), "drops_ties", kernels, note="ticket 77")
    reduced(other, kernels, replayer)
    (entry,) = entries(tmp_path)
    assert {"as in 1.2", "ticket 77"} == set(entry.note.splitlines())


def test_an_entry_that_says_it_passed_is_not_reduced(kernels, replayer, tmp_path):
    """There is no failure to keep."""
    path = kept(tmp_path, mask_case(3, 7), "good", kernels)
    with pytest.raises(NotShown):
        reduced(path, kernels, replayer)


# --- the command --------------------------------------------------------------------------------------------


def test_the_command_says_what_went_and_what_is_left(kernels, tmp_path):
    """Removed, left, the way to the file; exit 0."""
    path = kept(tmp_path, LARGE, "drops_ties", kernels)
    done = warpcheck(kernels, "reduce", path, "--device", "cpu")
    assert 0 == done.returncode, done.stderr
    for part in ("vocab 40 -> 2", "a local minimum", "wrong_set (float32)", "judgements"):
        assert part in done.stdout
    assert (1, 2) == entries(tmp_path)[0].subject.tensors["logits"].shape


def test_the_command_on_what_is_mended_or_no_entry(tmp_path):
    """Passes here: exit 1, one line. No entry: exit 2, one line."""
    folder = user_folder(tmp_path / "kernels")
    path = kept(tmp_path / "corpus", LARGE, "drops_ties", folder)
    fix(folder)
    done = warpcheck(folder, "reduce", path, "--device", "cpu")
    assert (1, ["the failure does not show here: it passes"]) == (done.returncode, done.stderr.splitlines())
    path.write_text("{")
    done = warpcheck(folder, "reduce", path, "--device", "cpu")
    assert 2 == done.returncode
    assert 1 == len([line for line in done.stderr.splitlines() if line.startswith("Error")])
