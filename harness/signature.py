"""Verdict and case -> signature: the key that says two failures are the same bug.

There are two of them. The `Bucket` of a failure as it was found says operator, implementation, kind and the family of
code paths; every bucket is looked into once. The `Signature` is that of the *minimal* case, and lists what could not be
turned off: "bfloat16, in_place, logits misaligned". One bug that shows for every dtype, layout and alias relation falls
into many buckets but has one signature, because its minimal case has none of them; and a bug that needs bfloat16 keeps
its own, however often its sister in float32 was found before.

Where a failure speaks (an exception, a compiler, a broken contract), its normalised text is the characteristic part
instead. Sizes, seeds, addresses and positions never take part.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

import msgspec

from harness import features
from harness.case import Build, Subject
from harness.verdict import Verdict


class Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    operator: str
    implementation: str
    kind: str
    error: str = ""
    traits: tuple[str, ...] = ()

    @property
    def slug(self) -> str:
        """A file name: readable, and unique by a hash of the whole."""
        digest = hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:8]
        words = "-".join([self.kind, *(self.traits or (self.error,))])
        return f"{re.sub(r'[^a-zA-Z0-9_]+', '-', words).strip('-')[:80]}-{digest}"

    def __str__(self) -> str:
        what = self.error or ", ".join(self.traits)
        return f"{self.operator}/{self.implementation} {self.kind}" + (f" ({what})" if what else "")


class Bucket(NamedTuple):
    operator: str
    implementation: str
    kind: str
    error: str
    traits: tuple[str, ...]


def speaks(verdict: Verdict) -> bool:
    """Whether the failure's own text tells it apart, so that the case's features need not."""
    return bool(verdict.evidence.error) and verdict.kind != "process_died"


def same(a: Verdict, b: Verdict) -> bool:
    """Whether two failures are of one kind and, where they speak, say the same."""
    return a.kind == b.kind and (a.evidence.error == b.evidence.error or not speaks(b))


NEEDS_HISTORY = ("needs other calls before it",)


def signature(subject: Subject, implementation: str, verdict: Verdict) -> Signature:
    """The signature of a failure whose case is minimal (one that needs a history has no minimal case)."""
    error = verdict.evidence.error
    traits = () if speaks(verdict) or isinstance(subject, Build) else features.traits(subject)
    if verdict.evidence.used_process:
        traits = NEEDS_HISTORY
    return Signature(subject.operator, implementation, verdict.kind, error, traits)


def bucket(subject: Subject, implementation: str, verdict: Verdict) -> Bucket:
    """Where a failure belongs as long as its case is not minimal."""
    traits = () if speaks(verdict) or isinstance(subject, Build) else features.coarse_traits(subject)
    return Bucket(subject.operator, implementation, verdict.kind, verdict.evidence.error, traits)
