"""harness.bench.compare: what changed beyond the noise, and nothing else."""

# ruff: noqa: SIM300 - the expected value stands first

import pytest

from harness.bench import compare
from harness.bench.report import Report
from tests.harness.bench.making import failed, floor, report, result, timing


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ((10.0, 0.01), (10.0, 0.01), None),
        ((10.0, 0.0), (10.25, 0.0), None),  # 2.5 %: no more than between two processes
        ((10.0, 0.01), (10.5, 0.01), "slower"),
        ((10.0, 0.01), (9.5, 0.01), "faster"),
        ((10.0, 0.2), (11.0, 0.2), None),  # the quartiles touch
        ((10.0, 0.0), (11.0, 0.25), None),
        ((10.0, 0.2), (20.0, 0.2), "slower"),
    ],
)
def test_the_rule(old, new, kind):
    """Another median by more than 3 %, and ranges that do not touch."""
    assert kind == compare.changed(timing(*old), timing(*new))


def made(*results, **more):
    return report([floor()], list(results), **more)


def kinds(old, new):
    return [(change.kind, change.name, change.what, change.old, change.new) for change in compare.changes(old, new)]


def test_a_run_and_itself():
    """Nothing changed."""
    assert [] == kinds(report(), report())
    assert 6 == compare.compared(report(), report())


def test_changes():
    """Cold and warm apart, memory to the byte, and what has a time in one run alone; what only one run has is left out."""
    old = made(
        result("a", 10, 5),
        result("b", 10, extra=0),
        failed("c", "died", "died of SIGSEGV"),
        result("d", 10),
        result("e", 1),
    )
    new = made(result("a", 10, 8), result("b", 5, extra=512), result("c", 10), failed("d", why="odd"), result("f", 1))
    assert [
        ("slower", "a", "warm", pytest.approx(5e-6), pytest.approx(8e-6)),
        ("faster", "b", "cold", pytest.approx(1e-5), pytest.approx(5e-6)),
        ("more memory", "b", "extra", 0, 512),
        ("mended", "c", "status", "died: died of SIGSEGV", "measured"),
        ("broke", "d", "status", "measured", "wrong: odd"),
    ] == kinds(old, new)
    assert 4 == compare.compared(old, new)


def test_the_machine_itself():
    """Other hardware or software, and ceilings that moved."""
    old, new = (
        made(result("a", 1)),
        report([floor(copy=12.0)], [result("a", 1)], machine={"gpu": "Two", "torch": "2.11"}),
    )
    assert ["gpu One -> Two"] == compare.machines(old, new)
    assert [("slower", "copy")] == [(change.kind, change.name) for change in compare.ceilings(old, new)]
    assert [] == compare.machines(old, old) + list(compare.ceilings(old, old))


def test_empty_reports():
    """Of a run that was ended before its first workload."""
    empty = Report({}, report().settings)
    assert ([], 0) == (kinds(empty, report()), compare.compared(report(), empty))
