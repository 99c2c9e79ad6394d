"""Judge cases in this very process, without the sandbox: for tools that watch one process.

    compute-sanitizer --tool memcheck --report-api-errors no python -m tests.in_process --impl cuda --examples 48
    compute-sanitizer --tool racecheck python -m tests.in_process --impl cuda --rows adversarial --time 40s

Set PYTORCH_NO_CUDA_MEMORY_CACHING=1 with it: torch's caching allocator hides accesses past the end of a tensor.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable

import click
from hypothesis import given, seed

from harness import operators
from harness.case import Case
from harness.command import Duration
from harness.implementations import load
from harness.judge import Judge
from harness.profiles import profile
from harness.strategies import Scale
from tests import adversarial


def drawn(operator: str, examples: int, start: int) -> list[Case]:
    """Cases of the operator's strategy, illegal ones among them."""
    cases: list[Case] = []

    @seed(start)
    @profile(examples)
    @given(operators.get(operator).cases(Scale(1 << 14, 64)))
    def draw(case: Case) -> None:
        cases.append(case)

    draw()
    return cases


def run(cases: Iterable[Case], specs: tuple[str, ...], device: str, seconds: float) -> Counter[str]:
    """How many verdicts there were of each kind. Failures are printed; no case is begun after so many seconds."""
    end, kinds = time.monotonic() + seconds, Counter[str]()
    for case in cases:
        if time.monotonic() >= end:
            break
        judge = Judge(case, device)
        for implementation in (load(case.operator, spec) for spec in specs):
            verdict = judge.judge(implementation)
            kinds[verdict.kind] += 1
            if verdict.failed:
                print(f"{implementation.name}: {verdict.kind}: {verdict.message}\n{case.key().decode()}", flush=True)
    return kinds


@click.command()
@click.option("--operator", default="top_k_mask_logits", show_default=True)
@click.option("--impl", "specs", multiple=True, required=True)
@click.option("--device", default="cuda", show_default=True)
@click.option("--rows", type=click.Choice(["drawn", "adversarial"]), default="drawn", show_default=True)
@click.option("--examples", default=48, show_default=True, help="Cases, with --rows drawn.")
@click.option("--seed", "start", default=0, show_default=True)
@click.option(
    "--time", "seconds", type=Duration(), default="1h", show_default=True, help="Begin no case after this long."
)
def main(
    operator: str, specs: tuple[str, ...], device: str, rows: str, examples: int, start: int, seconds: float
) -> None:
    """Print how many verdicts there were of each kind; exit 1 when one is a failure.

    --rows adversarial: the mask on rows that hurt a selection, in clusters and in single blocks; the operator is not asked.
    """
    cases = list(adversarial.cases()) if rows == "adversarial" else drawn(operator, examples, start)
    kinds = run(cases, specs, device, seconds)
    print(", ".join(f"{count} {kind}" for kind, count in kinds.items()))
    print(f"{kinds.total() // len(specs)} of {len(cases)} cases")
    sys.exit(bool(set(kinds) - {"pass", "skip"}) or not kinds)


if __name__ == "__main__":
    main()
