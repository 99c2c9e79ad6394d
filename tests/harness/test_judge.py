"""harness.judge: every kind of failure that needs no process of its own, by a small broken function each."""

# ruff: noqa: SIM300 - the expected value stands first

import itertools

import msgspec
import pytest
import torch
from hypothesis import given

from harness.case import Build, Case, CaseError, Fill, View
from harness.judge import Judge, judge_build
from harness.memory import POISONS
from harness.operators import top_k_mask_logits
from harness.strategies import SCALES
from harness.verdict import STAGE_OF
from oracles.judgement import Reference
from tests.harness.making import checked, drawn, implementation, mask_case, right

CASES = top_k_mask_logits.cases(SCALES["cpu", "dev"])
SPREAD = Fill("spread", 11)
NAN_FIRST = Fill("cycle", 0, ("nan", 1.0, 2.0, "-inf", "inf"))

PADDED_OUT = View(1, "float32", (2, 5), (8, 1))
SHIFTED_OUT = View(0, "float32", (2, 5), (5, 1), 4)


def judge(function, case=None, **kwargs):
    """The verdict on a function, in this process."""
    case = case or mask_case(fill=SPREAD)
    return Judge(case, "cpu").judge(implementation(function, **kwargs))


mask = checked(right)


@drawn(40)
@given(CASES)
def test_a_right_implementation_passes_on_every_drawn_case(case):
    """Legal or not, any layout, any relation, any fill."""
    verdict = Judge(case, "cpu").judge(implementation(mask, in_place=in_place_checked))
    assert "pass" == verdict.kind, verdict.message


def in_place_checked(logits, k):
    from oracles import top_k_mask_logits as oracle

    reason = oracle.contract(logits, k, None, in_place=True)
    if reason is not None:
        raise ValueError(reason)
    return right(logits, k, out=logits)


# --- refusing -----------------------------------------------------------------------------------------------


def test_raising_on_a_legal_call_is_refused():
    """Even with a clear type; the exception's type and words are the evidence, its numbers are not."""

    def broken(logits, k, *, out=None):
        raise ValueError(f"vocab {logits.shape[1]} is too odd")

    verdict = judge(broken)
    assert ("refused", "ValueError: vocab N is too odd") == (verdict.kind, verdict.evidence.error)
    assert "broken" in verdict.evidence.log


@pytest.mark.parametrize(
    "error", [SystemExit, GeneratorExit, AssertionError, RuntimeError, RecursionError, MemoryError]
)
def test_any_way_to_leave_is_refused(error):
    """sys.exit included."""

    def broken(logits, k, *, out=None):
        raise error

    assert "refused" == judge(broken).kind


ILLEGAL = [
    mask_case(k=-1),
    mask_case(k=True),
    mask_case(k=2.0),
    mask_case(form="out", out=SHIFTED_OUT),
]


@pytest.mark.parametrize("case", ILLEGAL)
def test_answering_an_illegal_call_is_accepted_illegal(case):
    """The oracle's reason is the evidence."""

    def broken(logits, k, *, out=None):
        return torch.zeros_like(logits) if out is None else out

    verdict = judge(broken, case)
    assert "accepted_illegal" == verdict.kind
    assert Judge(case, "cpu").reason == verdict.evidence.error


@pytest.mark.parametrize("error", [ValueError, TypeError, type("Mine", (ValueError,), {})])
def test_clear_errors_pass(error):
    """ValueError, TypeError and subclasses."""

    def good(logits, k, *, out=None):
        raise error("no")

    assert "pass" == judge(good, mask_case(k=-1)).kind


@pytest.mark.parametrize("error", [RuntimeError, AssertionError, KeyError, SystemExit])
def test_other_errors_on_an_illegal_call_are_unclear(error):
    """The type and the oracle's reason are the evidence; the words are not, since torch's differ by version."""

    def broken(logits, k, *, out=None):
        raise error(f"expected {id(logits)}")

    verdict = judge(broken, mask_case(k=-1))
    assert ("unclear_error", f"{error.__name__} where k is negative") == (verdict.kind, verdict.evidence.error)


