"""harness.vary: every parameter, one at a time, and no other thing changed."""

# ruff: noqa: SIM300 - the expected value stands first

import pytest
from hypothesis import given
from msgspec.structs import replace

from harness import operators
from harness.case import Build, Fill, View, tidy, validate
from harness.resize import sizes
from harness.strategies import SCALES, related_view
from harness.vary import LARGEST, MOST_ROWS, build_parameters, neighbours, parameters
from tests.harness.making import drawn, mask_case, prefill_case

CASES = {
    "mask": mask_case(2, 5, k=2),
    "mask in place": mask_case(2, 5, k=(2, 1), form="in_place", pitch=9, offset=4),
    "mask into out": mask_case(3, 4, form="out", dtype="float16"),
    "prefill": prefill_case(3, 5, heads=(4, 2), causal=True, sm_scale=0.5, window_left=7),
    "prefill in place": prefill_case(2, 2, form="out_is_q", layout="HND", mask=True, alibi=True),
}


def of(case, name, **rest):
    return next(p for p in parameters(case, "cpu", **rest) if p.name == name)


@pytest.mark.parametrize("what", CASES)
def test_every_parameter_has_its_own_value(what):
    """Under its name the case itself; all others are other calls, each once, and can be read."""
    case = tidy(CASES[what])
    found = parameters(case, "cpu", tunings=3, schedules=True)
    for parameter in found:
        assert case == parameter.values[parameter.own], parameter.name
        keys = [subject.key() for subject in parameter.values.values()]
        assert len(keys) == len(set(keys)), parameter.name
        for subject in parameter.values.values():
            validate(subject)
    assert len(found) == len({parameter.name for parameter in found})
    assert {"dtype", "out", "tuning", "order of threads"} <= {parameter.name for parameter in found}


@pytest.mark.parametrize("what", CASES)
def test_an_operators_alternatives_begin_with_the_cases_own(what):
    """Of each parameter the first is the case."""
    case = tidy(CASES[what])
    first = {}
    for name, value, variant in operators.get(case.operator).alternatives(case):
        first.setdefault(name, (value, tidy(variant)))
    assert dict.fromkeys(first, case) == {name: variant for name, (_, variant) in first.items()}


def test_a_size_changes_nothing_else():
    """batch of the mask: vocab, dtype, form and k stay."""
    batch = of(CASES["mask"], "batch")
    dimensions = operators.get("top_k_mask_logits").dimensions(CASES["mask"])
    for value, subject in batch.values.items():
        assert {"batch": value, "vocab": 5} == sizes(subject, dimensions)
        assert CASES["mask"].params == subject.params
    assert {0, 1, 3, 4, 16, 17} <= set(batch.values)
    assert sizes(batch.between(77), dimensions)["batch"] == 77


def test_in_place_stays_in_place():
    """Where out is a view of logits, another layout or offset is both tensors'."""
    case = mask_case(2, 4, form="out")
    logits = case.tensors["logits"]
    case = tidy(replace(case, tensors={"logits": logits, "out": logits}))
    for name in ("layout of logits", "offset of logits"):
        assert all(s.tensors["out"] == s.tensors["logits"] for s in of(case, name).values.values())


def test_where_an_output_lies():
    """All legal places, in families, and such as the contract may forbid."""
    places = set(of(CASES["mask"], "out").values)
    assert {
        "shifted (by an element)",
        "shifted (by a row)",
        "shifted (by 16 bytes)",
        "shifted (another pitch)",
        "rows that overlap",
        "fresh",
        "in place (out is logits)",
        "in place (top_k_mask_logits_)",
        "in place (out a view of logits)",
        "disjoint (a storage of its own)",
        "disjoint (behind logits)",
        "disjoint (rows between those of logits)",
    } == places


