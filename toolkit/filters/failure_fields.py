"""List the fields of a filter of failures: one table for requests, entries, frames, panels and options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

FAILURE_STATES: Final = (
    "CALLBACK_INPROGRESS",
    "CALLBACK_SUCCESS",
    "CALLBACK_FAIL",
    "CALLBACK_CANCELED",
)
"""States of the failure function in the specification. Other states are sent as you give them."""

Comparison = Literal[">=", "<=", "=", "in", "contains"]


@dataclass(frozen=True, kw_only=True)
class FilterField:
    """One field of a `FailureFilter`, with the names that it has in requests, entries, frames and panels.

    `parameter` is the name in a request; it is empty if the service cannot filter by the field. `members` are
    the names in an entry of the service. `columns` are the names in a frame; if omitted, the name of the
    field. `known` are the values that a panel offers, `typed` is the pattern of other values that it accepts.
    A field without `option` is not on the command line.
    """

    name: str
    compare: Comparison
    kind: Literal["text", "time", "status"] = "text"
    parameter: str = ""
    members: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    title: str
    known: tuple[str, ...] = ()
    typed: str = "(?s:.+)"
    option: str = ""
    metavar: str = ""
    help: str = "repeatable"

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", self.columns or (self.name,))

    @property
    def many(self) -> bool:
        """Return True if the field accepts several values."""
        return self.compare in {"in", "contains"}


FIELDS: Final = {
    field.name: field
    for field in (
        FilterField(
            name="since", compare=">=", kind="time", parameter="fromDate", columns=("created_at",),
            title="From", option="--since", metavar="TIME",
            help="a date (2026-01-31, from the start of the day in UTC), ISO 8601 (UTC if it has no offset), "
            "or an age: 7d, '24 hours', 30min",
        ),
        FilterField(
            name="until", compare="<=", kind="time", parameter="toDate", columns=("created_at",),
            title="Until", option="--until", metavar="TIME",
            help="the same; a date means until the end of the day",
        ),
        FilterField(
            name="workflow_url", compare="in", parameter="workflowUrl", members=("workflowUrl",),
            title="Workflow", option="--workflow-url", metavar="URL",
        ),
        FilterField(
            name="label", compare="in", parameter="label", members=("labels", "label"),
            columns=("label", "labels"), title="Label", option="--label", metavar="LABEL",
        ),
        FilterField(
            name="response_status", compare="in", kind="status", members=("responseStatus",),
            title="Status", typed="[1-9][0-9]{2}", option="--status", metavar="STATUS",
            help="HTTP status of the response, for example 500; compared after the download; repeatable",
        ),
        FilterField(
            name="error", compare="contains", members=("responseBody", "responseBodyBase64"),
            columns=("error", "response_body"), title="Error", option="--error", metavar="TEXT",
            help="text in the error line of the response; compared after the download; repeatable",
        ),
        FilterField(
            name="failure_function_state", compare="in", parameter="failureFunctionState",
            members=("failureFunctionState",), title="Failure function's state", known=FAILURE_STATES,
            typed="(?!)", option="--state", metavar="STATE",
        ),
        FilterField(
            name="caller_ip", compare="in", parameter="callerIp", members=("callerIP",),
            title="Caller", option="--caller-ip", metavar="IP",
        ),
        FilterField(
            name="flow_control_key", compare="in", parameter="flowControlKey", members=("flowControlKey",),
            title="Flow-control key", option="--flow-control-key", metavar="KEY",
        ),
        FilterField(
            name="workflow_run_id", compare="=", parameter="workflowRunId", members=("workflowRunId",),
            title="Run id", option="--run-id", metavar="ID", help="id of one workflow run",
        ),
        FilterField(
            name="workflow_created_at", compare="=", kind="time", parameter="workflowCreatedAt",
            members=("workflowCreatedAt",), title="Run created at, exactly",
        ),
    )
}  # fmt: skip
"""The fields of a `FailureFilter`, in the order of panels, for requests, frames, panels and the command line.

To add a filter, add a line here, and an attribute and an argument of `FailureFilter`.
"""
