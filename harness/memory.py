"""Where a case's tensors live: storages between guard zones, poison in every byte no input covers, and the question
afterwards: what changed?

A storage is one uint8 allocation: guard, the case's bytes, guard. Before a call every byte of it holds the poison, then
the inputs are written over it. So guard zones, the gaps of a strided layout and unwritten outputs are one thing: bytes
that hold poison, must not be read and, outside outputs, must not be written.

There are two poisons (each with a second byte for outputs). As a float of any width one is a large positive number
and the other a large negative one, as an integer likewise: a kernel that lets poison into a maximum, a count or an index answers differently under the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from harness.case import Case, View
from harness.fill import INT, make_bits

POISONS = (0x7B, 0xFB)
"""The byte in guard zones and gaps, by poison number."""

OUTPUT_POISONS = (0x7A, 0xFA)
"""The byte in outputs: another one, so that a result that was never written is told from one computed out of a gap."""

MIN_GUARD = 16 << 10
MAX_GUARD = 1 << 20
ALIGNMENT = 256


def guard_bytes(size: int) -> int:
    """Length of each guard zone of a storage: its own size, so that a doubled index still lands inside, within limits."""
    return min(max(MIN_GUARD, -(-size // ALIGNMENT) * ALIGNMENT), MAX_GUARD)


def dtype_of(view: View) -> torch.dtype:
    return getattr(torch, view.dtype)


class Memory:
    """The storages and tensors of one case on one device.

    tensors: name -> the view, as a kernel gets it. They stay the same objects from call to call.
    """

    def __init__(self, case: Case, device: torch.device | str) -> None:
        self.case = case
        self.device = torch.device(device)
        self._arenas: list[Tensor] = []
        self._images: dict[int, list[Tensor]] = {}
        self._guards = [guard_bytes(size) for size in case.storages]
        for size, guard in zip(case.storages, self._guards):
            padded = -(-size // ALIGNMENT) * ALIGNMENT
            arena = torch.empty(padded + 2 * guard + ALIGNMENT, dtype=torch.uint8, device=self.device)
            # Allocators align to 64 (CPU) or 512 bytes; an offset in a case is relative to 256.
            skew = -arena.data_ptr() % ALIGNMENT
            self._arenas.append(arena[skew : skew + padded + 2 * guard])
        self.tensors = {name: self.window(view) for name, view in case.tensors.items()}
        self._bits = {
            name: make_bits(fill, dtype_of(view), self._extent(view), self.device)
            for name, view in case.tensors.items()
            if (fill := case.fills.get(name)) is not None
        }
        self.reset(0)

    @staticmethod
    def _extent(view: View) -> tuple[int, ...]:
        """The shape that a fill covers: the view's own, or the memory under it where its elements overlap."""
        return (view.span,) if view.overlaps_itself else view.shape

    def views(self) -> dict[str, Tensor]:
        """The tensors as new objects: what a kernel does to one of them (`set_`, `unsqueeze_`) does not last."""
        return {name: self.window(view) for name, view in self.case.tensors.items()}

    def window(self, view: View, *, as_bits: bool = False) -> Tensor:
        """Any view on the storages, as a tensor; `as_bits` as integers of the same size."""
        dtype = INT[view.itemsize] if as_bits else dtype_of(view)
        start = self._guards[view.storage]
        arena = self._arenas[view.storage]
        end = start + -(-max(view.end, view.offset) // view.itemsize) * view.itemsize
        typed = arena[start + view.offset : max(end, start + view.offset)].view(dtype)
        return typed.as_strided(view.shape, view.strides)

    def _write(self, name: str) -> None:
        view = self.case.tensors[name]
        if view.overlaps_itself:
            view = View(view.storage, view.dtype, (view.span,), (1,), view.offset)
        self.window(view, as_bits=True).copy_(self._bits[name].view(view.shape))

    def reset(self, poison: int) -> None:
        """Put back the state before a call, with poison number 0 or 1 in every byte that no fill covers."""
        for arena in self._arenas:
            arena.fill_(POISONS[poison])
        for name, view in self.case.tensors.items():
            if name not in self._bits and not view.overlaps_itself:
                word = bytes([OUTPUT_POISONS[poison]]) * view.itemsize
                self.window(view, as_bits=True).fill_(int.from_bytes(word, "little", signed=view.itemsize > 1))
        for name in self._bits:
            self._write(name)
        if poison not in self._images:
            self._images[poison] = [arena.clone() for arena in self._arenas]
        self._poison = poison

    def copy(self, name: str) -> Tensor:
        """A contiguous copy of a tensor's present values, of the same shape and dtype."""
        view = self.case.tensors[name]
        return self.window(view, as_bits=True).clone(memory_format=torch.contiguous_format).view(dtype_of(view))

    def changed(self, writable: frozenset[str]) -> dict[str, Any] | None:
        """What differs from the state that `reset` left, apart from the elements of the `writable` tensors.

        Returns None, or where: {"what": "input" or "outside", "tensor": name (of an input), "storage", "byte" (relative
        to the storage's start, negative in the guard before it), "count" (bytes)}.
        """
        images = self._images[self._poison]
        for storage, (arena, image) in enumerate(zip(self._arenas, images)):
            after = arena
            views = [v for n, v in self.case.tensors.items() if n in writable and v.storage == storage]
            if views:
                after = arena.clone()
                for view in views:
                    self._overwrite(after, image, view)
            if not torch.equal(after, image):
                return self._locate(storage, after != image)
        return None

    def _overwrite(self, target: Tensor, source: Tensor, view: View) -> None:
        """Copy the elements of one view from an image of its storage to another."""
        start = self._guards[view.storage] + view.offset
        stop = start + view.span * view.itemsize
        kind = INT[view.itemsize]
        old = source[start:stop].view(kind).as_strided(view.shape, view.strides)
        target[start:stop].view(kind).as_strided(view.shape, view.strides).copy_(old)

    def _locate(self, storage: int, differs: Tensor) -> dict[str, Any]:
        places = differs.nonzero()[:, 0]
        first = int(places[0]) - self._guards[storage]
        found: dict[str, Any] = {"what": "outside", "storage": storage, "byte": first, "count": len(places)}
        for name, view in self.case.tensors.items():
            if name in self._bits and view.storage == storage and view.offset <= first < view.end:
                mask = torch.zeros_like(differs)
                start = self._guards[storage] + view.offset
                span = mask[start : start + view.span * view.itemsize]
                rows = span.view(-1, view.itemsize).as_strided(
                    (*view.shape, view.itemsize), (*(s * view.itemsize for s in view.strides), 1)
                )
                rows.fill_(True)
                if bool((mask & differs).any()):
                    return found | {"what": "input", "tensor": name}
        return found

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor's memory is one of these storages."""
        owners = {arena.untyped_storage().data_ptr() for arena in self._arenas}
        return tensor.untyped_storage().data_ptr() in owners and tensor.numel() > 0


class PoisonFresh(TorchFunctionMode):
    """While active, memory that torch allocates uninitialised (`torch.empty` and its kin) is filled with poison.

    So the elements a kernel leaves unwritten in an output that it allocated itself are told like those of a given one.
    """

    ALLOCATORS = frozenset(
        {
            torch.empty,
            torch.empty_like,
            torch.empty_strided,
            torch.Tensor.new_empty,
            torch.Tensor.new_empty_strided,
        }
    )

    def __init__(self, poison: int) -> None:
        super().__init__()
        self.byte = OUTPUT_POISONS[poison]

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in self.ALLOCATORS and isinstance(result, Tensor) and result.layout == torch.strided:
            storage = result.untyped_storage()
            if storage.nbytes() and result.device.type in ("cpu", "cuda"):
                result.new_empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,)).fill_(self.byte)
        return result


def is_poison(x: Tensor, poison: int) -> Tensor:
    """Bool, x's shape: the elements whose every byte is that of an output nobody wrote."""
    raw = x.contiguous().view(torch.uint8).view(*x.shape, x.element_size())
    return (raw == OUTPUT_POISONS[poison]).all(-1)
