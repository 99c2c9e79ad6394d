"""The command `warpcheck reduce`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
from rich.markup import escape

from harness import command
from harness.case import Subject
from harness.command import DEVICE, ENTRY, FINDINGS, TIMEOUT, Duration, Telling, clear_errors, say
from harness.corpus import weight
from harness.reduce import told
from harness.reduce_entry import Reduced, reduce_entry
from harness.replay import Replayer
from harness.sandbox import Limits


@click.command(name="reduce")
@ENTRY
@click.option("--time", "seconds", type=Duration(), default="5m", show_default=True, help="Stop after this long.")
@click.option(
    "--judgements", type=click.IntRange(1), default=20_000, show_default=True, help="Stop after so many judgements."
)
@DEVICE
@TIMEOUT
@clear_errors
def reduce_command(path: Path, seconds: float, judgements: int, device: str, timeout: float) -> None:
    """Make an entry's case as small as it gets: one that a campaign left unreduced, that was imported, or written by hand.

    \b
    warpcheck reduce corpus/top_k_mask_logits/mine.mask/wrong_set-….json
    warpcheck reduce imported.json --time 30m

    Features go one by one, sizes get smaller, fills become plainer, then explicit values, which become zero, one and small
    integers. Every step keeps the failure's kind and words (of one that comes and goes, also its rate), and the last is
    confirmed in a process that has judged nothing. What is reached is a local minimum: no single step from it still fails.
    Of a build, flags and architectures go; for its source see `warpcheck reduce-source`.

    Every smaller case is in the file at once; an explanation goes, since it was of a larger one. Ctrl-C keeps the smallest so
    far; run again, it goes on from there.

    Exit status: 0 reduced, 1 the failure does not show here, 2 the entry cannot be read, 125 it cannot run here.
    """
    started = time.monotonic()
    where = command.device_of(device)
    with Replayer(where, limits=Limits(run=timeout)) as replayer, Telling("judging it as it is …") as tell:

        def progress(calls: int, subject: Subject) -> None:
            tell(f"{time.monotonic() - started:.0f} s, {calls} judgements, now {_size(subject)} …")

        try:
            found = reduce_entry(path, replayer, seconds=seconds, calls=judgements, told=progress)
        except KeyboardInterrupt:
            say(f"interrupted; {escape(str(path))} has the smallest case so far: run it again to go on")
            sys.exit(FINDINGS)
    _tell(path, found, time.monotonic() - started)


def _size(subject: Subject) -> str:
    size, text = weight(subject)
    return f"{size} bytes of tensors, {text} of text"


def _tell(path: Path, found: Reduced, seconds: float) -> None:
    if found.lost:
        raise command.usage(f"{path}: changed by somebody else meanwhile; run it again")
    if found.unconfirmed:
        say("not reduced: a fresh process does not show what was left; the entry is as it was", to_stderr=True)
        sys.exit(FINDINGS)
    say(f"removed  {escape(told(found.removed)) or 'nothing'}")
    say(f"left     {_size(found.entry.subject)}")
    if found.entry.rate is not None:
        say(f"rate     {found.entry.rate}")
    ends = "a local minimum" if found.complete else "no local minimum yet: run it again to go on"
    say(f"{found.calls} judgements, {seconds:.0f} s; {ends}")
    if found.merged:
        say(f"{escape(str(path))} is gone: the same bug, no larger, is in {escape(str(found.path))}")
    else:
        say(f"[bold]{escape(str(found.entry.signature))}[/]\n{escape(str(found.path))}")
