"""How a load is to be done: the options that all loaders share, checked in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypedDict

from toolkit import arguments
from toolkit.loading.progress import ProgressOption

CONNECTIONS: Final = 16
"""Requests under way at once, at most, when nothing else is said."""
MOST_CONNECTIONS: Final = 256
"""Each is a thread and a connection."""


class LoadArguments(TypedDict, total=False):
    """The arguments of `LoadOptions`, for functions that hand them on."""

    limit: int | None
    progress: ProgressOption
    connections: int
    requests_per_second: float | None
    passes: int


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How a load is to be done; the parameters are those of `load_failures`.

    Raises
    ------
    InputError
        For a value that means nothing; it names the option.

    Examples
    --------
    >>> LoadOptions(passes=3)
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: reading passes: got 3; expected 1 or 2
    """

    limit: int | None = None
    progress: ProgressOption = None
    connections: int = CONNECTIONS
    requests_per_second: float | None = None
    passes: int = 1

    def __post_init__(self) -> None:
        checked = {
            "limit": arguments.whole("limit", self.limit, optional="for all"),
            "connections": arguments.whole("connections", self.connections, most=MOST_CONNECTIONS),
            "requests_per_second": arguments.positive(
                "requests_per_second",
                self.requests_per_second,
                optional="for as many as the service allows",
            ),
            "passes": arguments.whole("passes", self.passes),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.passes > 2:  # noqa: PLR2004 - what the message says
            raise arguments.wrong("passes", self.passes, "1 or 2")
        if not (self.progress is None or isinstance(self.progress, bool) or callable(self.progress)):
            raise arguments.wrong("progress", self.progress, "None, True, False or a callable")
