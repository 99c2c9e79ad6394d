"""How long a child of the sandbox may take."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol


@dataclass(frozen=True)
class Limits:
    """Seconds until a child counts as hung: `run` for one call. A first call on a GPU, or of a CUDA kernel on the CPU, may
    compile, and gets `first_call` more."""

    run: float = 20.0
    first_call: float = 60.0
    build: float = 180.0
    start: float = 180.0

    def shorter(self, kind: str) -> Limits:
        """What is enough to see a hang, or a build that does not end, once more."""
        if kind == "hang":
            return replace(self, run=max(1.0, self.run / 10), first_call=self.first_call / 4)
        return replace(self, build=max(1.0, self.build / 10)) if kind == "build_timeout" else self


class Limited(Protocol):
    """What waits by limits: an engine."""

    limits: Limits


@contextlib.contextmanager
def patience(engine: Limited, kind: str) -> Iterator[None]:
    """While looking for a failure of this kind again, wait for a part of the limits only, if it is one that waits."""
    limits = engine.limits
    engine.limits = limits.shorter(kind)
    try:
        yield
    finally:
        engine.limits = limits
