"""harness.bench.report and table: what is written is read again, and each number is what its column says."""

# ruff: noqa: SIM300 - the expected value stands first

import io
import re

import msgspec
import pytest
from rich.console import Console

from harness.bench import report, table
from harness.bench.report import against_baseline, against_plain, fraction, rate
from harness.case import CaseError
from tests.harness.bench import making
from tests.harness.bench.making import MASK, PREFILL


def test_a_report_comes_back_as_it_was(tmp_path):
    """Whole."""
    made = making.report()
    report.write(tmp_path / "r.json", made)
    assert made == report.read(tmp_path / "r.json")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"{", "no report of `warpcheck bench --json`"),
        (b"[]", "no report of"),
        (b"\xff", "no report of"),
        (
            msgspec.json.encode(msgspec.structs.replace(making.report(), format=9)),
            "format 9; this version reads format 1",
        ),
        (msgspec.json.encode(making.report(results=[making.result("x", 0.0)])), "a time of 0.0 s is none"),
    ],
)
def test_what_is_no_report(tmp_path, text, why):
    """Is one line with the file's name."""
    (tmp_path / "r.json").write_bytes(text)
    with pytest.raises(CaseError, match=re.escape(why)) as error:
        report.read(tmp_path / "r.json")
    assert str(error.value).startswith(str(tmp_path / "r.json"))
    with pytest.raises(CaseError, match="No such file"):
        report.read(tmp_path / "absent.json")


def test_fractions_and_ratios():
    """Of the floor, cold and warm; of the baseline, which has none to itself; of the plain workload."""
    made = making.report()
    mine, rival = (made.result(MASK, "w", name) for name in ("mine", "rival"))
    assert (0.8, 5 / 6) == (pytest.approx(fraction(made, mine)), pytest.approx(fraction(made, mine, warm=True)))
    assert (0.25, None) == (pytest.approx(against_baseline(made, mine)), against_baseline(made, rival))
    two = made.result(MASK, "w values=two", "mine")
    assert (None, 1.2) == (against_baseline(made, two), pytest.approx(against_plain(made, two)))
    assert (None, None) == (against_plain(made, mine), fraction(made, two, warm=True))


def test_the_floor_of_attention_is_what_takes_longer():
    """4 GFLOP at 800 TFLOP/s are 5 us, less than the copy's 10; at 200, more."""
    made = making.floor(flops=4e9, rate=8e14)
    assert (pytest.approx(1e-5), pytest.approx(5e-6)) == (made.seconds(), made.seconds(warm=True))
    assert 2e-5 == making.floor(flops=4e9, rate=2e14).seconds()
    assert (4e14, "FLOP/s") == (pytest.approx(rate(made, making.timing(10.0))[0]), rate(made, making.timing(10.0))[1])
    assert (2e12, "B/s") == (
        pytest.approx(rate(making.floor(), making.timing(10.0))[0]),
        rate(making.floor(), making.timing(1))[1],
    )


def test_what_is_bad():
    """A wrong result, and not what is not for an implementation."""
    assert [("rival", "wrong")] == [(r.name, r.status) for r in making.report().bad()]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(5.04e-6, "5.0 µs"), (9.96e-5, "99.6 µs"), (2.521e-4, "252 µs"), (8.731e-3, "8.73 ms"), (2.0, "2.00 s")],
)
def test_times_are_read_by_people(seconds, text):
    """Three digits or so."""
    assert text == table.seconds(seconds)


def test_a_time_tells_its_spread_and_how_it_was_taken():
    """Where that matters."""
    assert "5.0 µs" == table.time_of(making.timing(5.0, 0.01))
    assert "5.0 µs ±10%" == table.time_of(making.timing(5.0, 0.2))
    assert "5.0 µs (events)" == table.time_of(making.timing(5.0, 0.0, "events"))
    assert ("–", "0", "3.00 MiB", "2004 MiB") == (table.time_of(None), *map(table.size_of, (0, 3 << 20, 2004 << 20)))


def test_tables_hold_everything():
    """One an operator; a row for the copy of each workload and for each implementation, notes for what has no time."""
    made = making.report()
    first, second = table.tables(made)
    console = Console(width=300, file=io.StringIO())
    console.print(second, first)
    lines = [re.split(r"\s{2,}", line.strip()) for line in console.file.getvalue().splitlines()]
    assert ["mine", "12.5 µs", "80%", "1.60 TB/s", "0.25", "–", "6.0 µs", "83%", "0", "every row"] in lines
    assert ["rival", "50.0 µs", "20%", "0.40 TB/s", "1", "–", "20.0 µs", "25%", "3.00 MiB", "every row"] in lines
    assert ["rival", "wrong"] in lines
    assert [PREFILL] in lines
    assert ["a <long> prompt", "copy", "10.0 µs", "matmul 800 TFLOP/s", "5.0 µs"] in lines
    assert ["rival, w values=two: wrong: wrong_set: out[0, 1] | is odd"] == list(table.notes(made, MASK))


def test_markdown():
    """Tables whose rows have as many cells as their heads, machine, versions and command."""
    text = table.markdown(making.report(complete=False), "warpcheck bench --x")
    lines = text.splitlines()
    assert "    warpcheck bench --x" in lines
    assert "Machine and versions: gpu One, torch 2.11." in lines
    assert "This run was ended early." in lines
    assert "| w | 10.0 µs | 12.5 µs (80%) | 50.0 µs (20%) |" in lines
    assert "| w values=two | 10.0 µs | 15.0 µs (67%) | wrong |" in lines
    assert "| a <long> prompt | 10.0 µs | 20.0 µs (50%) | – |" in lines
    heads = 0
    for before, line in zip(["", *lines], lines):
        if line.startswith("|"):
            bars = len(re.findall(r"(?<!\\)\|", line))
            heads = bars if not before.startswith("|") else heads
            assert heads == bars