def test_writing_before_refusing_is_seen():
    """A clear error after the damage is done is no clear refusal."""

    def broken(logits, k, *, out=None):
        logits[0, 0] = 0.0
        raise ValueError("no")

    verdict = judge(broken, mask_case(k=-1))
    assert "changed_input" == verdict.kind
    assert "input logits" in verdict.message


# --- memory -------------------------------------------------------------------------------------------------


def test_a_write_past_the_end_is_wrote_outside():
    """One element behind the output's last."""

    def broken(logits, k, *, out=None):
        right(logits, k, out=out)
        out.as_strided((1,), (1,), out.storage_offset() + out.numel()).zero_()
        return out

    verdict = judge(broken, mask_case(form="out"))
    assert "wrote_outside" == verdict.kind
    assert "byte 40 of storage 1, 4 bytes" in verdict.message


def test_a_write_to_the_padding_is_wrote_outside():
    """The gap between two rows of the output is not the output."""

    def broken(logits, k, *, out=None):
        right(logits, k, out=out)
        out.as_strided((2,), (8,), out.storage_offset() + 5).zero_()
        return out

    assert "wrote_outside" == judge(broken, mask_case(form="out", out=PADDED_OUT)).kind


def test_a_change_of_the_input_is_seen():
    """Even by one element, when the result is right."""

    def broken(logits, k, *, out=None):
        result = right(logits, k)
        logits[1, 4] += 1
        return result

    verdict = judge(broken)
    assert "changed_input" == verdict.kind
    assert "input logits" in verdict.message


def test_a_change_of_k_is_seen():
    """Clipping k where it lies, say."""

    def broken(logits, k, *, out=None):
        result = right(logits, k)
        k.clamp_(max=logits.shape[1])
        return result

    verdict = judge(broken, mask_case(k=(2, 9)))
    assert "changed_input" == verdict.kind
    assert "input k" in verdict.message


def test_unwritten_elements_of_a_given_output_are_told():
    """With how many, and where."""

    def broken(logits, k, *, out=None):
        out[:1] = right(logits, k)[:1]
        return out

    verdict = judge(broken, mask_case(form="out", fill=SPREAD))
    assert ("unwritten_output", 5, 10, "last row") == (
        verdict.kind,
        verdict.evidence.wrong,
        verdict.evidence.total,
        verdict.evidence.pattern,
    )


@pytest.mark.parametrize("make", [torch.empty_like, lambda x: torch.empty(x.shape), lambda x: x.new_empty(x.shape)])
def test_unwritten_elements_of_a_fresh_output_are_told(make):
    """torch.empty is poisoned as well."""

    def broken(logits, k, *, out=None):
        result = make(logits)
        result[:, :3] = right(logits, k)[:, :3]
        return result

    assert ("unwritten_output", 4) == (lambda v: (v.kind, v.evidence.wrong))(judge(broken))


BAD_RETURNS = {
    "nothing": lambda r, logits, out: None,
    "a list": lambda r, logits, out: r.tolist(),
    "two": lambda r, logits, out: (r, r),
    "dtype": lambda r, logits, out: r.double(),
    "shape": lambda r, logits, out: r[None],
    "transposed shape": lambda r, logits, out: r.t(),
    "device": lambda r, logits, out: r.to("meta"),
    "input's memory": lambda r, logits, out: logits,
}


@pytest.mark.parametrize("name", BAD_RETURNS)
def test_a_wrong_return_is_wrong_metadata(name):
    """Type, number, dtype, shape, device, or memory that was given as an input."""

    def broken(logits, k, *, out=None):
        return BAD_RETURNS[name](right(logits, k), logits, out)

    # k = vocab, so that the input itself would have the right values
    assert "wrong_metadata" == judge(broken, mask_case(k=5)).kind


