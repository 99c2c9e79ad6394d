"""Where a case's tensors live: storages between guard zones, poison in every byte no input covers, and the question
afterwards: what changed?

A storage is one uint8 allocation: guard, the case's bytes, guard. Before a call every byte of it holds the poison, then
the inputs are written over it. So guard zones, the gaps of a strided layout and unwritten outputs are one thing: bytes
that hold poison, must not be read and, outside outputs, must not be written.

There are two poisons (each with a second byte for outputs). As a float of any width one is a large positive number
and the other a large negative one, as an integer likewise: a kernel that lets poison into a maximum, a count or an index
answers differently under the two.
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

HOME_LIMIT = 8 << 20
"""Bytes of all storages, guard zones included, up to which a case is compared on the CPU."""

MIN_GUARD = 16 << 10
MAX_GUARD = 1 << 20
ALIGNMENT = 256


def guard_bytes(size: int) -> int:
    """Length of each guard zone of a storage: its own size, so that a doubled index still lands inside, within limits."""
    return min(max(MIN_GUARD, -(-size // ALIGNMENT) * ALIGNMENT), MAX_GUARD)


def dtype_of(view: View) -> torch.dtype:
    return getattr(torch, view.dtype)


class Memory:
    """The storages of one case on one device, and what is to be in them.

    device: where kernels run. home: where the harness keeps its images and compares: the CPU for cases of up to
    `HOME_LIMIT` bytes, since a comparison is some dozens of small operations, each a few times cheaper there than a
    launch; the device itself beyond that. tensors: name -> the view, as it would be given to a kernel.
    """

    def __init__(self, case: Case, device: torch.device | str) -> None:
        self.case = case
        self.device = torch.device(device)
        self._guards = [guard_bytes(size) for size in case.storages]
        self._sizes = [-(-size // ALIGNMENT) * ALIGNMENT + 2 * g for size, g in zip(case.storages, self._guards)]
        small = sum(self._sizes) <= HOME_LIMIT
        self.home = torch.device("cpu") if small else self.device
        self._arenas = [self._allocate(size) for size in self._sizes]
        self._images: dict[int, list[Tensor]] = {}
        self._staged: dict[int, list[Tensor]] = {}
        self._bits = {
            name: make_bits(fill, dtype_of(view), view.extent, self.home)
            for name, view in case.tensors.items()
            if (fill := case.fills.get(name)) is not None
        }
        self.reset(0)
        self.tensors = self.views()

    def _allocate(self, size: int) -> Tensor:
        arena = torch.empty(size + ALIGNMENT, dtype=torch.uint8, device=self.device)
        # Allocators align to 64 (CPU) or 512 bytes; an offset in a case is relative to 256.
        skew = -arena.data_ptr() % ALIGNMENT
        return arena[skew : skew + size]

    def views(self) -> dict[str, Tensor]:
        """The tensors as new objects: what a kernel does to one of them (`set_`, `unsqueeze_`) does not last."""
        return {name: self.window(view) for name, view in self.case.tensors.items()}

    def originals(self) -> dict[str, Tensor]:
        """Every tensor as it is before a call, at home, on memory that no kernel is given."""
        return {name: self.window(view, self._image(0)) for name, view in self.case.tensors.items()}

    def window(self, view: View, arenas: list[Tensor] | None = None, *, as_bits: bool = False) -> Tensor:
        """Any view, as a tensor on the storages (or on a copy of them); `as_bits` as integers of the same size."""
        dtype = INT[view.itemsize] if as_bits else dtype_of(view)
        start = self._guards[view.storage]
        arena = (self._arenas if arenas is None else arenas)[view.storage]
        end = start + -(-max(view.end, view.offset) // view.itemsize) * view.itemsize
        typed = arena[start + view.offset : max(end, start + view.offset)].view(dtype)
        return typed.as_strided(view.shape, view.strides)

    def _image(self, poison: int) -> list[Tensor]:
        """At home, what every storage holds before a call: the poison in every byte that no fill covers."""
        if poison not in self._images:
            image = [torch.full((n,), POISONS[poison], dtype=torch.uint8, device=self.home) for n in self._sizes]
            for name, view in self.case.tensors.items():
                if name not in self._bits and not view.overlaps_itself:
                    word = bytes([OUTPUT_POISONS[poison]]) * view.itemsize
                    number = int.from_bytes(word, "little", signed=view.itemsize > 1)
                    self.window(view, image, as_bits=True).fill_(number)
            for name, values in self._bits.items():
                view = self.case.tensors[name].filled
                self.window(view, image, as_bits=True).copy_(values.view(view.shape))
            self._images[poison] = image
            self._staged[poison] = [i.to(self.device) for i in image]
        return self._images[poison]

    def reset(self, poison: int) -> None:
        """Put back the state before a call, with poison number 0 or 1."""
        self._image(poison)
        for arena, staged in zip(self._arenas, self._staged[poison]):
            arena.copy_(staged)
        self._poison = poison

    def snapshot(self) -> list[Tensor]:
        """The storages as they are, at home (not a copy where home is where they are)."""
        return [arena.to(self.home) for arena in self._arenas]

    def read(self, name: str, snapshot: list[Tensor] | None = None) -> Tensor:
        """At home: a contiguous copy of a tensor's values, of the same shape and dtype."""
        view = self.case.tensors[name]
        bits = self.window(view, snapshot or self.snapshot(), as_bits=True)
        return bits.clone(memory_format=torch.contiguous_format).view(dtype_of(view))

    def changed(self, writable: frozenset[str], snapshot: list[Tensor] | None = None) -> dict[str, Any] | None:
        """What differs from the state that `reset` left, apart from the elements of the `writable` tensors.

        Returns None, or where: {"what": "input" or "outside", "tensor": name (of an input), "storage", "byte" (relative
        to the storage's start, negative in the guard before it), "count" (bytes)}, all of them but the count said of the
        first byte.
        """
        for storage, (after, image) in enumerate(zip(snapshot or self.snapshot(), self._image(self._poison))):
            views = [v for n, v in self.case.tensors.items() if n in writable and v.storage == storage]
            if views:
                after = after.clone()
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
        place = int(places[0])
        first = place - self._guards[storage]
        found: dict[str, Any] = {"what": "outside", "storage": storage, "byte": first, "count": len(places)}
        for name, view in self.case.tensors.items():
            if name in self._bits and view.storage == storage and view.offset <= first < view.end:
                mask = torch.zeros_like(differs)  # of the view's own bytes, without its gaps
                start = self._guards[storage] + view.offset
                span = mask[start : start + view.span * view.itemsize]
                rows = span.view(-1, view.itemsize).as_strided(
                    (*view.shape, view.itemsize), (*(s * view.itemsize for s in view.strides), 1)
                )
                rows.fill_(True)
                if bool(mask[place]):
                    return found | {"what": "input", "tensor": name}
        return found

    def extents(self) -> list[tuple[int, int]]:
        """(address, bytes) of every view that has elements, gaps between its rows included."""
        views = self.case.tensors.items()
        return [(self.tensors[name].data_ptr(), view.span * view.itemsize) for name, view in views if view.numel]

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor's memory is one of these storages."""
        if tensor.layout != torch.strided:
            return False
        owners = {arena.untyped_storage().data_ptr() for arena in self._arenas}
        return tensor.untyped_storage().data_ptr() in owners and tensor.numel() > 0


