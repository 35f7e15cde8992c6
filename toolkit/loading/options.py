"""Define the options that all loaders share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from toolkit.base import arguments
from toolkit.base.progress import ProgressOption, checked_progress

CONNECTIONS: Final = 16
"""Default maximum of concurrent requests."""
MOST_CONNECTIONS: Final = 256
"""Largest allowed maximum. Each connection has a thread."""


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
            "connections": arguments.whole(
                "connections", self.connections, most=MOST_CONNECTIONS
            ),
            "requests_per_second": arguments.positive(
                "requests_per_second", rate, optional=optional
            ),
            "passes": arguments.whole("passes", self.passes),
            "progress": checked_progress(self.progress),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.passes > 2:  # noqa: PLR2004 - see the message
            raise arguments.wrong("passes", self.passes, "1 or 2")
