"""Workloads: what is written is what is read; costs, inputs and the parts that are judged."""

# ruff: noqa: SIM300 - the expected value stands first

import math

import pytest
import torch

from harness import operators
from harness.bench import workload as workloads
from harness.bench.workload import BadWorkload
from harness.operators.single_prefill import benchmarks as prefill
from harness.operators.top_k_mask_logits import benchmarks as mask

EVERY = [
    (name, text)
    for name in ("single_prefill", "top_k_mask_logits")
    for s in workloads.of(name).SETS.values()
    for text in s
]


def test_both_operators_are_timed():
    """And nothing else in the harness names them."""
    assert ["single_prefill", "top_k_mask_logits"] == workloads.timed_operators()


@pytest.mark.parametrize(("operator", "text"), EVERY)
def test_every_workload_of_a_set_reads_as_it_is_written(operator, text):
    """And so does the plain one beside it, which has its shape and is plain itself."""
    found = workloads.workload(operator, text)
    assert (operator, text) == (found.operator, found.name)
    if found.against:
        plain = workloads.workload(operator, found.against)
        assert "" == plain.against
        assert workloads.of(operator).cost(plain) == workloads.of(operator).cost(found)


@pytest.mark.parametrize(
    ("operator", "text", "why"),
    [
        ("top_k_mask_logits", "float32 4x8", "write DTYPE"),
        ("top_k_mask_logits", "float64 4x8 k=2", "dtype is one of"),
        ("top_k_mask_logits", "float32 4 k=2", "no BATCHxVOCAB"),
        ("top_k_mask_logits", "float32 0x8 k=2", "no BATCHxVOCAB"),
        ("top_k_mask_logits", "float32 4x8 k=-2", "neither a number"),
        ("top_k_mask_logits", "float32 4x8 k=2 k=3", "given twice"),
        ("top_k_mask_logits", "float32 4x8 k=2 values=odd", "none of normal"),
        ("top_k_mask_logits", "float32 4x8 k=2 p=1", "unknown option 'p'"),
        ("single_prefill", "float16 qo=4 heads=4", "write DTYPE"),
        ("single_prefill", "float32 qo=4 heads=4 d=64", "float16 or bfloat16"),
        ("single_prefill", "float16 qo=x heads=4 d=64", "qo=x is no int"),
        ("single_prefill", "float16 qo=4 heads=4/3 d=64", "divides"),
        ("single_prefill", "float16 qo=4 heads=4/0 d=64", "divides"),
        ("single_prefill", "float16 qo=4 heads=4 d=60", "d is one of"),
        ("single_prefill", "float16 qo=0 heads=4 d=64", "at least 1"),
        ("single_prefill", "float16 qo=4 kv=2 heads=4 d=64 causal", "without any key"),
        ("single_prefill", "bfloat16 qo=4 heads=4 d=64 fp16_qk", "for float16"),
        ("single_prefill", "float16 qo=4 heads=4 d=64 soft_cap=inf", "not negative"),
    ],
)
def test_what_is_no_workload(operator, text, why):
    """Is told in one line that names it."""
    with pytest.raises(BadWorkload, match=why) as error:
        workloads.workload(operator, text)
    assert repr(text) in str(error.value)


def test_chosen_workloads():
    """Sets and shapes together, each once, the plain one before what is compared with it; without any the default set."""
    found = workloads.chosen("top_k_mask_logits", ("quick",), ("float32 2x9 k=3 values=two", "float32 1x128256 k=50"))
    assert [*mask.SETS["quick"], "float32 2x9 k=3", "float32 2x9 k=3 values=two"] == [each.name for each in found]
    assert list(mask.SETS["standard"]) == [each.name for each in workloads.chosen("top_k_mask_logits", (), ())]
    with pytest.raises(BadWorkload, match="no set 'odd'; there are: standard"):
        workloads.chosen("top_k_mask_logits", ("odd",), ())


def test_costs():
    """A mask reads and writes each logit once. Attention: half the operations under a causal mask over a square, all but the
    triangle above the diagonal of the last queries over a longer past."""
    cost = mask.cost(mask.workload("bfloat16 3x7 k=2"))
    assert (42, 42, 0.0) == (cost.read, cost.written, cost.flops)
    full = prefill.cost(prefill.workload("float16 qo=64 heads=4/2 d=64"))
    causal = prefill.cost(prefill.workload("float16 qo=64 heads=4/2 d=64 causal"))
    assert 4 * 64 * 64 * 64 * 4 == full.flops
    assert full.flops * (64 + 1) / (2 * 64) == causal.flops
    assert (2 * 64 * 64 * (4 + 2 * 2), 2 * 64 * 64 * 4) == (full.read, full.written)
    late = prefill.cost(prefill.workload("float16 qo=2 kv=10 heads=1 d=64 causal"))
    assert 4 * 64 * (9 + 10) == late.flops