class PoisonFresh(TorchFunctionMode):
    """While active, memory that torch allocates uninitialised (`torch.empty` and its kin) is filled with poison.

    So the elements a kernel leaves unwritten in an output that it allocated itself are told like those of a given one.
    Not seen, since torch tells no mode of them: the constructors of old (`torch.Tensor(3, 4)`) and bare storages.
    """

    ALLOCATORS = frozenset(
        {
            torch.empty,
            torch.empty_like,
            torch.empty_strided,
            torch.empty_permuted,
            torch.Tensor.new_empty,
            torch.Tensor.new_empty_strided,
        }
    )
    RESIZERS = frozenset({torch.Tensor.resize_, torch.Tensor.resize_as_})
    """They keep what was there, and what they add is uninitialised."""

    def __init__(self, poison: int) -> None:
        super().__init__()
        self.byte = OUTPUT_POISONS[poison]

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        resized = func in self.RESIZERS and args[0].layout == torch.strided
        old = args[0].untyped_storage().nbytes() if resized else 0
        result = func(*args, **kwargs)
        made = resized or (func in self.ALLOCATORS and kwargs.get("out") is None)
        if made and isinstance(result, Tensor) and result.layout == torch.strided:
            storage = result.untyped_storage()
            fresh = storage.nbytes() - old
            if fresh > 0 and result.device.type in ("cpu", "cuda"):
                result.new_empty(0, dtype=torch.uint8).set_(storage, old, (fresh,), (1,)).fill_(self.byte)
        return result


def is_poison(x: Tensor, poison: int) -> Tensor:
    """Bool, x's shape: the elements whose every byte is that of an output nobody wrote."""
    raw = x.contiguous().view(torch.uint8).view(*x.shape, x.element_size())
    return (raw == OUTPUT_POISONS[poison]).all(-1)
