"""The failures that are known: which signature each bucket of failures belongs to."""

from __future__ import annotations

from pathlib import Path

from harness import corpus
from harness.case import CaseError
from harness.corpus import Entry
from harness.signature import Bucket, Signature, bucket


class Ledger:
    """Known signatures and the buckets attributed to them, those of other workers on the same corpus included."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries: dict[Signature, Entry] = {}
        self.owner: dict[Bucket, Signature] = {}
        self.new: list[Signature] = []
        """Found by this campaign, in order."""
        self._read: dict[Path, tuple[int, int]] = {}
        """What each file was when it was last read."""
        self.refresh()

    def refresh(self) -> None:
        """Learn what is in the corpus now. Only open entries are known failures: a fixed one that fails is news."""
        for path in corpus.paths(self.folder):
            try:
                stat = path.stat()
                if self._read.get(path) == (version := (stat.st_mtime_ns, stat.st_ino)):
                    continue
                self._read[path] = version
                entry = corpus.read(path)
            except (CaseError, FileNotFoundError):
                continue
            if entry.status == "open" and entry.reduced:
                self.learn(entry)

    def learn(self, entry: Entry) -> None:
        """Take an entry's bucket for known."""
        self.entries[entry.signature] = entry
        self.owner.setdefault(bucket(entry.subject, entry.signature.implementation, entry.verdict), entry.signature)

    def withdraw(self, signature: Signature, owner: Signature) -> None:
        """A finding of this campaign is another's doing: its entry goes, its buckets are the other's."""
        corpus.remove(self.folder, signature, reduced=True)
        self.entries.pop(signature, None)
        self.new.remove(signature)
        for where, present in self.owner.items():
            if present == signature:
                self.owner[where] = owner

    def add(self, entry: Entry) -> bool:
        """Record a finding on disk. Returns whether it is new to the corpus, other workers' findings included."""
        self.refresh()
        fresh = entry.signature not in self.entries
        corpus.write(self.folder, entry)
        self.learn(entry)
        if fresh:
            self.new.append(entry.signature)
        return fresh
