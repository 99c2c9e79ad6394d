"""Compiled code on disk: a key names a file, and a file that is not whole does not exist.

Files live in $WARPCHECK_CACHE, else $XDG_CACHE_HOME/warpcheck, else ~/.cache/warpcheck. Each holds a magic word, the SHA-256
of the payload and the payload. The cache is an optimisation: a folder that cannot be written costs time and raises nothing.
"""

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

_MAGIC = b"warpcheck-cache-1\n"
_HEADER = len(_MAGIC) + hashlib.sha256().digest_size


def directory() -> Path:
    """The folder of the cache, read from the environment at each call. It may not exist yet."""
    if path := os.environ.get("WARPCHECK_CACHE"):
        return Path(path)
    if path := os.environ.get("XDG_CACHE_HOME"):
        return Path(path) / "warpcheck"
    return Path.home() / ".cache" / "warpcheck"


def load(name: str) -> bytes | None:
    """The payload stored under `name`, or None if there is none or its digest does not match."""
    try:
        data = (directory() / name).read_bytes()
    except OSError:
        return None
    payload = data[_HEADER:]
    if data[:_HEADER] != _MAGIC + hashlib.sha256(payload).digest():
        return None
    return payload


def store(name: str, payload: bytes) -> None:
    """Stores `payload` under `name`, whole or not at all, whoever else writes the same name meanwhile."""
    folder = directory()
    temporary: str | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # os.replace is atomic only inside one filesystem, so the temporary file lies in the same folder.
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{name[:16]}-", delete=False) as file:
            temporary = file.name
            file.write(_MAGIC + hashlib.sha256(payload).digest() + payload)
        os.replace(temporary, folder / name)
    except OSError:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
