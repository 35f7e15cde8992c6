"""Syncing a DLQ in which nothing has changed, and opening a snapshot after a year of daily syncs.

Each sync looks at every listed file before it trusts the rows that are stored. What this costs after a year,
when there is a file a day, is measured as a part of a sync.

.venv/bin/python tests/benchmarks/bench_snapshots.py [--entries 50000] [--rounds 5] [--quick]
"""

from __future__ import annotations

import json
import tempfile
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from listings import DAY, END, TOKEN, listing
from measuring import against, in_turns, options
from replay import Listing, Parts, Respond, replaying

import toolkit as tk
from toolkit.loading.failures import open_failures
from toolkit.loading.options import LoadOptions
from toolkit.snapshots.manifest import read_manifest
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load
from toolkit.snapshots.transaction import damages
from toolkit_service.demo.history import wire_entries

SYNCS = 365
A_DAY = 40
KEPT = 7


@dataclass(frozen=True)
class Year:
    """A DLQ that gets so many entries a day and keeps each for a week; ``/day?n=`` moves its clock."""

    days: int

    def responding(self) -> Respond:
        """The function that makes the body of a response."""
        sample = wire_entries(END)
        entries = [
            [
                json.dumps(
                    {
                        **sample[number % len(sample)],
                        "dlqId": f"dlq_{day:03d}_{number:03d}",
                        "createdAt": END + day * DAY + number * 1000,
                    }
                ).encode()
                for number in range(A_DAY)
            ]
            for day in range(self.days)
        ]
        today = [self._listed(entries, 0).responding()]

        def respond(path: str, query: dict[str, str], body: bytes) -> Parts:
            if path == "/day":
                today[0] = self._listed(entries, int(query["n"])).responding()
                return (b"{}",)
            return today[0](path, query, body)

        return respond

    def _listed(self, entries: list[list[bytes]], day: int) -> Listing:
        kept = [
            (END + earlier * DAY + number * 1000, entry)
            for earlier in range(max(0, day - KEPT + 1), day + 1)
            for number, entry in enumerate(entries[earlier])
        ]
        return Listing(
            [timestamp for timestamp, _ in reversed(kept)],
            [entry for _, entry in reversed(kept)],
        )


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__, entries=50_000, quick=10_000)
    print(
        f"sync_failures, nothing changed: {chosen.entries:,} entries, {chosen.rounds} rounds"
    )
    with (
        replaying(listing(chosen.entries)) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        service = tk.connect(queue_url=server.url, queue_token=TOKEN)
        tk.sync_failures(service, f"{folder}/dlq", progress=False)

        def sync() -> int:
            changes = tk.sync_failures(service, f"{folder}/dlq", progress=False)
            if any(changes.counts.values()):
                raise SystemExit(f"something has changed: {changes}")
            return changes.receipt.rows

        medians = in_turns(
            {
                "load_failures": lambda: len(tk.load_failures(service, progress=False)),
                "sync_failures": sync,
            },
            chosen.rounds,
            chosen.entries,
        )
    against(
        "sync_failures / load_failures",
        medians["sync_failures"] / medians["load_failures"],
        at_most=1.2,
    )
    year(30 if chosen.quick else SYNCS, chosen.rounds)


def looked_at(path: str) -> int:
    """Rows of the files that a sync sees to be there."""
    store = SnapshotStore(path)
    manifest = read_manifest(store)
    if manifest is None or damages(store, manifest):
        raise SystemExit("the snapshot is not whole")
    return manifest.rows


def year(days: int, rounds: int) -> None:
    """Sync once for each day, then open and count."""
    with replaying(Year(days)) as server, tempfile.TemporaryDirectory() as folder:
        service = tk.connect(queue_url=server.url, queue_token=TOKEN)
        path = f"{folder}/dlq"
        for day in range(days):
            with urllib.request.urlopen(f"{server.url}/day?n={day}", timeout=30):  # noqa: S310 - our own address
                pass
            now = datetime.fromtimestamp((END + day * DAY) / 1000, UTC)
            # by the clock of that day, so that there is a file for each
            sync_load(
                open_failures(service, options=LoadOptions(progress=False)),
                SnapshotStore(path),
                clock=lambda now=now: now,
            )
        files = [file for file in Path(path).rglob("*") if file.is_file()]
        print(
            f"after {days} syncs of {A_DAY} new entries each: {len(files)} files, {rounds} rounds"
        )
        medians = in_turns(
            {
                "open_snapshot and count": lambda: (
                    tk.open_snapshot(path).to_arrow().count_rows()
                ),
                "read_snapshot": lambda: len(tk.read_snapshot(path)),
                "sync_failures": lambda: (
                    tk.sync_failures(service, path, progress=False).rows
                ),
                "looking at the files": lambda: looked_at(path),
            },
            rounds,
            days * A_DAY,
        )
    looking = medians["looking at the files"] / medians["sync_failures"]
    against("looking at the files / sync_failures", looking, at_most=0.1)
    against(
        "opening and counting, seconds", medians["open_snapshot and count"], at_most=1
    )


if __name__ == "__main__":
    main()
