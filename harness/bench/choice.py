"""What a command line asks to be timed."""

from __future__ import annotations

from harness import implementations
from harness.bench import workload as workloads
from harness.bench.campaign import Config, baseline_for
from harness.bench.workload import BadWorkload


def kernels_of(operator: str, specs: tuple[str, ...]) -> list[str]:
    """Specs of implementations and names of competitors, in the order of the table."""
    rivals = {each.name: each for each in workloads.of(operator).COMPETITORS}
    if not specs:
        return [*implementations.available(operator), *(name for name, each in rivals.items() if each.installed)]
    chosen: list[str] = []
    for spec in specs:
        if spec in rivals and not rivals[spec].installed:
            raise BadWorkload(f"{spec} needs the package {rivals[spec].package}, which is not installed")
        if spec in rivals or ":" in spec or spec in implementations.available(operator):
            chosen.append(spec)
    return list(dict.fromkeys(chosen))


def config_for(
    operator: str | None,
    sets: tuple[str, ...],
    shapes: tuple[str, ...],
    specs: tuple[str, ...],
    baseline: str | None,
    seconds: float,
    seed: int,
    warm: bool,
) -> Config:
    """What these options of the command ask for. Raises BadWorkload, or UnknownOperator."""
    names = [operator] if operator else workloads.timed_operators()
    if operator is None and (shapes or any(":" in spec for spec in specs)):
        what = "workload --shape" if shapes else "function --impl"
        raise BadWorkload(f"say which operator {what} is of: --operator {'|'.join(names)}")
    if operator is None and sets:
        names = [name for name in names if all(each in workloads.of(name).SETS for each in sets)]
        if not names:
            known = "; ".join(f"{n}: {', '.join(workloads.of(n).SETS)}" for n in workloads.timed_operators())
            raise BadWorkload(f"no operator has the set {', '.join(sets)}; there are: {known}")
    found = {name: kernels_of(name, specs) for name in names}
    for spec in specs:
        if not any(spec in kernels for kernels in found.values()):
            known = "; ".join(f"{name}: {', '.join(kernels_of(name, ()))}" for name in names)
            raise BadWorkload(f"unknown implementation {spec!r}; there are {known}; or give FILE.py:FUNCTION")
    found = {name: kernels for name, kernels in found.items() if kernels}
    bases = {name: baseline_for(name, kernels) for name, kernels in found.items()}
    if baseline is not None:
        bases = {name: baseline for name, kernels in found.items() if baseline in kernels}
        if not bases:
            known = "; ".join(f"{name}: {', '.join(kernels)}" for name, kernels in found.items())
            raise BadWorkload(f"the baseline {baseline!r} is not among what is timed: {known}")
    chosen = {name: workloads.chosen(name, sets, shapes) for name in found}
    return Config(chosen, found, bases, seconds, seed, warm)
