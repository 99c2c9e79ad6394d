"""harness.display: what a person reads."""

# ruff: noqa: SIM300 - the expected value stands first

import io

import pytest
from msgspec.structs import replace
from rich.console import Console

from harness import display
from harness.case import FORMAT, Build, Fill
from harness.corpus import Entry
from harness.display import BUILDING, FUZZING, Progress
from harness.rate import measured
from harness.signature import Signature
from harness.verdict import Element, Evidence, Verdict
from tests.harness.making import NAME, mask_case

STATE = {
    "idle": "",
    "cases": 90,
    "passed": 70,
    "skipped": 12,
    "vacuous": 1,
    "failed": 8,
    "known": 5,
    "ratio": 0.0,
    "ratios": {},
    "features": {},
}
PROGRESS = {
    "event": "progress", "seconds": 3.0, "cases": 90, "hunting": "", "builds": 4, "builds_pending": 0, "findings": 1,
    "deaths": 0, "targets": {"op/mine": STATE}, "timing": {"oracle": 1.0, "kernel": 3.0, "data": 0.0},
}  # fmt: skip
FINDING = {
    "event": "finding", "unreduced": False, "signature": "op/mine wrong_set (float32)", "message": "out[0, 1] is 2",
    "file": "corpus/op/mine/x.json", "was": "",
}  # fmt: skip
VERDICT = Verdict(
    "wrong_set",
    "out[0, 3] is -inf, should be 3.0; 2 of 10 wrong",
    Evidence(Element("out", (0, 3), "-inf", "3.0"), 2, 10, "last column"),
)


def entry(verdict=VERDICT, subject=None, **rest):
    name = Signature(NAME, "mine", verdict.kind, traits=("float32",))
    return Entry(FORMAT, name, subject or mask_case(), verdict, "mine.py:mask", "cpu", **rest)


def shown(renderable):
    """As plain text, wide enough for any line."""
    console = Console(file=io.StringIO(), width=300, force_terminal=False)
    console.print(renderable, highlight=False)
    return console.file.getvalue()


def rows(text):
    """First word of each line -> the rest of it."""
    return {line.split()[0]: " ".join(line.split()[1:]) for line in text.splitlines() if line.strip()}


def test_an_entry_shows_what_came_and_what_should_have():
    """Got, want and bound of the worst element, how many are wrong and where."""
    text = rows(shown(display.entry(entry())))
    assert "out[0, 3]: got -inf, want 3.0, bound 0.0" == text["worst"]
    assert "2 of 10 elements: last column" == text["wrong"]
    assert f"{NAME}/mine wrong_set (float32)" == text["signature"]
    assert "wrong_set (values): out[0, 3] is -inf, should be 3.0; 2 of 10 wrong" == text["failure"]
    assert "open" == text["status"]


def test_an_entry_shows_its_call():
    """Parameters, and each tensor with its dtype, shape, strides, place and fill."""
    case = mask_case(k=(1, 2), form="out", pitch=8, dtype="float16", offset=2, fill=Fill("spread", 9))
    text = rows(shown(display.entry(entry(subject=case))))
    assert "form='out'" == text["call"]
    assert "float16 [2, 5], strides [8, 1], byte 2 of storage 0: spread, seed 9" == text["logits"]
    assert "int64 [2], strides [1], byte 0 of storage 2: cycle [1, 2]" == text["k"]
    assert text["out"].endswith("storage 1: poison")


def test_an_entry_shows_what_else_is_known():
    """Rate, context, where it was found, note, log; not reduced; and for a build, its parameters and architecture."""
    loose = entry(
        Verdict("nondeterministic", "m", Evidence(failed=3, runs=20, log="the log")),
        reduced=False, status="fixed", context=(mask_case(), mask_case()), environment={"torch": "2", "gpu": "H"},
        note="see #1",
    )  # fmt: skip
    text = rows(shown(display.entry(loose)))
    assert str(measured(3, 20)) == text["rate"]
    assert str(measured(30, 100)) == rows(shown(display.entry(replace(loose, rate=measured(30, 100)))))["rate"]
    assert "2 other calls in the same process" == text["after"]
    assert "on gpu H, torch 2" == text["found"]
    assert ("fixed, not reduced yet", "see #1", "the log") == (text["status"], text["note"], text["log"])
    build = replace(loose, subject=Build(NAME, {"dtype": "float16"}, "sm_90a"))
    assert "dtype='float16', for sm_90a" == rows(shown(display.entry(build)))["build"]


def test_the_state_in_a_line():
    """Time, cases and their rate, builds, findings; what is lost, left and hunted only where there is any."""
    assert "3 s, 90 cases, 30 cases/s, 4 builds, 1 findings" == FUZZING.line(PROGRESS).plain
    busy = {**PROGRESS, "deaths": 2, "hunting": "hang", "builds_pending": 3}
    assert "3 s, 90 cases, 30 cases/s, 4 builds (3 to do), 1 findings, 2 processes lost, shrinking a hang" == (
        FUZZING.line(busy).plain
    )
    assert "0 cases" in FUZZING.line({**PROGRESS, "seconds": 0.0, "cases": 0}).plain


