"""harness.memory: what a call changed, byte by byte; poison; putting the state back."""

# ruff: noqa: SIM300 - the expected value stands first

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.case import Case, Fill, View, contiguous
from harness.memory import (
    ALIGNMENT,
    MAX_GUARD,
    MIN_GUARD,
    OUTPUT_POISONS,
    POISONS,
    Memory,
    PoisonFresh,
    guard_bytes,
    is_poison,
)
from harness.operators import top_k_mask_logits
from harness.strategies import SCALES
from tests.harness.making import drawn, mask_case

CASES = top_k_mask_logits.cases(SCALES["cpu", "dev"])
NOTHING = frozenset()

DEVICES = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


def whole(memory, storage=0):
    """The bytes of a storage with its guards, and the length of the guard before it."""
    return memory._arenas[storage], memory._guards[storage]


def poke(memory, byte, storage=0):
    """Change one byte; a negative one lies in the guard before the storage."""
    arena, guard = whole(memory, storage)
    arena[guard + byte] ^= 1


def two_rows(dtype="float32", pitch=8, offset=4):
    """Two rows of five elements, padded and misaligned, in one storage."""
    view = View(0, dtype, (2, 5), (pitch, 1), offset)
    return Case("x", {}, (view.end + 12,), {"t": view}, {"t": Fill("spread", 1)})


@DEVICES
def test_nothing_changed_is_seen_as_nothing(device):
    """Right after making and after every reset."""
    memory = Memory(two_rows(), device)
    for poison in (0, 1, 0):
        memory.reset(poison)
        assert memory.changed(NOTHING) is None


@DEVICES
@pytest.mark.parametrize("byte", [-MIN_GUARD, -1, 0, 3, 24, 35, 56, 67, 68 + MIN_GUARD - 1])
def test_a_change_outside_is_seen_at_its_byte(device, byte):
    """The first and last byte of the guards, before the view, between its rows, behind it."""
    memory = Memory(two_rows(), device)
    poke(memory, byte)
    assert {"what": "outside", "storage": 0, "byte": byte, "count": 1} == memory.changed(NOTHING)
    assert {"what": "outside", "storage": 0, "byte": byte, "count": 1} == memory.changed(frozenset({"t"}))


@DEVICES
@pytest.mark.parametrize("byte", [4, 7, 23, 36, 55])
def test_a_change_of_an_input_is_seen_and_named(device, byte):
    """Any byte of any element, in either row; unless the tensor may be written."""
    memory = Memory(two_rows(), device)
    poke(memory, byte)
    expected = {"what": "input", "tensor": "t", "storage": 0, "byte": byte, "count": 1}
    assert expected == memory.changed(NOTHING)
    assert memory.changed(frozenset({"t"})) is None


def test_the_first_of_several_changes_is_told():
    """With how many bytes there are in all."""
    memory = Memory(two_rows(), "cpu")
    for byte in (40, 36, 60):
        poke(memory, byte)
    assert {"what": "input", "tensor": "t", "storage": 0, "byte": 36, "count": 3} == memory.changed(NOTHING)


def test_a_change_in_a_gap_before_one_of_the_input_is_no_input_byte():
    """Where the first changed byte is padding, the byte that is told is not called the input's."""
    memory = Memory(two_rows(), "cpu")
    poke(memory, 30)
    poke(memory, 36)
    found = memory.changed(NOTHING)
    assert ("outside", 30, 2) == (found["what"], found["byte"], found["count"])


def interleaved():
    """Rows of `out` between the rows of `logits`, in one storage."""
    a, b = View(0, "float32", (3, 4), (8, 1)), View(0, "float32", (3, 4), (8, 1), 16)
    return Case("x", {}, (b.end,), {"logits": a, "out": b}, {"logits": Fill("spread", 1)})


def test_interleaved_rows_are_told_apart():
    """Writing all of `out` changes nothing that counts; one byte of a row of `logits` does."""
    memory = Memory(interleaved(), "cpu")
    memory.tensors["out"].fill_(7.0)
    assert memory.changed(frozenset({"out"})) is None
    memory.tensors["logits"][1, 0] = 9.0
    found = memory.changed(frozenset({"out"}))
    assert ("input", "logits", 32) == (found["what"], found["tensor"], found["byte"] & ~3)
    memory.reset(0)
    assert memory.changed(NOTHING) is None


