"""What every operator's strategy is made of: sizes, layouts, alias relations, fills. Elements are never drawn.

Everything is drawn in the order in which it should disappear: features that can be turned off first, sizes next, seeds
last, and the first choice is always the plainest, because that is where Hypothesis shrinks to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from harness.case import Fill, Number, Planted, View, contiguous

TILES = (16, 32, 64, 128, 256, 1024, 4096)
"""Block sizes of kernels: faults live one past their multiples."""

VOCABULARIES = (32000, 50257, 128256, 151936, 262144)
"""Of Llama 2, GPT-2, Llama 3, Qwen 2 and Gemma."""


@dataclass(frozen=True)
class Scale:
    """How large a drawn call may be.

    elements: of one tensor. rows: of the leading dimension (each is a program, which costs most under an interpreter).
    """

    elements: int = 1 << 14
    rows: int = 64


SCALES = {
    ("cpu", "dev"): Scale(1 << 13, 12),
    ("cpu", "pr"): Scale(1 << 14, 24),
    ("cpu", "nightly"): Scale(1 << 18, 96),
    ("cuda", "dev"): Scale(1 << 20, 512),
    ("cuda", "pr"): Scale(1 << 21, 1024),
    ("cuda", "nightly"): Scale(1 << 24, 8192),
}
"""By device and profile. The CPU's are small: a Triton program costs milliseconds under the interpreter."""


def sizes(limit: int, *, named: Sequence[int] = (), least: int = 0) -> SearchStrategy[int]:
    """A dimension of at most `limit`: small integers, then tile × count + offset, then the named sizes that fit."""
    small = st.integers(least, min(8, limit))
    plain = st.integers(least, limit)
    choices: list[SearchStrategy[int]] = [small, small, plain]
    tiles = [tile for tile in TILES if tile <= limit]
    if tiles:
        choices += [_tiled(tuple(tiles), limit, least)] * 3
    fitting = [n for n in named if n <= limit]
    if fitting:
        choices.append(st.sampled_from(fitting))
    return st.one_of(choices)


@st.composite
def _tiled(draw: DrawFn, tiles: tuple[int, ...], limit: int, least: int) -> int:
    tile = draw(st.sampled_from(tiles))
    count = draw(st.integers(1, max(1, min(8, limit // tile))))
    return max(least, min(limit, tile * count + draw(st.sampled_from((1, 0, -1, 3, -2)))))


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in its storage, in elements, before its size is known.

    pad: added to the pitch of every dimension but the last (so −1 makes rows overlap by one).
    offset: start. expanded: the first dimension has stride 0.
    """

    pad: int = 0
    offset: int = 0
    expanded: bool = False

    def strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) < 2:
            step = 0 if self.expanded else 1 + max(self.pad, 0)
            return (step,) * len(shape)
        inner = contiguous(shape)[1:]
        pitch = max(shape[1] * inner[0] + self.pad, 0)
        return (0 if self.expanded else pitch, *inner)

    def view(self, storage: int, dtype: str, shape: tuple[int, ...]) -> View:
        plain = View(storage, dtype, shape, self.strides(shape))
        return View(storage, dtype, shape, plain.strides, self.offset * plain.itemsize)


PLAIN = Layout()


def layouts(*, expanded: bool = False, overlapping: bool = False) -> SearchStrategy[Layout]:
    """Dense and aligned first; then padded rows, odd starts, and what else is asked for."""
    pads = st.sampled_from((0, 1, 3, 8, 16, 64))
    offsets = st.sampled_from((0, 1, 2, 3, 4, 7, 8, 16))
    options = [
        st.just(PLAIN),
        st.builds(Layout, pads),
        st.builds(Layout, st.just(0), offsets),
        st.builds(Layout, pads, offsets),
    ]
    if expanded:
        options.append(st.builds(Layout, st.just(0), offsets, st.just(True)))
    if overlapping:
        options.append(st.builds(Layout, st.just(-1), offsets))
    return st.one_of(options)


RELATIONS = (
    "apart",
    "after",
    "interleaved",
    "same",
    "shifted_element",
    "shifted_row",
    "shifted_bytes",
    "pitch",
    "own_rows",
)
"""How `out` may lie to an input of the same shape: in its own storage; behind it in one storage; its rows between the
input's; exactly on it; moved by one element, one row, 16 bytes; on it with another pitch; with rows that overlap."""

LEGAL_RELATIONS = RELATIONS[:4]


def related_view(view: View, relation: str, storages: int) -> tuple[View, View]:
    """The input's view (it may have to move) and the view of `out`, for a relation of RELATIONS.

    `storages` is the number of storages so far; relation "apart" (and "own_rows") uses a new one, number `storages`.
    """
    size, shape = view.itemsize, view.shape
    pitch = max(view.strides[0], math.prod(shape[1:])) if shape else 1

    def moved(elements: int, strides: tuple[int, ...] = view.strides, storage: int = view.storage) -> View:
        return View(storage, view.dtype, shape, strides, view.offset + elements * size)

    if relation == "apart":
        return view, View(storages, view.dtype, shape, contiguous(shape))
    if relation == "own_rows":
        return view, View(storages, view.dtype, shape, (max(math.prod(shape[1:]) - 1, 0), *contiguous(shape)[1:]))
    if relation == "after":
        return view, moved(view.span)
    if relation == "interleaved":
        wide = (2 * pitch, *view.strides[1:])
        return moved(0, wide), moved(pitch, wide)
    if relation == "same":
        return view, view
    if relation == "shifted_element":
        return view, moved(1)
    if relation == "shifted_row":
        return view, moved(pitch)
    if relation == "shifted_bytes":
        return view, moved(16 // size)
    if relation == "pitch":
        return view, moved(0, (pitch + 1, *view.strides[1:]))
    raise ValueError(f"unknown relation {relation!r}")


SEEDS = st.integers(0, 1 << 16) | st.integers(0, (1 << 32) - 1)

FEW: tuple[tuple[Number, ...], ...] = ((1.0, 2.0), (0.0, -0.0, 1.0), (-1.0, 0.5, 3.0, "-inf"), (1.0, "nan", "inf", 2.0))


@st.composite
def float_fills(draw: DrawFn) -> Fill:
    """Fills of floating-point inputs, those that hurt selection and rounding included."""
    kind = draw(
        st.sampled_from(
            (
                "cycle",
                "sorted",
                "choice",
                "spread",
                "spread",
                "near",
                "outlier",
                "mostly_minus_inf",
                "specials",
                "raw",
                "all_minus_inf",
            )
        )
    )
    if kind == "all_minus_inf":
        return Fill("cycle", 0, ("-inf",))
    if kind == "cycle":
        return Fill("cycle", 0, draw(st.sampled_from(((1.0,), (-0.0, 0.0), (1.0, 2.0, 3.0)))))
    planted: tuple[Planted, ...] = ()
    if draw(st.integers(0, 7)) == 7:
        values: tuple[Number, ...] = ("nan", "inf", "-inf", 0.0, -0.0, 7.0)
        planted = (Planted(0, draw(st.sampled_from(values))),)
    if kind == "choice":
        return Fill("choice", draw(SEEDS), draw(st.sampled_from(FEW)), planted)
    return Fill(kind, draw(SEEDS), (), planted)
