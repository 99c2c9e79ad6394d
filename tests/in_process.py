"""Judge drawn cases in this very process, without the sandbox: for tools that watch one process.

    compute-sanitizer --tool memcheck --report-api-errors no python -m tests.in_process --impl cuda --examples 48

Set PYTORCH_NO_CUDA_MEMORY_CACHING=1 with it: torch's caching allocator hides accesses past the end of a tensor.
"""

from __future__ import annotations

import sys
from collections import Counter

import click
from hypothesis import given, seed

from harness import operators
from harness.case import Case
from harness.implementations import load
from harness.judge import Judge
from harness.profiles import profile
from harness.strategies import Scale


@click.command()
@click.option("--operator", default="top_k_mask_logits")
@click.option("--impl", "specs", multiple=True, required=True)
@click.option("--device", default="cuda")
@click.option("--examples", default=48)
@click.option("--seed", "start", default=0)
def main(operator: str, specs: tuple[str, ...], device: str, examples: int, start: int) -> None:
    """Print how many verdicts there were of each kind; exit 1 when one is a failure."""
    loaded = [load(operator, spec) for spec in specs]
    kinds: Counter[str] = Counter()

    @seed(start)
    @profile(examples)
    @given(operators.get(operator).cases(Scale(1 << 14, 64)))
    def run(case: Case) -> None:
        judge = Judge(case, device)
        for implementation in loaded:
            verdict = judge.judge(implementation)
            kinds[verdict.kind] += 1
            if verdict.failed:
                print(f"{implementation.name}: {verdict.kind}: {verdict.message}\n{case.key().decode()}")

    run()
    print(", ".join(f"{count} {kind}" for kind, count in kinds.items()))
    sys.exit(bool(set(kinds) - {"pass", "skip"}))


if __name__ == "__main__":
    main()
