"""How soon each planted fault is found: `python -m tests.planted.measure` prints the table of tests/planted/README.md.

Cases and seconds until the first failure, the median of five seeds, starting the process included; nothing is shrunk.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import click

from harness.events import Event
from harness.fuzz import Campaign, Config
from tests.planted import single_prefill, top_k_mask_logits
from tests.planted.campaigns import LIMITS
from tests.planted.fault import Fault

SEEDS = range(1, 6)
AT_MOST = 3000


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
            corpus=Path(folder), builds=False, limits=LIMITS,
        )  # fmt: skip
        campaign = Campaign(config, emit)
        try:
            campaign.run()
        except Enough:
            return campaign.cases, time.monotonic() - start
    return None


@click.command()
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu")
def main(device: str) -> None:
    """Print a Markdown table."""
    print("| fault | kind | cases | seconds | found |\n|---|---|---|---|---|")
    for fault in (*top_k_mask_logits.FAULTS, *single_prefill.FAULTS):
        if fault.needs_gpu and device == "cpu":
            continue
        seen = [found for seed in SEEDS if (found := first_failure(fault, seed, device)) is not None]
        cases = f"{statistics.median(c for c, _ in seen):.0f}" if seen else "–"
        seconds = f"{statistics.median(s for _, s in seen):.1f}" if seen else "–"
        print(f"| {fault.name} | {fault.kinds[0]} | {cases} | {seconds} | {len(seen)} of {len(SEEDS)} |", flush=True)


if __name__ == "__main__":
    main()
