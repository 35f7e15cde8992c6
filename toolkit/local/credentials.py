"""The token and the signing keys of an embedded service: from the environment, from a file, or new."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from toolkit.errors import SettingsError
from toolkit.private_files import open_private
from toolkit.redaction import Secret

TOKEN_VARIABLE: Final = "TOOLKIT_SERVE_TOKEN"  # noqa: S105 - the name of a variable
KEY_VARIABLES: Final = ("TOOLKIT_SERVE_CURRENT_SIGNING_KEY", "TOOLKIT_SERVE_NEXT_SIGNING_KEY")
_SHORTEST_TOKEN: Final = 8
_SHORTEST_KEY: Final = 32  # bytes: RFC 7518 asks for as many as SHA-256 has


def read_token(file: Path) -> tuple[Secret, Path | None]:
    """The token, and the file it is in; from the environment, from the file, or new and then in the file."""
    given = os.environ.get(TOKEN_VARIABLE)
    if given is not None:
        return Secret(_checked(given, TOKEN_VARIABLE, _SHORTEST_TOKEN)), None
    try:
        text = _kept(file)
        if not text:
            _make(file, f"{secrets.token_urlsafe(32)}\n".encode())
            text = _kept(file)  # which is another's, where two were made at once
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"reading the token file {file.name!r}",
            got=error.strerror if isinstance(error, OSError) else "bytes that are no text",
            expected="a file of one line, of this user alone, or none yet",
            next_step="Name another with --token-file.",
        ) from None
    return Secret(_checked(text, f"the token file {file.name!r}", _SHORTEST_TOKEN)), file


def _kept(file: Path) -> str:
    """The token in the file, which nobody else may read from now on; "" where there is none."""
    try:
        handle = open_private(file, os.O_RDONLY)
    except FileNotFoundError:
        return ""
    with os.fdopen(handle, "rb") as opened:
        return opened.read(4096).decode().strip()


def _make(file: Path, content: bytes) -> None:
    """Make the file under a new name first: nobody can have opened it before. An empty one is replaced."""
    draft = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # which follows no link
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(content)
        if file.exists():
            draft.replace(file)
        else:
            with suppress(FileExistsError):  # another process was first
                os.link(draft, file)
    finally:
        draft.unlink(missing_ok=True)


def read_signing_keys() -> tuple[str, str] | None:
    """The current and the next signing key of the environment; None where neither is given."""
    current, following = (os.environ.get(name) for name in KEY_VARIABLES)
    if current is None and following is None:
        return None
    if current is None or following is None:
        raise SettingsError(
            "reading the signing keys",
            got="one of them",
            expected=f"both {' and '.join(KEY_VARIABLES)}, or neither",
        )
    return (
        _checked(current, KEY_VARIABLES[0], _SHORTEST_KEY),
        _checked(following, KEY_VARIABLES[1], _SHORTEST_KEY),
    )


def _checked(value: str, source: str, shortest: int) -> str:
    if len(value) < shortest or not value.isascii() or not value.isprintable() or " " in value:
        raise SettingsError(
            f"reading {source}",
            got=f"{len(value)} characters",
            expected=f"at least {shortest}, all printable ASCII without spaces",
        )
    return value
