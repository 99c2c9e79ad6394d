"""The command `warpcheck`.

Exit status: 0 all is well or done, 1 a finding, or a failure that does not show where it should, 2 the input is wrong, 125 it
cannot be said on this machine (what `git bisect run` skips).
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.markup import escape

from harness import __version__, campaigns, command, corpus, display, doctor, implementations, operators
from harness.bench_command import bench_command
from harness.case import CaseError
from harness.command import CORPUS, DEVICE, ENTRY, FINDINGS, TIMEOUT, USAGE, clear_errors, say
from harness.corpus_commands import corpus_group
from harness.explain_command import explain_command
from harness.import_command import import_command
from harness.reduce_command import reduce_command
from harness.replay import Replayed, Replayer
from harness.repro_command import repro_command
from harness.sandbox import Limits
from harness.sanitize_command import sanitize_command
from harness.source_command import flatten_command, interesting_command, reduce_source_command


class InOrder(click.Group):
    """A group whose help lists its commands as they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=InOrder, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="warpcheck")
def main() -> None:
    """Find wrong GPU kernels: run them on generated calls, judge every result against a float64 oracle, keep each failure
    as the smallest call that shows it.

    \b
    To a finding:
      warpcheck doctor                                what this machine can run
      warpcheck fuzz --time 60s                       everything that is built in
      warpcheck fuzz --impl ./mine.py:mask --time 30s your own kernel, which has the operator's signature
      warpcheck build                                 compile every variant for every architecture
      warpcheck sanitize                              CUDA kernels on the CPU, under every check
      warpcheck import call.pt --operator … --impl …  a call that was captured elsewhere

    \b
    From a finding (an ENTRY is a file of the corpus) to a report:
      warpcheck show ENTRY                            what is known of it
      warpcheck reduce ENTRY                          make its call small, if it is not yet
      warpcheck explain ENTRY                         what matters of that call, and where it is wrong
      warpcheck flatten ENTRY, reduce-source ENTRY    the source that does not compile, as one file, and small
      warpcheck repro ENTRY --markdown issue.md       an issue, with a script that shows the bug

    \b
    How fast:
      warpcheck bench                                 implementations side by side, judged, next to copy and matmul

    \b
    From then on:
      warpcheck replay                                do the known failures still fail, and the fixed ones pass?
      warpcheck corpus check, merge, stats            keep them in order
    """


@click.command(name="replay")
@click.argument("paths", nargs=-1, metavar="[ENTRY|FOLDER]...", type=click.Path(path_type=Path))
@DEVICE
@TIMEOUT
@clear_errors
def replay_command(paths: tuple[Path, ...], device: str, timeout: float) -> None:
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
    with Replayer(where, limits=Limits(run=timeout)) as replayer:
        for found in replayer.replay_all(chosen):
            counts[found.outcome] = counts.get(found.outcome, 0) + 1
            say(f"[{styles[found.outcome]}]{found.outcome:12}[/] {escape(str(found.path))} {_why(found)}")
    say(", ".join(f"{n} {what}" for what, n in counts.items()) or "no entries")
    sys.exit(USAGE if "unreadable" in counts else FINDINGS if "fails" in counts else 0)


def _why(found: Replayed) -> str:
    if found.outcome in ("unreadable", "cannot run"):
        return f"[dim]({escape(found.verdict.message)})[/]"
    return f"[dim]{found.verdict.kind}[/]"


@click.command(name="show")
@ENTRY
@clear_errors
def show_command(path: Path) -> None:
    """Print what an entry says: the call, the failure, the evidence, how often it shows, and what `warpcheck explain` found.

    Exit status: 0, or 2 if it cannot be read.
    """
    say(display.entry(corpus.read(path)))


@click.command(name="list")
@CORPUS
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


@click.command(name="doctor")
@clear_errors
def doctor_command() -> None:
    """Say what this machine can run, and why not the rest. Exit status 1 when something that should work does not."""
    healthy = True
    for check in doctor.checks():
        mark = {"ok": "[green]ok[/]    ", "absent": "[dim]absent[/]", "broken": "[bold red]broken[/]"}[check.state]
        say(f"{mark} [bold]{escape(check.name)}[/]: {escape(check.detail)}")
        healthy = healthy and check.state != "broken"
    sys.exit(0 if healthy else FINDINGS)


for each in (
    doctor_command,
    list_command,
    campaigns.fuzz,
    campaigns.build,
    sanitize_command,
    bench_command,
    import_command,
    show_command,
    reduce_command,
    explain_command,
    flatten_command,
    interesting_command,
    reduce_source_command,
    repro_command,
    replay_command,
    corpus_group,
):
    main.add_command(each)


if __name__ == "__main__":
    main()
