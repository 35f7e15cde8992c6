"""What a Windows machine does not have, taken away from the toolkit: `take_away` before it is imported.

The toolkit, and what it imports later, sees an `os` and a `signal` without the names that only POSIX systems
have, folders that cannot be opened, no folder handles, and none of the POSIX modules. Libraries that were
imported before keep theirs: they have their own ways on Windows.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

MODULES = (
    "fcntl",
    "grp",
    "posix",
    "pty",
    "pwd",
    "readline",
    "resource",
    "syslog",
    "termios",
    "tty",
)
NAMES = (
    *(
        "O_NOFOLLOW",
        "O_DIRECTORY",
        "O_NONBLOCK",
        "O_CLOEXEC",
        "O_SYNC",
        "O_DSYNC",
        "O_NOATIME",
    ),
    *(
        "fork",
        "forkpty",
        "getuid",
        "geteuid",
        "getgid",
        "getegid",
        "getpgid",
        "getpgrp",
        "setsid",
        "killpg",
    ),
    *(
        "fchmod",
        "fchown",
        "chown",
        "lchown",
        "fdatasync",
        "pread",
        "pwrite",
        "preadv",
        "pwritev",
    ),
    *(
        "sysconf",
        "sysconf_names",
        "statvfs",
        "fstatvfs",
        "mkfifo",
        "openpty",
        "uname",
        "wait",
        "nice",
    ),
    *(
        "posix_fallocate",
        "posix_fadvise",
        "sched_getaffinity",
        "getloadavg",
        "register_at_fork",
        "pipe2",
    ),
)


def take_away() -> None:
    """From now on, what is imported finds a system as poor as Windows, and the name of Windows."""
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    real = os.open

    def opened(
        path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        if dir_fd is not None:
            raise NotImplementedError("dir_fd unavailable on this platform")
        if Path(path).is_dir():
            raise PermissionError(13, "Permission denied", path)
        return real(path, flags, mode)

    poor = _without(os, NAMES)
    poor.open = opened  # type: ignore[attr-defined]
    poor.supports_dir_fd = poor.supports_fd = poor.supports_follow_symlinks = set()  # type: ignore[attr-defined]
    poor.name = "nt"  # type: ignore[attr-defined]
    sys.modules["os"] = poor
    sys.platform = "win32"
    kept = {"SIGINT", "SIGTERM", "SIGABRT", "SIGFPE", "SIGILL", "SIGSEGV"}
    others = [
        name
        for name in dir(signal)
        if name.startswith("SIG") and name.isupper() and name not in kept
    ]
    sys.modules["signal"] = _without(
        signal, [*others, "pthread_kill", "pthread_sigmask", "alarm", "setitimer"]
    )
    sys.modules["msvcrt"] = _locks()


def _without(module: ModuleType, names: Any) -> ModuleType:
    poor = ModuleType(module.__name__)
    vars(poor).update(
        {name: value for name, value in vars(module).items() if name not in names}
    )
    return poor


def _locks() -> ModuleType:
    """The locks of Windows' runtime library, made of those of this system: bytes from where a file stands."""
    made = ModuleType("msvcrt")

    def locking(handle: int, mode: int, count: int) -> None:
        assert mode == made.LK_NBLCK  # type: ignore[attr-defined]
        fcntl.lockf(
            handle,
            fcntl.LOCK_EX | fcntl.LOCK_NB,
            count,
            os.lseek(handle, 0, os.SEEK_CUR),
        )

    made.locking, made.LK_NBLCK = locking, 2  # type: ignore[attr-defined]
    return made
