"""The options of ``toolkit serve``, the token and the signing keys."""

from __future__ import annotations

import argparse
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from toolkit.base.errors import SettingsError
from toolkit.base.private_files import make_private, read_private
from toolkit.base.times import duration_ms
from toolkit.secrets.redaction import Secret
from toolkit_service.api import MAX_BODY, MAX_MESSAGE, REQUEST_TIMEOUT, RETENTION_MS

T = TypeVar("T", int, float)
DEFAULT_INDEXES: Final = ("docs:dense:256:COSINE:hashing", "plain:dense:2:COSINE")
"""The indexes that are made if no ``--index`` is given."""
TOKEN_VARIABLE: Final = "TOOLKIT_SERVE_TOKEN"  # noqa: S105 - the name of a variable
KEY_VARIABLES: Final = (
    "TOOLKIT_SERVE_CURRENT_SIGNING_KEY",
    "TOOLKIT_SERVE_NEXT_SIGNING_KEY",
)
_SHORTEST_TOKEN: Final = 8
_SHORTEST_KEY: Final = 32  # bytes: RFC 7518 requires the length of a SHA-256 hash


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the service to a parser."""

    def add(name: str, text: str, **options: Any) -> None:
        parser.add_argument(name, help=text, **options)

    add(
        "--port",
        "port on 127.0.0.1 (0: a free one)",
        type=_number(int, 0, 65535),
        default=0,
    )
    state = parser.add_mutually_exclusive_group()
    text = "folder for the state of the service (the user's data folder)"
    state.add_argument("--data-dir", help=text, type=Path, metavar="DIR")
    text = "keep the state in a temporary folder, removed when the service ends"
    state.add_argument("--temporary", help=text, action="store_true")
    text = f"file with the token, created if missing (DIR/token); {TOKEN_VARIABLE} has precedence"
    add("--token-file", text, type=Path, metavar="FILE")
    text = (
        "a vector index, repeatable: NAME:dense:DIMENSION:SIMILARITY[:MODEL], "
        "NAME:hybrid:DIMENSION:SIMILARITY[:MODEL+MODEL] or NAME:sparse[:MODEL] "
        f"({' and '.join(DEFAULT_INDEXES)})"
    )
    add("--index", text, action="append", default=[], metavar="SPEC")
    text = "search namespaces of more than N vectors approximately; needs usearch (every search is exact)"
    add("--approximate-above", text, type=int, metavar="N")
    text = "vectors examined by an approximate search; fewer are faster but miss more (128)"
    add(
        "--approximate-expansion",
        text,
        type=_number(int, 1, MAX_BODY),
        default=128,
        metavar="N",
    )
    text = "divide all retry delays, publish delays and sleeps by this (1)"
    add("--time-factor", text, type=_number(float, 1e-6, 1e9), default=1.0, metavar="X")
    text = "how long failures, ended runs and events are kept, for example 7d (90d)"
    add("--retention", text, type=_duration, default=RETENTION_MS, metavar="AGE")
    text = "additional host that may receive messages; repeatable"
    add("--allow-destination", text, action="append", default=[], metavar="HOST")
    text = f"largest message; longer responses are truncated, also in callbacks ({MAX_MESSAGE})"
    add(
        "--max-message",
        text,
        type=_number(int, 1, MAX_BODY, " bytes"),
        default=MAX_MESSAGE,
        metavar="BYTES",
    )
    text = "prefix of headers of messages whose publish used no prefix (service)"
    add("--dialect", text, choices=("service", "upstash"), default="service")
    text = (
        "accept steps of runs that were not started here, and drop them: for an application whose failed "
        "steps you replay"
    )
    add("--drop-unknown-steps", text, action="store_true")
    text = f"time limit for receiving a request ({REQUEST_TIMEOUT:g})"
    limits = _number(float, 0.01, 86_400, " seconds")
    add(
        "--request-timeout",
        text,
        type=limits,
        default=REQUEST_TIMEOUT,
        metavar="SECONDS",
    )
    add(
        "--faults",
        "JSON script of faults; see toolkit_service.demo.faults",
        type=Path,
        metavar="FILE",
    )
    add("--with-parent", "end when standard input closes", action="store_true")
    add("--sample", "load sample history, once", action="store_true")


def _number(
    kind: type[T], low: float, high: float, unit: str = ""
) -> Callable[[str], T]:
    """Return a parser of numbers from `low` to `high`. NaN and infinity are out of range."""
    expected = f"expected {low:.15g} to {high:.15g}{unit}"
    noun = "whole number" if kind is int else "number"

    def read(text: str) -> T:
        try:
            number = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a {noun}; {expected}"
            ) from None

        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"{text} is out of range; {expected}")

        return number

    return read


def _duration(text: str) -> int:
    duration = duration_ms(text)
    if not duration:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a duration; expected for example 7d or 12h"
        )

    return duration


def read_token(file: Path) -> tuple[Secret, Path | None]:
    """Return the token and the file that contains it.

    The token comes from the environment (no file), from the file, or is new and written to the file.
    """
    from_environment = os.environ.get(TOKEN_VARIABLE)
    if from_environment is not None:
        return Secret(_checked(from_environment, TOKEN_VARIABLE, _SHORTEST_TOKEN)), None

    try:
        text = _stored(file)
        if not text:
            make_private(file, f"{secrets.token_urlsafe(32)}\n".encode())
            # read again: if two processes created it at once, both use the token of the first
            text = _stored(file)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"reading the token file {str(file)!r}",
            got=error.strerror
            if isinstance(error, OSError)
            else "bytes that are not text",
            expected="a file of one line, of this user alone, or no file yet",
            next_step="Name another with --token-file.",
        ) from None

    return Secret(
        _checked(text, f"the token file {str(file)!r}", _SHORTEST_TOKEN)
    ), file


def _stored(file: Path) -> str:
    """Return the token in the file, which becomes private, or "" if the file does not exist."""
    try:
        return read_private(file, 4096).decode().strip()
    except FileNotFoundError:
        return ""


def read_signing_keys() -> tuple[str, str] | None:
    """Return the current and the next signing key from the environment, or None if neither is set."""
    keys = {name: os.environ[name] for name in KEY_VARIABLES if name in os.environ}
    if not keys:
        return None

    if len(keys) == 1:
        expected = f"both {' and '.join(KEY_VARIABLES)}, or neither"
        raise SettingsError(
            "reading the signing keys", got="one of them", expected=expected
        )

    current, following = (
        _checked(key, name, _SHORTEST_KEY) for name, key in keys.items()
    )
    return current, following


def _checked(secret: str, source: str, shortest: int) -> str:
    is_printable = secret.isascii() and secret.isprintable() and " " not in secret
    if len(secret) < shortest or not is_printable:
        expected = f"at least {shortest}, all printable ASCII without spaces"
        raise SettingsError(
            f"reading {source}", got=f"{len(secret)} characters", expected=expected
        )

    return secret
