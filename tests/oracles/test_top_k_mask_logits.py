"""oracles.top_k_mask_logits against brute force in plain Python."""

# ruff: noqa: SIM300 - the expected value stands first

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracles.judgement import bits
from oracles.top_k_mask_logits import DTYPES, Semantics, contract, judge, reference
from tests.harness.making import drawn

NAN, INF = math.nan, math.inf
VALUES = (NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 1.0009765625, 2.0, 6e-8, -6e-8, 65504.0)
"""Few, so that ties are common; all of them exact in float16 but the subnormals, which round alike."""

ALL = tuple(Semantics(t, n) for t in ("all", "exactly_k") for n in ("keep", "mask", "unspecified"))


def above(a, b):
    """a ranks above b: NaN over everything, zeros alike."""
    return (math.isnan(a) and not math.isnan(b)) or a > b


def clipped(k, vocab):
    return max(0, min(k, vocab))


def kept_by_brute_force(row, k):
    """Positions that stay when all ties do: fewer than k others rank above."""
    k = clipped(k, len(row))
    return {i for i, x in enumerate(row) if sum(above(y, x) for y in row) < k}


def exactly_k_sets(row, k):
    """Every choice of k positions of which no other position ranks above a chosen one."""
    k = clipped(k, len(row))
    for chosen in itertools.combinations(range(len(row)), k):
        others = set(range(len(row))) - set(chosen)
        if not any(above(row[o], row[c]) for o in others for c in chosen):
            yield set(chosen)


def masked(row, keep, nan="keep"):
    """The row as an output: what is not kept is -inf, and so is a NaN where NaN is masked."""
    return [x if i in keep and not (nan == "mask" and math.isnan(x)) else -INF for i, x in enumerate(row)]


def kind_of(got, ref):
    return judge({"out": got}, ref)["out"].kind


def accepted(got, rows, k, semantics, dtype):
    return kind_of(torch.tensor(got, dtype=dtype), reference(torch.tensor(rows, dtype=dtype), k, semantics)) is None


tables = st.integers(1, 5).flatmap(
    lambda vocab: st.lists(st.lists(st.sampled_from(VALUES), min_size=vocab, max_size=vocab), min_size=1, max_size=3)
)
dtypes = st.sampled_from(DTYPES)
ks = st.integers(-2, 8)


def with_ks(rows, single, values, as_tensor):
    """(what the oracle is given, one k a row)."""
    if not as_tensor:
        return max(single, 0), [max(single, 0)] * len(rows)
    per_row = (values * len(rows))[: len(rows)]
    return torch.tensor(per_row, dtype=torch.int64), per_row


@drawn(400)
@given(tables, dtypes, ks, st.lists(ks, min_size=1, max_size=3), st.booleans())
def test_the_choice_is_that_of_brute_force(rows, dtype, single, values, as_tensor):
    """NaN, zeros, infinities, subnormals and ties; one k, or one a row, clipped; every dtype. want and sets alike."""
    k, per_row = with_ks(rows, single, values, as_tensor)
    logits = torch.tensor(rows, dtype=dtype)
    exact = logits.double().tolist()
    ref = reference(logits, k, Semantics())
    keep = [kept_by_brute_force(row, n) for row, n in zip(exact, per_row)]
    expected = [masked(row, kept) for row, kept in zip(exact, keep)]
    assert torch.equal(bits(torch.tensor(expected, dtype=torch.float64)), bits(ref.want["out"]))
    assert [[i in kept for i in range(len(rows[0]))] for kept in keep] == ref.extra["required"].tolist()
    assert torch.equal(ref.extra["required"], ref.extra["allowed"])
    assert ref.unique
    assert 0 == ref.bound["out"].count_nonzero()


