"""Messages without what changes from run to run: the text by which two failures are recognised as one.

Numbers, sizes, addresses, paths, line numbers and mangled names go. Of names, those of types, functions, members and
headers stay, since they say which bug it is; those of variables go where the message says that it is one. A name that a
compiler does not know may be either, and stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable

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


_COMPILERS_RULES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    ("[\u2018\u2019]", "'"),  # g++ in a UTF-8 locale
    (r"; did you mean '[^']*'\?", ""),
    (r"\b((?:variable|parameter) ([\"'])?)\w+(?(2)\2| has\b)", lambda m: f"{m[1]}NAME{m[2] or ' has'}"),
    (r'"\w+"(?= has already been declared)', '"NAME"'),
    (
        r"((?:conflicting declaration|redeclaration of|redefinition of) '(?!(?:struct|class|union|enum) )[^'()]*?[\s*&])\w+'",
        r"\1NAME'",
    ),
    (r"(\bread-only \w+) '[^']*'", r"\1 'EXPRESSION'"),
    (r"^(?:could not|cannot) open source file \"(?:/.*/)?(.+)\"$", r"missing header \1"),
    (r"^(?:/.*/)?([\w./+\-]+): No such file or directory$", r"missing header \1"),
    (r"^'(?:/.*/)?([^']+)' file not found$", r"missing header \1"),
)
"""For what compilers say; the texts of other errors are not theirs to rename."""

_TRITONS_EXCERPT = re.compile(r"^at \d+:\d+:\n(?:.*\n)*?[ \t]*\^[ \t]*(?:\n|\Z)", re.MULTILINE)
"""Where in a kernel it was, which the message follows."""

_TRITONS_HEADING = re.compile(r"^PTXAS error: Internal Triton PTX codegen error$|^`ptxas` stderr:$", re.MULTILINE)
"""What Triton writes above whatever ptxas said."""

_TRITONS_QUOTE = re.compile(r"^\w+(?:Error|Exception)\(([\"'])(.*)\1\)$")
"""An exception inside of Triton's, as one of its versions writes what another writes plainly."""

_TYPES = re.compile(r"^(?:operand|argument) types are: *(.*)")
"""A line below an error of NVRTC or nvcc that says the same of many operators and functions."""


def normalise(text: str, limit: int = 200) -> str:
    """One line, at most `limit` characters, the same for the same failure wherever and however often it happens."""
    if re.fullmatch(r"missing header \S+", text):
        return text[:limit]
    for rule, replacement in _RULES:
        text = re.sub(rule, replacement, text)
    return text.strip()[:limit]


def first_error(log: str) -> str:
    """The first of `errors`."""
    return errors(log)[0]


def errors(log: str) -> list[str]:
    """The errors in a compiler's output, normalised; the first line that is not empty where none looks like one."""
    telling = _TRITONS_HEADING.sub("", _TRITONS_EXCERPT.sub("", log))
    lines = [line.strip() for line in (telling.strip() or log.strip() or "no output").splitlines() if line.strip()]
    places = [i for i, line in enumerate(lines) if _ERROR_LINE.search(line)] or [0]
    found = []
    for place, end in zip(places, [*places[1:], len(lines)]):
        message = _BEFORE_THE_MESSAGE.sub("", lines[place], count=1) or lines[place]
        types = next((match[1] for line in lines[place + 1 : end] if (match := _TYPES.match(line))), "")
        # Whether an operand is const is as little to the point as its name.
        types = re.sub(r"\b(?:const|volatile) ", "", types)
        message = _TRITONS_QUOTE.sub(r"\2", f"{message.rstrip(':')}: {types}" if types else message)
        for rule, replacement in _COMPILERS_RULES:
            message = re.sub(rule, replacement, message)
        found.append(normalise(message))
    return found


_FOLDERS = re.compile(
    r"""(?<=["'])/(?:[^"'/\n]+/)+(?=[^"'/\n]+["'])"""  # in quotes, where a space belongs to the name
    r"""|(?<![\w./:~])/(?:[\w.\-+@]+/)+(?=[\w.\-+@])"""
)


def without_folders(text: str) -> str:
    """A text that names files, without the folders that are this machine's."""
    return _FOLDERS.sub("", text)
