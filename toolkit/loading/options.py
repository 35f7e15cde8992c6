"""Define the options that all loaders share, and the progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self

from toolkit import arguments

CONNECTIONS: Final = 16
"""Default maximum of concurrent requests."""
MOST_CONNECTIONS: Final = 256
"""Largest allowed maximum. Each connection has a thread."""

ProgressOption = bool | Callable[[int, int | None], None] | None
"""None shows a bar in a notebook or terminal, True always, False never. A callable gets (done, total)."""

_BAR_DELAY: Final = 1.0  # seconds before a bar appears, so that fast loads show no bar


@dataclass(frozen=True)
class LoadOptions:
    """Options of a load. See `load_failures` for the parameters. Each error names the option."""

    limit: int | None = None
    progress: ProgressOption = None
    connections: int = CONNECTIONS
    requests_per_second: float | None = None
    passes: int = 1

    def __post_init__(self) -> None:
        rate = self.requests_per_second
        optional = "for as many as the service allows"
        checked = {
            "limit": arguments.whole("limit", self.limit, optional="for all"),
            "connections": arguments.whole("connections", self.connections, most=MOST_CONNECTIONS),
            "requests_per_second": arguments.positive("requests_per_second", rate, optional=optional),
            "passes": arguments.whole("passes", self.passes),
            "progress": arguments.plain(self.progress),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.passes > 2:  # noqa: PLR2004 - see the message
            raise arguments.wrong("passes", self.passes, "1 or 2")
        if not (self.progress is None or isinstance(self.progress, bool) or callable(self.progress)):
            raise arguments.wrong("progress", self.progress, "None, True, False or a callable")


class ProgressBar:
    """Count rows, and show the count as the `ProgressOption` demands. Use it as a context manager."""

    def __init__(self, option: ProgressOption, *, title: str, unit: str, total: int | None = None) -> None:
        self._report = option if callable(option) else None
        self._done = 0
        self._total = total
        is_wanted = option is True or (option is None and _is_interactive())
        self._bar = _tqdm(title, unit, total) if is_wanted else None

    def add(self, count: int, *, retries: int = 0) -> None:
        """Count more rows. `retries` is the number of retries so far."""
        self._done += count
        if self._bar is not None:
            if retries:
                text = "1 retry" if retries == 1 else f"{retries:,} retries"
                self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(count)
        if self._report is not None:
            self._report(self._done, self._total)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


def _tqdm(title: str, unit: str, total: int | None) -> Any:
    from tqdm.auto import tqdm  # noqa: PLC0415 - costs a tenth of a second, and is mostly not needed

    return tqdm(desc=title, unit=f" {unit}", total=total, delay=_BAR_DELAY, leave=False, dynamic_ncols=True)


def _is_interactive() -> bool:
    """Whether this is a notebook's kernel (JupyterLab, VS Code) or a terminal."""
    return "ipykernel" in sys.modules or sys.stderr.isatty()
