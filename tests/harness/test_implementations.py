"""harness.implementations: finding functions, and what their modules say."""

# ruff: noqa: SIM300 - the expected value stands first

import functools
import sys

import pytest
import torch

from harness import implementations
from harness.implementations import UnknownImplementation, available, built_in, load, spec_of
from tests.harness import hostile, making
from tests.harness.making import NAME

MINE = """
import sibling
SEMANTICS = {"ties": "exactly_k"}
NONDETERMINISTIC = True
BUILD_AXES = {"std": (17, 20)}
ARCHS = ("sm_80",)
def build(params, arch): ...
def unsupported(params): return "no" if params.get("dtype") == "float16" else None
def mask(logits, k, *, out=None): return sibling.NAME
def mask_(logits, k): return "in place"
def open_ended(*args, **kwargs): ...
value = 3
"""


@pytest.fixture
def mine(tmp_path):
    """A user's file, with a module beside it."""
    (tmp_path / "sibling.py").write_text("NAME = 'beside'\n")
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    yield path
    sys.modules.pop("sibling", None)


def test_semantics_may_differ_by_device(mine):
    """A word by device is that device's; one that a device has no part in is undeclared; there are two devices."""
    found = load(NAME, f"{mine}:mask")
    found.module.SEMANTICS = {"ties": {"cpu": "all", "cuda": "exactly_k"}, "nan": {"cuda": "mask"}}
    assert {"ties": "all"} == found.semantics("cpu")
    assert {"ties": "exactly_k", "nan": "mask"} == found.semantics("cuda")
    found.module.SEMANTICS = {"ties": {"gpu": "all"}}
    with pytest.raises(ValueError, match="it is a dict of cpu and cuda"):
        found.semantics("cpu")


def test_a_file_says_all_about_its_function(mine):
    """In-place spelling, semantics, parameters, builds."""
    found = load(NAME, f"{mine}:mask")
    assert "beside" == found.function(None, 1)
    assert "in place" == found.in_place(None, 1)
    assert {"ties": "exactly_k"} == found.semantics("cpu")
    assert found.nondeterministic
    assert frozenset({"logits", "k", "out"}) == found.parameters
    assert ["no", None] == [found.unsupported({"dtype": d}) for d in ("float16", "float32")]
    assert [("sm_80", 17), ("sm_80", 20)] == [(b.arch, b.params["std"]) for b in found.builds({"dtype": "float32"})]


def test_a_tuning_is_any_number_of_the_choices_there_are():
    """Modulo their number; the default is not mentioned to builds, and neither is any where there is no choice."""
    tuned = making.implementation(making.right, TUNING=({"block": 16}, {"block": 64}), build=lambda params, arch: None)
    plain = making.implementation(making.right, build=lambda params, arch: None)
    assert [{"block": 16}, {"block": 64}, {"block": 16}] == [tuned.tuning(number) for number in (0, 1, 2)]
    assert {} == plain.tuning(5)
    params = {"dtype": "float32", "tuning": 3}
    assert {"dtype": "float32", "tuning": 1} == next(tuned.builds(params)).params
    assert {"dtype": "float32"} == next(tuned.builds({**params, "tuning": 2})).params
    assert {"dtype": "float32"} == next(plain.builds(params)).params


def test_a_function_is_called_by_where_its_file_lies(mine, monkeypatch):
    """As from an import where one would find it, else by its path; the same however the file is spelled."""
    below = mine.parent / "some" / "kernels"
    below.mkdir(parents=True)
    for path in (below / "mine.py", below / "mine-2.py", below.parent / "kernels.mine.py"):
        path.write_text("def mask(logits, k): ...\n")
    monkeypatch.chdir(below.parent)
    names = {
        "kernels/mine.py:mask": "kernels.mine.mask",
        "./kernels/../kernels/mine.py:mask": "kernels.mine.mask",
        f"{below}/mine.py:mask": "kernels.mine.mask",
        "kernels/mine-2.py:mask": "kernels/mine-2.py:mask",
        "kernels.mine.py:mask": "kernels.mine.py:mask",
        "../mine.py:mask": "../mine.py:mask",
        f"{mine}:mask": "../mine.py:mask",
        "tests.harness.making:right": "tests.harness.making.right",
    }
    assert names == {spec: load(NAME, spec).name for spec in names}


def test_a_bare_function_is_enough():
    """Nothing but the operator's signature."""
    found = load(NAME, "tests.harness.making:right")
    assert (None, False, False, {}) == (found.in_place, found.can_build, found.nondeterministic, found.semantics("cpu"))
    assert found.unsupported({}) is None
    assert [] == list(found.builds({}))


