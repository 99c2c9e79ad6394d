"""The commands `warpcheck corpus check`, `merge` and `stats`."""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from pathlib import Path

import click
from rich.markup import escape

from harness import command, corpus, corpus_care, gpus, operators
from harness.case import Build, CaseError
from harness.command import CORPUS, FINDINGS, USAGE, Telling, clear_errors, say
from harness.corpus import Entry
from harness.corpus_care import Finding, Stats
from harness.display import headed
from harness.replay import Replayer, outcome
from harness.sandbox import HarnessError, UnusableImplementation, telling_line

_STYLES = {
    "unreadable": "bold red",
    "left behind": "yellow",
    "duplicate": "yellow",
    "misplaced": "yellow",
    "no implementation": "yellow",
    "now passes": "yellow",
    "unused": "yellow",
    "marked fixed": "green",
    "added": "green",
    "replaced": "green",
    "kept": "dim",
}
_WIDTH = max(map(len, _STYLES))


def _line(what: str, path: Path, why: str) -> None:
    """One, whatever is in a path or message."""
    text = " ".join(f"{path}  {why}".split())
    say(f"[{_STYLES[what]}]{what:{_WIDTH}}[/] {escape(text)}")


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise command.usage(f"{path}: no such folder")
    return path


@click.group(name="corpus")
def corpus_group() -> None:
    """Look after the known failures: check them, bring several machines' together, count them.

    \b
    warpcheck corpus check                        is every file in order, and does every open bug still fail?
    warpcheck corpus merge night1/corpus night2/corpus
    warpcheck corpus stats
    """


@corpus_group.command()
@click.argument("folder", metavar="[FOLDER]", type=click.Path(path_type=Path), default=Path("corpus"))
@click.option("--no-judge", is_flag=True, help="Only look at the files, and whether each entry's kernel can be loaded.")
@click.option(
    "--mark-fixed", is_flag=True, help="Make the open entries that pass fixed ones: from then on they must pass."
)
@clear_errors
def check(folder: Path, no_judge: bool, mark_fixed: bool) -> None:
    """Say what is wrong with a corpus, or a part of one. [default: corpus]

    \b
    warpcheck corpus check
    warpcheck corpus check --no-judge             in a second, without running a kernel
    warpcheck corpus check --mark-fixed           after a fix: entries that pass now must pass from now on

    \b
    unreadable         no entry: torn, of another format, hostile, or its values are gone or damaged
    left behind        half a file or a journal of a run that was killed; a file moved aside since it could not be read
    duplicate          two files of one signature
    misplaced          the name is not the signature's, so that a campaign finds the bug again as a new one
    no implementation  the operator is unknown, or the kernel cannot be loaded
    now passes         open, and does not fail any more
    unused             values that no entry has

    Each open entry is judged where it was found, on the CPU or a GPU; what was found on a GPU of another sort than the one
    here, or on one where there is none, is left as it is and counted. Nothing is changed without --mark-fixed, and with it
    one whole file after another, so that ctrl-C loses nothing.

    Exit status: 0 all is well, 1 something to do, 2 a file cannot be read.
    """
    if no_judge and mark_fixed:
        raise command.usage("--mark-fixed has to judge; leave out --no-judge")
    found = corpus_care.check(_folder(folder))
    seen: Counter[str] = Counter()
    for finding in found.findings:
        _line(finding.what, finding.path, finding.why)
        seen[finding.what] += 1
    with _Judging() as judging, Telling() as tell:
        for number, (path, entry) in enumerate(found.entries, 1):
            tell(f"{number} of {len(found.entries)}: {path.name}")
            looked = judging.look(path, entry, judge=not no_judge)
            if looked is None:
                continue
            what: str = looked.what
            why = looked.why
            if what == "now passes" and mark_fixed:
                marked = corpus.mark_fixed(path, entry)
                what, why = ("marked fixed", "") if marked else (what, "but was changed meanwhile: check again")
            _line(what, path, why)
            seen[what] += 1
    unreduced = sum(not entry.reduced for _, entry in found.entries)
    parts = [f"{len(found.entries)} entries", *(f"{n} {what}" for what, n in seen.items())]
    parts += [f"{unreduced} not reduced"] if unreduced else []
    parts += [f"{judging.elsewhere} not judged here (found on another device)"] if judging.elsewhere else []
    parts += [f"{n} cannot be judged ({why})" for why, n in judging.skipped.items()]
    say(escape("; ".join(parts)))
    if seen["now passes"]:
        say("mark those that pass now with: warpcheck corpus check --mark-fixed " + escape(str(folder)))
    to_do = set(seen) - {"unreadable", "marked fixed"}
    sys.exit(USAGE if seen["unreadable"] else FINDINGS if to_do else 0)


