"""The arrows of DESIGN section 2: who may import whom, and how long a module may be. By reading the source alone."""

# ruff: noqa: SIM300 - the expected value stands first

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("harness", "impls", "oracles")
LONGEST = 350

CHAIN = (
    {"harness.cli", "harness.pytest_plugin"},
    {"harness.fuzz", "harness.reduce", "harness.repro"},
    {"harness.sandbox"},
    {"harness.judge"},
    {"harness.operators"},
    {"oracles"},
)
"""From the top down: nothing in a group may reach a group above it, over any number of imports."""

CHILD = ("harness.sandbox", "harness.worker")
"""The sandbox starts the worker by name, in a process of its own: an arrow that no import shows."""


def files():
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in files()}


def imports_of(name):
    """Every module that a module names in an import, those inside functions and under TYPE_CHECKING included."""
    path = MODULES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(
                    [*package.split(".")[: len(package.split(".")) - node.level + 1], *filter(None, [base])]
                )
            inside = [f"{base}.{alias.name}" for alias in node.names]
            found = [module for module in inside if module in MODULES]
            yield from found
            if len(found) < len(inside):
                yield base


GRAPH = {name: sorted(set(imports_of(name))) for name in MODULES}


def reach(name):
    """All of our modules that a module reaches."""
    seen, todo = set(), [name]
    while todo:
        for other in GRAPH.get(todo.pop(), ()):
            if other in MODULES and other not in seen:
                seen.add(other)
                todo.append(other)
    return seen


def within(name, packages):
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def offenders(package, forbidden):
    return [
        f"{name} imports {other}"
        for name, others in GRAPH.items()
        if within(name, (package,))
        for other in others
        if within(other, forbidden)
    ]


def test_the_reader_of_imports_reads_something():
    """Every package is found, and well-known arrows are seen: otherwise the other tests would prove nothing."""
    assert set(PACKAGES) <= set(MODULES)
    assert "harness.memory" in GRAPH["harness.judge"]
    assert "oracles.top_k_mask_logits" in reach("harness.operators.top_k_mask_logits")
    assert "harness.sandbox" in reach("harness.fuzz")
    assert "harness.judge" in GRAPH["harness.worker"]


def test_impls_stand_apart():
    """Production kernels know neither the harness nor the oracles."""
    assert [] == offenders("impls", ("harness", "oracles", "tests"))


def test_oracles_import_torch_and_oracles_alone():
    """And the standard library."""
    allowed = ("torch", "oracles", "__future__", *sys.stdlib_module_names)
    found = [
        f"{name} imports {other}"
        for name, others in GRAPH.items()
        if within(name, ("oracles",))
        for other in others
        if not within(other, allowed)
    ]
    assert [] == found


def test_the_harness_loads_impls_by_name_alone():
    """No import of a kernel anywhere: any implementation is found as a user's own is."""
    assert [] == offenders("harness", ("impls", "tests"))


def test_an_operator_is_named_by_its_own_modules_alone():
    """Adding one changes nothing else: no module of the harness imports a particular operator or its oracle."""
    general = {"harness.operators", "oracles.judgement", "oracles.rounding"}
    found = [
        f"{name} imports {other}"
        for name, others in GRAPH.items()
        if within(name, ("harness",)) and not name.startswith("harness.operators.")
        for other in others
        if within(other, ("harness.operators", "oracles")) and other not in general
    ]
    assert [] == found


def test_no_cycles():
    """No module reaches itself."""
    assert [] == [name for name in MODULES if name in reach(name)]


@pytest.mark.parametrize("upper", range(len(CHAIN) - 1))
def test_arrows_point_down(upper):
    """No group of the chain reaches one above it."""
    above = {name for group in CHAIN[: upper + 1] for name in group}
    found = [
        f"{name} reaches {other}"
        for name in MODULES
        if within(name, CHAIN[upper + 1])
        for other in sorted(reach(name))
        if within(other, above)
    ]
    assert [] == found


def test_the_parent_of_a_sandbox_reaches_the_judge_only_over_the_worker():
    """So that it never imports what runs kernels."""
    parent, child = CHILD
    assert "harness.judge" not in reach(parent)
    assert child not in reach(parent)
    assert "harness.judge" in reach(child)
    assert parent not in reach(child)


@pytest.mark.parametrize("name", [name for name in MODULES if within(name, ("harness",))])
def test_nothing_imports_the_judge_but_the_worker(name):
    """Judging in the campaign's own process would let a kernel take it down."""
    assert name == "harness.worker" or "harness.judge" not in GRAPH[name]


@pytest.mark.parametrize("path", files(), ids=module_name)
def test_no_module_is_too_long(path):
    """Over about 300 lines it is two modules."""
    assert len(path.read_text(encoding="utf-8").splitlines()) < LONGEST


@pytest.mark.parametrize("path", [p for p in files() if p.read_text(encoding="utf-8").strip()], ids=module_name)
def test_every_module_says_what_it_is(path):
    """In its docstring."""
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
