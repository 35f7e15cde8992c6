"""Connect a command to the service that the environment names, with a token file if you name one.

For example, ``QSTASH_TOKEN=… toolkit report`` and ``toolkit report --token-file /run/secrets/token`` connect
to the public queue.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Literal

import toolkit as tk
from toolkit.base.errors import SettingsError
from toolkit.base.private_files import read_file

_LONGEST: Final = 4096  # bytes of a token file
_VARIABLES: Final = {
    "queue": "the variable QSTASH_TOKEN, or TOOLKIT_QUEUE_URL and TOOLKIT_QUEUE_TOKEN",
    "vector": "the variables UPSTASH_VECTOR_REST_URL and UPSTASH_VECTOR_REST_TOKEN, "
    "or TOOLKIT_VECTOR_URL and TOOLKIT_VECTOR_TOKEN",
}
_WAY_OUT: Final = (
    "Export them, or name a file with the token with --token-file. Without an account, run `toolkit serve "
    "--sample` in another terminal and export the lines that it prints."
)

Endpoint = Literal["queue", "vector"]


def add_token_file(add_option: Callable[..., object]) -> None:
    """Add the option for a token in a file."""
    what = "file with the token, read again at each run; without it, a variable has the token"
    add_option("--token-file", what, type=Path, metavar="FILE")


def connected(given: argparse.Namespace, endpoint: Endpoint) -> tk.Service:
    """Connect to the service. A token file replaces the variable with the token of this endpoint.

    Raises
    ------
    SettingsError
        If nothing is configured, or the file cannot be read.
    """
    environment = dict(os.environ)
    if given.token_file is not None:
        environment[_variable(endpoint, os.environ)] = _token_of(given.token_file)
    try:
        return tk.connect(environ=environment)
    except SettingsError as error:
        if not error.doing.startswith("connecting") or not _has_no_settings(
            environment
        ):
            raise

        # the error of `connect` names arguments of Python, which a command line does not have
        raise SettingsError(
            error.doing,
            got="no address and no token",
            expected=_VARIABLES[endpoint],
            next_step=_WAY_OUT,
        ) from None


def _has_no_settings(environment: Mapping[str, str]) -> bool:
    """Return whether no variable has a token or an address."""
    return not any(
        environment.get(name)
        for name in environment
        if name.endswith(("_TOKEN", "_REST_URL"))
    )


def _variable(endpoint: Endpoint, environment: Mapping[str, str]) -> str:
    """Return the variable that has the token of an endpoint, among the families that `connect` reads."""
    own = f"TOOLKIT_{endpoint.upper()}"
    if environment.get(f"{own}_URL") or environment.get(f"{own}_TOKEN"):
        return f"{own}_TOKEN"
    if endpoint == "vector":
        return "UPSTASH_VECTOR_REST_TOKEN"

    region = environment.get("TOOLKIT_REGION") or environment.get("QSTASH_REGION")
    if not region:
        return "QSTASH_TOKEN"

    # for example, EU_CENTRAL_1_QSTASH_TOKEN for the region eu-central-1
    return f"{region.strip().upper().replace('-', '_')}_QSTASH_TOKEN"


def _token_of(path: Path) -> str:
    """Return the token in a file, without the line end after it."""
    refused = partial(
        SettingsError, f"reading the token file {str(path)!r}", next_step=_NEXT_STEP
    )
    try:
        content = read_file(path)
        token = content.decode().strip()
    except OSError as error:
        raise refused(got=error.strerror, expected="a file of one line") from None
    except UnicodeDecodeError:
        raise refused(
            got="bytes that are not text", expected="a file of one line"
        ) from None

    if not token:
        raise refused(got="an empty file", expected="the token alone")

    lines = len(token.splitlines())
    if lines != 1 or len(content) > _LONGEST:
        raise refused(
            got=f"{len(content):,} bytes in {lines:,} lines", expected="the token alone"
        )

    return token


_NEXT_STEP: Final = "Write the token into it, or name another file with --token-file."
