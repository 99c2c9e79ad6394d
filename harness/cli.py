"""The command `warpcheck`. Exit status: 0 nothing new, 1 a finding, 2 usage; `repro` has its own, for git bisect."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from harness import __version__, corpus, display, doctor, gpus, implementations, jobs, operators, repro
from harness.case import CaseError
from harness.display import Progress
from harness.fuzz import Config
from harness.implementations import UnknownImplementation
from harness.log import EventLog
from harness.replay import Replayed, Replayer
from harness.sandbox import HarnessError, Limits, UnusableImplementation

FINDINGS, USAGE, CANNOT_RUN = 1, 2, 125


def _console(stderr: bool = False) -> Console:
    """On a terminal as wide as that; elsewhere wide enough that no line of a log is broken."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=400)


out, err = _console(), _console(stderr=True)

DEVICE = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Where kernels run. On cpu, Triton kernels run under Triton's interpreter and CUDA kernels are built only.",
)


class BadInput(click.ClickException):
    """An error of the user's: one line, exit 2."""

    exit_code = USAGE


def usage(message: object) -> BadInput:
    return BadInput(str(message).strip().replace("\n", " "))


def clear_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn what a user can get wrong into one line and exit 2. A bug of the harness keeps its traceback."""

    @wraps(command)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except (UnknownImplementation, UnusableImplementation, CaseError, repro.NoScript) as error:
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


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="warpcheck")
def main() -> None:
    """Find wrong GPU kernels: run them on generated calls, judge every result against a float64 oracle, keep each failure
    as the smallest call that shows it.

    \b
    warpcheck doctor                                what this machine can run
    warpcheck fuzz --time 60s                       everything that is built in
    warpcheck fuzz --impl ./mine.py:mask --time 30s your own kernel, which has the operator's signature
    warpcheck repro corpus/.../ENTRY.json           show a failure again
    """


@main.command()
@click.option("--operator", "operator", help="Only this operator (`warpcheck list` names them). [default: all]")
@click.option(
    "--impl",
    "specs",
    multiple=True,
    metavar="NAME|FILE.py:FUNCTION",
    help="Only this implementation; can be given more than once. A function of a file or module will do, if it has "
    "the operator's signature. [default: all that are known]",
)
@DEVICE
@click.option("--time", "seconds", type=Duration(), help="Stop after this long: 90s, 5m, 2h. [default: 60s]")
@click.option("--examples", type=click.IntRange(1), help="Stop after this many cases.")
@click.option(
    "--jobs",
    "workers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Campaigns side by side, each with its own seed; on several GPUs they take turns.",
)
@click.option("--seed", type=click.IntRange(0), help="Repeat a campaign's drawing. [default: random, and printed]")
@click.option(
    "--profile",
    type=click.Choice(["dev", "pr", "nightly"]),
    default="dev",
    show_default=True,
    help="How large calls may be: dev for seconds, nightly for hours.",
)
@click.option(
    "--corpus",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("corpus"),
    show_default=True,
    help="Where known failures are and new ones go.",
)
@click.option(
    "--log", type=click.Path(dir_okay=False, path_type=Path), help="Append every event to this file, as JSON lines."
)
@click.option("--legal-only", is_flag=True, help="Draw no calls that the operator's contract forbids.")
@click.option("--no-builds", is_flag=True, help="Do not compile for architectures that are not here.")
@click.option(
    "--timeout", type=Duration(), default="20s", show_default=True, help="A call that takes longer is a hang."
)
@clear_errors
def fuzz(
    operator: str | None,
    specs: tuple[str, ...],
    device: str,
    seconds: float | None,
    examples: int | None,
    workers: int,
    seed: int | None,
    profile: str,
    folder: Path,
    log: Path | None,
    legal_only: bool,
    no_builds: bool,
    timeout: float,
) -> None:
    """Look for failures until the time or the examples are used up.

    Failures that are in the corpus already are counted and passed by. Ctrl-C ends early and keeps what was found.
    Exit status: 0 nothing new, 1 new findings, 2 usage (or the harness itself failed on a case).
    """
    try:
        where = gpus.resolve(device)
        chosen = _targets(operator, specs)
    except ValueError as error:
        raise usage(error) from None
    if seconds is None and examples is None:
        seconds = 60.0
    config = Config(
        tuple(chosen),
        chosen,
        where,
        seconds=seconds,
        cases=examples,
        profile=profile,
        corpus=folder,
        seed=int.from_bytes(os.urandom(4), "big") if seed is None else seed,
        illegal=not legal_only,
        builds=not no_builds,
        limits=Limits(run=timeout),
    )
    interrupted = False
    with EventLog(log) as events, Progress(out) as progress:
        try:
            jobs.run(config, workers, events.tee(progress.emit))
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
        out.print(display.summary(progress.last, progress.findings, interrupted=interrupted))
    broken = progress.last is not None and progress.last.get("harness_failures")
    sys.exit(FINDINGS if progress.findings else USAGE if broken else 0)


def _targets(operator: str | None, specs: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Operator -> implementations. Raises ValueError for what does not exist."""
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


