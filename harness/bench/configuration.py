"""Measures one configuration: its first call, judging, memory, then time. Runs in the child."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from harness.bench import subject, timing
from harness.bench import workload as workloads
from harness.bench.judging import Judged, Wrong, judge
from harness.bench.protocol import Doing, Measure, MeasureFloor
from harness.bench.report import Floor, Result
from harness.bench.subject import Bound, Subject
from harness.bench.timing import Device, Thunk
from harness.bench.workload import Tensors, Workload
from harness.verdict import MAX_LOG
from oracles.judgement import bits

DRAWS, SMALL = 4, 16 << 20
"""How many different inputs the buffers of a workload hold in turn, where one is of at most so many bytes: of a call with one
row, the time can depend on luck. Larger ones hold one."""

Tell = Callable[[Doing], None]


class Unfit(Exception):
    """There is no such call of this implementation; the message says why."""


@dataclass
class Buffers:
    """The inputs of several calls: `originals` are never given to a kernel; call i works on copies of originals[i % len]."""

    workload: Workload
    originals: list[dict[str, Tensor]]
    made: list[dict[str, Tensor]] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of one call's inputs."""
        return timing.bytes_of(list(self.originals[0].values()))

    def want(self, count: int) -> list[dict[str, Tensor]]:
        """So many buffers, made if they are not there yet."""
        while len(self.made) < count:
            original = self.originals[len(self.made) % len(self.originals)]
            self.made.append({name: tensor.clone() for name, tensor in original.items()})
        return self.made[:count]

    def restore(self, numbers: range, names: frozenset[str]) -> None:
        """What calls write, in the buffers of these numbers, becomes what it was."""
        for i in numbers:
            for name in names:
                self.made[i][name].copy_(self.originals[i % len(self.originals)][name])


def draw(workload: Workload, seed: int, device: Device) -> Buffers:
    """Inputs for a workload's calls."""
    benchmarks = workloads.of(workload.operator)
    first = benchmarks.inputs(workload, seed, device.name)
    draws = DRAWS if timing.bytes_of(list(first.values())) <= SMALL else 1
    more = [benchmarks.inputs(workload, seed + 101 * i, device.name) for i in range(1, draws)]
    return Buffers(workload, [first, *more])


def measure(request: Measure, device: Device, tell: Tell) -> Result:
    """Judge and time one configuration. Whatever goes wrong is a result that says so."""
    workload = request.workload
    about: dict[str, Any] = {"operator": workload.operator, "workload": workload.name, "name": request.spec}
    try:
        tell(Doing("loading", may_compile=True))
        kernel = subject.load(workload.operator, request.spec, device.name)
        about["name"] = kernel.name
        if (why := kernel.unsupported(workload)) is not None:
            raise Unfit(why)
        tell(Doing("making inputs"))
        buffers = draw(workload, request.seed, device)
        return _measure(request, kernel, buffers, about, device, tell)
    except Unfit as unfit:
        return Result(**about, status="unsupported", why=str(unfit))
    except Wrong as wrong:
        return Result(**about, status="wrong", why=str(wrong))
    except torch.OutOfMemoryError as error:
        return Result(**about, status="failed", why=f"out of memory: {_line(error)}")
    except Exception as error:
        log = "".join(traceback.format_exception(error))[-MAX_LOG:]
        return Result(**about, status="failed", why=f"{type(error).__name__}: {_line(error)}", log=log)


def _measure(
    request: Measure, kernel: Subject, buffers: Buffers, about: dict[str, Any], device: Device, tell: Tell
) -> Result:
    workload = request.workload
    tell(Doing("first call", may_compile=True))
    before = device.allocated()
    bound = _bind(kernel, workload, buffers.want(1)[0])
    size = device.allocated() - before
    bound.call()
    device.synchronise()
    kept = max(0, device.allocated() - before - size)
    tell(Doing("judging"))
    right, judged = _judge(kernel, buffers, device)
    tell(Doing("measuring memory"))
    buffers.restore(range(1), bound.writes)
    held, start = device.allocated(), time.perf_counter()
    extra = device.peak(bound.call) - held + kept
    count = _cold_count(buffers, workload, device, time.perf_counter() - start)
    tell(Doing("timing, cold"))
    cold = _time(kernel, buffers, count, request.seconds, right, device, cold=True)
    warm = None
    if request.warm and _fits(workload, device):
        tell(Doing("timing, warm"))
        warm = _time(kernel, buffers, 1, request.seconds, right, device, cold=False)
    note = workloads.of(workload.operator).judged(workload) + (", by a vacuous bound" if judged.vacuous else "")
    return Result(**about, status="measured", cold=cold, warm=warm, extra=extra, judged=note, ratio=judged.ratio)


def _bind(kernel: Subject, workload: Workload, tensors: Tensors) -> Bound:
    bound = kernel.bind(workload, tensors)
    if isinstance(bound, str):
        raise Unfit(bound)
    return bound


Outputs = dict[str, Tensor]


