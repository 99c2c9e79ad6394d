"""The child side of the sandbox: `python -m harness.worker READ_FD WRITE_FD DEVICE`. It may die or hang at any moment.

It answers one request at a time and keeps nothing between them but loaded implementations. It ends when its pipe closes,
when its parent dies, or after a device error, which no process recovers from.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from functools import cache
from multiprocessing.connection import Connection

import torch

from harness import environment, implementations, operators, protocol
from harness.attempt import DeviceBroken
from harness.case import Case, CaseError
from harness.implementations import Implementation, UnknownImplementation
from harness.judge import Judge, judge_build
from harness.protocol import Builds, Environment, Failed, Inspected, Judged, Prepared, Reply, Request, Unfit, Unusable

PR_SET_PDEATHSIG = 1


def main(read: int, write: int, device: str) -> None:
    """Serve requests until the pipe closes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # asked of a hung child before it is killed
    requests, replies = Connection(read, writable=False), Connection(write, readable=False)
    while True:
        try:
            request = protocol.decode_request(requests.recv_bytes())
        except (EOFError, OSError):
            return
        for reply in answer(request, device):
            replies.send_bytes(protocol.encode(reply))
            if isinstance(reply, Judged) and reply.broken:
                os._exit(1)  # destructors would only meet the same device error


def answer(request: Request, device: str) -> Iterator[Reply]:
    """The replies to one request. An error of the harness is told, not raised: the parent decides."""
    try:
        yield from _answer(request, device)
    except Exception:
        yield Failed(traceback.format_exc())


def _answer(request: Request, device: str) -> Iterator[Reply]:
    match request:
        case protocol.Inspect():
            yield _inspect(request)
        case protocol.JudgeCase(case, specs, pairs, sure):
            yield from _judge(case, [load(case.operator, spec) for spec in specs], device, pairs, sure)
        case protocol.JudgeBuild(build, spec):
            yield Judged(judge_build(build, load(build.operator, spec)))
        case protocol.ListBuilds(operator, spec, params):
            yield Builds(tuple(load(operator, spec).builds(params)))
        case protocol.DescribeEnvironment():
            yield Environment(environment.describe(request.device))


def _judge(case: Case, loaded: list[Implementation], device: str, pairs: int, sure: bool) -> Iterator[Reply]:
    try:
        judge = Judge(case, device)
    except torch.OutOfMemoryError as error:
        yield Unfit(str(error).partition("\n")[0], retry=True)
        return
    except (CaseError, KeyError, ValueError, TypeError, RuntimeError) as error:
        yield Unfit(
            f"{type(error).__name__}: {error}".partition("\n")[0],
            retry=device == "cuda" and isinstance(error, RuntimeError),
        )
        return
    yield Prepared()
    for implementation in loaded:
        try:
            verdict = judge.judge(implementation, pairs=pairs, sure=sure)
        except DeviceBroken as broken:
            yield Judged(broken.verdict, dict(judge.timing), broken=True)
            return
        yield Judged(verdict, dict(judge.timing))
        if verdict.failed:
            spent = judge.timing
            judge = Judge(case, device)  # whatever was overwritten must not speak against the next one
            for what, seconds in spent.items():
                judge.timing[what] += seconds


@cache
def load(operator: str, spec: str) -> Implementation:
    return implementations.load(operator, spec)


def _inspect(request: protocol.Inspect) -> Reply:
    try:
        implementation = load(request.operator, request.spec)
        operators.get(request.operator).semantics(implementation.semantics)
        cannot_run = implementation.unavailable(request.device)
    except (UnknownImplementation, CaseError, ValueError) as error:
        return Unusable(str(error), unknown=True)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Unusable(
            f"{type(error).__name__}: {error} ({os.path.basename(where.filename)}, line {where.lineno})", unknown=False
        )
    return Inspected(implementation.name, implementation.can_build, cannot_run)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
