"""Files of named tensors that somebody else wrote: torch.save's and safetensors'. Reading one executes nothing.

A torch.save file is a zip archive with a pickle in it. What the pickle names is looked at before torch reads it, so that
one with a class in it is refused by that class's name; then `torch.load(weights_only=True)` does, which makes tensors and
plain values alone. Views of one storage stay that, with their strides and offsets. The header of a safetensors file is
JSON and small, so it is read here, strictly; there every tensor is dense and by itself.
"""

from __future__ import annotations

import math
import os
import pickletools
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from harness import files
from harness.case import ITEMSIZE, MAX_RANK, MAX_STORED_BYTES, MAX_TENSORS, CaseError, Natural, Params

MAX_HEADER = 256 << 10
"""Bytes of a safetensors header, or of the pickle in a torch.save file: a hundred times what a call needs."""
MAX_PARAMS = 1 << 20
"""Bytes of a file of parameters."""


@dataclass(frozen=True)
class Captured:
    """tensors: name -> tensor on the CPU, of which several may share a storage. params: what else the file says."""

    tensors: dict[str, Tensor]
    params: Params


def read(path: Path) -> Captured:
    """The tensors in a file, told by its first bytes. Raises CaseError, with one line that names the file."""
    try:
        return _read(path)
    except CaseError as error:
        text = str(error)
        raise CaseError(text if text.startswith(f"{path}:") else f"{path}: {text}") from None


def _read(path: Path) -> Captured:
    with files.opened(path) as file:
        start = file.read(9)
        if start.startswith(b"PK\x03\x04"):
            found = _torch_save(path)
        elif start[8:] == b"{":
            found = _safetensors(file)
        elif start.startswith(b"\x80"):
            raise CaseError("a pickle, or a torch.save file of before torch 1.6: save it again with a torch of today")
        else:
            raise CaseError("neither a torch.save file nor a safetensors file")
    for name, x in found.tensors.items():
        _check(name, x)
    return found


def params_of(path: Path) -> Params:
    """A JSON object of parameters. Raises CaseError, with one line that names the file."""
    text = files.read(path, MAX_PARAMS, "a file of parameters")
    try:
        found = msgspec.json.decode(text, type=dict[str, Any])
        return _params(found)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CaseError(f"{path}: not a JSON object of parameters: {error}") from None
    except CaseError as error:
        raise CaseError(f"{path}: {error}") from None


def _params(given: Mapping[Any, Any]) -> Params:
    """Scalars, or lists of them, as JSON has them: what is not finite becomes a word, as in a case."""

    def plain(name: str, value: Any) -> Any:
        if isinstance(value, (list, tuple)) and not any(isinstance(v, (list, tuple)) for v in value):
            return [plain(name, v) for v in value]
        if type(value) is float and not math.isfinite(value):
            return str(value)
        if value is not None and type(value) not in (bool, int, float, str):
            raise CaseError(
                f"parameter {name!r} is a {type(value).__name__}; parameters are numbers, bools, text or null"
            )
        return value

    for name in given:
        if not isinstance(name, str):
            raise CaseError(f"a parameter is called {name!r}, which is no text")
    return {name: plain(name, value) for name, value in given.items()}


_STORAGES = ("Float", "Half", "BFloat16", "Double", "Char", "Byte", "Short", "Int", "Long", "Bool")
_ALLOWED = frozenset(
    {
        "collections OrderedDict",
        "torch._utils _rebuild_tensor_v2",
        "torch._utils _rebuild_parameter",
        *(f"torch {kind}Storage" for kind in _STORAGES),
    }
)
"""What the pickle of dense tensors of known dtypes and plain values names."""

_NAMES_CODE = frozenset({"STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4"})
"""Instructions that torch.save does not write, and that name or make an object of any class."""


def _torch_save(path: Path) -> Captured:
    _look_at_pickle(path)
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # whatever torch makes of a hostile file
        raise CaseError(f"torch.load refuses it: {str(error).strip().partition(chr(10))[0]}") from None
    if not isinstance(loaded, dict):
        raise CaseError(f"holds a {type(loaded).__name__}; it should be a dict of named tensors")
    params = loaded.pop("params", {})
    if not isinstance(params, dict):
        raise CaseError(f"its 'params' are a {type(params).__name__}; they should be a dict")
    for name, value in loaded.items():
        if not isinstance(name, str) or not (value is None or isinstance(value, Tensor)):
            raise CaseError(
                f"{name!r} is a {type(value).__name__}, no tensor (parameters go into a dict called 'params')"
            )
    return Captured({name: value.detach() for name, value in loaded.items() if value is not None}, _params(params))


