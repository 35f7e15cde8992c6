"""A snapshot in an object store, or on any other file system that pyarrow supports.

A file is uploaded when it is complete, under the final name, without drafts, renames or a lock. You have to
make sure that only one process writes at a time; a commit that finds traces of another writer is refused.
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
from urllib.parse import parse_qsl

import pyarrow as pa
from pyarrow.fs import (
    FileInfo,
    FileSelector,
    FileSystem,
    FileType,
    LocalFileSystem,
    SubTreeFileSystem,
)

from toolkit.base.arguments import text as checked_text
from toolkit.base.arguments import wrong
from toolkit.base.errors import InputError, SnapshotError
from toolkit.secrets.names import is_secret_name
from toolkit.snapshots.store import FileState, HashingFile, SnapshotStore, Step, no_step

_BLOCK: Final = 16 << 20  # bytes per request, up or down, which are in memory
_ATTEMPTS: Final = 10
_LONGEST: Final = 4_000  # characters of a path

_CREDENTIALS: Final = (
    "Check the credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, a profile, or "
    "filesystem=."
)
_CAUSES: Final = {
    "NO_SUCH_BUCKET": "Create the bucket, or correct the name of it.",
    "ACCESS_DENIED": _CREDENTIALS,
    "INVALID_ACCESS_KEY_ID": _CREDENTIALS,
    "SIGNATURE_DOES_NOT_MATCH": _CREDENTIALS,
    "CREDENTIALS": _CREDENTIALS,
}
"""The first next step, by words in the error of an object store."""


def open_store(
    path: str | os.PathLike[str],
    filesystem: FileSystem | None = None,
    *,
    step: Step = no_step,
) -> SnapshotStore:
    """Return the store of a snapshot: a local folder, or a prefix in an object store."""
    text = _path_text(path)
    if filesystem is None:
        if "://" not in text:
            return SnapshotStore(text, step=step)
        filesystem, text = _from_address(text)
    elif not isinstance(filesystem, FileSystem):
        raise InputError(
            "opening a snapshot",
            got=f"{type(filesystem).__name__} for filesystem",
            expected="a pyarrow.fs.FileSystem",
            next_step="Wrap a file system of fsspec: "
            "pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(filesystem)).",
        )

    # A subtree of the local disk is still a local folder, which has a lock and durable names.
    while isinstance(filesystem, SubTreeFileSystem):
        text = f"{filesystem.base_path.rstrip('/')}/{_plain(text)}"
        filesystem = filesystem.base_fs

    if isinstance(filesystem, LocalFileSystem):
        return SnapshotStore(text, step=step)

    return ObjectSnapshotStore(text, filesystem, step=step)


def _path_text(path: object) -> str:
    """Return a path as a checked string."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise wrong("path", path, "a path, or an address such as s3://bucket/prefix")

    text = checked_text("path", os.fspath(path), empty=False)
    if "\0" in text or len(text) > _LONGEST:
        raise wrong(
            "path",
            text,
            f"a path without null bytes, of at most {_LONGEST:,} characters",
        )

    return text


