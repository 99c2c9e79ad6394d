"""What is under test right now, on disk before it runs: if everything dies, this file still names the case.

One file an engine, rewritten in place, empty between two subjects. Its owner holds a lock on it for as long as it lives,
however it ends, so a record whose lock is free was left behind. (Where the file system has no locks, records lie there
for a person, and none is taken for left behind.) Each journal has a file of its own name: none is ever opened twice.

A record is written into an empty file by one system call. Who is killed in the middle leaves the beginning of a JSON
object, which is no JSON object, of a subject that did not run yet. With `sync` the record is also forced to the disk, for
machines that a GPU can take down.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from harness.case import CaseError, Subject, validate

FOLDER = ".journal"


class Record(msgspec.Struct, frozen=True):
    """The subject under test, the specs it is judged on, and where."""

    subject: Subject
    specs: tuple[str, ...]
    device: str


class Journal:
    """Of one engine. Use `begin` before a subject runs and `end` when its verdict is known.

    The file is named `name` and something unique.
    """

    def __init__(self, folder: Path, name: str, *, sync: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.sync = sync
        while True:
            self._file, path = tempfile.mkstemp(".json", f"{name}-", folder)
            with contextlib.suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_EX)
            if os.fstat(self._file).st_nlink:
                break
            os.close(self._file)  # taken for an empty one left behind, before it was locked
        self.path = Path(path)

    def begin(self, subject: Subject, specs: tuple[str, ...], device: str) -> None:
        self.end()
        os.pwrite(self._file, msgspec.json.encode(Record(subject, specs, device)) + b"\n", 0)
        if self.sync:
            os.fdatasync(self._file)

    def end(self) -> None:
        os.ftruncate(self._file, 0)

    def close(self) -> None:
        """Nothing is under test any more: the file goes."""
        self.path.unlink(missing_ok=True)
        os.close(self._file)


def left_behind(folder: Path) -> Iterator[tuple[Path, Record]]:
    """Journals of engines that are gone and named a subject when they went; until the next one is asked for, nobody else
    is given the same. Who has judged one calls `discard`; it stays otherwise. Files that name nothing are removed.
    """
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(OSError), path.open("rb") as file:  # held by its owner, or gone meanwhile
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                record = msgspec.json.decode(file.read(), type=Record)
                validate(record.subject)
            except (msgspec.DecodeError, CaseError, RecursionError):
                discard(path)
                continue
            yield path, record


def discard(path: Path) -> None:
    """A record that was left behind has been looked into."""
    path.unlink(missing_ok=True)
