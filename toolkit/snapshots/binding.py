"""Binding a snapshot to the account whose token reads the queue.

All accounts of a region share one address, so the manifest keeps a keyed hash of the token. If the hash is of
the same token, the account is the same. Otherwise only the entries can tell: ids of the DLQ are unique, so
stored entries that are in the queue again show that it is the same queue.

| hash of the token | entries | result |
|---|---|---|
| the same | any | accepted |
| another token, same key | enough stored entries are in the queue | accepted, with a note: it was rotated |
| another token, same key | too few, or nothing to compare | refused |
| of another key, or none stored | enough stored entries, or none was left | accepted and bound |
| of another key, or none stored | all are gone and others are there | refused |
| of another key, or none stored | all are gone, and the queue is empty | accepted, not bound, with a note |

Another key is that of another user, or of a home folder that did not exist before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from toolkit.errors import SnapshotBindingError
from toolkit.loading.accounts import Account

ROTATED: Final = "the token is not the one of the last sync"
REBOUND: Final = "the snapshot was bound to this token with rebind=True"
UNBOUND: Final = "the account is not known: no stored entry is in the queue any more, and no other"

_SAME_SHARE: Final = 0.1
"""Share of the smaller of both sets (stored, in the queue) that shows the same queue. Ids contain a time in
milliseconds, so two queues of 10,000 entries a week share fewer than one by chance; two hourly syncs of one
queue share almost all, and most share more than a tenth after days."""

_MOST_KEYS: Final = 10
"""Masking keys of which tags are kept: users and machines that take turns, without those of fresh homes."""

_Hash = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{32}\Z")]


class AccountTag(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keyed hash of a token, and which key that was."""

    key: _Hash
    tag: _Hash


@dataclass(frozen=True, kw_only=True)
class SeenEntries:
    """How many entries a load read, and how they compare with the stored ones.

    `retained` were in the queue at the last sync, and `again` of these are there now.
    """

    loaded: int
    retained: int
    again: int

    @property
    def show_same_queue(self) -> bool:
        """Whether so many stored entries are in the queue that it is the same one."""
        return self.again > 0 and self.again >= _SAME_SHARE * min(self.loaded, max(self.retained, 1))


def tag_of(account: Account | None) -> AccountTag | None:
    """How a manifest or checkpoint stores an account."""
    return None if account is None else AccountTag(key=account.key, tag=account.tag)


def bound_accounts(
    stored: tuple[AccountTag, ...],
    account: Account | None,
    seen: SeenEntries,
    *,
    first: bool,
    rebind: bool,
    snapshot: str,
) -> tuple[tuple[AccountTag, ...], str]:
    """Return the tags to store, and a note for the receipt ("" if there is nothing to note).

    Raise `SnapshotBindingError` if the load is of another account, or may be. `first` is the first sync into
    the snapshot.
    """
    mine = tag_of(account)
    if mine is None or mine in stored:
        return stored, ""
    others = [tag for tag in stored if tag.key != mine.key]
    rotated = len(others) < len(stored)
    added = (*others[1 - _MOST_KEYS :], mine)
    if first or seen.show_same_queue:
        return added, _note_of(seen) if rotated else ""
    if rebind:
        return (mine,), REBOUND
    nothing_vanished = not seen.retained
    if rotated or (seen.loaded and not nothing_vanished):
        raise _refusal(seen, snapshot=snapshot, rotated=rotated)
    if nothing_vanished:
        return added, ""
    return stored, UNBOUND


def may_be_other(stored: AccountTag | None, account: Account | None) -> bool:
    """Whether a checkpoint may be of another account than the load that would resume it."""
    return account is not None and stored != tag_of(account)


def any_is_there(account: Account, dlq_ids: Iterable[str]) -> bool:
    """Whether the account has one of these entries."""
    return any(map(account.has_entry, dlq_ids))


def _note_of(seen: SeenEntries) -> str:
    return f"{ROTATED}; accepted, as {seen.again:,} of {seen.retained:,} stored entries are in the queue"


def _refusal(seen: SeenEntries, *, snapshot: str, rotated: bool) -> SnapshotBindingError:
    token = "another token than that of the last sync" if rotated else "a token not known to the snapshot"
    return SnapshotBindingError(
        f"syncing the snapshot {snapshot}",
        got=f"{token}, and {seen.loaded:,} entries, of which {seen.again:,} are stored",
        expected=f"the account of the {seen.retained:,} entries that were in the queue at the last sync",
        next_step="Nothing was written. Set the token of that account, or use another folder. If it is the "
        "same account, for example because the token was rotated and all entries have left the queue, sync "
        "once with rebind=True (--rebind). If the home folder is new at each run, keep XDG_CONFIG_HOME or "
        "set TOOLKIT_MASKING_KEY_FILE.",
    )