@pytest.mark.parametrize("values", mask.VALUES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_adversarial_values_are_what_they_are_called(values, dtype):
    """In every dtype."""
    workload = mask.workload(f"{dtype} 4x3000 k=5 values={values}")
    x = mask.inputs(workload, 0, "cpu")["logits"]
    assert (getattr(torch, dtype), (4, 3000)) == (x.dtype, tuple(x.shape))
    distinct = len(x[0].unique())
    facts = {
        "normal": 1000 > x.abs().max() and distinct > 100,
        "equal": distinct == 1,
        "two": distinct == 2,
        "outlier": int((x > 1e4).sum()) == 4 and bool(x.isfinite().all()),
        "narrow": float(x.double().std()) < 2e-4 and distinct > 100,
        "masked": bool((x == -torch.inf).all()),
        "ascending": bool((x.diff(dim=1) >= 0).all()),
        "descending": bool((x.diff(dim=1) <= 0).all()),
        "nan": 0 < int(x.isnan().sum()) < 600,
        "prefix": 1 < distinct <= 256 and bool(((x >= 1) & (x < 2)).all()),
    }
    assert facts[values]
    again, other = (mask.inputs(workload, seed, "cpu")["logits"] for seed in (0, 1))
    assert torch.equal(x.nan_to_num(7.0), again.nan_to_num(7.0))
    assert values in ("equal", "masked") or not torch.equal(x.nan_to_num(7.0), other.nan_to_num(7.0))


def test_mixed_k():
    """From 1 to vocab, over the orders of magnitude."""
    k = mask.inputs(mask.workload("float32 500x1000 k=mixed"), 0, "cpu")["k"]
    assert (1, True) == (int(k.min()), int(k.max()) > 800)
    assert all(((10**i <= k) & (k < 10 ** (i + 1))).sum() > 100 for i in range(3))


@pytest.mark.parametrize("variant", ["", " causal", " causal alibi", " alibi", " causal soft_cap=3 alibi", " fp16_qk"])
@pytest.mark.parametrize("lengths", ["qo=90", "qo=70 kv=150"])
def test_parts_of_an_attention_are_calls_of_their_own(variant, lengths, monkeypatch):
    """What the oracle says of a part's call is what it says of those rows and heads in the whole; the bound too."""
    monkeypatch.setattr(prefill, "_ALL_SCORES", 0)
    operator = operators.get("single_prefill")
    workload = prefill.workload(f"float16 {lengths} heads=6/2 d=64{variant}")
    tensors = prefill.inputs(workload, 0, "cpu")
    semantics = operator.semantics({}, "cpu")
    (call,) = prefill.calls(workload, tensors)
    whole = operator.reference(call, semantics)
    want, bound = whole.want["out"], whole.bound["out"]
    count = 0
    for part in prefill.parts(workload, tensors, {"out": want}):
        reference = operator.reference(part.call, semantics)
        torch.testing.assert_close(reference.want["out"], part.outputs["out"], rtol=1e-9, atol=1e-12)
        count += part.outputs["out"].numel()
    for part in prefill.parts(workload, tensors, {"out": bound}):
        reference = operator.reference(part.call, semantics)
        torch.testing.assert_close(reference.bound["out"], part.outputs["out"], rtol=0.05, atol=0.0)
    rows = 16 if "alibi" in variant and "causal" not in variant else 48
    assert rows * 6 * 64 == count
    assert f"{rows} of {workload.params['qo']} rows in 6 of 6 heads" == prefill.judged(workload)


def test_parts_of_a_mask_are_all_of_it(monkeypatch):
    """Some rows at a time, each with its k."""
    monkeypatch.setattr(mask, "_ROWS_AT_A_TIME", 30)
    workload = mask.workload("float32 7x10 k=mixed")
    tensors = mask.inputs(workload, 0, "cpu")
    found = list(mask.parts(workload, tensors, {"out": tensors["logits"]}))
    assert [3, 3, 1] == [len(part.outputs["out"]) for part in found]
    assert torch.equal(tensors["k"], torch.cat([part.call.args[1] for part in found]))


def test_slopes_are_those_of_the_paper():
    """1/2, 1/4 … 1/256 for eight heads."""
    tensors = prefill.inputs(prefill.workload("float16 qo=4 heads=8 d=64 alibi"), 0, "cpu")
    assert [2.0**-i for i in range(1, 9)] == tensors["alibi_slopes"].tolist()


@pytest.mark.parametrize("variant", ["", " causal", " causal soft_cap=3", " alibi", " fp16_qk"])
def test_competitors_of_attention_say_what_is_not_for_them(variant):
    """torch's have plain attention alone, FlashInfer's fast kernel no ALiBi."""
    workload = prefill.workload(f"float16 qo=64 heads=2 d=64{variant}")
    can = {each.name for each in prefill.COMPETITORS if each.unsupported(workload) is None}
    known = {"": 4, " causal": 4, " causal soft_cap=3": 2, " alibi": 1, " fp16_qk": 0}
    assert known[variant] == len(can)
    assert math.isfinite(prefill.cost(workload).flops)
