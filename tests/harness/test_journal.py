"""harness.journal: what was under test when everything died."""

# ruff: noqa: SIM300 - the expected value stands first

import os
import subprocess
import sys

import msgspec
import pytest

from harness.case import Build, Case, View
from harness.journal import Journal, Record, left_behind
from tests.harness.making import mask_case

CASE = mask_case()
SPECS = ("cuda", "triton")


@pytest.fixture(scope="module")
def gone():
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


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


def test_what_a_dead_process_left_is_found(tmp_path, gone):
    """With its path, so that it can be removed when it has been looked into."""
    Journal(tmp_path, f"{gone}-0").begin(CASE, SPECS, "cuda")
    assert [(tmp_path / f"{gone}-0.json", Record(CASE, SPECS, "cuda"))] == list(left_behind(tmp_path))


def test_what_a_living_process_has_under_test_is_left_alone(tmp_path):
    """One worker does not take another's journal away."""
    journal = Journal(tmp_path, f"{os.getpid()}-0")
    journal.begin(CASE, SPECS, "cuda")
    assert [] == list(left_behind(tmp_path))
    assert journal.path.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"\xff\xfe",
        b"[" * 200_000,
        msgspec.json.encode(Record(Case("x", {}, (4,), {"t": View(0, "float32", (2,), (1,))}), (), "cpu")),
    ],
    ids=["empty", "torn", "null", "no text", "deep", "no valid case"],
)
def test_torn_files_are_taken_away(tmp_path, gone, content):
    """They name no case, and a good one beside them is still found."""
    torn = tmp_path / f"{gone}-0.json"
    torn.write_bytes(content)
    Journal(tmp_path, f"{gone}-1").begin(CASE, SPECS, "cuda")
    assert [Record(CASE, SPECS, "cuda")] == [record for _, record in left_behind(tmp_path)]
    assert not torn.exists()


def test_no_folder_is_no_journal(tmp_path):
    """A corpus that was never fuzzed."""
    assert [] == list(left_behind(tmp_path / "none"))


def test_a_new_journal_of_the_same_name_does_not_wipe_the_old_one(tmp_path):
    """In a container every campaign has the same process id; what the last one died of must survive the start of the next."""
    name = f"{os.getpid()}-0"
    old = Journal(tmp_path, name)
    old.begin(CASE, SPECS, "cuda")
    os.close(old._file)  # the machine went down here
    Journal(tmp_path, name)
    assert any(path.stat().st_size for path in tmp_path.iterdir())
