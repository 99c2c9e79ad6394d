"""Finds implementations: those under `impls/`, functions of a file or module, and entry points of other packages.

An implementation is a callable with the operator's signature. What else it may say (all optional) stands in its module:
    unsupported(params) -> str | None    why calls with these parameters are not for it, said before anything is built
    unavailable(device) -> str | None    why nothing at all can run on this torch.device
    build(params, arch) -> None          compile only; needs no GPU. Raises on failure, with `tool` and `log` if it can
    translation_units()                  a context in which `build` compiles nothing; it is a list, which gets what a compiler
                                         would have been handed (`harness.interesting.Unit`), to be reduced
    execution(schedule, checks, memory, poison)
                                         of CUDA kernels that also run on the CPU: a context in which they run as the case
                                         says (`Case.schedule`, `Case.checks`), may touch the (address, bytes) in the
                                         list `memory`, which grows, and find the byte `poison` in shared memory
    TUNING                               choices of tuning keywords (block sizes and the like), the default first: each a
                                         dict that the function takes as keyword arguments, and `build` by its index
    BUILD_AXES                           name -> values: toolchain options that `build` takes as further parameters
    ARCHS                                the architectures that `build` knows; without it, those of `DEFAULT_ARCHS`
    SEMANTICS                            where the operator leaves a choice: name -> word, or, where a GPU and the CPU differ,
                                         {"cpu": word, "cuda": word}; what a device is left out of is undeclared there
    NONDETERMINISTIC = True              results may differ from run to run, inside the bound
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import itertools
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from harness.case import Build, Params
from harness.interesting import Unit

ENTRY_POINT_GROUP = "warpcheck.implementations"
"""Entry points of this group are named `<operator>.<implementation>` and point to a callable."""

DEFAULT_ARCHS = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")

DEVICES = frozenset({"cpu", "cuda"})


class UnknownImplementation(ValueError):
    """No such implementation; the message is one line and says what there is."""


class BadHook(ValueError):
    """What a module says of itself cannot be had: its `unsupported` or `unavailable` raised. The message is one line."""


def why_unusable(spec: str, error: BaseException) -> str:
    """What loading `spec` failed of, in one line."""
    if isinstance(error, (UnknownImplementation, BadHook)):
        return str(error)
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(where.filename)}, line {where.lineno}"
    return f"cannot load {spec}: {type(error).__name__}: {error} ({place})"


@dataclass(frozen=True)
class Implementation:
    """One kernel under test.

    spec: how it was asked for, and how another process finds it again. name: what it is called in output and corpus.
    function: the operator; in_place: its in-place spelling, if it has one.
    """

    operator: str
    spec: str
    name: str
    function: Callable[..., Any]
    in_place: Callable[..., Any] | None
    module: ModuleType | None = None
    parameters: frozenset[str] | None = field(default=None)
    """Names of the function's parameters, or None when it takes any."""

    def semantics(self, device: str) -> Mapping[str, Any]:
        """What it declares on "cpu" or "cuda". Raises ValueError for a device that there is not."""
        declared: Mapping[str, Any] = getattr(self.module, "SEMANTICS", {})
        found = {}
        for name, value in declared.items():
            if not isinstance(value, Mapping):
                found[name] = value
                continue
            if not value.keys() <= DEVICES:
                raise ValueError(
                    f"SEMANTICS[{name!r}] = {value!r}; by device, it is a dict of {' and '.join(sorted(DEVICES))}"
                )
            if device in value:
                found[name] = value[device]
        return found

    @property
    def nondeterministic(self) -> bool:
        return bool(getattr(self.module, "NONDETERMINISTIC", False))

    def executes(self, device: str) -> bool:
        """Whether its kernels, on "cpu" or "cuda", are CUDA run by the CPU, whose order can be chosen and checked."""
        return device == "cpu" and hasattr(self.module, "execution")

    @property
    def tuning_choices(self) -> int:
        """How many there are; 1 where there is nothing to choose."""
        return len(getattr(self.module, "TUNING", ({},)))

    def tuning(self, number: int) -> Mapping[str, Any]:
        """The keyword arguments of a tuning choice, by any number: of `Case.tuning` or of a build's params."""
        choices: tuple[Mapping[str, Any], ...] = getattr(self.module, "TUNING", ({},))
        return choices[number % len(choices)]

    def tuned(self, params: Params) -> Params:
        """What `build` and `unsupported` are told: the tuning's number made the index of a choice, the default left out."""
        index = params.get("tuning", 0) % self.tuning_choices
        rest = {name: value for name, value in params.items() if name != "tuning"}
        return {**rest, "tuning": index} if index else rest

    def unsupported(self, params: Params) -> str | None:
        """Why calls with these parameters are not for this implementation; None when they are."""
        return self._ask("unsupported", params)

    def _ask(self, hook: str, subject: object) -> str | None:
        ask = getattr(self.module, hook, None)
        try:
            return ask(subject) if ask else None
        except Exception as error:
            raise BadHook(f"{hook}({subject!r}) of {self.name} raised {type(error).__name__}: {error}") from error

    def unavailable(self, device: str) -> str | None:
        """Why it cannot run on "cpu" or on the present CUDA device; None when it can."""
        where = torch.device("cuda", torch.cuda.current_device()) if device == "cuda" else torch.device(device)
        return self._ask("unavailable", where)

    @property
    def can_build(self) -> bool:
        return hasattr(self.module, "build")

    def build(self, build: Build) -> None:
        """Compile. Raises whatever the implementation's compiler raises."""
        assert self.module is not None
        self.module.build(build.params, build.arch)

    def units(self, build: Build) -> tuple[Unit, ...]:
        """What `build` would hand to its compiler. Raises BadHook where it keeps that to itself."""
        collect = getattr(self.module, "translation_units", None)
        if collect is None or not self.can_build:
            raise BadHook(
                f"there is no source of {self.name} to be had: its module has no `translation_units`, which is for CUDA that "
                "impls.cuda_build.compile_cubin compiles"
            )
        error: Exception | None = None
        with collect() as found:
            try:
                self.build(build)
            except Exception as raised:  # it may not like what it gets in the place of machine code
                error = raised
        if not found:
            reason = f"{type(error).__name__}: {error}" if error else "it compiles nothing through `compile_cubin`"
            raise BadHook(f"there is no source of {self.name} to be had: {reason}")
        return tuple(Unit(unit.tool, unit.name, unit.text, tuple(unit.command)) for unit in found)

    def builds(self, params: Params) -> Iterator[Build]:
        """Every compilation that calls with these parameters can need: all architectures, all toolchain options."""
        if not self.can_build:
            return
        params = self.tuned(params)
        axes: Mapping[str, tuple[Any, ...]] = getattr(self.module, "BUILD_AXES", {})
        for arch in getattr(self.module, "ARCHS", DEFAULT_ARCHS):
            for values in itertools.product(*axes.values()):
                yield Build(self.operator, {**params, **dict(zip(axes, values))}, arch)


