"""harness.reduce: with predicates of plain Python, to minima derived by hand."""

# ruff: noqa: SIM300 - the expected value stands first

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.case import Build, Case, Fill, Planted, View, tidy, validate
from harness.operators import top_k_mask_logits
from harness.reduce import PASSES, reduce, told
from harness.reduce_build import reduce_build
from harness.steps import all_steps, empty_steps, feature_steps, fill_steps, grown, ordinary, size_steps
from harness.strategies import SCALES
from tests.harness.making import drawn, mask_case

CASES = top_k_mask_logits.cases(SCALES["cpu", "dev"])
START = tidy(
    replace(
        mask_case(40, 300, dtype="bfloat16", form="out", k=tuple(range(40)), pitch=308, offset=6),
        fills={
            "logits": Fill("specials", 12345, (), (Planted(7, "nan"), Planted(300, 1.0))),
            "k": Fill("choice", 99, (3, 5, 70)),
        },
    )
)


def logits(case):
    return case.tensors["logits"]


def batch(case):
    return logits(case).shape[0]


def vocab(case):
    return logits(case).shape[-1]


PLAINEST = {
    "form": "new",
    "k": 1,
    "dtype": "float32",
    "shape": (1, 1),
    "offset": 0,
    "fill": Fill("cycle", 0, (1.0,)),
}


def summary(case):
    """What is left of a case, as far as it is not the plainest."""
    found = {
        "form": case.params["form"],
        "k": case.params.get("k", "tensor"),
        "dtype": logits(case).dtype,
        "shape": logits(case).shape,
        "offset": logits(case).offset,
        "fill": case.fills["logits"],
    }
    return {name: value for name, value in found.items() if value != PLAINEST[name]}


MINIMA = {
    "anything": (lambda c: True, {}),
    "33 columns": (lambda c: vocab(c) >= 33, {"shape": (1, 33)}),
    "3 rows of 17": (lambda c: batch(c) >= 3 and vocab(c) >= 17, {"shape": (3, 17)}),
    "an area": (lambda c: batch(c) * vocab(c) >= 100 and batch(c) >= 5, {"shape": (5, 20)}),
    "a dtype": (lambda c: logits(c).dtype == "bfloat16", {"dtype": "bfloat16"}),
    "either small dtype": (lambda c: logits(c).dtype != "float32", {"dtype": "float16"}),
    "an output": (lambda c: "out" in c.tensors, {"form": "out"}),
    "a k tensor": (lambda c: "k" in c.tensors, {"k": "tensor"}),
    "k from 3 on": (lambda c: "k" in c.tensors or c.params["k"] >= 3, {"k": 3}),
    "a misaligned start": (lambda c: logits(c).offset % 16 != 0, {"offset": 4}),
    "a NaN planted": (
        lambda c: any(p.value == "nan" for p in c.fills["logits"].planted),
        {"fill": Fill("cycle", 0, (1.0,), (Planted(0, "nan"),))},
    ),
    "two values": (lambda c: len(c.fills["logits"].values) != 1, {"fill": Fill("cycle", 0, (1.0, 2.0))}),
    "wild values": (lambda c: c.fills["logits"].kind in ("specials", "raw"), {"fill": Fill("specials")}),
    "a seed from 1000 on": (
        lambda c: c.fills["logits"].seed >= 1000,
        {"fill": Fill("specials", 1543)},
    ),
}
"""A predicate for which START fails, and what is not plainest in the smallest case of it."""


@pytest.mark.parametrize("name", MINIMA)
def test_a_minimum_derived_by_hand_is_reached(name):
    """Everything that the predicate does not need is gone, and what it needs is as small as can be."""
    fails, expected = MINIMA[name]
    assert fails(START)
    result = reduce(START, fails, budget=2000)
    assert result.complete
    assert fails(result.smallest)
    assert expected == summary(result.smallest)
    validate(result.smallest)


def test_padding_is_found_apart_from_a_start():
    """A padded pitch stays where it is needed, as a pitch of one more."""
    result = reduce(START, lambda c: batch(c) > 1 and logits(c).strides[0] > vocab(c), budget=2000)
    assert ((2, 1), (2, 1)) == (logits(result.smallest).shape, logits(result.smallest).strides)


def test_a_shared_storage_is_taken_apart_unless_needed():
    """`out` between the rows of `logits`: gone when it does not matter, kept when it does."""
    a, b = View(0, "float32", (3, 4), (8, 1)), View(0, "float32", (3, 4), (8, 1), 16)
    case = tidy(
        Case("top_k_mask_logits", {"form": "out", "k": 1}, (0,), {"logits": a, "out": b}, {"logits": Fill("cycle")})
    )
    apart = reduce(case, lambda c: "out" in c.tensors)
    assert 2 == len(apart.smallest.storages)
    shared = reduce(case, lambda c: "out" in c.tensors and len(c.storages) == 1 and batch(c) > 1)
    assert 1 == len(shared.smallest.storages)
    assert 2 == batch(shared.smallest)


