"""Entries on disk: minimised failing cases, one JSON file each, in `<corpus>/<operator>/<implementation>/<slug>.json`.

An entry is written to a temporary file in its own folder, flushed, and renamed: a reader sees all of it or nothing, and
two workers that find the same bug leave one entry (the name is the signature's; the smaller case stays). Writers look
and replace under a lock on the folder; a file system without locks leaves a worker's larger case at worst. Values that lie
in files beside an entry (`harness.stored`) come before it and go after it. A file of an entry's name that cannot be read
is moved aside, never written over.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from harness import files, migrate, stored
from harness.case import FORMAT, Case, CaseError, Subject, total_bytes, validate
from harness.explanation import Explanation
from harness.normalise import without_folders
from harness.rate import Rate, measured
from harness.signature import Signature
from harness.verdict import Verdict

MAX_ENTRY_BYTES = 4 << 20
"""A larger file is no entry: a case spells out few values of its tensors, and says of the others how they are made."""


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
    minimal: bool = False
    """No single step from it still failed, when it was reduced; otherwise `warpcheck reduce` may go on."""
    context: tuple[Case, ...] = ()
    """Calls that have to run before it in the same process, for it to show."""
    rate: Rate | None = None
    """How often it shows, of a failure that comes and goes."""
    environment: dict[str, str] = {}
    """Where it was first seen: GPU, driver, CUDA, torch, triton, Python."""
    note: str = ""
    explanation: Explanation | None = None
    """Which neighbours of the case fail too; None as long as nobody has asked (`warpcheck explain`)."""

    @property
    def frequency(self) -> Rate | None:
        """How often it shows, as far as that is known: `rate`, or what the runs behind the verdict say, which were fewer.
        None of a failure that shows every time."""
        evidence = self.verdict.evidence
        return self.rate or (measured(evidence.failed, evidence.runs) if evidence.runs else None)


Choose: TypeAlias = "Callable[[Entry, Entry], Entry | None]"
"""(the entry that is there, one of the same signature) -> what shall be there, or None for what is."""


def write(corpus: Path, entry: Entry, choose: Choose | None = None) -> Path | None:
    """Add an entry, with the files of its values. Returns its path, or None when the one of the same signature that is there
    stays.

    A reduced entry takes the place of an unreduced one, then the smaller case that of a larger. A fixed entry whose
    signature fails again, in a reduced case, is open again, with the new case; an unreduced one does not touch it. A
    note outlives all of that. (`choose` decides otherwise.)
    """
    path = path_of(corpus, entry.signature)
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.locked(path.parent):
        there: Entry | None = None
        try:
            there = read(path)
        except CaseError:
            _set_aside(path)
        chosen = entry if there is None else (choose or _newer)(there, entry)
        if chosen is None:
            return None
        _put(path, chosen)
        if there is not None:
            _forget(there, path.parent)
    return path


def _newer(there: Entry, entry: Entry) -> Entry | None:
    if there.status == "fixed" or there.reduced != entry.reduced:
        better = entry.reduced
    else:
        better = weight(entry.subject) < weight(there.subject)
    return replace(entry, note=entry.note or there.note) if better else None


ASIDE = ".unreadable"
"""Ends the name of a file that had an entry's name and could not be read."""


def _set_aside(path: Path) -> None:
    if not os.path.lexists(path):
        return
    number = 1
    while os.path.lexists(target := path.with_name(f"{path.name}{ASIDE}" + (f"-{number}" if number > 1 else ""))):
        number += 1
    os.replace(path, target)


def _put(path: Path, entry: Entry) -> None:
    """Write an entry and the files of its values, whole or not at all."""
    for subject in _subjects(entry):
        stored.bring(subject, path.parent)
    files.write(path, msgspec.json.format(msgspec.json.encode(portable(entry), order="sorted"), indent=2) + b"\n")


def _forget(gone: Entry, folder: Path) -> None:
    """Remove files of values that only this entry of the folder used, which is no longer there. Needs the lock."""
    names = values_of(gone)
    if names:
        for path in folder.glob("*.json"):
            try:
                names -= values_of(read(path))
            except CaseError:
                return  # perhaps it is theirs
    stored.drop(names, folder)


def values_of(entry: Entry) -> set[str]:
    """Names of the files that an entry's values are in."""
    return {stored.name_of(values) for subject in _subjects(entry) for _, values in stored.all_of(subject)}


def _subjects(entry: Entry) -> tuple[Subject, ...]:
    return (entry.subject, *entry.context)


