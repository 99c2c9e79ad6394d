"""A run of the bench: every chosen configuration, and what is known so far at every moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from harness.bench import workload as workloads
from harness.bench.meter import Meter
from harness.bench.protocol import Measure
from harness.bench.report import Floor, Report, Result, Settings
from harness.bench.workload import Workload
from harness.sandbox import HarnessError, telling_line


class NothingToTime(ValueError):
    """No implementation that was asked for can be timed here; the message is one line."""


@dataclass(frozen=True)
class Config:
    """What to time.

    workloads, kernels: per operator; a kernel is an implementation's spec or a competitor's name. baseline: what times are
    compared with, per operator, or nothing. seconds: for each time.
    """

    workloads: Mapping[str, Sequence[Workload]]
    kernels: Mapping[str, Sequence[str]]
    baseline: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.2
    seed: int = 0
    warm: bool = True


def baseline_for(operator: str, kernels: Sequence[str]) -> str:
    """The first competitor that takes part, or else the first kernel."""
    rivals = [c.name for c in workloads.of(operator).COMPETITORS]
    return next((name for name in rivals if name in kernels), kernels[0])


class Campaign:
    """`run` measures; `report` is always what is known so far. changed: called when a workload is done."""

    def __init__(
        self,
        config: Config,
        meter: Meter,
        *,
        say: Callable[[str], None] = lambda text: None,
        changed: Callable[[Report], None] = lambda report: None,
    ) -> None:
        self.config, self.meter = config, meter
        self._say, self._changed = say, changed
        self._start = time.monotonic()
        self.done = 0
        self.total = sum(len(config.workloads[op]) * (1 + len(config.kernels[op])) for op in config.workloads)
        self.skipped: dict[str, str] = {}
        """Kernels that cannot run here at all, and why."""
        settings = Settings(dict(config.baseline), config.seconds, config.seed)
        self.report = Report({}, settings)

    def run(self) -> None:
        """Measure everything. Raises HarnessError where the device does not start, UnusableImplementation for a kernel that
        cannot be loaded, NothingToTime where none of an operator's can run here."""
        self.meter.tell = self._tell
        self._doing = "starting"
        self._tell("")
        self.report.machine = self.meter.machine()
        names = {operator: self._names(operator) for operator in self.config.workloads}
        chosen_as = {op: names[op].get(spec, spec) for op, spec in self.config.baseline.items()}
        self.report.settings = msgspec.structs.replace(self.report.settings, baseline=chosen_as)
        for operator, chosen in self.config.workloads.items():
            for each in chosen:
                self._doing = f"{operator} {each.name}"
                self._workload(each, names[operator])
                self._changed(self.report)
        self.report.complete = True
        self._changed(self.report)

    def _names(self, operator: str) -> dict[str, str]:
        """Spec -> name, of those that can run here."""
        rivals = [c.name for c in workloads.of(operator).COMPETITORS]
        found: dict[str, str] = {}
        for spec in self.config.kernels[operator]:
            if spec in rivals:
                found[spec] = spec
                continue
            about = self.meter.inspect(operator, spec)
            if about.cannot_run is None:
                found[spec] = about.name
            else:
                self.skipped[f"{operator}/{about.name}"] = about.cannot_run
                self.total -= len(self.config.workloads[operator])
        if not found:
            why = "; ".join(f"{name}: {why}" for name, why in self.skipped.items())
            raise NothingToTime(f"no implementation of {operator} can run here ({why})")
        return found

    def _workload(self, each: Workload, names: Mapping[str, str]) -> None:
        config = self.config
        try:
            self.report.floors.append(self.meter.floor(each, config.seconds, config.seed))
        except HarnessError as error:
            # Too large for this device, most likely: the other workloads are still worth their time.
            self.done += 1 + len(names)
            for name in names.values():
                why = f"no floor: {telling_line(error)}"
                self.report.results.append(Result(each.operator, each.name, name, "failed", why))
            return
        self.done += 1
        for spec, name in names.items():
            self._doing = f"{each.operator} {each.name}: {name}"
            self._tell("")
            request = Measure(each, spec, config.seconds, config.seed, config.warm)
            try:
                result = self.meter.measure(request, name)
            except HarnessError as error:
                result = Result(each.operator, each.name, name, "failed", f"the harness failed: {telling_line(error)}")
            self.report.results.append(result)
            self.done += 1

    def _tell(self, what: str) -> None:
        elapsed = time.monotonic() - self._start
        left = f", about {elapsed / self.done * (self.total - self.done):.0f} s left" if self.done > 2 else ""
        doing = f"{self._doing}, {what}" if what else self._doing
        self._say(f"{elapsed:.0f} s, {self.done} of {self.total}{left}; {doing}")


def unmeasured(report: Report, floor: Floor) -> list[Result]:
    """What of a workload has no time."""
    return [result for result in report.of(floor) if result.status != "measured"]
