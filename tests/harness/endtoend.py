"""What the end-to-end tests share: a user's folder with a kernel in it, the command run there, and its processes counted."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
import uuid
from pathlib import Path
from unittest import mock

from click.testing import CliRunner
from rich.console import Console

from harness import cli, corpus, implementations, signature
from harness import command as shared
from harness.case import FORMAT
from harness.corpus import Entry
from harness.judge import Judge
from tests.harness.making import NAME

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCE = HERE / "user_mask.py"
LONG = 240.0
"""Seconds after which a test gives up. Nothing that works takes nearly so long."""


def user_folder(folder, *, fixed=False):
    """A folder that holds a user's kernels in mask.py."""
    folder.mkdir(parents=True, exist_ok=True)
    text = SOURCE.read_text(encoding="utf-8")
    (folder / "mask.py").write_text(text.replace("FIXED = False", f"FIXED = {fixed}"), encoding="utf-8")
    return folder


def fix(folder):
    """The user mends the kernel."""
    user_folder(folder, fixed=True)
    # Two versions of one size in one second would be one to Python's cache of compiled files.
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)


def clean_environment(**more):
    """The environment without pytest's, xdist's and the path's traces; no GPU."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "PYTHON", "WARPCHECK_", "CI"))}
    return {**kept, "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1", **more}


def command(*args):
    return [sys.executable, "-m", "harness.cli", *map(str, args)]


def warpcheck_process(folder, *args):
    """Run the command in a folder, as a user does; it finds this checkout, installed or not."""
    return subprocess.run(
        command(*args),
        cwd=folder,
        env=clean_environment(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )


def warpcheck(folder, *args, **more):
    """The same in this process, which has imported torch already; a traceback is what it would print."""
    wide = {name: Console(stderr=name == "err", width=400, force_terminal=False) for name in ("out", "err")}
    with contextlib.chdir(folder), mock.patch.multiple(shared, **wide):
        done = CliRunner(env=more).invoke(cli.main, [str(arg) for arg in args], prog_name="warpcheck")
    stderr = done.stderr
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        stderr += "".join(traceback.format_exception(done.exception))
    return subprocess.CompletedProcess(args, done.exit_code, done.stdout, stderr)


def fuzz(folder, name, *args, run=warpcheck, **more):
    """`warpcheck fuzz` on one function of the folder's mask.py."""
    chosen = ("--operator", NAME, "--impl", f"mask.py:{name}", "--device", "cpu", "--no-builds")
    return run(folder, "fuzz", *chosen, *args, **more)


def events(path):
    """The events in a log so far; a last line that is not whole yet is left out."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def told(path, what):
    """The events of one sort."""
    return [event for event in events(path) if event["event"] == what]


def entries(folder):
    """The entries of a corpus; a file that cannot be read fails the test."""
    return [corpus.read(path) for path in corpus.paths(folder)]


def judged(case, name, folder, *, pairs=1):
    """The entry of a hand-written case, as a campaign run in that folder would keep it."""
    with contextlib.chdir(folder):
        implementation = implementations.load(NAME, f"mask.py:{name}")
        verdict = Judge(case, "cpu").judge(implementation, pairs=pairs)
    found = signature.signature(case, implementation.name, verdict)
    return Entry(FORMAT, found, case, verdict, f"mask.py:{name}", "cpu")


def wait_until(true, seconds=LONG):
    """Poll for something that must come true; how long it takes does not matter."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.02)
    return bool(true())


class Running:
    """A `warpcheck` in the background, in a process group of its own, all of whose descendants can be told."""

    def __init__(self, folder, *args):
        self.tag = uuid.uuid4().hex
        environment = clean_environment(PYTHONPATH=str(ROOT), WAITING_ROOM=str(folder), FAMILY_OF_A_TEST=self.tag)
        self.output = (folder / f"output-{self.tag}").open("w+")
        self.process = subprocess.Popen(
            command(*args),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=self.output,
            start_new_session=True,
            # A test run in the background ignores ctrl-C, and so would its children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in [self.process.pid, *self.family()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.output.close()

    def family(self):
        """Every process that this command started and that runs now, itself included."""
        word = f"FAMILY_OF_A_TEST={self.tag}".encode()
        found = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                ours = word in (status.parent / "environ").read_bytes().split(b"\0")
                if ours and status.read_text().rpartition(")")[2].split()[0] != "Z":
                    found.append(int(status.parent.name))
        return found

    def interrupt(self):
        """What a terminal does at ctrl-C: the signal goes to the whole group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def until(self, true):
        """Poll for something that must come true while it runs."""
        assert wait_until(lambda: true() or self.process.poll() is not None), self.text()
        assert true(), self.text()

    def wait(self):
        return self.process.wait(timeout=LONG)

    def text(self):
        self.output.seek(0)
        return self.output.read()
