"""Entry -> one file that shows the bug: needs torch and the implementation, not this project.

Inputs and the expected result stand in it as literal values, so it is for small cases, which minimal ones are; a larger
one is refused with a clear error (`warpcheck repro ENTRY` judges those).
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor

from harness import operators
from harness.case import Build, Case, View
from harness.corpus import Entry
from harness.implementations import Implementation, built_in
from harness.memory import Memory
from oracles.judgement import Reference, bits

MAX_LITERALS = 4096
"""Elements of all tensors together that a script may spell out."""


class NoScript(ValueError):
    """An entry that no self-contained script can show; the message is one line."""


def script(entry: Entry, *, path: str, implementation: Implementation | None = None) -> str:
    """The text of a Python file that exits 1 while the bug is there and 0 when it is not. Raises NoScript.

    implementation: the entry's, for its SEMANTICS and TUNING; None stands for one that declares neither.
    """
    if isinstance(entry.subject, Build):
        return _build_script(entry, entry.subject, path)
    if entry.context:
        raise NoScript("the failure needs other calls before it in the same process; use `warpcheck repro`")
    case = entry.subject
    if case.schedule or case.checks:
        raise NoScript("the failure needs an order of threads, or a check, that `warpcheck repro` knows how to ask for")
    if sum(max(view.numel, view.span) for view in case.tensors.values()) > MAX_LITERALS:
        raise NoScript(f"more than {MAX_LITERALS} elements; use `warpcheck repro`")
    return _call_script(entry, case, path, implementation)


def _header(entry: Entry, path: str) -> str:
    environment = ", ".join(f"{k} {v}" for k, v in sorted(entry.environment.items()))
    return f'''"""{entry.signature}

