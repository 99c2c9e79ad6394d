"""What every operator's strategy is made of: sizes, layouts, alias relations, fills. Elements are never drawn.

Everything is drawn in the order in which it should disappear: features that can be turned off first, sizes next, seeds
last, and the first choice is always the plainest, because that is where Hypothesis shrinks to.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec.structs import replace

from harness.case import Case, Fill, Number, Planted, View, contiguous

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
    ("cuda", "dev"): Scale(1 << 15, 128),
    ("cuda", "pr"): Scale(1 << 17, 512),
    ("cuda", "nightly"): Scale(1 << 22, 4096),
}
"""By device and profile. The CPU's are small, since a Triton program costs milliseconds under the interpreter; and dev is small
everywhere, since small calls are many calls: at 2^18 elements the oracle alone takes twice what drawing the case does."""


_SIZE_CLASSES = st.sampled_from(("small", "small", "tiled", "tiled", "tiled", "plain", "named"))
_PLAIN = st.integers(0, 5000)
_SMALL = st.sampled_from((1, 2, 3, 4, 5, 6, 7, 8, 0))
_TILES = st.sampled_from(TILES)
_COUNTS = st.integers(1, 8)
_BESIDE = st.sampled_from((0, 1, -1, 0, 3, -2))


@functools.lru_cache(1 << 10)
def _one_of(sizes: tuple[int, ...]) -> SearchStrategy[int]:
    """Kept, since to make such a strategy takes as long as many draws."""
    return st.sampled_from(sizes)


def draw_size(draw: DrawFn, limit: int, named: Sequence[int] = ()) -> int:
    """A dimension of at most `limit`: small integers, tile × count + offset, any, or one of the named sizes that fit."""
    kind = draw(_SIZE_CLASSES)
    if kind == "tiled":
        tile = draw(_TILES)
        count, beside = draw(_COUNTS), draw(_BESIDE)
        while tile > limit and tile > TILES[0]:
            tile //= 2
        return max(0, min(limit, tile * min(count, max(1, limit // tile)) + beside))
    if kind == "plain":
        return min(limit, draw(_PLAIN))
    fitting = tuple(n for n in named if n <= limit)
    if kind == "named" and fitting:
        return draw(_one_of(fitting))
    return min(limit, draw(_SMALL))


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in its storage, in elements, before its size is known.

    pad: added to the pitch of the outermost dimension (so −1 makes rows overlap by one). inner: likewise to that of the
    last but one, where there are three. step: stride of the last. turned: the first dimension changes places with the
    next, as if the tensor had been transposed. offset: start. expanded: the first dimension has stride 0.
    """

    pad: int = 0
    offset: int = 0
    expanded: bool = False
    inner: int = 0
    step: int = 1
    turned: bool = False

    def strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) < 2:
            step = 0 if self.expanded else 1 + max(self.pad, 0)
            return (step,) * len(shape)
        order = list(range(len(shape)))  # from the outermost
        if self.turned:
            order[:2] = (1, 0)
        strides, pitch = [0] * len(shape), self.step
        for depth in range(len(shape) - 1, -1, -1):
            strides[order[depth]] = pitch
            size = shape[order[depth]]
            pitch *= size if depth == 1 else max(size, 1)
            pitch += (self.inner if depth == 2 else 0) + (self.pad if depth == 1 else 0)
            pitch = max(pitch, 0)
        return (0 if self.expanded else strides[0], *strides[1:])

    def view(self, storage: int, dtype: str, shape: tuple[int, ...]) -> View:
        plain = View(storage, dtype, shape, self.strides(shape))
        return View(storage, dtype, shape, plain.strides, self.offset * plain.itemsize)


PLAIN = Layout()


_PADS = (1, 3, 8, 16, 64)
_OFFSETS = (1, 2, 3, 4, 7, 8, 16)
_LAYOUTS = (
    *(PLAIN,) * 16,
    *(Layout(pad) for pad in _PADS),
    *(Layout(0, offset) for offset in _OFFSETS),
    *(Layout(pad, offset) for pad in _PADS for offset in _OFFSETS),
)
_EXPANDED = tuple(Layout(0, offset, True) for offset in (0, *_OFFSETS))
_OVERLAPPING = tuple(Layout(-1, offset) for offset in (0, *_OFFSETS))

LAYOUTS = st.sampled_from(_LAYOUTS)
"""Dense and aligned first, a quarter of the time; then padded rows, odd starts, both."""

EXPANDABLE_LAYOUTS = st.sampled_from(_LAYOUTS + _EXPANDED)
"""The same, and a first dimension of stride 0."""

INPUT_LAYOUTS = st.sampled_from(_LAYOUTS + _EXPANDED + _OVERLAPPING)
"""The same, and rows that overlap: what an input that is only read may be."""


_NESTED = (
    *(PLAIN,) * 10,
    *(Layout(pad) for pad in _PADS),
    *(Layout(0, offset) for offset in _OFFSETS),
    *(Layout(pad, offset, inner=inner) for pad in (0, 8) for offset in (0, 1, 8) for inner in (1, 8, 64)),
    *(Layout(pad, offset, inner=inner, turned=True) for pad in (0, 3) for offset in (0, 8) for inner in (0, 8)),
)

NESTED_LAYOUTS = st.sampled_from(_NESTED)
"""For three dimensions or more: each pitch padded on its own, the first two dimensions in either order."""

NESTED_INPUT_LAYOUTS = st.sampled_from(_NESTED + _EXPANDED + _OVERLAPPING)
"""The same, and what an input that is only read may be besides."""

ANY_LAYOUTS = st.sampled_from(
    (
        PLAIN,
        PLAIN,
        Layout(1),
        Layout(3, 1),
        Layout(turned=True),
        Layout(step=2),
        Layout(expanded=True),
        Layout(2, 3, turned=True),
    )
)
"""For a tensor of any strides, the last one included."""


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


SEEDS = st.integers(0, (1 << 32) - 1)

_FEW = st.sampled_from(((1.0, 2.0), (0.0, -0.0, 1.0), (-1.0, 0.5, 3.0, "-inf"), (1.0, "nan", "inf", 2.0)))
_REPEATED = st.sampled_from(((1.0,), (-0.0, 0.0), (1.0, 2.0, 3.0)))
_FILLS = st.sampled_from(
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
_ONE_IN_EIGHT = st.integers(0, 7)
_PLANTED = st.sampled_from(("nan", "inf", "-inf", 0.0, -0.0, 7.0))


def draw_float_fill(draw: DrawFn) -> Fill:
    """A fill of a floating-point input, those that hurt selection and rounding included."""
    kind = draw(_FILLS)
    if kind == "all_minus_inf":
        return Fill("cycle", 0, ("-inf",))
    if kind == "cycle":
        return Fill("cycle", 0, draw(_REPEATED))
    planted: tuple[Planted, ...] = ()
    if draw(_ONE_IN_EIGHT) == 7:
        value: Number = draw(_PLANTED)  # type: ignore[assignment]
        planted = (Planted(0, value),)
    values: tuple[Number, ...] = draw(_FEW) if kind == "choice" else ()
    return Fill(kind, draw(SEEDS), values, planted)


@st.composite
def scheduled(draw: DrawFn, cases: SearchStrategy[Case]) -> Case:
    """These cases, one in eight with an arbitrary order of threads: for kernels whose order the harness decides."""
    schedule = draw(SEEDS) if draw(_ONE_IN_EIGHT) == 7 else 0
    return replace(draw(cases), schedule=schedule)
