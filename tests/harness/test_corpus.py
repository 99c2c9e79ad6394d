"""harness.corpus: entries are written whole or not at all, and whatever else lies there is one clear line."""

# ruff: noqa: SIM300 - the expected value stands first

import contextlib
import json
import os
import threading
import tracemalloc

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace

from harness import corpus
from harness.case import FORMAT, Build, CaseError
from harness.corpus import MAX_ENTRY_BYTES, Entry
from harness.explanation import Explanation, Varied
from harness.operators import top_k_mask_logits
from harness.signature import signature
from harness.strategies import SCALES
from harness.verdict import Element, Evidence, Verdict
from tests.harness.making import drawn, mask_case
from tests.harness.test_case import HOSTILE, edited

VERDICT = Verdict(
    "wrong_set", "out[0, 1] is -inf", Evidence(Element("out", (0, 1), "-inf", "1.0"), 1, 10, "one element")
)
SMALL, LARGE = mask_case(1, 2), mask_case(50, 60)


def entry(case=SMALL, verdict=VERDICT, **rest):
    return Entry(FORMAT, signature(case, "mine", verdict), case, verdict, "mine.py:mask", "cpu", **rest)


def text(path):
    return path.read_bytes()


def everything(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_an_entry_reads_back_as_it_was_written(tmp_path):
    """And lies in a folder of its operator and implementation, named by its signature."""
    written = entry(context=(LARGE,), environment={"torch": "2"}, note="ü")
    path = corpus.write(tmp_path, written)
    assert written == corpus.read(path)
    assert tmp_path / "top_k_mask_logits" / "mine" / f"{written.signature.slug}.json" == path
    assert [path] == corpus.paths(tmp_path)


@drawn(40)
@given(top_k_mask_logits.cases(SCALES["cpu", "dev"]))
def test_any_drawn_case_can_be_an_entry(tmp_path_factory, case):
    """Equal after a round over the disk."""
    folder = tmp_path_factory.mktemp("corpus")
    assert entry(case) == corpus.read(corpus.write(folder, entry(case)))


def test_builds_can_be_entries(tmp_path):
    """With the failure's words for a signature."""
    verdict = Verdict("build_error", "m", Evidence(error="nvrtc: no"))
    build = Build("top_k_mask_logits", {"dtype": "float32"}, "sm_80")
    assert entry(build, verdict) == corpus.read(corpus.write(tmp_path, entry(build, verdict)))


def test_an_entry_is_readable_text_of_stable_order(tmp_path):
    """Indented, sorted, ended by a newline: fit for a diff. Other programs can read it."""
    path = corpus.write(tmp_path, entry())
    lines = path.read_text().splitlines()
    assert len(lines) > 20
    assert path.read_text().endswith("}\n")
    loaded = json.loads(path.read_text())
    assert sorted(loaded) == list(loaded)
    assert 0o644 == path.stat().st_mode & 0o777


def test_an_equal_or_larger_entry_does_not_replace_one(tmp_path):
    """Nothing is written, and None says so."""
    path = corpus.write(tmp_path, entry(SMALL))
    before = text(path)
    assert corpus.write(tmp_path, entry(LARGE)) is None
    assert corpus.write(tmp_path, entry(SMALL)) is None
    assert before == text(path)


def test_a_smaller_entry_replaces_a_larger_one(tmp_path):
    """There is one file, with the smaller case."""
    corpus.write(tmp_path, entry(LARGE))
    path = corpus.write(tmp_path, entry(SMALL))
    assert SMALL == corpus.read(path).subject
    assert 1 == len(everything(tmp_path))


def test_a_reduced_entry_replaces_an_unreduced_one_and_never_the_other_way(tmp_path):
    """Whatever their sizes."""
    corpus.write(tmp_path, entry(SMALL, reduced=False))
    path = corpus.write(tmp_path, entry(SMALL, reduced=True))
    assert corpus.read(path).reduced
    assert corpus.write(tmp_path, entry(SMALL, reduced=False)) is None


def test_a_reduced_entry_replaces_a_smaller_unreduced_one(tmp_path):
    """Which was never confirmed."""
    corpus.write(tmp_path, entry(SMALL, reduced=False))
    assert LARGE == corpus.read(corpus.write(tmp_path, entry(LARGE))).subject


@pytest.mark.parametrize("case", [SMALL, LARGE], ids=["smaller", "larger"])
def test_a_fixed_entry_that_fails_again_is_open_again_with_its_note(tmp_path, case):
    """Of whatever size its new case is: that one fails today."""
    corpus.write(tmp_path, entry(mask_case(7, 7), status="fixed", note="by a person"))
    path = corpus.write(tmp_path, entry(case))
    assert entry(case, note="by a person") == corpus.read(path)


def test_a_note_outlives_a_smaller_case(tmp_path):
    """Unless there is a new one."""
    corpus.write(tmp_path, entry(LARGE, note="old"))
    assert "old" == corpus.read(corpus.write(tmp_path, entry(mask_case(7, 7)))).note
    assert "new" == corpus.read(corpus.write(tmp_path, entry(SMALL, note="new"))).note


REMOVED = [
    ({"reduced": False}, True, True),
    ({}, False, True),
    ({"status": "fixed"}, False, False),
    ({"note": "by a person"}, False, False),
    ({"reduced": False, "note": "by a person"}, False, False),
]


@pytest.mark.parametrize(("rest", "by_default", "if_reduced"), REMOVED)
def test_what_remove_takes(tmp_path, rest, by_default, if_reduced):
    """Unreduced entries; reduced ones when asked; never a person's."""
    for reduced, goes in ((False, by_default), (True, if_reduced)):
        path = corpus.write(tmp_path, entry(**rest)) or corpus.path_of(tmp_path, entry().signature)
        corpus.remove(tmp_path, entry().signature, reduced=reduced)
        assert path.exists() != goes


def test_removing_what_is_not_there_is_no_error(tmp_path):
    """Another worker took it, or it is no entry."""
    corpus.remove(tmp_path, entry().signature)
    path = corpus.write(tmp_path, entry())
    path.write_text("{")
    corpus.remove(tmp_path, entry().signature, reduced=True)


def test_an_unreduced_finding_does_not_overwrite_a_fixed_entry_for_good(tmp_path):
    """A fixed entry with its note, the same signature found again unreduced and then taken back: the entry is there still."""
    fixed = entry(status="fixed", note="by a person")
    path = corpus.write(tmp_path, fixed)
    written = corpus.write(tmp_path, entry(LARGE, reduced=False))
    if written is not None:
        corpus.remove(tmp_path, fixed.signature)
    assert path.exists()
    assert "by a person" == corpus.read(path).note


def test_an_unreadable_file_gives_way_and_is_not_lost(tmp_path):
    """Half a file of the same name, or one of the future, is moved aside, where it is no entry; twice to two places."""
    path = corpus.path_of(tmp_path, entry().signature)
    path.parent.mkdir(parents=True)
    for text in ('{"format": 1, "sig', '{"format": 99}'):
        path.write_text(text)
        assert path == corpus.write(tmp_path, entry())
        assert entry() == corpus.read(path)
    assert [path] == corpus.paths(tmp_path)
    aside = [path.with_name(f"{path.name}.unreadable{more}") for more in ("", "-2")]
    assert ['{"format": 1, "sig', '{"format": 99}'] == [file.read_text() for file in aside]


def test_many_writers_leave_one_whole_entry(tmp_path):
    """Of one signature, at once: the smallest case stays, readers never see half an entry, and no temporary file is left."""
    cases = [mask_case(n, n + 1) for n in range(1, 9)]
    path = corpus.path_of(tmp_path, entry().signature)
    corpus.write(tmp_path, entry(mask_case(20, 20)))
    problems, done = [], threading.Event()

    def write(case):
        for _ in range(5):
            corpus.write(tmp_path, entry(case))

    def watch():
        while not done.is_set():
            try:
                corpus.read(path)
            except CaseError as error:
                problems.append(error)

    watcher = threading.Thread(target=watch)
    watcher.start()
    writers = [threading.Thread(target=write, args=(case,)) for case in reversed(cases)]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    watcher.join()
    assert [] == problems
    assert [path.relative_to(tmp_path).as_posix()] == everything(tmp_path)
    assert cases[0] == corpus.read(path).subject


def test_a_writer_looks_and_replaces_alone(tmp_path, monkeypatch):
    """The larger case of a writer that looked before the smaller one lay there does not end on top of it."""
    looked, put = threading.Event(), corpus._put

    def slowly(path, written):
        if written.subject == LARGE:
            looked.set()
            small.join(0.2)
        put(path, written)

    monkeypatch.setattr(corpus, "_put", slowly)
    small = threading.Thread(target=lambda: looked.wait(60) and corpus.write(tmp_path, entry(SMALL)))
    small.start()
    path = corpus.write(tmp_path, entry(LARGE))
    small.join()
    assert SMALL == corpus.read(path).subject


@pytest.mark.parametrize("broken", ["replace", "fsync"])
def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch, broken):
    """A full disk, a kill between: the old entry is whole, and no temporary file is mistaken for one."""
    path = corpus.write(tmp_path, entry(LARGE))
    before = text(path)

    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, broken, fails)
    with pytest.raises(OSError, match="No space"):
        corpus.write(tmp_path, entry(SMALL))
    assert before == text(path)
    assert [path] == corpus.paths(tmp_path)
    assert 1 == len(everything(tmp_path))


