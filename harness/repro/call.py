"""The implementation, imported as its owner would, and the call, as one would write it."""

from __future__ import annotations

import keyword
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from torch import Tensor

from harness import operators
from harness.case import Case
from harness.corpus import Entry
from harness.implementations import ENTRY_POINT_GROUP, Implementation, built_in
from harness.operators import Call
from harness.repro.spell import NoScript

TAKEN = frozenset({"torch", "triton", "numpy", "kernel", "__init__", "__main__"})
"""Names of modules that a user's file must not be imported under."""


@dataclass(frozen=True)
class Kernel:
    """How a script gets at an implementation.

    imports: statements. call: the name of its function (in the case's spelling). needs: what has to be there, in words.
    keywords: those that every call is given, as text.
    """

    imports: list[str]
    call: str
    needs: str
    keywords: list[str]


def kernel(entry: Entry, names: set[str], *, method: str = "", function: str = "", hook: str = "") -> Kernel:
    """The function under test in the spelling that `Call.method` names; or with `function`, another one of its module.

    names: variables of the script, which it must not share. hook: something else of the module that is imported too.
    Raises NoScript for an implementation of a package that is not installed.
    """
    spec, operator = entry.implementation, entry.signature.operator
    if spec in built_in(operator):
        wanted = function or f"{operator}{method}"
        imports = [_from(f"impls.{operator}.{spec}" if function else f"impls.{operator}", wanted, wanted)]
        if hook:
            imports.append(_from(f"impls.{operator}.{spec}", hook, hook))
        return Kernel(imports, wanted, "the package impls", [] if function else [f"backend={spec!r}"])
    where, _, name = (spec if ":" in spec else _entry_point(operator, spec)).rpartition(":")
    wanted = function or f"{name}{method}"
    alias = "kernel" if wanted in names or "." in wanted else wanted
    if not where.endswith(".py"):
        imports = [_from(where, each, as_) for each, as_ in ((wanted, alias), (hook, hook)) if each]
        return Kernel(imports, alias, f"the module {where}", [])
    path = Path(os.path.relpath(where)) if os.path.isabs(where) else Path(where)
    return Kernel(_from_file(path, wanted, alias, hook), alias, f"{path.as_posix()} below the current folder", [])


def _from(module: str, name: str, alias: str) -> str:
    return f"from {module} import {name}" + (f" as {alias}" if alias != name else "")


def _from_file(path: Path, name: str, alias: str, hook: str) -> list[str]:
    folder = path.parent.as_posix()
    lines = [f'sys.path.insert(0, "{folder}")']
    stem = path.stem
    if stem.isidentifier() and not keyword.iskeyword(stem) and stem not in {*TAKEN, *sys.stdlib_module_names}:
        return [*lines, *(_from(stem, each, as_) for each, as_ in ((name, alias), (hook, hook)) if each)]
    got = [f"{as_} = module[{each!r}]" for each, as_ in ((name, alias), (hook, hook)) if each]
    return [*lines, f'module = runpy.run_path("{path.as_posix()}")', *got]


def _entry_point(operator: str, name: str) -> str:
    for found in entry_points(group=ENTRY_POINT_GROUP):
        if found.name == f"{operator}.{name}":
            return found.value
    raise NoScript(f"no installed package offers {operator}.{name}")


def statement(
    case: Case, call: Call, tensors: Mapping[str, Tensor], target: Kernel, implementation: Implementation | None
) -> tuple[str, dict[str, str]]:
    """The call, which `bind` made of these tensors, as an expression; and for each output the variable that holds the result.

    An output that is given to the call is the tensor of that name; a fresh one gets the output's own.
    """
    names = {id(tensor): name for name, tensor in tensors.items()}

    def spelled(value: object) -> str:
        if isinstance(value, Tensor):
            return names.get(id(value)) or f"{_moved(case, value)}.to('cpu' if device == 'cuda' else 'meta')"
        return repr(value)

    keywords = {**call.kwargs, **(implementation.tuning(case.tuning) if implementation else {})}
    arguments = [*map(spelled, call.args), *(f"{k}={spelled(v)}" for k, v in keywords.items()), *target.keywords]
    results = {
        output: output if given is None else names[id(given)]
        for output, given in zip(operators.get(case.operator).OUTPUTS, call.returns)
    }
    return f"{target.call}({', '.join(arguments)})", results


def _moved(case: Case, tensor: Tensor) -> str:
    """The name of the tensor that a call is given on another device."""
    said = (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
    for name, view in case.tensors.items():
        if (view.dtype, view.shape) == said:
            return name
    raise NoScript("an argument is none of the case's tensors")
