"""What this machine can run, and why not the rest. Every check does the thing itself, in a child where it could crash."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness import environment, gpus, implementations, operators
from harness.case import Build
from harness.sandbox import Engine, HarnessError, UnusableImplementation, telling_line


@dataclass(frozen=True)
class Check:
    """state: ok; absent (a part of the machine that need not be there); broken (it should work and does not)."""

    name: str
    state: Literal["ok", "absent", "broken"]
    detail: str


def checks() -> Iterator[Check]:
    """Every check, as it is done."""
    yield Check("software", "ok", ", ".join(f"{k} {v}" for k, v in environment.software().items()))
    yield _gpu()
    yield from _builds()
    devices = ["cuda", "cpu"] if gpus.visible() else ["cpu"]
    for device in devices:
        yield from _targets(device)
    yield _writable()


def _gpu() -> Check:
    names = gpus.visible()
    if not names:
        return Check(
            "GPU", "absent", "none is visible; Triton kernels run under the interpreter, CUDA kernels through g++"
        )
    try:
        with Engine("cuda") as engine:
            found = engine.environment()
    except HarnessError as error:
        return Check("GPU", "broken", f"{len(names)} visible, but CUDA does not start: {str(error).splitlines()[-1]}")
    return Check(
        "GPU", "ok", f"{len(names)} visible; first: {found['gpu']}, driver {found['driver']}, CUDA {found['cuda']}"
    )


def _builds() -> Iterator[Check]:
    """One variant of each implementation that can be built, for each architecture."""
    with Engine("cpu", build_only=True) as engine:
        for operator in operators.names():
            module = operators.get(operator)
            for spec in implementations.available(operator):
                try:
                    if not engine.inspect(operator, spec).can_build:
                        continue
                    variants = engine.builds(operator, spec, next(iter(module.build_matrix())))
                except (HarnessError, UnusableImplementation) as error:
                    yield Check(f"build {operator}/{spec}", "broken", telling_line(error))
                    continue
                yield _build(engine, f"{operator}/{spec}", spec, variants)


def _build(engine: Engine, name: str, spec: str, variants: tuple[Build, ...]) -> Check:
    first = {build.arch: build for build in reversed(variants)}
    verdicts = {arch: engine.build(build, spec) for arch, build in sorted(first.items())}
    failed = {arch: verdict for arch, verdict in verdicts.items() if verdict.failed}
    if failed:
        arch, verdict = next(iter(failed.items()))
        return Check(
            f"build {name}", "broken", f"{len(failed)} of {len(verdicts)} architectures fail; {arch}: {verdict.message}"
        )
    return Check(f"build {name}", "ok", f"compiles for {', '.join(verdicts)} (no GPU needed)")


def _targets(device: str) -> Iterator[Check]:
    executed: dict[str, str | None] = {}
    with Engine(device) as engine:
        for operator in operators.names():
            for spec in implementations.available(operator):
                name = f"run {operator}/{spec} on {device}"
                try:
                    about = engine.inspect(operator, spec)
                except (HarnessError, UnusableImplementation) as error:
                    yield Check(name, "broken", telling_line(error))
                    continue
                why = about.cannot_run
                if about.executes:
                    executed[f"{operator}/{spec}"] = why
                yield Check(name, "absent" if why else "ok", why or "runs")
    if executed:
        yield _execution(executed)


def _execution(executed: dict[str, str | None]) -> Check:
    """CUDA on the CPU. executed: target -> why its kernels cannot run there, or None."""
    name = "CUDA on the CPU"
    runs = [target for target, why in executed.items() if why is None]
    if not runs:
        return Check(name, "absent", next(filter(None, executed.values())))
    compiler = environment.host_compiler() or "a compiler that does not say its version"
    return Check(name, "ok", f"{compiler}; {', '.join(runs)} run, slowly, and `warpcheck sanitize` checks them")


def _writable() -> Check:
    try:
        with tempfile.TemporaryDirectory(dir=Path.cwd()):
            return Check("current folder", "ok", "can be written; campaigns keep their corpus below it")
    except OSError as error:
        return Check("current folder", "broken", f"cannot be written ({error.strerror}); use --corpus")
