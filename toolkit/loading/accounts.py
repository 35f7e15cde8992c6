"""Whose data a load reads: the account that a token belongs to, as far as it can be told.

All accounts of a region share one address, and the API names none of them. The token is the only difference,
so a snapshot keeps a keyed hash of it. The key is the user's masking key, which no snapshot contains: without
it, nobody can test a guess of the token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from toolkit.client.failures import Kind, get_entry
from toolkit.client.transport import Transport
from toolkit.errors import NotFoundError
from toolkit.settings.service import Service

_TOKEN: Final = "token of a snapshot's account"  # noqa: S105 - the purpose of a hash
_KEY: Final = "key of a snapshot's account"


@dataclass(frozen=True, kw_only=True)
class Account:
    """The account of a load.

    Attributes
    ----------
    key : str
        Which masking key the tag was made with: another user, or a fresh home folder, has another.
    tag : str
        Keyed hash of the token. Tags of different keys cannot be compared.
    has_entry : callable
        Whether the account has an entry of this id: one request.
    """

    key: str
    tag: str
    has_entry: Callable[[str], bool]


def account_of(service: Service, kind: Kind) -> Account | None:
    """The account of the queue's token."""
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
