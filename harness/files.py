"""Files that others may have written: read within limits, whatever they are; and written whole or not at all.

What is read is a regular file (no device, pipe or folder, also at the end of a link), of a size that is known before a byte
of it is in memory, and that a file which grows meanwhile cannot pass.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from harness.case import CaseError

PREFIX, SUFFIX = ".", ".tmp"
"""Of a temporary file's name: who is killed while writing leaves one."""


def size_of(path: Path, *, links: bool = True) -> int:
    """Bytes of a regular file, which is not opened. `links` is whether it may stand at the end of a symbolic link.

    Raises CaseError, with one line that names the file.
    """
    try:
        found = path.stat(follow_symlinks=links)
    except OSError as error:
        raise CaseError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:  # a null character in the name
        raise CaseError(f"{str(path)!r}: {error}") from None
    if stat.S_ISDIR(found.st_mode):
        raise CaseError(f"{path}: Is a directory")
    if not stat.S_ISREG(found.st_mode):
        raise CaseError(
            f"{path}: {'a symbolic link' if stat.S_ISLNK(found.st_mode) else 'a device or pipe'}, not a file"
        )
    return found.st_size


def opened(path: Path, *, links: bool = True) -> FileIO:
    """A regular file, open for reading. Raises CaseError as `size_of` does."""
    size_of(path, links=links)  # opening a device can have effects, and opening a pipe can wait
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
        file = FileIO(os.open(path, flags))
    except OSError as error:
        raise CaseError(f"{path}: {error.strerror or error}") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # it was another a moment ago
        file.close()
        raise CaseError(f"{path}: not a file")
    return file


def read(path: Path, limit: int, what: str, *, links: bool = True) -> bytes:
    """The bytes of a regular file of at most `limit` bytes; what: "an entry", for the message.

    Raises CaseError, with one line that names the file, before anything of its size is allocated.
    """
    with opened(path, links=links) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise CaseError(f"{path}: {size} bytes; {what} has at most {limit}")
        try:
            return file.read(size)
        except OSError as error:
            raise CaseError(f"{path}: {error.strerror or error}") from None


def write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: a temporary one beside it, flushed to the disk, then renamed."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=PREFIX, suffix=SUFFIX)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def write_for_user(path: Path, data: bytes) -> None:
    """Write a file that somebody named: as `write` does, into what a link names, or straight into a device or pipe."""
    if path.exists() and not path.is_file():
        path.write_bytes(data)
    else:
        write(path.resolve(), data)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Alone among the writers of a folder, where its file system can lock one."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
