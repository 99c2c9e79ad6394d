"""A build entry's source: as one file, and made small by a reducer of sources (Shrink Ray, C-Vise) that is installed here.

The reducer works in a folder of its own, which holds the candidate under the unit's name, the test that it calls, and what
the test needs to know. It replaces the candidate whenever it found a smaller one, so that whatever ends it, the smallest
source so far is there; it becomes the result when a compiler that has seen nothing else fails on it as it should.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness import files, interesting
from harness.case import Build
from harness.corpus import Entry
from harness.interesting import Question, Unit, as_it_should, compiled
from harness.replay import NotShown
from harness.sandbox import Engine
from harness.verdict import PASS, Verdict, build_error

REDUCERS = ("shrinkray", "cvise")
"""Looked for in this order."""

HOW_TO_GET_ONE = (
    "no reducer of sources is installed: `pip install shrinkray` (Python 3.12 or newer; an environment of its own will do, "
    "if it is on the PATH), or C-Vise from your distribution (`apt install cvise`)"
)

ORDINARY_LIMIT = 10.0
"""Seconds that any candidate gets, at least: a busy machine is no hang."""
PATIENCE = 10
"""How many times as long as the whole source a candidate may take."""
LAST_WORDS = 15.0
"""Seconds that a reducer which was told to stop has for it."""


class NoSource(ValueError):
    """There is no source to be reduced, or it does not show the failure. The message is one line."""


@dataclass(frozen=True)
class Flat:
    """An entry's translation unit, and what it comes to when it is compiled on its own."""

    unit: Unit
    question: Question


def flatten(entry: Entry, hang: float) -> Flat:
    """The unit of a build entry that fails as the entry says. hang: seconds after which a compiler counts as hung.

    Raises NoSource when there is none, UnusableImplementation when the implementation keeps its source to itself, NotShown
    when it fails otherwise.
    """
    if not isinstance(entry.subject, Build):
        raise NoSource(
            "the entry is of a call; sources are reduced for entries of builds (`warpcheck build` finds them)"
        )
    with Engine("cpu", build_only=True) as engine:
        units = engine.units(entry.subject, entry.implementation)
    said = []
    for unit in units:
        start = time.monotonic()
        verdict = _compile(unit, hang)
        if verdict.kind == "skip":
            raise NotShown(verdict)
        question = _question(entry, unit, verdict, hang, time.monotonic() - start)
        if as_it_should(question, verdict):
            return Flat(unit, question)
        said.append(verdict.message or "it compiles")
    wanted = f"where the entry has {entry.verdict.message}"
    raise NotShown(PASS, f"the source does not fail as the entry does: {'; '.join(said)}, {wanted}")


def _compile(unit: Unit, limit: float) -> Verdict:
    """Compile a unit as it is, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="warpcheck-") as folder:
        file = Path(folder) / unit.name
        file.write_text(unit.text)
        return compiled(unit.tool, unit.command, file, limit)


def _question(entry: Entry, unit: Unit, verdict: Verdict, hang: float, seconds: float) -> Question:
    """What a candidate is asked: the entry's failure, and no error that the whole source does not have."""
    hangs = entry.verdict.kind == "build_timeout"
    return Question(
        name=unit.name,
        tool=unit.tool,
        command=unit.command,
        kind=entry.verdict.kind,
        error=verdict.evidence.error
        if verdict.evidence.error in _says(entry, unit.tool)
        else entry.verdict.evidence.error,
        limit=hang if hangs else max(ORDINARY_LIMIT, PATIENCE * seconds),
        others=tuple(sorted(interesting.others(verdict))),
    )


def _says(entry: Entry, tool: str) -> set[str]:
    """An entry's error, as it was normalised then, and as its log is today."""
    evidence = entry.verdict.evidence
    today = build_error(tool, evidence.log).evidence.error if evidence.log else evidence.error
    return {evidence.error, today if entry.verdict.kind == "build_error" else evidence.error}


@dataclass(frozen=True)
class Bench:
    """The folder where a reducer works."""

    folder: Path
    question: Question

    @property
    def candidate(self) -> Path:
        return self.folder / self.question.name

    @property
    def script(self) -> Path:
        return self.folder / "interesting.sh"


