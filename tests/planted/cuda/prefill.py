"""The production attention kernel with one slip each, made in its own text. They run on the CPU or on a GPU."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any
from unittest.mock import patch

from impls.single_prefill import cuda, single_prefill_with_kv_cache
from impls.single_prefill.cuda import SEMANTICS, execution, unavailable

__all__ = ["SEMANTICS", "execution", "unavailable"]

PRODUCTION = Path(cuda.__file__).parent


def unsupported(params: Mapping[str, object]) -> str | None:
    """A part of the matrix is enough: every other variant would be compiled as well."""
    plain = params["head_dim"] == 64 and params["dtype"] == "float16" and params["mask"] != "custom"
    return (
        None if plain and not params["soft_cap"] and not params["alibi"] and not params["window"] else "another variant"
    )


def replaced(file: str, old: str, new: str) -> dict[str, str]:
    """The kernel's files with one place of one of them changed. It has to be there, once."""
    texts = {path.name: path.read_text() for path in PRODUCTION.glob("*.cu*")}
    if texts[file].count(old) != 1:
        raise ValueError(f"{file} has changed: {old!r} is there {texts[file].count(old)} times")
    texts[file] = texts[file].replace(old, new)
    return texts


def kernel_of(texts: dict[str, str]) -> Callable[..., Any]:
    """The backend's own way to a kernel, for these files instead of its own."""
    folder = Path(tempfile.mkdtemp(prefix="warpcheck-planted-"))
    for name, text in texts.items():
        (folder / name).write_text(text)
    own = cuda._kernel.__wrapped__
    return functools.cache(FunctionType(own.__code__, {**vars(cuda), "_SOURCE": folder / "prefill.cu"}))


@functools.cache
def slipped(file: str, old: str, new: str) -> Callable[..., Any]:
    return kernel_of(replaced(file, old, new))


def attend(change: tuple[str, str, str], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    with patch.object(cuda, "_kernel", slipped(*change)):
        return single_prefill_with_kv_cache(*arguments, **keywords, backend="cuda")


BY_VALUE = (
    "variants.cuh",
    "const float2 first = ptx::unpack_half(sums[0]);",
    "const float2 first = {static_cast<float>(sums[0] & 0xFFFF), static_cast<float>(sums[0] >> 16)};",
)
WRONG_LAYOUT = (
    "prefill.cu",
    "const float(&block)[4] = s[atom][2 * n + i / 2];\n        a[atom][i] = pack(block[i % 2 * 2], block[i % 2 * 2 + 1]);",
    "const float(&block)[4] = s[atom][2 * n + i % 2];\n        a[atom][i] = pack(block[i / 2 * 2], block[i / 2 * 2 + 1]);",
)


def half_decoded_by_value(q: Any, k: Any, v: Any, **keywords: Any) -> Any:
    """The bits of a half accumulator are taken for a number. fp16 alone."""
    return attend(BY_VALUE, (q, k, v), keywords)


def fragment_in_the_wrong_layout(q: Any, k: Any, v: Any, **keywords: Any) -> Any:
    """The accumulator of q·k becomes the operand of p·v with the second and third register of four exchanged."""
    return attend(WRONG_LAYOUT, (q, k, v), keywords)
