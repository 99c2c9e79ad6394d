"""The comparison of two devices, tried with the CPU for both and with kernels that answer differently."""

# ruff: noqa: SIM300 - the expected value stands first

import pytest
import torch
from click.testing import CliRunner

from harness.implementations import load
from impls.top_k_mask_logits import top_k_mask_logits
from tests import same_bits
from tests.harness.making import NAME, implementation, mask_case
from tests.same_bits import Output, Tally, batches, compare, drawn, ordered, recorded

CUDA = load(NAME, "cuda")


def _torch(logits, k, *, out=None):
    return top_k_mask_logits(logits, k, out=out, backend="torch")


def _all_kept(logits, k, *, out=None):
    return logits.clone() if out is None else out.copy_(logits)


def test_two_right_results_are_equal():
    """The same bits on either side, and no problem."""
    compared = compare(mask_case(3, 40, k=5), (CUDA, implementation(_torch)), "cpu")
    assert {"out": Output(120, 120, 0)} == compared.outputs
    assert [] == compared.problems


def test_an_exact_result_that_differs_is_a_problem():
    """What is wrong is told by the judge, and by the comparison."""
    compared = compare(mask_case(1, 6, k=1), (CUDA, implementation(_all_kept)), "cpu")
    assert ["on cpu: wrong_set: out[0, 0] is 1.0, should be -inf; 4 of 6 wrong", "out: 4 of 6 elements differ"] == (
        compared.problems
    )
    assert not compared.equal


def test_illegal_calls_are_not_made():
    """They are counted, with the reason."""
    assert compare(mask_case(1, 6, k=-1), (CUDA, CUDA), "cpu").skipped.startswith("illegal: ")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_neighbouring_numbers_are_one_apart(dtype):
    """Across powers of two and zero as well."""
    below = torch.nextafter(torch.tensor(1.0), torch.tensor(0.0)) if dtype == torch.float32 else None
    tiny = torch.tensor([1], dtype=torch.int32 if dtype == torch.float32 else torch.int16).view(dtype)
    zero = torch.zeros(1, dtype=dtype)
    assert [1, 0, -1] == [int(ordered(x)) for x in (tiny, -zero, -tiny)]
    if below is not None:
        assert 1 == int(ordered(torch.tensor([1.0])) - ordered(below[None]))


def test_nan_and_infinity_count_as_equal_or_not_but_have_no_distance():
    """ulps are those of finite elements."""
    a = torch.tensor([float("nan"), float("inf"), 1.0, 2.0])
    b = torch.tensor([1.0, float("inf"), 1.0000001, 2.0])
    assert Output(4, 2, 1) == Output.of(a, b)


def test_drawn_calls_are_distinct_legal_and_partly_wide():
    """As many as asked for; batches hold each of them once, and one build each."""
    cases = drawn(NAME, 24, 0)
    assert 24 == len({case.key() for case in cases})
    grouped = list(batches(cases))
    assert sorted(case.key() for case in cases) == sorted(case.key() for batch in grouped for case in batch)
    assert {1} == {len({case.tensors["logits"].dtype for case in batch}) for batch in grouped}


def test_the_corpus_gives_its_calls(tmp_path):
    """Those of this operator alone; none of an empty folder."""
    assert [] == recorded(NAME, tmp_path)
    assert {NAME} == {case.operator for case in recorded(NAME, same_bits.Path("corpus"))}


def test_what_is_not_begun_in_time_fails():
    """A run that ends early says how much is missing."""
    arguments = ["--device", "cpu", "--examples", "60", "--jobs", "1", "--time", "0.001s", "--corpus", "nowhere"]
    result = CliRunner().invoke(same_bits.main, arguments)
    assert 1 == result.exit_code
    assert "calls were not begun in" in result.output


def test_a_tally_adds_up():
    """Shares of elements, by output and dtype; the largest distance."""
    tally = Tally()
    for equal, ulps in ((4, 0), (2, 3)):
        tally.add(mask_case(1, 4), same_bits.Compared({"out": Output(4, equal, ulps)}, ratio=0.5))
    assert [
        "2 calls: 1 with equal bits, 0 wrong; largest error / bound 0.5",
        "  out (float32): 75.0000% of 8 elements equal, 2 differ, by up to 3 ulps",
    ] == list(tally.lines())
