"""Identify the account whose data a load reads.

All accounts of a region share one address, and the API does not name them. The token is the only difference,
so a snapshot stores a keyed hash of the token. The key is the masking key of the user, and no snapshot
contains it. Without it, nobody can test a guess of the token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from toolkit.base.errors import NotFoundError
from toolkit.service.failures import Kind, get_entry
from toolkit.service.settings import Service
from toolkit.service.transport import Transport

_TOKEN: Final = "token of a snapshot's account"  # noqa: S105 - the purpose of a hash
_KEY: Final = "key of a snapshot's account"


@dataclass(frozen=True, kw_only=True)
class Account:
    """The account of a load.

    Attributes
    ----------
    key : str
        Identifies the masking key of the tag. Another user, or a fresh home folder, has another key.
    tag : str
        Keyed hash of the token. Tags of different keys cannot be compared.
    has_entry : callable
        Return True if the account has an entry with this id. Sends one request.
    """

    key: str
    tag: str
    has_entry: Callable[[str], bool]


def account_of(service: Service, kind: Kind) -> Account | None:
    """Return the account of the token of the queue."""
    if service.queue is None:
        return None

    return Account(
        key=service.redactor.keyed_tag(_KEY),
        tag=service.redactor.keyed_tag(_TOKEN, service.queue.token),
        has_entry=partial(_has_entry, service, kind),
    )


def _has_entry(service: Service, kind: Kind, dlq_id: str) -> bool:
    with Transport.to(service, "queue") as transport:
        try:
            get_entry(transport, dlq_id, kind=kind)
        except NotFoundError:
            return False

    return True