@drawn(300)
@given(tables, dtypes, ks, st.sampled_from(("keep", "mask")))
def test_exactly_k_accepts_every_right_choice_and_no_other(rows, dtype, k, nan):
    """All 2^vocab outputs of one row: accepted are those that some choice of k explains (ties at -inf look alike)."""
    k = max(k, 0)
    row = torch.tensor(rows[0], dtype=dtype).double().tolist()
    right = {str(masked(row, chosen, nan)) for chosen in exactly_k_sets(row, k)}
    positions = range(len(row))
    for keep in itertools.chain.from_iterable(itertools.combinations(positions, n) for n in range(len(row) + 1)):
        got = masked(row, set(keep))
        assert (str(got) in right) == accepted([got], [row], k, Semantics("exactly_k", nan), dtype), (keep, row, k)


@drawn(300)
@given(tables, dtypes, ks, st.sampled_from(("keep", "mask")))
def test_all_ties_accepts_one_output_alone(rows, dtype, k, nan):
    """Of the 2^vocab outputs that keep or mask each element, those whose bits are the brute-force answer's."""
    k = max(k, 0)
    row = torch.tensor(rows[0], dtype=dtype).double().tolist()
    right = str(masked(row, kept_by_brute_force(row, k), nan))
    for keep in itertools.chain.from_iterable(itertools.combinations(range(len(row)), n) for n in range(len(row) + 1)):
        got = masked(row, set(keep))
        assert (str(got) == right) == accepted([got], [row], k, Semantics("all", nan), dtype), (keep, row, k)


@drawn(100)
@given(tables, dtypes, ks, st.sampled_from(("all", "exactly_k")))
def test_unspecified_leaves_rows_with_a_nan_but_for_invented_values(rows, dtype, k, ties):
    """Input or -inf, any of them; a row without NaN is judged as ever."""
    k = max(k, 0)
    semantics = Semantics(ties, "unspecified")
    for row in torch.tensor(rows, dtype=dtype).double().tolist():
        if any(map(math.isnan, row)):
            for keep in (set(), {0}, set(range(len(row)))):
                assert accepted([masked(row, keep)], [row], k, semantics, dtype)
            assert not accepted([[3.0] * len(row)], [row], k, semantics, dtype)
        else:
            for keep in (set(), {0}, set(range(len(row)))):
                got = [masked(row, keep)]
                assert accepted(got, [row], k, Semantics(ties), dtype) == accepted(got, [row], k, semantics, dtype)


@pytest.mark.parametrize("semantics", ALL)
@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0)])
def test_empty_calls_have_an_answer(shape, semantics):
    """Of their own shape, which the empty output meets."""
    for k in (0, 2, 1 << 70, torch.ones(shape[0], dtype=torch.int32)):
        ref = reference(torch.empty(shape), k, semantics)
        assert shape == tuple(ref.want["out"].shape)
        assert kind_of(torch.empty(shape), ref) is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_payloads_and_signs_of_nan_are_kept(dtype):
    """Bits of the input, not of some NaN."""
    logits = torch.tensor([[NAN, NAN, 1.0]], dtype=dtype)
    bits(logits)[0, 0] |= 5
    bits(logits)[0, 1] ^= 1
    ref = reference(logits, 2, Semantics())
    right = torch.where(torch.tensor([[True, True, False]]), logits, -INF)
    assert kind_of(right, ref) is None
    assert "wrong_nan" == kind_of(torch.where(logits.isnan(), torch.tensor(NAN, dtype=dtype), right), ref)


def test_large_k_are_clipped_not_wrapped():
    """2^32 + 1 is no 1, and -2^31 no large number."""
    logits = torch.tensor([[1.0, 2.0, 3.0]] * 3)
    ref = reference(logits, torch.tensor([(1 << 32) + 1, -(1 << 31), 1]), Semantics())
    assert [[1, 2, 3], [-INF] * 3, [-INF, -INF, 3]] == ref.want["out"].tolist()
    assert [[1, 2, 3]] * 3 == reference(logits, 1 << 70, Semantics()).want["out"].tolist()


ROW = [3.0, NAN, 1.0, 2.0, 2.0, -INF]
"""With k = 3: NaN, 3 and both 2 stay."""

