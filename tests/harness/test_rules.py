"""harness.rules: the first rule that holds, and none that claims more than was tried."""

# ruff: noqa: SIM300 - the expected value stands first

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.rules import family, statement
from tests.harness.making import drawn

SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 15, 16, 17, 20, 24, 31, 32, 33, 40, 48, 63, 64, 65, 80, 96)


def of_sizes(fails, sizes=SIZES):
    return statement("n", [n for n in sizes if fails(n)], [n for n in sizes if not fails(n)])


NUMBERS = {
    "any n (of 27 tried)": lambda n: True,
    "only n = 1 (of 27 tried)": lambda n: n == 1,
    "only n = 96, the largest tried (of 27 tried)": lambda n: n == 96,
    "n >= 1 (of 27 tried)": lambda n: n >= 1,
    "n >= 17 (of 27 tried)": lambda n: n >= 17,
    "n >= 20 (nothing tried between 17 and 20) (of 27 tried)": lambda n: n >= 18,
    "n <= 12 (of 27 tried)": lambda n: n <= 12,
    "any n but 16 (of 27 tried)": lambda n: n != 16,
    "7 <= n <= 12 (nothing tried between 5 and 7) (of 27 tried)": lambda n: 6 <= n <= 12,
    "only when n mod 2 = 1 (of 27 tried)": lambda n: n % 2 == 1,
    "only when n mod 4 = 1 (of 27 tried)": lambda n: n % 4 == 1,
    "only when n mod 4 = 0 (of 27 tried)": lambda n: n % 4 == 0,
    "only when n mod 4 = 0, from 4 on (of 27 tried)": lambda n: n % 4 == 0 and n,
    "only when n mod 16 = 0 (of 27 tried)": lambda n: n % 16 == 0,
    "not when n mod 16 = 0 (of 27 tried)": lambda n: n % 16 != 0,
    "only n 2, 3, 5 and 7 (of 27 tried)": lambda n: n in (2, 3, 5, 7),
    "any n but 2, 3, 5 and 7 (of 27 tried)": lambda n: n not in (2, 3, 5, 7),
    "9 values of n, by no simple rule (of 27 tried)": lambda n: n in (2, 3, 4, 7, 8, 9, 12, 33, 40),
}


@pytest.mark.parametrize("words", NUMBERS)
def test_numbers(words):
    """Each rule, where the ones before it do not hold."""
    assert words == of_sizes(NUMBERS[words])


def test_powers_of_two_are_no_residue():
    """4, 8 and 16 fail and 12 was not tried: a multiple of 4 that is no power of two might pass."""
    assert "only n 4, 8 and 32 (of 7 tried)" == statement("n", [4, 8, 32], [3, 5, 9, 33])


def test_a_residue_needs_values_on_both_sides():
    """Two that fail, or two that pass, are chance."""
    assert "only n 4 and 12 (of 7 tried)" == statement("n", [4, 12], [3, 5, 6, 7, 13])
    assert "any n but 5 and 9 (of 6 tried)" == statement("n", [4, 12, 16, 8], [5, 9])


def test_a_residue_is_not_taken_from_a_class_seen_by_half():
    """All that fail are 1 modulo 8: nothing says that 5 would fail too, and modulo 4 is not claimed."""
    assert "only when n mod 8 = 1 (of 7 tried)" == statement("n", [1, 9, 17, 25], [4, 8, 12])


@given(
    st.dictionaries(st.integers(0, 300), st.booleans(), min_size=2, max_size=40),
    st.sampled_from((2, 4, 8, 16)),
)
@drawn(200)
def test_a_statement_about_a_residue_holds_for_all(found, modulus):
    """Whatever was tried: none that passes is in the class said to fail, and none that fails is outside of it."""
    fails, passes = [n for n in found if found[n]], [n for n in found if not found[n]]
    if not fails:
        return
    words = statement("n", fails, passes)
    for residue in range(modulus):
        if words.startswith(f"only when n mod {modulus} = {residue} ("):
            assert {residue} == {n % modulus for n in fails}
            assert residue not in {n % modulus for n in passes}


@given(st.dictionaries(st.integers(0, 60), st.booleans(), min_size=2, max_size=30))
@drawn(200)
def test_a_threshold_holds_for_all(found):
    """Said if and only if all from one value on fail and all below it pass, with more than one of these."""
    fails, passes = sorted(n for n in found if found[n]), [n for n in found if not found[n]]
    if not fails:
        return
    split = bool(passes) and len(fails) > 1 and max(passes) < fails[0]
    assert split == statement("n", fails, passes).startswith(f"n >= {fails[0]}")


OUT = {
    "in place (a)": 1,
    "in place (b)": 1,
    "fresh": 0,
    "disjoint (a)": 0,
    "disjoint (b)": 0,
}


def of_words(name, values):
    return statement(name, [v for v in values if values[v]], [v for v in values if not values[v]])


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("any out (of 5 tried)", dict.fromkeys(OUT, 1)),
        ("only in place (of 5 tried)", OUT),
        ("any out but in place (of 5 tried)", {value: not fails for value, fails in OUT.items()}),
        ("only in place (a) (of 5 tried)", {**OUT, "in place (b)": 0}),
        ("any out but fresh (of 5 tried)", {**dict.fromkeys(OUT, 1), "fresh": 0}),
        ("any out but disjoint (of 5 tried)", {**OUT, "fresh": 1}),
        ("only in place (a) and disjoint (a) (of 5 tried)", {**OUT, "in place (b)": 0, "disjoint (a)": 1}),
    ],
)
def test_words(words, values):
    """Alone, by their family, by what is left out, as a list; a family of which one passes is not named."""
    assert words == of_words("out", values)


def test_a_word_that_says_nothing_alone_has_its_parameter_before_it():
    """A flag, a number among words."""
    assert "only causal on (of 2 tried)" == statement("causal", ["on"], ["off"])
    assert "only cap 1.0 and 30.0 (of 4 tried)" == statement("cap", [1.0, 30.0], ["none", "other"])


def test_what_fails_otherwise_is_told_apart():
    """It counts as tried, and neither breaks a rule nor makes one."""
    assert "n >= 3, but 9 in another way (of 5 tried)" == statement("n", [3, 4], [1, 2], [9])
    assert "any n, but 3 in another way (of 5 tried)" == statement("n", [3, 4], [], [9, 10, 11])


def test_one_value_is_no_statement():
    """Nothing else was tried; and where nothing fails there is nothing to say."""
    assert "n 4, nothing else tried" == statement("n", [4], [])
    with pytest.raises(ValueError, match="no value of n fails"):
        statement("n", [], [4])


def test_the_family_of_a_word():
    """All before the bracket."""
    assert ["in place", "fresh"] == [family("in place (a view)"), family("fresh")]
