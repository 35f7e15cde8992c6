"""The token and the signing keys of an embedded service: from the environment, from a file, or new."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from toolkit.errors import SettingsError
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
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "r+") as opened:
            text = opened.read(4096).strip()
            if not text:
                text = secrets.token_urlsafe(32)
                opened.write(f"{text}\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"reading the token file {file.name!r}",
            got=type(error).__name__,
            expected="a file of one line, or none yet",
            next_step="Name another with --token-file.",
        ) from None
    return Secret(_checked(text, f"the token file {file.name!r}", _SHORTEST_TOKEN)), file


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