def predicates():
    """Faults of several kinds: sizes, features, values, and two of these together."""
    single = st.sampled_from([fails for fails, _ in MINIMA.values()])
    return st.tuples(single, single)


@drawn(60)
@given(CASES, predicates())
def test_the_result_is_a_local_minimum_that_fails(case, pair):
    """No single step from it fails still, the failure is the same, and the budget's count is right."""
    case = tidy(case)
    asked = []

    def fails(candidate):
        asked.append(candidate)
        try:
            return pair[0](candidate) and pair[1](candidate)
        except (KeyError, TypeError):
            return False

    if "logits" not in case.fills or not fails(case):
        return
    asked.clear()
    result = reduce(case, fails, budget=3000)
    assert len(asked) == result.calls
    assert result.complete
    steps = [step for steps in PASSES for step in steps(result.smallest)]
    assert [] == [what for what, step in steps if step != result.smallest and fails(tidy(step))]
    assert fails(result.smallest)


def test_no_step_makes_a_fill_less_plain():
    """One value that matters stays one value: it does not become two."""
    case = mask_case(1, 3, k=1, fill=Fill("cycle", 0, (2.0,)))
    result = reduce(case, lambda c: 2.0 in c.fills["logits"].values)
    assert (2.0,) == result.smallest.fills["logits"].values


@drawn(80)
@given(CASES)
def test_every_step_is_a_valid_case(case):
    """Whatever it is a step from: it can be judged, and written to a file."""
    for what, step in all_steps(case):
        step = tidy(step)
        validate(step)
        assert step.operator == case.operator, what


@drawn(80)
@given(CASES)
def test_no_size_step_grows_anything(case):
    """Neither memory nor a dimension."""
    for what, step in size_steps(case):
        step = tidy(step)
        assert sum(step.storages) <= sum(case.storages), what
        assert all(a <= b for n, v in step.tensors.items() for a, b in zip(v.shape, case.tensors[n].shape)), what


@pytest.mark.parametrize("budget", [0, 1, 5, 20])
def test_the_budget_is_kept(budget):
    """Never more calls; what was found until then is the result, and it says that it is no minimum."""
    calls = []
    result = reduce(START, lambda c: calls.append(c) is None and vocab(c) >= 33, budget=budget)
    assert budget == len(calls) == result.calls
    assert not result.complete
    assert vocab(result.smallest) >= 33


@pytest.mark.parametrize("k", [298, (297, 298)])
def test_a_number_falls_together_with_its_size(k):
    """Where k has to be all of a row but two, the row still gets short; of a tensor of k, every value falls."""

    def fails(c):
        ks = [c.params["k"]] if "k" not in c.tensors else list(c.fills["k"].values)
        return vocab(c) - max(ks) == 2 and vocab(c) >= 3 and ("k" in c.tensors) == isinstance(k, tuple)

    case = mask_case(2, 300, k=k)
    assert fails(case)
    assert 4 >= vocab(reduce(case, fails, budget=400).smallest)


def test_what_was_taken_away_is_told():
    """In order, in words."""
    result = reduce(mask_case(1, 8, k=1, offset=4), lambda c: True)
    assert ("vocab 8 -> 4", "layout of logits", "vocab 4 -> 1") == result.removed[:3]


def test_what_was_taken_away_is_told_in_one_line():
    """Each dimension from its first size to its last; everything else once, with how often."""
    removed = ("batch 40 -> 4", "a feature of the call", "vocab 300 -> 150", "batch 4 -> 1", "a feature of the call")
    assert "batch 40 -> 1; vocab 300 -> 150; a feature of the call (2 times)" == told(removed)
    assert "" == told(())


def test_no_case_is_tried_twice():
    """However many ways lead to it."""
    seen = []
    reduce(START, lambda c: seen.append(c.key()) is None and vocab(c) >= 20 and batch(c) >= 2, budget=2000)
    assert len(set(seen)) == len(seen)


def test_a_tuning_that_does_not_matter_goes():
    """To the default, or to the first that still fails."""
    tuned = replace(START, tuning=6)
    assert 0 == reduce(tuned, lambda c: True).smallest.tuning
    assert 2 == reduce(tuned, lambda c: c.tuning in (2, 4, 6), budget=1000).smallest.tuning


def test_features_go_while_sizes_are_not_tiny():
    """Where one element would show the bug in one form alone, four show it in all: the form is not needed."""

    def fails(case):
        return batch(case) * vocab(case) > 1 or case.params["form"] != "new"

    assert "new" == reduce(START, fails, budget=2000).smallest.params["form"]


def test_empty_calls_are_no_smaller_ones():
    """They are steps of their own, one a dimension, which no reduction takes."""
    assert {(0, 300), (40, 0)} == {logits(step).shape for _, step in empty_steps(START)}
    assert (1, 1) == logits(reduce(START, lambda c: True).smallest).shape


