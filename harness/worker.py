"""The child side of the sandbox: `python -m harness.worker READ_FD WRITE_FD DEVICE`. It may die or hang at any moment.

It answers one request at a time and keeps nothing between them but loaded implementations. It ends when its pipe closes,
when its parent dies, or after a device error, which no process recovers from.
"""

from __future__ import annotations

import math
import os
import sys
import traceback
from collections.abc import Callable
from functools import cache

import torch

from harness import environment, implementations, operators, protocol
from harness.attempt import DeviceBroken
from harness.case import CaseError
from harness.child import as_child
from harness.implementations import BadHook, Implementation, why_unusable
from harness.judge import Judge, judge_build
from harness.protocol import (
    Builds,
    Calling,
    Environment,
    Failed,
    Inspected,
    Judged,
    Prepared,
    Reply,
    Request,
    Unfit,
    Units,
    Unusable,
)


def main(read: int, write: int, device: str) -> None:
    """Serve requests until the pipe closes."""
    requests, replies = as_child(read, write)
    while True:
        try:
            request = protocol.decode_request(requests.recv_bytes())
        except (EOFError, OSError):
            return

        def send(reply: Reply) -> None:
            replies.send_bytes(protocol.encode(reply))

        try:
            answer(request, device, send)
        except BadHook as error:
            send(Unusable(str(error)))
        except Exception:
            # An error of the harness is told, not raised: the parent decides.
            send(Failed(traceback.format_exc()))


Send = Callable[[Reply], None]


def answer(request: Request, device: str, send: Send) -> None:
    """Send the replies to one request."""
    match request:
        case protocol.Inspect():
            send(_inspect(request))
        case protocol.JudgeCase():
            _judge(request, device, send)
        case protocol.JudgeBuild(build, spec):
            send(Judged(judge_build(build, load(build.operator, spec))))
        case protocol.ListBuilds(operator, spec, params):
            send(Builds(tuple(load(operator, spec).builds(params))))
        case protocol.ListUnits(build, spec):
            send(Units(load(build.operator, spec).units(build)))
        case protocol.DescribeEnvironment():
            send(Environment(environment.describe(request.device)))


def _judge(request: protocol.JudgeCase, device: str, send: Send) -> None:
    case = request.case
    loaded = [load(case.operator, spec) for spec in request.specs]
    try:
        judge = Judge(case, device)
    except torch.OutOfMemoryError as error:
        send(Unfit(str(error).partition("\n")[0], retry=True))
        return
    except (CaseError, KeyError, ValueError, TypeError, RuntimeError) as error:
        retry = device == "cuda" and isinstance(error, RuntimeError)
        send(Unfit(f"{type(error).__name__}: {error}".partition("\n")[0], retry))
        return
    send(Prepared(judge.reason))
    for implementation in loaded:
        try:
            verdict = judge.judge(
                implementation,
                pairs=request.pairs,
                sure=request.sure,
                picture=request.picture,
                announce=lambda: send(Calling()),
            )
        except BadHook as error:
            send(Unusable(str(error)))
            return
        except DeviceBroken as broken:
            send(Judged(broken.verdict, dict(judge.timing), broken=True))
            os._exit(1)  # destructors would only meet the same device error
        fastest = judge.fastest if judge.fastest < math.inf else 0.0
        send(Judged(verdict, dict(judge.timing), fastest, mismatch=judge.mismatch(verdict)))
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
        operators.get(request.operator).semantics(implementation.semantics(request.device), request.device)
        cannot_run = implementation.unavailable(request.device)
    except (Exception, SystemExit) as error:
        return Unusable(why_unusable(request.spec, error))
    executes = implementation.executes(request.device)
    return Inspected(implementation.name, implementation.can_build, executes, cannot_run, implementation.tuning_choices)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