class ObjectSnapshotStore(SnapshotStore):
    """The objects of one snapshot, named by keys relative to the prefix (bucket and path)."""

    exclusive: ClassVar[bool] = False
    _next_step: ClassVar[str] = (
        "Check that the store can be reached and written, and that there is room for temporary files. "
        "If there was a snapshot, it is complete, in the old or in the new version."
    )

    def __init__(
        self, path: str, filesystem: FileSystem, *, step: Step = no_step
    ) -> None:
        self.filesystem = filesystem
        self._root = _plain(path)
        self._step = step

    def __str__(self) -> str:
        return f"{self.filesystem.type_name}://{self._root}"

    def address(self, name: str) -> str:
        """Return the path of an object on `filesystem`."""
        return f"{self._root}/{name}"

    def make(self) -> None:
        """Do nothing: a prefix exists once it contains an object. Buckets are not created here."""

    def names(self) -> Iterator[str]:
        """Yield the relative keys of all objects under the prefix."""
        yield from (
            info.path.removeprefix(f"{self._root}/") for info in self._listing()
        )

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
        """Return the bytes of an object that `replace` replaces; all are of the same version."""
        for _ in range(_ATTEMPTS):
            with self.open_partial(name) as source:
                content = self._read(name, source)
            # pyarrow requests the size, then the bytes: the object can be replaced in between
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
        """Return size and time of these objects from one listing; missing objects are not in the result."""
        wanted = set(names)
        states = {}
        for info in self._listing():
            name = info.path.removeprefix(f"{self._root}/")
            if name in wanted:
                states[name] = FileState(int(info.size), info.mtime_ns or 0)

        return states

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
        yield from (
            info
            for info in self.filesystem.get_file_info(selector)
            if info.type == FileType.File
        )

    @contextmanager
    def new_file(self, name: str) -> Iterator[HashingFile]:
        """Open a new object for writing. It exists only after `sync`, with the bytes written before."""
        self._step("create file")
        with tempfile.TemporaryFile(buffering=0) as file:
            yield _Upload(file, self._step, lambda: self._put(name, _blocks(file)))

    def missing_container(self) -> str:
        """Return the name of the bucket if it does not exist, or ""."""
        bucket = self._root.partition("/")[0]
        if self.filesystem.get_file_info(bucket).type == FileType.NotFound:
            return bucket

        return ""

    def _next_step_after(self, error: OSError) -> str:
        """Return the next step, which begins with the cause if the response of the store names it."""
        next_step = super()._next_step_after(error)
        text = str(error).upper()
        for cause, hint in _CAUSES.items():
            if cause in text:
                return f"{hint} {next_step}"

        return next_step

    def draft_of(self, name: str) -> str:
        """Return the name itself: incomplete objects are not visible."""
        return name

    def rename(self, old: str, new: str) -> None:
        """Do nothing: objects are uploaded under their final name. Raise ValueError for another name."""
        if old != new:
            raise ValueError(f"an object cannot be renamed, as from {old!r} to {new!r}")

    def remove(self, name: str) -> None:
        """Remove an object, if it exists."""
        self._step("remove")
        with suppress(FileNotFoundError):
            self.filesystem.delete_file(self.address(name))

    def sync(self, *names: str) -> None:
        """Do nothing: an object that was uploaded is durable."""

    def replace(self, name: str, content: bytes) -> None:
        """Replace an object at once: a reader sees the old content or the new one."""
        self._step("replace")
        self._put(name, iter([content]))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Do nothing: a store has no lock that ends with the process. See `exclusive`."""
        yield

    def _put(self, name: str, blocks: Iterator[bytes]) -> None:
        """Write an object on a separate thread, which Ctrl-C does not interrupt, and wait for the end.

        If a stream is garbage-collected, pyarrow closes it, which would publish a truncated object.
        """
        with ThreadPoolExecutor(1, "toolkit upload") as thread:
            # leaving the block waits for the thread only if Ctrl-C did not interrupt the start of it
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
        except FileNotFoundError:  # not an object store: this file system has folders
            self.filesystem.create_dir(address.rpartition("/")[0], recursive=True)
            return self.filesystem.open_output_stream(address, compression=None)


class _Upload(HashingFile):
    """A file that is uploaded when it is complete."""

    def __init__(self, file: FileIO, step: Step, put: Callable[[], None]) -> None:
        super().__init__(file, step)
        self._put = put

    def sync(self) -> None:
        """Upload all bytes written before."""
        self._step("upload")
        self._put()


def _blocks(file: FileIO) -> Iterator[bytes]:
    file.seek(0)
    while block := file.read(_BLOCK):
        yield block


def _from_address(address: str) -> tuple[FileSystem, str]:
    """Return the file system and the path of an address. Raise InputError if it contains a secret."""
    scheme, _, rest = address.partition("://")
    # In `scheme://user:password@host`, the last @ ends the password, which may contain other ones.
    user, at_sign, _ = rest.rpartition("@")
    has_password = bool(at_sign) and ":" in user

    # not `urlsplit`, which raises ValueError for brackets in the name of a bucket
    query = address.partition("?")[2]
    if has_password or any(is_secret_name(key) for key, _ in parse_qsl(query)):
        raise InputError(
            "opening a snapshot",
            got=f"an address {scheme}://… with a secret",
            expected="an address without a secret",
            next_step="Set the secret in the environment, or pass "
            "filesystem=pyarrow.fs.S3FileSystem(secret_key=…).",
        )

    try:
        filesystem, path = FileSystem.from_uri(address)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(
            "opening a snapshot",
            got=f"an address that pyarrow cannot open ({error})",
            expected="an address such as s3://bucket/prefix",
        ) from None
    except OSError as error:
        raise SnapshotError(
            f"opening the snapshot {address}",
            got=str(error),
            next_step="Check that the store can be reached.",
        ) from error

    return filesystem, path


def _plain(path: str) -> str:
    """Return a path without slashes at the ends. Raise InputError for parts that lead elsewhere."""
    plain = path.strip("/")
    if {"", ".", ".."} & set(plain.split("/")) or "\0" in plain:
        raise InputError(
            "opening a snapshot",
            got=repr(path),
            expected="bucket and prefix, such as 'bucket/failures'",
        )

    return plain
