# ruff: noqa: SIM300
"""Every planted fault is found, under its right name, small, and once; what is merely unusual is never accused."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import gpus
from harness.case import Case
from tests.planted.campaigns import hunt
from tests.planted.top_k_mask_logits import FAULTS, LOOKALIKES, Fault, LookAlike

OPERATOR = "top_k_mask_logits"
SEED = 20
AT_MOST = 3000
AFTER = 40
"""Cases after the first failure: those that could show the same bug under a second signature."""


def faults() -> list[object]:
    return [pytest.param(fault, id=fault.name, marks=[pytest.mark.gpu] if fault.needs_gpu else []) for fault in FAULTS]


@pytest.mark.parametrize("fault", faults())
def test_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    """The fault's campaign ends with one entry: its kind, shrunk to its minimum, confirmed in a fresh process."""
    device = "cuda" if fault.needs_gpu else "cpu"
    found = hunt(OPERATOR, fault.spec, seed=SEED, cases=AT_MOST, after=AFTER, folder=tmp_path, device=device)
    assert [fault.kinds[0]] == [entry.signature.kind for entry in found.entries], [
        str(entry.signature) for entry in found.entries
    ]
    entry = found.entries[0]
    assert entry.reduced
    assert isinstance(entry.subject, Case)
    assert fault.needs_history == bool(entry.context)
    if not fault.needs_history:
        sizes = dict(zip(("batch", "vocab"), entry.subject.tensors["logits"].shape))
        assert {name: min(size, fault.minimum[name]) for name, size in sizes.items()} == sizes


@pytest.mark.parametrize("lookalike", LOOKALIKES, ids=lambda lookalike: lookalike.name)
def test_lookalike_is_not_accused(lookalike: LookAlike, tmp_path: Path) -> None:
    """A correct kernel, however unusual, has no findings."""
    cases = 60 if lookalike.name.startswith("triton") else 400
    device = gpus.resolve("auto")
    found = hunt(OPERATOR, lookalike.spec, seed=SEED, cases=cases, after=0, folder=tmp_path, device=device)
    assert [] == [str(entry.signature) for entry in found.entries]
