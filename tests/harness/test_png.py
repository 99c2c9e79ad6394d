"""harness.png: a file that reads back as the pixels that went in."""

# ruff: noqa: SIM300 - the expected value stands first

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.png import SIGNATURE, encode
from tests.harness.making import drawn


def chunks(data):
    """(kind, content) of each, its checksum compared."""
    assert data.startswith(SIGNATURE)
    at = len(SIGNATURE)
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.pack(">I", zlib.crc32(kind + content)) == data[at + 8 + length : at + 12 + length]
        yield kind, content
        at += 12 + length


def decode(data):
    """(width, height, rows), of what this encoder writes."""
    found = dict(chunks(data))
    width, height, depth, colour, *rest = struct.unpack(">IIBBBBB", found[b"IHDR"])
    assert (8, 2, [0, 0, 0]) == (depth, colour, rest)
    raw = zlib.decompress(found[b"IDAT"])
    stride = 3 * width + 1
    assert len(raw) == stride * height
    lines = [raw[i * stride : (i + 1) * stride] for i in range(height)]
    assert {0} == {line[0] for line in lines}
    return width, height, [line[1:] for line in lines]


@given(st.integers(1, 9), st.integers(1, 9), st.data())
@drawn(60)
def test_pixels_come_back(width, height, data):
    """Whatever they are."""
    rows = [data.draw(st.binary(min_size=3 * width, max_size=3 * width)) for _ in range(height)]
    assert (width, height, rows) == decode(encode(rows))


def test_the_order_of_chunks():
    """As the standard asks: header first, end last; texts between."""
    kinds = [kind for kind, _ in chunks(encode([b"abc"], {"Title": "a"}))]
    assert [b"IHDR", b"iTXt", b"IDAT", b"IEND"] == kinds


def test_texts_are_utf8():
    """Behind the keyword: not compressed, no language, no translation."""
    found = dict(chunks(encode([b"abc"], {"Title": "σ × 3"})))
    assert b"Title\0\0\0\0\0" + "σ × 3".encode() == found[b"iTXt"]


@pytest.mark.parametrize("rows", [[], [b""], [b"abcd"], [b"abc", b"abcdef"]])
def test_no_picture(rows):
    """Nothing, half a pixel, rows of two lengths."""
    with pytest.raises(ValueError, match="at least one pixel"):
        encode(rows)


@pytest.mark.parametrize("keyword", ["", "a" * 80, "a\0b"])
def test_no_keyword(keyword):
    """Of no or too many characters."""
    with pytest.raises(ValueError, match="no keyword"):
        encode([b"abc"], {keyword: "text"})
