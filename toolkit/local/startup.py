"""What ``toolkit serve`` is started with: its options, its token and its signing keys."""

from __future__ import annotations

import argparse
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from toolkit.errors import SettingsError
from toolkit.local.api import MAX_BODY, MAX_MESSAGE, REQUEST_TIMEOUT, RETENTION_MS
from toolkit.private_files import make_private, read_private
from toolkit.redaction import Secret
from toolkit.times import duration_ms

T = TypeVar("T", int, float)
DEFAULT_INDEXES: Final = ("docs:dense:256:COSINE:hashing", "plain:dense:2:COSINE")
"""The indexes made when none is named."""
TOKEN_VARIABLE: Final = "TOOLKIT_SERVE_TOKEN"  # noqa: S105 - the name of a variable
KEY_VARIABLES: Final = ("TOOLKIT_SERVE_CURRENT_SIGNING_KEY", "TOOLKIT_SERVE_NEXT_SIGNING_KEY")
_SHORTEST_TOKEN: Final = 8
_SHORTEST_KEY: Final = 32  # bytes: RFC 7518 requires the length of a SHA-256 hash


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the service to a parser."""

    def add(name: str, what: str, **options: Any) -> None:
        parser.add_argument(name, help=what, **options)

    add("--port", "port on 127.0.0.1 (0: a free one)", type=_number(int, 0, 65535), default=0)
    state = parser.add_mutually_exclusive_group()
    what = "where its state is kept (the user's data folder)"
    state.add_argument("--data-dir", help=what, type=Path, metavar="DIR")
    what = "keep its state in a temporary folder, removed when it ends"
    state.add_argument("--temporary", help=what, action="store_true")
    what = f"file with the token, created when missing (DIR/token); {TOKEN_VARIABLE} has precedence"
    add("--token-file", what, type=Path, metavar="FILE")
    what = (
        "a vector index, repeatable: NAME:dense:DIMENSION:SIMILARITY[:MODEL], "
        "NAME:hybrid:DIMENSION:SIMILARITY[:MODEL+MODEL] or NAME:sparse[:MODEL] "
        f"({' and '.join(DEFAULT_INDEXES)})"
    )
    add("--index", what, action="append", default=[], metavar="SPEC")
    what = "search namespaces of more than N vectors approximately; needs usearch (every search is exact)"
    add("--approximate-above", what, type=int, metavar="N")
    what = "vectors examined by such a search; fewer is faster but misses more (128)"
    add("--approximate-expansion", what, type=_number(int, 1, MAX_BODY), default=128, metavar="N")
    what = "divide all retry delays, publish delays and sleeps by this (1)"
    add("--time-factor", what, type=_number(float, 1e-6, 1e9), default=1.0, metavar="X")
    what = "how long failures, ended runs and events are kept, such as 7d (90d)"
    add("--retention", what, type=_duration, default=RETENTION_MS, metavar="AGE")
    what = "additional host that messages may be delivered to; repeatable"
    add("--allow-destination", what, action="append", default=[], metavar="HOST")
    what = f"largest message; longer responses are truncated, in callbacks, too ({MAX_MESSAGE})"
    add("--max-message", what, type=_number(int, 1, MAX_BODY, " bytes"), default=MAX_MESSAGE, metavar="BYTES")
    what = "prefix of the headers of those messages whose publish used none (service)"
    add("--dialect", what, choices=("service", "upstash"), default="service")
    what = f"time limit for receiving a request ({REQUEST_TIMEOUT:g})"
    limits = _number(float, 0.01, 86_400, " seconds")
    add("--request-timeout", what, type=limits, default=REQUEST_TIMEOUT, metavar="SECONDS")
    add("--faults", "JSON script of deliberate faults; see toolkit_demo.faults", type=Path, metavar="FILE")
    add("--with-parent", "end when standard input closes", action="store_true")
    add("--sample", "load sample history, once", action="store_true")


def _number(kind: type[T], low: float, high: float, unit: str = "") -> Callable[[str], T]:
    """A reader of numbers from one to the other; neither NaN nor infinity is between them."""
    expected = f"expected {low:.15g} to {high:.15g}{unit}"

    def read(text: str) -> T:
        try:
            value = kind(text)
        except ValueError:
            whole = "whole " * (kind is int)
            raise argparse.ArgumentTypeError(f"{text!r} is not a {whole}number; {expected}") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is out of range; {expected}")
        return value

    return read


def _duration(text: str) -> int:
    duration = duration_ms(text)
    if not duration:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; expected one such as 7d or 12h")
    return duration


def read_token(file: Path) -> tuple[Secret, Path | None]:
    """The token, and its file: from the environment (no file), from the file, or a new one in the file."""
    given = os.environ.get(TOKEN_VARIABLE)
    if given is not None:
        return Secret(_checked(given, TOKEN_VARIABLE, _SHORTEST_TOKEN)), None
    try:
        text = _stored(file)
        if not text:
            make_private(file, f"{secrets.token_urlsafe(32)}\n".encode())
            text = _stored(file)  # of the other process, where two created it concurrently
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"reading the token file {str(file)!r}",
            got=error.strerror if isinstance(error, OSError) else "bytes that are not text",
            expected="a file of one line, of this user alone, or none yet",
            next_step="Name another with --token-file.",
        ) from None
    return Secret(_checked(text, f"the token file {str(file)!r}", _SHORTEST_TOKEN)), file


def _stored(file: Path) -> str:
    """The token in the file, which becomes private; "" where there is none."""
    try:
        return read_private(file, 4096).decode().strip()
    except FileNotFoundError:
        return ""


def read_signing_keys() -> tuple[str, str] | None:
    """The current and the next signing key of the environment; None where neither is given."""
    keys = {name: os.environ[name] for name in KEY_VARIABLES if name in os.environ}
    if not keys:
        return None
    if len(keys) == 1:
        expected = f"both {' and '.join(KEY_VARIABLES)}, or neither"
        raise SettingsError("reading the signing keys", got="one of them", expected=expected)
    current, following = (_checked(key, name, _SHORTEST_KEY) for name, key in keys.items())
    return current, following


def _checked(value: str, source: str, shortest: int) -> str:
    if len(value) < shortest or not value.isascii() or not value.isprintable() or " " in value:
        expected = f"at least {shortest}, all printable ASCII without spaces"
        raise SettingsError(f"reading {source}", got=f"{len(value)} characters", expected=expected)
    return value
