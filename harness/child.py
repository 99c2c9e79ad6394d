"""A child process of the sandbox, as its parent holds it."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from harness.verdict import MAX_LOG

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends, however that happens (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def as_child(read: int, write: int) -> tuple[Connection, Connection]:
    """What a child's process does first: it dies with its parent, shows its Python stack when it crashes or is asked to
    (`Child.bury`), and has the pipes of requests and of replies."""
    die_with_parent()
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    return Connection(read, writable=False), Connection(write, readable=False)


class Child:
    """One process and its pipes; its output goes to a temporary file. module: what it runs, told two pipes and the device."""

    def __init__(self, device: str, environment: dict[str, str], *, module: str = "harness.worker") -> None:
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        child_read, parent_write = os.pipe()
        parent_read, child_write = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, str(child_read), str(child_write), device],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            pass_fds=(child_read, child_write),
            env=environment,
            start_new_session=True,  # ctrl-C is the parent's to handle
        )
        os.close(child_read)
        os.close(child_write)
        self.requests = Connection(parent_write, readable=False)
        self.replies = Connection(parent_read, writable=False)

    def cpu_seconds(self) -> float:
        """Processor time it has used; 0 where the system does not say."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """Bytes of memory it holds; 0 where the system does not say."""
        try:
            return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return 0

    def compiles(self) -> bool:
        """Whether it has a child of its own at this moment: a compiler at work. False where the system does not say."""
        for task in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                if task.read_text().strip():
                    return True
        return False

    def tail(self) -> str:
        """The end of what the process printed."""
        self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, self.log.tell() - MAX_LOG))
        return self.log.read().decode(errors="replace")

    def end(self) -> int:
        """Kill it if it lives; its exit status."""
        self.process.kill()
        status = self.process.wait()
        self.requests.close()
        self.replies.close()
        return status

    def bury(self, *, hung: bool) -> tuple[str, str]:
        """End it, whether it hangs, which its Python stack is asked for, or dies of itself. How it died, in a word or two, and
        the end of what it printed."""
        if hung:
            self.process.send_signal(signal.SIGUSR1)  # its Python stack goes to the log
            time.sleep(0.2)
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=5)
        status = self.end()
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return how, self.tail()


def environment_for(device: str, build_only: bool, visible: str | None) -> dict[str, str]:
    """The environment of a child: this one, with the same import path, Triton's interpreter where kernels run on the CPU,
    and the GPUs it may see (None: those that this process may)."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    environment.pop("TRITON_INTERPRET", None)
    environment["OMP_NUM_THREADS"] = "1"  # what is compared is small: a team of threads costs more than it does
    if device == "cpu" and not build_only:
        environment["TRITON_INTERPRET"] = "1"
    if device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    elif visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    return environment
