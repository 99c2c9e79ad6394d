"""harness.bench.meter and campaign: a child that dies or hangs is a row, and the next one is measured."""

# ruff: noqa: SIM300 - the expected value stands first

from pathlib import Path

import pytest

from harness.bench import workload as workloads
from harness.bench.campaign import Campaign, Config, NothingToTime
from harness.bench.meter import Meter, Patience
from harness.sandbox import UnusableImplementation
from tests.harness.bench import kernels

FILE = Path(kernels.__file__)
NAME = "top_k_mask_logits"
MASK = workloads.workload(NAME, "float32 3x40 k=5")


def campaign(meter, *functions, chosen=(MASK,), **more):
    specs = [f"{FILE}:{function}" for function in functions]
    return Campaign(Config({NAME: chosen}, {NAME: specs}, {NAME: specs[0]}, seconds=0.01), meter, **more)


def test_every_kernel_has_a_row_whatever_becomes_of_it():
    """The right ones a time, each other its reason; a lost process is replaced; what is known is told after the workloads."""
    told, kept = [], []
    with Meter("cpu", patience=Patience(step=60, first=8)) as meter:
        run = campaign(
            meter,
            *("right", "dies", "wrong", "hangs", "fresh"),
            say=told.append,
            changed=lambda found: kept.append((len(found.results), found.complete)),
        )
        run.run()
        assert 2 == meter.deaths
    results = run.report.results
    assert ["measured", "died", "wrong", "hang", "measured"] == [each.status for each in results]
    assert "died of exit status 3 (first call)" == results[1].why
    assert "first call: no end in 8 s" == results[3].why
    assert "in hangs" in results[3].log
    assert [(5, False), (5, True)] == kept
    assert (6, 6) == (run.done, run.total)
    assert {NAME: results[0].name} == run.report.settings.baseline
    assert any("3 of 6" in text and "wrong, judging" in text for text in told)
    assert [MASK.name] == [floor.workload for floor in run.report.floors]


def test_what_cannot_be_loaded():
    """Is the user's error, before anything is measured."""
    with Meter("cpu") as meter:
        with pytest.raises(UnusableImplementation, match="no function 'absent'"):
            campaign(meter, "absent").run()
        assert "torch" in meter.machine()


def test_what_cannot_run_here_is_left_out(tmp_path):
    """And when that is all, it is said why."""
    (tmp_path / "none.py").write_text(
        "def unavailable(device):\n    return 'too old'\n\ndef mask(logits, k):\n    pass\n"
    )
    specs = [f"{tmp_path / 'none.py'}:mask", f"{FILE}:right"]
    with Meter("cpu") as meter:
        run = Campaign(Config({NAME: (MASK,)}, {NAME: specs}, seconds=0.01), meter)
        run.run()
        assert ["too old"] == list(run.skipped.values())
        assert (["measured"], 2) == ([r.status for r in run.report.results], run.total)
        with pytest.raises(NothingToTime, match="too old"):
            Campaign(Config({NAME: (MASK,)}, {NAME: specs[:1]}), meter).run()
