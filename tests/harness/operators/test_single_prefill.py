"""harness.operators.single_prefill: what is drawn, bound, broken and simplified."""

# ruff: noqa: SIM300 - the expected value stands first

import itertools

import pytest
from hypothesis import HealthCheck, find, given, settings
from msgspec.structs import replace

from harness.case import tidy, validate
from harness.memory import Memory
from harness.operators import single_prefill as operator
from harness.operators.single_prefill import broken
from harness.resize import sizes
from harness.strategies import SCALES
from tests.harness.making import drawn, prefill_case

SCALE = SCALES["cpu", "dev"]
ANY = operator.cases(SCALE)
LEGAL = operator.cases(SCALE, illegal=False)


def called(case):
    """The call of a case, on the CPU."""
    return operator.bind(case, Memory(case, "cpu").tensors)


def reason(case):
    return operator.contract(called(case))


@drawn(80)
@given(LEGAL)
def test_legal_cases_are_legal(case):
    """By the contract, which has the last word; valid, and of a kind that the build matrix has."""
    validate(case)
    assert reason(case) is None
    assert operator.build_params(case) in MATRIX


MATRIX = list(operator.build_matrix())


def test_the_build_matrix_is_the_product():
    """Types with flag × head dims × masks × window × soft cap × ALiBi, the plainest first, each once."""
    assert 3 * 3 * 3 * 2**3 == len(MATRIX)
    assert len(MATRIX) == len({tuple(params.items()) for params in MATRIX})
    plain = {"dtype": "float16", "head_dim": 64, "fp16_qk": False, "mask": "none"}
    assert plain | dict.fromkeys(("window", "soft_cap", "alibi"), False) == MATRIX[0]


@drawn(100)
@given(ANY)
def test_any_case_can_be_bound_and_judged_by_the_contract(case):
    """Illegal ones too: nothing of the harness raises for them."""
    call = called(case)
    assert operator.contract(call) != ""
    assert call.writes <= set(case.tensors)
    assert list(operator.features(case)) == list(dict.fromkeys(operator.features(case)))


@drawn(300)
@given(LEGAL)
def test_scores_stay_few(case):
    """At most the scale's elements, or one query: the scores are what the oracle and an interpreted kernel cost."""
    known = sizes(case, operator.dimensions(case))
    assert known["qo_len"] <= 1 or known["qo_len"] * known["kv_len"] * known["qo_heads"] <= SCALE.elements


def test_the_flag_comes_in_a_third_of_the_cases():
    """At least: fp16 sums are what the operator is here for."""
    seen = []

    @drawn(600)
    @given(LEGAL)
    def draw(case):
        seen.append(case.params.get("use_fp16_qk_reduction", False))

    draw()
    assert sum(seen) * 3 >= len(seen)


FORMS = list(itertools.product(("new", "out", "out_is_q"), ("NHD", "HND"), (5, 6, 7)))


@pytest.mark.parametrize("way", sorted(set(broken.WRONG)))
def test_every_way_to_break_a_call_breaks_it(way):
    """In any form and layout; what is broken is still a valid case."""
    for form, layout, kv_len in FORMS:
        case = tidy(broken.broken(prefill_case(4, kv_len, form=form, layout=layout, alibi=True), way))
        validate(case)
        assert reason(case), (form, layout, kv_len)


def strides(case, name):
    return case.tensors[name].strides


