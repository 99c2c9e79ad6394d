"""The command `warpcheck bench`."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from rich.markup import escape

from harness import command, files, gpus
from harness.bench import compare, plot, report, table
from harness.bench import workload as workloads
from harness.bench.campaign import Campaign, Config
from harness.bench.choice import config_for
from harness.bench.meter import Meter, Patience
from harness.bench.report import Report
from harness.bench.workload import Competitor
from harness.command import FINDINGS, Duration, OutputFile, Telling, clear_errors, say
from harness.sandbox import HarnessError, telling_line

CANNOT = (
    "no GPU is visible. Without one nothing can be timed: kernels that run on the CPU here (CUDA through g++, Triton under its "
    "interpreter) run for their results, not their speed, and copy and matmul ceilings are a GPU's. What can be done: "
    "`warpcheck bench --list` shows the workloads, --from draws tables and pictures of a report that was measured elsewhere, "
    "with --compare what changed from one to another"
)


def _list(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    for operator in workloads.timed_operators():
        benchmarks = workloads.of(operator)
        say(f"[bold]{escape(operator)}[/]")
        for name, texts in benchmarks.SETS.items():
            say(f"  --set {escape(name)}")
            for text in texts:
                say(f"    {escape(text)}")
        for each in benchmarks.COMPETITORS:
            say(f"  {escape(each.name)}{'' if each.installed else f' [dim](needs the package {each.package})[/]'}")
    ctx.exit()


@click.command(name="bench")
@command.OPERATOR
@click.option(
    "--impl",
    "specs",
    multiple=True,
    metavar="NAME|FILE.py:FUNCTION",
    help="Only this implementation or competitor (--list names them); can be given more than once. [default: all that are "
    "built in, and the competitors that are installed]",
)
@click.option("--set", "sets", multiple=True, metavar="NAME", help="A named set of workloads. [default: standard]")
@click.option(
    "--shape", "shapes", multiple=True, metavar="WORKLOAD", help="A workload written out, as --list shows them."
)
@click.option(
    "--baseline", metavar="NAME", help="What times are compared with. [default: the first competitor there is]"
)
@click.option(
    "--time-per", "seconds", type=Duration(), default="0.2s", show_default=True, help="For each time, cold and warm."
)
@click.option("--cold-only", is_flag=True, help="Leave out the times with data in the L2 cache.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the inputs.")
@click.option("--json", "json_file", type=OutputFile(), help="Write everything measured; also after each workload.")
@click.option("--plot", "plot_file", type=OutputFile(), help="Write a roofline picture, as SVG.")
@click.option("--markdown", "markdown_file", type=OutputFile(), help="Write the tables, machine and versions.")
@click.option(
    "--compare", "old_file", type=click.Path(path_type=Path), help="Say what changed since this report (of --json)."
)
@click.option(
    "--from", "from_file", type=click.Path(path_type=Path), help="Measure nothing: take this report (of --json)."
)
@click.option(
    "--timeout",
    type=Duration(),
    default="60s",
    show_default=True,
    help="Judging or timing one configuration for longer is a hang; its first call, which may compile, has ten times as long.",
)
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list,
    help="Show the workloads and competitors.",
)
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", hidden=True)
@clear_errors
def bench_command(
    operator: str | None,
    specs: tuple[str, ...],
    sets: tuple[str, ...],
    shapes: tuple[str, ...],
    baseline: str | None,
    seconds: float,
    cold_only: bool,
    seed: int,
    json_file: Path | None,
    plot_file: Path | None,
    markdown_file: Path | None,
    old_file: Path | None,
    from_file: Path | None,
    timeout: float,
    device: str,
) -> None:
    """Time implementations side by side, each result judged first, next to what this machine's copy and matmul reach.

    \b
    warpcheck bench                                          every operator, its standard workloads
    warpcheck bench --operator top_k_mask_logits --json new.json --compare old.json
    warpcheck bench --operator top_k_mask_logits --impl ./mine.py:mask --impl cuda --baseline cuda
    warpcheck bench --operator single_prefill --set variants --plot roofline.svg
    warpcheck bench --operator single_prefill --shape "float16 qo=2048 heads=32/8 d=128 causal"

    \b
    cold          each call finds its data in device memory: it has buffers of its own, and the cache was read full of others
    of floor      the floor's time (a copy of the bytes a call must read and write; for attention, its operations at the
                  matmul's rate) as a part of the call's: 100% cannot be beaten
    × NAME        cold time as a multiple of the baseline's; × plain, of the same call on ordinary values or without variant
    warm          one call, right after its data was written, where it fits into the L2 cache
    extra memory  bytes that a call allocates on the device at its peak, its result included; 0 in place
    judged        how much of the result the oracle has judged, and the largest error / bound

    Times are between CUDA events around the replay of CUDA graphs (or, marked so, around plain calls): the median, and ± half
    the distance of the quartiles where that is more than 1 %. A configuration whose result is wrong has no time.

    --compare: a time counts as changed when its median is another by more than 3 % and the two runs' ranges from quartile to
    quartile do not touch; extra memory, when it is another number.

    Every configuration is measured in a child process; one that dies or hangs is a row that says so. Ctrl-C ends early, and
    tables and files are of what was measured by then.

    Exit status: 0, 1 an implementation was wrong or failed, or with --compare something is slower or takes more memory,
    2 usage, 125 there is no GPU.
    """
    targets = [path for path in (json_file, plot_file, markdown_file) if path is not None]
    if len({path.resolve() for path in targets}) < len(targets):
        raise command.usage("--json, --plot and --markdown name the same file")
    old = report.read(old_file) if old_file else None
    if from_file:
        found = report.read(from_file)
    else:
        config = config_for(operator, sets, shapes, specs, baseline, seconds, seed, not cold_only)
        found = _measured(config, device, timeout, json_file)
    _tell(found, old)
    _write(found, json_file, plot_file, markdown_file)
    worse = old is not None and any(change.kind in compare.WORSE for change in compare.changes(old, found))
    sys.exit(FINDINGS if worse or any(each for each in found.bad() if each.name not in _rivals(each.operator)) else 0)


def _rivals(operator: str) -> list[str]:
    """Names of competitors: that one of them fails or is wrong is told, and is no finding."""
    return [each.name for each in _competitors(operator)]


def _competitors(operator: str) -> Sequence[Competitor]:
    """Of an operator that a report may know and this version not."""
    return workloads.of(operator).COMPETITORS if operator in workloads.timed_operators() else ()


def _measured(config: Config, device: str, timeout: float, json_file: Path | None) -> Report:
    """Measure, and keep what is known when that is ended early. Ends the command where there is no GPU."""
    if device == "cuda" and not gpus.visible():
        command.cannot_run(CANNOT)
    names = gpus.visible()
    keep = _keeping(json_file)
    with (
        Meter(
            device, patience=Patience(step=timeout, first=10 * timeout), visible=names[0] if names else None
        ) as meter,
        Telling("starting") as telling,
    ):
        campaign = Campaign(config, meter, say=telling, changed=keep)
        try:
            campaign.run()
        except KeyboardInterrupt:
            say("[yellow]interrupted[/]: what follows is what was measured by then", to_stderr=True)
        except HarnessError as error:
            if not campaign.report.machine:
                command.cannot_run(f"the device does not start: {telling_line(error)}")
            raise command.usage(f"the harness failed, not a kernel: {telling_line(error)}") from None
    for name, why in campaign.skipped.items():
        say(f"[dim]left out: {escape(name)} cannot run here: {escape(why)}[/]")
    return campaign.report


def _keeping(path: Path | None) -> Callable[[Report], None]:
    """Writes the report so far, where that is a file that can be written again and again."""

    def keep(found: Report) -> None:
        if path is not None and (path.is_file() or not path.exists()):
            report.write(path, found)

    return keep


def _tell(found: Report, old: Report | None) -> None:
    say(f"[dim]{escape(table.machine(found))}[/]")
    for operator, each in zip(found.operators(), table.tables(found)):
        command.out.print("", each, highlight=False)
        for note in table.notes(found, operator):
            say(f"[dim]{escape(note)}[/]")
        if operator in found.settings.baseline:
            say(f"[dim]baseline: {escape(found.settings.baseline[operator])}[/]")
    for name in _absent(found):
        say(f"[dim]{escape(name)}[/]")
    if not found.results:
        say("nothing was measured")
    if old is not None:
        _tell_changes(old, found)


def _absent(found: Report) -> list[str]:
    """Competitors that could have taken part."""
    rivals = [each for operator in found.operators() for each in _competitors(operator)]
    packages = dict.fromkeys(each.package for each in rivals if importlib.util.find_spec(each.package) is None)
    return [f"no column of {package}: it is not installed" for package in packages]


_COLOURS = {"faster": "green", "mended": "green", "less memory": "green"}


def _tell_changes(old: Report, new: Report) -> None:
    say("")
    if differ := compare.machines(old, new):
        say(f"[yellow]another machine or other software[/]: {escape(', '.join(differ))}")
    for change in compare.ceilings(old, new):
        say(
            f"[yellow]the machine itself[/]: copy, {escape(change.workload)}: {change.kind}, {escape(_from_to(change))}"
        )
    count = 0
    for count, change in enumerate(compare.changes(old, new), 1):  # noqa: B007
        colour = _COLOURS.get(change.kind, "red")
        where = f"{change.operator} {change.workload}, {change.name}, {change.what}"
        say(f"[{colour}]{change.kind}[/] {escape(where)}: {escape(_from_to(change))}")
    both = compare.compared(old, new)
    say(f"{both} configurations compared, {count or 'no'} changes beyond the noise ({compare.RULE})")


def _from_to(change: compare.Change) -> str:
    old, new = change.old, change.new
    if isinstance(old, str) or isinstance(new, str):
        return f"{old} -> {new}"
    if change.what == "extra":
        return f"{table.size_of(int(old))} -> {table.size_of(int(new))}"
    return f"{table.seconds(old)} -> {table.seconds(new)} ({100 * (new / old - 1):+.0f}%)"


def _write(found: Report, json_file: Path | None, plot_file: Path | None, markdown_file: Path | None) -> None:
    texts = {plot_file: plot.svg, markdown_file: lambda each: table.markdown(each, _asked())}
    if json_file is not None:
        report.write(json_file, found)
    for path, write in texts.items():
        if path is not None:
            files.write_for_user(path, write(found).encode())
    for path in (json_file, plot_file, markdown_file):
        if path is not None:
            say(f"wrote {escape(str(path))}", to_stderr=True)


def _asked() -> str:
    """The command line, as it can be given again."""
    return shlex.join(["warpcheck", *sys.argv[1:]])
