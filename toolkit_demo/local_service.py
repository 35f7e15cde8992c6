"""`LocalService`: the embedded service as a child process, for tests, demos and notebooks."""

from __future__ import annotations

import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from toolkit.children import end, first_line, python_variables, start_module
from toolkit.errors import LocalServiceError
from toolkit.local.startup import DEFAULT_INDEXES, KEY_VARIABLES, TOKEN_VARIABLE
from toolkit.redaction import Secret


class LocalService:
    """The embedded service in a process of its own, until the ``with`` block ends.

    Its state is in `data_dir`, or in a temporary folder that `close` removes. Port 0 selects a free one and
    keeps it for later starts. The other options are those of ``toolkit serve``.

    >>> with LocalService(indexes=["plain:dense:2:COSINE"]) as service:
    ...     list(service.vector_urls)
    ['plain']
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        port: int = 0,
        time_factor: float = 1.0,
        *,
        indexes: Sequence[str] = DEFAULT_INDEXES,
        sample: bool = False,
        allow_destinations: Sequence[str] = (),
        retention: str | None = None,
        max_message: int | None = None,
        dialect: str = "service",
        request_timeout: float | None = None,
        faults: Path | None = None,
        approximate_above: int | None = None,
        approximate_expansion: int | None = None,
    ) -> None:
        self._temporary = data_dir is None
        self.data_dir = data_dir or Path(tempfile.gettempdir()) / f"toolkit-local-{secrets.token_hex(8)}"
        self._port = port
        options: dict[str, object] = {
            "--time-factor": repr(time_factor),
            "--retention": retention,
            "--max-message": max_message,
            "--dialect": dialect,
            "--request-timeout": request_timeout,
            "--faults": faults,
            "--approximate-above": approximate_above,
            "--approximate-expansion": approximate_expansion,
        }
        self._options = [word for name, value in options.items() if value for word in (name, str(value))]
        self._options += [word for spec in indexes for word in ("--index", spec)]
        self._options += [word for host in allow_destinations for word in ("--allow-destination", host)]
        self._options += ["--sample"] if sample else []
        self._token = Secret(secrets.token_urlsafe(32))
        self._keys = (Secret(f"sig_{secrets.token_urlsafe(32)}"), Secret(f"sig_{secrets.token_urlsafe(32)}"))
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.vector_urls: dict[str, str] = {}

    @property
    def token(self) -> str:
        """The one token of the service."""
        return self._token.reveal()

    @property
    def signing_keys(self) -> tuple[str, str]:
        """The current and the next signing key at the first start."""
        return self._keys[0].reveal(), self._keys[1].reveal()

    @property
    def pid(self) -> int:
        """The process."""
        if self._process is None:
            raise LocalServiceError(
                "asking for its process", got="a service that is not running", expected="start()"
            )
        return self._process.pid

    def start(self) -> Self:
        """Start it, or start it again on the same data and port; a `LocalServiceError` when that fails."""
        if self._process is not None:
            raise LocalServiceError(
                "starting the embedded service", got="one that is running", expected="a stopped one"
            )
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = self.data_dir / "serve.log"
        variables = dict(zip((TOKEN_VARIABLE, *KEY_VARIABLES), (self.token, *self.signing_keys), strict=True))
        self._process = start_module(
            "toolkit",
            "serve",
            *("--port", str(self._port), "--data-dir", str(self.data_dir), "--with-parent"),
            *self._options,
            variables=python_variables() | variables,
            log=log,
        )
        try:
            started = first_line(self._process, what="the embedded service", log=log)
        except BaseException:
            self.kill()
            raise
        self.url = started["queue_url"]
        self.vector_urls = started["vector_urls"]
        self._port = int(self.url.rpartition(":")[2])
        return self

    def stop(self) -> int:
        """End it as ``SIGTERM`` does; returns the exit status."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """Kill it, as a crash would (``SIGKILL``); returns the exit status."""
        return self._end(signal.SIGKILL)

    def close(self) -> None:
        """End it, and remove its data folder when it was a temporary one."""
        self.stop()
        if self._temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        return 0 if process is None else end(process, by=number)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LocalService({self.url!r})" if self._process else "LocalService(not running)"
