"""What is known of why an entry fails: for each parameter of its minimal case, the values that still fail. Pure data."""

from __future__ import annotations

import msgspec

from harness.verdict import Element


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
