"""Follow a dead letter queue: sync a snapshot again and again, and report groups that are new or worse.

Each look is a sync, which lists everything that the queue contains. So if the service or this process
restarts, the next look has every entry that is still in the queue. Between two looks only counts are kept in
memory. The file ``_watched.json`` of the snapshot lists the notices, so that none is sent twice, even after a
restart. A notice that certainly did not arrive is sent again with the next look.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Final
from weakref import finalize

import msgspec
import pandas as pd
import pyarrow as pa

from toolkit.base.errors import SnapshotLockedError, ToolkitError
from toolkit.base.private_files import changing
from toolkit.drawing.wording import counted
from toolkit.failures.group_counts import GroupCount, hour_of, hours_of
from toolkit.failures.group_states import GroupState
from toolkit.failures.grouping import group_failures
from toolkit.failures.notices import Sender
from toolkit.failures.selection import select_timed
from toolkit.secrets.redaction import visible
from toolkit.service.settings import Service
from toolkit.snapshots import Changes, open_snapshot, sync_failures
from toolkit.snapshots.manifest import WATCHED, read_manifest
from toolkit.snapshots.object_store import open_store
from toolkit.tables.receipt import Receipt
from toolkit.tables.schemas import FIRST_SEEN_AT
from toolkit.tables.signed_rows import SIGNATURE

_DOING: Final = "watching failures"
_NOTICED: Final = ("new", "back again", "growing")
_NAMED: Final = 5  # groups that a notice names
_MOST_ROWS: Final = 200  # groups that are shown
# A job that looks once per day may miss a day. If an error is back again, it was away for three days.
_FORGOTTEN_AFTER: Final = 48


class Noticed(msgspec.Struct):
    """The states that notices have reported. Hours are hours since 1970."""

    groups: dict[str, dict[str, int] | list[str]] = {}
    """By group: the reported states, each with the hour when a look last saw it. Format 1 has no hours."""
    synced: str = ""
    """When the sync of the last look began; empty before the first look."""
    format: int = 2
    unsent: dict[str, str] = {}
    """The groups of a notice that certainly did not arrive, with their states. The next look sends them."""
    unshown: dict[str, str] = {}
    """The groups that a look has found, until its result was shown. The next look shows those that remain."""

    def has(self, group: str, state: str) -> bool:
        """Return whether a state of a group was reported."""
        return state in self.groups.get(group, ())

    def see(self, group: str, state: str, now: int) -> None:
        """Store that a look saw a group in a state that is reported."""
        seen = self.groups.setdefault(group, {})
        if isinstance(seen, dict):
            seen[state] = now

    def join(self, joined: Mapping[str, str]) -> None:
        """Move the states of groups that became part of another group to it."""
        for group, other in joined.items():
            states = self.groups.pop(group, {})
            if isinstance(states, dict):
                for state, hour in states.items():
                    self.see(other, state, hour)

        for listed in (self.unsent, self.unshown):
            for group in joined.keys() & listed.keys():
                listed.setdefault(joined[group], listed.pop(group))

    def forget(self, now: int) -> None:
        """Remove the states that no look of the last two days saw, so that they are reported again."""
        kept: dict[str, dict[str, int] | list[str]] = {}
        for group, states in self.groups.items():
            if not isinstance(states, dict):
                continue
            recent = {
                state: hour
                for state, hour in states.items()
                if now - hour < _FORGOTTEN_AFTER
            }
            if recent:
                kept[group] = recent

        self.groups = kept


# created here: the first inspection of a struct is not thread-safe
_NOTICES: Final = msgspec.json.Decoder(Noticed)


@dataclass(frozen=True)
class Look:
    """The result of one look at the queue."""

    added: int
    rows: int
    receipt: Receipt
    new: tuple[str, ...]
    worse: tuple[str, ...]
    problem: str
    unsent: str = ""
    """Why no notice about these groups was sent, if one was due."""

    @property
    def summary(self) -> str:
        """Return the counts in a few words."""
        parts = [f"{counted(self.added, 'new failure')}, {counted(self.rows, 'row')}"]
        if self.new:
            parts.append(f"{counted(len(self.new), 'new group')}")
        if self.worse:
            parts.append(f"{counted(len(self.worse), 'group')} worse")
        if self.problem:
            parts.append(self.problem)
        return "; ".join(parts)


class Watch:
    """A snapshot that is synced again and again, with the counts of the groups."""

    def __init__(
        self,
        service: Service,
        path: str | os.PathLike[str] | None,
        *,
        send: Sender | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._service, self._send, self._clock = service, send, clock
        self._redactor = service.redactor
        if path is None:
            path = mkdtemp(prefix="toolkit-watch-")
            # at the end of the process, too
            finalize(self, rmtree, path, ignore_errors=True)

        self.path = str(path)
        open_store(path, None)  # raises if it is no path
        self._groups: dict[str, GroupCount] = {}
        self._marked: dict[str, None] = {}
        self._noticed: Noticed | None = None
        self._generation = 0  # of the snapshot whose rows are counted
        self._stored = b""
        self._repair = ""

    def look(self) -> Look:
        """Sync once, count the new failures, and send a notice about groups that are new or worse."""
        with self.looking() as found:
            return found

    @contextmanager
    def looking(self) -> Iterator[Look]:
        """Look once, as `look` does. At the end of the block, the notes show that the result was reported.

        If the process is killed before, the next look reports the groups again. Another watch of the folder
        waits until the end of the block.
        """
        changes = sync_failures(self._service, self.path, progress=False)
        with self._notes_locked():
            yield self._found(changes)

            if self._noticed is not None and self._noticed.unshown:
                self._noticed.unshown = {}
                self._write(self._noticed)

    def _found(self, changes: Changes) -> Look:
        """Count the failures of a sync, and send a notice about groups that are new or worse."""
        added = changes.added
        now = hour_of(self._clock())
        generation, renamed = self._present()

        if self._noticed is None:
            noticed = self._begin(now, renamed)
        else:
            noticed = self._noticed
            if changes.joined or generation != self._generation + 1:
                # other syncs of the snapshot, for example of a job, have rows that are not in `added`
                self._count_all()
            elif len(added):
                self._add(added)
        self._generation = generation

        # all ids that ever changed: another sync may have joined groups, or a watch ended before its notes
        self._marked = dict.fromkeys(
            renamed.get(group, group) for group in self._marked
        )
        for group in self._groups.values():
            group.forget(now)
        noticed.join(renamed)
        found = self._to_notice(noticed, now)
        self._marked |= dict.fromkeys(found)
        changed = self._changed_by_others()
        if changed is not None:
            # another watch has reported groups meanwhile, which are new for the reader of this one
            noticed = changed
            noticed.join(renamed)
            found = self._to_notice(noticed, now)
        self._noticed = noticed
        noticed.synced = changes.receipt.started_at
        # Arrow keeps freed memory for the next look, which in a night of looks becomes fragmented
        pa.default_memory_pool().release_unused()
        return self._reported(noticed, found, changes)

    def _reported(
        self, noticed: Noticed, found: Mapping[str, str], changes: Changes
    ) -> Look:
        """Send the notice of a look, and return its result."""
        due = dict(found)
        if self._send is not None:
            due = self._known(noticed.unsent) | due
        unshown = self._known(noticed.unshown)
        self._marked |= dict.fromkeys([*unshown, *found])
        unsent = self._notice(noticed, due, unshown)
        forgotten = unshown.keys() - due.keys()
        if forgotten and not unsent:
            unsent = (
                f"an earlier look ended before it had reported {counted(len(forgotten), 'group')}, and its "
                "notice may not have arrived"
            )
        problem = "; ".join(filter(None, [self._repair, unsent]))
        self._repair = ""
        if self._send is None:
            unsent = ""
        reported = unshown | due
        new = tuple(group for group, state in reported.items() if state == "new")
        worse = tuple(group for group in reported if group not in new)

        return Look(
            len(changes.added),
            changes.rows,
            changes.receipt,
            new,
            worse,
            problem,
            unsent,
        )

    def _known(self, states: Mapping[str, str]) -> dict[str, str]:
        """Return the states of groups that the snapshot still has."""
        return {
            group: state for group, state in states.items() if group in self._groups
        }

    def _present(self) -> tuple[int, Mapping[str, str]]:
        """Return the generation of the snapshot, and all earlier ids of groups with the present ones."""
        manifest = read_manifest(open_store(self.path, None))
        if manifest is None:  # somebody has removed the snapshot since the sync
            return 0, {}
        return manifest.generation, manifest.learned.renamed

    def _begin(self, now: int, renamed: Mapping[str, str]) -> Noticed:
        """Count the rows of the snapshot, and return the notices of earlier watches.

        If the notes are damaged, nobody knows which groups were reported. All groups that are new or worse
        are then reported again, because a repeated notice is better than a missing one.
        """
        self._count_all()
        try:
            noticed = self._read()
        except (OSError, ValueError, ToolkitError) as error:
            self._repair = (
                f"{WATCHED} could not be read ({type(error).__name__}) and was begun again: groups "
                "that are new or worse are reported again"
            )
            return Noticed({})

        if noticed is None:
            return Noticed({})

        if noticed.format == 1:
            self._add_hours(noticed, now, renamed)
        return noticed

    def _add_hours(
        self, noticed: Noticed, now: int, renamed: Mapping[str, str]
    ) -> None:
        """Convert notes of format 1: a reported state that the group still has counts as reported now."""
        reported, noticed.groups, noticed.format = noticed.groups, {}, 2
        present = self._states(now)
        for earlier, states in reported.items():
            group = renamed.get(earlier, earlier)
            if group in present and present[group].state in states:
                noticed.see(group, present[group].state, now)

    def _states(self, now: int) -> dict[str, GroupState]:
        """Return the state of each group."""
        start = min((counts.first for counts in self._groups.values()), default=now)
        return {
            group: counts.state(now, start) for group, counts in self._groups.items()
        }

    def _count_all(self) -> None:
        """Count all rows of the snapshot, which has a signature per row."""
        snapshot = open_snapshot(self.path)
        frame = group_failures(snapshot).frame
        titles = dict(zip(frame["group"], frame["title"], strict=True))

        hours: dict[str, list[int]] = {}
        stored: dict[str, pd.Timestamp] = {}
        columns = [SIGNATURE, FIRST_SEEN_AT]
        for batch in select_timed(snapshot, columns, doing=_DOING).map():
            rows = batch.select([*columns, "when_"]).to_pandas()
            for signature, own in rows.groupby(SIGNATURE):
                group = str(signature)
                hours.setdefault(group, []).extend(hours_of(own["when_"]))
                first_stored = own[FIRST_SEEN_AT].min()
                stored[group] = min(stored.get(group, first_stored), first_stored)

        self._groups = {}
        for group, found in hours.items():
            title = self._shown(titles.get(group, ""))
            counts = GroupCount(title, stored=stored[group])
            counts.add(sorted(found))
            self._groups[group] = counts

    def _add(self, added: pd.DataFrame) -> None:
        """Count new rows. If a group is not known, all rows are counted again, with titles."""
        signatures = added[SIGNATURE].astype("str")
        if not set(signatures) <= set(self._groups):
            self._count_all()
            return

        times = added["failed_at"].fillna(added["created_at"])
        for group, own in times.groupby(signatures):
            self._groups[str(group)].add(hours_of(own))

    def _to_notice(self, noticed: Noticed, now: int) -> dict[str, str]:
        """Return the groups that are new or worse and were not reported as that, with their states."""
        noticed.forget(now)
        last_sync = pd.Timestamp.max.tz_localize("UTC")
        if noticed.synced:
            last_sync = pd.Timestamp(noticed.synced)

        found: dict[str, str] = {}
        for group, present in self._states(now).items():
            counts, state = self._groups[group], present.state
            # such a group has begun and ended since the last look
            if state == "ended" and counts.stored and counts.stored > last_sync:
                state = "new"
            if state not in _NOTICED:
                continue
            if not noticed.has(group, state):
                found[group] = state
            noticed.see(group, state, now)

        return found

    def _notice(
        self, noticed: Noticed, due: dict[str, str], unshown: dict[str, str]
    ) -> str:
        """Store the groups as reported, then send one notice. Return the problem, if there was one.

        They are stored before, so that an error between the two loses a notice rather than sends it twice. If
        they cannot be stored, for example because the disk is full, or if the notice certainly did not
        arrive, the next look sends it.
        """
        noticed.unshown = unshown | due
        if self._send is not None:
            noticed.unsent = {}
        is_stored = self._write(noticed)
        if not due:
            return ""
        if not is_stored:
            if self._send is not None:
                noticed.unsent = due
            return f"no notice was sent, because {WATCHED} could not be written"
        if self._send is None:
            return ""

        failure = self._send(self._notice_text(due))
        if failure is None:
            return ""
        if not failure.is_undelivered:
            return (
                f"{failure.reason}; the notice may have arrived and is not sent again"
            )

        noticed.unsent = due
        self._write(noticed)
        return f"{failure.reason}; the next look sends the notice again"

    def _notice_text(self, found: dict[str, str]) -> str:
        lines = [
            f"{state}: {self._groups[group].title} ({self._groups[group].count:,})"
            for group, state in list(found.items())[:_NAMED]
        ]
        if len(found) > _NAMED:
            lines.append(f"and {counted(len(found) - _NAMED, 'more group')}")
        return self._redactor.text("\n".join(lines))

    def board(self) -> list[dict[str, Any]]:
        """Return a row per group for the panel: marked groups first, then by state and size."""
        now = hour_of(self._clock())
        ranked = []
        for group, found in self._states(now).items():
            counts, is_marked = self._groups[group], group in self._marked
            row = {
                "id": group,
                "state": found.state,
                "title": counts.title,
                "count": counts.count,
                "recent": found.recent,
                "bars": counts.bars(now),
                "marked": is_marked,
            }
            ranked.append(((not is_marked, found.rank, -counts.count, group), row))

        ranked.sort(key=itemgetter(0))
        return [row for _, row in ranked[:_MOST_ROWS]]

    def titles(self, groups: Sequence[str]) -> list[str]:
        """Return the state and title of the first of these groups."""
        states = self._states(hour_of(self._clock()))
        return [
            f"{states[group].state}: {self._groups[group].title}"
            for group in groups[:_NAMED]
        ]

    def seen(self) -> None:
        """Remove the marks of groups that the reader has seen."""
        self._marked = {}

    def _shown(self, title: str) -> str:
        return visible(self._redactor.text(title))

    def _read(self) -> Noticed | None:
        """Return the stored notices, or None if the snapshot has none."""
        try:
            content = open_store(self.path, None).content(WATCHED)
        except FileNotFoundError:
            return None

        return _NOTICES.decode(content)

    def _changed_by_others(self) -> Noticed | None:
        """Return the notes if another watch has changed them since this one wrote them, else None."""
        if not self._stored:
            return None
        try:
            content = open_store(self.path, None).content(WATCHED)
            if content == self._stored:
                return None
            noticed = _NOTICES.decode(content)
        except (OSError, ValueError, ToolkitError):
            return None  # the next notes of this watch replace them

        return noticed if noticed.format > 1 else None

    @contextmanager
    def _notes_locked(self) -> Iterator[None]:
        """Keep other watches of the folder from reading the notes. An object store has none."""
        if not open_store(self.path, None).exclusive:
            yield
            return

        with ExitStack() as stack:
            try:
                stack.enter_context(changing(Path(self.path) / WATCHED))
            except TimeoutError:
                raise SnapshotLockedError(
                    _DOING,
                    got=f"{WATCHED} of {self.path}, which another watch has locked",
                    expected="one look at a time",
                    next_step="Wait until the other watch has ended its look.",
                ) from None
            yield

    def _write(self, noticed: Noticed) -> bool:
        """Store the notices if they have changed, and return whether they are stored.

        An object store has no file for notes: a restart there begins anew.
        """
        store = open_store(self.path, None)
        content = msgspec.json.encode(noticed) + b"\n"
        if not store.exclusive or content == self._stored:
            return True

        try:
            store.replace(WATCHED, content)
        except (OSError, ToolkitError):
            return False

        self._stored = content
        return True
