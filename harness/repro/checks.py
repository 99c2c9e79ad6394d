"""What was expected, as statements that compare it with what came: values when few, else the worst and a sample."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from harness.corpus import Entry
from harness.fill import INT
from harness.repro import spell
from harness.repro.spell import NoScript
from oracles.judgement import Right

EXPECTED = 256
"""Elements of an output up to which all of them are spelled out."""
SAMPLE = 24
"""Elements that stand for a larger one, beside the worst."""

STATES = {
    "nan": "got.isnan()",
    "inf": "(got == inf)",
    "-inf": "(got == -inf)",
    "finite": "got.isfinite()",
}
"""How a script asks for what `Right.also` names."""


def recorded(right: Right, entry: Entry, output: str) -> Right:
    """With the bound of the worst element as it was judged: a GPU's own arithmetic may have a closer one than is known here."""
    worst = entry.verdict.evidence.worst
    if right.bound is None or worst is None or worst.output != output:
        return right
    try:
        judged = float(worst.bound)
    except ValueError:
        return right
    bound = right.bound.clone()
    if len(worst.index) == bound.ndim and all(i < n for i, n in zip(worst.index, bound.shape)) and judged >= 0:
        bound[worst.index] = min(float(bound[worst.index]), judged)
    return replace(right, bound=bound)


def lines(result: str, name: str, right: Right, entry: Entry) -> list[str]:
    """Statements that append to `problems` what is wrong with the tensor `result`, an output of that name."""
    right = replace(right, bound=None if right.bound is None else _rounded(right.bound))
    shown = [right.want, *([right.bound] if right.bound is not None else []), *right.also.values()]
    if right.want.numel() <= EXPECTED or all(map(spell.plain, shown)):
        return [*_whole(right), *_compare(result, name, right, index="")]
    if right.quota is not None:
        raise NoScript("more than one result is right, and they are too large to be told; use `warpcheck repro`")
    places = _places(right, entry, name)
    few = replace(
        right,
        want=right.want[places],
        bound=None if right.bound is None else right.bound[places],
        also={state: mask[places] for state, mask in right.also.items() if bool(mask[places].any())},
    )
    index = torch.stack(places, 1).tolist()
    unbroken = ", ".join(str(tuple(i)).replace(" ", "\xa0") for i in index)
    return [
        f"# Of the {right.want.numel()} elements of {name}, the one that was worst and a sample.",
        *(line.replace("\xa0", " ") for line in spell.wrapped("index = [", unbroken, "]")),
        *_whole(few),
        *_compare(f"{result}[tuple(zip(*index))]", name, few, index="index"),
    ]


def _rounded(bound: Tensor) -> Tensor:
    """To five digits, upwards: nobody reads more, and no right result may be called wrong."""
    up = [b if b == 0 or not math.isfinite(b) else float(f"{b * 1.00001:.5g}") for b in bound.reshape(-1).tolist()]
    return torch.tensor(up, dtype=torch.float64).view(bound.shape)