KINDS = [
    ("right", [3.0, NAN, -INF, 2.0, 2.0, -INF], None, []),
    ("NaN lost", [3.0, -INF, -INF, 2.0, 2.0, -INF], "wrong_nan", [1]),
    ("NaN invented", [3.0, NAN, NAN, 2.0, 2.0, -INF], "wrong_nan", [2]),
    ("NaN for a kept value", [NAN, NAN, -INF, 2.0, 2.0, -INF], "wrong_nan", [0]),
    ("NaN made a number", [3.0, 7.0, -INF, 2.0, 2.0, -INF], "wrong_nan", [1]),
    ("inf invented", [3.0, NAN, INF, 2.0, 2.0, -INF], "wrong_inf", [2]),
    ("inf for a kept value", [INF, NAN, -INF, 2.0, 2.0, -INF], "wrong_inf", [0]),
    ("a finite minus infinity", [3.0, NAN, -3e38, 2.0, 2.0, -3e38], "wrong_inf", [2, 5]),
    ("one too many", [3.0, NAN, 1.0, 2.0, 2.0, -INF], "wrong_set", [2]),
    ("one too few", [-INF, NAN, -INF, 2.0, 2.0, -INF], "wrong_set", [0]),
    ("a tie dropped", [3.0, NAN, -INF, 2.0, -INF, -INF], "wrong_set", [4]),
    ("another value", [3.0, NAN, -INF, 2.0, 2.5, -INF], "divergence", [4]),
    ("NaN before set", [3.0, -INF, 1.0, 2.0, 2.0, -INF], "wrong_nan", [1]),
    ("set before value", [4.0, NAN, 1.0, 2.0, 2.0, -INF], "wrong_set", [2]),
]


@pytest.mark.parametrize(("got", "kind", "wrong"), [row[1:] for row in KINDS], ids=[row[0] for row in KINDS])
def test_kinds_of_judgement(got, kind, wrong):
    """By hand, with the elements that the kind speaks of; states come before sets, sets before values."""
    judgement = judge({"out": torch.tensor([got])}, reference(torch.tensor([ROW]), 3, Semantics()))["out"]
    assert kind == judgement.kind
    assert wrong == judgement.wrong[0].nonzero()[:, 0].tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_zero_of_the_other_sign_is_another_value(dtype):
    """They tie, and each keeps its sign."""
    ref = reference(torch.tensor([[0.0, -0.0, -1.0]], dtype=dtype), 1, Semantics())
    assert kind_of(torch.tensor([[0.0, -0.0, -INF]], dtype=dtype), ref) is None
    assert "divergence" == kind_of(torch.tensor([[0.0, 0.0, -INF]], dtype=dtype), ref)


# --- the contract -----------------------------------------------------------------------------------------------

X = torch.zeros(3, 8)
WIDE = torch.zeros(3, 20)
K = torch.ones(3, dtype=torch.int64)

