"""The data model of a call: `Case`, and of a compilation: `Build`. Immutable, JSON, no tensor data.

Reading either executes nothing: JSON is decoded into these structs, then `validate` checks every number against its
neighbours and against stated limits, before anything of that size is allocated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

FORMAT = 2
"""Version of the JSON. Entries of older ones are migrated on reading (`harness.migrate`); any other is refused."""

MAX_BYTES = 1 << 40
"""Of all storages of a case together, and of all its tensors, each as large as it would be dense: judging copies them."""
MAX_STORED_BYTES = 256 << 20
"""Of one tensor's values in a file beside its entry."""
MAX_RANK = 8
MAX_TENSORS = 64
MAX_DEPTH = 8
"""Of the lists and objects in a value of `params`, one in another: how deep a JSON decoder goes differs from Python to Python."""

ITEMSIZE: Mapping[str, int] = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
}
"""Bytes an element, for every dtype that a case may name (torch's names)."""

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})

FILL_KINDS = (
    "cycle",
    "choice",
    "uniform",
    "dominant",
    "spread",
    "near",
    "sorted",
    "outlier",
    "mostly_minus_inf",
    "specials",
    "raw",
    "file",
)
"""The kinds that a fill may have, from the plainest to the wildest. `harness.fill` makes them; the last, none of whose values
are made, is never drawn."""

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_BYTES)]
Check: TypeAlias = Literal["race", "memory", "undefined"]
"""What can be checked of a CUDA kernel that runs on the CPU (`execution` of an implementation's module)."""

Number: TypeAlias = int | float | str
"""A value in a fill: a number; one of "nan", "inf", "-inf" (JSON has no words of its own for them); or a bit pattern,
"0x7fc00001": hexadecimal digits, no wider than the dtype. "nan" is the positive quiet one without a payload."""


class CaseError(ValueError):
    """A case, or an entry that holds one, that cannot be read. The message is one line, fit for a user."""


class View(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A strided window on a storage: what a torch tensor is."""

    storage: Natural
    """Index into `Case.storages`. Two views of one storage are how aliasing is said."""
    dtype: str
    """A key of `ITEMSIZE`."""
    shape: tuple[Natural, ...]
    strides: tuple[Natural, ...]
    """In elements, one a dimension. 0 is an expanded dimension."""
    offset: Natural = 0
    """Start within the storage, in bytes; a multiple of the item size. Storages are 256-byte aligned."""

    @property
    def itemsize(self) -> int:
        return ITEMSIZE[self.dtype]

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def span(self) -> int:
        """Elements from the first to the last one addressed, both included; 0 when there are none."""
        if self.numel == 0:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides))

    @property
    def end(self) -> int:
        """The byte of the storage just past the last element."""
        return self.offset + self.span * self.itemsize

    @property
    def filled(self) -> View:
        """What a fill covers: the view, or the memory under it, element by element, where its elements overlap."""
        return View(self.storage, self.dtype, (self.span,), (1,), self.offset) if self.overlaps_itself else self

    @property
    def extent(self) -> tuple[int, ...]:
        """The shape that a fill covers."""
        return self.filled.shape

    @property
    def overlaps_itself(self) -> bool:
        """Whether two indices may share an element (exact for nested strides, the only ones drawn here)."""
        needed = 1
        for stride, size in sorted((t, s) for s, t in zip(self.shape, self.strides) if s > 1):
            if stride < needed:
                return self.numel > 0
            needed = stride * (size - 1) + needed
        return False


class Planted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One value put at one place, after the fill."""

    index: Natural
    """Row-major index into the view's elements."""
    value: Number


class Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tensor's values in a file beside the entry (`harness.stored`)."""

    digest: str
    """SHA-256 of the file's bytes, in hexadecimal: the file's name."""
    dtype: str
    shape: tuple[Natural, ...]
    """Of what was stored. A fill lays it over a view of any shape (`harness.stored.fitted`)."""
    folder: str = ""
    """In memory, where the file is; never in an entry."""


class Fill(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a view's values are made. `harness.fill` gives every kind its meaning."""

    kind: str
    """One of `FILL_KINDS`."""
    seed: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] = 0
    values: tuple[Number, ...] = ()
    """What `cycle` and `choice` take their values from; the scale of `uniform` and `dominant`; what `near` is near to."""
    planted: tuple[Planted, ...] = ()
    file: Stored | None = None
    """Of the kind `file`, and no other: where the values are."""


Params: TypeAlias = dict[str, Any]
"""Scalars, flags and enums of one operator; JSON values."""


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="call"):
    """One call of one operator, completely described. The device is not part of it."""

    operator: str
    params: Params
    storages: tuple[Natural, ...] = ()
    """Size of each allocation, in bytes."""
    tensors: dict[str, View] = {}
    fills: dict[str, Fill] = {}
    """One for each tensor that is read; a tensor without one holds poison."""
    tuning: Natural = 0
    """Which of an implementation's TUNING choices (block sizes and the like) is asked for, modulo their number."""
    schedule: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] = 0
    """Of a CUDA kernel that runs on the CPU: 0 runs threads and blocks in order, another number seeds an arbitrary order.
    It means nothing elsewhere."""
    checks: tuple[Check, ...] = ()
    """Of a CUDA kernel that runs on the CPU: what is checked. Elsewhere the case cannot be judged."""
    format: int = FORMAT

    def key(self) -> bytes:
        """A canonical text: equal cases have equal keys."""
        return msgspec.json.encode(self, order="deterministic")