def portable(entry: Entry) -> Entry:
    """The entry as it is on disk, and as it compares: without where anything lies on this machine."""
    verdict = entry.verdict
    evidence = replace(verdict.evidence, log=without_folders(verdict.evidence.log))
    return replace(
        entry,
        subject=stored.portable(entry.subject),
        verdict=replace(verdict, message=without_folders(verdict.message), evidence=evidence),
        context=tuple(stored.portable(case) for case in entry.context),
    )


def update(path: Path, was: Entry, becomes: Entry, *, forget: bool = True) -> bool:
    """Put another entry into a file, if what is in it is still what was read. Returns whether it was.

    Not to `forget` leaves files of values that nobody uses any more, for who may need them again (`forget`). Raises CaseError
    when the file is no entry any more.
    """
    with files.locked(path.parent):
        if portable(read(path)) != portable(was):
            return False
        _put(path, becomes)
        if forget:
            _forget(was, path.parent)
    return True


def forget(gone: Entry, folder: Path) -> None:
    """Remove files of values that only this entry of the folder used."""
    with files.locked(folder):
        _forget(gone, folder)


def mark_fixed(path: Path, entry: Entry) -> bool:
    """Make an open entry a fixed one, if it is still what it was when it was read. Returns whether it was."""
    return entry.status == "open" and update(path, entry, replace(entry, status="fixed"))


def drop(path: Path, was: Entry) -> None:
    """Take the file of an entry away, if it is still what was read."""
    with contextlib.suppress(CaseError, FileNotFoundError), files.locked(path.parent):
        if portable(read(path)) == portable(was):
            path.unlink()
            _forget(was, path.parent)


def root_of(path: Path, signature: Signature) -> Path | None:
    """The corpus that an entry of this signature lies in, if its file lies where `write` puts it."""
    root = path.absolute().parent.parent.parent
    return root if path_of(root, signature) == path.absolute() else None


def remove(corpus: Path, signature: Signature, *, reduced: bool = False) -> None:
    """Take an unreduced entry out, if it is there; with `reduced`, a reduced one too.

    What is fixed, or has a note, is a person's and stays.
    """
    path = path_of(corpus, signature)
    with contextlib.suppress(CaseError, FileNotFoundError), files.locked(path.parent):
        there = read(path)
        if there.status == "open" and not there.note and (reduced or not there.reduced):
            path.unlink()
            _forget(there, path.parent)


def explain(path: Path, subject: Subject, explanation: Explanation) -> bool:
    """Put an explanation of `subject` into the entry of a file, and change nothing else. False when the entry has got
    another case by now, of which it says nothing. Raises CaseError when the file is no entry any more."""
    there = read(path)
    return there.subject == subject and update(path, there, replace(there, explanation=explanation))


def path_of(corpus: Path, signature: Signature) -> Path:
    """Where the entry of a signature lies."""
    safe = re.sub(r"[^\w.\-]+", "_", signature.implementation).lstrip(".")
    return corpus / signature.operator / safe / f"{signature.slug}.json"


def weight(subject: Subject) -> tuple[int, int]:
    """Smaller is better: bytes of memory, then length of the text."""
    return (total_bytes(subject) if isinstance(subject, Case) else 0, len(stored.portable(subject).key()))


def read(path: Path) -> Entry:
    """Read and validate an entry; nothing of the sizes it names is allocated.

    The values of its fills that lie in files are looked for beside it, and read when the call is made. Raises CaseError
    with one line, which names the file.
    """
    entry = _decode(path)
    try:
        for subject in _subjects(entry):
            validate(subject)
        context = tuple(stored.placed(case, path.parent) for case in entry.context)
        return replace(entry, subject=stored.placed(entry.subject, path.parent), context=context)
    except CaseError as error:
        raise CaseError(f"{path}: {error}") from None


class _Head(msgspec.Struct):
    format: object = None


def _decode(path: Path) -> Entry:
    text = files.read(path, MAX_ENTRY_BYTES, "an entry")
    try:
        found = msgspec.json.decode(text, type=_Head).format
        if found == FORMAT:
            return msgspec.json.decode(text, type=Entry)
        if type(found) is not int or not migrate.OLDEST <= found < FORMAT:
            shown = repr(found)[:40]
            raise CaseError(f"{path}: format {shown}; this version reads formats {migrate.OLDEST} to {FORMAT}")
        return msgspec.convert(migrate.migrated(msgspec.json.decode(text)), Entry)
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
