"""Gaps between syncs: spans of which entries expired before they were read."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolkit as tk
from toolkit.errors import InputError
from toolkit.snapshots.coverage import Coverage, SyncTimes, extended
from toolkit.snapshots.manifest import Manifest, read_manifest
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import Changes, sync_load
from toolkit.tables.receipt import OVERDUE, Gap, Receipt

_NOW = datetime(2026, 3, 20, tzinfo=UTC)
_DAY = timedelta(days=1)


def _days(number: float) -> timedelta:
    return timedelta(days=number)


def _manifest(store: SnapshotStore) -> Manifest:
    manifest = read_manifest(store)
    assert manifest is not None
    return manifest


def _last_complete(path: Path, age: timedelta) -> None:
    """Change the manifest as if the last complete sync had begun so long ago, and the first before it."""
    manifest = json.loads((path / "_manifest.json").read_text())["manifest"]
    last = datetime.now(UTC) - age
    manifest["complete_at"] = last.isoformat(timespec="milliseconds")
    first = datetime.fromisoformat(manifest["coverage"]["since"])
    manifest["coverage"]["since"] = min(first, last).isoformat(timespec="milliseconds")
    body = json.dumps(manifest, separators=(",", ":"))
    digest = hashlib.sha256(body.encode()).hexdigest()
    (path / "_manifest.json").write_text(f'{{"sha256":"{digest}","manifest":{body}}}\n')


def _failed(made: SimpleNamespace, name: str, age: timedelta) -> dict[str, Any]:
    when = datetime.now(UTC) - age
    row: dict[str, Any] = made.entry(name, created_at=when, failed_at=when)
    return row


def _length(gap: Gap) -> float:
    start, end = gap.bounds
    return (end - start) / _DAY


def _synced(
    made: SimpleNamespace, store: SnapshotStore, *rows: Any, **options: Any
) -> Changes:
    return sync_load(made.load(list(rows)), store, **options)


@pytest.mark.parametrize("retention", [_days(3), None])
def test_a_pause_longer_than_the_retention_is_a_gap(
    made: SimpleNamespace, store: SnapshotStore, retention: timedelta | None
) -> None:
    """After eight days without a sync of a queue that keeps three, five are named in all that tells of it."""
    path = Path(str(store))
    _synced(made, store, _failed(made, "a", _days(1)))
    _last_complete(path, _days(8))
    row = _failed(made, "b", _days(2))
    found = _synced(made, store, row, retention=retention)
    (gap,) = found.receipt.gaps
    assert gap.is_certain is (retention is not None)
    assert _length(gap) == pytest.approx(5.0, abs=0.01)
    assert f"{OVERDUE}8 days ago" in found.receipt.verdict
    assert f"{OVERDUE}8 days ago" in found.verdict
    assert found.receipt.complete
    again = _synced(made, store, row, retention=retention)
    assert again.receipt.gaps == (gap,)
    assert OVERDUE not in again.receipt.verdict
    for stored in (
        tk.get_receipt(tk.read_snapshot(path)),
        tk.verify_snapshot(path).receipt,
    ):
        assert stored is not None
        assert stored.gaps == (gap,)
    assert len(_manifest(store).receipts) == 3


@pytest.mark.parametrize("wrong_day", [-14_600, 30], ids=["in 1986", "a month ahead"])
@pytest.mark.parametrize(
    ("right_days", "first_day"), [([0.5, 1], 1), ([], 0)], ids=["corrected", "at once"]
)
def test_a_sync_with_a_wrong_clock_hides_no_later_gap(
    made: SimpleNamespace,
    store: SnapshotStore,
    right_days: list[float],
    first_day: float,
    wrong_day: float,
) -> None:
    """The times of one such sync do not show that the queue keeps entries for longer than it does."""

    def sync_on(day: float, **failed_on: float) -> Changes:
        now = _NOW + _days(day)
        times = {name: _NOW + _days(failed) for name, failed in failed_on.items()}
        rows = [
            made.entry(name, created_at=time, failed_at=time)
            for name, time in times.items()
        ]
        load = made.load(rows)
        load.clock = lambda: now.isoformat(timespec="milliseconds")
        return sync_load(load, store, clock=lambda: now)

    sync_on(0, a=-0.1)
    for day in (wrong_day, *right_days):
        assert sync_on(day, a=-0.1, b=0.4).receipt.gaps == ()
    (gap,) = sync_on(12, c=11.5).receipt.gaps
    assert gap.bounds == (_NOW + _days(first_day), _NOW + _days(9))


def test_an_entry_that_is_still_there_shows_that_nothing_expired(
    made: SimpleNamespace, store: SnapshotStore
) -> None:
    """Entries expire by age: as one of the last sync is still there, later ones are, too."""
    row = _failed(made, "a", _days(1))
    _synced(made, store, row)
    _last_complete(Path(str(store)), _days(8))
    found = _synced(made, store, row, _failed(made, "b", _days(2)), retention=_days(3))
    assert (found.receipt.gaps, found.receipt.overdue) == ((), ())


def test_a_load_that_is_not_complete_ends_no_gap(
    made: SimpleNamespace, store: SnapshotStore
) -> None:
    """Only a complete load shows what the queue still keeps; the gap is counted from the last one."""
    _synced(made, store, _failed(made, "a", _days(1)))
    _last_complete(Path(str(store)), _days(8))
    load = made.load([_failed(made, "b", _days(2))])
    load.state.unsettled.append("entries changed while they were read")
    assert sync_load(load, store).receipt.gaps == ()
    found = _synced(made, store, _failed(made, "c", _days(1)), retention=_days(3))
    assert len(found.receipt.gaps) == 1


def test_hourly_syncs_of_sixty_days_keep_a_compact_record() -> None:
    """1,440 syncs with two pauses of a queue that keeps three days leave two gaps, however few entries."""
    coverage: Coverage | None = None
    last: datetime | None = None
    for hour in range(60 * 24):
        began = _NOW + timedelta(hours=hour)
        if 10 <= hour / 24 < 15 or 30 <= hour / 24 < 36:
            continue
        sync = SyncTimes(
            began=began, last=last, oldest=began, kept=timedelta(), overlaps=False
        )
        coverage, _ = extended(coverage, sync, _days(3))
        last = began
    assert coverage is not None
    assert [round(_length(gap), 2) for gap in coverage.gaps] == [2.04, 3.04]


def test_gaps_without_end_are_joined() -> None:
    """Beyond 500 gaps the earliest become one, so that the manifest does not grow for ever."""
    coverage = Coverage(since=_NOW.isoformat())
    for week in range(600):
        began = _NOW + _days(7 * (week + 1))
        sync = SyncTimes(
            began=began,
            last=began - _days(7),
            oldest=began,
            kept=_days(0),
            overlaps=False,
        )
        coverage, _ = extended(coverage, sync, None)
    assert len(coverage.gaps) == 500
    assert coverage.gaps[0].bounds[0] == _NOW


@given(
    kept=st.integers(0, 90), pause=st.integers(0, 120), oldest=st.integers(0, 90),
    retention=st.none() | st.integers(1, 90), overlaps=st.booleans(),
)  # fmt: skip
def test_a_gap_lies_between_the_two_syncs(
    *, kept: int, pause: int, oldest: int, retention: int | None, overlaps: bool
) -> None:
    """A gap begins with the last complete sync, and ends before what the queue is known to keep."""
    sync = SyncTimes(
        began=_NOW,
        last=_NOW - _days(pause),
        oldest=_NOW - _days(oldest),
        kept=_days(kept),
        overlaps=overlaps,
    )
    before = Coverage(since=(_NOW - _days(400)).isoformat())
    after, gap = extended(before, sync, None if retention is None else _days(retention))
    assert after.gaps == ((gap,) if gap else ())
    longest = max(kept, 3, oldest) if retention is None else retention
    assert (gap is None) is (overlaps or longest >= pause)
    if gap is not None:
        assert gap.bounds == (_NOW - _days(pause), _NOW - _days(longest))


def test_a_receipt_with_gaps_is_read_back() -> None:
    """Gaps travel with a frame as plain values, and edited ones are refused."""
    gap = Gap(
        start="2026-03-01T00:00:00.000+00:00",
        end="2026-03-06T00:00:00.000+00:00",
        is_certain=True,
    )
    done = Receipt(
        what="failures",
        source="",
        scope={},
        started_at=gap.start,
        ended_at=gap.end,
        gaps=(gap,),
    )
    values = json.loads(json.dumps(done.to_dict()))
    assert Receipt.from_dict(values) == done
    values["gaps"][0]["end"] = "yesterday"
    with pytest.raises(InputError):
        Receipt.from_dict(values)


@pytest.mark.slow
def test_a_snapshot_stores_the_retention_that_a_sync_was_told(
    made: SimpleNamespace, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Report, expiries, plan, outcomes and gaps use it, before the variable; a later sync keeps it."""
    monkeypatch.setenv("TOOLKIT_RETENTION", "90d")
    path = Path(str(store))
    row = _failed(made, "a", _days(1))
    _synced(made, store, row, retention=_days(3))
    for _ in range(2):
        frame = tk.read_snapshot(path)
        assert tk.get_receipt(frame).retention == _days(3)
        assert tk.report_failures(frame).to_dict()["expiry"]["retention"] == "3d"
        assert tk.find_expiring(frame)["hours_left"].iloc[0] == pytest.approx(
            48, abs=0.1
        )
        assert tk.plan_redrive(frame).options["retention"] == "3d"
        assert tk.find_retry_outcomes(frame).frame["expires_at"].notna().all()
        _synced(made, store, row)
    _last_complete(path, _days(8))
    assert [
        gap.is_certain
        for gap in _synced(made, store, _failed(made, "b", _days(1))).receipt.gaps
    ] == [True]
    assert (
        tk.report_failures(tk.read_snapshot(path), retention="5d").to_dict()["expiry"][
            "retention"
        ]
        == "5d"
    )


