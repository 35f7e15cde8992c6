"""`connect("local")`: the embedded service as a child process that ends with this one."""

from __future__ import annotations

import atexit
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Final

from toolkit.children import end, first_line, python_variables, start_module
from toolkit.settings.service import Service, local_service

DEFAULT_INDEX: Final = "docs"


def start_local(*options: str) -> Service:
    """Start ``toolkit serve`` as a child process and connect to it.

    The child reads its token and signing keys from the environment, never from its command line, and
    ends when its standard input closes: also when this process is killed. Its state lies in a temporary
    folder, removed at the end. It gets no other token of this process, and imports nothing from the current
    folder.

    Parameters
    ----------
    *options : str
        Of ``toolkit serve``. Default: ``--sample``.

    Raises
    ------
    LocalServiceError
        When the child does not come up; the last line of its log is in the message.
    """
    token, keys = secrets.token_urlsafe(32), tuple(f"sig_{secrets.token_urlsafe(32)}" for _ in range(2))
    folder = Path(tempfile.mkdtemp(prefix="toolkit-local-"))
    log = folder / "serve.log"
    child = start_module(
        "toolkit",
        "serve",
        *(options or ("--sample",)),
        *("--with-parent", "--port", "0", "--data-dir", str(folder)),
        variables=python_variables()
        | {
            "TOOLKIT_SERVE_TOKEN": token,
            "TOOLKIT_SERVE_CURRENT_SIGNING_KEY": keys[0],
            "TOOLKIT_SERVE_NEXT_SIGNING_KEY": keys[1],
        },
        log=log,
    )

    def close() -> None:
        atexit.unregister(close)
        end(child)
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(close)
    try:
        address = str(first_line(child, what="the embedded service", log=log)["queue_url"])
    except BaseException:
        close()
        raise
    return local_service(address, token, DEFAULT_INDEX, keys, close)
