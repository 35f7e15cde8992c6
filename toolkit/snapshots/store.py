"""The files of a snapshot on a local disk: durable writes, one writer, and no file reached through a link.

Every access goes through a directory handle, one path part after another with ``O_NOFOLLOW``. On systems
without directory handles (Windows) each part is checked before it is used.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import BinaryIO, ClassVar, Final, NamedTuple

from pyarrow.fs import FileSystem, LocalFileSystem

from toolkit.errors import InputError, SnapshotDamagedError, SnapshotError, SnapshotLockedError
from toolkit.loading.memory import available_memory, check_memory
from toolkit.private_files import hold, sync_folder

LOCK: Final = ".lock"
_HANDLES: Final = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_DRAFT: Final = ".tmp"
_BLOCK: Final = 1 << 20
_LONGEST_LOCK: Final = 20  # bytes: a lock holds the number of a process
_DECODED: Final = 4  # bytes of memory per byte of JSON, about, when it is decoded

_WHOLE: Final = "The snapshot is whole, as it was or new."
_FULL: Final = f"Make room on the disk, or in the quota of this user. {_WHOLE}"
_FORBIDDEN: Final = f"Let this user read and write the folder. {_WHOLE}"
_MISSING: Final = "Check the path: is the folder there, and are all folders on the way to it?"
_NEXT_STEPS: Final = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: f"The file system can only be read: use a folder on another one. {_WHOLE}",
    errno.ENOENT: _MISSING,
    errno.ENOTDIR: _MISSING,
}
"""What helps, by what the operating system refused."""

Step = Callable[[str], None]
"""Called with a name before each operation that changes something: tests stop a writer there."""


def no_step(_: str) -> None:
    """Do nothing between the operations."""


class HashingFile:
    """An unbuffered file to write, which counts and hashes the bytes that pass through it."""

    def __init__(self, file: FileIO, step: Step) -> None:
        # without a buffer, which would try to write what is left when it is closed after a failure
        self._file = file
        self._step = step
        self._hash = hashlib.sha256()
        self._discarding = False
        self.bytes = 0

    def write(self, data: bytes) -> int:
        """Write all of it; the number of bytes."""
        left = view = memoryview(data).cast("B")
        if not self._discarding:
            self._step("write")
            self._hash.update(view)
            self.bytes += len(view)
            while left:
                left = left[self._file.write(left) :]
        return len(view)

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def sync(self) -> None:
        """Return when everything is on the disk."""
        self._step("fsync file")
        os.fsync(self._file.fileno())

    def discard(self) -> None:
        """Ignore further writes: the Parquet encoder insists on writing a footer."""
        self._discarding = True

    def close(self) -> None:
        """Close the file, without a promise about the disk: see `sync`."""
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
    """Hash (hex SHA-256) and bytes of a whole file, which is rewound afterwards."""
    file.seek(0)
    checksum, size = hashlib.sha256(), 0
    while block := file.read(_BLOCK):
        checksum.update(block)
        size += len(block)
    file.seek(0)
    return checksum.hexdigest(), size


class FileState(NamedTuple):
    """What the file system says of a file: its size, when it changed (in ns), why it cannot be read."""

    bytes: int
    changed_at: int
    problem: str = ""


class _Place(NamedTuple):
    """A file in an open directory (its name is relative to the handle), or its path where there are none."""

    path: Path
    handle: int | None

    def open(self, flags: int) -> int:
        """Open the file, mode 0600 if it is created; `OSError` (ELOOP) when it is a link."""
        if self.handle is not None:
            return os.open(self.path, flags | os.O_NOFOLLOW, 0o600, dir_fd=self.handle)
        if self.path.is_symlink():
            raise OSError(errno.ELOOP, "a link", self.path.name)
        return os.open(self.path, flags, 0o600)


class SnapshotStore:
    """The files of one snapshot in a local folder, named by paths relative to it.

    Links on the way to the folder are followed, links inside it are not. `filesystem` and `address` say where
    pyarrow finds a file. Where `locked` does not keep other writers out (`exclusive`), a commit looks for
    traces.
    """

    exclusive: ClassVar[bool] = True
    _next_step: ClassVar[str] = "The snapshot is whole, as it was or new. Call again when the cause is gone."

    def __init__(self, path: str | os.PathLike[str], *, step: Step = no_step) -> None:
        text = os.fspath(path)
        if not isinstance(text, str) or not text or "://" in text or "\0" in text:
            raise InputError("opening a snapshot", got=repr(text), expected="the path of a local folder")
        if os.path.isfile(text):  # noqa: PTH113 - Path.is_file raises for a name that is too long
            raise SnapshotError(
                "opening a snapshot",
                got=f"{text!r}, which is a file",
                expected="the folder of a snapshot",
                next_step="pandas.read_parquet reads a single file.",
            )
        try:
            self.path = Path(text).expanduser().absolute()
        except RuntimeError:  # as of "~nobody", and of "~" where there is no home
            raise InputError(
                "opening a snapshot",
                got=f"{text!r}, of a user without a home folder",
                expected="the path of a local folder",
                next_step=f"A folder of this name is {f'./{text}'!r}.",
            ) from None
        self.filesystem: FileSystem = LocalFileSystem()
        self._step = step

    def __str__(self) -> str:
        return str(self.path)

    def address(self, name: str) -> str:
        """Path of a file on `filesystem`."""
        return str(self.path / name)

    def make(self) -> None:
        """Make the folder, for this user only, where it is missing."""
        missing = [part for part in (self.path, *self.path.parents) if not part.exists()]
        for part in reversed(missing):
            self._step("make folder")
            part.mkdir(mode=0o700, exist_ok=True)
            sync_folder(part.parent)

    def names(self) -> Iterator[str]:
        """Relative paths of everything inside that is not a folder. Links are named, not followed."""
        for folder, folders, files in os.walk(self.path):
            links = [name for name in folders if (Path(folder) / name).is_symlink()]
            for name in files + links:
                yield (Path(folder) / name).relative_to(self.path).as_posix()

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading; `SnapshotDamagedError` where it, or a folder on the way, is a link."""
        return os.fdopen(self._descriptor(name, os.O_RDONLY), "rb")

    def open_partial(self, name: str) -> BinaryIO:
        """Open a file of which only some bytes are wanted; raises as `open`."""
        return self.open(name)

    def content(self, name: str) -> bytes:
        """Everything in a file that is replaced by `replace`, of one version of it; raises as `open`."""
        with self.open(name) as file:
            return self._read(name, file)

    def _read(self, name: str, file: BinaryIO) -> bytes:
        size = file.seek(0, os.SEEK_END)
        check_memory(
            f"reading {name!r} of the snapshot {self}",
            needed=_DECODED * size,
            limit=available_memory(),
            next_step=f"The file has {size:,} bytes, and those of the toolkit a few million at most: restore "
            "it from a backup.",
        )
        file.seek(0)
        return file.read()

    def states(self, names: Iterable[str]) -> dict[str, FileState]:
        """What the file system says of these files; those that are missing are not in the result."""
        states: dict[str, FileState] = {}
        with self._place("") as inside:
            for name in names:
                try:
                    state = os.stat(inside.path / name, dir_fd=inside.handle, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                except NotADirectoryError:
                    states[name] = FileState(0, 0, "inside something that is not a folder")
                    continue
                changed = max(state.st_mtime_ns, state.st_ctime_ns)
                if stat.S_ISREG(state.st_mode):
                    states[name] = FileState(state.st_size, changed)
                else:
                    problem = "a link" if stat.S_ISLNK(state.st_mode) else "no regular file"
                    states[name] = FileState(0, changed, problem)
        return states

    def copy(self, old: str, new: str) -> None:
        """Link a file under a second name in its folder, unless that exists."""
        self._step("copy")
        with suppress(FileExistsError), self._place(new) as inside:
            before = inside.path.with_name(old.rpartition("/")[2])
            try:
                if inside.handle is None:
                    inside.path.hardlink_to(before)
                else:
                    handles = {"src_dir_fd": inside.handle, "dst_dir_fd": inside.handle}
                    os.link(before, inside.path, **handles, follow_symlinks=False)
            except (FileNotFoundError, FileExistsError):
                raise
            except OSError:  # a file system without hard links
                draft = self.draft_of(new)
                with self.open(old) as source, self.new_file(draft) as target:
                    while block := source.read(_BLOCK):
                        target.write(block)
                    target.sync()
                self.rename(draft, new)

    @contextmanager
    def new_file(self, name: str) -> Iterator[HashingFile]:
        """Open a new file for writing, for this user only; the folders on the way are made."""
        self._step("create file")
        with self._place(name, make=True) as inside:
            descriptor = inside.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        hashing = HashingFile(FileIO(descriptor, "wb"), self._step)
        try:
            yield hashing
        finally:
            hashing.close()

    def draft_of(self, name: str) -> str:
        """The name of a new file until the commit renames it; no Parquet reader opens it."""
        folder, slash, last = name.rpartition("/")
        return f"{folder}{slash}_{last.lstrip('_')}.{secrets.token_hex(8)}{_DRAFT}"

    def rename(self, old: str, new: str) -> None:
        """Rename a file within its folder, replacing the target."""
        self._step("rename")
        with self._place(new) as inside:
            before = inside.path.with_name(old.rpartition("/")[2])
            os.replace(before, inside.path, src_dir_fd=inside.handle, dst_dir_fd=inside.handle)

    def remove(self, name: str) -> None:
        """Remove a file; nothing happens when it is not there."""
        self._step("remove")
        with suppress(FileNotFoundError), self._place(name) as inside:
            os.unlink(inside.path, dir_fd=inside.handle)

    def sync(self, *names: str) -> None:
        """Return when these files' names, and those of the folders on the way to them, are on the disk."""
        inner = {name.rpartition("/")[0] for name in names}
        outer = {folder[:index] for folder in inner for index, sign in enumerate(folder) if sign == "/"}
        for folder in sorted(inner | outer | {""}, reverse=True):
            self._step("fsync folder")
            with self._place(f"{folder}/" if folder else "") as inside:
                if inside.handle is not None:
                    os.fsync(inside.handle)

    def replace(self, name: str, content: bytes) -> None:
        """Replace a file as a whole: a reader sees the old content or the new one."""
        draft = self.draft_of(name)
        with self.new_file(draft) as file:
            file.write(content)
            file.sync()
        self.rename(draft, name)
        self.sync(name)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the snapshot for writing until the block or the process ends; else a `SnapshotLockedError`."""
        self._step("lock")
        descriptor = self._descriptor(LOCK, os.O_RDWR | os.O_CREAT)
        with os.fdopen(descriptor, "r+b") as file:
            acquired = hold(file)
            content = file.read(_LONGEST_LOCK)
            process = content.decode("ascii", "replace").strip()
            if not acquired:
                raise SnapshotLockedError(
                    f"writing the snapshot {self}",
                    got=f"a lock held by {f'process {process}' if process.isdigit() else 'another process'}",
                    expected="one writer",
                    next_step="Wait until it is done, then call again.",
                )
            # a second name of another file, or a file of somebody's own, stays as it is: it is only locked
            ours = len(content) < _LONGEST_LOCK and (process.isdigit() or not content)
            if ours and os.fstat(descriptor).st_nlink == 1:
                file.seek(0)
                file.truncate(0)
                file.write(f"{os.getpid()}\n".encode())
                file.flush()
            yield

    def _descriptor(self, name: str, flags: int) -> int:
        """Open a regular file."""
        with self._place(name) as inside:
            try:
                # without O_NONBLOCK, opening a pipe in place of a file would wait for a writer for ever
                descriptor = inside.open(flags | getattr(os, "O_NONBLOCK", 0))
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise self._not_a_file(name, "a link") from None
                raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise self._not_a_file(name, "something that is not a regular file")
        return descriptor

    @contextmanager
    def _place(self, name: str, *, make: bool = False) -> Iterator[_Place]:
        """A file (the folder itself for ""), whose folders are reached without following a link."""
        *folders, last = name.split("/")
        if not _HANDLES:
            path = self.path
            for depth, part in enumerate(folders, 1):
                path /= part
                if make:
                    path.mkdir(mode=0o700, exist_ok=True)
                if path.is_symlink() or (path.exists() and not path.is_dir()):
                    raise self._not_a_file("/".join(folders[:depth]), "a link or a file", "a folder")
            yield _Place(path / last, None)
            return
        flags = os.O_RDONLY | os.O_DIRECTORY
        handle = os.open(self.path, flags)
        try:
            for depth, part in enumerate(folders, 1):
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=handle)
                try:
                    inner = os.open(part, flags | os.O_NOFOLLOW, dir_fd=handle)
                except OSError as error:
                    if error.errno in {errno.ELOOP, errno.ENOTDIR}:
                        name = "/".join(folders[:depth])
                        raise self._not_a_file(name, "a link or a file", "a folder") from None
                    raise
                os.close(handle)
                handle = inner
            yield _Place(Path(last), handle)
        finally:
            os.close(handle)

    def _not_a_file(self, name: str, got: str, expected: str = "a regular file") -> SnapshotDamagedError:
        return SnapshotDamagedError(
            f"opening {name!r} of the snapshot {self}",
            got=got,
            expected=expected,
            next_step="Nothing was read through it. Find out who put it there.",
        )

    @contextmanager
    def os_errors_named(self, doing: str) -> Iterator[None]:
        """Raise what the operating system refuses as a `SnapshotError` that says what was being done."""
        try:
            yield
        except OSError as error:
            raise SnapshotError(
                f"{doing} the snapshot {self}",
                got=f"{type(error).__name__}: {error.strerror or error}",
                next_step=_NEXT_STEPS.get(error.errno or 0, self._next_step),
            ) from error