@pytest.mark.parametrize("form", ["out", "out_is_logits", "in_place"])
def test_an_output_that_was_only_rebound_was_not_written(form):
    """`out.data = result` leaves the caller's memory as it was, whatever the tensor object now shows."""

    def broken(logits, k, *, out=None):
        result = right(logits, k)
        out.data = result
        return out

    verdict = judge(broken, mask_case(form=form, fill=SPREAD), in_place=lambda x, k: broken(x, k, out=x))
    assert verdict.failed, verdict.kind


def test_a_copy_of_out_is_wrong_metadata():
    """`out=` must come back, the very object."""

    def broken(logits, k, *, out=None):
        return right(logits, k, out=out).view_as(out)

    assert "wrong_metadata" == judge(broken, mask_case(form="out")).kind


def test_numbers_in_metadata_do_not_tell_failures_apart():
    """Two sizes of the wrong shape are one bug."""

    def broken(logits, k, *, out=None):
        return right(logits, k)[None]

    errors = {judge(broken, mask_case(batch, vocab)).evidence.error for batch, vocab in ((1, 3), (4, 7))}
    assert 1 == len(errors)


# --- values -------------------------------------------------------------------------------------------------


def altered(change):
    """A right result with a change made to it."""

    def broken(logits, k, *, out=None):
        result = right(logits, k)
        change(result)
        return result

    return broken


def test_a_masked_nan_is_wrong_nan():
    """A NaN that was selected becomes -inf."""
    verdict = judge(altered(lambda r: r.nan_to_num_(-torch.inf, torch.inf, -torch.inf)), mask_case(fill=NAN_FIRST))
    assert ("wrong_nan", (0, 0), "-inf", "nan") == (
        verdict.kind,
        verdict.evidence.worst.index,
        verdict.evidence.worst.got,
        verdict.evidence.worst.want,
    )


def test_an_invented_nan_is_wrong_nan():
    """A finite element becomes NaN."""
    assert "wrong_nan" == judge(altered(lambda r: r.index_put_((torch.tensor(1),), torch.tensor(torch.nan)))).kind


def test_another_nan_payload_is_wrong_nan():
    """A NaN is kept bit for bit."""

    def change(result):
        raw = result.view(torch.int32)
        raw[result.isnan()] |= 5

    assert "wrong_nan" == judge(altered(change), mask_case(fill=NAN_FIRST)).kind


def test_a_finite_minus_infinity_is_wrong_inf():
    """A very small number is not -inf."""
    assert "wrong_inf" == judge(altered(lambda r: r.clamp_(min=-3e38))).kind


def test_an_invented_infinity_is_wrong_inf():
    """A kept element becomes +inf."""
    assert "wrong_inf" == judge(altered(lambda r: r[r > -torch.inf].numel() and r.masked_fill_(r > -9, torch.inf))).kind


def test_another_value_is_a_divergence():
    """By one bit of the last place."""
    verdict = judge(altered(lambda r: r.view(torch.int32).bitwise_xor_(r.isfinite().int())))
    assert ("divergence", 4) == (verdict.kind, verdict.evidence.wrong)


def test_a_lost_sign_of_zero_is_a_divergence():
    """Kept elements keep their bits, -0.0 included."""
    case = mask_case(fill=Fill("cycle", 0, (-0.0,)))
    assert "divergence" == judge(altered(lambda r: r.abs_()), case).kind


@pytest.mark.parametrize("change", [lambda k: k - 1, lambda k: k + 1, lambda k: 0, lambda k: 5])
def test_one_too_many_or_too_few_is_wrong_set(change):
    """And the count of wrong elements is told."""
    verdict = judge(lambda logits, k, *, out=None: right(logits, change(k)))
    assert ("wrong_set", 2 * abs(change(2) - 2)) == (verdict.kind, verdict.evidence.wrong)


def test_dropped_ties_are_wrong_set():
    """Exactly k of a row of ties, where all must stay; allowed where SEMANTICS says so."""
    case = mask_case(fill=Fill("cycle", 0, (1.0,)))
    assert ("wrong_set", 6) == (lambda v: (v.kind, v.evidence.wrong))(judge(exactly_k, case))
    assert "pass" == judge(exactly_k, case, SEMANTICS={"ties": "exactly_k"}).kind
    assert "wrong_set" == judge(right, case, SEMANTICS={"ties": "exactly_k"}).kind


