"""Read and write files of this user alone, in folders that others may write to.

Another user may have replaced a file by a link, a hard link, a pipe, or a file of their own: none of these is
written to or trusted. For example, a lock file that is a link is an error. Files that a user asks to write
(`write_file`) are replaced as a whole.
"""

from __future__ import annotations

import errno
import glob
import importlib
import os
import secrets
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, Literal

from toolkit.base.errors import InputError

# On Windows, nobody can read a locked byte. This one is far after the end of any lock file.
_LOCKED_BYTE: Final = 1 << 30
_LONGEST_NAME: Final = 200
_LOOK_AGAIN: Final = 0.01  # seconds until a lock of another process is tried again
_APPLICATION: Final = "workflow-vector-toolkit"
# Without O_NONBLOCK, opening a pipe would block until it has a writer. Windows has none of these flags.
_CAREFUL: Final = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
)


def user_folder(kind: Literal["config", "data"]) -> Path:
    """Return the folder for configuration or data of this user, for example ``~/.config/…`` on Linux."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
        return Path(local, _APPLICATION, _APPLICATION)  # of an author, and of a program

    chosen = Path(os.environ.get(f"XDG_{kind.upper()}_HOME", "").strip()).expanduser()
    if chosen.is_absolute():
        return chosen / _APPLICATION

    usual = {"config": ".config", "data": ".local/share"}[kind]
    if sys.platform == "darwin":
        usual = "Library/Application Support"
    return Path.home() / usual / _APPLICATION


def open_private(path: Path, flags: int) -> int:
    """Open a file of this user alone, with mode 0600 and flags of `os.open` other than ``O_TRUNC``."""
    if path.is_symlink():  # if the system has no flag for it (Windows)
        raise OSError(errno.ELOOP, "a link", path.name)

    handle = os.open(path, flags | _CAREFUL, 0o600)
    try:
        _check(handle, path.name)
    except BaseException:
        os.close(handle)
        raise

    return handle


def make_private(path: Path, content: bytes) -> None:
    """Make a file of this user alone, unless another process made one first; an empty one is replaced.

    It is written under a new name first, so that nobody has opened it, or reads a part of it.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    # O_EXCL follows no link
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

        if path.exists() and not path.stat().st_size:
            draft.replace(path)
        else:
            with suppress(FileExistsError):  # another process was first
                os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def read_private(path: Path, most: int) -> bytes:
    """Return the first bytes of a file that `make_private` may be making elsewhere; see `open_private`."""
    try:
        handle = open_private(path, os.O_RDONLY)
    except OSError as error:
        if error.errno != errno.EMLINK:
            raise
        _unlink_drafts(path)
        handle = open_private(path, os.O_RDONLY)

    with os.fdopen(handle, "rb") as file:
        return file.read(most)


def _unlink_drafts(path: Path) -> None:
    """Remove drafts of `make_private`, if the process has not removed them yet or was killed."""
    for draft in path.parent.glob(f".{glob.escape(path.name)}.????????.part"):
        with suppress(FileNotFoundError):
            if draft.samefile(path):
                draft.unlink()


