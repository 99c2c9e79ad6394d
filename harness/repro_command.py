"""The command `warpcheck repro`. Its exit status 0 means that the entry passes: `git bisect run` takes it as it is."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.markup import escape

from harness import command, corpus, files, implementations, repro
from harness.command import DEVICE, ENTRY, FINDINGS, TIMEOUT, OutputFile, clear_errors, say
from harness.replay import Replayer
from harness.sandbox import Limits
from harness.signature import same


@click.command(name="repro")
@ENTRY
@click.option(
    "--script",
    type=OutputFile(allow_dash=True),
    metavar="FILE.py|-",
    help="Write one Python file that shows the bug with torch and the kernel alone: no Warpcheck needed. - is stdout.",
)
@click.option(
    "--markdown",
    type=OutputFile(allow_dash=True),
    metavar="FILE.md|-",
    help="Write the text of an issue around that script. - is stdout.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1),
    help="Runs under each poison. [default: 1; of one that comes and goes, what its rate asks for]",
)
@DEVICE
@TIMEOUT
@clear_errors
def repro_command(
    path: Path, script: Path | None, markdown: Path | None, repeat: int | None, device: str, timeout: float
) -> None:
    """Show a failure again, here and to others.

    \b
    warpcheck repro corpus/.../ENTRY.json                      judge it again, in a fresh process
    warpcheck repro corpus/.../ENTRY.json --script bug.py      and write what a maintainer can run
    warpcheck repro corpus/.../ENTRY.json --markdown issue.md  and an issue, with the script in it
    git bisect run warpcheck repro corpus/.../ENTRY.json       find the commit that broke it

    The issue has the table of `warpcheck explain` in it, where that was asked before.

    Exit status, fit for `git bisect run`: 0 it passes, 1 it fails, 2 the entry cannot be read, 125 it cannot run here.
    """
    where = command.device_of(device)
    targets = {"script": script, "markdown": markdown}
    printed = [name for name, target in targets.items() if str(target) == "-"]
    if len(printed) == 2 or (script is not None and script == markdown):
        raise command.usage("--script and --markdown name the same file")
    entry = corpus.read(path)
    with Replayer(where, limits=Limits(run=timeout)) as replayer:
        verdict = replayer.judge(entry, repeat=repeat)
    if script is not None or markdown is not None:
        found = implementations.load(entry.signature.operator, entry.implementation)
        for name, make in (("script", repro.script), ("markdown", repro.issue)):
            target = targets[name]
            if target is None:
                continue
            text = make(entry, path=path.name, implementation=found)
            if name in printed:
                click.echo(text, nl=False)
                continue
            files.write_for_user(target, text.encode())
            how = f": python {target} exits 1 while the bug is there" if name == "script" else ""
            say(f"wrote {escape(str(target))}{escape(how)}", to_stderr=bool(printed))
    if verdict.kind == "skip":
        command.cannot_run(verdict.message)
    if verdict.failed:
        rate = f" ({verdict.evidence.failed} of {verdict.evidence.runs} runs)" if verdict.evidence.runs else ""
        as_it_says = "reproduces" if same(verdict, entry.verdict) else "fails in another way than it says:"
        say(f"[bold red]{as_it_says}[/] {verdict.kind}{rate}: {escape(verdict.message)}", to_stderr=bool(printed))
        sys.exit(FINDINGS)
    say("[green]passes[/]", to_stderr=bool(printed))