{entry.verdict.message}
First seen with {environment}.
Exits 1 while the bug is there, 0 when it is not. Made by `warpcheck repro {path} --script`.
"""
'''


def _import(entry: Entry) -> str:
    """Lines that define `kernel` (and `kernel_`, the in-place spelling, where the case uses it)."""
    spec, operator = entry.implementation, entry.signature.operator
    in_place = isinstance(entry.subject, Case) and entry.subject.params.get("form") == "in_place"
    if spec in built_in(operator):
        name = f"{operator}_" if in_place else operator
        lines = (
            "from functools import partial\n",
            f"from impls.{operator} import {name}\n",
            "kernel = partial({0}, backend={1!r})\n",
        )
        return "\n".join(lines).format(name, spec)
    where, _, function = spec.rpartition(":")
    function += "_" if in_place else ""
    if where.endswith(".py"):
        return (
            f"import runpy\n\nfile = {where!r}  # of the kernel under test\n"
            "sys.path.insert(0, os.path.dirname(os.path.abspath(file)))\n"
            f"kernel = runpy.run_path(file)[{function!r}]\n"
        )
    return f"from {where} import {function} as kernel\n"


def _build_script(entry: Entry, build: Build, path: str) -> str:
    spec, operator = entry.implementation, entry.signature.operator
    where = spec.rpartition(":")[0]
    if spec in built_in(operator):
        load = f"from impls.{operator}.{spec} import build"
    elif where.endswith(".py"):
        load = f"import runpy\n\nbuild = runpy.run_path({where!r})['build']"
    else:
        load = f"from {where} import build"
    return (
        _header(entry, path)
        + f"import sys\nimport traceback\n\n{load}\n\ntry:\n    build({build.params!r}, {build.arch!r})\n"
        + "except Exception:\n    traceback.print_exc()\n    sys.exit(1)\nprint('builds')\n"
    )


def _literal(x: Tensor) -> tuple[str, str]:
    """An expression for a 1-D tensor, and what a reader should be told of it.

    Plain values where they say all; bit patterns where there is a NaN with a payload, which no literal spells.
    """
    values = [repr(v) for v in x.tolist()]
    spelled = torch.tensor([float(v) for v in values] if x.dtype.is_floating_point else x.tolist(), dtype=x.dtype)
    if torch.equal(bits(spelled), bits(x)):
        return f"torch.tensor([{', '.join(values)}], dtype={x.dtype})", ""
    return (
        f"torch.tensor({bits(x).tolist()}, dtype={bits(x).dtype}).view({x.dtype})",
        f"the bits of {', '.join(values[:16])}",
    )


def _view_lines(case: Case, memory: Memory) -> tuple[list[str], list[str]]:
    """(definitions of the views, lines that write the inputs)."""
    define, write = [], []
    for name, view in case.tensors.items():
        where = f"storages[{view.storage}], torch.{view.dtype}, {list(view.shape)}, {list(view.strides)}, {view.offset}"
        define.append(f"    {name} = view({where})")
        if name not in case.fills:
            continue
        target, shape = name, f".view({list(view.shape)})"
        if view.overlaps_itself:
            view = View(view.storage, view.dtype, (view.span,), (1,), view.offset)
            target = f"view(storages[{view.storage}], torch.{view.dtype}, [{view.span}], [1], {view.offset})"
            shape = ""
        literal, comment = _literal(memory.window(view).reshape(-1))
        write += [f"    # {name}: {comment}"] if comment else []
        write.append(f"    {target}.copy_({literal}{shape})")
    return define, write


def _call_script(entry: Entry, case: Case, path: str, implementation: Implementation | None) -> str:
    operator = operators.get(case.operator)
    memory = Memory(case, "cpu")
    call = operator.bind(case, memory.tensors)
    reason = operator.contract(call)
    define, write = _view_lines(case, memory)
    # operator.bind was given tensors; the script gives the same ones by name.
    names = {id(tensor): name for name, tensor in memory.tensors.items()}

    def spell(value: object) -> str:
        if isinstance(value, Tensor):
            return names.get(id(value)) or f"{_moved(case)}.to('cpu' if device == 'cuda' else 'meta')"
        return repr(value)

    keywords = {**call.kwargs, **(implementation.tuning(case.tuning) if implementation else {})}
    arguments = ", ".join([*map(spell, call.args), *(f"{k}={spell(v)}" for k, v in keywords.items())])
    writes = ", ".join(sorted(call.writes))
    expected: list[str] = []
    if reason is None:
        semantics = operator.semantics(implementation.semantics if implementation else {}, "cpu")
        reference = operator.reference(operator.bind(case, {n: memory.read(n) for n in case.tensors}), semantics)
        if not (reference.unique or reference.free):
            raise NoScript("more than one result is right; use `warpcheck repro`")
        expected = [_expected(reference, name) for name in operator.OUTPUTS[: len(call.returns)]]
    sizes = list(case.storages)
    device_line = 'device = "cuda" if torch.cuda.is_available() else "cpu"'
    if entry.device == "cpu":
        device_line += "\n" + _INTERPRETER
    return "\n".join(
        [
            _header(entry, path)
            + "import faulthandler\nimport math\nimport os\nimport sys\n\nimport torch\nfrom torch.overrides import "
            "TorchFunctionMode\n",
            device_line,
            "nan, inf = math.nan, math.inf\n",
            _import(entry),
            _SUPPORT.format(align=256, limit=120),
            "",
            "def attempt(poison):",
            f"    storages = [storage(size, poison) for size in {sizes}]",
            *define,
            *write,
            "    before = [s.clone() for s in storages]",
            f"    illegal = {reason!r}",
            "    try:",
            "        with Poisoned(poison):",
            f"            got = kernel({arguments})",
            "        if device == 'cuda':",
            "            torch.cuda.synchronize()",
            "    except (ValueError, TypeError) as error:",
            "        return None if illegal else f'raised {error!r} on a legal call'",
            "    except Exception as error:",
            "        return f'raised {error!r}' + (f', no ValueError or TypeError, where {illegal}' if illegal else '')",
            "    if illegal:",
            "        return f'accepted a call where {illegal}'",
            "    got = got if isinstance(got, (tuple, list)) else (got,)",
            f"    if {_identity(call, names)}:",
            "        return f'returned {type(got[0]).__name__}, not the tensor it was given'",
            "    results = [x.clone() if isinstance(x, torch.Tensor) else x for x in got]",
            f"    for written in [{writes}]:",
            "        restore(before, written, storages)",
            "    for i, (old, new) in enumerate(zip(before, storages)):",
            "        if not torch.equal(old, new):",
            "            byte = int((old != new).nonzero()[0]) - GUARD",
            "            return f'wrote to byte {byte} of storage {i}, which is not its output'",
            "    expected = [  # dtype, what it should be, and by how much it may differ (None: not by a bit)",
            *(f"        {line}," for line in expected),
            "    ]",
            "    if len(results) != len(expected):",
            "        return f'returned {len(results)} values, should be {len(expected)}'",
            "    return next(filter(None, map(differs, results, *zip(*expected))), None)",
            "",
            _MAIN.format(repeats=50 if entry.verdict.kind == "nondeterministic" else 2),
        ]
    )


def _moved(case: Case) -> str:
    return next((name for name in ("k",) if name in case.tensors), next(iter(case.tensors)))


def _expected(reference: Reference, name: str) -> str:
    """A tuple of an output's dtype, the right values, and their bounds where they are not exact."""
    want, dtype = reference.want[name], reference.dtype[name]
    shape = f".view({list(want.shape)})"
    if reference.unique:
        exact = want.to(dtype)
        source = reference.extra.get("bits")
        if source is not None:  # a kept NaN has its input's payload
            exact = torch.where(exact == -math.inf, exact, source.view(dtype))
        return f"({dtype}, {_literal(exact.reshape(-1))[0]}{shape}, None)"
    bound = reference.bound[name]
    if name in reference.free:
        bound = torch.where(reference.free[name], math.inf, bound)
    return f"({dtype}, {_literal(want.reshape(-1))[0]}{shape}, {_literal(bound.reshape(-1))[0]}{shape})"


