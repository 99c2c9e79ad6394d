"""Choosing a backend: the modules of an operator's package that its `BACKENDS` names, imported when they are first used."""

import functools
import importlib
from types import ModuleType

import torch


@functools.cache
def choose(package: str, names: tuple[str, ...], name: str, device: torch.device) -> ModuleType:
    """The backend of that name for tensors on `device`; "auto" is the first that can run on a GPU, and "torch" elsewhere.

    Raises ValueError with the reason if it cannot run there, or if there is none of that name.
    """
    if name == "auto":
        if device.type != "cuda":
            return _module(package, "torch")
        return next(m for m in (_module(package, n) for n in names) if m.unavailable(device) is None)
    if name not in names:
        raise ValueError(f"backend must be auto, {', '.join(names)}, got {name!r}")
    module = _module(package, name)
    if reason := module.unavailable(device):
        raise ValueError(f"backend {name!r} cannot run here: {reason}")
    return module


def _module(package: str, name: str) -> ModuleType:
    # Imported on use: a backend's compiler takes a second to import, and may not be installed.
    return importlib.import_module(f"{package}.{name}")