def test_hidden_files_and_folders_are_no_entries(tmp_path):
    """A temporary file of a writer that was killed, and the journal."""
    path = corpus.write(tmp_path, entry())
    (path.parent / ".abc.json").write_text("{}")
    (tmp_path / ".journal").mkdir()
    (tmp_path / ".journal" / "1-0.json").write_text("{}")
    assert [path] == corpus.paths(tmp_path)


def test_a_corpus_in_a_hidden_folder_works(tmp_path):
    """Only what is hidden below the corpus is left out."""
    path = corpus.write(tmp_path / ".warpcheck", entry())
    assert [path] == corpus.paths(tmp_path / ".warpcheck")


def test_a_corpus_that_is_not_there_is_empty(tmp_path):
    """No error."""
    assert [] == list(corpus.entries(tmp_path / "none"))


@contextlib.contextmanager
def sparing(limit=1 << 20):
    """Nothing large is allocated inside."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def broken(tmp_path, content):
    path = tmp_path / "entry.json"
    path.write_bytes(content)
    with pytest.raises(CaseError) as caught:
        corpus.read(path)
    message = str(caught.value)
    assert 1 == len(message.splitlines())
    assert str(path) in message, "a person has to know which file it is"
    return message


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"[]", b"\x00" * 100, b"\xff\xfe{}", b'"text"', b"{}", b"[" * 200_000, b'{"format":' * 90_000],
    ids=["empty", "brace", "null", "list", "zeros", "utf-16", "text", "object", "deep list", "deep object"],
)
def test_what_is_no_entry_is_one_line(tmp_path, content):
    """Whatever the file holds."""
    broken(tmp_path, content)


def test_half_an_entry_is_one_line(tmp_path):
    """Cut anywhere."""
    whole = msgspec.json.encode(entry())
    for cut in range(0, len(whole) - 1, 97):
        broken(tmp_path, whole[:cut])


def test_a_future_format_says_so_even_with_fields_of_the_future(tmp_path):
    """The format is looked at before the fields are."""
    future = json.loads(msgspec.json.encode(entry())) | {"format": FORMAT + 1, "colour": "blue"}
    assert f"format {FORMAT + 1}; this version reads formats 1 to {FORMAT}" in broken(
        tmp_path, json.dumps(future).encode()
    )


@pytest.mark.parametrize("other", [0, -1, 1.0, True, None, "1", [1], {"a": 1}, 10**30, "x" * 1000])
def test_a_format_that_never_was_is_refused(tmp_path, other):
    """In one short line, whatever stands there. (True and 1.0 are no 1.)"""
    message = broken(tmp_path, json.dumps(json.loads(msgspec.json.encode(entry())) | {"format": other}).encode())
    assert f"this version reads formats 1 to {FORMAT}" in message
    assert len(message) < 200 + len(str(tmp_path))


def test_a_file_of_100_megabytes_is_not_read(tmp_path):
    """Its size is enough."""
    path = tmp_path / "entry.json"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    with sparing(), pytest.raises(CaseError, match=str(MAX_ENTRY_BYTES)):
        corpus.read(path)


SPECIAL = {
    "a link to a device": (lambda path: path.symlink_to("/dev/zero"), "device or pipe"),
    "a pipe": (os.mkfifo, "device or pipe"),
    "a link to a folder": (lambda path: path.symlink_to("/"), "Is a directory"),
    "a link to itself": (lambda path: path.symlink_to(path), "symbolic links"),
    "a link to nothing": (lambda path: path.symlink_to("/no/such/file"), "No such file"),
}


@pytest.mark.parametrize("what", SPECIAL)
def test_what_is_no_file_is_not_opened(tmp_path, what):
    """A device that never ends, a pipe that nobody writes to: one line at once."""
    make, words = SPECIAL[what]
    make(tmp_path / "entry.json")
    with sparing(), pytest.raises(CaseError, match=words) as caught:
        corpus.read(tmp_path / "entry.json")
    assert 1 == len(str(caught.value).splitlines())


def test_a_link_to_an_entry_is_one(tmp_path):
    """Someone keeps them elsewhere."""
    path = corpus.write(tmp_path / "a", entry())
    (tmp_path / "b.json").symlink_to(path)
    assert entry() == corpus.read(tmp_path / "b.json")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_cases_are_one_line_with_the_files_name(tmp_path, name):
    """As the subject of an entry, and as its context."""
    good = json.loads(msgspec.json.encode(entry()))
    bad = json.loads(edited(**HOSTILE[name]))
    for changed in (good | {"subject": bad}, good | {"context": [bad]}, good | {"subject": bad, "format": 1}):
        with sparing():
            broken(tmp_path, json.dumps(changed).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"status": "closed"},
        {"extra": 1},
        {"device": 3},
        {"context": 3},
        {"verdict": {}},
        {"signature": {"operator": 1}},
    ],
)
def test_fields_of_an_entry_are_checked(tmp_path, change):
    """Unknown words, unknown fields, other types."""
    broken(tmp_path, json.dumps(json.loads(msgspec.json.encode(entry())) | change).encode())


def test_a_folder_or_nothing_is_one_line(tmp_path):
    """A path that cannot be read as a file."""
    for path in (tmp_path, tmp_path / "none.json", tmp_path / "none" / "x.json"):
        with pytest.raises(CaseError, match=path.name):
            corpus.read(path)


def test_one_bad_file_does_not_hide_the_others(tmp_path):
    """Every file gives an entry or its error."""
    path = corpus.write(tmp_path, entry())
    (path.parent / "aaa.json").write_text("{")
    assert [CaseError, Entry] == [type(found) for _, found in corpus.entries(tmp_path)]


def test_paths_stay_inside_the_corpus(tmp_path):
    """An implementation may have any name."""
    for name in ("../../x", "/etc/passwd", "..", ".hidden", "a b/c", ""):
        path = corpus.path_of(tmp_path, replace(entry().signature, implementation=name))
        assert path.resolve().is_relative_to(tmp_path.resolve() / "top_k_mask_logits")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(entry()))
        assert path in corpus.paths(tmp_path), name


def test_weight_prefers_less_memory():
    """Then less text; a build weighs nothing but its text."""
    assert corpus.weight(SMALL) < corpus.weight(LARGE)
    assert corpus.weight(mask_case()) < corpus.weight(mask_case(form="out_is_logits"))
    assert 0 == corpus.weight(Build("x", {}, "sm_80"))[0]


def test_an_explanation_changes_nothing_else(tmp_path):
    """Not the status nor the note; and what is said of another case than the one that is there is not written."""
    before = entry(note="by hand")
    path = corpus.write(tmp_path, before)
    told = Explanation((Varied("k", "any k (of 2 tried)", ("1", "2")),), judged=1)
    assert corpus.explain(path, SMALL, told)
    assert replace(before, explanation=told) == corpus.read(path)
    assert not corpus.explain(path, LARGE, Explanation(()))
    assert told == corpus.read(path).explanation
    assert [path.relative_to(tmp_path).as_posix()] == everything(tmp_path)


def test_a_smaller_case_has_no_explanation_yet(tmp_path):
    """What was said of the larger one does not hold for it."""
    path = corpus.write(tmp_path, entry(LARGE, explanation=Explanation(())))
    corpus.write(tmp_path, entry(SMALL))
    assert (SMALL, None) == (corpus.read(path).subject, corpus.read(path).explanation)


def test_no_folder_of_this_machine_is_on_disk(tmp_path):
    """A compiler's log names its headers by their files; the entry is the same one all the same."""
    log = "x.cu(3): error: no\n  declared at line 7 of /opt/cuda/include/cuda_fp16.h"
    found = entry(verdict=Verdict("build_error", "/opt/x/y.cu: no", Evidence(error="no", log=log)))
    path = corpus.write(tmp_path, found)
    assert "/opt" not in path.read_text()
    there = corpus.read(path).verdict
    assert ("y.cu: no", log.replace("/opt/cuda/include/", "")) == (there.message, there.evidence.log)
    assert corpus.update(path, found, replace(found, note="mine"))
    assert "mine" == corpus.read(path).note
