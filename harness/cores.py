"""How many cores there are to work with. Nothing is imported that imports torch: the pytest plugin asks before that."""

from __future__ import annotations

import os


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
