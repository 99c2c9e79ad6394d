"""The commands about the source of a build entry: `flatten`, `interesting`, `reduce-source`."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from pathlib import Path

import click
from rich.markup import escape

from harness import corpus, files, interesting, reduce_source
from harness.command import CANNOT_RUN, ENTRY, ERRORS, FINDINGS, Duration, OutputFile, clear_errors, say
from harness.reduce_source import REDUCERS
from harness.replay import NotShown

HANG = click.option(
    "--hang",
    type=Duration(),
    default="30s",
    show_default=True,
    help="For an entry whose compiler hangs: when it counts as hung.",
)


@click.command(name="flatten")
@ENTRY
@click.option(
    "-o", "--output", "target", type=OutputFile(), metavar="FILE", help="Write it there. [default: standard output]"
)
@HANG
@clear_errors
def flatten_command(path: Path, target: Path | None, hang: float) -> None:
    """Print the source that a build entry's compiler refuses, as one file.

    \b
    warpcheck flatten corpus/…/build_error-….json -o bug.cu

    The project's headers and the macros of the build are inside; CUDA's own headers stay includes. The file is printed only
    if it fails as the entry says when it is compiled on its own. Its first lines say how to compile it.

    This is for CUDA that impls.cuda_build compiles; what Triton is given is a Python function, and
    `warpcheck repro ENTRY --script bug.py` shows it.

    Exit status: 0 printed, 1 the failure does not show here, 2 the entry cannot be read or has no source, 125 no compiler
    for it here.
    """
    flat = reduce_source.flatten(corpus.read(path), hang)
    text = reduce_source.whole(flat)
    if target is None:
        click.echo(text, nl=False)
    else:
        files.write_for_user(target, text.encode())
        say(f"wrote {escape(str(target))}, {len(text.encode())} bytes: {escape(flat.question.error)}", to_stderr=True)


@click.command(name="interesting")
@ENTRY
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("-v", "--verbose", is_flag=True, help="Print what the compiler says, and the answer.")
@HANG
@clear_errors
def interesting_command(path: Path, file: Path | None, verbose: bool, hang: float) -> None:
    """Say by the exit status whether a source fails to compile as an entry does. For reducers of sources.

    \b
    warpcheck interesting corpus/…/build_error-….json small.cu
    warpcheck interesting corpus/…/build_error-….json small.cu -v

    FILE is compiled with the entry's compiler and options; without FILE, the file in the current folder that is called as the
    entry's source. The answer is yes when kind and first error are the entry's, and no error shows that the entry's whole
    source does not have. A compiler that dies or hangs is an answer too.

    Reducers ask this thousands of times, and here the implementation is asked first what it compiles, which takes seconds. The
    script that `warpcheck reduce-source` writes knows that already, and takes a tenth of a second and the compiler's time.

    Exit status: 0 the same failure, 1 not, 125 it cannot be said (the entry cannot be read, no compiler for it here).
    """
    try:
        flat = reduce_source.flatten(corpus.read(path), hang)
    except (*ERRORS, NotShown, OSError) as error:
        say(escape(str(error)), to_stderr=True)
        sys.exit(CANNOT_RUN)
    sys.exit(interesting.answer(flat.question, file or Path(flat.question.name), verbose))


@click.command(name="reduce-source")
@ENTRY
@click.argument("arguments", nargs=-1, metavar="[-- REDUCER ARGUMENTS]", type=click.UNPROCESSED)
@click.option(
    "-o",
    "--output",
    "target",
    type=OutputFile(),
    metavar="FILE",
    default=Path("small.cu"),
    show_default=True,
    help="Where the small source goes.",
)
@click.option(
    "--reducer", metavar=f"{'|'.join(REDUCERS)}|PROGRAM", help="[default: the first of these that is on the PATH]"
)
@click.option("--time", "seconds", type=Duration(), default="10m", show_default=True, help="How long it may take.")
@HANG
@clear_errors
def reduce_source_command(
    path: Path, arguments: tuple[str, ...], target: Path, reducer: str | None, seconds: float, hang: float
) -> None:
    """Make the source of a build entry small, with Shrink Ray or C-Vise.

    \b
    warpcheck reduce-source corpus/…/build_error-….json -o small.cu
    warpcheck reduce-source corpus/…/build_error-….json --reducer cvise --time 1h
    warpcheck reduce-source corpus/…/build_error-….json -- --parallelism 8

    The source is flattened (see `warpcheck flatten`), and the reducer makes it smaller as long as it fails with the entry's
    first error, and with no error that the whole source does not have. Ctrl-C, or the end of the time, keeps the smallest
    that was found. At the end a fresh compiler must fail on it as before. The parameters of the build are not touched:
    `warpcheck build` has made them plain when it found the entry.

    A reducer is a program `REDUCER SCRIPT FILE`, which calls SCRIPT for each candidate and replaces FILE by smaller ones. It
    works in the folder `<output>.reducing`, which stays where the reduction could not be done: with SCRIPT and FILE in it,
    it can be done by hand. After a crash, the same command goes on from what is there.

    Exit status: 0 the small source is there, 1 the failure does not show here or in what the reducer left, 2 the entry cannot
    be read or has no source, 125 no reducer or no compiler for it here.
    """
    program = reduce_source.find_reducer(reducer)
    flat = reduce_source.flatten(corpus.read(path), hang)
    before = len(flat.unit.text.encode())
    bench = reduce_source.prepare(flat, target.with_name(f"{target.name}.reducing"))
    if program is None:
        say(escape(reduce_source.HOW_TO_GET_ONE), to_stderr=True)
        say(f"the source, {before} bytes, is {escape(str(bench.candidate))}; by hand:", to_stderr=True)
        by_hand = (
            f"cd {shlex.quote(str(bench.folder))} && REDUCER {shlex.join([str(bench.script), bench.candidate.name])}"
        )
        say(escape(by_hand), to_stderr=True)
        sys.exit(CANNOT_RUN)
    now = bench.candidate.stat().st_size
    resumed = f", of which an earlier run left {now}" if now < before else ""
    say(f"{Path(program).name} on {escape(flat.unit.name)}, {before} bytes{resumed}: {escape(flat.question.error)}")
    start = time.monotonic()
    ending = reduce_source.run_reducer(program, bench, arguments, seconds, lambda line: say(escape(line)))
    source = reduce_source.result(bench, flat, target)
    spent = time.monotonic() - start
    if source is None:
        say(f"[bold red]{ending}[/]; what it left in {escape(str(bench.candidate))} does not fail as it should")
        sys.exit(FINDINGS)
    shutil.rmtree(bench.folder)
    say(f"{ending}: {before} -> {len(source)} bytes in {spent:.0f} s; a fresh compiler says the same")
    say(f"wrote {escape(str(target))}")
