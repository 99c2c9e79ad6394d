"""A campaign against one planted fault, and what it came to."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from harness import corpus
from harness.corpus import Entry
from harness.events import Event
from harness.fuzz import Campaign, Config
from harness.sandbox import Limits


def limits(hangs: bool) -> Limits:
    """Short for a kernel that hangs, since each judgement of it costs them. Any other may be on a busy machine, and is not to
    be called hung for that."""
    return Limits(run=3.0, first_call=20.0) if hangs else Limits()


@dataclass(frozen=True)
class Hunt:
    """entries: the corpus afterwards. cases, seconds: until the first failure was seen; None when none was.
    all_seconds: of the whole campaign."""

    entries: list[Entry]
    cases: int | None
    seconds: float | None
    all_seconds: float
    events: list[Event]


def hunt(
    operator: str,
    spec: str,
    *,
    seed: int,
    cases: int,
    folder: Path,
    after: int,
    device: str = "cpu",
    hangs: bool = False,
) -> Hunt:
    """Fuzz one implementation into an empty corpus until it fails, for `cases` cases at most, and for `after` more."""
    start = time.monotonic()
    events: list[Event] = []
    first: list[tuple[int, float]] = []

    def emit(event: Event) -> None:
        events.append(event)
        if event["event"] == "finding" and not first:
            first.append((campaign.cases, time.monotonic() - start))
            campaign.config = replace(config, cases=min(cases, campaign.cases + after))

    config = Config(
        (operator,), {operator: (spec,)}, device, seconds=None, cases=cases, seed=seed, corpus=folder, builds=False,
        limits=limits(hangs), shrink_seconds=3600.0,  # the number of judgements decides, not the clock
    )  # fmt: skip
    campaign = Campaign(config, emit)
    campaign.run()
    entries = [entry for _, entry in corpus.entries(folder) if isinstance(entry, Entry)]
    seen, after = first[0] if first else (None, None)
    return Hunt(entries, seen, after, time.monotonic() - start, events)
