"""Read the key of mask tags, which only this user has, and make it if it is missing."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from pathlib import Path
from typing import Final

from toolkit.base.errors import SettingsError
from toolkit.base.private_files import make_folder, make_private, user_folder

KEY_VARIABLE: Final = "TOOLKIT_MASKING_KEY"
KEY_FILE_VARIABLE: Final = "TOOLKIT_MASKING_KEY_FILE"
_KEY_BYTES: Final = 32
_KEY_DIGITS: Final = re.compile(rb"[0-9a-fA-F]{64}")
_ACCESS_OF_OTHERS: Final = 0o077
# bytes that are read of a file, which may not be a key
_MOST_KEY_BYTES: Final = 256


def masking_key(folder: Path | None = None) -> bytes:
    """Return the key for mask tags: 32 random bytes in a private file of the user, which is made if missing.

    By default, the file is in the configuration folder of the user. Masks stay comparable between syncs, and
    snapshots never contain the key. Raises `SettingsError` if the file is a link or contains no key.

    If that folder does not last, for example in a container, set `TOOLKIT_MASKING_KEY` to 64 hexadecimal
    digits, or `TOOLKIT_MASKING_KEY_FILE` to the path of a file with 32 bytes or 64 hexadecimal digits.
    """
    if folder is not None:
        return _key_in(folder)

    key = _key_of_environment()
    if key is not None:
        return key

    return _key_in(user_folder("config"))


def _key_in(folder: Path) -> bytes:
    """Return the key in a file of this folder."""
    path = folder / "masking.key"
    try:
        make_folder(folder)
        if not os.path.lexists(path):
            make_private(path, secrets.token_bytes(_KEY_BYTES))
        # if another process was first, this reads the key of that process
        return _read_key(path)
    except OSError as error:
        raise SettingsError(
            f"reading the masking key {path.name!r} in the user's configuration folder",
            got=f"{type(error).__name__}: {error.strerror}",
            expected="a private file of 32 bytes",
            next_step="Set XDG_CONFIG_HOME to a folder this user may write.",
        ) from None


def _key_of_environment() -> bytes | None:
    """Return the key from the environment variables, or None if they are not set."""
    digits = os.environ.get(KEY_VARIABLE)
    path = os.environ.get(KEY_FILE_VARIABLE)
    if digits and path:
        raise SettingsError(
            "reading the masking key",
            got=f"both {KEY_VARIABLE} and {KEY_FILE_VARIABLE}",
            expected="one of them",
            next_step="Unset the other.",
        )

    if digits:
        return _key_of(
            digits.encode("utf-8", "surrogateescape"),
            KEY_VARIABLE,
            "64 hexadecimal digits",
        )

    if path:
        return _key_of_file(path)

    return None


def _key_of_file(path: str) -> bytes:
    """Return the key in the file that `KEY_FILE_VARIABLE` names."""
    try:
        # a secret of Docker or Kubernetes is a link to a file of root's, so neither is refused here
        with Path(path).open("rb") as file:
            content = file.read(_MOST_KEY_BYTES)
    except OSError as error:
        raise SettingsError(
            "reading the masking key",
            got=f"{type(error).__name__}: {error.strerror}",
            expected=f"a file at the path in {KEY_FILE_VARIABLE}",
            next_step="Make one: openssl rand -hex 32 > masking.key.",
        ) from None

    if len(content) == _KEY_BYTES:
        return content

    return _key_of(content, KEY_FILE_VARIABLE, "64 hexadecimal digits, or 32 bytes")


def _key_of(written: bytes, variable: str, expected: str) -> bytes:
    """Return the key of these digits."""
    digits = written.strip()
    if not _KEY_DIGITS.fullmatch(digits):
        raise SettingsError(
            f"reading the masking key that {variable} gives",
            got=f"{len(digits)} characters",
            expected=expected,
            next_step="Make one with openssl rand -hex 32.",
        )

    return bytes.fromhex(digits.decode())


def _read_key(path: Path) -> bytes:
    """Return the key of a file that belongs to this user, and make the file private."""
    # a system without the flag below (Windows) would follow the link
    if path.is_symlink():
        raise OSError(errno.ELOOP, "a link")

    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(handle, "rb") as file:
        if os.name == "posix":
            _make_private(handle)
        key = file.read(_MOST_KEY_BYTES)

    if len(key) != _KEY_BYTES:
        raise SettingsError(
            f"reading the masking key {path.name!r} in the user's configuration folder",
            got=f"{len(key)} bytes",
            expected="32 bytes",
            next_step="Delete the file; a new key is made, and older masks will not compare with new ones.",
        )

    return key


def _make_private(handle: int) -> None:
    """Remove access of others from an open file, which has to belong to this user."""
    status = os.fstat(handle)
    if os.geteuid() not in (status.st_uid, 0):
        # that user knows the key and could test guesses
        raise OSError(errno.EPERM, "another user's file")

    if stat.S_IMODE(status.st_mode) & _ACCESS_OF_OTHERS:
        os.fchmod(handle, 0o600)
