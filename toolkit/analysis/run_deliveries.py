"""The deliveries of one run: from the events of its messages, each with its attempts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pandas as pd

from toolkit.analysis.selection import select
from toolkit.analysis.sources import AnyFrame
from toolkit.arguments import nearest, text
from toolkit.errors import InputError

_DOING: Final = "reading the deliveries of a run"
_ENDS: Final = {
    "DELIVERED": "delivered",
    "FAILED": "failed",
    "CANCELED": "cancelled",
    "CANCELLED": "cancelled",
}
_ATTEMPTS: Final = ("ACTIVE", "ERROR", "DELIVERED", "FAILED")


@dataclass(frozen=True, eq=False, kw_only=True)
class RunDeliveries:
    """The deliveries of one run.

    `frame` has one row a message, in order: `message_id`, `name`, `start` and `end` (seconds since the first
    event), `outcome` (delivered, failed, cancelled, pending) and `retries`. `tried` has the position of the
    row and the second of each attempt that was followed by another.
    """

    run_id: str
    begin: datetime | None
    frame: pd.DataFrame
    tried: list[tuple[int, float]]


def run_deliveries(
    events: AnyFrame, steps: AnyFrame | None = None, run_id: str | None = None
) -> RunDeliveries:
    """The deliveries of the one run of the events, or of the run of this id; `steps` name them."""
    names = ["time", "message_id", "state", "workflow_run_id"]
    rows = select(events, names, doing=_DOING, name="events").table().to_pandas()
    rows["time"] = pd.to_datetime(rows["time"], utc=True)
    rows = rows.dropna(subset=["time", "message_id", "workflow_run_id"])
    runs = sorted(rows["workflow_run_id"].unique())
    wanted = run_id if run_id is None else text("run_id", run_id)
    if (wanted is not None and wanted not in runs) or (wanted is None and len(runs) > 1):
        raise InputError(
            "reading run_id",
            got=f"{wanted!r}"[:80] if wanted is not None else f"none, and events of {len(runs):,} runs",
            expected="the id of a run of these events",
            next_step=nearest(wanted or "", runs, what="They are of"),
        )
    rows = rows[rows["workflow_run_id"] == (wanted or (runs[0] if runs else ""))].sort_values(
        "time", kind="stable"
    )
    named = _names(steps)
    begin, latest = rows["time"].min(), rows["time"].max()
    found, tried = [], []
    for position, (message, mine) in enumerate(rows.groupby("message_id", sort=False)):
        seconds = (mine["time"] - begin).dt.total_seconds()
        ended = mine["state"].map(_ENDS)
        last = ended.last_valid_index()
        end = (latest - begin).total_seconds() if last is None else seconds[last]
        again = _repeated(seconds, mine["state"])
        tried += [(position, second) for second in again]
        outcome = "pending" if last is None else ended[last]
        name = named.get(message, message)
        if outcome == "failed" and name.endswith(" →"):
            name += " (failed)"
        found.append((message, name, seconds.min(), end, outcome, len(again)))
    columns = ["message_id", "name", "start", "end", "outcome", "retries"]
    frame = pd.DataFrame(found, columns=columns)
    return RunDeliveries(
        run_id=wanted or (runs[0] if runs else ""),
        begin=begin.to_pydatetime() if len(rows) else None,
        frame=frame,
        tried=tried,
    )


def _repeated(seconds: pd.Series, states: pd.Series) -> list[float]:
    """When attempts failed that were repeated: RETRY says so, else an ERROR before others."""
    retries: list[float] = seconds[states == "RETRY"].tolist()
    latest = seconds[states.isin(_ATTEMPTS)].max()
    return retries or seconds[(states == "ERROR") & (seconds < latest)].tolist()


def _names(steps: AnyFrame | None) -> dict[str, str]:
    """From each message to the step that it brought, and the one that was run by its delivery."""
    if steps is None:
        return {}
    names = ["message_id", "step_name", "workflow_run_id", "position"]
    rows = select(steps, names, doing=_DOING, name="steps").table().to_pandas().dropna(subset="message_id")
    rows = rows.sort_values(["workflow_run_id", "position"], kind="stable")
    rows["step_name"] = rows["step_name"].fillna("(no name)")
    after = rows.groupby("workflow_run_id", dropna=False)["step_name"].shift(-1).fillna("")
    said = rows["step_name"] + " → " + after
    return dict(zip(rows["message_id"], said.str.strip(), strict=True))
