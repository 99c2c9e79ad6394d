"""harness.events: counting, and adding up."""

# ruff: noqa: SIM300 - the expected value stands first

from harness.events import TargetStats, merge_states
from harness.verdict import PASS, Verdict, skip


def counted(*verdicts):
    stats = TargetStats("op", "mine")
    for verdict in verdicts:
        stats.count(verdict)
    return stats.state()


A = (PASS, Verdict("pass", ratio=0.5, vacuous=True), skip("no"), Verdict("hang"))
B = (Verdict("pass", ratio=0.75), Verdict("wrong_set"), Verdict("divergence", ratio=9.0))


def test_every_verdict_is_counted_once():
    """Passed, skipped or failed; the ratio is of what passed alone."""
    expected = {
        "cases": 4,
        "passed": 2,
        "skipped": 1,
        "failed": 1,
        "vacuous": 1,
        "ratio": 0.5,
        "known": 0,
        "idle": "",
        "why_skipped": "no",
        "ratios": {},
        "features": {},
    }
    assert expected == counted(*A)
    assert 0.75 == counted(*B)["ratio"]


def test_merging_is_counting_together():
    """Sums, and the larger ratio."""
    assert counted(*A, *B) == merge_states(counted(*A), counted(*B))
    assert merge_states(counted(*A), counted(*B)) == merge_states(counted(*B), counted(*A))
    assert counted(*A) == merge_states(counted(*A), counted())


def test_ratios_are_kept_by_flag_set():
    """The largest of each, over what passed; merging takes the larger of two."""
    a, b = TargetStats("op", "mine"), TargetStats("op", "mine")
    for ratio, flags in ((0.5, "fp16"), (0.25, "fp16"), (0.125, "bf16"), (0.75, "")):
        a.count(Verdict("pass", ratio=ratio), flags)
    b.count(Verdict("pass", ratio=0.625), "fp16")
    b.count(Verdict("divergence", ratio=9.0), "bf16")
    assert {"fp16": 0.5, "bf16": 0.125} == a.state()["ratios"]
    assert {"fp16": 0.625, "bf16": 0.125} == merge_states(a.state(), b.state())["ratios"]


def test_why_a_target_is_idle_is_said_once():
    """Not twice over for two workers."""
    idle = TargetStats("op", "mine", idle="no GPU").state()
    assert "no GPU" == merge_states(idle, idle)["idle"]


def test_features_are_counted_by_case_whatever_the_verdict():
    """So that the share of cases that had a flag can be told; two workers' counts add up."""
    stats, other = TargetStats("op", "mine"), TargetStats("op", "mine")
    stats.count(PASS, features=("causal", "fp16_qk"))
    stats.count(skip("no"), features=("fp16_qk",))
    other.count(PASS, features=("window",))
    assert {"causal": 1, "fp16_qk": 2} == stats.state()["features"]
    assert {"causal": 1, "fp16_qk": 2, "window": 1} == merge_states(stats.state(), other.state())["features"]