def test_writing_an_output_without_leave_is_seen():
    """Without a word for it, an element of `out` is as forbidden as a guard."""
    memory = Memory(interleaved(), "cpu")
    memory.tensors["out"][0, 0] = 7.0
    assert "outside" == memory.changed(NOTHING)["what"]


def test_an_expanded_view_is_filled_once_and_watched():
    """All rows of stride 0 are one row in memory; a change through one index is seen."""
    view = View(0, "float32", (3, 4), (0, 1))
    memory = Memory(Case("x", {}, (16,), {"t": view}, {"t": Fill("cycle", 0, (1.0, 2.0, 3.0, 4.0))}), "cpu")
    assert [[1, 2, 3, 4]] * 3 == memory.tensors["t"].tolist()
    assert [[1, 2, 3, 4]] * 3 == memory.read("t").tolist()
    memory.tensors["t"][2, 1] = 0.0
    assert ("input", 4) == (memory.changed(NOTHING)["what"], memory.changed(NOTHING)["byte"] & ~3)


def test_overlapping_rows_are_filled_along_the_memory():
    """Rows whose pitch is one short share an element, and all indices of it agree."""
    view = View(0, "float32", (3, 4), (3, 1))
    memory = Memory(
        Case("x", {}, (view.end,), {"t": view}, {"t": Fill("cycle", 0, tuple(map(float, range(10))))}), "cpu"
    )
    assert [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]] == memory.tensors["t"].tolist()


def test_two_storages_are_apart():
    """A change is located in its own storage."""
    memory = Memory(mask_case(form="out", k=(1, 2)), "cpu")
    poke(memory, -1, storage=2)
    assert {"what": "outside", "storage": 2, "byte": -1, "count": 1} == (memory.changed(NOTHING))


@drawn(40)
@given(CASES)
def test_the_tensors_are_the_views(case):
    """Shape, strides, dtype, and the offset from a 256-byte aligned start, for every drawn case."""
    memory = Memory(case, "cpu")
    for name, view in case.tensors.items():
        tensor = memory.tensors[name]
        arena, guard = whole(memory, view.storage)
        assert (view.shape, view.strides) == (tuple(tensor.shape), tensor.stride())
        assert view.dtype == str(tensor.dtype).removeprefix("torch.")
        if view.numel:
            start = arena.data_ptr() + guard
            assert 0 == start % ALIGNMENT
            assert view.offset == tensor.data_ptr() - start


@drawn(40)
@given(CASES, st.integers(0, 1 << 30), st.integers(0, 1))
def test_any_one_byte_is_seen_and_reset_restores_it(case, where, poison):
    """One byte anywhere in any storage or guard changes; it is found at its place, and gone after a reset."""
    memory = Memory(case, "cpu")
    memory.reset(poison)
    before = [arena.clone() for arena in memory._arenas]
    storage = where % len(case.storages)
    arena, guard = whole(memory, storage)
    byte = where % len(arena) - guard
    poke(memory, byte, storage)
    found = memory.changed(NOTHING)
    assert (storage, byte, 1) == (found["storage"], found["byte"], found["count"])
    memory.reset(poison)
    assert all(torch.equal(a, b) for a, b in zip(before, memory._arenas))


@drawn(40)
@given(CASES)
def test_only_elements_of_writable_tensors_may_change(case):
    """Every byte of `logits` flipped: nothing is seen when it may be written, and the bytes beside it still count."""
    memory = Memory(case, "cpu")
    view = case.tensors["logits"]
    if not view.numel or view.overlaps_itself:  # the contract lets nobody write those
        return
    memory.window(view, as_bits=True).fill_(42)
    assert memory.changed(frozenset({"logits"})) is None
    poke(memory, -1, view.storage)
    assert -1 == memory.changed(frozenset({"logits"}))["byte"]


@pytest.mark.parametrize("size", [0, 1, 255, 256, MIN_GUARD + 1, MAX_GUARD - 1, MAX_GUARD + 1, 1 << 40])
def test_guards_are_as_long_as_the_storage_within_limits(size):
    """A doubled index lands in a guard, up to a megabyte; guards keep the alignment."""
    guard = guard_bytes(size)
    assert min(max(size, MIN_GUARD), MAX_GUARD) <= guard <= MAX_GUARD
    assert 0 == guard % ALIGNMENT


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int16, torch.int32, torch.int64]
)
@pytest.mark.parametrize("poisons", [POISONS, OUTPUT_POISONS], ids=["gaps", "outputs"])
def test_one_poison_is_large_the_other_very_negative(dtype, poisons):
    """In every dtype, finite, and far beyond every value that the fills make on purpose."""
    high, low = (torch.full((8,), p, dtype=torch.uint8).view(dtype)[0].item() for p in poisons)
    assert math.isfinite(high)
    assert math.isfinite(low)
    assert high > 1000
    assert low < -1000


