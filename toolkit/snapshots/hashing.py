"""Bytes on their way to the disk, counted and hashed; and what a file hashes to when it is read again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from io import FileIO
from typing import BinaryIO, Final

_BLOCK: Final = 1 << 20

Step = Callable[[str], None]
"""Called with a name before each operation on the disk: tests stop a writer there."""


def no_step(_: str) -> None:
    """Nothing is called between the operations."""


class HashingFile:
    """A file to write, which counts and hashes what goes through it.

    Parameters
    ----------
    file : FileIO
        Without a buffer, which would try to write what is left when it is closed after a failure.
    step : callable
        Called before each write.
    """

    def __init__(self, file: FileIO, step: Step) -> None:
        self._file = file
        self._step = step
        self._hash = hashlib.sha256()
        self._discarding = False
        self.bytes = 0

    def write(self, data: bytes) -> int:
        """Write all of it; the number of bytes."""
        view = memoryview(data).cast("B")
        if self._discarding:
            return len(view)
        self._step("write")
        self._hash.update(view)
        self.bytes += len(view)
        left = view
        while left:
            left = left[self._file.write(left) :]
        return len(view)

    def flush(self) -> None:
        """Do nothing: no byte waits here."""

    def sync(self) -> None:
        """Return when everything is on the disk."""
        self._step("fsync file")
        os.fsync(self._file.fileno())

    def discard(self) -> None:
        """Drop what is still written, so that an encoder that insists on a last word can have it."""
        self._discarding = True

    def close(self) -> None:
        """Close the file. Nothing is promised about the disk: see `sync`."""
        self._file.close()

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._file.closed

    @property
    def sha256(self) -> str:
        """Hash of everything written so far, in hex."""
        return self._hash.hexdigest()


def digest(file: BinaryIO) -> tuple[str, int]:
    """Hash (hex SHA-256) and bytes of a file, read from its start; it is left at its start again."""
    file.seek(0)
    found, size = hashlib.sha256(), 0
    while block := file.read(_BLOCK):
        found.update(block)
        size += len(block)
    file.seek(0)
    return found.hexdigest(), size
