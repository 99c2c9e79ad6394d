"""CUDA on the CPU and CUDA on a GPU, side by side: the same calls, from the same bytes, and what differs in the results.

    python -m tests.same_bits --operator top_k_mask_logits --examples 500

The calls are those of every corpus entry of the operator, and drawn ones. Each is laid out in memory twice, once for each device
(offsets, strides and shared storages included, and the bytes are compared before the call), made once on either, and judged on
either. Where the operator is exact all bits must be equal; where it rounds both results have to be inside the bound, and how
many have equal bits is told. `--device cpu` makes both calls on the CPU, which shows nothing but that this works.

On the CPU mma follows the tensor cores of sm_90a, and the mask's rows are shared by clusters of blocks as they are there.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import click
import torch
from hypothesis import given, seed
from msgspec.structs import replace
from torch import Tensor

from harness import corpus, operators
from harness.attempt import Bench, DeviceBroken
from harness.case import Case
from harness.command import Duration
from harness.implementations import Implementation, load
from harness.judge import Judge
from harness.profiles import profile
from harness.runs import Outputs, Runs
from harness.strategies import SCALES, Scale
from oracles.judgement import bits

WIDE = Scale(1 << 18, 4)
"""Of one drawn case in four: rows that several blocks share, which those of the other cases are too short for."""

TOGETHER = 4
"""Calls that a process gets at once, all of the same build, so that few processes compile the same thing."""


@dataclass
class Output:
    """One output of one call on the two devices. ulps: the largest distance among elements that both have finite, in steps
    between neighbouring numbers of the dtype."""

    elements: int
    equal: int
    ulps: int

    @staticmethod
    def of(a: Tensor, b: Tensor) -> Output:
        a, b = a.cpu(), b.cpu()
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            raise ValueError(f"{a.dtype} {list(a.shape)} and {b.dtype} {list(b.shape)} are no two results of one call")
        finite = a.isfinite() & b.isfinite()
        steps = (ordered(a) - ordered(b)).abs()[finite]
        return Output(a.numel(), int((bits(a) == bits(b)).sum()), int(steps.max()) if steps.numel() else 0)


def ordered(x: Tensor) -> Tensor:
    """int64, x's shape: floats as integers in the same order, neighbours one apart; both zeros are 0."""
    number = bits(x).to(torch.int64)
    lowest = -(1 << (8 * x.element_size() - 1))
    return torch.where(number < 0, lowest - number, number)


@dataclass
class Compared:
    """What came of one case. problems: what is wrong with it, in a line each; skipped: why it was not called."""

    outputs: dict[str, Output] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    skipped: str = ""
    ratio: float = 0.0
    """The larger of the two results' largest error / bound."""

    @property
    def equal(self) -> bool:
        return all(output.equal == output.elements for output in self.outputs.values())


def compare(case: Case, implementations: tuple[Implementation, Implementation], device: str) -> Compared:
    """Make and judge the call on the CPU and on `device`, with an implementation each (the same one, but in tests)."""
    found, results = Compared(), []
    judges = [Judge(case, where) for where in ("cpu", device)]
    if judges[0].reason is not None:
        return Compared(skipped=f"illegal: {judges[0].reason}")
    for a, b in zip(judges[0].memory.snapshot(), judges[1].memory.snapshot()):
        if not torch.equal(a, b.cpu()):
            return Compared(problems=["the two devices were not given the same bytes"])
    for judge, implementation, where in zip(judges, implementations, ("cpu", device)):
        outputs, problem, ratio, exact = call(judge, implementation)
        if problem.startswith("skip: "):
            return Compared(skipped=problem.removeprefix("skip: "))
        if problem:
            found.problems.append(f"on {where}: {problem}")
        found.ratio = max(found.ratio, ratio)
        results.append(outputs)
    if results[0] is not None and results[1] is not None:
        found.outputs = {name: Output.of(results[0][name], results[1][name]) for name in results[0]}
        for name, output in found.outputs.items():
            if exact and output.equal != output.elements:
                found.problems.append(f"{name}: {output.elements - output.equal} of {output.elements} elements differ")
    return found