def _judge(kernel: Subject, buffers: Buffers, device: Device) -> tuple[list[Outputs], Judged]:
    """Judge one call on each of the drawn inputs; the right outputs, copied. Raises Wrong."""
    right, ratio, vacuous = [], 0.0, False
    for i, original in enumerate(buffers.originals):
        bound = _bind(kernel, buffers.workload, buffers.want(i + 1)[i])
        buffers.restore(range(i, i + 1), bound.writes)
        outputs = subject.outputs_of(buffers.workload.operator, bound.call())
        outputs = {name: tensor.detach().clone() for name, tensor in outputs.items()}
        found = judge(buffers.workload, original, outputs, kernel.semantics, device.name)
        changed = [n for n in original if n not in bound.writes and not _same(buffers.made[i][n], original[n])]
        if changed:
            raise Wrong(f"changed_input: the call changed its input {changed[0]}")
        right.append(outputs)
        ratio, vacuous = max(ratio, found.ratio), vacuous or found.vacuous
    return right, Judged(ratio, vacuous)


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(bits(a.contiguous()), bits(b.contiguous()))


def _cold_count(buffers: Buffers, workload: Workload, device: Device, seconds: float) -> int:
    cost = workloads.of(workload.operator).cost(workload)
    return timing.buffers_for(max(buffers.size, cost.read), device.cache, seconds)


def _fits(workload: Workload, device: Device) -> bool:
    """Whether all that a call touches can be in the cache before it."""
    cost = workloads.of(workload.operator).cost(workload)
    return cost.read + cost.written <= device.cache


def _time(
    kernel: Subject,
    buffers: Buffers,
    count: int,
    seconds: float,
    right: list[Outputs],
    device: Device,
    *,
    cold: bool,
) -> timing.Timing:
    """Time so many calls at once, each on its own buffers; then see that what they gave is right."""
    bound = [_bind(kernel, buffers.workload, tensors) for tensors in buffers.want(count)]
    numbers = range(count)
    # What is warm was written a moment ago, whether the call writes it or not.
    names = bound[0].writes if cold else frozenset(buffers.originals[0])

    def before() -> None:
        buffers.restore(numbers, names)
        if cold:
            device.evict()

    before()
    prepared = device.prepare([each.call for each in bound])
    found = timing.measure(prepared, count, before, seconds)
    # A replay that does nothing would be the fastest: its results must be those of a call, not the buffers as restored.
    for i in sorted({0, count - 1}):
        outputs = subject.outputs_of(buffers.workload.operator, prepared.results()[i])
        expected = right[i % len(right)]
        if all(_same(outputs[name], expected[name]) for name in expected):
            continue
        if kernel.deterministic:
            raise Wrong("the timed calls gave other bits than the call that was judged")
        judge(buffers.workload, buffers.originals[i % len(right)], outputs, kernel.semantics, device.name)
    return found


def measure_floor(request: MeasureFloor, device: Device, tell: Tell) -> Floor:
    """The ceilings for one workload."""
    workload = request.workload
    cost = workloads.of(workload.operator).cost(workload)
    size = max(16, (cost.read + cost.written) // 2)
    tell(Doing("timing a copy"))
    cold = _copy(size, timing.buffers_for(size, device.cache), request.seconds, device, cold=True)
    warm = _copy(size, 1, request.seconds, device, cold=False) if _fits(workload, device) else None
    flops = 0.0
    if cost.flops:
        tell(Doing("timing a matrix product"))
        flops = matmul(cost.dtype, device)
    return Floor(workload.operator, workload.name, cost, cold, warm, flops, workload.against)


def _copy(size: int, count: int, seconds: float, device: Device, *, cold: bool) -> timing.Timing:
    """Of `size` bytes to elsewhere on the device, so that twice as many move."""
    known = (device.name, size, cold)
    if known in _COPIES:
        return _COPIES[known]
    words = -(-size // 4)
    sources = [torch.ones(words, device=device.name) for _ in range(count)]
    targets = [torch.empty_like(source) for source in sources]

    def before() -> None:
        if cold:
            device.evict()
        else:
            sources[0].fill_(1.0)  # in the cache and modified, as what is restored

    prepared = device.prepare([_copying(target, source) for target, source in zip(targets, sources)])
    return _COPIES.setdefault(known, timing.measure(prepared, count, before, seconds))


def _copying(target: Tensor, source: Tensor) -> Thunk:
    return lambda: target.copy_(source)


_COPIES: dict[tuple[str, int, bool], timing.Timing] = {}
_RATES: dict[tuple[str, str], float] = {}
"""What this process has measured: (device, bytes, cold) -> a copy; (device, dtype) -> operations a second."""


def matmul(dtype: str, device: Device) -> float:
    """Operations a second of a product of square matrices of normal values: the median over half a second."""
    known = _RATES.get((device.name, dtype))
    if known is not None:
        return known
    n = 8192 if device.name == "cuda" else 64
    a, b = (workloads.normal((n, n), getattr(torch, dtype), seed, device.name) for seed in (1, 2))
    c = torch.empty_like(a)
    calls: list[Thunk] = [lambda: torch.matmul(a, b, out=c)] * 4
    calls[0]()
    found = timing.measure(device.prepare(calls), len(calls), device.evict, 0.5 if device.name == "cuda" else 0.01)
    return _RATES.setdefault((device.name, dtype), 2.0 * n**3 / found.median)


def _line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
