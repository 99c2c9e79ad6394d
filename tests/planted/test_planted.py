# ruff: noqa: SIM300
"""Every planted fault is found, under its right name, small, and once; what is merely unusual is never accused."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import gpus, operators
from harness.case import Case
from harness.rate import measured, wilson
from harness.resize import sizes
from tests.planted import single_prefill, top_k_mask_logits
from tests.planted.campaigns import hunt
from tests.planted.fault import Fault, LookAlike

FAULTS = (*top_k_mask_logits.FAULTS, *single_prefill.FAULTS)
LOOKALIKES = (*top_k_mask_logits.LOOKALIKES, *single_prefill.LOOKALIKES)
SEED = 20
AT_MOST = 3000
AFTER = 30
"""Cases after the first failure: those that could show the same bug under a second signature."""


def faults() -> list[object]:
    return [
        pytest.param(fault, id=name_of(fault), marks=[pytest.mark.gpu] if fault.needs_gpu else []) for fault in FAULTS
    ]


def name_of(planted: Fault | LookAlike) -> str:
    return f"{planted.operator}-{planted.name}"


@pytest.mark.parametrize("fault", faults())
def test_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    """The fault's campaign ends with one entry: its kind, shrunk to its minimum, confirmed in a fresh process."""
    device = "cuda" if fault.needs_gpu else "cpu"
    found = hunt(
        fault.operator, fault.spec, seed=SEED, cases=AT_MOST, after=AFTER, folder=tmp_path, device=device,
        hangs=fault.hangs,
    )  # fmt: skip
    signatures = [str(entry.signature) for entry in found.entries]
    assert 1 == len(signatures), signatures
    entry = found.entries[0]
    assert entry.signature.kind in fault.names, signatures
    assert entry.reduced
    assert isinstance(entry.subject, Case)
    assert fault.needs_history == bool(entry.context)
    got = sizes(entry.subject, operators.get(fault.operator).dimensions(entry.subject))
    assert {name: min(got[name], most) for name, most in fault.minimum.items()} == {n: got[n] for n in fault.minimum}


TWO = {
    "rereads_and_halves_k": ["wrong_set (float32, k_int64)", "wrong_set (float32, out_is_logits)"],
    "erases_nan_and_takes_one_too_many": ["wrong_nan (float32)", "wrong_set (float16)"],
}
"""Kernels with two faults, and the signature that each leaves."""


def test_a_fault_that_shows_in_one_run_of_five_states_its_rate(tmp_path: Path) -> None:
    """The smallest case, and an interval that holds 51 of 256 (as far as five standard deviations: that misses once in a
    million times); so many repeats as make a failure 99 % likely at its lower end."""
    fault = next(f for f in FAULTS if f.name == "sometimes_wrong")
    (entry,) = hunt(fault.operator, fault.spec, seed=SEED, cases=AT_MOST, after=0, folder=tmp_path).entries
    assert isinstance(entry.subject, Case)
    assert entry.rate is not None
    assert {"logits": (1, 1)} == {name: view.shape for name, view in entry.subject.tensors.items()}
    low, high = wilson(entry.rate.failed, entry.rate.runs, z=5)
    assert low <= 51 / 256 <= high
    assert entry.rate == measured(entry.rate.failed, entry.rate.runs)


@pytest.mark.parametrize("name", TWO)
def test_two_faults_in_one_kernel_are_two_entries(name: str, tmp_path: Path) -> None:
    """Whichever is met first: one entry each, small, under its own name."""
    fault = Fault(top_k_mask_logits.OPERATOR, top_k_mask_logits.HERE, name, "two.py", (), {}, "")
    found = hunt(fault.operator, fault.spec, seed=SEED, cases=AT_MOST, after=300, folder=tmp_path)
    assert TWO[name] == sorted(str(entry.signature).partition(" ")[2] for entry in found.entries)


@pytest.mark.parametrize("lookalike", LOOKALIKES, ids=name_of)
def test_lookalike_is_not_accused(lookalike: LookAlike, tmp_path: Path) -> None:
    """A correct kernel, however unusual, has no findings."""
    device = gpus.resolve("auto")
    found = hunt(
        lookalike.operator, lookalike.spec, seed=SEED, cases=lookalike.cases, after=0, folder=tmp_path, device=device
    )
    assert [] == [str(entry.signature) for entry in found.entries]
