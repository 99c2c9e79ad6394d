"""Entry -> one Python file: the environment, the inputs, the call, what was expected, what came. Only what the kind needs."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import PurePath

import torch

from harness import operators
from harness.case import Build, Case
from harness.corpus import Entry
from harness.implementations import Implementation
from harness.memory import POISONS, Memory, dtype_of
from harness.operators import Call
from harness.repro import checks, parts
from harness.repro.call import Kernel, kernel, statement
from harness.repro.generator import Generator
from harness.repro.inputs import Frame, Inputs, guard_of, storages_of
from harness.repro.spell import NoScript
from oracles.judgement import Right

MAX_ELEMENTS = 1 << 24
"""Of all tensors of a case together: what the oracle answers in seconds."""
MAX_CONTEXT = 50
"""Calls that a script makes before the one that fails."""
REPEATS, MOST_REPEATS = 200, 10_000
"""Runs of a failure that comes and goes, where its rate is not known; and at most."""

VALUES = frozenset({"wrong_nan", "wrong_inf", "wrong_set", "divergence"})
RAISES = frozenset({"refused", "device_error", "process_died", "hang"})
"""Legal calls that do not come back as they should; what they answer is not looked at."""
ILLEGAL = frozenset({"accepted_illegal", "unclear_error"})


def script(entry: Entry, *, path: str, implementation: Implementation | None = None) -> str:
    """The text of a Python file that exits 1 while the bug is there and 0 when it is not. Raises NoScript.

    It needs torch and what the implementation needs, nothing of this project's harness. path: the entry's, of which the
    name is said. implementation: the entry's, for its SEMANTICS and TUNING; None stands for one that declares neither.
    """
    subject = entry.subject
    if isinstance(subject, Build):
        return _build(entry, subject, path)
    where = f"use `warpcheck repro {PurePath(path).name}`"
    if subject.schedule or subject.checks:
        what = "an order of threads" if subject.schedule else "a check of the kernel's threads and memory"
        raise NoScript(f"the failure needs {what}, on the CPU, that no plain script can ask for; {where}")
    for case in (subject, *entry.context):
        if sum(max(view.numel, view.span) for view in case.tensors.values()) > MAX_ELEMENTS:
            raise NoScript(f"more than {MAX_ELEMENTS} elements; {where}")
    if len(entry.context) > MAX_CONTEXT:
        raise NoScript(f"the failure needs {len(entry.context)} other calls before it; {where}")
    if "oracle's own memory" in entry.verdict.message:
        raise NoScript(f"it wrote far from any of its tensors; {where}")
    return _Writer(entry, subject, path, implementation).text()


@dataclass(frozen=True)
class _Made:
    """A case with its tensors in this process, and how its call is spelled."""

    case: Case
    memory: Memory
    call: Call
    expression: str
    results: dict[str, str]
    """Output -> the variable that holds it."""

    @property
    def fresh(self) -> bool:
        return any(given is None for given in self.call.returns)

    def statement(self) -> str:
        """The call, its fresh outputs assigned."""
        names = [name if given is None else "_" for name, given in zip(self.results.values(), self.call.returns)]
        return self.expression if set(names) == {"_"} else f"{', '.join(names)} = {self.expression}"


class _Writer:
    """Writes the script of one call."""

    def __init__(self, entry: Entry, case: Case, path: str, implementation: Implementation | None) -> None:
        self.entry, self.case, self.path, self.implementation = entry, case, path, implementation
        self.operator = operators.get(case.operator)
        kind = entry.verdict.kind
        self.repeated = kind == "nondeterministic"
        if self.repeated:
            found = re.search(r"equal calls failed \((\w+): ", entry.verdict.message)
            kind = found[1] if found else "divergence"
        self.kind = kind
        self.poisons = kind == "depends_on_poison"
        executes = implementation is not None and implementation.executes("cpu") and entry.device == "cpu"
        self.hook = "execution" if self.poisons and executes else ""
        frame = Frame(kind in ("wrote_outside", "depends_on_poison"), "poison" if self.poisons else Frame.poison)
        self.inputs = Inputs(Generator(), frame)
        memory = Memory(case, "cpu")
        call = self.operator.bind(case, memory.tensors)
        self.reason = self.operator.contract(call)
        self.kernel = kernel(entry, {*case.tensors, *parts.VARIABLES}, method=call.method, hook=self.hook)
        self.made = self._make(case, memory, call, self.kernel)

    def _make(self, case: Case, memory: Memory, call: Call, target: Kernel) -> _Made:
        expression, results = statement(case, call, memory.tensors, target, self.implementation)
        return _Made(case, memory, call, expression, results)

    def text(self) -> str:
        body, imports = self._body(), list(self.kernel.imports)
        sections = [parts.ENVIRONMENT[self.entry.device]]
        if self.repeated or self.poisons:
            arguments = "poison" if self.poisons else ""
            returned = ["return problems, " + (", ".join(self._compared()) or "None")]
            function = [*body, *returned]
            sections += [*self._context(), f"def attempt({arguments}):\n" + _indented(function), self._runs()]
        else:
            sections += [*self._context(), "\n".join(body), parts.END]
        support = list(self.inputs.generator.functions)
        if "Poisoned(" in "".join(sections):
            support.append(parts.POISONED)
        if self.inputs.frame.guards:
            support.insert(
                0, f"GUARD = {guard_of(self.case)}  # bytes before and after the memory that the kernel is given"
            )
        support += [parts.WATCHDOG] if self.kind == "hang" else []
        sections[1:1] = support
        sections[:0] = [parts.CHILD] if self.kind == "process_died" else []
        start = "\n".join([parts.device(self.entry.device), *imports])
        return _header(self.entry, self.path, self.kernel.needs) + parts.module([start, *sections])

    def _body(self) -> list[str]:
        made = self.made
        lines = ["# The inputs.", *self.inputs.lines(made.case, made.memory), ""]
        start = [*lines, "problems = []"]
        if self.kind in ILLEGAL:
            return [
                *start,
                f"# Expected: ValueError or TypeError, since {self.reason}.",
                *parts.must_raise(made.expression),
            ]
        if self.kind in RAISES:
            return [*start, "# Expected: the call is legal and returns.", *parts.must_return(made.expression)]
        if self.kind in ("in_place_differs", "layout_differs"):
            return [*start, *self._relation()]
        if self.kind in ("changed_input", "wrote_outside"):
            return [*start, *self._memory()]
        rights = self._rights()
        why = f"# Expected: {self._why}."
        if self.kind == "wrong_metadata":
            looks = [checks.Looks(dtype, tuple(right.want.shape)) for right, dtype in rights.values()]
            given = None if made.call.returns[0] is None else next(iter(made.results.values()))
            return [*start, *checks.metadata(made.expression, looks, given, list(made.case.tensors))]
        lines += [*self._called(), "", *textwrap.wrap(why, 100, subsequent_indent="# "), "problems = []"]
        for output in self._judged():
            right = checks.recorded(rights[output][0], self.entry, output)
            lines += checks.lines(made.results[output], output, right, self.entry)
        return lines

    def _called(self) -> list[str]:
        statement = self.made.statement()
        byte = "poison" if self.poisons else Frame.poison
        around = [f"{self.hook}(poison={byte})"] if self.hook else []
        if self.poisons or (self.kind == "unwritten_output" and self.made.fresh):
            around.append(f"Poisoned({byte})")
        lines = [f"with {', '.join(around)}:", f"    {statement}"] if around else [statement]
        return ["# The call.", *lines]

    def _judged(self) -> list[str]:
        """The outputs to look at: the one that was wrong, or all where another may be the next time."""
        worst = self.entry.verdict.evidence.worst
        if worst is not None and worst.output in self.made.results and not (self.repeated or self.poisons):
            return [worst.output]
        return list(self.made.results)

    def _rights(self) -> dict[str, tuple[Right, torch.dtype]]:
        """What is right for each output, with its dtype."""
        copies = {name: self.made.memory.read(name) for name in self.case.tensors}
        declared = self.implementation.semantics(self.entry.device) if self.implementation else {}
        semantics = self.operator.semantics(declared, "cpu")
        reference = self.operator.reference(self.operator.bind(self.case, copies), semantics)
        self._why = self.operator.why(self.case, semantics)
        return {name: (right, reference.dtype[name]) for name, right in self.operator.rights(reference).items()}

    def _memory(self) -> list[str]:
        made = self.made
        writes = sorted(made.call.writes) if self.reason is None else []
        if self.kind == "changed_input":
            inputs = {n: dtype_of(v) for n, v in made.case.tensors.items() if n in made.case.fills and n not in writes}
            before, after = checks.unchanged(inputs)
            expected = "no element of an input changes"
        else:
            before, after = checks.untouched(storages_of(made.case), writes)
            expected = "no byte changes but those of " + (" and ".join(writes) or "a fresh output")
        call = made.expression
        if self.reason is not None:
            expected = f"the call is refused, since {self.reason}, and {expected}"
            return [*before, "with suppress(ValueError, TypeError):", f"    {call}", f"# Expected: {expected}.", *after]
        return [*before, call, "", f"# Expected: {expected}.", *after]

    def _relation(self) -> list[str]:
        """The same call said in a plainer way, and that the results are the same."""
        found = [case for kind, case in self.operator.relations(self.case) if kind == self.kind]
        lines: list[str] = []
        for case in found[:1]:
            memory = Memory(case, "cpu")
            call = self.operator.bind(case, memory.tensors)
            target = kernel(self.entry, {*self.case.tensors, *parts.VARIABLES}, method=call.method)
            plainer = self._make(case, memory, call, target)
            if target.imports != self.kernel.imports:
                lines += target.imports
            lines += [self.made.statement(), *(f"first_{o} = {v}.clone()" for o, v in self.made.results.items()), ""]
            lines += ["# The same, said in a plainer way.", *self.inputs.lines(case, memory), plainer.statement(), ""]
            lines.append("# Expected: the same bits.")
            for output, (_, dtype) in self._rights().items():
                words = "the plainer call gives the second"
                lines += checks.equal(f"first_{output}", plainer.results[output], output, dtype, words)
        if not lines:
            raise NoScript("there is no plainer call to compare with; use `warpcheck repro`")
        return lines

    def _compared(self) -> list[str]:
        """Copies of the results that two runs are compared by."""
        same = self.poisons or (self.repeated and not (self.implementation and self.implementation.nondeterministic))
        if not same or self.reason is not None or self.kind not in {*VALUES, "depends_on_poison", "unwritten_output"}:
            return []
        return [f"{self.made.results[output]}.cpu().clone()" for output in self._judged()]

    def _runs(self) -> str:
        """The runs of `attempt`, and what is said of them."""
        outputs = self._judged() if self._compared() else []
        dtypes = {name: dtype for name, (_, dtype) in self._rights().items()} if outputs else {}
        first = ", ".join(f"first_{name}" for name in outputs) or "_"
        other = ", ".join(f"other_{name}" for name in outputs) or "_"
        if self.poisons:
            a, b = POISONS
            lines = [
                f"problems, {first} = attempt(poison={a:#x})",
                f"more, {other} = attempt(poison={b:#x})",
                "problems += more",
            ]
            for name in outputs:
                words = "it depends on memory that holds no input"
                lines += checks.equal(f"first_{name}", f"other_{name}", name, dtypes[name], words)
            return "\n".join(lines) + "\n\n" + parts.END.strip("\n")
        repeats, said = repeats_of(self.entry)
        lines = [f"# {said}", f"for run in range({repeats}):", f"    problems, {other} = attempt()"]
        if outputs:
            lines += ["    if run == 0:", f"        {first} = {other}"]
        for name in outputs:
            compared = checks.equal(f"first_{name}", f"other_{name}", name, dtypes[name], "equal calls, two results")
            lines += [f"    {line}" for line in compared]
        return "\n".join([*lines, *parts.STOP])

    def _context(self) -> list[str]:
        """The calls that have to come before."""
        if not self.entry.context:
            return []
        lines = [
            f"# First, {len(self.entry.context)} other calls, each made twice as when it was found; what they give is no matter."
        ]
        for case in self.entry.context:
            memory = Memory(case, "cpu")
            call = self.operator.bind(case, memory.tensors)
            target = kernel(self.entry, {*case.tensors, *parts.VARIABLES}, method=call.method)
            lines += [each for each in target.imports if each not in (*self.kernel.imports, *lines)]
            made = self._make(case, memory, call, target)
            inner = [*Inputs(self.inputs.generator, Frame()).lines(case, memory), "with suppress(Exception):"]
            lines += ["for _ in range(2):", *(f"    {line}" for line in inner), f"        {made.expression}"]
        return ["\n".join(lines)]


def repeats_of(entry: Entry) -> tuple[int, str]:
    """How many runs the script makes of a failure that comes and goes, and why so many, in a sentence."""
    rate = entry.frequency
    if rate is None or not rate.repeats:
        return REPEATS, "How often it fails is not known."
    return min(max(rate.repeats, 2), MOST_REPEATS), f"It failed in {rate}."


def _indented(lines: list[str]) -> str:
    return "\n".join(f"    {line}" if line else "" for line in lines)


def plain_text(text: str) -> str:
    """Without folders: a path keeps its last part alone."""
    return re.sub(r"(?<![\w.:/])~?/(?:[^\s/:'\"`]+/)+", "", text)


def _header(entry: Entry, path: str, needs: str) -> str:
    environment = ", ".join(f"{k} {v}" for k, v in sorted(entry.environment.items()))
    lines = [
        *textwrap.wrap(plain_text(entry.verdict.message), 110),
        "",
        f"Exits 1 while the bug is there, 0 when it is not. Needs torch and {needs}.",
        *textwrap.wrap(f"First seen with {environment}.", 110),
        f"Made by `warpcheck repro {PurePath(path).name} --script`.",
    ]
    if not entry.environment:
        lines = [line for line in lines if not line.startswith("First seen with .")]
    text = "\n".join([plain_text(str(entry.signature)), "", *lines])
    return '"""' + text.replace("\\", "\\\\").replace('"""', "'''") + '\n"""\n\n'


def _build(entry: Entry, build: Build, path: str) -> str:
    target = kernel(entry, set(), function="build")
    body = [f"# Expected: it compiles for {build.arch}.", *parts.build(target.call, build)]
    return _header(entry, path, target.needs) + parts.module(["\n".join(target.imports), "\n".join(body)])
