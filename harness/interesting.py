"""Whether a source still fails to compile as an entry does: the test that a reducer of sources asks, thousands of times.

    python -m harness.interesting QUESTION.json [FILE] [-v]

exits 0 where FILE fails as it should, 1 where not, 125 where that cannot be said. FILE is a candidate: by default the file in
the current folder that is called as the question says. A reducer calls its test with the candidate as argument (Shrink Ray) or
in a folder of its own that holds it (C-Vise, C-Reduce, Shrink Ray); both work.

The compiler runs in a child process, which may die or hang: what it then did is the failure, as in the sandbox. This module
imports little, since each candidate waits for it: no torch, and nothing that does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from harness.child import die_with_parent
from harness.normalise import errors, normalise
from harness.verdict import MAX_LOG, PASS, Evidence, Verdict, build_error, skip

INTERESTING, NOT_INTERESTING, CANNOT_RUN = 0, 1, 125


class Unit(msgspec.Struct, frozen=True):
    """A translation unit: a source that needs no header but the compiler's own, and how it is compiled."""

    tool: str
    """The compiler, as in a verdict."""
    name: str
    """Of the file."""
    text: str
    command: tuple[str, ...]
    """Compiles the file whose path is appended: exit status 0 it compiles, 1 it does not and the log is on stderr, 125 the
    compiler cannot run."""


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked of a candidate: that its compilation fails in this way."""

    name: str
    """Of the candidate's file."""
    tool: str
    command: tuple[str, ...]
    kind: str
    error: str
    """`Verdict.kind` and `Evidence.error`, which is the normalised first error."""
    limit: float
    """Seconds after which the compiler counts as hung."""
    others: tuple[str, ...] | None = None
    """Normalised errors that it may show besides; None leaves them free. A reducer that may add errors makes broken code."""


def compiled(tool: str, command: Sequence[str], file: Path, limit: float) -> Verdict:
    """What compiling a file comes to: a pass, a `build_…` failure, or a skip where the compiler cannot run."""
    with tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(
                [*command, str(file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that what it starts can be ended with it
                preexec_fn=die_with_parent,
            )
        except OSError as error:
            return skip(f"{command[0]}: {error.strerror or error}")
        try:
            status: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.seek(0)
        text = log.read(MAX_LOG * 10).decode(errors="replace")
    if status is None:
        return _lost("build_timeout", "did not come back in time", text)
    if status == 0:
        return PASS
    if status == 1:
        return build_error(tool, text.strip())
    if status == CANNOT_RUN:
        return skip(f"{tool} cannot run: {text.strip().splitlines()[-1] if text.strip() else 'it says nothing'}")
    how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return _lost("build_crash", normalise(f"died of {how}", 80), text)


def _lost(kind: str, error: str, log: str) -> Verdict:
    return Verdict(kind, f"the compiler {error}", Evidence(error=error, log=log[-MAX_LOG:]))


def as_it_should(question: Question, verdict: Verdict) -> bool:
    """Whether a verdict of `compiled` is what is asked for."""
    if (verdict.kind, verdict.evidence.error) != (question.kind, question.error):
        return False
    return question.others is None or others(verdict) <= {*question.others}


def others(verdict: Verdict) -> set[str]:
    """The normalised errors of a compilation besides the first; of one that died or hung, none."""
    if verdict.kind != "build_error":
        return set()
    return {error for error in errors(verdict.evidence.log) if not verdict.evidence.error.endswith(f": {error}")}


def main(arguments: Sequence[str]) -> int:
    """The command. Returns the exit status; says nothing without -v but what keeps it from running."""
    verbose = "-v" in arguments
    path, *files = [argument for argument in arguments if argument != "-v"]
    try:
        question = msgspec.json.decode(Path(path).read_bytes(), type=Question)
    except (OSError, msgspec.DecodeError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return CANNOT_RUN
    return answer(question, Path(files[0] if files else question.name), verbose)


def answer(question: Question, file: Path, verbose: bool) -> int:
    """Compile a candidate; the exit status."""
    if not file.is_file():
        print(f"{file}: no such file", file=sys.stderr)
        return CANNOT_RUN
    verdict = compiled(question.tool, question.command, file, question.limit)
    if verdict.kind == "skip":
        print(verdict.message, file=sys.stderr)
        return CANNOT_RUN
    interesting = as_it_should(question, verdict)
    if verbose:
        print(verdict.evidence.log or verdict.message or "it compiles")
        print("interesting" if interesting else f"not interesting: wanted {question.kind}: {question.error}")
    return INTERESTING if interesting else NOT_INTERESTING


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
