"""Tensors and numbers as Python text that makes the same bits again."""

from __future__ import annotations

import textwrap
from collections import Counter

import torch
from torch import Tensor

from oracles.judgement import bits

WIDTH = 100
FEW = 64
"""Elements of a tensor that differ from all its others, up to which it is said as those others and these."""


class NoScript(ValueError):
    """An entry that no self-contained script can show; the message is one line."""


def numbers(x: Tensor) -> list[str] | None:
    """Each element of a 1-D tensor by its fewest digits, so that `torch.tensor(…, dtype)` has the same bits; None where
    there is a NaN that no literal spells."""
    exact = x.tolist()
    if not x.dtype.is_floating_point:
        return [repr(value) for value in exact]
    texts = [repr(value) for value in exact]
    if not _same(texts, x):
        return None
    for digits in range(1, 17):
        shorter = [f"{value:.{digits}g}" for value in exact]
        fine = bits(torch.tensor([float(text) for text in shorter], dtype=x.dtype)) == bits(x)
        texts = [
            _float(short) if ok and len(_float(short)) < len(text) else text
            for short, ok, text in zip(shorter, fine.tolist(), texts)
        ]
    return texts


def _float(text: str) -> str:
    """With a point or an exponent, so that it reads as a float."""
    return text if any(c in text for c in ".en") else f"{text}.0"


def _same(texts: list[str], x: Tensor) -> bool:
    return torch.equal(bits(torch.tensor([float(text) for text in texts], dtype=x.dtype)), bits(x))


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
    if texts is None:
        whole = define(name, bits(flat).view(shape), device=device)
        seen = ", ".join(repr(value) for value in flat[:8].tolist()) + (", …" if flat.numel() > 8 else "")
        return [f"# The bits of {seen}", *whole, f"{name} = {name}.view({x.dtype})"]
    usual, count = Counter(texts).most_common(1)[0]
    if count == len(texts) and (len(texts) > 1 or not shape):
        return [f"{name} = torch.full({tuple_of(shape)}, {usual}, {kind})"]
    others = [i for i, text in enumerate(texts) if text != usual]
    if others and plain(x):
        places = torch.stack(torch.unravel_index(torch.tensor(others), shape), 1).tolist()
        lines = [f"{name}[{', '.join(map(str, place))}] = {texts[i]}" for i, place in zip(others, places)]
        return [f"{name} = torch.full({tuple_of(shape)}, {usual}, {kind})", *lines]
    return _literal(name, texts, shape, kind)


def _literal(name: str, texts: list[str], shape: tuple[int, ...], kind: str) -> list[str]:
    if len(shape) == 2:
        rows = [texts[i : i + shape[1]] for i in range(0, len(texts), shape[1])]
        body, view = ", ".join(f"[{', '.join(row)}]" for row in rows), ""
    else:
        body, view = ", ".join(texts), "" if len(shape) == 1 else f".view{tuple_of(shape)}"
    return wrapped(f"{name} = torch.tensor([", body, f"], {kind}){view}")


def wrapped(start: str, body: str, end: str) -> list[str]:
    """A statement whose middle is broken at spaces where it is long."""
    if len(start) + len(body) + len(end) <= WIDTH:
        return [start + body + end]
    parts = textwrap.wrap(body, WIDTH - 4, break_long_words=False, break_on_hyphens=False)
    return [start, *(f"    {part}" for part in parts), end]
