"""Tensors and numbers as Python text that makes the same bits again."""

from __future__ import annotations

import textwrap
from collections import Counter

import torch
from torch import Tensor

from oracles.judgement import INT_OF_SIZE, bits

WIDTH = 100
MANY_ODD = 8
"""NaNs that no literal spells, above which a tensor is told by its bits."""
FEW = 64
"""Elements of a tensor that differ from all its others, up to which it is said as those others and these."""


class NoScript(ValueError):
    """An entry that no self-contained script can show; the message is one line."""


def numbers(x: Tensor) -> list[str]:
    """Each element of a 1-D tensor by its fewest digits, so that `torch.tensor(…, dtype)` has the same bits; but a NaN is
    "nan", whatever its sign and payload (`odd` tells which ones these are)."""
    exact = x.tolist()
    texts = [repr(value) for value in exact]
    if not x.dtype.is_floating_point:
        return texts
    for digits in range(1, 17):
        shorter = [_float(f"{value:.{digits}g}") for value in exact]
        fine = bits(torch.tensor([float(text) for text in shorter], dtype=x.dtype)) == bits(x)
        texts = [s if ok and len(s) < len(text) else text for s, ok, text in zip(shorter, fine.tolist(), texts)]
    return texts


def odd(x: Tensor) -> list[int]:
    """The elements of a 1-D tensor that no literal spells: NaNs with a sign or a payload."""
    if not x.dtype.is_floating_point:
        return []
    return (x.isnan() & (bits(x) != bits(torch.full_like(x, torch.nan)))).nonzero()[:, 0].tolist()


def _float(text: str) -> str:
    """With a point or an exponent, so that it reads as a float."""
    return text if any(c in text for c in ".en") else f"{text}.0"


def tuple_of(sizes: tuple[int, ...]) -> str:
    """A shape or an index, as Python writes it."""
    return repr(tuple(sizes))


def plain(x: Tensor) -> bool:
    """Whether a tensor is one value but for a few elements."""
    if x.numel() == 0:
        return True
    _, counts = bits(x.reshape(-1)).unique(return_counts=True)
    return x.numel() - int(counts.max()) <= (FEW if x.numel() > 4 * FEW else 0)


def define(name: str, x: Tensor, *, device: str = "") -> list[str]:
    """Statements that make `name` a contiguous tensor with the bits of x; `device`: ", device=…" or nothing."""
    kind, shape = f"dtype={x.dtype}{device}", tuple(x.shape)
    if x.numel() == 0:
        return [f"{name} = torch.empty({tuple_of(shape)}, {kind})"]
    flat = x.contiguous().reshape(-1)
    texts = numbers(flat)
    patched = odd(flat)
    whole = INT_OF_SIZE[x.element_size()]
    if len(patched) > MANY_ODD:
        bit_lines = define(name, bits(flat).view(shape), device=device)
        return [f"# As bits, since there are NaNs of several kinds: {', '.join(texts[:6])}, …", *bit_lines,
                f"{name} = {name}.view({x.dtype})"]  # fmt: skip
    patches = [
        f"{name}.view({whole})[{', '.join(map(str, _place(i, shape)))}] = {int(bits(flat)[i])}  # a NaN of these bits"
        for i in patched
    ]
    return [*_spelled(name, texts, x, shape, kind), *patches]


def _place(flat: int, shape: tuple[int, ...]) -> list[int]:
    return [int(i) for i in torch.unravel_index(torch.tensor(flat), shape)]


def _spelled(name: str, texts: list[str], x: Tensor, shape: tuple[int, ...], kind: str) -> list[str]:
    usual, count = Counter(texts).most_common(1)[0]
    if count == len(texts) and (len(texts) > 1 or not shape):
        return [f"{name} = torch.full({tuple_of(shape)}, {usual}, {kind})"]
    others = [i for i, text in enumerate(texts) if text != usual]
    if others and plain(x):
        lines = [f"{name}[{', '.join(map(str, _place(i, shape)))}] = {texts[i]}" for i in others]
        return [f"{name} = torch.full({tuple_of(shape)}, {usual}, {kind})", *lines]
    return _literal(name, texts, shape, kind)


def _literal(name: str, texts: list[str], shape: tuple[int, ...], kind: str) -> list[str]:
    if len(shape) == 2:
        rows = [texts[i : i + shape[1]] for i in range(0, len(texts), shape[1])]
        line = f"{name} = torch.tensor([{', '.join('[' + ', '.join(row) + ']' for row in rows)}], {kind})"
        if len(line) <= WIDTH:
            return [line]
        body = [f"    {line}" for row in rows for line in wrapped("[", ", ".join(row), "],")]
        return [f"{name} = torch.tensor([", *body, f"], {kind})"]
    view = "" if len(shape) == 1 else f".view{tuple_of(shape)}"
    return wrapped(f"{name} = torch.tensor([", ", ".join(texts), f"], {kind}){view}")


def wrapped(start: str, body: str, end: str) -> list[str]:
    """A statement whose middle is broken at spaces where it is long."""
    if len(start) + len(body) + len(end) <= WIDTH:
        return [start + body + end]
    parts = textwrap.wrap(body, WIDTH - 4, break_long_words=False, break_on_hyphens=False)
    return [start, *(f"    {part}" for part in parts), end]