def call(judge: Judge, implementation: Implementation) -> tuple[Outputs | None, str, float, bool]:
    """The outputs of one call, what is wrong with them, the ratio, and whether only one result is right. Raises DeviceBroken."""
    case, operator = judge.case, judge.operator
    why = implementation.unsupported(implementation.tuned({**operator.build_params(case), "tuning": case.tuning}))
    if why := why or judge._cannot_take(implementation):
        return None, f"skip: {why}", 0.0, False
    reference, _ = judge._reference(implementation)
    bench = Bench(case, operator, judge.memory, None, reference)
    attempt = judge._attempt(bench, implementation, 0)
    assert reference is not None
    if attempt.outputs is None:
        assert attempt.problem is not None
        return None, f"{attempt.problem.kind}: {attempt.problem.message}", 0.0, reference.unique
    verdict = judge._values(attempt.outputs, reference, Runs())
    problem = f"{verdict.kind}: {verdict.message}" if verdict.failed else ""
    return attempt.outputs, problem, verdict.ratio, reference.unique


def recorded(operator: str, folder: Path) -> list[Case]:
    """The calls of an operator's entries, whatever they were found with, without checks and orders; each once."""
    found = {}
    for path, entry in corpus.entries(folder):
        if not isinstance(entry, corpus.Entry):
            raise click.ClickException(f"{path}: {entry}")
        if isinstance(entry.subject, Case) and entry.subject.operator == operator:
            plain = replace(entry.subject, schedule=0, checks=())
            found[plain.key()] = plain
    return list(found.values())


