"""harness.repro.checks: what a script accepts is what the oracle accepts, where one result is right and where several are."""

# ruff: noqa: SIM300 - the expected value stands first

import math

import pytest
import torch
from msgspec.structs import replace

from harness import operators
from harness.case import FORMAT, Fill, Planted
from harness.corpus import Entry
from harness.memory import Memory
from harness.repro import checks
from harness.signature import Signature
from harness.verdict import Element, Evidence, Verdict
from tests.harness.making import mask_case, prefill_case

TIES = Fill("cycle", 0, (1.0, 3.0, 3.0, "nan", 3.0, "-inf", 2.0))
ODD = ("nan", "inf", "-inf", 7.0, 0.0)


def _with(case, name, *planted):
    fill = replace(case.fills[name], planted=tuple(Planted(i, value) for i, value in planted))
    return replace(case, fills={**case.fills, name: fill})


CALLS = {
    "mask": (mask_case(2, 7, fill=TIES, k=3), {}),
    "mask-exactly": (mask_case(2, 7, fill=TIES, k=3), {"ties": "exactly_k"}),
    "mask-exactly-no-nan": (mask_case(3, 6, fill=Fill("choice", 3, (1.0, 2.0)), k=3), {"ties": "exactly_k"}),
    "mask-nan-masked": (mask_case(2, 7, fill=TIES, k=2), {"nan": "mask"}),
    "mask-nan-any": (mask_case(2, 7, fill=TIES, k=2), {"nan": "unspecified", "ties": "exactly_k"}),
    "plain": (prefill_case(2, 3, return_lse=True), {}),
    "empty-rows": (prefill_case(3, 1, causal=True, return_lse=True), {}),
    "nan-in-q": (_with(prefill_case(2, 3, return_lse=True), "q", (5, "nan")), {}),
    "inf-in-k": (_with(prefill_case(2, 3, return_lse=True), "k", (5, "inf")), {}),
    "minus-inf-scores": (_with(prefill_case(2, 1, return_lse=True), "k", (0, "-inf"), (1, "-inf")), {}),
    "nan-in-v": (_with(prefill_case(2, 3, causal=True), "v", (130, "nan")), {}),
    "inf-in-v": (_with(prefill_case(2, 3), "v", (5, "inf"), (70, "-inf")), {}),
    "overflow": (
        replace(
            (case := prefill_case(2, 3, use_fp16_qk_reduction=True)),
            fills={**case.fills, "q": Fill("uniform", 0, (64.0,)), "k": Fill("uniform", 1, (64.0,))},
        ),
        {},
    ),
}
"""What: (case, SEMANTICS)."""


def reference_of(case, declared):
    operator = operators.get(case.operator)
    memory = Memory(case, "cpu")
    semantics = operator.semantics(declared, "cpu")
    return operator, operator.reference(operator.bind(case, memory.tensors), semantics)


def entry_of(case, worst=None):
    verdict = Verdict("divergence", "", Evidence(worst))
    return Entry(FORMAT, Signature(case.operator, "x", "divergence"), case, verdict, "x.py:x", "cpu")


def problems(outputs, rights, entry):
    """What the statements of a script say of these outputs."""
    names = {"torch": torch, "nan": math.nan, "inf": math.inf, "problems": [], **outputs}
    text = [line for name in outputs for line in checks.lines(name, name, rights[name], entry)]
    exec("\n".join(text), names)
    return names["problems"]


def answers(reference, rights):
    """An answer that is right or nearly so, and the same with one element changed, in every way for many of them."""
    start = {}
    for name, right in rights.items():
        start[name] = right.want.to(reference.dtype[name])
    yield start
    generator = torch.Generator().manual_seed(3)
    for name, whole in start.items():
        if not whole.numel():
            continue
        for value in (*ODD, "bump"):
            for flat in torch.randperm(whole.numel(), generator=generator)[:12].tolist():
                changed = whole.clone()
                element = changed.view(-1)[flat]
                element.fill_(float(element) * 1.01 + 0.001 if value == "bump" else float(value))
                yield {**start, name: changed}


@pytest.mark.parametrize("what", CALLS)
def test_a_script_accepts_what_the_oracle_accepts(what, monkeypatch):
    """For right answers and for answers with one element made something else; all elements spelled out, no sample."""
    monkeypatch.setattr(checks, "EXPECTED", 1 << 20)
    case, declared = CALLS[what]
    operator, reference = reference_of(case, declared)
    rights, entry = operator.rights(reference), entry_of(case)
    seen = []
    for outputs in answers(reference, rights):
        judged = all(judgement.kind is None for judgement in operator.judge(outputs, reference).values())
        seen.append(judged)
        said = problems(outputs, rights, entry)
        assert judged == (not said), (said, operator.judge(outputs, reference))
    assert False in seen


def test_exactly_k_takes_any_k_and_no_other_number():
    """Of three that tie for two places, any two; neither one nor three."""
    case, declared = mask_case(1, 4, fill=Fill("cycle", 0, (5.0, 5.0, 5.0, 1.0)), k=2), {"ties": "exactly_k"}
    operator, reference = reference_of(case, declared)
    rights, entry = operator.rights(reference), entry_of(case)
    low = -math.inf
    for row, right in (([5.0, low, 5.0, low], True), ([5.0, 5.0, 5.0, low], False), ([low, low, 5.0, low], False)):
        assert right == (not problems({"out": torch.tensor([row])}, rights, entry))


def test_the_worst_element_has_the_bound_it_was_judged_by():
    """A GPU's arithmetic may be known better where it was found than where the script is written."""
    case = prefill_case(1, 2, heads=(1, 1))
    operator, reference = reference_of(case, {})
    rights = operator.rights(reference)
    worst = Element("out", (0, 0, 9), "1.0", "0.0", "1e-09")
    bound = checks.recorded(rights["out"], entry_of(case, worst), "out").bound
    assert 1e-9 == float(bound[0, 0, 9])
    assert float(rights["out"].bound[0, 0, 8]) == float(bound[0, 0, 8])
    for untold in (Element("out", (0, 0, 9), "1.0", "?", "?"), Element("lse", (0, 0), "1.0", "0.0", "1e-9"), None):
        assert rights["out"] is checks.recorded(rights["out"], entry_of(case, untold), "out")
