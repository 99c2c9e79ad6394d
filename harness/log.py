"""The event log: one JSON object a line, appended and flushed as it happens, for programs to read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO

from harness.events import Emit, Event

PROGRESS_EVERY = 5.0
"""Seconds of the campaign between two progress events in the log."""


class EventLog:
    """Writes events to a file; without a path, nowhere."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: IO[str] | None = None
        self._next = 0.0

    def __enter__(self) -> EventLog:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, event: Event) -> None:
        if self._file is not None:
            self._file.write(json.dumps(event) + "\n")
            self._file.flush()

    def tee(self, emit: Emit) -> Emit:
        """A callback that logs an event (progress now and then) and passes it on."""

        def both(event: Event) -> None:
            if event["event"] != "progress":
                self.write(event)
            elif event["seconds"] >= self._next:
                self._next = event["seconds"] + PROGRESS_EVERY
                self.write(event)
            emit(event)

        return both
