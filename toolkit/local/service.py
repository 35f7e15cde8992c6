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
from toolkit.local.credentials import KEY_VARIABLES, TOKEN_VARIABLE
from toolkit.local.options import DEFAULT_INDEXES
from toolkit.redaction import Secret


class LocalService:
    """The embedded service, running in a process of its own until the ``with`` block ends.

    Parameters
    ----------
    data_dir : Path, optional
        Where its state is kept. Default: a temporary folder, removed by `close`.
    port : int
        Port on 127.0.0.1; 0 takes a free one, and keeps it for later starts.
    time_factor : float
        Divides waits.
    indexes : sequence of str
        Specs of the vector indexes, as for ``toolkit serve --index``.
    sample : bool
        Whether to fill in the sample history.
    allow_destinations : sequence of str
        Hosts beyond loopback to which messages may go.
    retention : str, optional
        How long failures are kept, such as ``7d``.
    max_message : int, optional
        Largest message, in bytes; longer answers are cut off there.
    dialect : str
        ``service`` or ``upstash``: the prefix of the headers of messages whose publish used none.
    request_timeout : float, optional
        Seconds within which a request must have arrived.
    faults : Path, optional
        Script of what goes wrong on purpose, as for ``toolkit serve --faults``.

    Attributes
    ----------
    url : str
        Base address of the queue half.
    vector_urls : dict of str to str
        Base address of each index, by its name.
    token : str
    signing_keys : tuple of str
        The signing keys at the first start.
    pid : int

    Examples
    --------
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
    ) -> None:
        self._temporary = data_dir is None
        self.data_dir = data_dir or Path(tempfile.gettempdir()) / f"toolkit-local-{secrets.token_hex(8)}"
        self._port = port
        self._options = ["--time-factor", repr(time_factor)]
        self._options += [word for spec in indexes for word in ("--index", spec)]
        self._options += [word for host in allow_destinations for word in ("--allow-destination", host)]
        self._options += ["--retention", retention] if retention else []
        self._options += ["--max-message", str(max_message)] if max_message else []
        self._options += ["--dialect", dialect]
        self._options += ["--request-timeout", repr(request_timeout)] if request_timeout else []
        self._options += ["--faults", str(faults)] if faults else []
        self._options += ["--sample"] if sample else []
        self._token = Secret(secrets.token_urlsafe(32))
        self._keys = (Secret(f"sig_{secrets.token_urlsafe(32)}"), Secret(f"sig_{secrets.token_urlsafe(32)}"))
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.vector_urls: dict[str, str] = {}

    @property
    def token(self) -> str:
        """The token of both halves."""
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
        """Start it, or start it again on the same data and port.

        Raises
        ------
        LocalServiceError
            When it does not come up, with its own words, or is running already.
        """
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
            said = first_line(self._process, what="the embedded service", log=log)
        except BaseException:
            self.kill()
            raise
        self.url = said["queue_url"]
        self.vector_urls = said["vector_urls"]
        self._port = int(self.url.rpartition(":")[2])
        return self

    def stop(self) -> int:
        """End it as ``SIGTERM`` does; gives the exit status."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """End it at once, as a crash would (``SIGKILL``); gives the exit status."""
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
