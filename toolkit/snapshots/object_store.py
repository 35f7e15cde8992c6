"""A snapshot in an object store, or on any other file system that pyarrow speaks to.

A file is uploaded when it is whole, under its final name: there are no drafts, no renames and no lock. One
writer at a time is the user's duty, and a commit that finds traces of another writer is refused.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from io import FileIO
from typing import Any, BinaryIO, ClassVar, Final, cast
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem, SubTreeFileSystem

from toolkit.arguments import text as checked_text
from toolkit.arguments import wrong
from toolkit.errors import InputError, SnapshotError
from toolkit.secret_names import is_secret_name
from toolkit.snapshots.store import FileState, HashingFile, SnapshotStore, Step, no_step

_BLOCK: Final = 16 << 20  # bytes of a request, up or down; so many are in memory
_ATTEMPTS: Final = 10
_LONGEST: Final = 4_000  # characters of a path


def open_store(
    path: str | os.PathLike[str], filesystem: FileSystem | None = None, *, step: Step = no_step
) -> SnapshotStore:
    """The store of a snapshot: a local folder, or a prefix in an object store."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise wrong("path", path, "a path, or an address such as s3://bucket/prefix")
    text = checked_text("path", os.fspath(path), empty=False)
    if "\0" in text or len(text) > _LONGEST:
        raise wrong("path", text, f"a path without null bytes, of at most {_LONGEST:,} characters")
    if filesystem is None:
        if "://" not in text:
            return SnapshotStore(text, step=step)
        filesystem, text = _at(text)
    elif not isinstance(filesystem, FileSystem):
        raise InputError(
            "opening a snapshot",
            got=f"{type(filesystem).__name__} for filesystem",
            expected="a pyarrow.fs.FileSystem",
            next_step="Wrap one of fsspec's: pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(filesystem)).",
        )
    while isinstance(filesystem, SubTreeFileSystem):
        text = f"{filesystem.base_path.rstrip('/')}/{_plain(text)}"
        filesystem = filesystem.base_fs
    if isinstance(filesystem, LocalFileSystem):
        return SnapshotStore(text, step=step)
    return ObjectSnapshotStore(text, filesystem, step=step)


