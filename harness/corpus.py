"""Entries on disk: minimised failing cases, one JSON file each, in `<corpus>/<operator>/<implementation>/<slug>.json`.

An entry is written to a temporary file in its own folder, flushed, and renamed: a reader sees all of it or nothing, and
two workers that find the same bug leave one entry (the name is the signature's; the smaller case stays). Writers look
and replace under a lock on the folder; a file system without locks leaves a worker's larger case at worst.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from harness.case import FORMAT, Case, CaseError, Subject, total_bytes, validate
from harness.rate import Rate
from harness.signature import Signature
from harness.verdict import Verdict

MAX_ENTRY_BYTES = 4 << 20
"""A larger file is no entry: nothing in a case grows with its tensors."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is known of one bug."""

    format: int
    signature: Signature
    subject: Subject
    """The minimal case, or build."""
    verdict: Verdict
    implementation: str
    """The implementation's spec: how another process finds it. A file's path is relative to where it was found from."""
    device: str
    """"cpu" or "cuda": where it was found. A build needs neither."""
    status: Literal["open", "fixed"] = "open"
    """open: must still fail. fixed: must pass."""
    reduced: bool = True
    """False while it is the case as found: the campaign that found it did not live to shrink it."""
    context: tuple[Case, ...] = ()
    """Calls that have to run before it in the same process, for it to show."""
    rate: Rate | None = None
    """How often it shows, of a failure that comes and goes."""
    environment: dict[str, str] = {}
    """Where it was first seen: GPU, driver, CUDA, torch, triton, Python."""
    note: str = ""


def write(corpus: Path, entry: Entry) -> Path | None:
    """Add an entry. Returns its path, or None when the one of the same signature that is there stays.

    A reduced entry takes the place of an unreduced one, then the smaller case that of a larger. A fixed entry whose
    signature fails again, in a reduced case, is open again, with the new case; an unreduced one does not touch it. A
    note outlives all of that.
    """
    path = path_of(corpus, entry.signature)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.parent):
        with contextlib.suppress(CaseError):
            there = read(path)
            if not _gives_way(there, entry):
                return None
            entry = replace(entry, note=entry.note or there.note)
        _put(path, entry)
    return path


def _gives_way(there: Entry, entry: Entry) -> bool:
    if there.status == "fixed" or there.reduced != entry.reduced:
        return entry.reduced
    return weight(entry.subject) < weight(there.subject)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Alone among the writers of a folder, where its file system can lock one."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _put(path: Path, entry: Entry) -> None:
    """Write a file whole or not at all."""
    text = msgspec.json.format(msgspec.json.encode(entry, order="sorted"), indent=2) + b"\n"
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def remove(corpus: Path, signature: Signature, *, reduced: bool = False) -> None:
    """Take an unreduced entry out, if it is there; with `reduced`, a reduced one too.

    What is fixed, or has a note, is a person's and stays.
    """
    path = path_of(corpus, signature)
    with contextlib.suppress(CaseError, FileNotFoundError), _locked(path.parent):
        there = read(path)
        if there.status == "open" and not there.note and (reduced or not there.reduced):
            path.unlink()


def path_of(corpus: Path, signature: Signature) -> Path:
    """Where the entry of a signature lies."""
    safe = re.sub(r"[^\w.\-]+", "_", signature.implementation).lstrip(".")
    return corpus / signature.operator / safe / f"{signature.slug}.json"


def weight(subject: Subject) -> tuple[int, int]:
    """Smaller is better: bytes of memory, then length of the text."""
    return (total_bytes(subject) if isinstance(subject, Case) else 0, len(subject.key()))


def read(path: Path) -> Entry:
    """Read and validate an entry; nothing of the sizes it names is allocated.

    Raises CaseError with one line, which names the file.
    """
    entry = _decode(path, Entry)
    try:
        for subject in (entry.subject, *entry.context):
            validate(subject)
    except CaseError as error:
        raise CaseError(f"{path}: {error}") from None
    return entry


class _Head(msgspec.Struct):
    format: object = None


def _decode(path: Path, kind: type[Entry]) -> Entry:
    try:
        size = path.stat().st_size
        if size > MAX_ENTRY_BYTES:
            raise CaseError(f"{path}: {size} bytes; an entry has at most {MAX_ENTRY_BYTES}")
        text = path.read_bytes()
    except OSError as error:
        raise CaseError(f"{path}: {error.strerror or error}") from None
    try:
        head = msgspec.json.decode(text, type=_Head)
        if head.format != FORMAT:
            raise CaseError(f"{path}: format {head.format!r}; this version reads format {FORMAT}")
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CaseError(f"{path}: not an entry: {error}") from None


def paths(corpus: Path) -> list[Path]:
    """The files of all entries below a folder, in a stable order; hidden ones are not entries."""
    return sorted(
        p for p in corpus.glob("**/*.json") if not any(part.startswith(".") for part in p.relative_to(corpus).parts)
    )


def entries(corpus: Path) -> Iterator[tuple[Path, Entry | CaseError]]:
    """Every entry below a folder, or what is wrong with its file."""
    for path in paths(corpus):
        try:
            yield path, read(path)
        except CaseError as error:
            yield path, error