def exactly_k(logits, k, *, out=None):
    """The k first of a stable sort."""
    result = torch.full_like(logits, -torch.inf)
    chosen = logits.sort(dim=1, descending=True, stable=True).indices[:, :k]
    result.scatter_(1, chosen, logits.gather(1, chosen))
    return result if out is None else out.copy_(result)


# --- repeating ----------------------------------------------------------------------------------------------


def by_turns(*functions):
    """Calls one function after the other."""
    turn = itertools.cycle(functions)
    return lambda logits, k, *, out=None: next(turn)(logits, k, out=out)


def wrong(logits, k, *, out=None):
    return torch.zeros_like(logits)


def test_a_failure_that_comes_and_goes_is_nondeterministic():
    """One wrong call of three, with the rate in the evidence."""
    verdict = judge(by_turns(right, wrong, right))
    assert "nondeterministic" == verdict.kind
    assert 0 < verdict.evidence.failed < verdict.evidence.runs


def test_what_kept_to_one_poison_by_luck_is_nondeterministic():
    """Six pairs fail under the second poison alone, the seventh under the first: no memory that nobody wrote is needed."""
    luck = [right, wrong] * 6 + [wrong, right] * 6
    assert "nondeterministic" == judge(by_turns(*luck)).kind


def test_right_with_other_bits_is_nondeterministic_unless_declared():
    """Two right answers by turns, where more than one is right."""
    case = mask_case(fill=Fill("cycle", 0, (1.0,)))

    def last_k(logits, k, *, out=None):
        return exactly_k(logits.flip(1), k).flip(1)

    ties = {"SEMANTICS": {"ties": "exactly_k"}}
    changing = (exactly_k, last_k, last_k, exactly_k, exactly_k)
    assert "nondeterministic" == judge(by_turns(*changing), case, **ties).kind
    assert "pass" == judge(by_turns(*changing), case, **ties, NONDETERMINISTIC=True).kind


def test_a_declared_nondeterminism_excuses_no_wrong_value():
    """Comes and goes, and is wrong when it comes."""
    assert "nondeterministic" == judge(by_turns(right, wrong, right), NONDETERMINISTIC=True).kind


def peek(logits):
    """The element in memory behind the last of logits: nobody wrote it."""
    return logits.as_strided((1,), (1,), logits.storage_offset() + logits.numel())


def test_reading_memory_that_nobody_wrote_is_depends_on_poison():
    """Large under one poison, very negative under the other: a maximum over one element too many."""

    def broken(logits, k, *, out=None):
        return right(logits, k - int(peek(logits).item() > 0))

    verdict = judge(broken)
    assert ("depends_on_poison", "repeat") == (verdict.kind, STAGE_OF[verdict.kind])


def test_a_steady_failure_keeps_its_name_under_repetition():
    """Wrong in all runs alike: the values' kind, not a repeat's."""
    assert "divergence" == judge(lambda logits, k, *, out=None: torch.zeros_like(logits) + 0.5, mask_case(k=5)).kind


def tie_breaker(condition):
    """Keeps k of a tie: the first, or the last where the call is as the condition says."""

    def call(logits, k, *, out=None):
        if condition(logits, out):
            result = exactly_k(logits.flip(1), k).flip(1)
        else:
            result = exactly_k(logits, k)
        return result if out is None else out.copy_(result)

    return call


TIES = Fill("cycle", 0, (1.0,))


def test_in_place_must_be_as_out_of_place():
    """Where several results are right, form alone must not choose between them."""
    broken = tie_breaker(lambda logits, out: out is not None)
    verdict = judge(broken, mask_case(form="out_is_logits", fill=TIES), SEMANTICS={"ties": "exactly_k"})
    assert "in_place_differs" == verdict.kind
    assert verdict.evidence.wrong > 0


