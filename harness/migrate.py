"""Older entries: one function a step, from the JSON of one format to that of the next.

A step works on what JSON gives (dicts, lists, numbers, text), since the structs of old formats are gone, and takes any
shape of it: what it makes is validated as every entry is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.case import FORMAT

Json = dict[str, Any]


def _with_stored_values(entry: Json) -> Json:
    """1 -> 2: values of a fill may be bit patterns, or lie in a file. All that was is still so; only numbers of the format
    that stand inside, where a person wrote them, are of the whole entry."""
    context = entry.get("context", [])
    inside = [entry.get("subject"), *(context if isinstance(context, list) else [])]
    for subject in inside:
        if isinstance(subject, dict) and subject.get("format") == 1:
            subject["format"] = 2
    return {**entry, "format": 2}


STEPS: dict[int, Callable[[Json], Json]] = {1: _with_stored_values}
"""Format -> the step to the next. There is one for each from the oldest that is read."""

OLDEST = min(STEPS)


def migrated(entry: Json) -> Json:
    """The entry in today's format. Its own has to be one from `OLDEST` to today's."""
    while (now := entry["format"]) != FORMAT:
        entry = STEPS[now](entry)
    return entry