def make_folder(path: Path) -> None:
    """Make a folder of this user alone unless it is there; `OSError` for a link, or another user's folder.

    Links above it are followed: a user chooses those.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, "a link in place of a folder", path.name)

    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = path.lstat()
    if not stat.S_ISDIR(state.st_mode):  # replaced by a link meanwhile
        raise OSError(errno.ELOOP, "a link in place of a folder", path.name)

    _check_owner(state, path.name)


def write_file(
    path: Path, write: Callable[[BinaryIO], object], *, shared: bool = False
) -> None:
    """Write a new file next to the path and rename it: no link followed, never a part of one.

    It has mode 0600; one that several users change (`shared`) has the mode and the group of the old file.
    Whatever the system refuses is an `InputError` that names the file; others of `write` are not caught.
    """
    try:
        before = None
        if shared:
            before = _granted(path)
        draft = path.with_name(f".{secrets.token_hex(8)}.part")
        _check_regular(path)  # a rename would put a file where a device or a pipe was
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        handle = os.open(draft, flags, 0o600)  # which follows no link
    except (
        OSError,
        ValueError,
    ) as error:
        # ValueError: no name, null bytes, lone surrogates
        raise not_written(path, error) from None

    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            if before is not None:
                _grant(handle, before)
            os.fsync(file.fileno())

        draft.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise not_written(path, error) from None
    finally:
        draft.unlink(missing_ok=True)


def _granted(path: Path) -> os.stat_result | None:
    """Return the state of a file, so that the new file gets the same permissions; None without a file."""
    if not hasattr(os, "fchmod") or path.is_symlink() or not path.is_file():
        return None

    state = path.stat()
    # with several links, the permissions may be meant for another file
    if state.st_nlink != 1:
        return None

    return state


def _grant(handle: int, granted: os.stat_result) -> None:
    """Give an open file the group and the permissions of another one."""
    mode = stat.S_IMODE(granted.st_mode) & 0o777
    if os.fstat(handle).st_gid != granted.st_gid:
        try:
            os.fchown(handle, -1, granted.st_gid)
        except OSError:  # the user is not in that group: do not grant the permissions to another group
            mode &= 0o707

    os.fchmod(handle, mode)


@contextmanager
def changing(path: Path, seconds: float = 30.0) -> Iterator[None]:
    """Lock a file that the block reads, changes and replaces, for one thread or process at a time.

    The lock is a separate file, ``.NAME.lock``, because each change replaces the file itself. Every user who
    may replace files in the folder may lock it. Raises `TimeoutError` if others keep it locked for `seconds`.
    """
    _check_regular(path)  # before there is a lock next to it
    with os.fdopen(_open_lock(path.with_name(f".{path.name}.lock")), "r+b") as file:
        until = time.monotonic() + seconds
        while not hold(file):
            if time.monotonic() > until:
                raise TimeoutError(
                    errno.ETIMEDOUT,
                    f"another process has held it for {seconds:g} s",
                    path.name,
                )

            time.sleep(_LOOK_AGAIN)

        yield


def _open_lock(lock: Path) -> int:
    if lock.is_symlink():  # if the system has no flag for it (Windows)
        raise OSError(errno.ELOOP, "a link", lock.name)

    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | _CAREFUL, 0o600)
    except FileExistsError:
        # the usual case: lock files stay, because removing one would let two processes lock different files
        handle = os.open(lock, os.O_RDWR | _CAREFUL)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise OSError(errno.EINVAL, "no regular file", lock.name) from None
        return handle

    if hasattr(os, "fchmod"):
        with suppress(OSError):  # then it is this user's alone
            _grant(handle, lock.parent.stat())
            os.fchmod(handle, stat.S_IMODE(os.fstat(handle).st_mode) & 0o666)

    return handle


def read_file(path: Path) -> bytes:
    """Return the content of a file. Raise OSError if it is not regular (reading a pipe could block)."""
    _check_regular(path)
    return path.read_bytes()


def _check_regular(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "no regular file")


_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


def is_full(error: BaseException) -> bool:
    """Return whether the system had no space to write: a full disk, a quota, or a limit of sizes."""
    return isinstance(error, OSError) and error.errno in _FULL


def full_disk(doing: str, error: OSError, where: str) -> InputError:
    """Return the error for a disk without space."""
    return InputError(
        doing,
        got=f"a full disk ({error.strerror})",
        expected=f"free space {where}",
        next_step="Free some space there, or choose another disk, and call it again: nothing was replaced.",
    )


def not_written(path: Path, error: OSError | ValueError) -> InputError:
    """Return the error of a file that cannot be written."""
    if isinstance(error, OSError) and is_full(error):
        return full_disk(
            f"writing the file {str(path)[:_LONGEST_NAME]!r}",
            error,
            "on the disk of the file",
        )

    return InputError(
        f"writing the file {str(path)[:_LONGEST_NAME]!r}",
        got=f"{type(error).__name__}: {getattr(error, 'strerror', None) or error}",
        expected="a file in an existing folder that can be written to and has free space",
        next_step="Make the folder, or choose another path.",
    )


def sync_folder(folder: Path) -> None:
    """Make a new name durable, if the system supports it."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows opens no folders

    with suppress(PermissionError):  # a folder that may be written to and not read
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_private(*paths: Path) -> None:
    """Check the files that exist, before a library opens them; raise the errors of `open_private`."""
    for path in filter(os.path.lexists, paths):
        os.close(open_private(path, os.O_RDONLY))


def check_unchanged(path: Path) -> None:
    """Check a file without opening or changing it, for a library that reads it; raises as `open_private`."""
    state = path.lstat()
    if stat.S_ISLNK(state.st_mode):
        raise OSError(errno.ELOOP, "a link", path.name)

    _check_state(state, path.name)


def _check(handle: int, name: str) -> None:
    state = os.fstat(handle)
    _check_state(state, name)
    if stat.S_IMODE(state.st_mode) & 0o077 and hasattr(os, "fchmod"):
        os.fchmod(handle, 0o600)


def _check_state(state: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.EINVAL, "no regular file", name)
    if state.st_nlink > 1:
        raise OSError(errno.EMLINK, "a file with several names (hard links)", name)

    _check_owner(state, name)


def _check_owner(state: os.stat_result, name: str) -> None:
    if sys.platform == "win32":
        return
    # root in a container may use the files of users of the host
    if os.geteuid() in (state.st_uid, 0):
        return

    kind = "file"
    if stat.S_ISDIR(state.st_mode):
        kind = "folder"
    raise OSError(errno.EPERM, f"another user's {kind}", name)


def hold(file: BinaryIO) -> bool:
    """Lock a file until it is closed. Return False if another process has locked it."""
    if sys.platform == "win32":
        return _hold_on_windows(file)

    import fcntl  # noqa: PLC0415 - not on Windows

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False

    return True


def _hold_on_windows(file: BinaryIO) -> bool:
    windows = importlib.import_module("msvcrt")
    file.seek(_LOCKED_BYTE)
    try:
        windows.locking(file.fileno(), windows.LK_NBLCK, 1)
    except OSError:
        return False
    finally:
        file.seek(0)

    return True