def _identity(call: operators.Call, names: dict[int, str]) -> str:
    given = call.returns[0]
    return "False" if given is None else f"got[0] is not {names[id(given)]}"


_INTERPRETER = """if device == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # it was found under Triton's interpreter"""

_SUPPORT = '''
GUARD = 16384
faulthandler.enable()
faulthandler.dump_traceback_later({limit}, exit=True)  # a kernel that hangs shows where, and exits 1


def storage(size, poison):
    """`size` bytes between two guard zones, all holding the poison, aligned to {align} bytes."""
    whole = torch.full((size + 2 * GUARD + {align} + 8,), poison, dtype=torch.uint8, device=device)
    skew = -whole.data_ptr() % {align}
    return whole[skew : skew + (size + 2 * GUARD + 7) // 8 * 8]


def view(storage, dtype, shape, strides, offset):
    return storage[GUARD + offset :][: (storage.numel() - GUARD - offset) // 8 * 8].view(dtype).as_strided(shape, strides)


def as_int(x):
    return x.contiguous().view({{1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}}[x.element_size()])


def differs(result, dtype, want, bound):
    """What is wrong with an output, or None. A bound of infinity leaves an element out; NaN wants what is not finite."""
    if not isinstance(result, torch.Tensor) or (result.dtype, result.shape) != (dtype, want.shape):
        return f"returned {{result!r}}, should be {{dtype}} {{list(want.shape)}}"
    if bound is None:
        right = as_int(result.cpu()) == as_int(want)
    else:
        got = result.cpu().double()
        right = (got == want) | ((got - want).abs() <= bound) | (want.isnan() & ~got.isfinite()) | bound.isinf()
    if not right.all():
        within = "" if bound is None else f"\\nwithin\\n{{bound.tolist()}}"
        return f"got\\n{{result.tolist()}}\\nwant\\n{{want.tolist()}}{{within}}"


def restore(before, written, storages):
    """Put the old bytes back into the elements that the kernel may write; what differs afterwards it may not."""
    for old, new in zip(before, storages):
        start = written.data_ptr() - new.data_ptr()
        if 0 <= start < new.numel():
            source = old[start:][: (old.numel() - start) // 8 * 8].view(written.dtype)
            written.copy_(source.as_strided(written.shape, written.stride()))


class Poisoned(TorchFunctionMode):
    """torch.empty and its kin give memory that holds the poison."""

    def __init__(self, poison):
        super().__init__()
        self.poison = poison

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {{}}))
        if function in (torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty) and made.numel():
            memory = made.untyped_storage()
            made.new_empty(0, dtype=torch.uint8).set_(memory, 0, (memory.nbytes(),), (1,)).fill_(self.poison)
        return made
'''

_MAIN = """
print("torch", torch.__version__, "on", torch.cuda.get_device_name() if device == "cuda" else "the CPU")
problems = [problem for _ in range({repeats} // 2) for poison in (0x7B, 0xFB) if (problem := attempt(poison))]
if problems:
    print(f"{{len(problems)}} of {repeats} runs fail:", problems[0])
    sys.exit(1)
print("passes")
"""


def write(entry: Entry, source: Path, target: Path, implementation: Implementation | None = None) -> None:
    """Write the script of an entry to a file. Raises NoScript."""
    target.write_text(script(entry, path=source.name, implementation=implementation))
