"""The files of a snapshot on a local disk: durable writes, one writer, and no access through links.

Every access goes through a directory handle, one part of the path after another with ``O_NOFOLLOW``. On
systems without directory handles (Windows) each part is checked before it is used. For example, if
``first_seen`` was replaced by a link to ``/etc``, opening ``first_seen/2026-11-27/x`` raises an error.
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

from toolkit.base.errors import (
    InputError,
    SnapshotDamagedError,
    SnapshotError,
    SnapshotLockedError,
)
from toolkit.base.private_files import hold, sync_folder
from toolkit.loading.memory import available_memory, check_memory

LOCK: Final = ".lock"
WRITING: Final = "writing"
"""What a writer is doing, as errors of the operating system name it."""

# With a handle of the folder, the name is resolved in the folder that was checked, even if somebody replaces
# the path by a link at the same moment.
_HANDLES: Final = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_DRAFT: Final = ".tmp"
_BLOCK: Final = 1 << 20
_LONGEST_LOCK: Final = 20  # bytes: a lock contains the number of a process
# about how many bytes of memory a byte of JSON takes while it is decoded
_DECODED: Final = 4

_COMPLETE: Final = (
    "If there was a snapshot, it is complete, in the old or in the new version."
)
_FULL: Final = f"Make room on the disk, or in the quota of this user. {_COMPLETE}"
_FORBIDDEN: Final = f"Let this user read and write the folder. {_COMPLETE}"
_UNREADABLE: Final = "Let this user read the folder and the files in it."
_MISSING: Final = "Check the path: do the folder and all folders above it exist?"
_NEXT_STEPS: Final = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: f"The file system can only be read: use a folder on another one. {_COMPLETE}",
    errno.ENOENT: _MISSING,
    errno.ENOTDIR: _MISSING,
}
"""The next step to suggest, by the error of the operating system."""

Step = Callable[[str], None]
"""Called with a name before each operation that changes something: tests stop a writer there."""


def no_step(_: str) -> None:
    """Do nothing between the operations."""


class HashingFile:
    """An unbuffered file to write, which counts and hashes the written bytes."""

    def __init__(self, file: FileIO, step: Step) -> None:
        # a buffer would try to write the rest when it is closed after a failure
        self._file = file
        self._step = step
        self._hash = hashlib.sha256()
        self._discarding = False
        self.bytes = 0

    def write(self, data: bytes) -> int:
        """Write all bytes, and return how many."""
        view = memoryview(data).cast("B")
        if self._discarding:
            return len(view)

        self._step("write")
        self._hash.update(view)
        self.bytes += len(view)
        # An unbuffered file may write fewer bytes than it is given, for example when the disk is nearly full.
        unwritten = view
        while unwritten:
            unwritten = unwritten[self._file.write(unwritten) :]
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
        """Return whether the file is closed."""
        return self._file.closed

    @property
    def sha256(self) -> str:
        """Return the hash of everything written so far, in hex."""
        return self._hash.hexdigest()


def digest(file: BinaryIO) -> tuple[str, int]:
    """Return the hash (hex SHA-256) and the size of a file, which is rewound afterwards."""
    file.seek(0)
    checksum = hashlib.sha256()
    size = 0
    while block := file.read(_BLOCK):
        checksum.update(block)
        size += len(block)

    file.seek(0)
    return checksum.hexdigest(), size


class FileState(NamedTuple):
    """A file as the file system reports it: size, time of the last change (in ns), why it cannot be read."""

    bytes: int
    changed_at: int
    problem: str = ""


class _Place(NamedTuple):
    """A file: a path relative to the handle of an open directory, or an absolute path without a handle."""

    path: Path
    handle: int | None

    def open(self, flags: int) -> int:
        """Open the file, with mode 0600 if it is created. Raise OSError (ELOOP) if it is a link."""
        if self.handle is not None:
            return os.open(self.path, flags | os.O_NOFOLLOW, 0o600, dir_fd=self.handle)
        if self.path.is_symlink():
            raise OSError(errno.ELOOP, "a link", self.path.name)

        return os.open(self.path, flags, 0o600)


class SnapshotStore:
    """The files of one snapshot in a local folder, named by paths relative to it.

    Links to the folder are followed, links inside the folder are not. pyarrow finds a file at `address` on
    `filesystem`. If `locked` cannot keep other writers out (`exclusive` is False), a commit looks for traces
    of them.
    """

    exclusive: ClassVar[bool] = True
    _next_step: ClassVar[str] = f"{_COMPLETE} Call again when the cause is gone."

    def __init__(self, path: str | os.PathLike[str], *, step: Step = no_step) -> None:
        self.path = _local_folder(os.fspath(path))
        self.filesystem: FileSystem = LocalFileSystem()
        self._step = step

    def __str__(self) -> str:
        return str(self.path)

    def address(self, name: str) -> str:
        """Return the path of a file on `filesystem`."""
        return str(self.path / name)

    def make(self) -> None:
        """Make the folder, for this user only, if it is missing."""
        missing = [
            part for part in (self.path, *self.path.parents) if not part.exists()
        ]
        for part in reversed(missing):
            self._step("make folder")
            part.mkdir(mode=0o700, exist_ok=True)
            sync_folder(part.parent)

    def names(self) -> Iterator[str]:
        """Yield the relative paths of all files. Links are named, not followed."""
        for folder, folders, files in os.walk(self.path):
            links = [name for name in folders if (Path(folder) / name).is_symlink()]
            for name in files + links:
                yield (Path(folder) / name).relative_to(self.path).as_posix()

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading. Raise SnapshotDamagedError if it, or a folder above it, is a link."""
        return os.fdopen(self._descriptor(name, os.O_RDONLY), "rb")

    def open_partial(self, name: str) -> BinaryIO:
        """Open a file to read only some bytes; raises as `open`."""
        return self.open(name)

    def content(self, name: str) -> bytes:
        """Return the bytes of a file that `replace` replaces; all are of one version. Raises as `open`."""
        with self.open(name) as file:
            return self._read(name, file)

    def _read(self, name: str, file: BinaryIO) -> bytes:
        size = file.seek(0, os.SEEK_END)
        check_memory(
            f"reading {name!r} of the snapshot {self}",
            needed=_DECODED * size,
            limit=available_memory(),
            next_step=f"The file has {size:,} bytes; the toolkit writes a few million at most. Restore it "
            "from a backup.",
        )
        file.seek(0)

        return file.read()

    def states(self, names: Iterable[str]) -> dict[str, FileState]:
        """Return the states of these files; missing files are not in the result."""
        states: dict[str, FileState] = {}
        with self._place("") as inside:
            for name in names:
                try:
                    status = os.stat(
                        inside.path / name, dir_fd=inside.handle, follow_symlinks=False
                    )
                except FileNotFoundError:
                    continue
                except NotADirectoryError:
                    states[name] = FileState(
                        0, 0, "inside something that is not a folder"
                    )
                    continue

                states[name] = _state_of(status)

        return states

    def copy(self, old: str, new: str) -> None:
        """Link a file under a second name in the same folder, unless the name is in use."""
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
                self._copy_bytes(old, new)

    def _copy_bytes(self, old: str, new: str) -> None:
        draft = self.draft_of(new)
        with self.open(old) as source, self.new_file(draft) as target:
            while block := source.read(_BLOCK):
                target.write(block)
            target.sync()

        self.rename(draft, new)

    @contextmanager
    def new_file(self, name: str) -> Iterator[HashingFile]:
        """Open a new file for writing, for this user only; missing folders are made."""
        self._step("create file")
        with self._place(name, make=True) as inside:
            # O_EXCL raises an error if the name exists, also if it is a link that leads nowhere.
            descriptor = inside.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL)

        hashing = HashingFile(FileIO(descriptor, "wb"), self._step)
        try:
            yield hashing
        finally:
            hashing.close()

    def draft_of(self, name: str) -> str:
        """Return the name of a new file until the commit renames it; no Parquet reader opens it."""
        folder, slash, last = name.rpartition("/")
        return f"{folder}{slash}_{last.lstrip('_')}.{secrets.token_hex(8)}{_DRAFT}"

    def rename(self, old: str, new: str) -> None:
        """Rename a file within its folder, replacing the target."""
        self._step("rename")
        with self._place(new) as inside:
            before = inside.path.with_name(old.rpartition("/")[2])
            os.replace(
                before, inside.path, src_dir_fd=inside.handle, dst_dir_fd=inside.handle
            )

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        self._step("remove")
        with suppress(FileNotFoundError), self._place(name) as inside:
            os.unlink(inside.path, dir_fd=inside.handle)

    def sync(self, *names: str) -> None:
        """Return when the names of these files, and of all folders above them, are on the disk.

        For example, for ``first_seen/2026-11-27/x``, the folders ``first_seen/2026-11-27`` and ``first_seen``
        and the folder of the snapshot are flushed.
        """
        folders = {""}
        for name in names:
            parts = name.split("/")[:-1]
            folders |= {"/".join(parts[:depth]) for depth in range(1, len(parts) + 1)}

        for folder in sorted(folders, reverse=True):
            self._step("fsync folder")
            # POSIX keeps names in folders, so flushing a file does not make the name of it
            # durable: the folder has to be flushed as well.
            with self._place(f"{folder}/" if folder else "") as inside:
                if inside.handle is not None:
                    os.fsync(inside.handle)

    def replace(self, name: str, content: bytes) -> None:
        """Replace a file at once: a reader sees the old content or the new one."""
        draft = self.draft_of(name)
        with self.new_file(draft) as file:
            file.write(content)
            file.sync()

        self.rename(draft, name)
        self.sync(name)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the snapshot for writing until the block or the process ends.

        Raise SnapshotLockedError if another process has the lock.
        """
        self._step("lock")
        descriptor = self._descriptor(LOCK, os.O_RDWR | os.O_CREAT)
        with os.fdopen(descriptor, "r+b") as file:
            # The operating system releases the lock when the process ends, however it ends. The number in
            # the file is for the error message only.
            acquired = hold(file)
            content = file.read(_LONGEST_LOCK)
            process = content.decode("ascii", "replace").strip()

            if not acquired:
                owner = "another process"
                if process.isdigit():
                    owner = f"process {process}"
                raise SnapshotLockedError(
                    f"writing the snapshot {self}",
                    got=f"a lock of {owner}",
                    expected="one writer",
                    next_step="Wait until it is done, then call again.",
                )

            # a hard link to another file, or a file with other content, is locked and not written
            is_lock_file = len(content) < _LONGEST_LOCK and (
                process.isdigit() or not content
            )
            if is_lock_file and os.fstat(descriptor).st_nlink == 1:
                file.seek(0)
                file.truncate(0)
                file.write(f"{os.getpid()}\n".encode())
                file.flush()

            yield

    def _descriptor(self, name: str, flags: int) -> int:
        """Open a regular file, and return the descriptor."""
        with self._place(name) as inside:
            try:
                # without O_NONBLOCK, opening a pipe in place of a file would wait for a writer forever
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
        """Find a file (the folder itself for ""), without following links inside the folder."""
        *folders, last = name.split("/")
        if not _HANDLES:
            yield _Place(self._checked_folder(folders, make=make) / last, None)
            return

        handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for depth, part in enumerate(folders, 1):
                inner = self._open_folder(
                    handle, part, "/".join(folders[:depth]), make=make
                )
                os.close(handle)
                handle = inner

            yield _Place(Path(last), handle)
        finally:
            os.close(handle)

    def _checked_folder(self, folders: list[str], *, make: bool) -> Path:
        """Return the path of an inner folder after checking each part of it."""
        path = self.path
        for depth, part in enumerate(folders, 1):
            path /= part
            if make:
                path.mkdir(mode=0o700, exist_ok=True)
            if path.is_symlink() or (path.exists() and not path.is_dir()):
                raise self._not_a_file(
                    "/".join(folders[:depth]), "a link or a file", "a folder"
                )

        return path

    def _open_folder(self, parent: int, part: str, name: str, *, make: bool) -> int:
        """Open a folder in an open one, and return the handle; `name` is the relative path for messages."""
        if make:
            with suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=parent)

        try:
            return os.open(
                part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent
            )
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.ENOTDIR}:
                raise self._not_a_file(name, "a link or a file", "a folder") from None
            raise

    def _not_a_file(
        self, name: str, got: str, expected: str = "a regular file"
    ) -> SnapshotDamagedError:
        return SnapshotDamagedError(
            f"opening {name!r} of the snapshot {self}",
            got=got,
            expected=expected,
            next_step="Nothing was read through it. Find out who created it.",
        )

    def missing_container(self) -> str:
        """Return the name of a bucket that does not exist; "" for a folder, or if it exists."""
        return ""

    def _next_step_after(self, error: OSError) -> str:
        """Return the next step of a message about an error."""
        return _NEXT_STEPS.get(error.errno or 0, self._next_step)

    @contextmanager
    def os_errors_named(self, doing: str) -> Iterator[None]:
        """Raise an error of the operating system as a SnapshotError that names the action `doing`."""
        try:
            yield
        except OSError as error:
            next_step = self._next_step_after(error)
            if next_step is _FORBIDDEN and doing != WRITING:
                next_step = _UNREADABLE
            file = ""
            if isinstance(error.filename, str):
                file = f" ({Path(error.filename).name})"
            raise SnapshotError(
                f"{doing} the snapshot {self}",
                got=f"{type(error).__name__}: {error.strerror or error}{file}",
                next_step=next_step,
            ) from error


def _local_folder(text: object) -> Path:
    """Return the absolute path of a local folder. Raise if it is a file or cannot be a folder."""
    if not isinstance(text, str) or not text or "://" in text or "\0" in text:
        raise InputError(
            "opening a snapshot", got=repr(text), expected="the path of a local folder"
        )

    if os.path.isfile(text):  # noqa: PTH113 - Path.is_file raises for a name that is too long
        raise SnapshotError(
            "opening a snapshot",
            got=f"{text!r}, which is a file",
            expected="the folder of a snapshot",
            next_step="pandas.read_parquet reads a single file.",
        )

    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:  # for example "~nobody", or "~" if the user has no home folder
        raise InputError(
            "opening a snapshot",
            got=f"{text!r}, of a user without a home folder",
            expected="the path of a local folder",
            next_step=f"A folder of this name is {f'./{text}'!r}.",
        ) from None
    except OSError as error:  # the path is relative, and the current folder was removed
        raise SnapshotError(
            "opening a snapshot",
            got=f"{text!r} below a current folder that cannot be found ({error.strerror})",
            expected="a current folder that exists, or a path that begins with /",
            next_step="Change to another folder, then call again.",
        ) from None


def _state_of(status: os.stat_result) -> FileState:
    # A program can set the time of modification (mtime) back, as `cp -p` does. On POSIX, the time of the last
    # change (ctime) is set by the system alone.
    changed_at = max(status.st_mtime_ns, status.st_ctime_ns)
    if stat.S_ISREG(status.st_mode):
        return FileState(status.st_size, changed_at)

    problem = "no regular file"
    if stat.S_ISLNK(status.st_mode):
        problem = "a link"
    return FileState(0, changed_at, problem)
