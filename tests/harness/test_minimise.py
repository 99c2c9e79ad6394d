"""harness.minimise: what counts as the same failure, rates, and what a fresh process has to say; on an engine of paper."""

# ruff: noqa: SIM300 - the expected value stands first

import random
import time

import pytest

from harness.case import Fill
from harness.minimise import CONFIRM_PAIRS, Minimiser, pairs_for
from harness.sandbox import Limits
from harness.verdict import PASS, Evidence, Verdict, skip
from tests.harness.making import mask_case

LARGE, SMALL = mask_case(4, 32, fill=Fill("spread", 9)), mask_case(1, 2)
WRONG = Verdict("wrong_set", "wrong")
POISON = Verdict("depends_on_poison", "what nobody wrote")


def sometimes(failed, runs):
    return Verdict("nondeterministic", "comes and goes", Evidence(failed=failed, runs=runs))


class PaperEngine:
    """Answers by a function of (case, pairs, the cases judged in this process before)."""

    def __init__(self, answer):
        self.answer, self.before, self.asked = answer, [], []
        self.limits, self.fastest = Limits(), 1e-3

    def fresh(self):
        self.before = []

    def judge(self, case, specs, *, pairs=1, sure=True):
        verdict = self.answer(case, pairs, tuple(self.before))
        self.before.append(case)
        self.asked.append((case, pairs))
        return [verdict]


def minimiser(answer, verdict, **more):
    return Minimiser(PaperEngine(answer), "x.py:f", verdict, **more)


def columns(case):
    return case.tensors["logits"].shape[-1]


def test_a_steady_failure_is_reduced_as_long_as_it_is_the_same():
    """Another kind, or other words, is another failure."""
    refused = Verdict("refused", "no", Evidence(error="ValueError: no"))
    other = Verdict("refused", "never", Evidence(error="ValueError: never"))
    made = minimiser(lambda case, pairs, before: refused if columns(case) >= 5 else other, refused)
    assert 5 == columns(made.reduce(LARGE).smallest)
    made = minimiser(lambda case, pairs, before: WRONG if columns(case) >= 7 else POISON, WRONG)
    assert 7 == columns(made.reduce(LARGE).smallest)
    assert WRONG == made.best


def test_what_belongs_to_another_bug_is_not_ours():
    """A failure of the same kind that the caller knows better."""
    made = minimiser(lambda case, pairs, before: WRONG, WRONG, ours=lambda case, verdict: columns(case) != 4)
    assert 4 != columns(made.reduce(LARGE).smallest)


def test_after_the_deadline_nothing_fails():
    """What was found until then is the result."""
    made = minimiser(lambda case, pairs, before: WRONG, WRONG, deadline=time.monotonic() - 1)
    result = made.reduce(LARGE)
    assert (LARGE, 0, 0, False) == (result.smallest, made.calls, result.calls, result.complete)


def drawn_rate(rate_of, seed=1):
    """Verdicts of a failure that comes with the rate that a case has."""
    source = random.Random(seed)

    def answer(case, pairs, before):
        failed = sum(source.random() < rate_of(case) for _ in range(2 * pairs))
        if failed == 0:
            return PASS
        return WRONG if failed == 2 * pairs else sometimes(failed, 2 * pairs)

    return answer


@pytest.mark.parametrize("seed", range(8))
def test_a_rate_is_kept_near_what_it_was(seed):
    """Of a failure that shows half the time for 8 columns and more, once in fifty for fewer: 8 columns are left."""
    answer = drawn_rate(lambda case: 0.5 if columns(case) >= 8 else 0.02, seed)
    assert 8 == columns(minimiser(answer, sometimes(1, 2)).reduce(LARGE, budget=400).smallest)


@pytest.mark.parametrize("rate", [0.9, 0.99])
@pytest.mark.parametrize("seed", range(4))
def test_a_batch_that_always_failed_still_comes_and_goes(rate, seed):
    """At nine of ten runs and more, whole batches fail: the case is kept nonetheless."""
    answer = drawn_rate(lambda case: rate, seed)
    assert (1, 1) == minimiser(answer, sometimes(9, 10)).reduce(LARGE, budget=400).smallest.tensors["logits"].shape


def test_the_smallest_case_is_confirmed_in_a_fresh_process():
    """With more runs than a step has; the verdict is the fresh process's."""
    made = minimiser(lambda case, pairs, before: WRONG, WRONG)
    made.engine.judge(LARGE, ["x.py:f"])
    found = made.confirm(SMALL, LARGE, (LARGE,))
    assert (SMALL, WRONG, (), None, True) == (found.case, found.verdict, found.context, found.rate, found.shown)
    assert (SMALL, CONFIRM_PAIRS) == made.engine.asked[-1]


def test_what_a_fresh_process_calls_another_name_needs_no_history():
    """Found as one that depends on the poison, by luck: it comes and goes, and has its rate."""
    made = minimiser(lambda case, pairs, before: sometimes(pairs // 2, 2 * pairs), POISON)
    found = made.confirm(SMALL, LARGE, (LARGE,))
    assert ("nondeterministic", (), True) == (found.verdict.kind, found.context, found.shown)
    assert found.rate is not None
    assert found.rate.low <= 0.25 <= found.rate.high


def test_the_case_that_was_found_stands_in_for_a_smallest_that_passes():
    """A fresh process shows the one and not the other: no history is needed."""
    made = minimiser(lambda case, pairs, before: WRONG if case == LARGE else PASS, WRONG)
    assert (LARGE, ()) == (made.confirm(SMALL, LARGE, (SMALL,)).case, made.confirm(SMALL, LARGE, (SMALL,)).context)


def test_what_needs_calls_before_it_keeps_those_that_matter():
    """Three calls ran before; the one with three rows is needed, as it is; the failing call gets small."""
    history = tuple(mask_case(rows, 4) for rows in (2, 3, 5))
    made = minimiser(lambda case, pairs, before: WRONG if history[1] in before else PASS, WRONG)
    found = made.confirm(SMALL, LARGE, history)
    assert ((history[1],), True) == (found.context, found.verdict.evidence.used_process)
    assert 1 == columns(found.case)


def test_what_nothing_shows_again_says_so():
    """The verdict is that of the used process, and marked as such."""
    found = minimiser(lambda case, pairs, before: PASS, WRONG).confirm(SMALL, LARGE, (SMALL,))
    assert (False, "wrong_set", True) == (found.shown, found.verdict.kind, found.verdict.evidence.used_process)


def test_a_hang_is_looked_for_with_less_patience():
    """A tenth of the limit of a run while it is reduced, and the whole of it again afterwards."""
    seen = []
    made = minimiser(
        lambda case, pairs, before: seen.append(made.engine.limits.run) or Verdict("hang"), Verdict("hang")
    )
    limit = made.engine.limits.run
    made.reduce(LARGE)
    assert {max(1.0, limit / 10)} == set(seen)
    assert limit == made.engine.limits.run


def test_what_cannot_be_judged_does_not_fail():
    """A skip in the middle of sampling a rate."""
    made = minimiser(lambda case, pairs, before: skip("no"), sometimes(1, 2))
    assert LARGE == made.reduce(LARGE, budget=20).smallest


def test_pairs_that_show_a_failure_again():
    """Eight under each poison for one that comes and goes, one for any other."""
    assert (8, 1) == (pairs_for(sometimes(1, 5)), pairs_for(WRONG))
