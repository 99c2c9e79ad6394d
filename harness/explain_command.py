"""The command `warpcheck explain`."""

from __future__ import annotations

from pathlib import Path

import click
from rich.markup import escape

from harness import command, corpus, explained, files, nearest
from harness.case import Case
from harness.command import CORPUS, DEVICE, ENTRY, TIMEOUT, OutputFile, Telling, clear_errors, say
from harness.corpus import Entry
from harness.explain import Explainer, Progress, dimension_names, no_picture
from harness.explanation import Explanation
from harness.heat_map import HeatMap, heat_map
from harness.picture import svg, to_png
from harness.replay import Replayer
from harness.sandbox import Limits
from harness.verdict import Verdict


@click.command(name="explain")
@ENTRY
@click.option(
    "--judgements",
    "budget",
    type=click.IntRange(0),
    help="Stop after so many judgements. [default: 500; 40 where each takes a process, as a hang does]",
)
@click.option("--svg", "svg_file", type=OutputFile(), help="Write the map as SVG.")
@click.option("--png", "png_file", type=OutputFile(), help="Write the map as PNG.")
@click.option("--no-write", is_flag=True, help="Leave the entry as it is.")
@DEVICE
@TIMEOUT
@CORPUS
@clear_errors
def explain_command(
    path: Path,
    budget: int | None,
    svg_file: Path | None,
    png_file: Path | None,
    no_write: bool,
    device: str,
    timeout: float,
    folder: Path,
) -> None:
    """Say why an entry fails: which values of each parameter still do, where its output is wrong, what it resembles.

    \b
    warpcheck explain corpus/…/ENTRY.json                     and put the table into the entry, for `warpcheck show`
    warpcheck explain corpus/…/ENTRY.json --svg mismatch.svg  a picture for a report
    warpcheck explain corpus/…/ENTRY.json --judgements 60     a first look at a slow kernel
    warpcheck explain corpus/…/ENTRY.json --no-write          read only

    Every parameter of the entry's call is changed on its own: dtype, sizes, scalars and flags, where the output lies,
    the layout and offset of each tensor, its values, tuning, order of threads; of a build, each option and the
    architecture. Each variant is judged in the sandbox. A statement holds for all values that were tried:

    \b
    vocab >= 17 (of 70 tried)              every size from 17 on fails, every smaller one passes
    only when vocab mod 4 = 0 (of 66 …)    several sizes of that class fail, and several others pass
    only in place (of 7 tried)             other places of the output pass
    any dtype (of 3 tried)                 irrelevant

    What fails in another way is told apart; what the contract forbids, and the kernel refused, is left out.

    The map shows error divided by bound over the wrong output, all dimensions but the last as rows; a cell shows the
    worst of its elements, so none is hidden. An operator without tolerance has only right and wrong.

    Ctrl-C ends the judging; what is known so far is shown and kept. An entry that is not reduced yet is explained as it
    is, and its statements are about that call.

    Exit status: 0 explained, 1 the failure does not show here, 2 the entry cannot be read, 125 it cannot run here.
    """
    where = command.device_of(device)
    entry = corpus.read(path)
    with Replayer(where, limits=Limits(run=timeout)) as replayer, Telling("judging it as it is …") as tell:
        explainer = Explainer(replayer, entry, budget=budget, tell=lambda now: tell(_told(now)))
        verdict = explainer.begin()
        found = explainer.explain()
    say(f"[bold]{escape(str(entry.signature))}[/]: {escape(verdict.message)}")
    if not entry.reduced:
        say("[yellow]not reduced yet:[/] the statements are about the call as it was found")
    command.out.print(explained.table(found))
    if explainer.interrupted:
        say("[yellow]interrupted:[/] of the rest nothing is known")
    if not no_write:
        say(_kept(path, entry, found))
    _show_mismatch(explainer, entry, verdict, svg_file, png_file)
    _show_nearest(entry, path, folder)


def _told(now: Progress) -> str:
    return f"{now.judged} of at most {now.planned} variants judged; {now.parameter}: {now.value}"


def _kept(path: Path, entry: Entry, found: Explanation) -> str:
    """Put the explanation into its entry, unless a fuller one is there; what became of it."""
    if entry.explanation is not None and entry.explanation.complete and not found.complete:
        return "not written: the entry has an explanation for which everything was tried"
    if not corpus.explain(path, entry.subject, found):
        return "not written: the entry has another call by now"
    return f"wrote this into {escape(str(path))}"


def _show_mismatch(
    explainer: Explainer, entry: Entry, verdict: Verdict, svg_file: Path | None, png_file: Path | None
) -> None:
    """The worst elements and the map, on the console and in files; or why there are none."""
    say("")
    if explainer.mismatch is None:
        say(no_picture(verdict))
        for file in filter(None, (svg_file, png_file)):
            say(f"not written: {escape(str(file))}", to_stderr=True)
        return
    heat = _map(explainer, entry)
    command.out.print(explained.worst(explainer.mismatch.worst))
    say("")
    for line in explained.picture(heat, command.out):
        command.out.print(line, highlight=False, soft_wrap=True)
    if svg_file is not None:
        files.write_for_user(svg_file, svg(heat).encode())
        say(f"wrote {escape(str(svg_file))}")
    if png_file is not None:
        files.write_for_user(png_file, to_png(heat))
        say(f"wrote {escape(str(png_file))}")


def _map(explainer: Explainer, entry: Entry) -> HeatMap:
    assert explainer.mismatch is not None
    assert isinstance(entry.subject, Case)
    output = explainer.mismatch.output
    names = dimension_names(entry.subject, output)
    shape = list(explainer.mismatch.shape)
    return heat_map(explainer.mismatch, names, f"{entry.signature}: {output} {shape}")


def _show_nearest(entry: Entry, path: Path, folder: Path) -> None:
    others = [(file, other) for file, other in corpus.entries(folder) if isinstance(other, Entry)]
    found = nearest.nearest(entry, [pair for pair in others if pair[0].resolve() != path.resolve()])
    say("")
    if not found:
        say(f"no other entry of {escape(entry.signature.operator)} in {escape(str(folder))}")
        return
    say("[bold]nearest entries[/]")
    for line in explained.neighbours(found):
        command.out.print(line, highlight=False, soft_wrap=True)
