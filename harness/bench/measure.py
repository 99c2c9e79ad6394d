"""The child that measures: `python -m harness.bench.measure READ_FD WRITE_FD DEVICE`. It may die or hang at any moment.

It answers one request at a time, and ends when its pipe closes, when its parent dies, or after a device error.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import traceback
from collections.abc import Callable
from importlib import metadata

import torch

from harness import environment
from harness.bench import configuration, protocol, subject, timing, workload
from harness.bench.protocol import Describe, Failed, FloorIs, Inspected, Machine, Measured, Reply, Request, Unusable
from harness.bench.timing import Device
from harness.child import as_child
from harness.implementations import Implementation, why_unusable


def main(read: int, write: int, name: str) -> None:
    """Serve requests until the pipe closes."""
    requests, replies = as_child(read, write)

    def send(reply: Reply) -> None:
        replies.send_bytes(protocol.encode(reply))

    device: Device | None = None
    while True:
        try:
            request = protocol.decode_request(requests.recv_bytes())
        except (EOFError, OSError):
            return
        try:
            if device is None:
                device = timing.Cuda() if name == "cuda" else timing.Cpu()
                gc.collect()
                gc.freeze()  # what torch made while it was imported, which every collection would look through
            answer(request, device, send)
        except Exception:
            send(Failed(traceback.format_exc()))
        if device is not None:
            _tidy(device)


def answer(request: Request, device: Device, send: Callable[[Reply], None]) -> None:
    """Send the replies to one request."""
    match request:
        case Describe():
            send(Machine(_machine(device)))
        case protocol.Inspect():
            send(_inspect(request, device))
        case protocol.MeasureFloor():
            send(FloorIs(configuration.measure_floor(request, device, send)))
        case protocol.Measure():
            result = configuration.measure(request, device, send)
            last = device.spoiled or (result.status == "failed" and not _works(device))
            send(Measured(result, last))
            if last:
                os._exit(1)  # destructors would only meet the same device error


def _machine(device: Device) -> dict[str, str]:
    """Versions and device, with the size of its L2 cache and the versions of what competitors come from."""
    found = {**environment.describe(device.name), "L2 cache": f"{device.cache >> 10} KiB"}
    if device.name == "cuda" and torch.backends.cudnn.is_available():
        found["cudnn"] = str(torch.backends.cudnn.version())
    rivals = [rival for name in workload.timed_operators() for rival in workload.of(name).COMPETITORS]
    packages = {rival.package for rival in rivals if rival.installed} - {"torch"}
    distributions = metadata.packages_distributions() if packages else {}
    for package in sorted(packages):
        with contextlib.suppress(metadata.PackageNotFoundError):  # a folder on the path, in no distribution
            found[package] = metadata.version(distributions.get(package, [package])[0])
    return found


def _inspect(request: protocol.Inspect, device: Device) -> Reply:
    try:
        found = subject.load(request.operator, request.spec, device.name)
        cannot_run = found.kernel.unavailable(device.name) if isinstance(found.kernel, Implementation) else None
    except (Exception, SystemExit) as error:
        return Unusable(why_unusable(request.spec, error))
    return Inspected(found.name, cannot_run)


def _works(device: Device) -> bool:
    """Whether the device is still there after a failure."""
    try:
        device.synchronise()
    except Exception:
        return False
    return True


def _tidy(device: Device) -> None:
    """What one configuration left must not be in the way of the next."""
    gc.collect()
    if device.name == "cuda":
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
