"""harness.operators and harness.operators.top_k_mask_logits: what is drawn, bound, related and simplified."""

# ruff: noqa: SIM300 - the expected value stands first

import pytest
import torch
from hypothesis import HealthCheck, find, given, settings
from msgspec.structs import replace

from harness import operators
from harness.case import Fill, tidy, validate
from harness.memory import Memory
from harness.operators import top_k_mask_logits as operator
from harness.strategies import SCALES, Scale
from oracles.judgement import bits
from oracles.top_k_mask_logits import Semantics
from tests.harness.making import NAME, drawn, mask_case

SCALE = SCALES["cpu", "dev"]
ANY = operator.cases(SCALE)
LEGAL = operator.cases(SCALE, illegal=False)


def called(case):
    """The call of a case, on the CPU."""
    memory = Memory(case, "cpu")
    return operator.bind(case, memory.tensors)


def reason(case):
    return operator.contract(called(case))


def answer(case):
    """The oracle's answer, as bits of the output's dtype."""
    ref = operator.reference(called(case), Semantics())
    kept = torch.where(ref.extra["required"], ref.extra["bits"].view(ref.dtype["out"]), -torch.inf)
    return bits(kept)


def test_operators_are_found_by_name():
    """Those in the folder; any other name is an error that lists them."""
    assert NAME in operators.names()
    assert operators.get(NAME) is operator
    for name in ("nothing", "", "__init__", "os", "../case"):
        with pytest.raises(ValueError, match=NAME):
            operators.get(name)


@pytest.mark.parametrize("name", operators.names())
def test_every_operator_has_what_the_protocol_asks_for(name):
    """All names of `Operator`, and its own name."""
    module = operators.get(name)
    wanted = {n for n in (*vars(operators.Operator), *operators.Operator.__annotations__) if not n.startswith("_")}
    assert set() == {n for n in wanted if not hasattr(module, n)}
    assert module.NAME == name


@drawn(80)
@given(LEGAL)
def test_legal_cases_are_legal(case):
    """By the contract, which has the last word."""
    assert reason(case) is None


@drawn(100)
@given(ANY)
def test_any_case_can_be_bound_and_judged_by_the_contract(case):
    """Illegal ones too: nothing of the harness raises for them."""
    call = called(case)
    why = operator.contract(call)
    assert why is None or why
    assert call.writes <= set(case.tensors)
    assert 1 == len(call.returns)


WAYS = {
    "rows_overlap": None,  # made by the strategy itself, as is "relation"
    "logits_rank": "logits is not 2-D",
    "logits_dtype": "logits has an unsupported dtype",
    "logits_stride": "logits has a last stride other than 1",
    "k_negative": "k is negative",
    "k_float": "k is neither an int nor a tensor",
    "k_bool": "k is neither an int nor a tensor",
    "k_list": "k is neither an int nor a tensor",
    "k_dtype": "k tensor has an unsupported dtype",
    "k_shape": "k tensor is not [batch]",
    "k_scalar_tensor": "k tensor is not [batch]",
    "k_device": "k tensor is on another device",
    "k_overlap": "the written tensor overlaps k",
    "out_shape": "out has another shape",
    "out_dtype": "out has another dtype",
    "out_stride": "out has a last stride other than 1",
    "relation": None,
}


@pytest.mark.parametrize("k", [2, (1, 2)], ids=["int", "tensor"])
@pytest.mark.parametrize("form", ["new", "out", "in_place"])
@pytest.mark.parametrize("way", [way for way, why in WAYS.items() if why])
def test_every_way_to_break_a_call_breaks_it(way, form, k):
    """For the reason that it is named after, in any form, and as a valid case."""
    for vocab in (4, 5):
        broken = tidy(operator._broken(mask_case(2, vocab, form=form, k=k), way))
        validate(broken)
        assert WAYS[way] == reason(broken)


def test_every_way_is_tested():
    """None was added without a reason."""
    assert set(operator.WRONG) == set(WAYS)


DRAWN = {
    "k is negative": lambda case: case.params.get("k") == -1,
    "rows of the written tensor overlap": lambda case: (
        case.params["form"] == "in_place"
        and case.tensors["logits"].shape[0] > 1
        and case.tensors["logits"].overlaps_itself
    ),
    "out overlaps logits partially": lambda case: (
        case.params["form"] == "out"
        and case.tensors["out"].storage == case.tensors["logits"].storage
        and 0 < case.tensors["out"].offset - case.tensors["logits"].offset <= 4
        and case.tensors["logits"].shape[0] * (case.tensors["logits"].shape[1] - 2) > 0
    ),
}
"""What a case of a reason looks like, without making its tensors."""


@pytest.mark.parametrize("why", DRAWN)
def test_illegal_calls_are_drawn(why):
    """They come up, and are illegal for that reason."""
    assert why == reason(find(ANY, DRAWN[why], settings=drawn(5000)))


