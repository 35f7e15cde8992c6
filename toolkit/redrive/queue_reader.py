"""Read from the service the facts that a redrive decides by: an entry, a run, a group and the last error."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from toolkit.base.errors import NotFoundError, ServiceError
from toolkit.drawing.wording import shorten
from toolkit.failures.group_rules import GroupRules
from toolkit.failures.grouping import group_failures
from toolkit.redrive.plan import UNCHANGED
from toolkit.secrets.redaction import Redactor
from toolkit.service.failures import get_entry, list_log_page
from toolkit.service.transport import Transport
from toolkit.signatures.headlines import error_text
from toolkit.tables.failures import FailureDecoder
from toolkit.tables.frames import to_frame

_EVENTS: Final = 20  # per run, read to find the last error
_LONGEST_ERROR: Final = 200  # characters


class QueueReader:
    """Reads entries and runs of one queue; groups have the rules of one plan."""

    def __init__(
        self, transport: Transport, redactor: Redactor, rules: GroupRules
    ) -> None:
        self._transport = transport
        self._redactor = redactor
        self._rules = rules

    def entry(self, dlq_id: str) -> dict[str, Any]:
        """Return an entry as the service has it now. Raises `NotFoundError` if it has left the DLQ."""
        columns = [*UNCHANGED, "failure_callback"]
        row: dict[str, Any] = self._decoded(dlq_id).select(columns).to_pylist()[0]
        return row

    def group(self, dlq_id: str) -> str | None:
        """Return the group of an entry by the rules of the plan; None if it has left the DLQ."""
        with suppress(NotFoundError):
            failure = to_frame(self._decoded(dlq_id))
            groups = group_failures(failure, rules=self._rules).frame["group"]
            return str(groups.iloc[0])

        return None

    def run(self, run_id: str | None) -> dict[str, Any] | None:
        """Return a run as the log shows it; None if it is not known."""
        if not run_id:
            return None

        filters = (("workflowRunId", run_id),)
        page = list_log_page(self._transport, cursor=None, count=1, filters=filters)
        runs = msgspec.json.decode(page.rows, type=list[dict[str, Any]])

        # a service may ignore a filter that it does not know
        return next((run for run in runs if run.get("workflowRunId") == run_id), None)

    def last_error(self, run_id: str | None) -> str:
        """Return the error of the last delivery of a run, masked; empty if none is known."""
        filters = (("workflowRunId", str(run_id)), ("state", "ERROR"))
        try:
            page = list_log_page(
                self._transport, "events", cursor=None, count=_EVENTS, filters=filters
            )
            events = msgspec.json.decode(page.rows, type=list[dict[str, Any]])
        except (ServiceError, msgspec.DecodeError):
            # the log only explains: a run does not depend on it
            return ""

        errors = [
            event
            for event in events
            if event.get("workflowRunId") == run_id and event.get("error")
        ]
        latest = max(errors, key=_time_of, default=None)
        if latest is None:
            return ""

        # The log has the body of the response, for example a page in HTML. People read the error in it.
        masked = self._redactor.text(str(latest["error"]))
        return shorten(error_text(masked).text, _LONGEST_ERROR)

    def _decoded(self, dlq_id: str) -> Any:
        """Return an entry as a table of one row."""
        array = b"[" + get_entry(self._transport, dlq_id) + b"]"
        return FailureDecoder(self._redactor).decode(array)


def _time_of(event: Mapping[str, Any]) -> Any:
    return event.get("time") or 0