class ObjectSnapshotStore(SnapshotStore):
    """The objects of one snapshot, named by keys relative to its prefix (bucket and path)."""

    exclusive: ClassVar[bool] = False
    _next_step: ClassVar[str] = (
        "Check that the store can be reached and written, and that there is room for temporary files. "
        "The snapshot is whole, as it was or new."
    )

    def __init__(self, path: str, filesystem: FileSystem, *, step: Step = no_step) -> None:
        self.filesystem = filesystem
        self._root = _plain(path)
        self._step = step

    def __str__(self) -> str:
        return f"{self.filesystem.type_name}://{self._root}"

    def address(self, name: str) -> str:
        """Path of an object on `filesystem`."""
        return f"{self._root}/{name}"

    def make(self) -> None:
        """Do nothing: a prefix exists with its first object. A bucket is not made here."""

    def names(self) -> Iterator[str]:
        """Relative keys of all objects under the prefix."""
        yield from (info.path.removeprefix(f"{self._root}/") for info in self._listing())

    def open(self, name: str) -> BinaryIO:
        """Open a copy of an object, so that the bytes that were checked are the bytes that are read."""
        copy = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115 - the caller closes it
        try:
            with self.open_partial(name) as source:
                while block := source.read(_BLOCK):
                    copy.write(block)
            copy.seek(0)
        except BaseException:
            copy.close()
            raise
        return copy

    def open_partial(self, name: str) -> BinaryIO:
        """Open an object where it is stored: each read is a request."""
        try:
            return cast("BinaryIO", self.filesystem.open_input_file(self.address(name)))
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "No such object", name) from None

    def content(self, name: str) -> bytes:
        """Everything in an object that is replaced by `replace`: of one version of it."""
        for _ in range(_ATTEMPTS):
            with self.open_partial(name) as source:
                content = self._read(name, source)
            # pyarrow asks for the size, then for so many bytes: in between, it may have become another object
            info = self.filesystem.get_file_info(self.address(name))
            if info.type == FileType.File and info.size == len(content):
                return content
        raise SnapshotError(
            f"reading {name!r} of the snapshot {self}",
            got=f"an object that was replaced {_ATTEMPTS} times meanwhile",
            expected="a pause between commits",
            next_step="Read it again.",
        )

    def states(self, names: Iterable[str]) -> dict[str, FileState]:
        """What one listing says of these objects; those that are missing are not in the result."""
        wanted = set(names)
        listing = ((info.path.removeprefix(f"{self._root}/"), info) for info in self._listing())
        return {
            name: FileState(int(info.size), info.mtime_ns or 0) for name, info in listing if name in wanted
        }

    def copy(self, old: str, new: str) -> None:
        """Copy an object to a second name."""
        self._step("copy")
        self.filesystem.copy_file(self.address(old), self.address(new))

    def _listing(self) -> Iterator[FileInfo]:
        wrapped = getattr(getattr(self.filesystem, "handler", None), "fs", None)
        forget = getattr(wrapped, "invalidate_cache", None)
        if forget is not None:  # fsspec caches listings, also of objects deleted since
            forget()
        selector = FileSelector(self._root, recursive=True, allow_not_found=True)
        yield from (info for info in self.filesystem.get_file_info(selector) if info.type == FileType.File)

    @contextmanager
    def new_file(self, name: str) -> Iterator[HashingFile]:
        """Open a new object for writing. It exists from its `sync` on, as it is then."""
        self._step("create file")
        with tempfile.TemporaryFile(buffering=0) as file:
            yield _Upload(file, self._step, lambda: self._put(name, _blocks(file)))

    def draft_of(self, name: str) -> str:
        """The name itself: nothing is seen of an object that is not whole."""
        return name

    def rename(self, old: str, new: str) -> None:
        """Do nothing: objects are uploaded under their final name. `ValueError` for any other."""
        if old != new:
            raise ValueError(f"an object cannot be renamed, as from {old!r} to {new!r}")

    def remove(self, name: str) -> None:
        """Remove an object; nothing happens when it is not there."""
        self._step("remove")
        with suppress(FileNotFoundError):
            self.filesystem.delete_file(self.address(name))

    def sync(self, *names: str) -> None:
        """Do nothing: an object that was uploaded is durable."""

    def replace(self, name: str, content: bytes) -> None:
        """Replace an object as a whole: a reader sees the old content or the new one."""
        self._step("replace")
        self._put(name, iter([content]))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Do nothing: a store has no lock that ends with its process. See `exclusive`."""
        yield

    def _put(self, name: str, blocks: Iterator[bytes]) -> None:
        """Write an object on a thread of its own, which no Ctrl-C interrupts, and wait for its end.

        pyarrow closes a stream that is collected, which publishes the object truncated.
        """
        with ThreadPoolExecutor(1, "toolkit upload") as thread:
            # leaving the block waits for its thread only if no Ctrl-C met it while it started
            thread.submit(lambda: None).result()
            thread.submit(self._write, name, blocks).result()

    def _write(self, name: str, blocks: Iterator[bytes]) -> None:
        stream = self._stream(name)
        try:
            for block in blocks:
                stream.write(block)
                stream.flush()  # or all blocks would stay in memory
        except BaseException:
            with suppress(OSError):
                stream.close()
            raise
        stream.close()

    def _stream(self, name: str) -> Any:
        address = self.address(name)
        try:
            return self.filesystem.open_output_stream(address, compression=None)
        except FileNotFoundError:  # not a store: this file system has folders
            self.filesystem.create_dir(address.rpartition("/")[0], recursive=True)
            return self.filesystem.open_output_stream(address, compression=None)


class _Upload(HashingFile):
    """A file that is uploaded when it is whole."""

    def __init__(self, file: FileIO, step: Step, put: Callable[[], None]) -> None:
        super().__init__(file, step)
        self._put = put

    def sync(self) -> None:
        """Upload what was written so far."""
        self._step("upload")
        self._put()


def _blocks(file: FileIO) -> Iterator[bytes]:
    file.seek(0)
    while block := file.read(_BLOCK):
        yield block


def _at(address: str) -> tuple[FileSystem, str]:
    """File system and path of an address, which may say where, and not with which secret."""
    scheme, _, rest = address.partition("://")
    name, sign, _ = rest.rpartition("@")
    if (sign and ":" in name) or any(is_secret_name(key) for key, _ in parse_qsl(urlsplit(address).query)):
        raise InputError(
            "opening a snapshot",
            got=f"an address {scheme}://… that holds a secret",
            expected="an address without",
            next_step="Give it in the environment, or pass filesystem=pyarrow.fs.S3FileSystem(secret_key=…).",
        )
    try:
        filesystem, path = FileSystem.from_uri(address)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(
            "opening a snapshot",
            got=f"an address that pyarrow cannot open ({error})",
            expected="one such as s3://bucket/prefix",
        ) from None
    except OSError as error:
        raise SnapshotError(
            f"opening the snapshot {address}",
            got=str(error),
            next_step="Check that the store can be reached.",
        ) from error
    return filesystem, path


def _plain(path: str) -> str:
    """A path without what could lead elsewhere."""
    plain = path.strip("/")
    if {"", ".", ".."} & set(plain.split("/")) or "\0" in plain:
        raise InputError(
            "opening a snapshot", got=repr(path), expected="bucket and prefix, such as 'bucket/failures'"
        )
    return plain
