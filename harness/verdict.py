"""What judging gives: a verdict, with its evidence. Pure data, the same in every process."""

from __future__ import annotations

from typing import Literal

import msgspec

from harness.normalise import first_error

Stage = Literal["build", "call", "run", "memory", "values", "repeat"]

STAGE_OF: dict[str, Stage] = {
    "build_error": "build",
    "build_crash": "build",
    "build_timeout": "build",
    "refused": "call",
    "accepted_illegal": "call",
    "unclear_error": "call",
    "device_error": "run",
    "process_died": "run",
    "hang": "run",
    "wrote_outside": "memory",
    "changed_input": "memory",
    "unwritten_output": "memory",
    "wrong_metadata": "memory",
    "wrong_nan": "values",
    "wrong_inf": "values",
    "divergence": "values",
    "wrong_set": "values",
    "nondeterministic": "repeat",
    "depends_on_poison": "repeat",
    "in_place_differs": "repeat",
    "layout_differs": "repeat",
    "order_differs": "repeat",
}
"""Every kind of failure, and the stage where it is seen."""

COSTLY = frozenset({"process_died", "hang", "device_error", "build_crash", "build_timeout"})
"""Kinds that cost a process each time they are shown."""


class Element(msgspec.Struct, frozen=True, omit_defaults=True):
    """The worst element of an output. Values are text, since JSON has no NaN: what repr() gives."""

    output: str
    index: tuple[int, ...]
    got: str
    want: str
    bound: str = "0.0"
    ratio: str = ""
    """Error divided by bound; "inf" where an element is wrong whatever the bound (an exact operator, a NaN or infinity where
    none belongs); nothing where there is nothing to compare with, or the value is right by chance."""


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """What speaks for the verdict."""

    worst: Element | None = None
    wrong: int = 0
    """Elements that fail, of `total`."""
    total: int = 0
    pattern: str = ""
    """Where they are: "all", "one element", "last column", "rows from 3", … (`harness.pattern`)."""
    error: str = ""
    """For failures that speak: the exception's type, or the signal, and its text, without addresses, paths and numbers."""
    log: str = ""
    """The compiler's output, a traceback or the last lines of a process, cut to `MAX_LOG`."""
    failed: int = 0
    """Of `runs` repeats of one call, those that failed, or, where none did, those whose bits were not the first one's;
    0 of 0 when it was not repeated."""
    runs: int = 0
    alive: bool = False
    """Of a device_error: the process that ran the kernel went on."""
    used_process: bool = False
    """Shows only in a process that ran other calls before (the entry lists them)."""


MAX_LOG = 20_000


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """kind is "pass", "skip", or a key of STAGE_OF; message is one line."""

    kind: str
    message: str = ""
    evidence: Evidence = Evidence()
    ratio: float = 0.0
    """The largest error divided by its bound, over all elements; 0 for exact operators, and where it is not finite."""
    vacuous: bool = False

    @property
    def failed(self) -> bool:
        return self.kind in STAGE_OF

    @property
    def costly(self) -> bool:
        """Whether it cost a process, or the time that a hang is given."""
        return self.kind in COSTLY and not self.evidence.alive

    @property
    def stage(self) -> Stage:
        return STAGE_OF[self.kind]


PASS = Verdict("pass")


def skip(reason: str) -> Verdict:
    return Verdict("skip", reason)


def build_error(tool: str, log: str) -> Verdict:
    """What a compiler's refusal comes to: `tool` names it, `log` is all that it said."""
    error = f"{tool}: {first_error(log)}"
    return Verdict("build_error", error, Evidence(error=error, log=log[-MAX_LOG:]))
