"""harness.repro.call: an implementation is imported as its owner would, and called as one would write it."""

# ruff: noqa: SIM300 - the expected value stands first

import os
from pathlib import Path

import pytest

from harness import implementations, operators, repro
from harness.case import FORMAT, Fill
from harness.corpus import Entry
from harness.memory import Memory
from harness.repro import NoScript
from harness.repro.call import kernel, statement
from harness.signature import Signature
from harness.verdict import Verdict
from tests.harness.making import NAME, mask_case, prefill_case


def entry(spec, case=None):
    case = case or mask_case()
    return Entry(FORMAT, Signature(case.operator, "x", "refused"), case, Verdict("refused", "it raised"), spec, "cpu")


def call_of(spec, case, implementation=None):
    memory = Memory(case, "cpu")
    call = operators.get(case.operator).bind(case, memory.tensors)
    target = kernel(entry(spec, case), set(), method=call.method)
    return statement(case, call, memory.tensors, target, implementation)


@pytest.mark.parametrize(
    ("spec", "imports", "name"),
    [
        ("torch", [f"from impls.{NAME} import {NAME}"], NAME),
        ("mine.py:mask", ['sys.path.insert(0, ".")', "from mine import mask"], "mask"),
        ("a/mine.py:out", ['sys.path.insert(0, "a")', "from mine import out as kernel"], "kernel"),
        ("package.mine:mask", ["from package.mine import mask"], "mask"),
        (
            "two words.py:mask",
            ['sys.path.insert(0, ".")', 'module = runpy.run_path("two words.py")', "mask = module['mask']"],
            "mask",
        ),
        (
            "select.py:mask",
            ['sys.path.insert(0, ".")', 'module = runpy.run_path("select.py")', "mask = module['mask']"],
            "mask",
        ),
    ],
)
def test_every_kind_of_implementation_is_imported(spec, imports, name):
    """Built in, a file (by a name that imports, or by one that is taken), a module; never over a variable of the script."""
    found = kernel(entry(spec), {"out", "logits"})
    assert (imports, name) == (found.imports, found.call)


def test_an_absolute_path_becomes_a_relative_one():
    """A script names no folder of the machine it was made on."""
    found = kernel(entry(f"{Path.cwd() / 'kernels' / 'mine.py'}:mask"), set())
    assert ['sys.path.insert(0, "kernels")', "from mine import mask"] == found.imports


def test_a_package_that_is_not_there():
    """One line that names what is missing."""
    with pytest.raises(NoScript, match=f"no installed package offers {NAME}.elsewhere"):
        kernel(entry("elsewhere"), set())


@pytest.mark.parametrize(
    ("case", "expression", "results"),
    [
        (mask_case(), "mask(logits, 2)", {"out": "out"}),
        (mask_case(form="out"), "mask(logits, 2, out=out)", {"out": "out"}),
        (mask_case(form="out_is_logits"), "mask(logits, 2, out=logits)", {"out": "logits"}),
        (mask_case(form="in_place", k=(1, 2)), "mask_(logits, k)", {"out": "logits"}),
        (prefill_case(return_lse=True), "mask(q, k, v, return_lse=True)", {"out": "out", "lse": "lse"}),
        (
            prefill_case(form="out_is_q", return_lse=True, sm_scale="nan"),
            "mask(q, k, v, return_lse=True, sm_scale=nan, out=q)",
            {"out": "q", "lse": "lse"},
        ),
    ],
)
def test_a_call_as_one_would_write_it(case, expression, results):
    """Tensors by their names, and where each result is."""
    assert (expression, results) == call_of("mine.py:mask", case)


def test_a_tuning_choice_is_said():
    """And the backend of a built-in one."""
    case = prefill_case(1, 2, heads=(1, 1))
    tuned = implementations.load("single_prefill", "torch")
    expression, _ = call_of("torch", case, tuned)
    words = ", ".join(f"{name}={value!r}" for name, value in tuned.tuning(0).items())
    assert f"single_prefill(q, k, v, {words}, backend='torch')" == expression


def test_a_script_names_no_folder(monkeypatch, tmp_path):
    """Neither of the kernel, nor out of the failure's own words."""
    monkeypatch.chdir(tmp_path)
    found = entry(f"{tmp_path / 'mine.py'}:mask", mask_case(fill=Fill("spread", 1)))
    verdict = Verdict("refused", f"raised on a legal call: no {tmp_path}/kernels/x.cu in '{os.sep}usr/lib'")
    for make in (repro.script, repro.issue):
        text = make(
            Entry(FORMAT, found.signature, found.subject, verdict, found.implementation, "cpu"), path="/a/x.json"
        )
        assert str(tmp_path) not in text
        assert "no x.cu in" in text
        assert "/usr" not in text