def built_in(operator: str) -> tuple[str, ...]:
    """Names of an operator's implementations under impls/."""
    try:
        return tuple(importlib.import_module(f"impls.{operator}").BACKENDS)
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith(f"impls.{operator}".split(".")[0]):
            return ()
        raise


def available(operator: str) -> list[str]:
    """Names of all implementations of an operator: built in, then those of installed packages."""
    prefix = f"{operator}."
    foreign = [e.name.removeprefix(prefix) for e in entry_points(group=ENTRY_POINT_GROUP) if e.name.startswith(prefix)]
    return [*built_in(operator), *foreign]


def load(operator: str, spec: str) -> Implementation:
    """Find an implementation by its name, or as `file.py:function` or `package.module:function`.

    Raises UnknownImplementation when there is none. An error inside the user's file propagates as it is.
    """
    if ":" in spec:
        where, _, name = spec.rpartition(":")
        module = _load_file(Path(where)) if where.endswith(".py") else _import(where)
        return _of_module(operator, spec, _name(where, name), module, name)
    if spec in built_in(operator):
        package = importlib.import_module(f"impls.{operator}")
        backend = importlib.import_module(f"impls.{operator}.{spec}")
        function = _with_backend(getattr(package, operator), spec)
        in_place = getattr(package, f"{operator}_", None)
        return Implementation(operator, spec, spec, function, in_place and _with_backend(in_place, spec), backend)
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name == f"{operator}.{spec}":
            module_name, _, attribute = entry.value.partition(":")
            return _of_module(operator, spec, spec, _import(module_name), attribute)
    known = ", ".join(available(operator)) or "none"
    raise UnknownImplementation(
        f"unknown implementation {spec!r} of {operator}; there are: {known}; or give file.py:function"
    )


def spec_of(function: Callable[..., Any]) -> str:
    """The spec by which another process finds a module-level function. Raises UnknownImplementation for any other.

    What a module holds under the function's name has to be this very object: a wrapper may carry another's name.
    """
    name = str(getattr(function, "__qualname__", ""))
    module = sys.modules.get(str(getattr(function, "__module__", "")))
    source = str(getattr(module, "__file__", ""))
    if not callable(function) or not source.endswith(".py") or getattr(module, name, None) is not function:
        raise UnknownImplementation(
            f"{function!r} is not a function at the top level of a file, so no other process can find it"
        )
    if getattr(module, "__package__", None) and importlib.util.find_spec(function.__module__) is not None:
        return f"{function.__module__}:{name}"  # relative imports need its package
    return f"{os.path.relpath(source)}:{name}"


def _name(where: str, function: str) -> str:
    """What a user's function is called: the same however its file is spelled, another for any other file.

    A file that could be imported from here is called as its module, any other by its path from here.
    """
    if not where.endswith(".py"):
        return f"{where}.{function}"
    path = Path(os.path.relpath(Path(where).resolve())).with_suffix("")
    if all(part.isidentifier() for part in path.parts):
        return ".".join([*path.parts, function])
    return f"{path.as_posix()}.py:{function}"


def _with_backend(function: Callable[..., Any], backend: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs, backend=backend)

    return call


def _of_module(operator: str, spec: str, name: str, module: ModuleType, attribute: str) -> Implementation:
    function = getattr(module, attribute, None)
    if not callable(function):
        raise UnknownImplementation(f"{spec.rpartition(':')[0]} has no function {attribute!r}")
    in_place = getattr(module, f"{attribute}_", None)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        names = None
    else:
        catch_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        names = None if catch_all else frozenset(p.name for p in parameters)
    return Implementation(operator, spec, name, function, in_place, module, names)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise UnknownImplementation(f"no module named {name!r}") from None
        raise


def _load_file(path: Path) -> ModuleType:
    """Import a file as a script's directory would: its siblings can be imported, and it is loaded once a process."""
    path = path.resolve()
    if not path.is_file():
        raise UnknownImplementation(f"no file {path.name!r} in {path.parent}")
    name = f"warpcheck_file_{path.stem}_{abs(hash(str(path))) % 10**8}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UnknownImplementation(f"{path.name!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
