"""harness.history: calls that have to run one after another, made small together."""

# ruff: noqa: SIM300 - the expected value stands first

from harness.case import Fill
from harness.history import Calls, reduce_history
from tests.harness.making import mask_case

OTHERS = tuple(mask_case(rows, 9, k=2) for rows in (2, 3))
FIRST = mask_case(6, 20, dtype="bfloat16", form="out", k=5, fill=Fill("spread", 7), pitch=24)
LAST = mask_case(6, 20, dtype="bfloat16", form="in_place", k=3, fill=Fill("raw", 9), offset=2)


def shape(case):
    return case.tensors["logits"].shape


def larger_k_first(calls):
    """A call of the same shape came before, with a larger k: what a buffer that is not cleared shows."""
    return any(
        shape(case) == shape(calls.case) and case.params["k"] > calls.case.params["k"] >= 1 for case in calls.before
    )


def test_what_the_calls_share_gets_smaller_in_all_of_them():
    """Sizes that have to be equal reach one, in both calls; nothing but the parameters that matter is left."""
    result = reduce_history(Calls((FIRST,), LAST), larger_k_first, budget=200)
    (first,) = result.smallest.before
    last = result.smallest.case
    assert ((1, 1), (1, 1)) == (shape(first), shape(last))
    assert ("float32", "new", 2) == (first.tensors["logits"].dtype, first.params["form"], first.params["k"])
    assert ("float32", "new", 1) == (last.tensors["logits"].dtype, last.params["form"], last.params["k"])
    assert result.complete


def test_few_tries_take_most_away():
    """Each takes a process: with eight, the sizes are one."""
    result = reduce_history(Calls((*OTHERS, FIRST), LAST), larger_k_first, budget=8)
    assert (1, 1) == shape(result.smallest.case)
    assert 8 >= result.calls


def test_calls_before_that_do_not_matter_go():
    """One is left, the one that does."""
    result = reduce_history(Calls((*OTHERS, FIRST), LAST), larger_k_first, budget=200)
    assert 1 == len(result.smallest.before)
    assert 2 == result.removed.count("a call before it")


def test_one_call_before_it_stays():
    """A failure that needs none is no failure of this sort."""
    result = reduce_history(Calls((FIRST,), LAST), lambda calls: True, budget=300)
    assert 1 == len(result.smallest.before)


def test_sizes_that_have_to_differ_still_do():
    """A kernel that is wrong where the sizes are not those of the call before."""
    result = reduce_history(Calls((FIRST,), mask_case(4, 4)), lambda c: shape(c.case) != shape(c.before[0]), budget=300)
    assert 3 >= sum(shape(result.smallest.case) + shape(result.smallest.before[0])) - 2
    assert shape(result.smallest.case) != shape(result.smallest.before[0])
