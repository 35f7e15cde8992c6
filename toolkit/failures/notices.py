"""Send short notices about groups of failures: to the desktop, or to a webhook.

A webhook receives JSON with a `text`. The address may only be on this machine, unless you confirm the host.
Redirects are not followed and proxies are not used, so that a notice reaches the named host or none. Text is
masked before it arrives here.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import urllib3

from toolkit.base.arguments import text, wrong
from toolkit.base.errors import InputError
from toolkit.service.connections import Connections
from toolkit.service.settings import is_loopback


class SendFailure(NamedTuple):
    """Why a notice was not sent."""

    reason: str
    is_undelivered: bool
    """Whether the notice certainly did not arrive, so that it can be sent again."""


Sender: TypeAlias = Callable[[str], SendFailure | None]
"""Sends a notice. Return why it failed, or None."""

_DOING: Final = "watching failures"
_TITLE: Final = "Failures"
_SECONDS: Final = 10.0
_LONGEST: Final = 1500  # characters of a notice
_FIRST_ERROR: Final = 300
_FIRST_REFUSAL: Final = 400
_OF_PROXIES: Final = frozenset({502, 504})
"""Statuses of a proxy, which does not know whether the receiver has read the notice."""
_NOT_CONNECTED: Final = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.SSLError,
)
"""Errors before the first byte of a notice is sent."""
_DESKTOP: Final = "notify-send"
_RUN_SECONDS: Final = 10


def sender_of(notify: str | None, confirm: str | None) -> Sender | None:
    """Return the function that sends notices. Raise `InputError` if the address may not be called."""
    if confirm is not None:
        confirm = text("confirm", confirm)
    if notify is None:
        return None

    notify = text("notify", notify, empty=False)
    if notify == "desktop":
        return _desktop()

    return _webhook(notify, confirm)


def _desktop() -> Sender:
    program = shutil.which(_DESKTOP)
    if program is None:
        raise InputError(
            _DOING,
            got=f"notify='desktop' without the program {_DESKTOP}",
            expected=f"{_DESKTOP}, or the address of a webhook",
        )

    def send(notice: str) -> SendFailure | None:
        command = [program, "--app-name", "toolkit", "--", _TITLE, notice[:_LONGEST]]
        try:
            subprocess.run(
                command, check=True, capture_output=True, timeout=_RUN_SECONDS
            )
        except (OSError, subprocess.SubprocessError) as error:
            # a program that hangs may have shown the notice
            is_undelivered = not isinstance(error, subprocess.TimeoutExpired)
            reason = f"{_DESKTOP} failed ({type(error).__name__})"
            return SendFailure(reason, is_undelivered)

        return None

    return send


def _webhook(url: str, confirm: str | None) -> Sender:
    address = urlsplit(url)
    host = address.hostname
    if address.scheme not in ("http", "https") or not host or "@" in address.netloc:
        raise wrong("notify", address.scheme, "'desktop', or an http or https address")

    if not is_loopback(host) and confirm != host:
        raise InputError(
            _DOING,
            got=f"a webhook of the host {host!r} of another machine",
            expected="this machine, or the confirmation of the host",
            next_step=f"Titles of groups are sent there. To allow it, pass confirm={host!r}, "
            f"or --confirm {host} on the command line.",
        )

    base = f"{address.scheme}://{address.netloc}"
    path = url[url.index(address.netloc) + len(address.netloc) :].partition("#")[0]
    headers = {"Content-Type": "application/json"}

    def send(notice: str) -> SendFailure | None:
        body = json.dumps({"text": notice[:_LONGEST]}).encode()
        timeout = urllib3.Timeout(total=_SECONDS)
        try:
            with urllib3.connection_from_url(base, retries=False) as pool:
                # for the whole head: the timeout alone is for each read
                Connections(pool, time.monotonic).set_deadline(_SECONDS)
                response = pool.request(
                    "POST", path or "/", body=body, headers=headers,
                    redirect=False, timeout=timeout, preload_content=False,
                )  # fmt: skip
                response.close()
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            # the address can contain a secret, so the message of the error is not shown
            reason = f"the webhook of {host} did not respond ({type(error).__name__})"
            return SendFailure(reason, isinstance(error, _NOT_CONNECTED))

        status = response.status
        if status < _FIRST_ERROR:
            return None

        reason = f"the webhook of {host} responded with status {status}"
        is_refused = status >= _FIRST_REFUSAL and status not in _OF_PROXIES
        return SendFailure(reason, is_refused)

    return send
