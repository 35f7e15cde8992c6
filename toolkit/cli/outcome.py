"""What a run of ``toolkit snapshot`` did."""

from __future__ import annotations

from typing import NamedTuple

from toolkit.cli.exit_status import ExitStatus
from toolkit.receipt import Receipt


class Outcome(NamedTuple):
    """What a run did: `rows` are those of the snapshot now."""

    verdict: str
    receipt: Receipt
    rows: int
    status: ExitStatus
