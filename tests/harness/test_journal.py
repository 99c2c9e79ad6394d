"""harness.journal: what was under test when everything died."""

# ruff: noqa: SIM300 - the expected value stands first

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from harness.case import Build, Case, View
from harness.journal import Journal, Record, discard, left_behind
from tests.harness.making import mask_case

CASE = mask_case()
SPECS = ("cuda", "triton")
ROOT = Path(__file__).parents[2]


def lost(folder):
    """The path of a journal whose owner went without a word."""
    journal = Journal(folder, "1-0")
    journal.begin(CASE, SPECS, "cuda")
    os.close(journal._file)  # as the end of a process does, however it comes
    return journal.path


def test_the_subject_stands_there_between_begin_and_end(tmp_path):
    """Exactly one record, whatever stood there before; nothing afterwards."""
    journal = Journal(tmp_path, "1-0")
    for subject in (mask_case(form="out", k=(1, 2)), CASE, Build("op", {"dtype": "float32"}, "sm_80")):
        journal.begin(subject, SPECS, "cuda")
        assert Record(subject, SPECS, "cuda") == msgspec.json.decode(journal.path.read_bytes(), type=Record)
        journal.end()
        assert b"" == journal.path.read_bytes()


def test_a_shorter_record_leaves_nothing_of_a_longer_one(tmp_path):
    """Even without an end between them."""
    journal = Journal(tmp_path, "1-0", sync=True)
    journal.begin(mask_case(form="out", k=(1, 2)), SPECS, "cuda")
    journal.begin(CASE, ("cuda",), "cpu")
    assert Record(CASE, ("cuda",), "cpu") == msgspec.json.decode(journal.path.read_bytes(), type=Record)


def test_closing_takes_the_file_away(tmp_path):
    """Nothing is left of a campaign that ended well."""
    journal = Journal(tmp_path / "new" / "folder", "1-0")
    journal.begin(CASE, SPECS, "cpu")
    journal.close()
    assert [] == list((tmp_path / "new" / "folder").iterdir())


def test_what_a_dead_process_left_is_found(tmp_path):
    """With its path, and it stays until it is discarded."""
    path = lost(tmp_path)
    for _ in range(2):
        assert [(path, Record(CASE, SPECS, "cuda"))] == list(left_behind(tmp_path))
    discard(path)
    assert [] == list(tmp_path.iterdir())


def test_what_a_living_process_has_under_test_is_left_alone(tmp_path):
    """One worker does not take another's journal away, be there a record in it or none."""
    busy, idle = Journal(tmp_path, "1-0"), Journal(tmp_path, "1-0")
    busy.begin(CASE, SPECS, "cuda")
    assert [] == list(left_behind(tmp_path))
    assert busy.path.exists()
    idle.begin(CASE, SPECS, "cpu")
    assert Record(CASE, SPECS, "cpu") == msgspec.json.decode(idle.path.read_bytes(), type=Record)


def test_two_that_start_at_once_do_not_judge_the_same(tmp_path):
    """While one looks into a record, nobody else is given it."""
    lost(tmp_path)
    taken = left_behind(tmp_path)
    assert next(taken)
    assert [] == list(left_behind(tmp_path))
    taken.close()
    assert 1 == len(list(left_behind(tmp_path)))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"\xff\xfe",
        b"[" * 200_000,
        msgspec.json.encode(Record(CASE, SPECS, "cuda"))[:-1],
        msgspec.json.encode(Record(Case("x", {}, (4,), {"t": View(0, "float32", (2,), (1,))}), (), "cpu")),
    ],
    ids=["empty", "brace", "null", "no text", "deep", "torn", "no valid case"],
)
def test_torn_files_are_taken_away(tmp_path, content):
    """They name no case, and a good one beside them is still found."""
    torn = lost(tmp_path)
    torn.write_bytes(content)
    lost(tmp_path)
    assert [Record(CASE, SPECS, "cuda")] == [record for _, record in left_behind(tmp_path)]
    assert not torn.exists()


def test_no_folder_is_no_journal(tmp_path):
    """A corpus that was never fuzzed."""
    assert [] == list(left_behind(tmp_path / "none"))


def test_a_new_journal_of_the_same_name_does_not_wipe_the_old_one(tmp_path):
    """In a container every campaign has the same process id; what the last one died of must survive the start of the next."""
    path = lost(tmp_path)
    assert path != Journal(tmp_path, "1-0").path
    assert [path] == [found for found, _ in left_behind(tmp_path)]


def test_a_journal_is_not_taken_for_left_behind_before_it_is_locked(tmp_path, monkeypatch):
    """Between the making of the file and its lock, another campaign may clear it away: then it is made again."""
    real, cleared = fcntl.flock, []

    def flock(file, how):
        if how == fcntl.LOCK_EX and not cleared:
            cleared.append(True)
            assert [] == list(left_behind(tmp_path))
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    journal = Journal(tmp_path, "1-0")
    assert cleared
    assert [journal.path] == list(tmp_path.iterdir())


def test_a_file_system_without_locks_keeps_everything(tmp_path, monkeypatch):
    """Journals are written, and none is taken for left behind."""

    def refuses(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuses)
    path = lost(tmp_path)
    assert [] == list(left_behind(tmp_path))
    assert Record(CASE, SPECS, "cuda") == msgspec.json.decode(path.read_bytes(), type=Record)


KILLER = """
import os, random, sys, time
from pathlib import Path
from harness.case import Case
from harness.journal import Journal
subjects = [Case("op", {"text": "x" * size}) for size in map(int, sys.argv[2:])]
for _ in range(40):
    if not (writer := os.fork()):
        journal = Journal(Path(sys.argv[1]), "1-0")
        while True:
            for subject in subjects:
                journal.begin(subject, ("cuda",), "cpu")
                journal.end()
                journal.begin(subject, ("cuda",), "cpu")
    time.sleep(random.uniform(0.002, 0.02))
    os.kill(writer, 9)
    os.waitpid(writer, 0)
"""
SIZES = (3_000_000, *(1, 300, 30_000) * 200)
"""Of records shorter than a page and of many: a kill can come between the pages of one write."""


def test_kill_9_at_any_moment_leaves_a_record_or_none(tmp_path):
    """The whole record of what was under test, or the beginning of one, which is cleared away."""
    subprocess.run([sys.executable, "-c", KILLER, tmp_path, *map(str, SIZES)], check=True, cwd=ROOT)
    whole = [
        msgspec.json.encode(Record(Case("op", {"text": "x" * size}), ("cuda",), "cpu")) + b"\n" for size in set(SIZES)
    ]
    left = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert all(any(record.startswith(text) for record in whole) for text in left.values())
    records = {path for path, text in left.items() if text in whole or text + b"\n" in whole}
    assert records
    assert records == {path for path, _ in left_behind(tmp_path)}
    assert records == set(tmp_path.iterdir())
