"""What a case uses beyond the plainest call, in a few stable words: layouts, alias relations, the operator's own features.

Two failures are told apart by these words (`harness.signature`), and shrinking is turning them off (`harness.steps`).
"""

from __future__ import annotations

from harness import operators
from harness.case import Case, View, contiguous

VECTOR_BYTES = 16
"""The widest load a thread makes: a start that is no multiple of it is misaligned."""


def layout(view: View) -> list[str]:
    """How a view differs from a dense, aligned one: expanded, overlapping, padded, misaligned."""
    words = []
    dense = contiguous(view.shape)
    real = [(s, d) for n, s, d in zip(view.shape, view.strides, dense) if n > 1]
    if any(s == 0 for s, _ in real):
        words.append("expanded")
    elif view.overlaps_itself:
        words.append("overlapping")
    elif any(s != d for s, d in real):
        words.append("padded")
    if view.offset % VECTOR_BYTES:
        words.append("misaligned")
    return words


def relation(a: View, b: View) -> str:
    """How two views of one storage lie to each other: same, apart, interleaved (their spans cross)."""
    if (a.offset, a.shape, a.strides, a.dtype) == (b.offset, b.shape, b.strides, b.dtype):
        return "same"
    if a.end <= b.offset or b.end <= a.offset:
        return "apart"
    return "interleaved"


def aliases(case: Case) -> list[str]:
    """A word for each pair of tensors that share a storage: `out same logits`."""
    names = sorted(case.tensors)
    words = []
    for i, a in enumerate(names):
        for b in names[:i]:
            if case.tensors[a].storage == case.tensors[b].storage:
                words.append(f"{a} {relation(case.tensors[a], case.tensors[b])} {b}")
    return words


def main_dtype(case: Case) -> str:
    """The dtype of the operator's first tensor: the one its kernels are specialised for."""
    first = next(name for name in operators.get(case.operator).dimensions(case) if name in case.tensors)
    return case.tensors[first].dtype


def traits(case: Case) -> tuple[str, ...]:
    """All of a case's words, dtype first."""
    words = [*coarse_traits(case)]
    for name, view in case.tensors.items():
        words += [f"{name} {word}" for word in layout(view)]
    return tuple(words)


def coarse_traits(case: Case) -> tuple[str, ...]:
    """Those that stay within one family of code paths: the dtype, how memory is shared, what the kernel was tuned to, and
    whether threads run in another order than their own."""
    tuned = ("tuned",) if case.tuning else ()
    scheduled = ("scheduled",) if case.schedule else ()
    return (main_dtype(case), *operators.get(case.operator).features(case), *aliases(case), *tuned, *scheduled)