class Build(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="build"):
    """One compilation of one implementation, for an architecture that need not be present."""

    operator: str
    params: Params
    """What the operator's `build_params` gives, and one value of each of the implementation's BUILD_AXES."""
    arch: str
    format: int = FORMAT

    def key(self) -> bytes:
        """A canonical text: equal builds have equal keys."""
        return msgspec.json.encode(self, order="deterministic")


Subject: TypeAlias = Case | Build
"""What is judged."""


def validate(subject: Subject) -> None:
    """Check what types alone cannot say. Raises `CaseError` with one line."""
    if subject.format != FORMAT:
        raise CaseError(f"format {subject.format} is not the format {FORMAT} that this version reads")
    for name, value in subject.params.items():
        if _deeper(value, MAX_DEPTH):
            raise CaseError(f"parameter {name[:80]!r}: lists and objects that are more than {MAX_DEPTH} deep")
    if isinstance(subject, Build):
        return
    if len(subject.tensors) > MAX_TENSORS or len(subject.storages) > MAX_TENSORS:
        raise CaseError(f"more than {MAX_TENSORS} tensors or storages")
    for name, view in subject.tensors.items():
        _validate_view(name, view, subject.storages)
    dense = sum(view.numel * view.itemsize for view in subject.tensors.values())
    if max(dense, total_bytes(subject)) > MAX_BYTES:
        raise CaseError(f"{total_bytes(subject)} bytes of storage and {dense} of tensors; at most {MAX_BYTES}")
    for name, fill in subject.fills.items():
        if name not in subject.tensors:
            raise CaseError(f"fill {name!r} belongs to no tensor")
        _validate_fill(name, fill, subject.tensors[name])