def test_a_tiny_call_grows_and_gets_ordinary_numbers():
    """No dimension below four, but for one of zero; every float random, whatever was planted gone; k as it was."""
    tiny = mask_case(1, 2, k=(1,), fill=Fill("cycle", 0, ("nan",), (Planted(0, "inf"),)))
    larger = ordinary(grown(tiny))
    assert ((4, 4), (4,)) == (logits(larger).shape, larger.tensors["k"].shape)
    assert {"logits": Fill("uniform", 0), "k": tiny.fills["k"]} == larger.fills
    assert (0, 4) == logits(grown(mask_case(0, 3))).shape
    assert (40, 300) == logits(grown(START)).shape


def test_other_steps_can_be_asked_for():
    """Features alone: sizes stay."""
    result = reduce(START, lambda c: True, passes=(feature_steps,))
    assert (40, 300) == logits(result.smallest).shape
    assert "new" == result.smallest.params["form"]
    assert "specials" == result.smallest.fills["logits"].kind
    assert list(fill_steps(result.smallest))


BUILDS = tuple(
    Build("op", {"dtype": dtype, "std": std}, arch)
    for arch in ("sm_80", "sm_90a")
    for dtype in ("float32", "float16")
    for std in ("c++17", "c++20")
)


@pytest.mark.parametrize(
    ("fails", "expected"),
    [
        (lambda b: True, ("float32", "c++17", "sm_80")),
        (lambda b: b.params["dtype"] == "float16", ("float16", "c++17", "sm_80")),
        (lambda b: b.arch == "sm_90a", ("float32", "c++17", "sm_90a")),
        (lambda b: b.params["std"] == "c++20" and b.arch == "sm_90a", ("float32", "c++20", "sm_90a")),
    ],
)
def test_a_build_is_reduced_to_the_plainest_that_fails(fails, expected):
    """The first value of each parameter and the first architecture for which it still fails."""
    found = reduce_build(BUILDS[-1], BUILDS, fails).smallest
    assert expected == (found.params["dtype"], found.params["std"], found.arch)


FLAGS = tuple(
    Build("op", {"dtype": dtype, "a": a, "b": b, "c": c}, arch)
    for dtype in ("float16", "bfloat16")
    for a in (False, True)
    for b in (False, True)
    for c in ("none", "some", "all")
    for arch in ("sm_80", "sm_90a")
    if not (dtype == "bfloat16" and a)
)


def on(build):
    """What of a build is not the plainest."""
    return {name for name, value in build.params.items() if value not in (False, "none", "float16")} | (
        {"arch"} if build.arch != "sm_80" else set()
    )


@pytest.mark.parametrize(
    ("fails", "expected"),
    [
        pytest.param(lambda b: b.params["a"] == b.params["b"], set(), id="both or neither"),
        pytest.param(lambda b: b.params["b"] == (b.arch == "sm_90a"), set(), id="a flag with its architecture"),
        pytest.param(lambda b: (b.params["c"] == "all") == b.params["b"], set(), id="a value with its flag"),
        pytest.param(lambda b: b.params["c"] != "none" or b.params["a"], {"a"}, id="either of two"),
        pytest.param(lambda b: b.params["dtype"] == "bfloat16" and b.params["b"], {"dtype", "b"}, id="two needed"),
        pytest.param(lambda b: b.params["a"] and b.arch == "sm_90a", {"a", "arch"}, id="a flag and an architecture"),
    ],
)
def test_a_build_keeps_what_it_needs(fails, expected):
    """From any build that fails; also where two have to change together, and none alone may."""
    for build in filter(fails, FLAGS):
        found = reduce_build(build, FLAGS, fails)
        assert found.complete
        assert fails(found.smallest)
        assert expected == on(found.smallest) or (expected == {"a"} and {"c"} == on(found.smallest)), build


def test_a_build_outside_the_matrix_is_reduced_into_it():
    """Nothing but builds of the matrix is tried, whatever the first one has; a parameter that they lack goes."""
    odd = Build("op", {"dtype": "float64", "std": "c++20", "tuning": 3}, "sm_90a")
    tried = []
    found = reduce_build(odd, (*BUILDS, *(replace(b, params={**b.params, "tuning": 3}) for b in BUILDS)), tried.append)
    assert odd == found.smallest
    assert {True, False} == {"tuning" in build.params for build in tried}
    assert {"float32", "float16"} == {build.params["dtype"] for build in tried}


def test_the_budget_of_a_build_is_kept():
    """What was found until then is the result."""
    calls = []
    found = reduce_build(FLAGS[-1], FLAGS, lambda b: calls.append(b) is not None, budget=7)
    assert (7, 7, False, FLAGS[-1]) == (len(calls), found.calls, found.complete, found.smallest)