def test_layout_must_not_matter_to_a_selection():
    """Padded rows, the same values: the same choice."""
    broken = tie_breaker(lambda logits, out: not logits.is_contiguous())
    verdict = judge(broken, mask_case(pitch=9, fill=TIES), SEMANTICS={"ties": "exactly_k"})
    assert "layout_differs" == verdict.kind


@pytest.mark.parametrize("case", [mask_case(form="out_is_logits", fill=TIES), mask_case(pitch=9, offset=4, fill=TIES)])
def test_a_steady_choice_of_ties_passes(case):
    """In place and with padded rows."""
    assert "pass" == judge(exactly_k, case, SEMANTICS={"ties": "exactly_k"}).kind


@pytest.mark.parametrize("case", [mask_case(form="out_is_logits", fill=TIES), mask_case(pitch=9, fill=TIES)])
def test_relations_are_not_asked_of_what_may_change_from_run_to_run(case):
    """A declared nondeterminism chooses ties as it likes, in place and elsewhere."""

    def last_k(logits, k, *, out=None):
        result = exactly_k(logits.flip(1), k).flip(1)
        return result if out is None else out.copy_(result)

    changing = by_turns(exactly_k, last_k, last_k)
    assert "pass" == judge(changing, case, SEMANTICS={"ties": "exactly_k"}, NONDETERMINISTIC=True).kind


# --- skipping, several at once, and the oracle's own safety ---------------------------------------------------


def test_unsupported_is_a_skip_with_its_reason():
    """It is asked with the operator's build parameters, and the kernel never runs."""
    asked = []

    def unsupported(params):
        asked.append(params)
        return "no float32"

    def never(logits, k, *, out=None):
        raise AssertionError

    verdict = judge(never, unsupported=unsupported)
    assert ("skip", "no float32") == (verdict.kind, verdict.message)
    assert [{"dtype": "float32", "k": "int"}] == asked


@pytest.mark.parametrize("kind", ["hang", "device_error"])
def test_what_an_executor_says_of_a_kernel_is_the_verdict(kind):
    """An error with a `kind` comes from whoever ran the kernel; other kinds, and other errors, are the call's own."""

    class Stopped(RuntimeError):
        def __init__(self, kind):
            super().__init__("17 of 32 threads wait at a barrier")
            self.kind = kind

    def stops(logits, k, *, out=None):
        raise Stopped(kind)

    def refuses(logits, k, *, out=None):
        raise Stopped("wrong_set")

    verdict = Judge(mask_case(), "cpu").judge(implementation(stops))
    assert (kind, "17 of 32 threads wait at a barrier") == (verdict.kind, verdict.message)
    assert "refused" == Judge(mask_case(), "cpu").judge(implementation(refuses)).kind


def test_a_tuning_comes_as_keyword_arguments():
    """The choice that the case's number asks for; `unsupported` is told its index."""
    seen = []

    def tuned(logits, k, *, out=None, block=0):
        seen.append(block)
        return right(logits, k, out=out)

    def unsupported(params):
        return f"tuning {params['tuning']}" if params.get("tuning") == 2 else None

    what = implementation(tuned, TUNING=({"block": 16}, {"block": 64}, {"block": 1}), unsupported=unsupported)
    verdicts = [Judge(msgspec.structs.replace(mask_case(), tuning=n), "cpu").judge(what) for n in (0, 1, 5, 4)]
    assert [16, 16, 64, 64, 64, 64] == seen
    assert ["pass", "pass", "skip", "pass"] == [verdict.kind for verdict in verdicts]
    assert "tuning 2" == verdicts[2].message


def test_a_missing_in_place_spelling_or_argument_is_a_skip():
    """A function without `out` is not called with it."""
    assert "skip" == judge(right, mask_case(form="in_place")).kind
    assert "skip" == judge(right, mask_case(form="out"), parameters=frozenset({"logits", "k"})).kind
    assert "pass" == judge(right, mask_case(form="in_place"), in_place=lambda x, k: right(x, k, out=x)).kind


