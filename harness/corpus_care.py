"""Looking after a corpus: what is wrong with its files, several machines' findings into one, and how much there is.

Nothing here judges or prints; whoever calls does.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from harness import corpus, files, journal, stored
from harness.case import Case, CaseError, total_bytes
from harness.corpus import Entry
from harness.explanation import Explanation
from harness.rate import Rate
from harness.signature import Signature

What = Literal["unreadable", "left behind", "duplicate", "misplaced", "no implementation", "now passes", "unused"]
"""unreadable: no entry, and maybe one that is lost. left behind: by a run that was killed, or moved out of a writer's way.
duplicate: the signature has another file. misplaced: the name is not the signature's, so that no writer would find it. no
implementation: nothing that it could be judged on. now passes: open, and should be marked fixed. unused: values that no
entry has."""


@dataclass(frozen=True)
class Finding:
    """Something that a person should look at, in one line."""

    what: What
    path: Path
    why: str


_TEMPORARY = re.compile(re.escape(files.PREFIX) + r"\w{8}" + re.escape(files.SUFFIX), re.ASCII)


def leftovers(folder: Path) -> Iterator[Finding]:
    """What runs that were killed left below a folder, and files that were moved aside. Nothing is changed."""
    for path in _below(folder, "*"):
        if _TEMPORARY.fullmatch(path.name):
            with files.locked(path.parent):  # who writes holds the lock
                if os.path.lexists(path):
                    yield Finding("left behind", path, "half a file, of a writer that was killed; delete it")
        elif f".json{corpus.ASIDE}" in path.name:
            yield Finding("left behind", path, "it had an entry's name and could not be read; mend or delete it")
        elif path.parent.name == journal.FOLDER and path.suffix == ".json":
            yield from _abandoned(path)


def _below(folder: Path, pattern: str) -> list[Path]:
    """In a stable order, without what is in hidden folders, other than journals."""

    def hidden(path: Path) -> bool:
        return any(p.startswith(".") and p != journal.FOLDER for p in path.relative_to(folder).parts[:-1])

    return sorted(path for path in folder.rglob(pattern) if not hidden(path))


def _abandoned(path: Path) -> Iterator[Finding]:
    """A journal whose owner is gone, if it names what was under test."""
    try:
        with files.opened(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            record = msgspec.json.decode(file.read(corpus.MAX_ENTRY_BYTES), type=journal.Record)
    except (OSError, CaseError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return  # in use; or it names nothing, and the next campaign removes it
    what = f"{record.subject.operator} on {', '.join(record.specs)}"
    yield Finding(
        "left behind", path, f"a run ended while it judged {what}; the next campaign on this corpus judges it first"
    )


@dataclass
class Checked:
    """What was found in a folder, and the entries that can be read."""

    findings: list[Finding]
    entries: list[tuple[Path, Entry]]


def check(folder: Path) -> Checked:
    """Everything that can be said of a corpus without judging. The folder may be a part of one."""
    found = Checked(list(leftovers(folder)), [])
    by_signature: dict[Signature, list[Path]] = {}
    used: set[Path] = set()
    for path, entry in corpus.entries(folder):
        if isinstance(entry, Entry):
            used |= {path.parent / name for name in corpus.values_of(entry)}
        problem = entry if isinstance(entry, CaseError) else _damage(entry)
        if problem is not None or isinstance(entry, CaseError):
            found.findings.append(Finding("unreadable", path, str(problem).removeprefix(f"{path}: ")))
            continue
        found.entries.append((path, entry))
        by_signature.setdefault(entry.signature, []).append(path)
    for signature, paths in by_signature.items():
        right = corpus.path_of(Path(), signature).parts
        placed = [path for path in paths if Path(os.path.abspath(path)).parts[-len(right) :] == right]
        first = placed[0] if placed else paths[0]
        for path in paths:
            if path != first:
                found.findings.append(
                    Finding("duplicate", path, f"has the signature of {first}; `merge` keeps the smaller")
                )
            elif not placed:
                found.findings.append(Finding("misplaced", path, f"its signature's name is {Path(*right)}"))
    found.findings += _unused(folder, used, found.findings)
    return found


def _damage(entry: Entry) -> CaseError | None:
    """What is wrong with the bytes of an entry's stored values; their sizes are right."""
    try:
        for subject in (entry.subject, *entry.context):
            for _, values in stored.all_of(subject):
                stored.values(values)
    except CaseError as error:
        return error
    return None