def _look_at_pickle(path: Path) -> None:
    """Refuse a pickle that names anything but tensors, and an archive whose records are compressed."""
    try:
        with zipfile.ZipFile(path) as archive:
            records = archive.infolist()
            pickles = [record for record in records if record.filename.endswith("/data.pkl")]
            if len(pickles) != 1 or any(record.compress_type != zipfile.ZIP_STORED for record in records):
                raise CaseError("a zip archive, but not of torch.save")
            if pickles[0].file_size > MAX_HEADER:
                raise CaseError(f"a pickle of {pickles[0].file_size} bytes; that of a call has at most {MAX_HEADER}")
            text = archive.read(pickles[0])
        for instruction, argument, _ in pickletools.genops(text):
            if instruction.name in _NAMES_CODE or (instruction.name == "GLOBAL" and argument not in _ALLOWED):
                what = str(argument).replace(" ", ".") if argument else instruction.name
                raise CaseError(f"its pickle names {what!r}: only dense tensors and plain values are read, never code")
    except CaseError:
        raise
    except Exception as error:  # whatever zipfile and pickletools make of a torn or hostile file
        raise CaseError(f"not a whole torch.save file: {type(error).__name__}: {error}") from None


_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
}


class _Slot(msgspec.Struct, forbid_unknown_fields=True):
    dtype: str
    shape: tuple[Natural, ...]
    data_offsets: tuple[Natural, Natural]


def _safetensors(file: Any) -> Captured:
    """Every size is checked against the file's before anything of it is read."""
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if length > min(MAX_HEADER, size - 8):
        raise CaseError(f"a safetensors header of {length} bytes in a file of {size} (at most {MAX_HEADER})")
    try:
        slots = msgspec.json.decode(file.read(length), type=dict[str, msgspec.Raw])
        metadata = msgspec.json.decode(slots.pop("__metadata__", msgspec.Raw(b"{}")), type=dict[str, str])
        if len(slots) > MAX_TENSORS:
            raise CaseError(f"more than {MAX_TENSORS} tensors")
        found = {name: msgspec.json.decode(slot, type=_Slot) for name, slot in slots.items()}
        params = msgspec.json.decode(metadata.get("params", "{}"), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CaseError(f"not a safetensors header: {error}") from None
    place = 0
    for name, slot in sorted(found.items(), key=lambda item: item[1].data_offsets):
        begin, end = slot.data_offsets
        if slot.dtype not in _DTYPES:
            raise CaseError(f"tensor {name!r}: dtype {slot.dtype!r}; known are {', '.join(_DTYPES)}")
        if begin != place or end - begin != math.prod(slot.shape) * ITEMSIZE[_DTYPES[slot.dtype]]:
            raise CaseError(f"tensor {name!r}: bytes {begin} to {end} are not those of {slot.dtype} {list(slot.shape)}")
        if end - begin > MAX_STORED_BYTES:
            raise CaseError(f"tensor {name!r}: {end - begin} bytes of values; at most {MAX_STORED_BYTES}")
        place = end
    if 8 + length + place != size:
        raise CaseError(f"its tensors end at byte {8 + length + place} of {size}")
    return Captured({name: _slice(file, 8 + length, slot) for name, slot in found.items()}, _params(params))


def _slice(file: Any, start: int, slot: _Slot) -> Tensor:
    dtype = getattr(torch, _DTYPES[slot.dtype])
    begin, end = slot.data_offsets
    if begin == end:
        return torch.empty(slot.shape, dtype=dtype)
    file.seek(start + begin)
    return torch.frombuffer(bytearray(file.read(end - begin)), dtype=dtype).view(slot.shape)


def _check(name: str, x: Tensor) -> None:
    """That a case can say what the tensor is."""
    dtype = str(x.dtype).removeprefix("torch.")
    if dtype not in ITEMSIZE:
        raise CaseError(f"tensor {name!r}: dtype {dtype}; known are {', '.join(ITEMSIZE)}")
    if x.layout != torch.strided or x.is_quantized or x.is_neg() or x.device.type != "cpu":
        raise CaseError(f"tensor {name!r}: not a dense tensor of plain numbers")
    if x.dim() > MAX_RANK:
        raise CaseError(f"tensor {name!r}: {x.dim()} dimensions; at most {MAX_RANK}")
