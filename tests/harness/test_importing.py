"""harness.importing: a captured call becomes the case that makes the same tensors again."""

# ruff: noqa: SIM300 - the expected value stands first

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness import operators, stored
from harness.captured import Captured
from harness.case import MAX_STORED_BYTES, Case, CaseError, Fill, Planted, View
from harness.importing import case_of, why_illegal
from harness.memory import Memory
from harness.strategies import SCALES
from harness.values import EXPLICIT
from tests.harness.making import drawn
from tests.harness.test_corpus import everything, sparing
from tests.harness.test_stored import bits, made

MASK, PREFILL = operators.get("top_k_mask_logits"), operators.get("single_prefill")


def mask(folder, tensors, **params):
    return case_of(Captured(tensors, params), MASK, folder)


def again(case, name):
    """A tensor as judging has it, of the layout in the case."""
    return Memory(case, "cpu").tensors[name]


LAYOUTS = {
    "dense": lambda x: x.view(6, 8),
    "padded": lambda x: x.view(6, 8)[:, :5],
    "offset": lambda x: x[3:43].view(5, 8),
    "transposed": lambda x: x.view(6, 8).t(),
    "steps": lambda x: x.view(6, 8)[::2, 1::3],
    "expanded": lambda x: x[:8].expand(4, 8),
    "overlapping": lambda x: x.as_strided((4, 8), (2, 1), 5),
    "one element": lambda x: x[7:8].view(1, 1),
    "empty": lambda x: x[:0].view(0, 8),
    "constant": lambda x: torch.full((3, 5), -0.0, dtype=x.dtype),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_any_layout_comes_back_bit_for_bit(tmp_path, layout, dtype):
    """Shape, strides, offset, NaN payloads and signs of zero."""
    x = LAYOUTS[layout](made(dtype, (48,)))
    case = mask(tmp_path, {"logits": x}, k=2)
    got = again(case, "logits")
    assert bits(x) == bits(got)
    view = case.tensors["logits"]
    assert (tuple(x.shape), tuple(x.stride()), x.storage_offset() * x.element_size()) == (
        view.shape,
        view.strides,
        view.offset,
    )
    assert [] == everything(tmp_path), "few values stand in the case"


@pytest.mark.parametrize("layout", [lambda x: x, lambda x: x.t(), lambda x: x[:, 1:], lambda x: x[:1].expand(3, -1)])
def test_more_values_go_to_a_file(tmp_path, layout):
    """Of any layout, as many as it has."""
    x = layout(made(shape=(40, 600)))
    case = mask(tmp_path, {"logits": x}, k=2)
    assert "file" == case.fills["logits"].kind
    assert bits(x) == bits(again(case, "logits"))
    (name,) = everything(tmp_path)
    elements = 600 if x.stride(0) == 0 else x.numel()
    assert 4 * elements == (tmp_path / name).stat().st_size


def test_where_values_stand(tmp_path):
    """Up to EXPLICIT in the case; a constant always, as one value; what is nearly one, as that and its exceptions."""
    few, more = made(shape=(1, EXPLICIT)), made(shape=(1, EXPLICIT + 1))
    assert EXPLICIT == len(mask(tmp_path, {"logits": few}, k=1).fills["logits"].values)
    assert "file" == mask(tmp_path, {"logits": more}, k=1).fills["logits"].kind
    nan = torch.full((30, 40), 0x7FC00001, dtype=torch.int32).view(torch.float32)
    assert Fill("cycle", 0, ("0x7fc00001",)) == mask(tmp_path, {"logits": nan}, k=1).fills["logits"]
    nearly = torch.ones(2, 6)
    nearly[1, 2] = -0.0
    case = mask(tmp_path, {"logits": nearly}, k=1)
    assert Fill("cycle", 0, (1.0,), (Planted(8, -0.0),)) == case.fills["logits"]
    assert bits(nearly) == bits(again(case, "logits"))


def test_shared_storages_stay_shared(tmp_path):
    """q, k and v out of one buffer, out in another: the same places, cut after the last byte in use."""
    buffer = made("float16", (5, 6, 64), "uniform")
    tensors = {"q": buffer[:, :2], "k": buffer[:, 2:4], "v": buffer[:, 4:], "out": made("float16", (9, 2, 64))[2:7]}
    case = case_of(Captured(tensors, {"causal": True}), PREFILL, tmp_path)
    assert {"q": 0, "k": 0, "v": 0, "out": 1} == {name: view.storage for name, view in case.tensors.items()}
    assert [0, 256, 512, 512] == [case.tensors[name].offset for name in ("q", "k", "v", "out")]
    assert (5 * 6 * 128, 7 * 256) == case.storages
    assert {"form": "out", "causal": True} == case.params
    assert ["k", "q", "v"] == sorted(case.fills), "what is written only needs no values"
    memory = Memory(case, "cpu")
    assert all(bits(tensors[name]) == bits(memory.read(name)) for name in "qkv")


def test_separate_storages_stay_separate(tmp_path):
    """Empty ones too, which torch gives one address."""
    case = mask(
        tmp_path, {"logits": torch.empty(0, 3), "k": torch.empty(0, dtype=torch.int64), "out": torch.empty(0, 3)}
    )
    assert [0, 1, 2] == [case.tensors[name].storage for name in ("logits", "k", "out")]


def test_how_out_is_given_is_seen(tmp_path):
    """Absent, the very same, or another tensor; what cannot be seen is said."""
    x = torch.arange(6.0).view(2, 3)
    assert "new" == mask(tmp_path, {"logits": x}, k=1).params["form"]
    same = mask(tmp_path, {"logits": x, "out": x}, k=1)
    assert ("out_is_logits", ["logits"]) == (same.params["form"], list(same.tensors))
    assert "out" == mask(tmp_path, {"logits": x, "out": torch.empty(2, 3)}, k=1).params["form"]
    assert "in_place" == mask(tmp_path, {"logits": x}, k=1, form="in_place").params["form"]
    said = mask(tmp_path, {"logits": x, "out": x}, k=1, form="out")
    assert (View(0, "float32", (2, 3), (3, 1)),) * 2 == tuple(said.tensors.values())
    q = torch.ones(1, 1, 64).half()
    case = case_of(Captured({"q": q, "k": q + 1, "v": q + 2, "out": q}, {}), PREFILL, tmp_path)
    assert "out_is_q" == case.params["form"]


X = torch.ones(2, 3)
WRONG = {
    "unknown tensor": ({"logits": X, "scores": X}, {"k": 1}, "no tensor 'scores'; it has logits, k, out"),
    "unknown parameter": ({"logits": X}, {"k": 1, "top": 2}, "no parameter 'top'; it has form, k, k_on"),
    "missing tensor": ({"out": X}, {"k": 1}, "'logits' is missing"),
    "missing parameter": ({"logits": X}, {}, "'k' is missing"),
    "both": ({"logits": X, "k": torch.ones(2).int()}, {"k": 1}, "'k' is a tensor and a parameter"),
    "form": ({"logits": X}, {"k": 1, "form": "inside"}, "unknown form 'inside'; known are new, out"),
    "form of another type": ({"logits": X}, {"k": 1, "form": [1]}, "unknown form"),
    "no out": ({"logits": X}, {"k": 1, "form": "out"}, "form 'out' and no tensor 'out'"),
    "an out too many": (
        {"logits": X, "out": X + 1},
        {"k": 1, "form": "in_place"},
        "and a tensor 'out' do not go together",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_call_is_one_line(tmp_path, what):
    """Which says what there is."""
    tensors, params, words = WRONG[what]
    with pytest.raises(CaseError, match=words) as caught:
        mask(tmp_path, tensors, **params)
    assert 1 == len(str(caught.value).splitlines())


def test_every_operator_has_what_an_import_needs():
    """Required names are tensors or parameters, the main tensor first; forms as the words have it."""
    for name in operators.names():
        operator = operators.get(name)
        tensors = operator.dimensions(Case(name, {}))
        assert next(iter(tensors)) == operator.REQUIRED[0]
        assert set(operator.REQUIRED) <= {*tensors, *operator.PARAMS}
        assert "form" in operator.PARAMS
        assert ("new", "out") == operator.FORMS[:2]
        assert set(operator.OUTPUTS) & set(tensors) == {"out"}


@drawn(150)
@given(st.one_of(operator.cases(SCALES["cpu", "dev"]) for operator in (MASK, PREFILL)))
def test_no_case_has_a_parameter_that_an_import_does_not_know(case):
    """Of what is drawn, illegal calls included; nor a form."""
    operator = operators.get(case.operator)
    assert set(case.params) <= set(operator.PARAMS)
    assert case.params.get("form", "new") in operator.FORMS


def test_too_large_a_tensor_is_one_line(tmp_path):
    """A storage that fits, a tensor in it that has too many elements to keep; nothing is copied."""
    huge = torch.empty(1).as_strided((1,), (1,)).expand(MAX_STORED_BYTES // 4 + 1)
    flat = torch.empty((MAX_STORED_BYTES // 4 + 1, 1))
    with sparing(), pytest.raises(CaseError, match=f"at most {MAX_STORED_BYTES} of a tensor"):
        mask(tmp_path, {"logits": flat}, k=1)
    assert 1 == len(mask(tmp_path, {"logits": huge.view(1, -1)}, k=1).fills["logits"].values), (
        "its memory is one element"
    )
    with sparing(), pytest.raises(CaseError, match="bytes of storage"):
        mask(tmp_path, {"logits": torch.empty(1).expand(1 << 31, 1 << 31)}, k=1)


def test_a_bool_of_another_byte_is_one_line(tmp_path):
    """Few or many of them."""
    q = torch.ones(1, 1, 64).half()
    for count in (3, 1000):
        odd = torch.arange(count).to(torch.uint8).view(torch.bool).view(1, count)
        with pytest.raises(CaseError, match="'custom_mask': a bool that is neither 0 nor 1"):
            case_of(Captured({"q": q, "k": q, "v": q, "custom_mask": odd}, {}), PREFILL, tmp_path)


def test_why_a_call_is_illegal(tmp_path):
    """The contract's own words, or None; what no call can be made of is an error."""
    tensors = {"logits": X, "out": torch.empty(2, 3)}
    for k, why in ((1, None), (-1, "k is negative"), (1.5, "k is no int")):
        call = Captured(tensors, {"k": k})
        found = why_illegal(mask(tmp_path, tensors, k=k), call, MASK)
        assert why == found or (why is not None and found is not None and found.startswith("k ")), found
    q = torch.ones(1, 1, 64).half()
    call = Captured({"q": q, "k": q, "v": q}, {"sm_scale": "inf"})
    assert "sm_scale is no finite number" == why_illegal(case_of(call, PREFILL, tmp_path), call, PREFILL)


def test_values_are_found_where_they_were_put(tmp_path):
    """From any folder that the process goes to."""
    case = mask(tmp_path, {"logits": made(shape=(30, 40))}, k=1)
    ((name, values),) = stored.all_of(case)
    assert ("logits", str(tmp_path)) == (name, values.folder)
    assert math.prod((30, 40)) * 4 == stored.size_of(values)
