"""From the values of one parameter that fail and those that pass to the shortest true statement about them.

A statement holds for every value that was tried, and claims nothing that was not tried from both sides: a threshold tells
the gap below it, a residue needs several values in its class and outside. Of those that hold, the first is taken:

    numbers    any; one alone; from a value on; up to a value; all but one; between two; one residue of a power of two;
               all residues but one; one residue, or all but one, from a value on; a list
    words      any; one alone; one family, or all but one; all but one; several families; a list

A word may name its family: "in place (out=logits)" and "in place (the in-place spelling)" are both "in place".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

Value: TypeAlias = int | float | str
"""Of a parameter. Numbers have an order; words have none."""

MODULI = (2, 4, 8, 16, 32, 64, 128, 256)
SUPPORT = 3
"""Values that a residue needs on either side, to be more than chance."""
LISTED = 6
"""Values that a statement lists; of more, only their number is told (the table has them all)."""

NAMED = 2
"""Values that a statement names of those that fail in another way."""


def statement(parameter: str, fails: Sequence[Value], passes: Sequence[Value], otherwise: Sequence[Value] = ()) -> str:
    """What the values tried show, in words, with their number.

    Values that fail in another way speak neither for a rule nor against it, and are told behind it. Raises ValueError
    when nothing fails: there is nothing to state.
    """
    if not fails:
        raise ValueError(f"no value of {parameter} fails")
    tried = len(fails) + len(passes) + len(otherwise)
    if tried == 1:
        return f"{parameter} {fails[0]}, nothing else tried"
    failing, passing = ([v for v in values if not isinstance(v, str)] for values in (fails, passes))
    if len(failing) + len(passing) == len(fails) + len(passes):
        words = _of_numbers(parameter, sorted(failing), sorted(passing))
    else:
        words = _of_words(parameter, [str(v) for v in fails], [str(v) for v in passes])
    if otherwise:
        named = _listed([str(v) for v in otherwise]) if len(otherwise) <= NAMED else str(len(otherwise))
        words += f", but {named} in another way"
    return f"{words} (of {tried} tried)"


def _of_numbers(name: str, fails: list[int | float], passes: list[int | float]) -> str:
    if not passes:
        return f"any {name}"
    low, high = fails[0], fails[-1]
    below, above = [p for p in passes if p < low], [p for p in passes if p > high]
    if len(fails) == 1:
        edge = "" if above else ", the largest tried"
        return f"only {name} = {low}{edge}"
    if len(below) == len(passes):
        return f"{name} >= {low}{_gap(below[-1], low)}"
    if len(above) == len(passes):
        return f"{name} <= {high}{_gap(high, above[0])}"
    if len(passes) == 1:
        return f"any {name} but {passes[0]}"
    if len(below) + len(above) == len(passes):
        return f"{low} <= {name} <= {high}{_gap(below[-1], low)}{_gap(high, above[0])}"
    if (rule := _residue(name, fails, passes)) is not None:
        return rule
    if (rule := _residue(name, fails, [p for p in passes if p > low])) is not None:
        return f"{rule}, from {low} on{_gap(below[-1], low) if below else ''}"
    return _list(name, [str(v) for v in fails], [str(v) for v in passes])


def _gap(before: int | float, after: int | float) -> str:
    """What lies untried between two neighbours of which one fails and one passes."""
    close = isinstance(before, int) and isinstance(after, int) and after - before == 1
    return "" if close else f" (nothing tried between {before} and {after})"


def _residue(name: str, fails: Sequence[int | float], passes: Sequence[int | float]) -> str | None:
    """A class of numbers that are equal modulo a power of two, of which all or none fail."""
    if min(len(fails), len(passes)) < SUPPORT or not all(isinstance(v, int) for v in (*fails, *passes)):
        return None
    for modulus in MODULI:
        for inside, outside, words in ((fails, passes, "only when"), (passes, fails, "not when")):
            residue = inside[0] % modulus
            if any(v % modulus != residue for v in inside) or any(v % modulus == residue for v in outside):
                continue
            # The class is seen in both halves, so that the next modulus is not the one it needs (the modulus itself, a
            # power of two, does not count); and what is said of all other classes is seen in more than one.
            seen = len({v % modulus for v in outside}) > 1 or inside is fails
            if seen and len({v % (2 * modulus) for v in inside if v != modulus}) == 2:
                return f"{words} {name} mod {modulus} = {residue}"
    return None


def family(value: str) -> str:
    """What a word is one of: all before a bracket."""
    return value.partition(" (")[0]


def _of_words(name: str, fails: list[str], passes: list[str]) -> str:
    if not passes:
        return f"any {name}"
    if len(fails) == 1:
        return f"only {_named(name, fails)}"
    failing, passing = ([*dict.fromkeys(map(family, values))] for values in (fails, passes))
    apart = not set(failing) & set(passing)
    if apart and len(failing) == 1:
        return f"only {_named(name, failing)}"
    if apart and len(passing) == 1:
        return f"any {name} but {passing[0]}"
    if len(passes) == 1:
        return f"any {name} but {passes[0]}"
    return _list(name, failing, passing) if apart else _list(name, fails, passes)


_FLAGS = frozenset({"on", "off", "none", "default"})


def _named(name: str, values: list[str]) -> str:
    """The values, behind the parameter's name where they do not stand by themselves."""
    alone = all(value not in _FLAGS and not value.lstrip("-")[:1].isdigit() for value in values)
    return _listed(values) if alone else f"{name} {_listed(values)}"


def _list(name: str, fails: list[str], passes: list[str]) -> str:
    if len(passes) < len(fails) and len(passes) <= LISTED:
        return f"any {name} but {_listed(passes)}"
    return (
        f"only {_named(name, fails)}" if len(fails) <= LISTED else f"{len(fails)} values of {name}, by no simple rule"
    )


def _listed(values: list[str]) -> str:
    if len(values) > LISTED:
        return f"{len(values)} values"
    return " and ".join(filter(None, [", ".join(values[:-1]), values[-1]]))
