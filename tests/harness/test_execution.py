"""Orders of threads and checks: in cases, and as an implementation is asked for them."""

# ruff: noqa: SIM300 - the expected value stands first

import contextlib

import msgspec
import pytest
import torch
from hypothesis import find
from msgspec.structs import replace

from harness import features, steps, strategies
from harness.attempt import execution_failure
from harness.case import Case
from harness.execution import Reach, executing
from harness.implementations import BadHook
from harness.judge import Judge
from harness.memory import POISONS, Memory
from harness.operators import top_k_mask_logits
from harness.strategies import SCALES
from harness.verdict import PASS
from tests.harness.making import checked, drawn, implementation, mask_case, right

CASE = mask_case()
CASES = strategies.scheduled(top_k_mask_logits.cases(SCALES["cpu", "dev"]))


class Executor:
    """A module's `execution`, which notes what it was asked for."""

    def __init__(self):
        self.asked = []
        self.schedule = 0

    @contextlib.contextmanager
    def __call__(self, schedule, checks, memory, poison):
        self.asked.append((schedule, checks, poison))
        self.schedule, self.memory = schedule, memory
        yield
        self.schedule = None


@pytest.fixture
def executor():
    return Executor()


# --- cases --------------------------------------------------------------------------------------------------


def test_older_cases_run_in_order_and_unchecked():
    """Neither is written unless it is asked for, so that old entries and their keys stay what they are."""
    assert b"schedule" not in CASE.key() + msgspec.json.encode(CASE)
    assert b"checks" not in CASE.key()
    assert (0, ()) == (CASE.schedule, CASE.checks)
    asked = replace(CASE, schedule=7, checks=("race",))
    assert asked == msgspec.json.decode(asked.key(), type=Case)


@pytest.mark.parametrize("text", ['"schedule": -1', '"schedule": 4294967296', '"checks": ["leaks"]'])
def test_what_no_case_can_ask_for(text):
    """A clear error of the decoder."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(f'{{"type": "call", "operator": "x", "params": {{}}, {text}}}', type=Case)


def test_an_order_is_drawn_now_and_then_and_shrinks_away():
    """The plainest case runs in order; others come in an order of their own."""
    assert 0 == find(CASES, lambda case: True, settings=drawn(50)).schedule
    assert find(CASES, lambda case: case.schedule != 0, settings=drawn(500)).schedule


def test_an_order_is_a_feature():
    """It is turned off, or made an early one, and a failure that needs it says so."""
    case = replace(CASE, schedule=1000)
    found = [step.schedule for what, step in steps.feature_steps(case) if what == "schedule"]
    assert [0, 1, 2, 3] == found
    assert ("scheduled" in features.traits(case), "scheduled" in features.traits(CASE)) == (True, False)


# --- judging ------------------------------------------------------------------------------------------------


def test_an_implementation_is_asked_for_what_the_case_says(executor):
    """Each run under its own poison, and a last one in order to compare with."""
    case = replace(CASE, schedule=5, checks=("race", "memory"))
    verdict = Judge(case, "cpu").judge(implementation(checked(right), execution=executor))
    assert "pass" == verdict.kind
    ours = [(5, ("race", "memory"), poison) for poison in POISONS]
    assert [*ours, (0, ("race", "memory"), POISONS[0])] == executor.asked


def test_another_order_with_other_bits_is_a_failure(executor):
    """Though each result is right by itself."""

    def broken(logits, k, *, out=None):
        result = right(logits, k, out=out)
        return torch.where(result == 0, -0.0 if executor.schedule else 0.0, result)

    zeros = mask_case(fill=msgspec.structs.replace(CASE.fills["logits"], values=(0.0,)))
    judge = Judge(replace(zeros, schedule=5), "cpu")
    judge._values = lambda outputs, reference, runs: PASS
    verdict = judge.judge(implementation(broken, execution=executor))
    assert ("order_differs", "repeat") == (verdict.kind, verdict.stage)
    free = Judge(replace(zeros, schedule=5), "cpu")
    free._values = judge._values
    assert "pass" == free.judge(implementation(broken, execution=executor, NONDETERMINISTIC=True)).kind


def test_without_the_hook_an_order_means_nothing_and_a_check_is_a_skip():
    """As on a GPU."""
    assert "pass" == Judge(replace(CASE, schedule=5), "cpu").judge(implementation(checked(right))).kind
    verdict = Judge(replace(CASE, checks=("race",)), "cpu").judge(implementation(checked(right)))
    assert ("skip", True) == (verdict.kind, verdict.message.startswith("race: not checked"))


def test_a_hook_that_raises_is_the_modules_fault():
    """In one line."""
    broken = implementation(right, execution=lambda *args: 1 / 0)
    with pytest.raises(BadHook, match="execution of broken raised ZeroDivisionError"):
        Judge(CASE, "cpu").judge(broken)


def test_an_executors_error_leaves_the_process_alive():
    """A device_error costs no process; a hang has cost its time."""

    class Broken(RuntimeError):
        pass

    for kind, costly in (("device_error", False), ("hang", True)):
        error = Broken("f: it broke [thread (1, 0, 0) of block (0, 0, 0)]")
        error.kind = kind
        found = execution_failure(error)
        assert (kind, costly, "f: it broke") == (found.kind, found.costly, found.evidence.error)


# --- what a kernel may touch --------------------------------------------------------------------------------


def test_a_kernel_may_touch_the_views_and_what_the_function_allocates(executor):
    """The rows with the gaps between them, without guard zones; any other tensor whose address is asked for."""
    memory = Memory(mask_case(2, 5, pitch=8), "cpu")
    logits = memory.tensors["logits"]
    views = [(logits.data_ptr(), (8 + 5) * 4)]
    assert views == Reach(memory).ranges
    with executing(implementation(right, execution=executor), CASE, memory, 0):
        logits[1:].data_ptr()
        assert views == executor.memory
        fresh = torch.empty(7)
        assert views == executor.memory
        address = fresh[2:].data_ptr() - 8
        fresh.data_ptr()
        assert [*views, (address, 28)] == executor.memory
