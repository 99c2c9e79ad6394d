"""harness.corpus_care: what is wrong with a corpus, several into one, and counts. Nothing is judged."""

# ruff: noqa: SIM300 - the expected value stands first

import fcntl
import itertools
import os

import msgspec
import pytest
from msgspec.structs import replace

from harness import corpus, corpus_care, files, stored
from harness.case import Build, Fill
from harness.corpus_care import better, check, merge
from harness.explanation import Explanation
from harness.journal import Journal, Record
from harness.rate import measured
from harness.signature import signature
from harness.verdict import Evidence, Verdict
from tests.harness.making import mask_case
from tests.harness.test_corpus import LARGE, SMALL, VERDICT, entry, everything
from tests.harness.test_stored import bits, case_of, files_of, made

MIDDLE = mask_case(5, 6)


def found(folder):
    return {(finding.what, finding.path.name) for finding in check(folder).findings}


def contents(folder):
    return {name: (folder / name).read_bytes() for name in everything(folder)}


def test_a_corpus_in_order(tmp_path):
    """Nothing is found, all entries come back, and nothing is changed, whichever part of it is asked for."""
    written = [
        entry(),
        entry(LARGE, replace(VERDICT, kind="wrong_nan")),
        entry(case_of(made(), tmp_path), status="fixed"),
    ]
    verdicts = ("wrong_set", "wrong_nan", "wrong_inf")
    for one, kind in zip(written, verdicts):
        corpus.write(tmp_path / "c", replace(one, signature=replace(one.signature, kind=kind)))
    before = contents(tmp_path / "c")
    for part in ("c", "c/top_k_mask_logits", "c/top_k_mask_logits/mine"):
        checked = check(tmp_path / part)
        assert ([], 3) == (checked.findings, len(checked.entries))
    assert before == contents(tmp_path / "c")


def test_every_finding(tmp_path):
    """Each sort, once; and each entry that can be read is there."""
    path = corpus.write(tmp_path, entry())
    (path.parent / "copy.json").write_bytes(path.read_bytes())
    lost = corpus.write(tmp_path, entry(MIDDLE, replace(VERDICT, kind="wrong_nan")))
    lost.rename(lost.with_name("lost.json"))
    (path.parent / "torn.json").write_bytes(path.read_bytes()[:100])
    (path.parent / ".abcd1234.tmp").write_text("{")
    (path.parent / "x.json.unreadable").write_text("{")
    (path.parent / "other.tmp").write_text("somebody's own")
    unused = stored.put(made(), path.parent)
    assert {
        ("duplicate", "copy.json"),
        ("misplaced", "lost.json"),
        ("unreadable", "torn.json"),
        ("left behind", ".abcd1234.tmp"),
        ("left behind", "x.json.unreadable"),
        ("unused", stored.name_of(unused)),
    } == found(tmp_path)
    assert {path.name, "copy.json", "lost.json"} == {p.name for p, _ in check(tmp_path).entries}


def test_what_is_not_the_corpus_is_left_alone(tmp_path):
    """A repository around it, other programs' files."""
    (tmp_path / ".git").mkdir()
    for name in (".git/.abcd1234.tmp", ".editor.tmp", "notes.bin", f".git/{'a' * 64}.bin"):
        (tmp_path / name).write_text("x")
    assert set() == found(tmp_path)


def test_of_two_files_of_one_signature_the_one_that_a_writer_finds_is_right(tmp_path):
    """Wherever it stands in the order; without one in its place, one is misplaced and the others are its duplicates."""
    path = corpus.write(tmp_path, entry())
    for name in ("aaa.json", "zzz.json"):
        (path.parent / name).write_bytes(path.read_bytes())
    assert {("duplicate", "aaa.json"), ("duplicate", "zzz.json")} == found(tmp_path)
    path.unlink()
    assert {("misplaced", "aaa.json"), ("duplicate", "zzz.json")} == found(tmp_path)


