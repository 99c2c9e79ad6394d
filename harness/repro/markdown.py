"""Entry -> the text of an issue, in GitHub's Markdown, around the script.

It says of the judge's work only what the judge did for this kind of verdict. No folder of a machine gets into it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from harness import operators
from harness.case import Build, Case, View, total_bytes
from harness.corpus import Entry
from harness.explanation import Explanation
from harness.implementations import Implementation
from harness.memory import Memory, dtype_of
from harness.repro.call import kernel, statement
from harness.repro.parts import VARIABLES
from harness.repro.spell import NoScript
from harness.repro.writer import VALUES, plain_text, repeats_of, script
from harness.values import in_words

SYMPTOMS = {
    "build_error": "a supported variant does not compile",
    "build_crash": "compiling a supported variant crashes the compiler",
    "build_timeout": "compiling a supported variant does not end",
    "refused": "a legal call raises",
    "accepted_illegal": "a call that must be refused is accepted",
    "unclear_error": "a call that must be refused raises neither ValueError nor TypeError",
    "device_error": "a legal call ends with an error of the device",
    "process_died": "a legal call kills its process",
    "hang": "a legal call does not return",
    "wrote_outside": "memory outside the output is written",
    "changed_input": "an input is changed",
    "unwritten_output": "elements of the output are never written",
    "wrong_metadata": "what comes back has the wrong shape, dtype, device or identity",
    "wrong_nan": "NaN where there should be none, or none where there should be one",
    "wrong_inf": "an infinity where there should be none, or none where there should be one",
    "wrong_set": "wrong elements are kept or masked",
    "divergence": "results are further off than rounding explains",
    "nondeterministic": "equal calls do not always give the same, right result",
    "depends_on_poison": "the result depends on memory that holds no input",
    "in_place_differs": "in place gives another result than out of place",
    "layout_differs": "the result depends on the memory layout of the inputs",
    "order_differs": "the result depends on the order in which threads run",
}
"""In a few words, by kind."""

_MEMORY = (
    "Stray writes: guard zones, gaps and inputs were compared after each call, and no byte outside the output differed."
)
_UNINITIALISED = (
    "Uninitialised memory: the result was the same bits with either of two patterns in all memory that holds no input "
    "(guard zones, gaps, outputs, fresh allocations of torch)."
)
_REPEATED = "Chance: at least four equal calls all failed, in the same way."
_STEADY = "Chance: equal calls on equal memory gave equal bits, in at least two pairs of calls."
_METADATA = "Metadata: outputs have the right number, shape, dtype, device and identity."
_RIGHT_ALONE = "Plain wrong values: each of the two calls gives a result that is right by itself."

RULED_OUT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(VALUES, (_REPEATED, _UNINITIALISED, _MEMORY, _METADATA)),
    "unwritten_output": (_STEADY, _MEMORY, _METADATA),
    "depends_on_poison": (_STEADY, _MEMORY, _METADATA),
    "in_place_differs": (_RIGHT_ALONE, _MEMORY, _METADATA),
    "layout_differs": (_RIGHT_ALONE, _MEMORY, _METADATA),
    "order_differs": (_RIGHT_ALONE, _MEMORY, _METADATA),
    **dict.fromkeys(("wrote_outside", "changed_input", "refused", "accepted_illegal", "unclear_error"), (_REPEATED,)),
    "wrong_metadata": (_REPEATED, _MEMORY),
}
"""What the judge excludes before it gives a legal call's failure that name."""


def issue(entry: Entry, *, path: str, implementation: Implementation | None = None) -> str:
    """The text; the script stands in it, or the reason why there is none. path: the entry's, of which the name is said."""
    parts = [
        f"# {escape(title(entry))}",
        f"{SYMPTOMS[entry.verdict.kind].capitalize()}: {code(plain_text(entry.verdict.message))}.",
        *_trigger(entry, implementation),
        *_expected(entry, implementation),
        *_script(entry, path, implementation),
        *_rate(entry),
        *_explanation(entry.explanation),
        *_ruled_out(entry),
        "## Environment",
        "First seen with:",
        table(("what", "version"), [(name, value) for name, value in sorted(_environment(entry).items())]),
        *_log(entry),
    ]
    return "\n\n".join(parts) + "\n"


def title(entry: Entry) -> str:
    """One line, without Markdown."""
    signature = entry.signature
    told = ", ".join(signature.traits) or signature.error
    traits = f" ({told})" if told else ""
    return plain_text(f"{signature.operator}/{signature.implementation}: {SYMPTOMS[entry.verdict.kind]}{traits}")