def _unused(folder: Path, used: set[Path], findings: list[Finding]) -> Iterator[Finding]:
    unclear = {finding.path.parent for finding in findings if finding.what == "unreadable"}
    for path in _below(folder, f"*{stored.SUFFIX}"):
        if stored.NAME.fullmatch(path.name) and path not in used:
            perhaps = ", unless one that cannot be read does" if path.parent in unclear else "; delete it"
            yield Finding("unused", path, f"values that no entry beside it has{perhaps}")


Merged = Literal["added", "replaced", "kept", "unreadable"]
"""What became of an entry of a source: added, put in the place of the one that was there, or not needed."""


def merge(source: Path, target: Path) -> Iterator[tuple[Merged, Path, str]]:
    """Bring the entries below a folder into a corpus: what became of each, its file, and why.

    Each is written whole or not at all and the source is not touched, so that a merge that was ended can be run again; doing
    so twice changes nothing.
    """
    for path, entry in corpus.entries(source):
        if isinstance(entry, CaseError):
            yield "unreadable", path, str(entry).removeprefix(f"{path}: ")
            continue
        there = corpus.path_of(target, entry.signature)
        was, aside = os.path.lexists(there), ""
        try:
            if was:
                corpus.read(there)
        except CaseError as error:
            was, aside = False, f"; moved aside what was there ({str(error).removeprefix(f'{there}: ')})"
        try:
            written = corpus.write(target, entry, better)
        except CaseError as error:  # values that were damaged, or went away
            yield "unreadable", path, str(error)
            continue
        if written is None:
            yield "kept", path, f"{there} stays"
        else:
            yield ("replaced" if was else "added"), path, f"{there}{aside}"


def better(there: Entry, other: Entry) -> Entry | None:
    """Of two entries of one signature, the one to have, with the notes of both and, of one case, what either knows of it;
    None when that is `there` as it is.

    An entry that is open and reduced before one that is fixed, and that before one that is as it was found; then the smaller
    case. But of one case that stands open in one corpus and fixed in the other, somebody said so.
    """
    same = _text(there) == _text(other)
    stays = _rank(there)[same:] <= _rank(other)[same:]
    best, rest = (there, other) if stays else (other, there)
    status = "fixed" if same and "fixed" in (there.status, other.status) else best.status
    best = replace(best, status=status, note=_notes(best.note, rest.note))
    if same:
        best = replace(best, rate=_surer(best.rate, rest.rate), explanation=_fuller(best.explanation, rest.explanation))
    return None if corpus.portable(best) == corpus.portable(there) else best


def _rank(entry: Entry) -> tuple[object, ...]:
    """Smaller is better. The first part is the status's."""
    order = 1 if entry.status == "fixed" else 0 if entry.reduced else 2
    rest = msgspec.json.encode(
        corpus.portable(replace(entry, note="", status="open", rate=None, explanation=None)), order="deterministic"
    )
    return order, not entry.reduced, corpus.weight(entry.subject), _text(entry), rest


def _surer(a: Rate | None, b: Rate | None) -> Rate | None:
    return max(filter(None, (a, b)), key=lambda rate: (rate.runs, rate.failed), default=None)


def _fuller(a: Explanation | None, b: Explanation | None) -> Explanation | None:
    return max(
        filter(None, (a, b)),
        key=lambda found: (found.complete, found.judged, msgspec.json.encode(found, order="deterministic")),
        default=None,
    )


def _text(entry: Entry) -> bytes:
    """The calls of an entry, wherever their values lie."""
    whole = corpus.portable(entry)
    return b"\n".join(subject.key() for subject in (whole.subject, *whole.context))


def _notes(first: str, second: str) -> str:
    """The first, and the lines of the second that it lacks."""
    lines = first.splitlines()
    return "\n".join(
        [*([first] if first else []), *(line for line in second.splitlines() if line and line not in lines)]
    )


@dataclass
class Stats:
    """Counts of entries that have something in common."""

    entries: int = 0
    status: Counter[str] = field(default_factory=Counter)
    unreduced: int = 0
    sizes: list[int] = field(default_factory=list)
    """Bytes of the storages of each call."""
    stored: int = 0
    """Bytes of values in files."""

    def add(self, entry: Entry) -> None:
        self.entries += 1
        self.status[entry.status] += 1
        self.unreduced += not entry.reduced
        if isinstance(entry.subject, Case):
            self.sizes.append(total_bytes(entry.subject))
        values = {v.digest: stored.size_of(v) for s in (entry.subject, *entry.context) for _, v in stored.all_of(s)}
        self.stored += sum(values.values())


def stats(entries: list[Entry], key: Callable[[Entry], str]) -> dict[str, Stats]:
    """By what `key` says of an entry, in the order of that."""
    found: dict[str, Stats] = {}
    for entry in entries:
        found.setdefault(key(entry), Stats()).add(entry)
    return dict(sorted(found.items()))