def test_tensors_without_a_fill_hold_poison():
    """All of an output, under either poison."""
    memory = Memory(interleaved(), "cpu")
    for poison in (0, 1):
        memory.reset(poison)
        assert bool(is_poison(memory.tensors["out"], poison).all())
        assert not bool(is_poison(memory.tensors["out"], 1 - poison).any())
        assert not bool(is_poison(memory.tensors["logits"], poison).any())


def test_gaps_and_outputs_hold_different_poison():
    """A result computed out of a gap is not taken for one that was never written."""
    assert 4 == len({*POISONS, *OUTPUT_POISONS})
    memory = Memory(mask_case(form="out", out=View(1, "float32", (2, 5), (8, 1))), "cpu")
    for poison in (0, 1):
        memory.reset(poison)
        arena, guard = whole(memory, 1)
        values = arena.tolist()
        assert {POISONS[poison]} == set(values[:guard]) | set(values[guard + 20 : guard + 32])
        assert {OUTPUT_POISONS[poison]} == set(values[guard : guard + 20]) | set(values[guard + 32 : guard + 52])


def test_an_element_is_poison_only_when_all_its_bytes_are():
    """Half-written is written."""
    x = torch.full((4,), OUTPUT_POISONS[0], dtype=torch.uint8).view(torch.int16).clone()
    x[1] = (OUTPUT_POISONS[0] << 8) | 1
    assert [True, False] == is_poison(x, 0).tolist()


@DEVICES
@pytest.mark.parametrize("poison", [0, 1])
def test_fresh_memory_is_poisoned(device, poison):
    """By every way to get uninitialised memory from torch that a kernel's wrapper uses; initialised memory is not."""
    x = torch.ones(3, 4, device=device)
    with PoisonFresh(poison):
        fresh = [
            torch.empty(3, 5, device=device),
            torch.empty((2, 3), dtype=torch.float16, device=device),
            torch.empty_like(x),
            torch.empty_strided((2, 3), (4, 1), device=device),
            torch.empty_permuted((2, 3), (1, 0), device=device),
            x.new_empty(7),
            x.new_empty_strided((2, 2), (3, 1)),
            torch.empty(0, device=device).resize_(4),
            torch.empty(0, device=device).resize_as_(x),
        ]
        given = torch.zeros(8, device=device)
        torch.empty(3, out=given[2:5])
        grown = torch.ones(2, device=device).resize_(5)
        zeros = torch.zeros(4, device=device)
        sums = x + x
    for i, made in enumerate(fresh):
        assert bool(is_poison(made, poison).all()), i
    assert [0.0] * 4 == zeros.tolist()
    assert 24.0 == sums.sum().item()
    assert [0.0] * 8 == given.tolist()
    assert [1.0, 1.0] == grown[:2].tolist()
    assert bool(is_poison(grown[2:], poison).all())


def test_poisoning_leaves_tensors_without_memory_alone():
    """An empty tensor has no storage to fill, and meta tensors no memory."""
    with PoisonFresh(0):
        assert 0 == torch.empty(0).numel()
        assert "meta" == torch.empty(3, device="meta").device.type


def test_memory_knows_its_own():
    """A view of a storage is its own; a copy and an empty tensor are not."""
    memory = Memory(two_rows(), "cpu")
    assert memory.holds(memory.tensors["t"][1:])
    assert not memory.holds(memory.tensors["t"].clone())
    assert not memory.holds(memory.tensors["t"][:0])
    assert not memory.holds(torch.ones(2, 2).to_sparse())


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1, 1, 1)])
def test_odd_shapes_can_be_made(shape):
    """Scalars, empty tensors, many dimensions of one."""
    view = View(0, "int32", shape, contiguous(shape))
    memory = Memory(Case("x", {}, (view.end,), {"t": view}, {"t": Fill("cycle", 0, (3,))}), "cpu")
    assert shape == tuple(memory.tensors["t"].shape)
    assert {3} >= set(memory.tensors["t"].reshape(-1).tolist())
    assert memory.changed(NOTHING) is None