def test_a_function_that_takes_anything_has_no_list_of_parameters(mine):
    """**kwargs might take `out`."""
    assert load(NAME, f"{mine}:open_ended").parameters is None


def test_a_file_is_loaded_once(mine):
    """Two functions of it share their module's state."""
    assert load(NAME, f"{mine}:mask").module is load(NAME, f"{mine}:open_ended").module


@pytest.mark.parametrize("name", ["nothing", "value", "mask.inner", ""])
def test_what_is_no_function_is_a_clear_error(mine, name):
    """It is named."""
    with pytest.raises(UnknownImplementation, match="has no function"):
        load(NAME, f"{mine}:{name}")


@pytest.mark.parametrize("spec", ["none.py:mask", "no.such.module:mask", "tests.no_such:mask", "nonsense"])
def test_what_is_not_there_is_a_clear_error(spec):
    """One line."""
    with pytest.raises(UnknownImplementation) as caught:
        load(NAME, spec)
    assert 1 == len(str(caught.value).splitlines())


def test_an_error_inside_the_file_is_the_users_to_see(tmp_path):
    """A missing import of theirs is not said to be a missing implementation; and the next try runs the file again."""
    path = tmp_path / "broken.py"
    path.write_text("import no_such_module_at_all\n")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
            load(NAME, f"{path}:mask")


def test_what_is_built_in_is_available():
    """By the names of its backends, loadable each; an operator without implementations has none."""
    assert set(built_in(NAME)) <= set(available(NAME))
    assert {"cuda", "triton", "torch"} <= set(built_in(NAME))
    assert () == built_in("no_such_operator")
    found = load(NAME, "torch")
    assert found.in_place is not None
    x = torch.tensor([[3.0, 1.0, 2.0]])
    assert [[3.0, -torch.inf, 2.0]] == found.function(x, 2).tolist()


class Entry:
    """An entry point."""

    def __init__(self, name, value):
        self.name, self.value = name, value


def test_entry_points_are_found(monkeypatch):
    """Named <operator>.<implementation>; those of other operators are not."""
    entries = [Entry(f"{NAME}.theirs", "tests.harness.hostile:good"), Entry("other.x", "nowhere:f")]
    monkeypatch.setattr(implementations, "entry_points", lambda group: entries)
    assert "theirs" in available(NAME)
    assert "x" not in available(NAME)
    found = load(NAME, "theirs")
    assert (hostile.good, hostile.good_, "theirs") == (found.function, found.in_place, found.name)


def test_a_functions_spec_finds_it_again():
    """In another process: by its module where that is in a package, so that relative imports work."""
    assert f"{making.__name__}:right" == spec_of(making.right)
    assert (
        making.right(torch.ones(1, 2), 1).tolist()
        == load(NAME, spec_of(making.right)).function(torch.ones(1, 2), 1).tolist()
    )


class Callable:
    """A callable object."""

    def __call__(self, logits, k):
        return logits


@pytest.mark.parametrize(
    "function",
    [lambda logits, k: logits, making.checked(making.right), 3, None, functools.partial(making.right, k=1), Callable(),
     Callable().__call__, torch.topk, len],
    ids=["lambda", "closure", "number", "none", "partial", "object", "method", "builtin of torch", "builtin"],
)  # fmt: skip
def test_what_no_other_process_could_find_is_a_clear_error(function):
    """Lambdas, closures, objects, methods, builtins."""
    with pytest.raises(UnknownImplementation, match="top level"):
        spec_of(function)


@functools.wraps(making.right)
def right(logits, k, *, out=None):
    """A wrapper that looks like what it wraps."""
    return making.right(logits, k, out=out) * 2


@making.checked
def decorated(logits, k, *, out=None):
    """What the module holds under this name is the decorator's closure."""


named = functools.wraps(decorated)(lambda logits, k, *, out=None: None)
named.__module__, named.__qualname__ = __name__, "named"


def test_what_the_module_holds_is_found_whatever_made_it():
    """A decorated function that says the name it is kept under; one that says another is refused."""
    assert f"{__name__}:named" == spec_of(named)
    with pytest.raises(UnknownImplementation, match="top level"):
        spec_of(decorated)


def test_a_wrapper_is_not_taken_for_what_it_wraps():
    """The spec leads to the wrapper, in this file, or is refused; never to the function inside."""
    try:
        spec = spec_of(right)
    except UnknownImplementation:
        return
    assert f"{__name__}:right" == spec