def test_values_beside_a_file_that_cannot_be_read_may_be_its_own(tmp_path):
    """Which the line says, so that nobody deletes them."""
    path = corpus.write(tmp_path / "c", entry(case_of(made(), tmp_path)))
    path.write_text("{")
    (line,) = [finding.why for finding in check(tmp_path / "c").findings if finding.what == "unused"]
    assert "unless one that cannot be read does" in line


def test_damaged_values_are_found(tmp_path):
    """Of the right size, which reading an entry does not notice."""
    path = corpus.write(tmp_path / "c", entry(case_of(made(), tmp_path)))
    (name,) = files_of(tmp_path / "c")
    (tmp_path / "c" / name).write_bytes(b"x" * 40)
    assert {("unreadable", path.name)} == found(tmp_path / "c")


def test_a_writer_at_work_left_nothing_behind(tmp_path, monkeypatch):
    """Its temporary file is there as long as it holds the lock, and the check waits for that."""
    corpus.write(tmp_path, entry())
    waited = []
    temporary = next(tmp_path.rglob("mine")) / ".abcd1234.tmp"
    temporary.write_text("{")
    real = fcntl.flock

    def flock(descriptor, how):
        temporary.unlink(missing_ok=True)  # the writer ends while the check waits
        waited.append(how)
        real(descriptor, how)

    monkeypatch.setattr(files.fcntl, "flock", flock)
    assert set() == found(tmp_path)
    assert [fcntl.LOCK_EX] == waited


def test_journals_of_the_dead_and_of_the_living(tmp_path):
    """A record whose owner is gone is told, with what was under test; one in use, an empty and a torn one are not."""
    folder = tmp_path / ".journal"
    alive, idle = Journal(folder, "alive"), Journal(folder, "idle")
    alive.begin(SMALL, ("torch",), "cpu")
    (folder / "dead.json").write_bytes(msgspec.json.encode(Record(LARGE, ("mine.py:mask",), "cpu")))
    (folder / "torn.json").write_bytes(msgspec.json.encode(Record(LARGE, ("mine.py:mask",), "cpu"))[:50])
    (folder / "pipe.json").symlink_to("/dev/zero")
    before = everything(tmp_path)
    (finding,) = check(tmp_path).findings
    assert ("left behind", "dead.json") == (finding.what, finding.path.name)
    assert "top_k_mask_logits on mine.py:mask" in finding.why
    assert before == everything(tmp_path)
    for journal in (alive, idle):
        journal.close()


def merged(source, target):
    return [(what, path.name) for what, path, _ in merge(source, target)]


def test_merging_adds_replaces_and_keeps(tmp_path):
    """By signature, the smaller case wins; a second time changes nothing; the source is as it was."""
    a, b = tmp_path / "a", tmp_path / "b"
    nan, inf = replace(VERDICT, kind="wrong_nan"), replace(VERDICT, kind="wrong_inf")
    corpus.write(a, entry(SMALL)), corpus.write(a, entry(LARGE, nan)), corpus.write(a, entry(SMALL, inf))
    corpus.write(b, entry(LARGE)), corpus.write(b, entry(SMALL, nan))
    before = contents(a)
    assert ["added", "kept", "replaced"] == sorted(what for what, _ in merged(a, b))
    assert [SMALL] * 3 == [found.subject for _, found in corpus.entries(b)]
    after = contents(b)
    assert {"kept"} == {what for what, _ in merged(a, b)}
    assert after == contents(b)
    assert before == contents(a)


def test_merging_goes_by_signature_and_not_by_name(tmp_path):
    """A misplaced file finds its place; several of one signature are one."""
    path = corpus.write(tmp_path / "a", entry(LARGE))
    path.rename(tmp_path / "a" / "here.json")
    (tmp_path / "a" / "there.json").write_bytes((tmp_path / "a" / "here.json").read_bytes())
    assert [("added", "here.json"), ("kept", "there.json")] == merged(tmp_path / "a", tmp_path / "b")
    assert [corpus.path_of(tmp_path / "b", entry(LARGE).signature)] == corpus.paths(tmp_path / "b")