@pytest.mark.parametrize(
    ("form", "method", "writes", "kwargs"),
    [
        ("new", "", set(), set()),
        ("out", "", {"out"}, {"out"}),
        ("out_is_logits", "", {"logits"}, {"out"}),
        ("in_place", "_", {"logits"}, set()),
    ],
)
def test_forms_are_spelled(form, method, writes, kwargs):
    """How each is called, what it may write, and what has to come back: the very object."""
    case = mask_case(form=form)
    memory = Memory(case, "cpu")
    call = operator.bind(case, memory.tensors)
    assert (method, writes, kwargs) == (call.method, set(call.writes), set(call.kwargs))
    expected = {"new": None, "out": memory.tensors.get("out")}.get(form, memory.tensors["logits"])
    assert call.returns[0] is expected
    assert call.args[0] is memory.tensors["logits"]


def test_an_unknown_form_is_an_error():
    """A case by hand with a word that is not known is not silently taken for the plainest."""
    with pytest.raises((ValueError, KeyError)):
        called(replace(mask_case(), params={"form": "inplace", "k": 1}))


def test_k_may_be_anything_that_json_can_say():
    """A float stays a float, a list a list; a tensor goes over a scalar."""
    for k in (1, 2.0, True, [1, 2], "three", None, 1 << 70):
        found = called(mask_case(k=k)).args[1]
        assert (k, type(k)) == (found, type(found))
    assert [3, 4] == called(mask_case(k=(3, 4))).args[1].tolist()


def test_k_on_another_device():
    """Without a GPU, on none at all."""
    case = mask_case(k=(3, 4))
    call = called(replace(case, params={**case.params, "k_on": "other"}))
    assert "meta" == call.args[1].device.type
    assert "k tensor is on another device" == operator.contract(call)


@drawn(80)
@given(LEGAL)
def test_build_params_are_in_the_matrix(case):
    """What a drawn legal call needs built is among what is built without drawing."""
    assert operator.build_params(case) in list(operator.build_matrix())


def test_the_matrix_begins_with_the_plainest_and_has_no_doubles():
    """Each value once."""
    matrix = list(operator.build_matrix())
    assert {"dtype": "float32", "k": "int"} == matrix[0]
    assert len({str(m) for m in matrix}) == len(matrix)


@drawn(80)
@given(LEGAL)
def test_related_calls_have_the_same_answer(case):
    """Bit for bit by the oracle; each is legal, valid, and another call."""
    for kind, other in operator.relations(case):
        validate(other)
        assert kind in ("in_place_differs", "layout_differs")
        assert other != case
        assert reason(other) is None
        assert "new" == other.params["form"]
        assert torch.equal(answer(case), answer(other)), kind


def test_a_plain_call_has_no_relations():
    """And neither has one whose rows overlap: laid out densely it would hold other values."""
    assert [] == list(operator.relations(mask_case()))
    assert [] == list(operator.relations(mask_case(pitch=4)))
    assert ["layout_differs"] == [kind for kind, _ in operator.relations(mask_case(pitch=9))]
    assert [
        "in_place_differs",
        "layout_differs",
    ] == [k for k, _ in operator.relations(mask_case(form="in_place", offset=4))]


@drawn(80)
@given(ANY)
def test_simpler_cases_are_cases(case):
    """Valid, bindable, of another key."""
    for simple in operator.simpler(case):
        simple = tidy(simple)
        validate(simple)
        assert simple.key() != case.key()
        reason(simple)


def test_simpler_turns_every_feature_off():
    """Form, k tensor, dtype."""
    case = mask_case(form="out", k=(3, 4), dtype="bfloat16")
    found = list(operator.simpler(case))
    assert any(c.params["form"] == "new" for c in found)
    assert any("k" not in c.tensors and c.params["k"] == 1 for c in found)
    assert [
        "float32",
        "float16",
    ] == [c.tensors["logits"].dtype for c in found if c.tensors["logits"].dtype != "bfloat16"]
    assert [] == list(operator.simpler(mask_case(1, 1, k=1)))


def test_features_are_the_operators_own():
    """Form and k's dtype; a plain call has none."""
    assert [] == list(operator.features(mask_case()))
    assert ["in_place", "k_int64"] == list(operator.features(mask_case(form="in_place", k=(1, 2))))


def test_semantics_are_checked():
    """Known words, or a ValueError that says what is known."""
    assert Semantics("exactly_k", "mask") == operator.semantics({"ties": "exactly_k", "nan": "mask"}, "cpu")
    assert Semantics() == operator.semantics({}, "cpu")
    for declared in ({"ties": "none"}, {"nan": ""}, {"order": "any"}):
        with pytest.raises(ValueError, match="known"):
            operator.semantics(declared, "cpu")


def test_the_oracles_copy_of_an_expanded_input_is_whole():
    """A row that is one in memory is judged as many."""
    case = mask_case(3, 4, pitch=0, fill=Fill("cycle", 0, (1.0, 2.0, 3.0, 4.0)))
    memory = Memory(case, "cpu")
    call = operator.bind(case, {**memory.tensors, "logits": memory.read("logits")})
    want = operator.reference(call, Semantics()).want["out"]
    assert [[-torch.inf, -torch.inf, 3.0, 4.0]] * 3 == want.tolist()


@settings(max_examples=400, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(operator.cases(Scale(1 << 12, 16)))
def test_every_tensor_that_a_legal_call_reads_has_a_fill(case):
    """Also where a call was meant to be illegal and came out legal."""
    memory = Memory(case, "cpu")
    call = operator.bind(case, memory.tensors)
    if operator.contract(call) is None:
        assert set() == case.tensors.keys() - case.fills.keys() - call.writes