def _trigger(entry: Entry, implementation: Implementation | None) -> Iterator[str]:
    yield "## Smallest trigger"
    subject = entry.subject
    if isinstance(subject, Build):
        params = ", ".join(f"{name}={value!r}" for name, value in subject.params.items())
        yield fenced(f"build: {params}, for {subject.arch}")
        return
    yield fenced(_one_line(entry, subject, implementation), "python")
    rows = []
    for name, view in subject.tensors.items():
        shared = [other for other, v in subject.tensors.items() if v.storage == view.storage and other != name]
        where = f"byte {view.offset}" + (f", in one allocation with {', '.join(shared)}" if shared else "")
        values = in_words(subject.fills[name]) if name in subject.fills else "to be written"
        rows.append((name, view.dtype, str(list(view.shape)), str(list(view.strides)), where, values))
    yield table(("tensor", "dtype", "shape", "strides", "starts at", "values"), rows)
    if entry.context:
        yield f"It fails only after {len(entry.context)} other calls in the same process; the script makes them first."
    if subject.schedule or subject.checks:
        order = f"threads in the order of seed {subject.schedule}" if subject.schedule else "threads in order"
        yield f"The kernel runs on the CPU, {', '.join([order, *(f'checked for {c}' for c in subject.checks)])}."


def _one_line(entry: Entry, case: Case, implementation: Implementation | None) -> str:
    """The call, as the script makes it."""
    # Memory of no size would do, but a call that moves a tensor elsewhere could not be told from one that does not.
    small = total_bytes(case) < 1 << 24
    tensors = Memory(case, "cpu").tensors if small else {name: _meta(view) for name, view in case.tensors.items()}
    call = operators.get(case.operator).bind(case, tensors)
    target = kernel(entry, {*case.tensors, *VARIABLES}, method=call.method)
    return statement(case, call, tensors, target, implementation)[0]


def _meta(view: View) -> Tensor:
    return torch.empty_strided(view.shape, view.strides, dtype=dtype_of(view), device="meta")


def _expected(entry: Entry, implementation: Implementation | None) -> Iterator[str]:
    evidence, subject = entry.verdict.evidence, entry.subject
    worst = evidence.worst
    yield "## Expected and got"
    if worst is not None and worst.want != "?":
        place = f"{worst.output}{list(worst.index)}"
        yield table(("element", "got", "expected", "bound"), [(place, worst.got, worst.want, worst.bound)])
    elif worst is not None:
        yield f"One such element: {code(f'{worst.output}{list(worst.index)}')}, which is {code(worst.got)}."
    else:
        yield f"Got: {code(plain_text(entry.verdict.message))}."
    if evidence.total:
        yield f"{evidence.wrong} of {evidence.total} elements are wrong: {escape(evidence.pattern)}."
    if isinstance(subject, Case) and not entry.verdict.kind.startswith(("accepted", "unclear")):
        operator = operators.get(subject.operator)
        declared = implementation.semantics(entry.device) if implementation else {}
        why = operator.why(subject, operator.semantics(declared, "cpu"))
        yield f"What is right: {escape(why)}."
    elif isinstance(subject, Case):
        yield "What is right: ValueError or TypeError, raised before a byte is written."


def _script(entry: Entry, path: str, implementation: Implementation | None) -> Iterator[str]:
    yield "## Script"
    try:
        text = script(entry, path=path, implementation=implementation)
    except NoScript as reason:
        yield f"None: {escape(str(reason))}."
        return
    yield "Exits 1 while the bug is there, 0 when it is not."
    yield fenced(text, "python")


def _rate(entry: Entry) -> Iterator[str]:
    if entry.verdict.kind == "nondeterministic":
        yield "## How often"
        yield escape(repeats_of(entry)[1])


def _explanation(explanation: Explanation | None) -> Iterator[str]:
    """What `warpcheck explain` found."""
    if explanation is None:
        return
    yield "## What matters"
    yield f"{explanation.coverage}."
    if explanation.matter:
        columns, *rows = explanation.rows()
        yield table(columns, rows)
    if explanation.irrelevant:
        yield f"Irrelevant: {escape(explanation.irrelevant)}."


def _ruled_out(entry: Entry) -> Iterator[str]:
    excluded = RULED_OUT.get(entry.verdict.kind, ())
    if isinstance(entry.subject, Build) or entry.verdict.message.startswith("refused the call") or not excluded:
        return
    yield "## What was ruled out"
    yield "\n".join(f"- {each}" for each in excluded)


def _environment(entry: Entry) -> dict[str, str]:
    return {"device": "GPU" if entry.device == "cuda" else "CPU", **entry.environment}


def _log(entry: Entry) -> Iterator[str]:
    if entry.verdict.evidence.log:
        yield "## Log"
        log = "\n".join(plain_text(line) for line in entry.verdict.evidence.log.splitlines())
        yield f"<details><summary>As it came</summary>\n\n{fenced(log, 'text')}\n\n</details>"


def fenced(text: str, language: str = "") -> str:
    """A code block, its fence longer than any run of backticks in the text."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`+", text)), 0)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def code(text: str) -> str:
    """A code span of one line, which may itself hold backticks."""
    text = " ".join(text.split()) or " "
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def escape(text: str) -> str:
    """Text in which nothing is markup, and nothing names a person or another issue."""
    escaped = re.sub(r"([\\`*<>|~]|(?<!\w)_|_(?!\w)|\](?=\())", r"\\\1", " ".join(text.split()))
    return re.sub(r"@|#(?=\d)", r"\g<0><!-- -->", escaped)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of GitHub's."""
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(escape(plain_text(cell)) or " " for cell in row) + " |" for row in rows]
    return "\n".join(lines)