def test_merging_brings_values(tmp_path):
    """And takes those away that nothing needs any more; the entry is whole without the source."""
    x = made(shape=(2, 7))
    corpus.write(tmp_path / "a", entry(case_of(x, tmp_path)))
    corpus.write(tmp_path / "b", entry(case_of(made(shape=(3, 9)), tmp_path)))
    assert ["replaced"] == [what for what, _ in merged(tmp_path / "a", tmp_path / "b")]
    for name in everything(tmp_path / "a"):
        (tmp_path / "a" / name).unlink()
    checked = check(tmp_path / "b")
    assert ([], 1) == (checked.findings, len(files_of(tmp_path / "b")))
    ((_, values),) = stored.all_of(checked.entries[0][1].subject)
    assert bits(x) == bits(stored.values(values))


def test_what_cannot_be_read_is_told_and_nothing_is_lost(tmp_path):
    """Of a source it is passed by; in the target it is moved aside; damaged values bring no entry."""
    a, b = tmp_path / "a", tmp_path / "b"
    path = corpus.write(a, entry())
    corpus.write(a, entry(case_of(made(), tmp_path), replace(VERDICT, kind="wrong_nan")))
    (a / files_of(a)[0]).write_bytes(b"x" * 40)
    (a / "torn.json").write_text("{")
    there = corpus.path_of(b, entry().signature)
    there.parent.mkdir(parents=True)
    there.write_text('{"format": 99}')
    told = list(merge(a, b))
    assert ["added", "unreadable", "unreadable"] == sorted(what for what, _, _ in told)
    assert "format 99" in next(why for what, _, why in told if what == "added")
    assert '{"format": 99}' == there.with_name(f"{there.name}.unreadable").read_text()
    assert 2 == len(everything(b))
    assert corpus.read(path) == corpus.read(there)


@pytest.mark.parametrize("fails_at", range(4))
def test_a_merge_that_is_killed_loses_nothing_and_can_be_run_again(tmp_path, monkeypatch, fails_at):
    """Wherever it ends: before any rename, after values and before their entry, between two entries."""
    a, b = tmp_path / "a", tmp_path / "b"
    corpus.write(a, entry(case_of(made(shape=(2, 3)), tmp_path)))
    corpus.write(a, entry(SMALL, replace(VERDICT, kind="wrong_nan")))
    corpus.write(b, entry(case_of(made(shape=(3, 9)), tmp_path)))
    first = {path.name: found for path, found in corpus.entries(b)}
    whole, rename, count = contents(a), os.replace, itertools.count()

    def replaces(*args):
        if next(count) == fails_at:
            raise KeyboardInterrupt
        rename(*args)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replaces)
        if fails_at < 3:
            with pytest.raises(KeyboardInterrupt):
                merged(a, b)
        else:
            merged(a, b)
    assert whole == contents(a)
    assert set(first) <= {path.name for path in corpus.paths(b)}
    assert not [finding for finding in check(b).findings if finding.what == "unreadable"]
    merged(a, b)
    assert [] == [f for f in check(b).findings if f.what != "unused"]
    assert {found.signature: corpus.portable(found) for _, found in corpus.entries(a)} == {
        found.signature: corpus.portable(found) for _, found in corpus.entries(b)
    }


