"""Filters of the logs: which events of messages, and which workflow runs, are loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import partial
from typing import ClassVar

from toolkit.base import arguments

Texts = str | Iterable[str]


@dataclass(frozen=True)
class _LogQuery:
    """Checks the fields once, when the filter is made: each becomes a tuple of strings."""

    states: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        for field in fields(self):
            values = arguments.texts(field.name, getattr(self, field.name))
            check = partial(arguments.unmasked, field.name)
            if field.name == "state":
                check = partial(arguments.choice, "state", allowed=self.states)
            object.__setattr__(self, field.name, tuple(map(check, values)))

    def parameters(self) -> dict[str, list[str]]:
        """Return the values of each request parameter. For example, `message_id` becomes ``messageId``."""
        found = {
            _camel_case(field.name): list(getattr(self, field.name))
            for field in fields(self)
        }
        if len(found.get("messageId", ())) > 1:
            # the service has a parameter of its own for several messages
            found["messageIds"] = found.pop("messageId")

        return found


@dataclass(frozen=True)
class EventFilter(_LogQuery):
    """Select events of messages to load: all fields that are set must match, each by any of the given values.

    Parameters
    ----------
    state : str or iterable of str
        One or more of CREATED, ACTIVE, RETRY, ERROR, IN_PROGRESS, DELIVERED, FAILED, CANCEL_REQUESTED and
        CANCELED (CANCELLED in the documentation of the service).
    message_id, url, label, topic_name, schedule_id, queue_name, flow_control_key : str or iterable of str
        One or more values each. The service compares all filters. `url` is the exact destination.
    workflow_run_id : str or iterable of str
        Runs whose messages (steps and calls) are loaded. If the service does not filter by run, you can load
        the messages by id: ``message_id=explode_steps(runs)["message_id"]``.

    Raises
    ------
    InputError
        If a value is empty or not a string, or if a state is unknown.

    Examples
    --------
    >>> EventFilter(state=["RETRY", "FAILED"], label="billing").state
    ('RETRY', 'FAILED')
    """

    states = (
        "CREATED", "ACTIVE", "RETRY", "ERROR", "IN_PROGRESS", "DELIVERED", "FAILED", "CANCEL_REQUESTED",
        "CANCELED", "CANCELLED",
    )  # fmt: skip
    state: Texts = ()
    message_id: Texts = ()
    workflow_run_id: Texts = ()
    url: Texts = ()
    label: Texts = ()
    topic_name: Texts = ()
    schedule_id: Texts = ()
    queue_name: Texts = ()
    flow_control_key: Texts = ()


@dataclass(frozen=True)
class RunFilter(_LogQuery):
    """Select workflow runs to load: all fields that are set must match, each by any of the given values.

    Parameters
    ----------
    state : str or iterable of str
        One or more of RUN_STARTED, RUN_SUCCESS, RUN_FAILED and RUN_CANCELED.
    workflow_url, workflow_run_id, label, flow_control_key, caller_ip : str or iterable of str
        One or more values each. The service compares all filters.

    Raises
    ------
    InputError
        If a value is empty or not a string, or if a state is unknown.

    Examples
    --------
    >>> RunFilter(state="RUN_FAILED").state
    ('RUN_FAILED',)
    """

    states = ("RUN_STARTED", "RUN_SUCCESS", "RUN_FAILED", "RUN_CANCELED")
    state: Texts = ()
    workflow_url: Texts = ()
    workflow_run_id: Texts = ()
    label: Texts = ()
    flow_control_key: Texts = ()
    caller_ip: Texts = ()


def _camel_case(argument: str) -> str:
    first, *others = argument.split("_")
    return first + "".join(map(str.title, others))
