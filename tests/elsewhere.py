"""A root where planted faults and kernels are, and neither harness nor oracles: what scripts of entries have to do with."""

from pathlib import Path

ROOT = Path(__file__).parents[1]


def lay_out(folder: Path) -> Path:
    """Make such a root of a folder; the folder."""
    (folder / "tests").mkdir(parents=True)
    (folder / "tests" / "planted").symlink_to(ROOT / "tests" / "planted")
    (folder / "impls").symlink_to(ROOT / "impls")
    return folder
