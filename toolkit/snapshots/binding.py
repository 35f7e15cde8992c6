"""Bind a snapshot to the account whose token reads the queue.

All accounts of a region share one address, so the manifest keeps a keyed hash of the token. If the hash is of
the same token, the account is the same. Otherwise only the entries can tell: ids of the DLQ are unique, so
stored entries that are in the queue again show that it is the same queue.

| hash of the token | entries | result |
|---|---|---|
| the same | any | accepted |
| another token, same key | enough stored entries are in the queue | accepted, with a note: it was rotated |
| another token, same key | too few, or nothing to compare | refused |
| of another key, or none stored | enough stored entries, or none was left | accepted and bound |
| of another key, or none stored | all are gone and others are in the queue | refused |
| of another key, or none stored | all are gone, and the queue is empty | accepted, not bound, with a note |

For example, another user has another key, as does a new home folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from toolkit.base.errors import SnapshotBindingError

if TYPE_CHECKING:
    # it imports requests, which adds filters of warnings
    from toolkit.loading.accounts import Account

ROTATED: Final = "the token is not the one of the last sync"
REBOUND: Final = "the snapshot was bound to this token with rebind=True"
UNBOUND: Final = (
    "the account is not known: no stored entry is in the queue any more, and no other"
)

_SAME_SHARE: Final = 0.1
"""Share of the smaller of both sets (stored, in the queue) that shows the same queue. Ids contain a time in
milliseconds, so two queues of 10,000 entries a week share fewer than one by chance; two hourly syncs of one
queue share almost all, and most share more than a tenth after days."""

_MOST_KEYS: Final = 10
"""Masking keys whose tags are kept, for users and machines that take turns. A machine that makes a new home
folder for each run would otherwise add a key at each run."""

_Hash = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{32}\Z")]


class AccountTag(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keyed hash of a token, and a hash that identifies the key."""

    key: _Hash
    tag: _Hash


@dataclass(frozen=True, kw_only=True)
class SeenEntries:
    """Counts of the entries that a load read, compared with the stored ones.

    `retained` entries were in the queue at the last sync; `again` of them are still in the queue.
    """

    loaded: int
    retained: int
    again: int

    @property
    def show_same_queue(self) -> bool:
        """Return whether enough stored entries are in the queue to show that it is the same one."""
        return self.again > 0 and self.again >= _SAME_SHARE * min(
            self.loaded, max(self.retained, 1)
        )


def tag_of(account: Account | None) -> AccountTag | None:
    """Return the form of an account that manifests and checkpoints store."""
    if account is None:
        return None
    return AccountTag(key=account.key, tag=account.tag)


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

    Raise `SnapshotBindingError` if the load is of another account, or may be. `first` is True for the first
    sync into the snapshot. The cases are the lines of the table above.
    """
    mine = tag_of(account)
    if mine is None or mine in stored:
        return stored, ""

    others = [tag for tag in stored if tag.key != mine.key]
    rotated = len(others) < len(stored)
    added = (*others[1 - _MOST_KEYS :], mine)

    if first or seen.show_same_queue:
        note = ""
        if rotated:
            note = _note_of(seen)
        return added, note

    if rebind:
        return (mine,), REBOUND

    nothing_vanished = not seen.retained
    if rotated or (seen.loaded and not nothing_vanished):
        raise _refusal(seen, snapshot=snapshot, rotated=rotated)
    if nothing_vanished:
        return added, ""

    return stored, UNBOUND


def may_be_other(stored: AccountTag | None, account: Account | None) -> bool:
    """Return whether a checkpoint may be of another account than the load that would resume from it."""
    return account is not None and stored != tag_of(account)


def any_is_there(account: Account, dlq_ids: Iterable[str]) -> bool:
    """Return whether the account has one of these entries."""
    return any(map(account.has_entry, dlq_ids))


def _note_of(seen: SeenEntries) -> str:
    return f"{ROTATED}; accepted, as {seen.again:,} of {seen.retained:,} stored entries are in the queue"


def _refusal(
    seen: SeenEntries, *, snapshot: str, rotated: bool
) -> SnapshotBindingError:
    reader = "a token that the snapshot does not know"
    if rotated:
        reader = "another token than at the last sync"
    return SnapshotBindingError(
        f"syncing the snapshot {snapshot}",
        got=f"{reader}, and {seen.loaded:,} entries; {seen.again:,} of them are stored",
        expected=f"the account of the {seen.retained:,} entries that were in the queue at the last sync",
        next_step="Nothing was written. Set the token of that account, or use another folder. If it is the "
        "same account, for example because the token was rotated and all entries have left the queue, sync "
        "once with rebind=True (--rebind). If the home folder is new at each run, keep XDG_CONFIG_HOME or "
        "set TOOLKIT_MASKING_KEY_FILE.",
    )
