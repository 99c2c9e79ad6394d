"""Entry -> what somebody else can do with it: one file that shows the bug, and the text of an issue around it.

A script needs torch and the implementation, not this project; it is to be read from top to bottom: the inputs, the call,
what was expected and why, what came. What stands in it beside those is what the failure's kind needs.
"""

from __future__ import annotations

from pathlib import Path

from harness.corpus import Entry
from harness.implementations import Implementation
from harness.repro.markdown import issue
from harness.repro.spell import NoScript
from harness.repro.writer import script

__all__ = ["NoScript", "issue", "script", "write"]


def write(entry: Entry, source: Path, target: Path, implementation: Implementation | None = None) -> None:
    """Write the script of an entry to a file. Raises NoScript."""
    target.write_text(script(entry, path=source.name, implementation=implementation), encoding="utf-8")
