"""The command `warpcheck sanitize`, and how its progress looks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from harness import command, corpus, implementations, sanitize
from harness.case import Check
from harness.command import CORPUS, IMPL, LOG, OPERATOR, TIMEOUT, clear_errors
from harness.display import Face, headed
from harness.events import Event
from harness.sandbox import Limits
from harness.sanitize import COLUMNS, Config, Sanitizer


def _line(event: Event) -> Text:
    parts = [f"{event['seconds']:.0f} s", f"{event['done']} of {event['total']} cases", f"{event['findings']} findings"]
    if event["deaths"]:
        parts.append(f"{event['deaths']} processes lost")
    if event["harness_failures"]:
        parts.append(f"the harness failed on {event['harness_failures']} cases (see the warnings)")
    return Text(", ".join(parts))


def _table(event: Event) -> Table:
    table = headed("target", "cases", "skipped", "known failures", *COLUMNS)
    for name, state in event["targets"].items():
        cells = (_cell(column) for column in state["columns"].values())
        table.add_row(name, str(state["cases"]), str(state["skipped"]), str(state["known"]), *cells)
    return table


def _cell(column: dict[str, float]) -> str:
    """Runs, those that failed, and how many times slower than unchecked ones they were."""
    if not column["passed"] and not column["failed"]:
        return "–"
    counts = f"{column['passed']} pass" + (f", {column['failed']} fail" if column["failed"] else "")
    slower = column["seconds"] / column["plain_seconds"] if column["plain_seconds"] else 0.0
    return f"{counts}, {slower:.1f}×" if slower and slower != 1 else counts


def _closing(event: Event, findings: list[Event]) -> Iterator[RenderableType]:
    yield _line(event)


SANITIZING = Face(_line, _table, _closing)


def _checks(ctx: click.Context, param: click.Parameter, value: str) -> tuple[Check, ...]:
    chosen = [word.strip() for word in value.split(",") if word.strip()]
    for word in chosen:
        if word not in sanitize.CHECKS:
            raise click.BadParameter(f"{word!r} is no check; there are: {', '.join(sanitize.CHECKS)}")
    return tuple(check for check in sanitize.CHECKS if check in chosen)


def _targets(operator: str | None, specs: tuple[str, ...], paths: tuple[Path, ...]) -> dict[str, tuple[str, ...]]:
    """Those that were asked for; without --impl, of given entries also the implementation that each was found with."""
    if not paths:
        return command.targets(operator, specs)
    chosen: dict[str, tuple[str, ...]] = {}
    for name, found_with in sanitize.operators_of(paths).items():
        if operator in (None, name):
            foreign = tuple(spec for spec in found_with if spec not in implementations.available(name))
            chosen[name] = command.targets(name, specs)[name] if specs else (*command.targets(name, ())[name], *foreign)
    if not chosen:
        raise command.usage(f"none of these entries is of {operator}")
    return chosen


@click.command(name="sanitize")
@click.argument("entries", nargs=-1, type=click.Path(exists=True, path_type=Path))
@OPERATOR
@IMPL
@click.option(
    "--examples",
    type=click.IntRange(0),
    help="Cases drawn for each operator. [default: 20; none where entries are given]",
)
@click.option(
    "--checks",
    callback=_checks,
    default=",".join(sanitize.CHECKS),
    show_default=True,
    metavar="CHECK,CHECK,…",
    help="Only these.",
)
@click.option(
    "--schedules", type=click.IntRange(0), default=3, show_default=True, help="Arbitrary orders that each case runs in."
)
@click.option(
    "--seed", type=click.IntRange(0), help="Repeat a run's drawing and orders. [default: random, and printed]"
)
@CORPUS
@LOG
@TIMEOUT
@clear_errors
def sanitize_command(
    entries: tuple[Path, ...],
    operator: str | None,
    specs: tuple[str, ...],
    examples: int | None,
    checks: tuple[Check, ...],
    schedules: int,
    seed: int | None,
    folder: Path,
    log: Path | None,
    timeout: float,
) -> None:
    """Run CUDA kernels on the CPU under every check. No GPU is needed; g++ is.

    \b
    warpcheck sanitize                                 the corpus's calls and 20 drawn ones for each operator
    warpcheck sanitize --operator single_prefill --examples 100 --schedules 20
    warpcheck sanitize corpus/…/ENTRY.json             one entry's call
    warpcheck sanitize --operator top_k_mask_logits --impl ./mine.py:mask --checks race

    \b
    race       two threads touch the same bytes of shared or global memory, one of them writes, and no barrier, warp
               barrier or atomic orders them; also threads of two blocks, as in place where one block reads what
               another has overwritten, which compute-sanitizer cannot see
    memory     an access outside of shared memory or of the call's tensors, a misaligned one, a read of shared memory
               that no thread has written
    undefined  what C++ leaves undefined: a signed offset that overflows, a shift by too much
    poison     no check, and shared memory that starts with other bytes in each of two runs: as `warpcheck fuzz` does
    orders     threads and blocks take turns at random: the result must be right, and the same bits as in order

    Each cell of the table says how many cases passed and failed, and how many times longer the kernel took than without
    the check. A failure goes to its column further left. It is reduced and kept in the corpus with the check or order that
    it needs, so that `warpcheck repro` shows it again on any machine with g++.

    A kernel of your own can be sanitized if its module runs CUDA through impls.cuda_build.Kernel and offers
    `from impls.cuda_build import execution`.

    Failures that are in the corpus already are counted and passed by. Ctrl-C ends early and keeps what was found.
    Exit status: 0 nothing new, 1 new findings, 2 usage, 125 CUDA kernels cannot run on this CPU (it says what to install).
    """
    paths = tuple(file for path in entries for file in (corpus.paths(path) if path.is_dir() else [path]))
    config = Config(
        _targets(operator, specs, paths),
        paths if entries else tuple(corpus.paths(folder)),
        examples=(0 if entries else 20) if examples is None else examples,
        checks=checks,
        schedules=schedules,
        seed=int.from_bytes(os.urandom(4), "big") if seed is None else seed,
        corpus=folder,
        limits=Limits(run=timeout),
    )
    try:
        command.campaign(lambda emit: Sanitizer(config, emit).run(), SANITIZING, log)
    except sanitize.CannotRun as error:
        command.cannot_run(error)