def test_one_implementation_after_the_other_gets_the_same_call():
    """A broken one, which wrote over everything, leaves no trace for the next."""
    shared = Judge(mask_case(form="out", k=(1, 2), fill=SPREAD), "cpu")

    def vandal(logits, k, *, out=None):
        logits.zero_()
        k.fill_(99)
        return out.zero_()

    assert "changed_input" == shared.judge(implementation(vandal)).kind
    assert "pass" == shared.judge(implementation(right)).kind


@pytest.mark.parametrize("change", [lambda x: x.unsqueeze_(0), lambda x: x.set_(torch.zeros(1))], ids=["shape", "set_"])
def test_tensors_changed_as_objects_are_put_back(change):
    """Shape, strides and flags of an argument that one implementation changed are not the next one's trouble."""
    shared = Judge(mask_case(fill=SPREAD), "cpu")

    def vandal(logits, k, *, out=None):
        result = right(logits, k)
        change(logits)
        return result

    shared.judge(implementation(vandal))
    verdict = shared.judge(implementation(right))
    assert "pass" == verdict.kind, verdict.message


def test_an_overwritten_oracle_is_seen_and_only_once():
    """A wild write to the reference is the fault of who did it, not of the next implementation."""
    shared = Judge(mask_case(fill=SPREAD), "cpu")

    def vandal(logits, k, *, out=None):
        reference, _ = shared._references[top_k_mask_logits.semantics({}, "cpu")]
        reference.want["out"].add_(1)
        return right(logits, k)

    assert "wrote_outside" == shared.judge(implementation(vandal)).kind
    assert "pass" == shared.judge(implementation(right)).kind


def test_a_changed_sign_changes_the_checksum():
    """Any one byte of a reference, at any place: the topmost bit of the second element too."""
    want = torch.arange(1.0, 9.0, dtype=torch.float64)
    reference = Reference({"out": want}, {"out": torch.zeros(8)}, {"out": torch.float32})
    before = reference.checksum()
    missed = []
    raw = want.view(torch.uint8)
    for byte, bit in itertools.product(range(64), (1, 128)):
        raw[byte] ^= bit
        if reference.checksum() == before:
            missed.append((byte, bit))
        raw[byte] ^= bit
    assert [] == missed


def test_unknown_semantics_are_a_clear_error():
    """Of a word or of a value."""
    for words in ({"ties": "some"}, {"colour": "all"}):
        with pytest.raises(ValueError, match="SEMANTICS"):
            judge(right, SEMANTICS=words)


def test_every_named_kind_has_a_stage():
    """The kinds of DESIGN section 5, each with a stage; nothing else."""
    assert 22 == len(STAGE_OF)
    assert {"build", "call", "run", "memory", "values", "repeat"} == set(STAGE_OF.values())


@pytest.mark.parametrize("poison", POISONS)
def test_an_output_that_is_poison_by_right_is_no_failure(poison):
    """Inputs made of the poison's own bytes are values like any other."""
    word = int.from_bytes(bytes([poison] * 4), "little")
    value = torch.tensor([word - (1 << 32) if word >> 31 else word], dtype=torch.int32).view(torch.float32).item()
    assert "pass" == judge(right, mask_case(fill=Fill("cycle", 0, (value,)))).kind


@pytest.mark.parametrize(("batch", "vocab"), [(0, 5), (5, 0), (0, 0), (1, 1)])
@pytest.mark.parametrize("form", ["new", "out", "out_is_logits"])
def test_empty_calls_are_judged(batch, vocab, form):
    """A right answer of no elements passes, a wrong shape does not."""
    case = mask_case(batch, vocab, form=form, k=1)
    assert "pass" == judge(right, case).kind
    if form == "new":
        assert "wrong_metadata" == judge(lambda logits, k, *, out=None: right(logits, k)[None], case).kind


def test_awkward_exceptions_are_still_verdicts():
    """An exception that cannot say its text is a refusal like any other."""

    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    def broken(logits, k, *, out=None):
        raise Mute

    assert "refused" == judge(broken).kind


