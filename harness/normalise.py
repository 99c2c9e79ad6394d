"""Messages without what changes from run to run: the text by which two failures are recognised as one.

Numbers, sizes, addresses, paths, line numbers and mangled names go; words, types and quoted identifiers stay.
"""

from __future__ import annotations

import re

_RULES: tuple[tuple[str, str], ...] = (
    (r"\x1b\[[0-9;]*m", ""),
    (r"0x[0-9a-fA-F]+", "ADDRESS"),
    (r"(?:[A-Za-z]:)?(?:[\w.\-+~]*/)+[\w.\-+]+(?:[(:]\d+[):]?)*", "FILE"),
    (r"\b[\w\-]+\.(?:cuh?|cpp|cc|h|hpp|py|ptx|ll|mlir)\b(?:[(:]\d+[):]?)*", "FILE"),
    (r"\b_Z\w+", "SYMBOL"),
    (r"\bsm_\d+[af]?\b|\bcompute_\d+[af]?\b", "ARCH"),
    (r"\bcuda:\d+\b", "cuda"),
    (r"\[[\d, ]*\]|\([\d, ]+\)", "SHAPE"),
    (r"(?<![\w#])(?:\d+x)+(?=[a-z])", "SHAPEx"),  # 16x128xf16
    (r"(?<![\w#])\d+(?:x\d+)+(?!\w)", "SHAPE"),  # 128x64
    (r"(?<![\w#])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w])", "N"),
    (r"\s+", " "),
    # CUDA on the CPU: which thread it was, which of two accesses came second, and who else waits depend on the case.
    (r" \[thread SHAPE of block SHAPE\]$", ""),
    (
        r"\b(race: \w+ memory) that .*?(?:with |, and (?:there is )?)(no barrier between|nothing orders blocks)",
        r"\1, \2",
    ),
    (r"\b(no thread of block SHAPE can go on):.*", r"\1"),
    (r"\b(names a lane that has exited) or never was\b", r"\1"),
)

_ERROR_LINE = re.compile(
    r"(?i:\berror\b(?:\s*[:#]|\s+\w*\d+\s*:)|\bfatal\s*:|\bundefined reference to\b)"
    r"|^(?:\w+\.)*\w*(?:Error|Exception)\b"
    r"|^(?:\w+\.)+[A-Z]\w*:"  # triton.runtime.errors.OutOfResources: ...
)

_BEFORE_THE_MESSAGE = re.compile(
    r"^.*?\b(?:(?:catastrophic |fatal )?error\b\s*(?:#?[\w\-]*\d+[\w\-]*)?|fatal)\s*:\s*|^.*(?=undefined reference to\b)",
    re.IGNORECASE,
)


def normalise(text: str, limit: int = 200) -> str:
    """One line, at most `limit` characters, the same for the same failure wherever and however often it happens."""
    for rule, replacement in _RULES:
        text = re.sub(rule, replacement, text)
    return text.strip()[:limit]


def first_error(log: str) -> str:
    """The first error line of a compiler's output, normalised; the first line that is not empty where none looks like one."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    line = next((line for line in lines if _ERROR_LINE.search(line)), lines[0] if lines else "no output")
    return normalise(_BEFORE_THE_MESSAGE.sub("", line, count=1) or line)
