"""A PNG encoder: 8-bit RGB, no interlacing (W3C, Portable Network Graphics, third edition)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGB = 2
"""Colour type: three samples a pixel."""


def encode(rows: Sequence[bytes], texts: Mapping[str, str] | None = None) -> bytes:
    """A PNG file of these rows, each 3 bytes a pixel. texts: keyword -> text, kept as iTXt.

    Raises ValueError for no pixels, rows of several lengths, and a keyword that is none (1 to 79 Latin-1 characters).
    """
    if not rows or not rows[0] or len(rows[0]) % 3 or any(len(row) != len(rows[0]) for row in rows):
        raise ValueError("a picture has at least one pixel, and rows of one length, of 3 bytes a pixel")
    header = struct.pack(">IIBBBBB", len(rows[0]) // 3, len(rows), 8, _RGB, 0, 0, 0)
    parts = [SIGNATURE, chunk(b"IHDR", header)]
    for keyword, text in (texts or {}).items():
        key = keyword.encode("latin-1")
        if not 1 <= len(key) <= 79 or b"\0" in key:
            raise ValueError(f"{keyword!r} is no keyword of a PNG text")
        parts.append(chunk(b"iTXt", key + b"\0\0\0\0\0" + text.encode()))  # not compressed, of no language
    # Each row says how it is filtered: 0, not at all. Few colours in long runs leave nothing for a filter to win.
    parts.append(chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows), 9)))
    parts.append(chunk(b"IEND", b""))
    return b"".join(parts)


def chunk(kind: bytes, data: bytes) -> bytes:
    """Length, kind, data, and the CRC-32 of the latter two."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
