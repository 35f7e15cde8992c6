"""The options of ``toolkit serve``, for its own command line and for the toolkit's."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from toolkit.local.api import MAX_BODY, REQUEST_TIMEOUT
from toolkit.local.credentials import TOKEN_VARIABLE
from toolkit.local.queue.store import MAX_MESSAGE, RETENTION_MS
from toolkit.times import duration_ms

DEFAULT_INDEXES: Final = ("docs:dense:256:COSINE:hashing", "plain:dense:2:COSINE")
"""The indexes made when none is named."""
_HIGHEST_PORT: Final = 65535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the service to a parser.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_arguments(parser)
    >>> parser.parse_args(["--port", "8080"]).port
    8080
    """
    parser.add_argument("--port", type=_port, default=0, help="port on 127.0.0.1 (0: a free one)")
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="where its state is kept (the user's data folder)"
    )
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE",
        help=f"file with the token, made when missing (DIR/token); {TOKEN_VARIABLE} comes first",
    )  # fmt: skip
    parser.add_argument(
        "--index", action="append", default=[], metavar="SPEC",
        help="a vector index, repeatable: NAME:dense:DIMENSION:SIMILARITY[:MODEL], "
        "NAME:hybrid:DIMENSION:SIMILARITY[:MODEL+MODEL] or NAME:sparse[:MODEL] "
        f"({' and '.join(DEFAULT_INDEXES)})",
    )  # fmt: skip
    parser.add_argument(
        "--approximate-above", type=int, metavar="N",
        help="search namespaces of more than N vectors approximately; needs usearch (every search is exact)",
    )  # fmt: skip
    parser.add_argument(
        "--time-factor", type=_factor, default=1.0, metavar="X",
        help="divide all waits between retries, delays and sleeps by this (1)",
    )  # fmt: skip
    parser.add_argument(
        "--retention", type=_duration, default=RETENTION_MS, metavar="AGE",
        help="how long failures, ended runs and events are kept, such as 7d (90d)",
    )  # fmt: skip
    parser.add_argument(
        "--allow-destination", action="append", default=[], metavar="HOST",
        help="a host beyond this machine to which messages may go; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--max-message", type=_size, default=MAX_MESSAGE, metavar="BYTES",
        help=f"largest message; longer answers are cut off there, in callbacks, too ({MAX_MESSAGE})",
    )  # fmt: skip
    parser.add_argument(
        "--dialect", choices=("service", "upstash"), default="service",
        help="prefix of the headers of those messages whose publish used none (service)",
    )  # fmt: skip
    parser.add_argument(
        "--request-timeout", type=_seconds, default=REQUEST_TIMEOUT, metavar="SECONDS",
        help=f"within which a request must have arrived ({REQUEST_TIMEOUT:g})",
    )  # fmt: skip
    parser.add_argument(
        "--faults", type=Path, metavar="FILE",
        help="JSON script of what goes wrong on purpose; see toolkit_demo.faults",
    )  # fmt: skip
    parser.add_argument("--with-parent", action="store_true", help="end when standard input closes")
    parser.add_argument("--sample", action="store_true", help="fill in sample history, once")


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= _HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"{text} is no port; expected 0 to {_HIGHEST_PORT}")
    return port


def _factor(text: str) -> float:
    factor = float(text)
    if not 1e-6 <= factor <= 1e9:  # noqa: PLR2004 - generous, and neither 0 nor NaN
        raise argparse.ArgumentTypeError(f"{text} is out of range; expected 0.000001 to 1000000000")
    return factor


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0.01 <= seconds <= 86_400:  # noqa: PLR2004 - a day; neither 0 nor NaN
        raise argparse.ArgumentTypeError(f"{text} is out of range; expected 0.01 to 86400 seconds")
    return seconds


def _size(text: str) -> int:
    size = int(text)
    if not 1 <= size <= MAX_BODY:
        raise argparse.ArgumentTypeError(f"{text} is out of range; expected 1 to {MAX_BODY} bytes")
    return size


def _duration(text: str) -> int:
    found = duration_ms(text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; expected one such as 7d or 12h")
    return found
