"""A planted fault that only a compiler sees: it is found, small, and once over all architectures and options."""

from __future__ import annotations

from pathlib import Path

from harness import corpus
from harness.build_campaign import BuildCampaign, BuildConfig
from harness.case import Build
from harness.corpus import Entry
from harness.events import Event
from tests.planted.single_prefill import HERE, OPERATOR


def test_half_times_float_is_one_finding(tmp_path: Path, monkeypatch) -> None:
    """The plainest parameters with the flag, on the first architecture; every other build with the flag counts as known."""
    monkeypatch.setenv("WARPCHECK_CACHE", str(tmp_path / "cache"))
    events: list[Event] = []
    spec = f"{HERE / 'no_cast.py'}:half_times_float"
    BuildCampaign(BuildConfig({OPERATOR: (spec,)}, jobs=2, corpus=tmp_path / "corpus"), events.append).run()
    (entry,) = [entry for _, entry in corpus.entries(tmp_path / "corpus") if isinstance(entry, Entry)]
    assert isinstance(entry.subject, Build)
    off = dict.fromkeys(("window", "soft_cap", "alibi"), False)
    plainest = {"dtype": "float16", "head_dim": 64, "mask": "none", "half_operators": True, **off}
    assert ("build_error", "sm_80", {**plainest, "fp16_qk": True}) == (
        entry.signature.kind,
        entry.subject.arch,
        entry.subject.params,
    )
    assert '"*"' in entry.signature.error
    last = [event for event in events if event["event"] == "progress"][-1]
    assert {str(entry.signature): 2 * 8 * 3 * 2} == last["failures"]
    built = {arch: counts["built"] for counts_of in last["targets"].values() for arch, counts in counts_of.items()}
    assert dict.fromkeys(("sm_80", "sm_90a", "sm_120a"), 2 * 2 * 8 * 2) == built