def _deeper(value: object, depth: int) -> bool:
    """Whether lists and objects stand in one another more than `depth` times; nothing here recurses."""
    level = [value]
    for _ in range(depth):
        level = [
            inner
            for outer in level
            if isinstance(outer, list | dict)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return any(isinstance(inner, list | dict) for inner in level)


def _validate_view(name: str, view: View, storages: tuple[int, ...]) -> None:
    if view.dtype not in ITEMSIZE:
        raise CaseError(f"tensor {name!r}: unknown dtype {view.dtype!r}; known are {', '.join(ITEMSIZE)}")
    if len(view.shape) != len(view.strides) or len(view.shape) > MAX_RANK:
        raise CaseError(
            f"tensor {name!r}: {len(view.shape)} sizes and {len(view.strides)} strides (at most {MAX_RANK})"
        )
    if view.storage >= len(storages):
        raise CaseError(f"tensor {name!r}: storage {view.storage} of {len(storages)}")
    if view.offset % view.itemsize:
        raise CaseError(f"tensor {name!r}: offset {view.offset} is no multiple of {view.itemsize} bytes")
    if max(view.end, view.offset) > storages[view.storage]:
        raise CaseError(f"tensor {name!r}: ends at byte {view.end} of a storage of {storages[view.storage]} bytes")


def _validate_fill(name: str, fill: Fill, view: View) -> None:
    if fill.kind not in FILL_KINDS:
        raise CaseError(f"fill {name!r}: unknown kind {fill.kind!r}; known are {', '.join(FILL_KINDS)}")
    if (fill.kind == "file") != (fill.file is not None):
        raise CaseError(f"fill {name!r}: the kind `file` needs `file`, and no other has it")
    if fill.file is not None:
        _validate_stored(name, fill.file, view)
    for planted in fill.planted:
        if planted.index >= view.numel:
            raise CaseError(f"fill {name!r}: planted index {planted.index} of {view.numel} elements")
    for value in (*fill.values, *(p.value for p in fill.planted)):
        if isinstance(value, str) and value not in _WORDS and bit_pattern(value) is None:
            raise CaseError(f"fill {name!r}: {value[:40]!r} is no number")
        if not fits(value, view.dtype):
            raise CaseError(f"fill {name!r}: a value that {view.dtype} cannot hold")


def _validate_stored(name: str, stored: Stored, view: View) -> None:
    if not re.fullmatch("[0-9a-f]{64}", stored.digest, re.ASCII):
        raise CaseError(f"fill {name!r}: {stored.digest[:80]!r} is no SHA-256 digest")
    if stored.dtype not in ITEMSIZE:
        raise CaseError(f"fill {name!r}: unknown dtype {stored.dtype[:80]!r} of stored values")
    if (stored.dtype in FLOATS) != (view.dtype in FLOATS):
        raise CaseError(f"fill {name!r}: stored values are {stored.dtype}, of which {view.dtype} cannot be made")
    size = math.prod(stored.shape) * ITEMSIZE[stored.dtype]
    if len(stored.shape) > MAX_RANK or not 0 < size <= MAX_STORED_BYTES:
        raise CaseError(f"fill {name!r}: {size} bytes of stored values; there can be 1 to {MAX_STORED_BYTES}")


_WORDS = ("nan", "inf", "-inf")
_PATTERN = re.compile("0x([0-9a-fA-F]{1,16})", re.ASCII)


def bit_pattern(value: Number) -> int | None:
    """The bits that a value spells out, as an unsigned integer; None when it is a number or a word."""
    match = _PATTERN.fullmatch(value) if isinstance(value, str) else None
    return int(match[1], 16) if match else None


def fits(value: Number, dtype: str) -> bool:
    """Whether a tensor can hold a value at all: integers wrap and floats round, but NaN is no integer, and the bits of a
    pattern are all there or it is none of the dtype (a bool has one)."""
    bits = bit_pattern(value)
    if bits is not None:
        return bits < (2 if dtype == "bool" else 1 << 8 * ITEMSIZE[dtype])
    if isinstance(value, str) and value not in _WORDS:
        return False
    try:
        float(value) if dtype in FLOATS else int(value)
    except (OverflowError, ValueError):
        return False
    return True


def total_bytes(case: Case) -> int:
    """Bytes of all storages of a case."""
    return sum(case.storages)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides, in elements, of a dense tensor."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def tidy(case: Case) -> Case:
    """The same case without what no view uses: storages dropped or cut to the last byte, planted values out of range."""
    used = sorted({view.storage for view in case.tensors.values()})
    index = {old: new for new, old in enumerate(used)}
    ends = [0] * len(used)
    tensors = {}
    for name, view in case.tensors.items():
        tensors[name] = msgspec.structs.replace(view, storage=index[view.storage])
        ends[index[view.storage]] = max(ends[index[view.storage]], view.end, view.offset)
    fills = {
        name: msgspec.structs.replace(fill, planted=tuple(p for p in fill.planted if p.index < tensors[name].numel))
        for name, fill in case.fills.items()
        if name in tensors
    }
    return msgspec.structs.replace(case, storages=tuple(ends), tensors=tensors, fills=fills)
