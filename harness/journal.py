"""What is under test right now, on disk before it runs: if everything dies, this file still names the case.

One file an engine, rewritten in place. A write of a few hundred bytes by one system call is whole or absent for whoever
survives the process; with `sync` it is also forced to the disk, for machines that a GPU can take down.
"""

from __future__ import annotations

import os
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
    """Of one engine. Use `begin` before a subject runs and `end` when its verdict is known."""

    def __init__(self, folder: Path, name: str, *, sync: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.json"
        self.sync = sync
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)

    def begin(self, subject: Subject, specs: tuple[str, ...], device: str) -> None:
        text = msgspec.json.encode(Record(subject, specs, device)) + b"\n"
        os.pwrite(self._file, text, 0)
        os.ftruncate(self._file, len(text))
        if self.sync:
            os.fdatasync(self._file)

    def end(self) -> None:
        os.ftruncate(self._file, 0)

    def close(self) -> None:
        """Nothing is under test any more: the file goes."""
        os.close(self._file)
        self.path.unlink(missing_ok=True)


def left_behind(folder: Path) -> Iterator[tuple[Path, Record]]:
    """Journals of engines that are gone and named a case when they went. Empty or torn files of such engines are removed."""
    for path in sorted(folder.glob("*.json")):
        owner = path.name.split("-")[0]
        if owner.isdigit() and _alive(int(owner)):
            continue
        try:
            record = msgspec.json.decode(path.read_bytes(), type=Record)
            validate(record.subject)
        except (msgspec.DecodeError, CaseError, OSError):
            path.unlink(missing_ok=True)
            continue
        yield path, record


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