def test_the_table_of_targets():
    """Counts of each; an idle one says why; a ratio where results are rounded, `exact` where they are chosen."""
    event = {
        **PROGRESS,
        "targets": {
            "op/mine": STATE,
            "op/near": {**STATE, "ratio": 0.25},
            "op/idle": {**STATE, "idle": "it needs a GPU"},
        },
    }
    text = rows(shown(FUZZING.table(event)))
    assert "90 70 12 5 1 exact" == text["op/mine"]
    assert "90 70 12 5 1 0.250" == text["op/near"]
    assert "builds only: it needs a GPU" == text["op/idle"]


def test_the_summary():
    """New findings with the command that shows them, the shares of the time, and whether it was interrupted."""
    text = shown(display.summary(FUZZING, PROGRESS, [FINDING], interrupted=True))
    assert "new: op/mine wrong_set (float32)" in text
    assert "warpcheck repro corpus/op/mine/x.json" in text
    assert "time: kernel 75%, oracle 25%" in text
    assert "interrupted" in text
    assert "nothing new" not in text
    quiet = shown(display.summary(FUZZING, {**PROGRESS, "timing": {}}, [], interrupted=False))
    assert "nothing new" in quiet
    assert "interrupted" not in quiet


def test_ratios_by_flag_set():
    """A row a flag set, a column a target that rounds; nothing at all where every target is exact."""
    near = {**STATE, "ratios": {"float16": 0.25, "bfloat16 soft_cap": 0.5}}
    event = {
        **PROGRESS,
        "targets": {"op/exact": STATE, "op/near": near, "op/far": {**STATE, "ratios": {"float16": 0.75}}},
    }
    text = rows(shown(display.summary(FUZZING, event, [], interrupted=False)))
    assert ("ratio near far", "0.250 0.750", "soft_cap 0.500") == (text["largest"], text["float16"], text["bfloat16"])
    assert 1 == shown(display.summary(FUZZING, PROGRESS, [], interrupted=False)).count("largest ratio")


def test_shares_of_features():
    """A line an operator: how many of the cases used each, the commonest first, of the target that was given the most."""
    many = {**STATE, "features": {"causal": 18, "fp16_qk": 45}}
    event = {**PROGRESS, "targets": {"op/few": {**STATE, "cases": 1, "features": {"causal": 1}}, "op/mine": many}}
    text = shown(display.summary(FUZZING, event, [], interrupted=False))
    assert "op: fp16_qk 50%, causal 20%" in text
    assert "op:" not in shown(display.summary(FUZZING, PROGRESS, [], interrupted=False))


ARCHS = {"sm_80": {"cells": 36, "done": 30, "built": 20, "failed": 10}, "sm_90a": {"cells": 36, "unsupported": 4}}
BUILDS = {
    "event": "progress", "seconds": 20.0, "cells": 72, "done": 34, "left": 300.0, "findings": 1, "deaths": 0,
    "targets": {"op/mine": ARCHS}, "failures": {"op/mine build_error (no [half])": 8, "op/mine build_crash": 2},
}  # fmt: skip
NO_HALF = {**FINDING, "signature": "op/mine build_error (no [half])"}


def test_the_state_of_building_in_a_line():
    """Time, builds of all there are, their rate, findings; what is lost and left only where there is any."""
    assert "20 s, 34 of 72 builds, 1.7 builds/s, 1 findings, about 5 min left" == BUILDING.line(BUILDS).plain
    done = {**BUILDS, "left": 0.0, "deaths": 2}
    assert "20 s, 34 of 72 builds, 1.7 builds/s, 1 findings, 2 processes lost" == BUILDING.line(done).plain
    assert "0 of 72 builds" in BUILDING.line({**BUILDS, "seconds": 0.0, "done": 0, "left": None}).plain


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (89.0, "89 s"), (119.0, "2 min"), (3599.0, "1 h 0 min"), (7300.0, "2 h 2 min"), (1500, "25 min")],
)
def test_a_duration(seconds, text):
    """In the unit that a person would use."""
    assert text == display.duration(seconds)


def test_the_table_of_builds():
    """A row for each architecture: how many there are, built, unsupported, failed."""
    lines = shown(BUILDING.table(BUILDS)).splitlines()
    assert [
        ["target", "architecture", "builds", "built", "unsupported", "failed"],
        ["op/mine", "sm_80", "36", "20", "0", "10"],
        ["op/mine", "sm_90a", "36", "0", "4", "0"],
    ] == [line.split() for line in lines]


