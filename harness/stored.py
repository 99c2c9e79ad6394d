"""Values of a tensor in a file beside their entry: what a captured call brings, where it is too much to spell out.

Raw bytes, row-major and little-endian, in a file named by the SHA-256 digest of them. The entry says what a header would
(dtype and shape), so that there is nothing to parse; and with such a name no path can be said, two machines' files of one
name hold the same values, and a copy that is there need not be made again.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

import torch
from msgspec.structs import replace
from torch import Tensor

from harness import files
from harness.case import ITEMSIZE, MAX_STORED_BYTES, Case, CaseError, Fill, Stored, Subject

SUFFIX = ".bin"
NAME = re.compile(rf"[0-9a-f]{{64}}{re.escape(SUFFIX)}", re.ASCII)


def name_of(stored: Stored) -> str:
    """The file's name, in the folder of its entry."""
    return stored.digest + SUFFIX


def size_of(stored: Stored) -> int:
    """The file's size in bytes."""
    return math.prod(stored.shape) * ITEMSIZE[stored.dtype]


def put(x: Tensor, folder: Path) -> Stored:
    """Write a tensor's values, of any layout and at most `MAX_STORED_BYTES`, into a file of the folder.

    Raises CaseError for a larger one, before anything is copied.
    """
    if (size := x.numel() * x.element_size()) > MAX_STORED_BYTES:
        raise CaseError(f"{size} bytes of values; a file of values has at most {MAX_STORED_BYTES}")
    dense = x.detach().cpu().contiguous()
    data = ctypes.string_at(dense.data_ptr(), size)
    stored = Stored(hashlib.sha256(data).hexdigest(), str(x.dtype).removeprefix("torch."), tuple(x.shape), _at(folder))
    if not _is_there(stored, folder):
        files.write(folder / name_of(stored), data)
    return stored


def values(stored: Stored) -> Tensor:
    """The stored tensor: dense, on the CPU, read once.

    Raises CaseError, with one line that names the file, for one that is not the values that were stored.
    """
    data = _read(stored)
    if not data:
        return torch.empty(stored.shape, dtype=getattr(torch, stored.dtype))
    return torch.frombuffer(bytearray(data), dtype=getattr(torch, stored.dtype)).view(stored.shape)


def fitted(x: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """A stored tensor as a view of another dtype and shape has it: what a smaller or larger variant of the call is made of.

    Each dimension is cut, or repeated from its start; of another number of dimensions, the elements in row-major order are.
    """
    if x.dim() != len(shape):
        count = math.prod(shape)
        return x.reshape(-1)[torch.arange(count) % max(x.numel(), 1)].to(dtype)
    for i, (here, there) in enumerate(zip(x.shape, shape)):
        if here != there:
            x = x.index_select(i, torch.arange(there) % here)
    return x.to(dtype)


def _read(stored: Stored) -> bytes:
    path = Path(stored.folder) / name_of(stored)
    data = files.read(path, size_of(stored), "the file of these values", links=False)
    if len(data) != size_of(stored):
        raise CaseError(f"{path}: {len(data)} bytes, and the values have {size_of(stored)}")
    if hashlib.sha256(data).hexdigest() != stored.digest:
        raise CaseError(f"{path}: damaged: its bytes are not those that its name is the digest of")
    return data


def _is_there(stored: Stored, folder: Path) -> bool:
    try:
        _read(replace(stored, folder=_at(folder)))
    except CaseError:
        return False
    return True


def all_of(subject: Subject) -> Iterator[tuple[str, Stored]]:
    """(tensor, its stored values) of a case."""
    for name, fill in (subject.fills if isinstance(subject, Case) else {}).items():
        if fill.file is not None:
            yield name, fill.file


def placed(subject: Subject, folder: Path) -> Subject:
    """The subject as it is in memory: its values are looked for in `folder`, from any process.

    Raises CaseError for a file that is not there or of another size; none is opened.
    """
    for name, stored in all_of(subject):
        if stored.folder:
            raise CaseError(f"fill {name!r}: names a folder, where only a file beside the entry can be meant")
        path = folder / name_of(stored)
        if (size := files.size_of(path, links=False)) != size_of(stored):
            raise CaseError(f"fill {name!r}: {path.name} has {size} bytes, and the values have {size_of(stored)}")
    return _in(subject, _at(folder))


def portable(subject: Subject) -> Subject:
    """The subject as it is on disk, and as it compares: without where its values lie."""
    return _in(subject, "")


def bring(subject: Subject, folder: Path) -> None:
    """Copy the files of a subject's values into another folder, each whole or not at all.

    Raises CaseError for one that cannot be read.
    """
    for _, stored in all_of(subject):
        if stored.folder != _at(folder) and not _is_there(stored, folder):
            files.write(folder / name_of(stored), _read(stored))


def drop(names: set[str], folder: Path) -> None:
    """Remove files of values."""
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(folder / name)


def _at(folder: Path) -> str:
    return os.path.abspath(folder)


def _in(subject: Subject, folder: str) -> Subject:
    if not any(True for _ in all_of(subject)):
        return subject
    assert isinstance(subject, Case)

    def moved(fill: Fill) -> Fill:
        return fill if fill.file is None else replace(fill, file=replace(fill.file, folder=folder))

    return replace(subject, fills={name: moved(fill) for name, fill in subject.fills.items()})