def test_awkward_returns_are_still_verdicts():
    """A sparse tensor is no dense one."""
    verdict = judge(lambda logits, k, *, out=None: right(logits, k).to_sparse())
    assert "wrong_metadata" == verdict.kind


# --- builds ---------------------------------------------------------------------------------------------------


class CompilerError(Exception):
    """What an implementation's build raises: with the tool's name and log."""

    tool = "nvrtc"
    log = 'k.cu(12): warning: unused\nk.cu(31): error: identifier "__hfma9" is undefined\n1 error detected\n'


def build_verdict(build, **module):
    return judge_build(
        Build("top_k_mask_logits", {"dtype": "float32"}, "sm_90a"), implementation(right, build=build, **module)
    )


def test_a_build_that_works_passes():
    """It is given the parameters and the architecture."""
    asked = []
    assert "pass" == build_verdict(lambda params, arch: asked.append((params, arch))).kind
    assert [({"dtype": "float32"}, "sm_90a")] == asked


def test_a_build_that_fails_tells_tool_first_error_and_log():
    """The first error, not the first line; the log whole."""

    def build(params, arch):
        raise CompilerError

    verdict = build_verdict(build)
    assert ("build_error", 'nvrtc: identifier "__hfma9" is undefined') == (verdict.kind, verdict.evidence.error)
    assert CompilerError.log == verdict.evidence.log


def test_a_build_that_raises_something_else_is_a_build_error_too():
    """With the exception's name for the tool."""

    def build(params, arch):
        raise RuntimeError("no such thing")

    assert (
        "build_error",
        "RuntimeError: no such thing",
    ) == (lambda v: (v.kind, v.evidence.error))(build_verdict(build))


def test_an_unsupported_build_is_skipped():
    """The architecture is among what `unsupported` is told."""
    verdict = build_verdict(lambda params, arch: 1 / 0, unsupported=lambda params: f"not on {params['arch']}")
    assert ("skip", "not on sm_90a") == (verdict.kind, verdict.message)


UNFILLED = Case(
    "top_k_mask_logits",
    {"form": "in_place"},
    (64,),
    {"logits": View(0, "float32", (1, 4), (4, 1)), "k": View(0, "int32", (1,), (1,), 32)},
    {"logits": Fill("cycle", 0, (1.0,))},
)
"""Legal: k lies behind logits in one storage. Nothing says what it holds."""


def test_a_legal_call_reads_no_poison():
    """A case whose input has no fill is refused: every right kernel would depend on the poison."""
    with pytest.raises(CaseError, match="reads tensor 'k', which has no fill"):
        Judge(UNFILLED, "cpu")


def test_the_oracle_reads_nothing_that_a_kernel_is_given():
    """Not even where two tensors share a storage."""
    case = msgspec.structs.replace(UNFILLED, fills={**UNFILLED.fills, "k": Fill("cycle", 0, (1,))})
    for subject in (case, mask_case(2, 4)):
        judge = Judge(subject, "cpu")
        assert judge.reason is None
        given = {t.untyped_storage().data_ptr() for t in judge.memory.tensors.values()}
        read = {t.untyped_storage().data_ptr() for t in judge._pure.args if isinstance(t, torch.Tensor)}
        assert set() == given & read


def test_what_depends_on_poison_is_told_with_what_it_should_be():
    """The reference is there, so its value is; the map is of the elements that were not written."""

    def unwritten(logits, k, *, out=None):
        result = torch.empty_like(logits)
        result[:, 1:] = right(logits, k)[:, 1:]
        return result

    judged = Judge(mask_case(3, 5, fill=Fill("cycle", 0, (1.0,))), "cpu")
    verdict = judged.judge(implementation(unwritten), picture=True)
    assert ("unwritten_output", (0, 0), "1.0") == (
        verdict.kind,
        verdict.evidence.worst.index,
        verdict.evidence.worst.want,
    )
    assert [(0, 0), (1, 0), (2, 0)] == [element.index for element in judged.mismatch(verdict).worst]
    assert judged.judge(implementation(unwritten)) == verdict
    assert judged.mismatch(verdict) is None