def test_the_summary_of_building():
    """What is new with how many builds it breaks; and what was known."""
    text = shown(display.summary(BUILDING, BUILDS, [NO_HALF], interrupted=True))
    assert "new: op/mine build_error (no [half]), 8 builds\n     warpcheck repro" in text
    assert "known: op/mine build_crash, 2 builds" in text
    assert ("interrupted" in text, "nothing new" in text, "known: op/mine build_error" in text) == (True, False, False)
    assert "nothing new" in shown(display.summary(BUILDING, {**BUILDS, "failures": {}}, [], interrupted=False))


def test_building_is_told_as_it_starts():
    """How much there is to do, of what, for which architectures."""
    start = {"event": "start", "cells": 72, "jobs": 2, "targets": ["op/mine"], "archs": ["sm_80", "sm_90a"], "known": 1}
    assert "72 builds, 2 at a time: op/mine for sm_80, sm_90a; 1 known failures" == display.told(start)


@pytest.fixture
def progress():
    """Progress on something that is no terminal, and a way to read it."""
    console = Console(file=io.StringIO(), width=300, force_terminal=False)
    with Progress(console, FUZZING) as made:
        yield made


def said(progress):
    return progress.console.file.getvalue()


def test_a_bug_that_two_workers_found_at_once_is_one_finding(progress):
    """By its signature: the later event takes the place of the earlier."""
    for worker in ("0", "1"):
        progress.emit({**FINDING, "worker": worker})
    assert [{**FINDING, "worker": "1"}] == progress.findings


def test_events_are_told_as_they_come(progress):
    """Each sort in words of its own; the findings and the last state are kept for the summary."""
    progress.emit({"event": "start", "targets": ["op/mine"], "device": "cpu", "seed": 7, "known": 2})
    progress.emit({"event": "resumed", "journal": "1-0.json", "case": {}})
    progress.emit({**FINDING, "unreduced": True, "signature": "op/mine hang"})
    progress.emit(FINDING)
    progress.emit({"event": "known", "signature": "op/mine old", "was": "op/mine hang", "as": "wrong_nan"})
    progress.emit({"event": "warning", "text": "look here"})
    progress.emit(PROGRESS)
    text = said(progress)
    for words in (
        "fuzzing op/mine on cpu, seed 7, 2 known failures",
        "judging first what an interrupted campaign left under test (1-0.json)",
        "found op/mine hang: shrinking",
        "finding op/mine wrong_set (float32): out[0, 1] is 2",
        "corpus/op/mine/x.json",
        "it is op/mine old, showing as wrong_nan",
        "warning look here",
    ):
        assert words in text
    assert ([FINDING], PROGRESS) == (progress.findings, progress.last)


def test_what_is_not_reduced_yet_stands_for_itself(progress):
    """Several failures of one worker, each until what it came to is told: a finding, a known bug."""
    first, second = ({**FINDING, "unreduced": True, "signature": name} for name in ("op/mine a", "op/mine b"))
    progress.emit(first)
    progress.emit(second)
    assert [first, second] == progress.findings
    progress.emit({"event": "known", "signature": "op/mine old", "was": "op/mine a", "as": "hang"})
    assert [second] == progress.findings
    settled = {**FINDING, "was": "op/mine b"}
    progress.emit(settled)
    assert [settled] == progress.findings


def test_a_withdrawn_finding_is_none(progress):
    """The summary does not count it."""
    progress.emit(FINDING)
    progress.emit({"event": "withdrawn", "signature": FINDING["signature"], "for": "op/mine other"})
    assert [] == progress.findings
    assert "was op/mine other all along" in said(progress)


def test_without_a_terminal_progress_is_a_line_now_and_then(progress):
    """Not one an event: a nightly log stays readable."""
    for _ in range(50):
        progress.emit(PROGRESS)
    assert 1 == said(progress).count("cases/s")


def test_on_a_terminal_the_table_is_there():
    """It is drawn, updated, and gone when the campaign ends."""
    console = Console(file=io.StringIO(), width=200, height=50, force_terminal=True)
    with Progress(console, FUZZING) as progress:
        progress.emit(PROGRESS)
        progress._live.refresh()
        assert "largest ratio" in console.file.getvalue()
        progress.emit(FINDING)
    assert "wrong_set" in console.file.getvalue()


MARKUP = "no rows [/vocab] in [red]"


@pytest.mark.parametrize("where", ["message", "signature", "file"])
def test_brackets_in_a_finding_are_no_markup(progress, where):
    """A kernel's words, a name and a path are printed as they are."""
    progress.emit({**FINDING, where: MARKUP})
    assert MARKUP in said(progress)


@pytest.mark.parametrize("where", ["message", "log", "note"])
def test_brackets_in_an_entry_are_no_markup(where):
    """An exception's text, a compiler's output and a person's note are printed as they are."""
    message, log, note = (MARKUP if where == name else "" for name in ("message", "log", "note"))
    found = entry(Verdict("refused", message, Evidence(error="x", log=log)), note=note)
    assert MARKUP in shown(display.entry(found))
