"""Describe the outcome of a run of ``toolkit snapshot``."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from toolkit.cli.exit_status import ExitStatus
from toolkit.tables.receipt import Receipt


class Outcome(NamedTuple):
    """The outcome of a run. `rows` is the number of rows that the snapshot has now.

    `shown` is called after the outcome was printed, if it is given.
    """

    verdict: str
    receipt: Receipt
    rows: int
    status: ExitStatus
    shown: Callable[[], object] | None = None
