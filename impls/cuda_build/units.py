"""Translation units as files that compile on their own: for whoever reduces or reports what a compiler refuses."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

DEEPEST = 100
"""Inclusions inside one another; a header that includes itself without end is an error."""


@dataclass(frozen=True)
class TranslationUnit:
    """What a compiler was to be handed, as one file."""

    tool: str
    """The compiler, as in `BuildError.tool`."""
    name: str
    """Of the file, as messages should call it."""
    text: str
    """Macros and headers included, but for the headers of CUDA and of the system."""
    command: tuple[str, ...]
    """Compiles the file whose path is appended: exit status 0 it compiles, 1 it does not and the log is on stderr, 125 the
    compiler is not there."""


_collected: list[TranslationUnit] | None = None


@contextmanager
def translation_units() -> Iterator[list[TranslationUnit]]:
    """Inside, `compile_cubin` compiles nothing and returns b"": the list gets what it would have compiled.

    For the whole process, and not to be nested; a module whose `build` calls `compile_cubin` offers it under this name.
    """
    global _collected
    _collected = []
    try:
        yield _collected
    finally:
        _collected = None


def collected() -> list[TranslationUnit] | None:
    """The list of the `translation_units` that is open, or None."""
    return _collected


# An include or a conditional counts only outside of comments and literals, so these are matched first.
_TOKEN = re.compile(
    r"//(?:\\\n|[^\n])*|/\*.*?\*/"
    r'|R"(?P<delimiter>[^()\s]*)\(.*?\)(?P=delimiter)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'"
    r'|^[ \t]*#[ \t]*include[ \t]*(?P<open>[<"])(?P<header>[^>"\n]+)[>"][^\n]*'
    r"|^[ \t]*#[ \t]*pragma[ \t]+once\b[^\n]*"
    r"|^[ \t]*#[ \t]*(?P<conditional>if|ifdef|ifndef|endif)\b",
    re.MULTILINE | re.DOTALL,
)
_GUARDED = re.compile(
    r"\A(?:\s|//[^\n]*|/\*.*?\*/)*#[ \t]*ifndef[ \t]+(\w+)[^\n]*\n\s*#[ \t]*define[ \t]+\1\b.*#[ \t]*endif\b"
    r"(?:\s|//[^\n]*|/\*.*?\*/)*\Z",
    re.DOTALL,
)
_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b", re.MULTILINE)


def flattened(text: str, beside: Path, folders: Sequence[Path]) -> str:
    """`text` with every header that is found inlined: one in quotes beside the file that includes it (the text itself is
    taken to lie in `beside`), any in `folders`. What is found nowhere stays an include.

    Raises ValueError for headers that include one another without end.
    """
    return _Flattener(folders).inlined(text, beside, 0, sure=True)


@dataclass
class _Flattener:
    """A header that is meant to be read once is inlined once, if that place is not under a conditional; at every place until
    then, under a guard, since which one the preprocessor takes is not known."""

    folders: Sequence[Path]
    read: set[Path] = field(default_factory=set)
    """Headers to be read once that came at a place under no conditional."""
    perhaps: list[Path] = field(default_factory=list)
    """Those that came at a place under one."""
    reading: list[Path] = field(default_factory=list)

    def inlined(self, text: str, beside: Path, level: int, *, sure: bool) -> str:
        """level: how many of the text's own conditionals are its include guard. sure: the text is under no conditional."""
        pieces: list[str] = []
        start, depth = 0, -level
        for match in _TOKEN.finditer(text):
            if conditional := match["conditional"]:
                depth += -1 if conditional == "endif" else 1
                continue
            if match["header"]:
                here = self._header(match["header"], match["open"] == '"', beside, sure=sure and depth <= 0)
            elif _ONCE.match(match[0]):
                here = "" if self.reading else None
            else:
                continue
            if here is not None:
                pieces += [text[start : match.start()], here]
                start = match.end()
        return "".join([*pieces, text[start:]])

    def _header(self, name: str, quoted: bool, beside: Path, *, sure: bool) -> str | None:
        path = next((d / name for d in ([beside] if quoted else []) + [*self.folders] if (d / name).is_file()), None)
        if path is None:
            return None
        path = path.resolve()
        text = path.read_text()
        guarded = bool(_GUARDED.match(text))
        once = guarded or bool(_ONCE.search(text))
        if once and (path in self.read or path in self.reading):
            return ""
        if len(self.reading) >= DEEPEST:
            raise ValueError(f"{path.name} is included {DEEPEST} headers deep")
        if once and sure:
            self.read.add(path)
        elif once and path not in self.perhaps:
            self.perhaps.append(path)
        self.reading.append(path)
        try:
            inlined = self.inlined(text, path.parent, int(guarded), sure=sure)
        finally:
            self.reading.pop()
        if not guarded and path in self.perhaps:
            guard = f"INLINED_{self.perhaps.index(path)}_{re.sub(r'[^A-Za-z0-9]', '_', path.name)}"
            inlined = f"#ifndef {guard}\n#define {guard}\n{inlined}\n#endif"
        return inlined.rstrip("\n")
