"""What is known of why an entry fails: for each parameter of its minimal case, the values that still fail. Pure data."""

from __future__ import annotations

import msgspec

from harness.verdict import Element

LISTED = 6
"""Values of a list that are told; the entry has them all."""


class Varied(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One parameter, varied on its own while everything else stays as in the minimal case.

    Values are text, in the order of their size where they are numbers, else in the operator's. Each was judged and is in
    exactly one of the first three lists, or could not be judged and is in one of the others.
    """

    parameter: str
    """"dtype", "k", a dimension's name, "layout of logits", …"""
    statement: str
    """The shortest true sentence about the values tried, with their number: "vocab >= 17 (of 40 tried)"."""
    fails: tuple[str, ...]
    """Values that fail the same way: the kind and, where the failure speaks, the words of the entry. Its own is among them."""
    passes: tuple[str, ...] = ()
    otherwise: tuple[str, ...] = ()
    """Values that fail in another way, each with the kind: "4096: hang"."""
    inapplicable: tuple[str, ...] = ()
    """Values that make no legal call, and were refused as they should be; or no call at all."""
    skipped: tuple[str, ...] = ()
    """Values that the implementation does not support, or this machine cannot make, or for which the budget was spent."""


class Explanation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What `warpcheck explain` found out about a minimal case."""

    varied: tuple[Varied, ...]
    worst: tuple[Element, ...] = ()
    """The elements furthest from what they should be, the worst first; none where no value is wrong."""
    device: str = "cpu"
    """Where it was judged."""
    judged: int = 0
    """Variants that were judged."""
    complete: bool = True
    """Every variant there is was judged: neither the budget nor an interrupt ended it."""

    @property
    def matter(self) -> tuple[Varied, ...]:
        """The parameters of which some value does not fail, or fails in another way."""
        return tuple(each for each in self.varied if each.passes or each.otherwise)

    @property
    def irrelevant(self) -> str:
        """Those of which every value fails, with how many were tried; "" when there is none."""
        free = [each for each in self.varied if each not in self.matter and len(each.fails) > 1]
        return ", ".join(f"{each.parameter} ({len(each.fails)} tried)" for each in free)

    @property
    def untried(self) -> str:
        """Those of which nothing but their own value could be judged."""
        return ", ".join(e.parameter for e in self.varied if e not in self.matter and len(e.fails) == 1)

    @property
    def coverage(self) -> str:
        """How much the statements rest on."""
        text = f"{self.judged} variants judged on {self.device}, each with one parameter changed"
        return text if self.complete else f"{text}; there are more"

    def rows(self) -> list[tuple[str, ...]]:
        """The table of what matters, its head first."""
        other = any(each.otherwise for each in self.matter)
        head = ("parameter", "fails", "failing values", "passing values", *(["other failures"] if other else []))
        lists = [(each.fails, each.passes, *([each.otherwise] if other else [])) for each in self.matter]
        return [head, *((e.parameter, e.statement, *map(few, values)) for e, values in zip(self.matter, lists))]


def few(values: tuple[str, ...]) -> str:
    """The first values, and the last."""
    if len(values) <= LISTED:
        return ", ".join(values)
    return f"{', '.join(values[: LISTED - 1])}, … {values[-1]} ({len(values)})"
