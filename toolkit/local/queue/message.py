"""What a message is: everything its publish asked for, as it rests in the database."""

from __future__ import annotations

import secrets
from typing import Final, Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["message", "step", "call", "wait", "callback", "failure_callback"]
"""What a message is for.

``message``: a plain publish. ``step``: calls a workflow endpoint with the run's history. ``call``: a
workflow's message to a third party. ``wait``: becomes a step when its event comes, or in vain when it is due.
``callback`` and ``failure_callback``: report on another message.
"""

DEFAULT_RETRIES: Final = 3
DEFAULT_TIMEOUT_MS: Final = 15 * 60 * 1000


class Flow(msgspec.Struct, frozen=True, omit_defaults=True):
    """Flow control of a key: how many at once, and how many a period. None means no limit."""

    parallelism: int | None = None
    rate: int | None = None
    period_ms: int = 1000


class Workflow(msgspec.Struct, frozen=True, omit_defaults=True):
    """The workflow run a message belongs to."""

    run_id: str
    url: str = ""
    init: bool = False
    invoke: bool = False
    call_type: str = ""
    features: tuple[str, ...] = ()


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a message, its callback or its failure callback is delivered. None means not said."""

    url: str
    method: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    timeout_ms: int | None = None
    retries: int | None = None
    retry_delay: str | None = None
    delay_ms: int | None = None
    not_before: int | None = None
    labels: tuple[str, ...] = ()
    flow_key: str | None = None
    flow: Flow | None = None
    workflow: Workflow | None = None


class Waiting(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run waits for, and what its endpoint said about it; `timeout_headers` are only shown."""

    event_id: str
    timeout_url: str = ""
    timeout_body: str = ""
    timeout_headers: dict[str, list[str]] = {}


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message.

    `about` is the DLQ entry a failure callback reports on, `step` the place in its run's history.
    """

    id: str
    kind: Kind
    prefix: str
    settings: Settings
    created_at: int
    not_before: int
    body: bytes = b""
    caller_ip: str = ""
    callback: Settings | None = None
    failure_callback: Settings | None = None
    redact: tuple[str, ...] = ()
    step: int | None = None
    about: str | None = None
    waiting: Waiting | None = None

    @property
    def method(self) -> str:
        """HTTP method of the delivery."""
        return self.settings.method or "POST"

    @property
    def max_retries(self) -> int:
        """How often delivery is tried again."""
        return DEFAULT_RETRIES if self.settings.retries is None else self.settings.retries

    @property
    def run_id(self) -> str | None:
        """The workflow run this belongs to."""
        return self.settings.workflow.run_id if self.settings.workflow else None

    def encode(self) -> bytes:
        """The form in which it rests in the database."""
        return msgspec.msgpack.encode(self)


def decode_message(stored: bytes) -> Message:
    """The message of its stored form."""
    return msgspec.msgpack.decode(stored, type=Message)


def new_id(kind: str) -> str:
    """A fresh id: ``msg_…``, ``wfr_…``.

    >>> len(new_id("msg"))
    26
    """
    return f"{kind}_{secrets.token_hex(11)}"
