"""harness.explain: planted faults are explained as one would by hand; early ends leave what is known."""

# ruff: noqa: SIM300 - the expected value stands first

import pytest
from msgspec.structs import replace

from harness import signature
from harness.case import FORMAT, Build, Fill, tidy
from harness.corpus import Entry
from harness.explain import Explainer, no_picture
from harness.replay import NotShown, Replayer
from harness.sandbox import Limits
from harness.verdict import Verdict
from tests.harness import hostile
from tests.harness.making import mask_case, prefill_case
from tests.planted import single_prefill, top_k_mask_logits

FAULTS = {fault.name: fault for fault in (*top_k_mask_logits.FAULTS, *single_prefill.FAULTS)}
RISING = Fill("sorted")


@pytest.fixture(scope="module")
def replayer():
    with Replayer("cpu", limits=Limits(run=3.0)) as made:
        yield made


def entry(replayer, name, case, spec=None, pairs=1):
    """An entry made by hand: the case judged as it is."""
    spec = spec or FAULTS[name].spec
    verdict = replayer.engine(case).judge(case, [spec], pairs=pairs)[0]
    assert verdict.failed, verdict
    return Entry(FORMAT, signature.signature(case, name, verdict), case, verdict, spec, "cpu")


def explained(replayer, found, **rest):
    explainer = Explainer(replayer, found, **rest)
    explainer.begin()
    return explainer.explain()


def statements(explanation):
    """Parameter -> statement, without the number of values tried."""
    return {each.parameter: each.statement.partition(" (of ")[0] for each in explanation.varied}


ALIGNED = mask_case(1, 4, k=1, offset=4)
TRUNCATED = mask_case(2, 1, k=(1,))
REREAD = mask_case(1, 17, k=1, form="out_is_logits", fill=RISING)
LAST_ROW = prefill_case(16, 1, heads=(1, 1))

