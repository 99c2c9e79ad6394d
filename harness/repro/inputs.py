"""The tensors of a case as statements: plain ones where they are plain, windows on larger memory where that is the point."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from torch import Tensor

from harness.case import Case, Fill, View, contiguous
from harness.memory import Memory, dtype_of, guard_bytes
from harness.repro import spell
from harness.repro.generator import Generator

LITERALS = 256
"""Elements of all inputs together that are spelled out, where they are random; more are made by the generator."""
SHORT = 16
"""Elements that a single tensor may have to be spelled out in any case."""
EXPLICIT = 4096
"""Elements that are spelled out where a fill lists them one by one, or has them in a file."""

POISON = 0x7B
"""The byte in memory that holds no input, where nothing asks for two of them."""


@dataclass(frozen=True)
class Frame:
    """What the failure needs around tensors. guards: memory on both sides, that is watched or read. poison: the expression
    of the byte that fills whatever holds no input."""

    guards: bool = False
    poison: str = f"{POISON:#x}"


@dataclass
class Inputs:
    """Makes the statements for cases of one script, which share the generator."""

    generator: Generator
    frame: Frame

    def lines(self, case: Case, memory: Memory) -> list[str]:
        """Statements that define every tensor of the case by its name."""
        lines: list[str] = []
        literal = self._literal(case, memory)
        shared = Counter(view.storage for view in case.tensors.values())
        framed = {
            view.storage
            for view in case.tensors.values()
            if self.frame.guards or shared[view.storage] > 1 or not _dense(view)
        }
        for number in sorted(framed):
            lines += self._storage(case, number, alone=len(framed) == 1)
        for name, view in case.tensors.items():
            values = memory.window(view.filled)
            if view.storage in framed:
                lines += self._window(name, case, literal[name], values, alone=len(framed) == 1)
            elif name in case.fills:
                lines += self._values(name, case.fills[name], values, literal[name], on_device=True)
            else:
                held = "nan" if values.dtype.is_floating_point else "-1"
                kind = f"dtype={values.dtype}, device=device"
                lines.append(f"{name} = torch.full({spell.tuple_of(view.shape)}, {held}, {kind})  # to be overwritten")
        return lines

    def _literal(self, case: Case, memory: Memory) -> dict[str, bool]:
        """Which tensors' values stand in the script, and are not made."""
        size = {name: view.filled.numel for name, view in case.tensors.items() if name in case.fills}
        plain = {name: spell.plain(memory.window(case.tensors[name].filled)) for name in size}
        few = sum(n for name, n in size.items() if not plain[name]) <= LITERALS
        listed = {
            n: size[n] <= (min(len(f.values), EXPLICIT) if f.kind == "cycle" else EXPLICIT if f.kind == "file" else 0)
            for n, f in case.fills.items()
        }
        return {
            name: name in size and (few or plain[name] or size[name] <= SHORT or listed[name]) for name in case.tensors
        }

    def _values(self, name: str, fill: Fill, values: Tensor, literal: bool, *, on_device: bool) -> list[str]:
        if literal:
            return spell.define(name, values, device=", device=device" if on_device else "")
        made = self.generator.call(fill, values.dtype, tuple(values.shape))
        planted = self.generator.plant(name, fill, values.dtype, values.numel())
        if not on_device:
            return [f"{name} = {made}", *planted]
        if planted:
            return [f"{name} = {made}", *planted, f"{name} = {name}.to(device)"]
        return [f"{name} = {made}.to(device)"]

    def _storage(self, case: Case, number: int, *, alone: bool) -> list[str]:
        size = -(-case.storages[number] // 8) * 8
        total = f"GUARD + {size} + GUARD" if self.frame.guards else str(size)
        name = _memory_name(number, alone)
        return [f"{name} = torch.full(({total},), {self.frame.poison}, dtype=torch.uint8, device=device)"]

    def _window(self, name: str, case: Case, literal: bool, values: Tensor, *, alone: bool) -> list[str]:
        view = case.tensors[name]
        memory = _memory_name(view.storage, alone)
        if self.frame.guards:
            start = f"(GUARD + {view.offset}) // {view.itemsize}" if view.offset else f"GUARD // {view.itemsize}"
        else:
            start = str(view.offset // view.itemsize)
        typed = f"{memory}.view({dtype_of(view)})" if view.dtype != "uint8" else memory
        window = f"{typed}.as_strided({spell.tuple_of(view.shape)}, {spell.tuple_of(view.strides)}, {start})"
        lines = [f"{name} = {window}"]
        if name not in case.fills or not values.numel():
            return lines
        target = name
        if (flat := view.filled) != view:
            target = f"{typed}.as_strided({spell.tuple_of(flat.shape)}, {spell.tuple_of(flat.strides)}, {start})"
        lines += self._values("values", case.fills[name], values, literal, on_device=False)
        return [*lines, f"{target}.copy_(values)"]


def guard_of(*cases: Case) -> int:
    """Bytes of a guard zone that is as long as the harness's longest."""
    return max(guard_bytes(size) for case in cases for size in (*case.storages, 0))


def storages_of(case: Case) -> list[str]:
    """The names of all the memory of a case, where it is all framed, by its number."""
    used = sorted({view.storage for view in case.tensors.values()})
    return [_memory_name(number, len(used) == 1) for number in used]


def _memory_name(number: int, alone: bool) -> str:
    return "memory" if alone else f"memory_{number}"


def _dense(view: View) -> bool:
    return view.offset == 0 and view.strides == contiguous(view.shape)