@pytest.mark.parametrize(
    ("relation", "word"),
    [
        ("after", "disjoint (behind logits)"),
        ("same", "in place (out a view of logits)"),
        ("shifted_element", "shifted (by an element)"),
    ],
)
def test_where_its_own_output_lies(relation, word):
    """One that a relation gives has its word; another of its own storage is disjoint, any other as it was found."""
    case = mask_case(2, 5, form="out")
    logits, out = related_view(case.tensors["logits"], relation, 1)
    assert word == of(replace(case, tensors={"logits": logits, "out": out}), "out").own
    assert (
        "disjoint (a storage of its own)"
        == of(mask_case(2, 5, form="out", out=View(1, "float32", (2, 5), (9, 1))), "out").own
    )
    found = replace(case, tensors={"logits": logits, "out": replace(logits, offset=12)})
    assert "as it was found" == of(found, "out").own


@pytest.mark.parametrize("name", operators.names())
def test_any_drawn_case_can_be_varied(name):
    """Legal or not: its own value is there, and every variant is another call."""

    @given(operators.get(name).cases(SCALES["cpu", "dev"]))
    @drawn(40)
    def check(case):
        case = tidy(case)
        for parameter in parameters(case, "cpu", tunings=2):
            assert case == parameter.values[parameter.own], parameter.name
            assert len(parameter.values) == len({subject.key() for subject in parameter.values.values()})

    check()


def test_k_as_every_type():
    """A k that is one number can be given in three ways, one that differs from row to row only as a tensor."""
    assert {"int", "int32 tensor", "int64 tensor"} == set(of(CASES["mask"], "type of k").values)
    assert {"int32 tensor", "int64 tensor"} == set(of(CASES["mask in place"], "type of k").values)
    assert "cycle [2, 1]" == of(CASES["mask in place"], "k").own


def test_sizes_are_bounded():
    """Rows by fewer than columns, since each is a program; a size that is larger already is no limit."""
    most = {p.name: max(p.values) for p in parameters(CASES["mask"], "cpu") if p.name in ("batch", "vocab")}
    assert {"batch": MOST_ROWS["cpu"], "vocab": LARGEST["cpu"]} == most
    assert 600 == max(of(mask_case(600, 2), "batch").values)


def test_neighbours_come_first():
    """Then powers of two; every size once, none below zero or above the limit, its own not at all."""
    found = list(neighbours(17, 100))
    assert [16, 18, 15, 19, 1, 2, 4, 8] == found[:8]
    assert len(found) == len(set(found))
    assert (0, 100) >= (min(found), max(found)) >= (0, 0)
    assert 17 not in found
    assert {12, 20, 24, 40, 48, 80, 0} <= set(found)


def test_a_parameter_without_another_value_is_none():
    """One tuning, one order of threads."""
    names = {parameter.name for parameter in parameters(CASES["mask"], "cpu")}
    assert not names & {"tuning", "order of threads", "checks"}


def test_checks_can_be_left_out():
    """Of a case that has some."""
    checked = of(replace(CASES["mask"], checks=("race",)), "checks")
    assert {"race": ("race",), "none": ()} == {value: case.checks for value, case in checked.values.items()}


def test_fills_have_names():
    """The case's own too, with its values and seed."""
    case = mask_case(fill=Fill("choice", 7, (1.0, 2.0, 3.0)))
    values = of(case, "values of logits")
    assert "choice (1.0, 2.0, 3.0; seed 7)" == values.own
    assert {"constant (nan)", "rising", "specials", "uniform"} <= set(values.values)


def test_builds_differ_in_one_place():
    """Of a matrix, those that do; a parameter that a build does not name has its default."""

    def build(arch="sm_80", **params):
        return Build("op", {"dtype": "float16", "flag": True, **params}, arch)

    matrix = [build(), build(flag=False), build(arch="sm_90a"), build(tuning=2), build(arch="sm_90a", flag=False)]
    found = {p.name: (p.own, list(p.values)) for p in build_parameters(matrix[0], matrix)}
    assert {
        "flag": ("on", ["on", "off"]),
        "architecture": ("sm_80", ["sm_80", "sm_90a"]),
        "tuning": ("default", ["default", 2]),
    } == found
