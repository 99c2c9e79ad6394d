"""Several campaigns at once, each a process of its own (Hypothesis draws on one core), on one corpus.

The parent of the workers only reads their events, one JSON object a line, and adds them up.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from typing import IO, Any, NamedTuple

import msgspec

from harness import gpus
from harness.child import die_with_parent
from harness.events import Emit, Event, merge_states
from harness.fuzz import Campaign, Config
from harness.sandbox import HarnessError, UnusableImplementation

USAGE = 2


def run(config: Config, jobs: int, emit: Emit) -> None:
    """Run one campaign here, or `jobs` of them in processes. Events come as from one; progress is the sum.

    Raises UnusableImplementation, HarnessError, KeyboardInterrupt; on an interrupt every worker has ended.
    """
    if jobs == 1:
        Campaign(config, emit).run()
        return
    workers = [_start(_share(config, i, jobs)) for i in range(jobs)]
    lines: queue.SimpleQueue[tuple[int, str | None]] = queue.SimpleQueue()
    for i, worker in enumerate(workers):
        threading.Thread(target=_read, args=(i, worker, lines), daemon=True).start()
    latest: dict[int, Event] = {}
    open_workers = set(range(jobs))
    started = False
    try:
        while open_workers:
            i, line = lines.get()
            if line is None:
                open_workers.discard(i)
                continue
            event = json.loads(line)
            if event["event"] == "start":  # the first one speaks for all
                if not started:
                    emit({**event, "seed": config.seed})
                started = True
                continue
            _take(i, event, latest, emit)
    except KeyboardInterrupt:
        # They are in sessions of their own, so that each gets the signal once: they keep what they have, and end.
        for worker in workers:
            worker.process.send_signal(signal.SIGINT)
        raise
    finally:
        for worker in workers:
            try:
                worker.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                worker.process.kill()
    for worker in workers:
        status = worker.process.returncode
        if status == USAGE:
            raise UnusableImplementation(worker.last_words())
        if status not in (0, -2):
            raise HarnessError(f"a worker ended with status {status}: {worker.last_words()}")


def _take(i: int, event: Event, latest: dict[int, Event], emit: Emit) -> None:
    if event["event"] == "progress":
        latest[i] = event
        emit(add(list(latest.values())))
    else:
        emit({**event, "worker": str(i)})


def add(progress: list[Event]) -> Event:
    """The progress of several workers as one."""
    total: dict[str, Any] = dict(progress[0])
    for other in progress[1:]:
        for key in ("cases", "builds", "builds_pending", "findings", "deaths", "harness_failures"):
            total[key] += other[key]
        total["seconds"] = max(total["seconds"], other["seconds"])
        total["hunting"] = total["hunting"] or other["hunting"]
        total["targets"] = {
            name: merge_states(state, other["targets"][name]) for name, state in total["targets"].items()
        }
        total["timing"] = {
            what: round(total["timing"].get(what, 0.0) + other["timing"].get(what, 0.0), 3)
            for what in {**total["timing"], **other["timing"]}
        }
    return total


def _share(config: Config, i: int, jobs: int) -> Config:
    """A worker's part: its own seed and GPU, a part of the cases; one of them compiles."""
    cases = None if config.cases is None else config.cases // jobs + (i < config.cases % jobs)
    visible = gpus.share(i) if config.device == "cuda" else None
    return replace(
        config,
        name=str(i),
        seed=config.seed + i * 1_000_003,
        cases=cases,
        builds=config.builds and i == 0,
        visible=visible,
    )


class _Worker(NamedTuple):
    process: subprocess.Popen[str]
    errors: IO[bytes]
    """What it says on stderr: a file, since a pipe that nobody reads would stop it when full."""

    def last_words(self) -> str:
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def _start(config: Config) -> _Worker:
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.jobs"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as stdin:  # one that is gone already has its status to say
        stdin.write(msgspec.json.encode(config, enc_hook=str).decode())
    return _Worker(process, errors)


def _read(i: int, worker: _Worker, lines: queue.SimpleQueue[tuple[int, str | None]]) -> None:
    assert worker.process.stdout is not None
    for line in worker.process.stdout:
        lines.put((i, line))
    lines.put((i, None))


def main() -> int:
    """A worker: its configuration on standard input, its events on standard output."""
    die_with_parent()
    config = msgspec.json.decode(sys.stdin.buffer.read(), type=Config, dec_hook=lambda kind, text: kind(text))
    try:
        Campaign(config, lambda event: print(json.dumps(event), flush=True)).run()
    except UnusableImplementation as error:
        print(error, file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
