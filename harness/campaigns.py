"""The commands that look for failures: `warpcheck fuzz` and `warpcheck build`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from harness import command, display, jobs
from harness.build_campaign import BuildCampaign, BuildConfig
from harness.command import CORPUS, DEVICE, IMPL, LOG, OPERATOR, TIMEOUT, Duration, clear_errors
from harness.cores import cores
from harness.fuzz import Config
from harness.sandbox import Limits


@click.command()
@OPERATOR
@IMPL
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
@CORPUS
@LOG
@click.option("--legal-only", is_flag=True, help="Draw no calls that the operator's contract forbids.")
@click.option("--no-builds", is_flag=True, help="Do not compile for architectures that are not here.")
@TIMEOUT
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
    where = command.device_of(device)
    chosen = command.targets(operator, specs)
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
    command.campaign(lambda emit: jobs.run(config, workers, emit), display.FUZZING, log)


def _archs(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(arch.strip() for text in value for arch in text.split(",") if arch.strip()))


@click.command()
@OPERATOR
@IMPL
@click.option(
    "--arch",
    "archs",
    multiple=True,
    callback=_archs,
    metavar="SM,SM,…",
    help="Only these architectures, as sm_80,sm_90a; can be given more than once. [default: all that an "
    "implementation names]",
)
@click.option(
    "--jobs",
    "workers",
    type=click.IntRange(1),
    help="Compilations at a time, each in a process of its own. [default: one a core]",
)
@CORPUS
@LOG
@click.option("--time", "seconds", type=Duration(), help="Stop after this long: 90s, 5m, 2h. [default: when done]")
@click.option(
    "--timeout", type=Duration(), default="3m", show_default=True, help="A compilation that takes longer is a failure."
)
@clear_errors
def build(
    operator: str | None,
    specs: tuple[str, ...],
    archs: tuple[str, ...],
    workers: int | None,
    folder: Path,
    log: Path | None,
    seconds: float | None,
    timeout: float,
) -> None:
    """Compile every variant that legal calls can need, for every architecture. No GPU is needed.

    \b
    warpcheck build                                    everything that is built in
    warpcheck build --operator top_k_mask_logits --impl cuda
    warpcheck build --arch sm_90a,sm_100a --time 10m   two architectures, as far as ten minutes go
    warpcheck build --operator top_k_mask_logits --impl ./mine.py:mask --jobs 4

    Each variant builds, or the implementation called it unsupported beforehand, or it is a failure. One bug is one
    finding, with the fewest flags and the first architecture that show it, however many variants it breaks. Variants
    are taken plain ones first and spread over the architectures, so that a run that stops early has seen something of
    each. What was built before comes out of the cache: to go on after an interruption, run it again.

    Failures that are in the corpus already are counted and passed by. Ctrl-C ends early and keeps what was found.
    Exit status: 0 nothing new, 1 new findings, 2 usage.
    """
    config = BuildConfig(
        command.targets(operator, specs),
        archs,
        jobs=workers or cores(),
        seconds=seconds,
        corpus=folder,
        limits=Limits(build=timeout),
    )
    command.campaign(lambda emit: BuildCampaign(config, emit).run(), display.BUILDING, log)