OPEN, FIXED, RAW = entry(MIDDLE), entry(MIDDLE, status="fixed"), entry(MIDDLE, reduced=False)
CHOICES = {
    "smaller": (OPEN, entry(SMALL), entry(SMALL)),
    "larger": (OPEN, entry(LARGE), None),
    "reduced before smaller": (entry(SMALL, reduced=False), OPEN, OPEN),
    "unreduced never": (OPEN, entry(SMALL, reduced=False), None),
    "fails again in another case": (FIXED, entry(LARGE), entry(LARGE)),
    "fixed elsewhere in another case": (OPEN, entry(SMALL, status="fixed"), None),
    "the same case was fixed elsewhere": (OPEN, FIXED, FIXED),
    "the same case is open elsewhere": (FIXED, OPEN, None),
    "fixed before unreduced": (entry(SMALL, reduced=False), FIXED, FIXED),
    "unreduced does not reopen": (FIXED, entry(SMALL, reduced=False), None),
    "a note is kept": (entry(LARGE, note="old"), entry(SMALL), entry(SMALL, note="old")),
    "both notes are kept": (entry(LARGE, note="old"), entry(SMALL, note="new"), entry(SMALL, note="new\nold")),
    "a note comes along": (OPEN, entry(LARGE, note="more"), entry(MIDDLE, note="more")),
    "equal": (entry(note="a\n\nb"), entry(note="a\n\nb"), None),
}


@pytest.mark.parametrize("what", CHOICES)
def test_which_of_two_entries_is_better(what):
    """As DESIGN's statuses have it."""
    there, other, expected = CHOICES[what]
    assert expected == better(there, other)


VARIANTS = [
    entry(case, status=status, reduced=reduced, note=note, environment={"gpu": gpu})
    for case in (SMALL, MIDDLE)
    for status, reduced in (("open", True), ("open", False), ("fixed", True), ("fixed", False))
    for note in ("", "a", "b\n\na")
    for gpu in ("x", "y")
]


def test_taking_the_better_twice_changes_nothing_and_both_ways_give_the_same_call():
    """For any two of many."""
    for there, other in itertools.product(VARIANTS, repeat=2):
        once = better(there, other) or there
        assert better(once, other) is None, (there, other)
        back = better(other, there) or other
        assert (once.subject, once.status, once.environment) == (back.subject, back.status, back.environment)
        assert set(once.note.split()) == {*there.note.split(), *other.note.split()}


def test_counts(tmp_path):
    """By any key, in its order; a build has no size; values in files count once."""
    verdict = Verdict("build_error", "m", Evidence(error="nvrtc: no"))
    build = Build("top_k_mask_logits", {}, "sm_80")
    x = stored.put(made(), tmp_path)
    twice = replace(mask_case(2, 5, fill=Fill("file", file=x)))
    entries = [
        entry(SMALL),
        entry(LARGE, reduced=False),
        entry(twice, context=(twice,), status="fixed"),
        replace(entry(build, verdict), signature=signature(build, "mine", verdict)),
    ]
    found = corpus_care.stats(entries, lambda e: e.verdict.kind)
    assert ["build_error", "wrong_set"] == list(found)
    assert (1, 0, []) == (found["build_error"].entries, found["build_error"].unreduced, found["build_error"].sizes)
    wrong = found["wrong_set"]
    assert (3, 1, {"open": 2, "fixed": 1}) == (wrong.entries, wrong.unreduced, dict(wrong.status))
    assert ([8, 12000, 40], 40) == (wrong.sizes, wrong.stored)


def test_what_is_known_of_one_case_is_kept_whichever_corpus_knows_it():
    """The rate of more runs and the fuller explanation; of another case they say nothing."""
    part, full = Explanation((), judged=90, complete=False), Explanation((), judged=50)
    bare, told = entry(SMALL), entry(SMALL, explanation=part, rate=measured(3, 20))
    both = replace(told, explanation=full, rate=measured(30, 100))
    assert [None, told] == [better(told, bare), better(bare, told)]
    assert replace(told, explanation=full) == better(told, replace(both, rate=None))
    assert both == better(told, both)
    assert better(both, told) is None
    assert better(entry(SMALL), entry(MIDDLE, explanation=full)) is None
    assert bare == better(entry(MIDDLE, explanation=full), bare)
