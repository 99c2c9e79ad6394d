"""harness.nearest: a stated distance, and what a difference suggests."""

# ruff: noqa: SIM300 - the expected value stands first

from pathlib import Path

from msgspec.structs import replace

from harness.case import FORMAT, Build
from harness.corpus import Entry
from harness.nearest import nearest
from harness.signature import Signature
from harness.verdict import Verdict
from tests.harness.making import NAME, mask_case

CASE = mask_case(k=2)


def entry(name="mine", kind="wrong_set", error="", traits=("float32",), case=CASE, operator=NAME, **rest):
    return Entry(FORMAT, Signature(operator, name, kind, error, traits), case, Verdict(kind, "m"), name, "cpu", **rest)


def found(ours, *others, count=3):
    return nearest(ours, [(Path(f"{i}.json"), other) for i, other in enumerate(others)], count)


def remark(ours, other):
    (one,) = found(ours, other)
    return one.distance, one.differences, one.remark


def test_the_three_nearest():
    """Of the operator, nearest first, the entry itself left out."""
    same_kind = entry(traits=("bfloat16",))
    elsewhere = entry("other")
    far = entry(kind="hang", traits=())
    farther = entry("other", kind="hang", traits=())
    strange = entry(operator="single_prefill")
    others = (farther, far, elsewhere, same_kind, strange, entry())
    assert [same_kind, elsewhere, far] == [near.entry for near in found(entry(), *others)][:3]
    assert [] == found(entry(), entry(), strange)


def test_another_implementation():
    """The slip may be in both."""
    words = "the same failure in another implementation: perhaps the same slip in both"
    assert (4, ("of other",), words) == remark(entry(), entry("other"))
    assert (6, ("of other", "with k_int64"), "the same kind in another implementation") == remark(
        entry(), entry("other", traits=("float32", "k_int64"))
    )


def test_another_dtype():
    """One code path each."""
    distance, differences, words = remark(entry(), entry(traits=("bfloat16",)))
    assert (4, ("with bfloat16", "without float32")) == (distance, differences)
    assert "the same but for bfloat16: perhaps one bug of two code paths" == words


def test_fixed_before():
    """It may have come back."""
    assert (
        "fixed before: perhaps it came back in another form"
        == remark(entry(), entry(traits=("float32", "in_place"), status="fixed"))[2]
    )


def test_other_features():
    """A feature more is another case than another feature."""
    more = entry(traits=("float32", "in_place"))
    assert "one needs a feature more: perhaps it is the other in its clothes" == remark(entry(), more)[2]
    assert "the same kind, from other features" == remark(more, entry(traits=("float32", "out")))[2]


def test_another_kind_or_other_words():
    """Each with its weight; words count where the kind is the same."""
    assert (8, ("wrong_nan instead of wrong_set",), "another failure of the same calls: perhaps one cause") == remark(
        entry(), entry(kind="wrong_nan")
    )
    refused = entry(kind="refused", error="ValueError: no", traits=())
    assert (4, ("says 'TypeError: no'",), "") == remark(refused, replace_error(refused, "TypeError: no"))


def replace_error(found, error):
    return replace(found, signature=replace(found.signature, error=error))


def test_parameters():
    """What the call is given; of builds the architecture too."""
    assert (6, ("with in_place", "form 'in_place' instead of 'new'", "k not given instead of 2")) == (
        remark(entry(), entry(traits=("float32", "in_place"), case=mask_case(k=(1,), form="in_place")))[0] + 2,
        remark(entry(), entry(traits=("float32", "in_place"), case=mask_case(k=(1,), form="in_place")))[1],
    )
    builds = [
        entry(kind="build_error", error=e, traits=(), case=Build(NAME, {"flag": flag}, arch))
        for e, flag, arch in (("a", True, "sm_80"), ("b", False, "sm_90a"))
    ]
    assert (6, ("says 'b'", "flag False instead of True", "arch 'sm_90a' instead of 'sm_80'")) == remark(*builds)[:2]
    assert "a call" in remark(builds[0], entry())[1]
