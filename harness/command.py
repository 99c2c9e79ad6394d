"""What the commands share: consoles, errors that are the user's, kinds of arguments, options."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.markup import escape

from harness import display, gpus, implementations, operators, repro
from harness.bench.campaign import NothingToTime
from harness.bench.workload import BadWorkload
from harness.build_campaign import NothingToBuild
from harness.case import CaseError
from harness.display import Face, Progress
from harness.events import Emit
from harness.implementations import UnknownImplementation
from harness.log import EventLog
from harness.operators import UnknownOperator
from harness.reduce_source import NoSource
from harness.replay import NotShown
from harness.sandbox import HarnessError, UnusableImplementation
from harness.sanitize import NothingToSanitize

FINDINGS, USAGE, CANNOT_RUN = 1, 2, 125


def _console(stderr: bool = False) -> Console:
    """On a terminal as wide as that; elsewhere wide enough that no line of a log is broken."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=400)


out, err = _console(), _console(stderr=True)


def say(what: Any, *, to_stderr: bool = False) -> None:
    """Print, with rich's markup."""
    (err if to_stderr else out).print(what, highlight=False, soft_wrap=True)


class BadInput(click.ClickException):
    """An error of the user's: one line, exit 2."""

    exit_code = USAGE


def usage(message: object) -> BadInput:
    return BadInput(str(message).strip().replace("\n", " "))


ERRORS = (
    UnknownOperator,
    UnknownImplementation,
    UnusableImplementation,
    NothingToBuild,
    NothingToSanitize,
    NothingToTime,
    BadWorkload,
    CaseError,
    NoSource,
    repro.NoScript,
)


def cannot_run(why: object) -> NoReturn:
    """End the command: what it was asked for is not possible on this machine, and nothing is known of it."""
    say(f"cannot run here: {escape(str(why))}", to_stderr=True)
    sys.exit(CANNOT_RUN)


def clear_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn what a user can get wrong into one line and exit 2; an entry that does not show its failure here, into one line
    and exit 1, or 125 where it cannot be judged. A bug of the harness keeps its traceback."""

    @wraps(command)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except NotShown as error:
            if error.cannot_run:
                cannot_run(error)
            say(f"the failure does not show here: {escape(str(error))}", to_stderr=True)
            sys.exit(FINDINGS)
        except ERRORS as error:
            raise usage(error) from None
        except OSError as error:
            if error.filename is None:
                raise
            raise usage(f"{error.filename}: {error.strerror}") from None

    return call


class Duration(click.ParamType):
    """90, 90s, 5m or 2h, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", str(value))
        if not match or float(match[1]) <= 0:
            self.fail(f"{value!r} is no duration; write 90s, 5m or 2h", param, ctx)
        return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


class OutputFile(click.Path):
    """A file to write, in a folder that is there: who waited for a result should not lose it to a slip."""

    def __init__(self, *, allow_dash: bool = False) -> None:
        super().__init__(dir_okay=False, allow_dash=allow_dash, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if str(path) != "-" and not path.parent.is_dir():
            self.fail(f"there is no folder {str(path.parent)!r}", param, ctx)
        return path


class Telling:
    """Progress on stderr: on a terminal one line that changes, elsewhere a line now and then."""

    def __init__(self, text: str = "") -> None:
        self._status = err.status(escape(text)) if err.is_terminal else None
        self._last = time.monotonic()

    def __enter__(self) -> Telling:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def __call__(self, text: str) -> None:
        if self._status is not None:
            self._status.update(escape(text))
        elif time.monotonic() - self._last > display.PLAIN_EVERY:
            self._last = time.monotonic()
            say(escape(text), to_stderr=True)


ENTRY = click.argument("path", metavar="ENTRY", type=click.Path(path_type=Path))
OPERATOR = click.option(
    "--operator", "operator", help="Only this operator (`warpcheck list` names them). [default: all]"
)
IMPL = click.option(
    "--impl",
    "specs",
    multiple=True,
    metavar="NAME|FILE.py:FUNCTION",
    help="Only this implementation; can be given more than once. A function of a file or module will do, if it has "
    "the operator's signature. [default: all that are known]",
)
DEVICE = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Where kernels run. On cpu, Triton kernels run under Triton's interpreter and CUDA kernels through g++.",
)
CORPUS = click.option(
    "--corpus",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("corpus"),
    show_default=True,
    help="Where known failures are and new ones go.",
)
TIMEOUT = click.option(
    "--timeout", type=Duration(), default="20s", show_default=True, help="A call that takes longer is a hang."
)
LOG = click.option(
    "--log", type=click.Path(dir_okay=False, path_type=Path), help="Append every event to this file, as JSON lines."
)


def device_of(choice: str) -> str:
    """ "cpu" or "cuda"."""
    try:
        return gpus.resolve(choice)
    except ValueError as error:
        raise usage(error) from None


def targets(operator: str | None, specs: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Operator -> implementations."""
    try:
        return _targets(operator, specs)
    except ValueError as error:
        raise usage(error) from None


def _targets(operator: str | None, specs: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    names = [operators.get(operator).NAME] if operator else operators.names()
    if not specs:
        return {name: tuple(implementations.available(name)) for name in names}
    files = [spec for spec in specs if ":" in spec]
    if files and len(names) > 1:
        raise ValueError(f"say which operator {files[0]} implements: --operator {'|'.join(names)}")
    chosen = {name: tuple(s for s in specs if s in files or s in implementations.available(name)) for name in names}
    for spec in specs:
        if not any(spec in found for found in chosen.values()):
            known = ", ".join(f"{name}: {' '.join(implementations.available(name))}" for name in names)
            raise ValueError(f"unknown implementation {spec!r}; there are {known}; or give FILE.py:FUNCTION")
    return {name: found for name, found in chosen.items() if found}


def campaign(run: Callable[[Emit], None], face: Face, log: Path | None) -> NoReturn:
    """Run one, show it, log it, sum it up, and exit with its status. Ctrl-C ends it early."""
    interrupted = False
    with EventLog(log) as events, Progress(out, face) as progress:
        try:
            run(events.tee(progress.emit))
        except KeyboardInterrupt:
            interrupted = True
        except HarnessError as error:
            raise usage(f"the harness failed, not a kernel: {error}") from None
        if progress.last is not None:
            events.write(
                {
                    **progress.last,
                    "event": "summary",
                    "interrupted": interrupted,
                    "new": [finding["signature"] for finding in progress.findings],
                }
            )
    if progress.last is not None:
        out.print(display.summary(face, progress.last, progress.findings, interrupted=interrupted))
    broken = progress.last is not None and progress.last.get("harness_failures")
    sys.exit(FINDINGS if progress.findings else USAGE if broken else 0)
