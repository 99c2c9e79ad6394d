"""What a planted fault and a look-alike are, for every operator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NUMBERS = {"divergence", "wrong_nan", "wrong_inf"}
"""A wrong number: the drawn values decide whether it is finite, and whether it should be."""


@dataclass(frozen=True)
class Fault:
    """One bug.

    operator, folder: whose, and where the operator's faults lie. name: the function. where: its file in that folder.
    kinds: what the harness may call it. The first is what the bug is; the others are how it shows under another layout,
    alias relation or fill (an unwritten row is poison in a fresh output, and merely unmasked in place).
    minimum: sizes that a shrunk case must not exceed. trigger: what else the smallest failing call needs.
    needs_history: one call in a fresh process is always right.
    """

    operator: str
    folder: Path
    name: str
    where: str
    kinds: tuple[str, ...]
    minimum: dict[str, int]
    trigger: str
    needs_history: bool = False

    @property
    def spec(self) -> str:
        """How the harness is asked for it: file.py:function."""
        return f"{self.folder / self.where}:{self.name}"

    @property
    def names(self) -> set[str]:
        """What its entry may be called: its first kind; where that is a wrong number, any of its kinds that is one."""
        return NUMBERS & set(self.kinds) if self.kinds[0] in NUMBERS else {self.kinds[0]}

    @property
    def hangs(self) -> bool:
        return "hang" in self.kinds

    @property
    def needs_gpu(self) -> bool:
        return self.where == "device.py"


@dataclass(frozen=True)
class LookAlike:
    """A correct implementation that must never be accused. cases: how many it is given (an interpreted one is slow)."""

    operator: str
    folder: Path
    name: str
    where: str = "lookalikes.py"
    cases: int = 400

    @property
    def spec(self) -> str:
        return f"{self.folder / self.where}:{self.name}"