class _Judging:
    """Entries one by one: can the kernel be loaded, and does what is open still fail where it was found?"""

    def __init__(self) -> None:
        self.elsewhere = 0
        """Open entries that only another machine can judge."""
        self.skipped: Counter[str] = Counter()
        """Why others could not be judged here."""
        self._replayers: dict[str, Replayer] = {}
        self._unusable: dict[tuple[str, str, str], str | None] = {}

    def __enter__(self) -> _Judging:
        return self

    def __exit__(self, *details: object) -> None:
        for replayer in self._replayers.values():
            replayer.__exit__(*details)

    def look(self, path: Path, entry: Entry, *, judge: bool) -> Finding | None:
        if entry.signature.operator not in operators.names():
            return Finding("no implementation", path, f"unknown operator {entry.signature.operator!r}")
        device = "cpu" if isinstance(entry.subject, Build) else entry.device
        here = device == "cpu" or bool(gpus.visible())
        replayer = self._on(device if here else "cpu")
        if (why := self._cannot_load(replayer, entry)) is not None:
            return Finding("no implementation", path, why)
        if not judge or entry.status == "fixed":
            return None
        if not here or self._another_gpu(replayer, entry):
            self.elsewhere += 1
            return None
        try:
            verdict = replayer.judge(entry)
        except CaseError as error:
            return Finding("unreadable", path, str(error))
        if verdict.kind == "skip":
            self.skipped[verdict.message] += 1
        return Finding("now passes", path, "") if outcome(entry, verdict) == "now passes" else None

    def _on(self, device: str) -> Replayer:
        if device not in self._replayers:
            self._replayers[device] = Replayer(device)
        return self._replayers[device]

    def _cannot_load(self, replayer: Replayer, entry: Entry) -> str | None:
        key = replayer.device, entry.signature.operator, entry.implementation
        if key not in self._unusable:
            self._unusable[key] = None
            try:
                replayer.engine(entry.subject).inspect(entry.signature.operator, entry.implementation)
            except (UnusableImplementation, HarnessError) as error:
                self._unusable[key] = telling_line(error)
        return self._unusable[key]

    def _another_gpu(self, replayer: Replayer, entry: Entry) -> bool:
        """Whether it was found on a GPU of another generation: that it passes on this one says little."""
        found_on = entry.environment.get("capability")
        if replayer.device == "cpu" or found_on is None or isinstance(entry.subject, Build):
            return False
        return replayer.engine(entry.subject).environment().get("capability") != found_on


@corpus_group.command()
@click.argument("sources", nargs=-1, required=True, metavar="FOLDER...", type=click.Path(path_type=Path))
@CORPUS
@clear_errors
def merge(sources: tuple[Path, ...], folder: Path) -> None:
    """Bring the entries of other corpora into one.

    \b
    warpcheck corpus merge night1/corpus night2/corpus
    warpcheck corpus merge cpu/corpus gpu/corpus --corpus all

    By signature: what is not there is added; of two the better one stays, which is the smaller case, but an open and reduced
    one before a fixed one, and both before one that was never reduced. A case that is open in one corpus and fixed in the
    other is fixed: somebody said so. Notes are kept, and values in files come along.

    A line an entry: added, replaced or kept. The sources are not changed. A merge that was ended can be run again; twice the
    same changes nothing. Exit status: 0, or 2 if a file could not be read (the others are merged).
    """
    target = folder.resolve()
    for source in map(_folder, sources):
        inside = source.resolve()
        if inside == target or inside in target.parents or target in inside.parents:
            raise command.usage(f"{source} and {folder} are one corpus, or one is inside the other")
    counts: Counter[str] = Counter()
    for source in sources:
        for what, path, why in corpus_care.merge(source, folder):
            _line(what, path, why)
            counts[what] += 1
    say(", ".join(f"{n} {what}" for what, n in counts.items()) or "no entries")
    sys.exit(USAGE if counts["unreadable"] else 0)


@corpus_group.command()
@click.argument("folder", metavar="[FOLDER]", type=click.Path(path_type=Path), default=Path("corpus"))
@clear_errors
def stats(folder: Path) -> None:
    """Count the entries of a corpus by operator, implementation, kind and status. [default: corpus]

    A call's size is that of its tensors in memory. Exit status: 0, or 2 if a file cannot be read (it is left out).
    """
    entries, unreadable = [], 0
    for path, entry in corpus.entries(_folder(folder)):
        if isinstance(entry, CaseError):
            _line("unreadable", path, str(entry).removeprefix(f"{path}: "))
            unreadable += 1
        else:
            entries.append(entry)
    targets = corpus_care.stats(entries, lambda e: f"{e.signature.operator}/{e.signature.implementation}")
    for title, groups in (
        ("implementation", targets),
        ("kind", corpus_care.stats(entries, lambda e: e.signature.kind)),
        ("", corpus_care.stats(entries, lambda e: "all")),
    ):
        if groups:
            table = headed(
                title, "entries", "open", "fixed", "not reduced", "median call", "largest call", "values in files"
            )
            for name, group in groups.items():
                table.add_row(escape(name), *_cells(group))
            command.out.print(table)
            say("")
    say(f"{len(entries)} entries" + (f", {unreadable} files that cannot be read" if unreadable else ""))
    sys.exit(USAGE if unreadable else 0)


def _cells(group: Stats) -> list[str]:
    sizes = group.sizes
    return [
        str(group.entries),
        str(group.status["open"]),
        str(group.status["fixed"]),
        str(group.unreduced),
        _bytes(int(statistics.median(sizes))) if sizes else "–",
        _bytes(max(sizes)) if sizes else "–",
        _bytes(group.stored) if group.stored else "–",
    ]


def _bytes(size: int) -> str:
    """In the largest unit of which there is at least one, to three digits."""
    power = min((max(size, 1).bit_length() - 1) // 10, 4)
    shown = size / (1 << 10 * power)
    return f"{shown:.{0 if shown >= 100 or not power else 3 - len(str(int(shown)))}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
