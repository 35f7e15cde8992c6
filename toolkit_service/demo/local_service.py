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

from toolkit.base.children import end, first_line, python_variables, start_module
from toolkit.base.errors import LocalServiceError
from toolkit.secrets.redaction import Secret
from toolkit_service.startup import DEFAULT_INDEXES, KEY_VARIABLES, TOKEN_VARIABLE


class LocalService:
    """The embedded service in a child process, until the ``with`` block ends.

    The state is in `data_dir`, or in a temporary folder that `close` removes. Port 0 selects a free port and
    keeps it for later starts. The other options are the options of ``toolkit serve``.

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
        drop_unknown_steps: bool = False,
    ) -> None:
        self._temporary = data_dir is None
        self.data_dir = (
            data_dir
            or Path(tempfile.gettempdir()) / f"toolkit-local-{secrets.token_hex(8)}"
        )
        self._port = port
        options: list[tuple[str, object]] = [
            ("--time-factor", repr(time_factor)),
            ("--retention", retention),
            ("--max-message", max_message),
            ("--dialect", dialect),
            ("--request-timeout", request_timeout),
            ("--faults", faults),
            ("--approximate-above", approximate_above),
            ("--approximate-expansion", approximate_expansion),
        ]
        options += [("--index", spec) for spec in indexes]
        options += [("--allow-destination", host) for host in allow_destinations]
        # options without a value are omitted: the service has its own defaults
        self._arguments: list[str] = []
        for name, setting in options:
            if setting:
                self._arguments += [name, str(setting)]

        if sample:
            self._arguments.append("--sample")
        if drop_unknown_steps:
            self._arguments.append("--drop-unknown-steps")
        self._token = Secret(secrets.token_urlsafe(32))
        self._keys = (
            Secret(f"sig_{secrets.token_urlsafe(32)}"),
            Secret(f"sig_{secrets.token_urlsafe(32)}"),
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.vector_urls: dict[str, str] = {}

    @property
    def token(self) -> str:
        """Return the token of the service."""
        return self._token.reveal()

    @property
    def signing_keys(self) -> tuple[str, str]:
        """Return the current and the next signing key at the first start."""
        return self._keys[0].reveal(), self._keys[1].reveal()

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        if self._process is None:
            raise LocalServiceError(
                "reading the process id of the embedded service",
                got="a stopped service",
                expected="a running service",
                next_step="Call start() first.",
            )

        return self._process.pid

    def start(self) -> Self:
        """Start the service, or start it again on the same data and port.

        Raise `LocalServiceError` if it does not start.
        """
        if self._process is not None:
            raise LocalServiceError(
                "starting the embedded service",
                got="a running service",
                expected="a stopped service",
            )

        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = self.data_dir / "serve.log"
        current_variable, next_variable = KEY_VARIABLES
        current_key, next_key = self.signing_keys
        secret_variables = {
            TOKEN_VARIABLE: self.token,
            current_variable: current_key,
            next_variable: next_key,
        }
        self._process = start_module(
            "toolkit",
            "serve",
            *(
                "--port",
                str(self._port),
                "--data-dir",
                str(self.data_dir),
                "--with-parent",
            ),
            *self._arguments,
            variables=python_variables() | secret_variables,
            log=log,
        )

        try:
            started = first_line(self._process, what="the embedded service", log=log)
        except BaseException:
            # also KeyboardInterrupt: no process may be left
            self.kill()
            raise

        self.url = started["queue_url"]
        self.vector_urls = started["vector_urls"]
        # clients keep the address: the next start uses the same port
        self._port = int(self.url.rpartition(":")[2])

        return self

    def stop(self) -> int:
        """End the service with ``SIGTERM``, and return the exit status."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """Kill the service with ``SIGKILL``, as a crash would, and return the exit status."""
        return self._end(signal.SIGKILL)

    def close(self) -> None:
        """End the service, and remove the data folder if it is temporary."""
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
        return (
            f"LocalService({self.url!r})"
            if self._process
            else "LocalService(not running)"
        )