BY_HAND = {
    # Vectors of four floats, of a row that starts inside one: only a row of whole vectors takes that path. Elements of
    # 16 bits make vectors of eight.
    "assumes_alignment": (
        ALIGNED,
        {
            "dtype": "only float32",
            "vocab": "only when vocab mod 4 = 0, from 4 on",
            "batch": "batch >= 1",
            "offset of logits": "not when offset of logits mod 16 = 0",
            "type of k": "any type of k",
            "k": "k >= 1",
            "out": "any out, but 4 in another way",
        },
    ),
    # The second row gets the upper half of the first one's k, which is 0 below 2^32.
    "k_int64_read_as_int32": (
        TRUNCATED,
        {
            "dtype": "any dtype",
            "type of k": "only int64 tensor",
            "batch": "batch >= 2",
            "vocab": "vocab >= 1",
            "out": "any out",
            "k": "1 <= k <= 2147483649 (nothing tried between 2147483649 and 1099511627777)",
            "layout of k": "any layout of k",
        },
    ),
    # Rows of up to 16 elements are kept in registers.
    "in_place_rereads": (
        REREAD,
        {
            "dtype": "any dtype",
            "vocab": "vocab >= 17",
            "batch": "batch >= 1",
            "out": "only in place",
            "k": "k >= 1",
            "layout of logits": "any layout of logits",
            "offset of logits": "any offset of logits",
        },
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_planted_fault_is_explained_as_by_hand(replayer, name):
    """Every statement that the fault's source lets one expect."""
    case, expected = BY_HAND[name]
    found = explained(replayer, entry(replayer, name, case))
    told = statements(found)
    assert expected == {parameter: told[parameter] for parameter in expected}
    assert found.complete
    assert found.judged == sum(
        len(values) - (1 if values is each.fails else 0)
        for each in found.varied
        for values in (each.fails, each.passes, each.otherwise, each.inapplicable, each.skipped)
    )


def test_the_last_row_of_a_tile(replayer):
    """Sixteen queries; nothing else of attention matters. In place, the row that is not written is still the query's."""
    found = explained(replayer, entry(replayer, "last_row_of_a_tile_lost", LAST_ROW), budget=200)
    told = statements(found)
    assert ("qo_len >= 16", "any dtype", "any mask") == (told["qo_len"], told["dtype"], told["mask"])
    assert "any out, but in place (out is q) and in place (out a view of q) in another way" == told["out"]
    assert "any kv_len" == told["kv_len"]
    assert [("out", 15), ("out", 15)] == [(element.output, element.index[0]) for element in found.worst[:2]]
    heads = next(each for each in found.varied if each.parameter == "kv_heads")
    assert ("kv_heads 1, nothing else tried", ("1",)) == (heads.statement, heads.fails)
    assert "2" in heads.inapplicable


def test_a_threshold_is_narrowed(replayer):
    """The sizes beside it were no neighbours of the case's own: 100 fails, and so does all from 17 on."""
    case = tidy(replace(mask_case(1, 100, k=1, form="out_is_logits", fill=RISING)))
    found = explained(replayer, entry(replayer, "in_place_rereads", case), budget=70)
    vocab = next(each for each in found.varied if each.parameter == "vocab")
    assert ("16", "17") == (vocab.passes[-1], vocab.fails[0])
    assert "vocab >= 17" == vocab.statement.partition(" (")[0]
    # The budget is kept; every parameter had its turn, and what was not judged is said to be skipped.
    assert (False, True) == (found.complete, found.judged <= 70)
    assert all(len(each.fails) + len(each.passes) + len(each.otherwise) > 1 for each in found.varied)
    assert "4096" in vocab.skipped


def test_an_interrupt_leaves_what_is_known(replayer):
    """As the budget does."""

    def stop(now):
        if now.judged == 12:
            raise KeyboardInterrupt

    explainer = Explainer(replayer, entry(replayer, "in_place_rereads", REREAD), tell=stop)
    explainer.begin()
    found = explainer.explain()
    assert (True, 12, False) == (explainer.interrupted, found.judged, found.complete)
    assert "only in place" not in found.varied[0].statement
    assert found.worst


def test_a_call_that_must_raise(replayer):
    """What it should refuse is what fails; legal calls, and those that are refused, pass."""
    found = explained(replayer, entry(replayer, "raises_runtime_error", mask_case(1, 1, k=-1)), budget=120)
    told = statements(found)
    assert ("only int", "any dtype") == (told["type of k"], told["dtype"])
    k = next(each for each in found.varied if each.parameter == "k")
    assert ("-2", "-1") == k.fails
    assert "0" in k.passes
    assert not found.worst


def test_what_costs_a_process_has_a_small_budget(replayer):
    """And one that needs calls before it."""
    ordinary = Verdict("wrong_set", "m")
    found = Entry(FORMAT, signature.signature(REREAD, "mine", ordinary), REREAD, ordinary, "mine", "cpu")
    dies = replace(found, verdict=Verdict("process_died", "m"))
    assert [500, 40, 40] == [
        Explainer(replayer, each).budget for each in (found, dies, replace(found, context=(TRUNCATED,)))
    ]
    assert 7 == Explainer(replayer, dies, budget=7).budget


def test_an_entry_that_does_not_fail_as_it_says(replayer):
    """It passes, fails otherwise, or cannot be judged here."""
    found = entry(replayer, "in_place_rereads", REREAD)
    with pytest.raises(NotShown, match="it passes"):
        Explainer(replayer, replace(found, implementation=f"{hostile.__file__}:good")).begin()
    with pytest.raises(NotShown, match="it fails in another way than it says, wrong_set: out"):
        Explainer(replayer, replace(found, verdict=Verdict("wrong_nan", "m"))).begin()
    with pytest.raises(NotShown, match="no function 'nowhere'") as cannot:
        Explainer(replayer, replace(found, implementation=f"{hostile.__file__}:nowhere")).begin()
    assert cannot.value.cannot_run


class Compiler:
    """A replayer whose builds fail for two architectures, and with other words for a third value of the flag."""

    device = "cpu"
    forbidden = mismatch = None

    def __init__(self):
        self.limits = Limits()

    def engine(self, subject):
        return self

    def show(self, entry, *, picture):
        return self.build(entry.subject, "")

    def inspect(self, operator, spec):
        return type("Inspected", (), {"tunings": 1})

    def builds(self, operator, spec, params):
        params = {name: value for name, value in params.items() if name != "tuning"}
        return [Build(operator, {**params, "std": std}, arch) for arch in ("a", "b", "c") for std in ("17", "20")]

    def build(self, build, spec):
        if build.arch == "c" or build.params["dtype"] == "float32":
            return Verdict("pass")
        words = "old" if build.params["std"] == "17" else "new"
        return Verdict("build_error", words, replace(Verdict("").evidence, error=words))


def test_a_build_is_varied_over_its_matrix():
    """Each parameter that selects a binary, the toolchain's options, the architecture."""
    build = Build(top_k_mask_logits.OPERATOR, {"dtype": "float16", "k": "int", "std": "17"}, "a")
    verdict = Compiler().build(build, "")
    found = Entry(FORMAT, signature.signature(build, "mine", verdict), build, verdict, "mine", "cpu")
    assert {
        "dtype": "any dtype but float32",
        "k": "any k",
        "std": "any std, but 20 in another way",
        "architecture": "any architecture but c",
    } == statements(explained(Compiler(), found))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("build_error", "the build failed"),
        ("refused", "no output"),
        ("hang", "no output"),
        ("changed_input", "elements"),
    ],
)
def test_why_there_is_no_picture(kind, words):
    """One line for each stage."""
    assert words in no_picture(Verdict(kind))
