"""The tables of tests/planted/README.md, measured: `python -m tests.planted.measure found`, `… reduced` and `… cuda`.

`found`: cases and seconds until the first failure of each planted fault, the median of five seeds, starting the process
included; nothing is shrunk. `reduced`: its case after Hypothesis and after reduction, what that took, how many signatures it
left, and whether the script of its entry shows the bug in a folder that has the kernels and neither harness nor oracles;
with `--python` in another environment, which need not have Warpcheck's dependencies. `cuda`: what the command that is to
find a fault in CUDA leaves of it.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from harness import features, implementations, operators, repro
from harness.case import Case
from harness.corpus import Entry
from harness.events import Event
from harness.fuzz import Campaign, Config
from harness.resize import sizes
from tests.elsewhere import ROOT, lay_out
from tests.planted import cuda, single_prefill, test_cuda, top_k_mask_logits
from tests.planted.campaigns import hunt, limits
from tests.planted.fault import Fault
from tests.planted.test_planted import AFTER, AT_MOST, SEED

SEEDS = range(1, 6)


class Enough(BaseException):
    """The first failure was seen."""


def first_failure(fault: Fault, seed: int, device: str) -> tuple[int, float] | None:
    """Cases and seconds until a fault is seen; None when it is not."""
    start = time.monotonic()

    def emit(event: Event) -> None:
        if event["event"] == "finding":
            raise Enough

    with tempfile.TemporaryDirectory() as folder:
        config = Config(
            (fault.operator,), {fault.operator: (fault.spec,)}, device, seconds=None, cases=AT_MOST, seed=seed,
            corpus=Path(folder), builds=False, limits=limits(fault.hangs),
        )  # fmt: skip
        campaign = Campaign(config, emit)
        try:
            campaign.run()
        except Enough:
            return campaign.cases, time.monotonic() - start
    return None


def extent(case: Case) -> str:
    """Elements of all tensors, with the dimensions that are not one; how many features are not the plainest; and how many
    numbers say what the values are, or that a generator makes them."""
    elements = sum(view.numel for view in case.tensors.values())
    known = sizes(case, operators.get(case.operator).dimensions(case))
    dimensions = ", ".join(f"{name} {size}" for name, size in known.items() if size != 1)
    drawn = any(fill.kind != "cycle" for fill in case.fills.values())
    numbers = sum(len(fill.values) + len(fill.planted) for fill in case.fills.values())
    told = f"{elements} ({dimensions})" if dimensions else str(elements)
    return f"{told}; {len(features.traits(case)) - 1}; {'drawn' if drawn else numbers}"


def shows(entry: Entry, python: str) -> str:
    """Whether the entry's script exits 1 there; "none" for an entry that no script can show."""
    implementation = implementations.load(entry.signature.operator, entry.implementation)
    try:
        text = repro.script(entry, path="entry.json", implementation=implementation)
    except repro.NoScript:
        return "none"
    with tempfile.TemporaryDirectory() as name:
        folder = lay_out(Path(name))
        (folder / "bug.py").write_text(text, encoding="utf-8")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            [python, "bug.py"], cwd=folder, env={**kept, "PYTHONPATH": "."}, capture_output=True, timeout=600
        )
    told = b"BUG" in done.stdout or b"Timeout (" in done.stderr  # its own words, not those of an import that fails
    return "shows it" if done.returncode == 1 and told else f"exit status {done.returncode}"


def reduced(fault: Fault, device: str, python: str) -> tuple[Any, ...]:
    """A row of the table."""
    spec = os.path.relpath(fault.spec, ROOT)
    with tempfile.TemporaryDirectory() as folder:
        found = hunt(
            fault.operator, spec, seed=SEED, cases=AT_MOST, after=AFTER, folder=Path(folder), device=device,
            hangs=fault.hangs,
        )  # fmt: skip
    if not found.entries:
        return fault.name, "not found", "", "", "", 0, ""
    entry = found.entries[0]
    assert isinstance(entry.subject, Case)
    shrunk = next(event for event in found.events if event["event"] == "shrunk")
    settled = next(event for event in found.events if event["event"] == "finding" and not event["unreduced"])
    before = msgspec.convert(shrunk["case"], Case)
    return (
        fault.name,
        extent(before),
        extent(entry.subject),
        settled["calls"],
        f"{settled['seconds']:.1f}",
        len(found.entries),
        shows(entry, python),
    )


def chosen(device: str, names: tuple[str, ...]) -> list[Fault]:
    faults = (*top_k_mask_logits.FAULTS, *single_prefill.FAULTS)
    return [f for f in faults if (not f.needs_gpu or device == "cuda") and (not names or f.name in names)]


@click.group()
def main() -> None:
    """Print a table, in Markdown."""


DEVICE = click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu")


@main.command(name="found")
@click.argument("names", nargs=-1)
@DEVICE
def found_command(names: tuple[str, ...], device: str) -> None:
    """How soon each fault is found."""
    print("| fault | kind | cases | seconds | found |\n|---|---|---|---|---|")
    for fault in chosen(device, names):
        seen = [found for seed in SEEDS if (found := first_failure(fault, seed, device)) is not None]
        cases = f"{statistics.median(c for c, _ in seen):.0f}" if seen else "–"
        seconds = f"{statistics.median(s for _, s in seen):.1f}" if seen else "–"
        print(f"| {fault.name} | {fault.kinds[0]} | {cases} | {seconds} | {len(seen)} of {len(SEEDS)} |", flush=True)


@main.command(name="reduced")
@click.argument("names", nargs=-1)
@click.option("--python", default=sys.executable, help="The interpreter that runs the scripts.")
@DEVICE
def reduced_command(names: tuple[str, ...], python: str, device: str) -> None:
    """How small each fault's case becomes, at what cost."""
    print("| fault | after Hypothesis | after reduction | judgements | seconds | signatures | its script |")
    print("|---|---|---|---|---|---|---|")
    with contextlib.chdir(ROOT):
        for fault in chosen(device, names):
            print(f"| {' | '.join(map(str, reduced(fault, device, python)))} |", flush=True)


@main.command(name="cuda")
@click.argument("names", nargs=-1)
@click.option("--python", default=sys.executable, help="The interpreter that runs the scripts.")
def cuda_command(names: tuple[str, ...], python: str) -> None:
    """What is left of each fault in CUDA, on the CPU."""
    print("| fault | after reduction | seconds | signatures | its script |\n|---|---|---|---|---|")
    for fault in cuda.FAULTS:
        if names and fault.name not in names:
            continue
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            entries = test_cuda.found(fault, Path(folder))
        seconds = f"{time.monotonic() - start:.0f}"
        cases = [entry.subject for entry in entries if isinstance(entry.subject, Case)]
        left = (extent(cases[0]), seconds, len(entries), shows(entries[0], python)) if cases else ("", seconds, 0, "")
        print(f"| {fault.name} | {' | '.join(map(str, left))} |", flush=True)


if __name__ == "__main__":
    main()