@pytest.mark.parametrize(
    "what",
    [
        lambda c: "custom_mask" in c.tensors and c.params.get("window_left", -1) >= 0,
        lambda c: "alibi_slopes" in c.tensors and c.params.get("logits_soft_cap"),
        lambda c: c.params.get("kv_layout") == "HND" and c.params["form"] == "out_is_q",
        lambda c: c.params.get("causal") and c.tensors["q"].shape[0] > c.tensors["k"].shape[0] > 0,
        lambda c: c.tensors["k"].shape[0] == 0,
        lambda c: c.params.get("sm_scale") == 0.0 and c.tensors["q"].dtype == "bfloat16",
        lambda c: c.tensors["q"].offset % 16 and c.tuning,
        lambda c: any(fill.planted for fill in c.fills.values()),
        lambda c: strides(c, "k")[1] > c.tensors["k"].shape[2] and strides(c, "q")[0] < strides(c, "q")[1],
        lambda c: "out" in c.tensors and strides(c, "out")[1] % 64 == 1,
        lambda c: (
            "custom_mask" in c.tensors and strides(c, "custom_mask")[1] > 1 and min(c.tensors["custom_mask"].shape) > 1
        ),
        lambda c: "alibi_slopes" in c.tensors and strides(c, "alibi_slopes")[0] != 1 and c.tensors["q"].shape[1] > 1,
        lambda c: c.params.get("window_left", 0) >= 1 << 31,
        lambda c: abs(c.params.get("sm_scale") or 0) > 100 and c.tensors["q"].shape[1] > 24,
    ],
)
def test_what_hurts_attention_is_drawn(what):
    """Masks with windows, slopes with a cap, more queries than keys, no keys, a scale of zero, odd starts, planted values;
    rows and heads apart, strided masks and slopes, windows beyond 2^31, huge scales, many heads."""
    quiet = settings(max_examples=3000, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    assert what(find(LEGAL, what, settings=quiet))


def test_binding_passes_what_is_given():
    """Defaults are left out, words for floats become floats, and HND is the shape that the kernel gets."""
    call = called(prefill_case(layout="HND", form="out", alibi=True, mask=True, return_lse=True, sm_scale="-inf"))
    assert (1, 5, 64) == tuple(call.args[1].shape)
    assert {"kv_layout", "return_lse", "sm_scale", "alibi_slopes", "custom_mask", "out"} == set(call.kwargs)
    assert float("-inf") == call.kwargs["sm_scale"]
    assert (call.kwargs["out"], None) == call.returns
    assert frozenset({"out"}) == call.writes
    assert (None,) == called(prefill_case()).returns
    in_place = called(prefill_case(form="out_is_q"))
    assert in_place.args[0] is in_place.kwargs["out"]
    assert frozenset({"q"}) == in_place.writes


@drawn(60)
@given(LEGAL)
def test_features_can_be_turned_off_one_by_one(case):
    """Every step is a legal, valid, other case; taking the first again and again ends at a call without features."""
    for _ in range(60):
        steps = [tidy(step) for step in operator.simpler(case)]
        if not steps:
            break
        for step in steps:
            validate(step)
            assert step.key() != case.key()
        assert reason(steps[0]) is None
        case = steps[0]
    assert [] == steps
    assert [] == list(operator.features(case))


def test_heads_shrink_together():
    """Six query heads on two: fewer of both, or as many of both, in every tensor that has them."""
    case = prefill_case(heads=(6, 2), alibi=True)
    shapes = {
        (c.tensors["q"].shape[1], c.tensors["k"].shape[1], c.tensors["alibi_slopes"].shape[0])
        for c in operator.simpler(case)
        if "alibi_slopes" in c.tensors
    }
    assert {(1, 1, 1), (2, 1, 2), (2, 2, 2), (3, 1, 3)} <= shapes


def test_hnd_becomes_nhd():
    """The shapes turn; the sizes stay."""
    case = prefill_case(3, 5, heads=(2, 1), layout="HND")
    turned = next(c for c in operator.simpler(case) if "kv_layout" not in c.params)
    assert (5, 1, 64) == turned.tensors["k"].shape
    assert sizes(case, operator.dimensions(case)) == sizes(turned, operator.dimensions(turned))


def test_unknown_forms_are_a_clear_error():
    """Naming those there are."""
    case = prefill_case()
    with pytest.raises(ValueError, match="known are new, out, out_is_q"):
        called(replace(case, params={"form": "elsewhere"}))