@main.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@DEVICE
@clear_errors
def replay(paths: tuple[Path, ...], device: str) -> None:
    """Judge entries again: files, or all below folders. [default: corpus]

    An open entry must still fail (one that passes is reported, so that someone marks it fixed); a fixed one must pass.
    Exit status: 0 as expected, 1 a fixed entry fails, 2 an entry cannot be read.
    """
    where = _device(device)
    chosen = list(paths) or [Path("corpus")]
    for path in chosen:
        if not path.exists():
            raise usage(f"{path}: no such file or folder")
    styles = {
        "as expected": "green",
        "now passes": "yellow",
        "fails": "bold red",
        "cannot run": "dim",
        "unreadable": "bold red",
    }
    counts: dict[str, int] = {}
    with Replayer(where) as replayer:
        for found in replayer.replay_all(chosen):
            counts[found.outcome] = counts.get(found.outcome, 0) + 1
            out.print(
                f"[{styles[found.outcome]}]{found.outcome:12}[/] {escape(str(found.path))} {_why(found)}",
                highlight=False,
                soft_wrap=True,
            )
    out.print(", ".join(f"{n} {what}" for what, n in counts.items()) or "no entries", highlight=False, soft_wrap=True)
    sys.exit(USAGE if "unreadable" in counts else FINDINGS if "fails" in counts else 0)


def _why(found: Replayed) -> str:
    if found.outcome in ("unreadable", "cannot run"):
        return f"[dim]({escape(found.verdict.message)})[/]"
    return f"[dim]{found.verdict.kind}[/]"


@main.command(name="repro")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--script", "target", type=click.Path(dir_okay=False, path_type=Path), help="Write a self-contained Python file."
)
@click.option(
    "--repeat", type=click.IntRange(1), help="Runs under each poison. [default: 1, or 10 for one that comes and goes]"
)
@DEVICE
@clear_errors
def repro_command(path: Path, target: Path | None, repeat: int | None, device: str) -> None:
    """Show a failure again.

    Exit status, fit for `git bisect run`: 0 passes, 1 reproduces, 125 cannot run here, 2 the entry cannot be read.
    """
    where = _device(device)
    entry = corpus.read(path)
    if target is not None:
        repro.write(entry, path, target)
        out.print(f"wrote {target}: python {target} exits 1 while the bug is there", highlight=False, soft_wrap=True)
    with Replayer(where) as replayer:
        verdict = replayer.judge(entry, repeat=repeat)
    if verdict.kind == "skip":
        err.print(f"cannot run here: {escape(verdict.message)}", highlight=False, soft_wrap=True)
        sys.exit(CANNOT_RUN)
    if verdict.failed:
        rate = f" ({verdict.evidence.failed} of {verdict.evidence.runs} runs)" if verdict.evidence.runs else ""
        out.print(
            f"[bold red]reproduces[/] {verdict.kind}{rate}: {escape(verdict.message)}", highlight=False, soft_wrap=True
        )
        sys.exit(FINDINGS)
    out.print("[green]passes[/]")


@main.command()
@click.argument("path", type=click.Path(path_type=Path))
@clear_errors
def show(path: Path) -> None:
    """Print what an entry says: the call, the failure, the evidence."""
    out.print(display.entry(corpus.read(path)), highlight=False, soft_wrap=True)


@main.command(name="list")
@click.option(
    "--corpus", "folder", type=click.Path(file_okay=False, path_type=Path), default=Path("corpus"), show_default=True
)
@clear_errors
def list_command(folder: Path) -> None:
    """Print the operators, their implementations, and the entries of the corpus."""
    for name in operators.names():
        out.print(f"[bold]{name}[/]  {' '.join(implementations.available(name))}", highlight=False, soft_wrap=True)
    for path, entry in corpus.entries(folder):
        if isinstance(entry, CaseError):
            out.print(f"  [red]unreadable[/] {escape(str(entry))}", highlight=False, soft_wrap=True)
        else:
            text = f"  {entry.status:5} {escape(str(entry.signature))}  [dim]{escape(str(path))}[/]"
            out.print(text, highlight=False, soft_wrap=True)


@main.command(name="doctor")
@clear_errors
def doctor_command() -> None:
    """Say what this machine can run, and why not the rest. Exit status 1 when something that should work does not."""
    healthy = True
    for check in doctor.checks():
        mark = {"ok": "[green]ok[/]    ", "absent": "[dim]absent[/]", "broken": "[bold red]broken[/]"}[check.state]
        out.print(f"{mark} [bold]{escape(check.name)}[/]: {escape(check.detail)}", highlight=False, soft_wrap=True)
        healthy = healthy and check.state != "broken"
    sys.exit(0 if healthy else FINDINGS)


def _device(device: str) -> str:
    try:
        return gpus.resolve(device)
    except ValueError as error:
        raise usage(error) from None


if __name__ == "__main__":
    main()