def _places(right: Right, entry: Entry, name: str) -> tuple[Tensor, ...]:
    """The worst element first, then its neighbours, the ends, and some in between."""
    shape, count = right.want.shape, right.want.numel()
    worst = entry.verdict.evidence.worst
    chosen: list[int] = []
    if worst is not None and worst.output == name and len(worst.index) == len(shape):
        at = 0
        for i, n in zip(worst.index, shape):
            at = at * n + i
        chosen = [at, at - 1, at + 1]
    chosen += [i * (count - 1) // (SAMPLE - 1) for i in range(SAMPLE)]
    return torch.unravel_index(torch.tensor(list(dict.fromkeys(i for i in chosen if 0 <= i < count))), shape)


def _whole(right: Right) -> list[str]:
    if right.bound is None:
        stated = spell.define("want", right.want)
    else:
        stated = [*spell.define("want", _readable(right.want, right.bound)), *spell.define("bound", right.bound)]
    for state, mask in right.also.items():
        stated += spell.define(_variable(state), mask)
    if right.quota is not None:
        stated += spell.define("quota", right.quota)
    return stated


def _variable(state: str) -> str:
    return f"or_{state.replace('-', 'minus_')}"


def _readable(want: Tensor, bound: Tensor) -> Tensor:
    """Wants with as few digits as their bounds make sense of: to a ten-thousandth of the bound, or exactly."""
    texts = []
    for exact, within in zip(want.reshape(-1).tolist(), bound.reshape(-1).tolist()):
        digits = next((d for d in range(1, 17) if abs(float(f"{exact:.{d}g}") - exact) <= 1e-4 * within), 17)
        texts.append(float(f"{exact:.{digits}g}") if math.isfinite(exact) else exact)
    return torch.tensor(texts, dtype=torch.float64).view(want.shape)


def _compare(result: str, name: str, right: Right, *, index: str) -> list[str]:
    whole = INT[right.want.dtype.itemsize]
    if right.bound is None:
        compared = [f"got = {result}.cpu()", f"wrong = got.view({whole}) != want.view({whole})  # bit for bit"]
        tolerance = ""
    else:
        compared = [f"got = {result}.cpu().double()", "wrong = ~((got - want).abs() <= bound)"]
        if bool(right.want.isinf().any()):
            compared.append("wrong &= got != want")
        if bool(right.want.isnan().any()):
            compared.append("wrong &= ~(got.isnan() & want.isnan())")
        tolerance = " +- {bound[i].item()}"
    if right.quota is not None:
        compared.append("stay = (or_minus_inf & ~wrong).sum(1)  # of those that may also be -inf")
    for state in right.also:
        compared.append(f"wrong &= ~({STATES[state]} & {_variable(state)})")
    if right.quota is not None:
        compared += [
            "for row in ((stay != quota) & (quota >= 0)).nonzero()[:, 0].tolist():",
            '    problems.append(f"row {row}: {stay[row]} of the elements that may be -inf stay, should be {quota[row]}")',
        ]
    shown = "{got[i].item()}", "{want[i].item()}"
    if right.bound is None and spell.odd(right.want.reshape(-1)):
        shown = (
            f"{shown[0]} (bits {{got.view({whole})[i].item()}})",
            f"{shown[1]} (bits {{want.view({whole})[i].item()}})",
        )
    other = _alternatives(right)
    where = "list(index[i[0]])" if index else "list(i)"
    return [
        *compared,
        "for i in map(tuple, wrong.nonzero().tolist()):",
        f'    problems.append(f"{name}{{{where}}} is {shown[0]}, should be {shown[1]}{tolerance}{other}")',
    ]


def _alternatives(right: Right) -> str:
    words = {"finite": "any number"}
    found = ", ".join(words.get(state, state) for state in right.also)
    return f" (or, where it says so, {found})" if found else ""


@dataclass(frozen=True)
class Looks:
    """What an output has to look like."""

    dtype: torch.dtype
    shape: tuple[int, ...]


def metadata(call: str, looks: list[Looks], given: str | None, inputs: list[str]) -> list[str]:
    """Statements for a call whose result is of the wrong number, kind, dtype, shape or identity."""
    want = ", ".join(f"({each.dtype}, {spell.tuple_of(each.shape)}, device)" for each in looks)
    stated = [
        *([f"address = {given}.data_ptr()"] if given else []),
        f"result = {call}",
        "outputs = result if isinstance(result, (tuple, list)) else (result,)",
        "got = [(x.dtype, tuple(x.shape), x.device.type) if isinstance(x, torch.Tensor) else type(x) for x in outputs]",
        f"want = [{want}]",
        "if got != want:",
        '    problems.append(f"returned {got}, should be {want}")',
    ]
    if given:
        return [
            *stated,
            f"if outputs[0] is not {given}:",
            f'    problems.append("returned another tensor than {given}, which it was given to write")',
            f"elif {given}.data_ptr() != address:",
            f'    problems.append("pointed {given} at other memory")',
        ]
    held = ", ".join(inputs)
    return [
        *stated,
        f"held = {{x.untyped_storage().data_ptr() for x in ({held},) if x.numel()}}",
        "if any(isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() in held for x in outputs):",
        '    problems.append("the fresh output shares memory with an input")',
    ]


def unchanged(inputs: dict[str, torch.dtype]) -> tuple[list[str], list[str]]:
    """(statements before the call, statements after it) that see whether an input was changed."""
    before, after = [], []
    for name, dtype in inputs.items():
        whole = INT[dtype.itemsize]
        before.append(f"{name}_before = {name}.clone()")
        after += [
            f"changed = {name}.view({whole}) != {name}_before.view({whole})",
            "for i in map(tuple, changed.nonzero().tolist()):",
            f'    problems.append(f"its input {name}{{list(i)}} is {{{name}[i].item()}}, was {{{name}_before[i].item()}}")',
        ]
    return before, after


def untouched(memories: list[str], writes: list[str]) -> tuple[list[str], list[str]]:
    """(statements before the call, statements after it) that see whether a byte outside of the outputs was written."""
    before = [
        f"memories = [{', '.join(memories)}]",
        "before = [each.clone() for each in memories]",
        *(f"{name}_before = {name}.clone()" for name in writes),
    ]
    after = [
        *(f"{name}.copy_({name}_before)  # here it may write" for name in writes),
        "for number, (old, new) in enumerate(zip(before, memories)):",
        "    places = (old != new).nonzero()[:, 0].tolist()",
        "    if places:",
        '        where = f"byte {places[0] - GUARD} of memory {number}, {len(places)} bytes in all"',
        '        problems.append(f"wrote outside its output: {where}")',
    ]
    return before, after


def equal(first: str, second: str, name: str, dtype: torch.dtype, words: str) -> list[str]:
    """Statements that compare two results bit for bit; `words`: what is wrong when they differ."""
    whole = INT[dtype.itemsize]
    return [
        f"wrong = {first}.view({whole}) != {second}.view({whole})  # bit for bit",
        "for i in map(tuple, wrong.nonzero().tolist()):",
        f'    problems.append(f"{name}{{list(i)}} is {{{first}[i].item()}} and {{{second}[i].item()}}: {words}")',
    ]