def drawn(operator: str, count: int, start: int) -> list[Case]:
    """So many different legal calls."""
    found: dict[bytes, Case] = {}
    for scale, enough in ((SCALES["cuda", "dev"], count - count // 4), (WIDE, count)):
        while len(found) < enough:
            start += 1
            more = _drawn(operator, scale, 2 * count + 10, start)  # every run begins with the plainest call
            found = dict([*found.items(), *((key, case) for key, case in more.items() if key not in found)][:enough])
    return list(found.values())


def _drawn(operator: str, scale: Scale, count: int, start: int) -> dict[bytes, Case]:
    found: dict[bytes, Case] = {}

    @seed(start)
    @profile(count)
    @given(operators.get(operator).cases(scale, illegal=False))
    def draw(case: Case) -> None:
        found[case.key()] = case

    draw()
    return found


def batches(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """The cases in groups of at most TOGETHER that need the same build."""

    def build(case: Case) -> str:
        return repr((case.tuning, sorted(operators.get(case.operator).build_params(case).items())))

    for _, group in groupby(sorted(cases, key=build), key=build):
        alike = list(group)
        for i in range(0, len(alike), TOGETHER):
            yield alike[i : i + TOGETHER]


def work(cases: list[Case], spec: str, device: str) -> list[Compared]:
    """What a process does."""
    torch.set_num_threads(1)
    results: list[Compared] = []
    for case in cases:
        implementation = load(case.operator, spec)
        try:
            results.append(compare(case, (implementation, implementation), device))
        except DeviceBroken as broken:
            results.append(Compared(problems=[f"on {device}: {broken.verdict.kind}: {broken.verdict.message}"]))
            results += [Compared(skipped="the device was lost before it")] * (len(cases) - len(results))
            break
    return results


@dataclass
class Tally:
    """The sum of what was compared."""

    calls: int = 0
    equal: int = 0
    wrong: int = 0
    ratio: float = 0.0
    skipped: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, Output] = field(default_factory=dict)

    def add(self, case: Case, compared: Compared) -> None:
        if compared.skipped:
            self.skipped[compared.skipped] = self.skipped.get(compared.skipped, 0) + 1
            return
        self.calls += 1
        self.equal += compared.equal and not compared.problems
        self.wrong += bool(compared.problems)
        self.ratio = max(self.ratio, compared.ratio)
        for name, output in compared.outputs.items():
            name = f"{name} ({case.tensors[operators.get(case.operator).REQUIRED[0]].dtype})"
            sum_ = self.outputs.setdefault(name, Output(0, 0, 0))
            sum_.elements += output.elements
            sum_.equal += output.equal
            sum_.ulps = max(sum_.ulps, output.ulps)

    def lines(self) -> Iterator[str]:
        yield f"{self.calls} calls: {self.equal} with equal bits, {self.wrong} wrong; largest error / bound {self.ratio:.3g}"
        for name, output in sorted(self.outputs.items()):
            share = 100 * output.equal / max(output.elements, 1)
            differ = output.elements - output.equal
            yield f"  {name}: {share:.4f}% of {output.elements} elements equal, {differ} differ, by up to {output.ulps} ulps"
        for why, count in self.skipped.items():
            yield f"  {count} not called: {why}"


def run(cases: Sequence[Case], spec: str, device: str, *, jobs: int, seconds: float) -> Iterator[tuple[Case, Compared]]:
    """Compare the cases in `jobs` processes, as they get done; what is not begun after `seconds` is left out.

    Raises BrokenProcessPool when one dies.
    """
    end, late = time.monotonic() + seconds, False
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        waiting: dict[Future[list[Compared]], list[Case]] = {}
        for batch in batches(cases):
            waiting[pool.submit(work, batch, spec, device)] = batch
        try:
            while waiting:
                left = None if late else max(end - time.monotonic(), 0)
                done, _ = wait(waiting, timeout=left, return_when=FIRST_COMPLETED)
                for future in done:
                    yield from zip(waiting.pop(future), future.result())
                if not late and time.monotonic() >= end:
                    late, waiting = True, {future: batch for future, batch in waiting.items() if not future.cancel()}
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


@click.command()
@click.option("--operator", default="top_k_mask_logits", show_default=True)
@click.option(
    "--impl", "spec", default="cuda", show_default=True, help="An implementation whose kernels the CPU can run."
)
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True, help="The other one.")
@click.option("--examples", type=click.IntRange(0), default=500, show_default=True, help="Calls drawn.")
@click.option("--seed", "start", default=0, show_default=True)
@click.option("--jobs", type=click.IntRange(1), help="Processes. [default: one a core]")
@click.option(
    "--time", "seconds", type=Duration(), default="5m", show_default=True, help="Begin no call after this long."
)
@click.option("--corpus", "folder", type=click.Path(path_type=Path), default=Path("corpus"), show_default=True)
def main(
    operator: str,
    spec: str,
    device: str,
    examples: int,
    start: int,
    jobs: int | None,
    seconds: float,
    folder: Path,
) -> None:
    """Say what differs; exit 1 when anything is wrong, or not all calls were made."""
    began = time.monotonic()
    implementation = load(operator, spec)
    if why := implementation.unavailable("cpu") if implementation.executes("cpu") else "it has no `execution`":
        raise click.ClickException(f"{operator}/{spec} does not run on the CPU: {why}")
    entries = recorded(operator, folder)
    cases = [*entries, *drawn(operator, examples, start)]
    print(f"{operator}/{spec}: {len(entries)} calls of the corpus, {examples} drawn; cpu and {device}", flush=True)
    tally, told, done = Tally(), began, 0
    for case, compared in run(cases, spec, device, jobs=jobs or os.cpu_count() or 1, seconds=seconds):
        done += 1
        tally.add(case, compared)
        for problem in compared.problems:
            print(f"wrong: {problem}\n  {case.key().decode()}", flush=True)
        if time.monotonic() - told >= 5 or done == len(cases):
            told = time.monotonic()
            print(f"{told - began:.0f} s, {done} of {len(cases)} calls, {tally.wrong} wrong", flush=True)
    print("\n".join(tally.lines()))
    if done < len(cases):
        print(f"{len(cases) - done} of {len(cases)} calls were not begun in {seconds:.0f} s")
    sys.exit(bool(tally.wrong or done < len(cases) or not tally.calls))


if __name__ == "__main__":
    main()