REASONS = [
    ((None, 1, None), "logits is no tensor"),
    ((torch.zeros(8), 1, None), "logits is not 2-D"),
    ((torch.zeros(1, 3, 8), 1, None), "logits is not 2-D"),
    ((X.double(), 1, None), "logits has an unsupported dtype"),
    ((X.int(), 1, None), "logits has an unsupported dtype"),
    ((X.t(), 1, None), "logits has a last stride other than 1"),
    ((X, -1, None), "k is negative"),
    ((X, True, None), "k is neither an int nor a tensor"),
    ((X, 2.0, None), "k is neither an int nor a tensor"),
    ((X, None, None), "k is neither an int nor a tensor"),
    ((X, [1, 2, 3], None), "k is neither an int nor a tensor"),
    ((X, K.float(), None), "k tensor has an unsupported dtype"),
    ((X, K.bool(), None), "k tensor has an unsupported dtype"),
    ((X, K.to(torch.int16), None), "k tensor has an unsupported dtype"),
    ((X, K[:2], None), "k tensor is not [batch]"),
    ((X, K[:, None], None), "k tensor is not [batch]"),
    ((X, torch.tensor(1), None), "k tensor is not [batch]"),
    ((X, K.to("meta"), None), "k tensor is on another device"),
    ((X, 1, [0]), "out is no tensor"),
    ((X, 1, torch.zeros(3, 9)), "out has another shape"),
    ((X, 1, X.half()), "out has another dtype"),
    ((X, 1, X.to("meta")), "out is on another device"),
    ((X, 1, torch.zeros(8, 3).t()), "out has a last stride other than 1"),
    ((X, 1, torch.zeros(100).as_strided((3, 8), (7, 1))), "rows of the written tensor overlap"),
    ((X, 1, torch.zeros(8).expand(3, 8)), "rows of the written tensor overlap"),
    ((WIDE[:, :8], 1, WIDE[:, 1:9]), "out overlaps logits partially"),
    ((WIDE[:, :8], 1, WIDE[:, 7:15]), "out overlaps logits partially"),
    ((X, K, X.view(torch.int64).view(-1)[:3]), "out has another shape"),
]


@pytest.mark.parametrize(("call", "reason"), REASONS, ids=range(len(REASONS)))
def test_why_a_call_is_illegal(call, reason):
    """The first reason that applies, in words without sizes."""
    assert reason == contract(*call, in_place=False)


LEGAL = [
    (X, 1, None),
    (X, 0, None),
    (X, 1 << 70, None),
    (X, K, None),
    (X, K.int(), X.clone()),
    (X, 1, X),
    (X, 1, X.view(3, 8)),
    (WIDE[:, :8], 1, WIDE[:, 8:16]),
    (WIDE[:, :8], 1, WIDE[:, 12:]),
    (torch.zeros(8).expand(3, 8), 1, None),
    (torch.zeros(8).expand(3, 8), 1, torch.zeros(3, 8)),
    (X, torch.ones(3, 5, dtype=torch.int32)[:, 2], None),
    (X, torch.ones(1, dtype=torch.int32).expand(3), None),
    (torch.zeros(4, 3)[:, 1:2], 1, None),
    (torch.zeros(0, 8), 1, torch.zeros(0, 8)),
    (torch.zeros(3, 0), K, torch.zeros(3, 0)),
    (X.half(), 1, X.half()),
    (X.bfloat16(), 1, None),
]


@pytest.mark.parametrize("call", LEGAL, ids=range(len(LEGAL)))
def test_legal_calls(call):
    """Any row stride, rows of out beside rows of logits, expanded inputs, empty tensors, large k."""
    assert contract(*call, in_place=False) is None


def test_in_place():
    """Its own rows must not overlap, and k must not lie inside."""
    assert contract(X, 1, None, in_place=True) is None
    assert contract(WIDE[:, :8], K, None, in_place=True) is None
    assert "rows of the written tensor overlap" == contract(X[:1].expand(3, 8), 1, None, in_place=True)
    assert contract(X[:1].expand(1, 8), 1, None, in_place=True) is None
    memory = torch.zeros(24)
    inside = memory.view(torch.int32)[5:8]
    assert "the written tensor overlaps k" == contract(memory.view(3, 8), inside, None, in_place=True)
    assert contract(memory[:15].view(3, 5), memory.view(torch.int32)[15:18], None, in_place=True) is None


def test_rows_one_element_apart_are_seen_whole():
    """Logits of strides (1, 1): three rows of two are four elements, and an `out` on the last of them overlaps."""
    memory = torch.zeros(20)
    logits = memory.as_strided((3, 2), (1, 1), 0)
    out = memory.as_strided((3, 2), (2, 1), 3)
    assert "out overlaps logits partially" == contract(logits, 1, out, in_place=False)
    assert contract(logits, 1, memory.as_strided((3, 2), (2, 1), 4), in_place=False) is None
