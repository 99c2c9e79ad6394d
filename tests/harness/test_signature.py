"""harness.signature: what tells two failures apart, and what does not."""

# ruff: noqa: SIM300 - the expected value stands first

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.case import Build, Fill, View
from harness.operators import top_k_mask_logits
from harness.signature import Signature, bucket, same, signature
from harness.strategies import SCALES
from harness.verdict import STAGE_OF, Element, Evidence, Verdict
from tests.harness.making import drawn, mask_case

WRONG_SET = Verdict(
    "wrong_set", "out[0, 1] is -inf", Evidence(Element("out", (0, 1), "-inf", "1.0"), 1, 10, "one element")
)


def of(case, verdict=WRONG_SET, name="mine"):
    return signature(case, name, verdict)


@pytest.mark.parametrize(
    "other",
    [
        mask_case(7, 4096),
        mask_case(k=1),
        mask_case(fill=Fill("raw", 99)),
        mask_case(1, 1),
    ],
)
def test_sizes_seeds_and_values_do_not_matter(other):
    """One signature for every size, k, kind of fill and seed."""
    assert of(mask_case()) == of(other)
    assert bucket(mask_case(), "mine", WRONG_SET) == bucket(other, "mine", WRONG_SET)


@drawn(100)
@given(st.integers(0, 100), st.text(max_size=20), st.integers(0, 5))
def test_evidence_of_values_does_not_matter(index, words, wrong):
    """Where the worst element is, how many fail, in what pattern, and the message."""
    other = Verdict("wrong_set", words, Evidence(Element("out", (index, 0), "nan", "2.0"), wrong, 100, words))
    assert of(mask_case()) == of(mask_case(), other)


@pytest.mark.parametrize(
    ("case", "trait"),
    [
        (mask_case(dtype="bfloat16"), "bfloat16"),
        (mask_case(form="in_place"), "in_place"),
        (mask_case(form="out_is_logits"), "out_is_logits"),
        (mask_case(k=(1, 2)), "k_int64"),
        (mask_case(pitch=9), "logits padded"),
        (mask_case(offset=4), "logits misaligned"),
        (mask_case(form="out", out=View(0, "float32", (2, 5), (5, 1), 40)), "out apart logits"),
    ],
)
def test_what_the_minimal_case_still_needs_matters(case, trait):
    """A feature that could not be turned off is part of the signature."""
    assert trait in of(case).traits
    assert of(mask_case()) != of(case)


def test_operator_implementation_and_kind_matter():
    """Each tells signatures apart."""
    base = of(mask_case())
    assert base != of(mask_case(), name="other")
    assert base != of(mask_case(), replace(WRONG_SET, kind="wrong_nan"))
    assert base != of(replace(mask_case(), operator="top_k_mask_logits"), replace(WRONG_SET, kind="divergence"))


def spoken(text, kind="refused"):
    return Verdict(kind, text, Evidence(error=text))


def test_failures_that_speak_are_told_apart_by_their_words():
    """Two errors are two signatures, and the case's features take no part."""
    assert of(mask_case(), spoken("ValueError: a")) != of(mask_case(), spoken("ValueError: b"))
    assert of(mask_case(), spoken("ValueError: a")) == of(mask_case(dtype="float16", pitch=9), spoken("ValueError: a"))


def test_the_way_a_process_died_does_not_hide_what_it_needs():
    """process_died has an error (the signal), but its features count: two crashes are rarely one."""
    died = spoken("died of SIGSEGV", "process_died")
    assert of(mask_case(), died) != of(mask_case(dtype="bfloat16"), died)


def test_builds_are_told_apart_by_their_first_error_alone():
    """Neither architecture nor parameters are part of it."""
    verdict = spoken("nvrtc: identifier is undefined", "build_error")
    a = signature(Build("op", {"dtype": "float16"}, "sm_80"), "cuda", verdict)
    b = signature(Build("op", {"dtype": "bfloat16"}, "sm_120a"), "cuda", verdict)
    assert a == b
    assert a != signature(Build("op", {}, "sm_80"), "cuda", spoken("nvrtc: another", "build_error"))


def test_a_slug_is_a_short_file_name():
    """Letters, digits, - and _ alone, at most 100 of them, whatever the error says."""
    for error in ("../../etc/passwd", "a" * 500, "ü\n\x00/", ""):
        slug = Signature("op", "impl", "refused", error).slug
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,100}", slug), slug


def test_slugs_differ_where_signatures_do():
    """By a hash, even where the readable part is the same."""
    assert Signature("op", "a", "refused", "x!").slug != Signature("op", "a", "refused", "x?").slug
    assert Signature("op", "a", "refused", "a" * 200).slug != Signature("op", "a", "refused", "a" * 201).slug
    assert Signature("op", "a", "k", "", ("float32",)).slug != Signature("op", "b", "k", "", ("float32",)).slug


def test_slugs_never_change():
    """They are names of files that people refer to."""
    assert "wrong_set-float32-in_place-bf323ffe" == Signature("op", "a", "wrong_set", "", ("float32", "in_place")).slug


def test_a_signature_reads_well():
    """Operator, implementation, kind, and what characterises it."""
    assert "op/a wrong_set (float32, in_place)" == str(Signature("op", "a", "wrong_set", "", ("float32", "in_place")))
    assert "op/a refused (ValueError: no)" == str(Signature("op", "a", "refused", "ValueError: no"))


@drawn(100)
@given(top_k_mask_logits.cases(SCALES["cpu", "dev"]), st.sampled_from(sorted(STAGE_OF)))
def test_a_bucket_is_coarser_than_a_signature(case, kind):
    """Every drawn case has both, and the bucket's traits are among the signature's."""
    verdict = Verdict(kind)
    assert set(bucket(case, "mine", verdict).traits) <= set(signature(case, "mine", verdict).traits)


def test_operators_are_told_apart():
    """Their implementations have the same names, and one header may break them all with the same words."""
    builds = [Build(name, {}, "sm_80") for name in ("one", "two")]
    verdict = Verdict("build_error", evidence=Evidence(error="no such file"))
    assert 2 == len({signature(build, "cuda", verdict) for build in builds})
    assert 2 == len({bucket(build, "cuda", verdict) for build in builds})


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (Verdict("refused", evidence=Evidence(error="x")), Verdict("refused", evidence=Evidence(error="x")), True),
        (Verdict("refused", evidence=Evidence(error="x")), Verdict("refused", evidence=Evidence(error="y")), False),
        (Verdict("hang", evidence=Evidence(error="x")), Verdict("refused", evidence=Evidence(error="x")), False),
        (WRONG_SET, Verdict("wrong_set"), True),
    ],
)
def test_failures_are_the_same_by_kind_and_words(a, b, expected):
    """Where they speak; two wrong results are the same whatever is wrong in them."""
    assert expected == same(a, b)
