"""harness.files: what a user names is written whole or not at all, and where the name leads. Reading is in test_corpus."""

# ruff: noqa: SIM300 - the expected value stands first

import os
import threading

import pytest

from harness import files


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    """What was there stays when the disk is full, and nothing is left beside it."""
    path = tmp_path / "bug.py"
    files.write_for_user(path, b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_for_user(path, b"new")
    assert (b"old", [path]) == (path.read_bytes(), [*tmp_path.iterdir()])


def test_a_link_stays_a_link(tmp_path):
    """The file that it names is written, there or not."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "target")
    for data in (b"one", b"two"):
        files.write_for_user(link, data)
        assert (data, True) == ((tmp_path / "target").read_bytes(), link.is_symlink())


def test_a_pipe_is_written_into(tmp_path):
    """As /dev/stdout and the shell's >(...) are."""
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    files.write_for_user(pipe, b"data")
    reader.join()
    assert ([b"data"], True) == (read, pipe.is_fifo())