def prepare(flat: Flat, folder: Path) -> Bench:
    """Make the folder: the candidate, and the script that a reducer asks. A smaller candidate that an earlier run on the same
    question left there stays."""
    bench = Bench(folder.resolve(), flat.question)
    folder.mkdir(parents=True, exist_ok=True)
    question = bench.folder / "question.json"
    if not _goes_on(bench, question, len(flat.unit.text.encode())):
        bench.candidate.write_text(flat.unit.text)
    question.write_bytes(msgspec.json.format(msgspec.json.encode(flat.question), indent=2) + b"\n")
    home = str(Path(__file__).resolve().parents[1])
    words = (sys.executable, "-P", "-m", "harness.interesting", str(question))
    bench.script.write_text(
        f'#!/bin/sh\nPYTHONPATH={shlex.quote(home)}${{PYTHONPATH:+":$PYTHONPATH"}} exec {shlex.join(words)} "$@"\n'
    )
    bench.script.chmod(0o755)
    return bench


def _goes_on(bench: Bench, question: Path, size: int) -> bool:
    """Whether the candidate that is there is smaller, and does what this run asks."""
    try:
        before = msgspec.json.decode(question.read_bytes(), type=Question)
        if not 0 < bench.candidate.stat().st_size < size:
            return False
    except (OSError, msgspec.DecodeError):
        return False
    asked = msgspec.structs.replace(before, limit=bench.question.limit)
    return asked == bench.question and interesting.answer(asked, bench.candidate, verbose=False) == 0


def find_reducer(asked: str | None) -> str | None:
    """The path of the reducer that was asked for, or of the first that is on the PATH; None when there is none.

    Raises NoSource when the one that was asked for is not there.
    """
    for name in (asked,) if asked else REDUCERS:
        if found := shutil.which(name):
            return str(Path(found).absolute())
    if asked and (asked not in REDUCERS):
        raise NoSource(f"{asked}: no such program")
    return None


def run_reducer(
    reducer: str, bench: Bench, arguments: Sequence[str], seconds: float, tell: Callable[[str], None]
) -> str:
    """Let a reducer work on the candidate, its output passed through, until it ends, the time is up or ctrl-C. How it ended,
    in words. `tell` gets a line when the reducer has to be stopped, which some answer with a traceback."""
    command = [reducer, *arguments, str(bench.script), bench.candidate.name]
    # In this process's group: ctrl-C at a terminal reaches it too, and it may draw on the terminal.
    process = subprocess.Popen(command, cwd=bench.folder)
    try:
        status = process.wait(seconds)
        return "finished" if status == 0 else f"ended with exit status {status}"
    except subprocess.TimeoutExpired:
        tell(f"{seconds:g} s are up: stopping {Path(reducer).name}")
        return f"stopped after {seconds:g} s"
    except KeyboardInterrupt:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2.0)  # at a terminal it was interrupted as well
        return "interrupted"
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Have a reducer stop, gently at first: it may be writing the candidate."""
    for word, patience in ((signal.SIGINT, LAST_WORDS), (signal.SIGTERM, 2.0), (signal.SIGKILL, None)):
        if process.poll() is not None:
            return
        process.send_signal(word)
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(patience)


def result(bench: Bench, flat: Flat, target: Path) -> bytes | None:
    """Write the candidate to a file, if a fresh compiler fails on it as it should; the source, or None."""
    source = bench.candidate.read_bytes()
    if interesting.answer(bench.question, bench.candidate, verbose=False) != interesting.INTERESTING:
        return None
    files.write_for_user(target, _header(flat).encode() + source)
    return source


def _header(flat: Flat) -> str:
    """What a reader of the file should know: how to compile it, and what is seen then. CUDA's folder is left to him."""
    flags = [word for word in flat.unit.command if word.startswith("-") and word != "-P" and "include-path" not in word]
    said = " ".join((flat.question.error or flat.question.kind).split())
    return f"// {flat.question.kind}: {said}\n// compile with: {flat.unit.tool} {' '.join(flags)}\n"


def whole(flat: Flat) -> str:
    """The unit's text under its header."""
    return _header(flat) + flat.unit.text