def test_a_sync_that_is_told_nothing_stores_the_variable(
    made: SimpleNamespace, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable of the sync counts for reports elsewhere, too; without it, nothing is stored."""
    row = _failed(made, "a", _days(1))
    monkeypatch.delenv("TOOLKIT_RETENTION", raising=False)
    assert _synced(made, store, row).receipt.retention is None
    monkeypatch.setenv("TOOLKIT_RETENTION", "30d")
    _synced(made, store, row)
    monkeypatch.delenv("TOOLKIT_RETENTION")
    assert (
        tk.report_failures(tk.read_snapshot(str(store))).to_dict()["expiry"][
            "retention"
        ]
        == "30d"
    )


def test_a_stored_retention_that_is_no_duration_is_refused() -> None:
    """A receipt of an edited file is checked."""
    now = datetime.now(UTC).isoformat()
    facts = Receipt(
        what="failures", source="s", scope={}, started_at=now, ended_at=now
    ).to_dict()
    for bad in (0, -5, 1e12, "7d"):
        with pytest.raises(InputError, match="receipt"):
            Receipt.from_dict(facts | {"retention_seconds": bad})


@pytest.mark.parametrize(
    ("retention", "gaps"), [("2d", [6, 3]), ("6d", [2]), ("30d", [])]
)
def test_a_report_finds_the_gaps_of_the_retention_that_it_is_told(
    made: SimpleNamespace, store: SnapshotStore, retention: str, gaps: list[float]
) -> None:
    """Syncs assumed three days; a report of a frame and of a dataset has the gaps of another retention."""
    path = Path(str(store))
    _synced(made, store, _failed(made, "a", _days(14)))
    for pause, name in ((8, "b"), (5, "c")):
        _last_complete(path, _days(pause))
        _synced(made, store, _failed(made, name, _days(1)))
    stored = tk.read_snapshot(path)
    assert [round(_length(gap)) for gap in tk.get_receipt(stored).gaps] == [5, 2]
    for failures in (stored, tk.open_snapshot(path)):
        report = tk.report_failures(failures, retention=retention).to_dict()
        lengths = [_length(Gap(**gap)) for gap in report["completeness"]["gaps"]]
        assert lengths == pytest.approx(gaps, abs=0.01)
        assert all(gap["is_certain"] for gap in report["completeness"]["gaps"])
        assert (OVERDUE in report["completeness"]["sentence"].lower()) is bool(
            gaps and retention != "6d"
        )
    assert [round(_length(gap)) for gap in tk.get_receipt(stored).gaps] == [5, 2]


def test_pauses_are_kept_once_and_carried_by_every_sync(
    made: SimpleNamespace, store: SnapshotStore
) -> None:
    """The manifest has pauses in one receipt; syncs without one, complete or not, carry them along."""
    path = Path(str(store))
    _synced(made, store, _failed(made, "a", _days(1)))
    _last_complete(path, _days(8))
    row = _failed(made, "b", _days(1))
    (pause,) = _synced(made, store, row).receipt.pauses
    load = made.load([row])
    load.state.unsettled.append("entries changed while they were read")
    assert sync_load(load, store).receipt.pauses == (pause,)
    assert _synced(made, store, row).receipt.pauses == (pause,)
    assert tk.get_receipt(tk.read_snapshot(path)).pauses == (pause,)
    assert [len(receipt["pauses"]) for receipt in _manifest(store).receipts] == [
        0,
        0,
        0,
        1,
    ]
