"""Entry -> what somebody else can do with it: one file that shows the bug, and the text of an issue around it.

A script needs torch and the implementation, not this project; it is to be read from top to bottom: the inputs, the call,
what was expected and why, what came. What stands in it beside those is what the failure's kind needs.
"""

from __future__ import annotations

from harness.repro.markdown import issue
from harness.repro.spell import NoScript
from harness.repro.writer import script

__all__ = ["NoScript", "issue", "script"]
