"""The command `warpcheck`. Exit status: 0 nothing new, 1 a finding, 2 usage; `repro` has its own, for git bisect."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.markup import escape

from harness import __version__, campaigns, command, corpus, display, doctor, implementations, operators
from harness.case import CaseError
from harness.command import DEVICE, FINDINGS, USAGE, clear_errors, say
from harness.corpus_commands import corpus_group
from harness.explain_command import explain_command
from harness.import_command import import_command
from harness.reduce_command import reduce_command
from harness.replay import Replayed, Replayer
from harness.repro_command import repro_command
from harness.sanitize_command import sanitize_command
from harness.source_command import flatten_command, interesting_command, reduce_source_command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="warpcheck")
def main() -> None:
    """Find wrong GPU kernels: run them on generated calls, judge every result against a float64 oracle, keep each failure
    as the smallest call that shows it.

    \b
    warpcheck doctor                                what this machine can run
    warpcheck fuzz --time 60s                       everything that is built in
    warpcheck fuzz --impl ./mine.py:mask --time 30s your own kernel, which has the operator's signature
    warpcheck build                                 compile every variant for every architecture
    warpcheck sanitize                              CUDA kernels on the CPU, under every check
    warpcheck repro corpus/.../ENTRY.json           show a failure again
    """


main.add_command(campaigns.fuzz)
main.add_command(campaigns.build)
main.add_command(repro_command)
main.add_command(sanitize_command)
main.add_command(reduce_command)
main.add_command(corpus_group)
main.add_command(import_command)
main.add_command(flatten_command)
main.add_command(interesting_command)
main.add_command(reduce_source_command)
main.add_command(explain_command)


@main.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@DEVICE
@clear_errors
def replay(paths: tuple[Path, ...], device: str) -> None:
    """Judge entries again: files, or all below folders. [default: corpus]

    An open entry must still fail (one that passes is reported, so that someone marks it fixed); a fixed one must pass.
    Exit status: 0 as expected, 1 a fixed entry fails, 2 an entry cannot be read.
    """
    where = command.device_of(device)
    chosen = list(paths) or [Path("corpus")]
    for path in chosen:
        if not path.exists():
            raise command.usage(f"{path}: no such file or folder")
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
            say(f"[{styles[found.outcome]}]{found.outcome:12}[/] {escape(str(found.path))} {_why(found)}")
    say(", ".join(f"{n} {what}" for what, n in counts.items()) or "no entries")
    sys.exit(USAGE if "unreadable" in counts else FINDINGS if "fails" in counts else 0)


def _why(found: Replayed) -> str:
    if found.outcome in ("unreadable", "cannot run"):
        return f"[dim]({escape(found.verdict.message)})[/]"
    return f"[dim]{found.verdict.kind}[/]"


@main.command()
@click.argument("path", type=click.Path(path_type=Path))
@clear_errors
def show(path: Path) -> None:
    """Print what an entry says: the call, the failure, the evidence."""
    say(display.entry(corpus.read(path)))


@main.command(name="list")
@click.option(
    "--corpus", "folder", type=click.Path(file_okay=False, path_type=Path), default=Path("corpus"), show_default=True
)
@clear_errors
def list_command(folder: Path) -> None:
    """Print the operators, their implementations, and the entries of the corpus."""
    for name in operators.names():
        say(f"[bold]{name}[/]  {' '.join(implementations.available(name))}")
    for path, entry in corpus.entries(folder):
        if isinstance(entry, CaseError):
            say(f"  [red]unreadable[/] {escape(str(entry))}")
        else:
            say(f"  {entry.status:5} {escape(str(entry.signature))}  [dim]{escape(str(path))}[/]")


@main.command(name="doctor")
@clear_errors
def doctor_command() -> None:
    """Say what this machine can run, and why not the rest. Exit status 1 when something that should work does not."""
    healthy = True
    for check in doctor.checks():
        mark = {"ok": "[green]ok[/]    ", "absent": "[dim]absent[/]", "broken": "[bold red]broken[/]"}[check.state]
        say(f"{mark} [bold]{escape(check.name)}[/]: {escape(check.detail)}")
        healthy = healthy and check.state != "broken"
    sys.exit(0 if healthy else FINDINGS)


if __name__ == "__main__":
    main()
