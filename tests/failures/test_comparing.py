"""What changed between two loads, and what became of the entries that left."""

from __future__ import annotations

import json
import math
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit import find_retry_outcomes
from toolkit.errors import InputError
from toolkit.failures import grouping
from toolkit.failures.comparing import compare_grouped
from toolkit.failures.outcome_names import OUTCOMES
from toolkit.failures.seen_before import similar_grouped
from toolkit.tables.frames import frame_from_rows, to_table
from toolkit.tables.receipt import Gap, Receipt
from toolkit.tables.schemas import FAILURES, RUNS

START = datetime(2026, 3, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)


def failures(*entries: tuple[str, str, float]) -> pd.DataFrame:
    """Failures of an id, a body, and an hour."""
    rows = [
        {
            "dlq_id": name, "workflow_url": "u", "workflow_run_id": f"run of {name}", "response_status": 500,
            "failed_at": START + hour * HOUR, "created_at": START + hour * HOUR, "response_body": body,
        }
        for name, body, hour in entries
    ]  # fmt: skip
    return frame_from_rows(rows, FAILURES)


def of_one_body(
    body: str, hours: Any, prefix: str = ""
) -> list[tuple[str, str, float]]:
    """Failures with one body at these hours."""
    return [
        (f"{prefix}{body} {number} {hour}", body, float(hour))
        for number, hour in enumerate(hours)
    ]


def test_each_change_by_hand() -> None:
    """New, back again, growing, shrinking, gone and steady groups, with what was added and left."""
    before = failures(
        *of_one_body("disk full", range(0, 100, 10)),
        *of_one_body("no route", range(100)),
        *of_one_body("bad token", [1, 50]),
        *of_one_body("lock held", range(0, 100, 9)),
    )
    after = failures(
        *of_one_body("disk full", range(0, 100, 10)),
        *of_one_body("disk full", range(100, 200), "later "),
        *of_one_body("no route", range(100, 103), "later "),
        *of_one_body("lock held", range(0, 100, 9)),
        *of_one_body("out of paper", [150]),
        *of_one_body("pipe broken", [160]),
    )
    history = failures(("old", "pipe broken", -500))
    for convert in (lambda frame: frame, lambda frame: to_table(frame, FAILURES)):
        found = tk.compare_failures(
            convert(before), convert(after), history=convert(history)
        )
        rows = found.frame.set_index("title")
        assert rows["change"].to_dict() == {
            "out of paper": "new", "pipe broken": "back again", "disk full": "growing",
            "no route": "shrinking", "bad token": "gone", "lock held": "steady",
        }  # fmt: skip
        disk = rows.loc["disk full"]
        assert (disk.before, disk.after, disk.added, disk.left) == (10, 110, 100, 0)
        assert disk.first_at == START
        assert disk.last_at == START + 199 * HOUR
        assert found.frame["change"].tolist()[0] == "new"
        assert repr(found).startswith(
            "6 groups: 1 new, 1 back again, 1 growing, 1 shrinking, 1 gone, 1 steady"
        )


def test_failures_without_a_time_are_counted() -> None:
    """Of failures on both sides, some have no time. All are counted, and none of them is in a burst."""
    rows = failures(*of_one_body("disk full", range(10)))
    rows.loc[rows.index[::3], ["failed_at", "created_at"]] = pd.NaT
    found = tk.compare_failures(rows.iloc[:5], rows.iloc[3:])
    (disk,) = found.frame.itertuples()
    assert (disk.before, disk.after, disk.added, disk.left) == (5, 7, 5, 3)
    assert disk.last_at == START + 8 * HOUR


@pytest.mark.slow
def test_growth_is_judged_against_bursts() -> None:
    """Counts come in bursts: hardly any quiet week looks like a change, three times as many do."""
    wrong = seen = 0
    for run in range(20):
        rng = np.random.default_rng(run)

        def week(
            start: int, rate: float, name: str, rng: np.random.Generator = rng
        ) -> pd.DataFrame:
            hours = start + rng.uniform(0, 168, rng.poisson(rate))
            bursts = np.repeat(hours, rng.geometric(1 / 6, len(hours)))
            spread = np.sort(bursts + rng.exponential(0.3, len(bursts))).clip(
                start, start + 167.9
            )
            return failures(*of_one_body("disk full", spread, name))

        one, two, more = week(0, 60, "a"), week(168, 60, "b"), week(168, 180, "c")
        wrong += tk.compare_failures(one, two).frame["change"].tolist() != ["steady"]
        seen += tk.compare_failures(one, more).frame["change"].tolist() == ["growing"]
    assert wrong <= 1
    assert seen >= 18


def test_exposure_says_how_much_longer_before_is() -> None:
    """A week of a failure an hour, then a day of the same, is not a change."""
    before, after = (
        failures(*of_one_body("x", range(168))),
        failures(*of_one_body("x", range(168, 192))),
    )
    found = tk.compare_failures(before, after, exposure=7).frame
    assert (found["change"].item(), found["expected"].item()) == ("steady", 24.0)
    assert (
        tk.compare_failures(before, after, exposure=1).frame["change"].item()
        == "shrinking"
    )
    found = tk.compare_failures(before, after)
    assert (found.frame["change"].item(), found.frame["expected"].item()) == (
        "steady",
        24.0,
    )
    assert "before spans 7 days" in found.notes[0]


def loaded(
    frame: pd.DataFrame, end: datetime, gaps: tuple[Gap, ...] = ()
) -> pd.DataFrame:
    """The frame, as of one load that ended then."""
    receipt = Receipt(
        what="failures", source="http://127.0.0.1", scope={}, rows=len(frame), complete=True,
        started_at=end.isoformat(), ended_at=end.isoformat(), gaps=gaps,
    )  # fmt: skip
    return frame.assign().pipe(
        lambda copy: copy.attrs.update(receipt=receipt.to_dict()) or copy
    )


@pytest.mark.parametrize(("number", "change"), [(1, "steady"), (5, "growing")])
def test_one_failure_of_a_rare_group_is_not_growing(number: int, change: str) -> None:
    """One of many rare groups fails in any hour, by chance; five failures in an hour are no chance."""
    usual = of_one_body("upstream timed out", np.arange(0, 119, 0.25))
    before = failures(*usual, *of_one_body("quota used up", [20, 75]))
    usual = of_one_body("upstream timed out", np.arange(119, 120, 0.25))
    hours = np.linspace(119.2, 119.8, number)
    after = failures(*usual, *of_one_body("quota used up", hours))
    compared = tk.compare_failures(before, after, exposure=119.0).frame
    changes = compared.set_index("title")["change"]
    assert changes["quota used up"] == change
    assert changes["upstream timed out"] == "steady"


def test_a_day_is_compared_with_the_rate_before_it() -> None:
    """A steady stream is steady, rows without a failure time are placed, and what rose or began is found."""
    day, end = 24, START + 240 * HOUR
    rows = failures(
        *of_one_body("steady stream", np.arange(0, 240, 24 / 70)),
        *of_one_body("never timed", range(5, 240, 6)),
        *of_one_body("disk full", range(0, 216, 8)),
        *of_one_body("disk full", np.arange(216, 240, 0.25), "more "),
        *of_one_body("out of paper", range(220, 240)),
    )
    untimed = rows["response_body"] == "never timed"
    rows = loaded(rows.assign(failed_at=rows["failed_at"].mask(untimed)), end)
    found = tk.compare_failures(rows, since="1d").frame.set_index("title")
    assert found["change"].to_dict() == {
        "steady stream": "steady", "never timed": "steady", "disk full": "growing", "out of paper": "new",
    }  # fmt: skip
    assert found["expected"]["steady stream"] == pytest.approx(70, abs=1)
    assert found["before"].sum() + found["after"].sum() == len(rows)
    assert tk.compare_failures(
        to_table(rows, FAILURES), since=end - day * HOUR, now=end
    ).frame["change"].tolist() == list(found["change"])
    cut = pd.Timestamp(end - day * HOUR)
    sliced = tk.compare_failures(rows[rows["failed_at"] < cut], rows)
    assert sliced.frame.set_index("title")["change"].to_dict() == found[
        "change"
    ].to_dict() | {"never timed": "missing before"}
    assert "1 group failed before" in repr(sliced)
    other = loaded(rows, end + HOUR)  # another load of the queue
    assert (
        tk.compare_failures(rows[rows["failed_at"] < cut], other).frame.set_index(
            "title"
        )["change"]["steady stream"]
        == "steady"
    )
    for options in ({"after": rows}, {"snapshot": "x"}):
        with pytest.raises(InputError, match="since"):
            tk.compare_failures(rows, since="1d", **options)
    with pytest.raises(InputError, match="before the data end"):
        tk.compare_failures(rows, since=end + HOUR)


def of_all_kinds(rows: pd.DataFrame, folder: Path) -> list[Any]:
    """The frame in memory, and a snapshot of it in files, DuckDB and Dask, which count where the rows are."""
    path = str(folder / "failures")
    tk.write_snapshot(rows, path)
    stored = tk.open_snapshot(path)
    return [
        rows,
        stored,
        stored.to_duckdb(),
        stored.to_dask().repartition(npartitions=3),
    ]


def test_the_rate_of_a_young_error_begins_with_its_first_failure(
    tmp_path: Path,
) -> None:
    """An error that began 26 hours before a deploy stopped with it, in a frame of eleven days."""
    deploy, end = 256, 260
    usual = of_one_body("upstream timed out", np.arange(0, end, 0.5))
    young = np.linspace(deploy - 26, deploy - 0.05, 302)
    rows = failures(
        *usual,
        *of_one_body("no such coupon", [*young, deploy + 1, deploy + 2]),
        *of_one_body("one batch", np.linspace(deploy - 6.5, deploy - 6.4, 12)),
        *of_one_body("twice lately", [deploy - 5, deploy - 1]),
        *of_one_body("since yesterday", np.arange(deploy - 26, end, 0.25)),
    )
    since, now = START + deploy * HOUR, START + end * HOUR
    for frame in of_all_kinds(rows, tmp_path):
        compared = tk.compare_failures(frame, since=since, now=now).frame
        found = compared.set_index("title")
        assert found["change"].to_dict() == {
            "no such coupon": "shrinking", "one batch": "steady", "twice lately": "steady",
            "since yesterday": "steady", "upstream timed out": "steady",
        }  # fmt: skip
        # the failures of the first hour only show when the rate begins
        expected = found["expected"]["no such coupon"]
        assert expected == pytest.approx(301 * 4 / 26, rel=1e-3)
        assert found["expected"]["since yesterday"] == pytest.approx(16, rel=0.01)
        # these may have begun earlier
        assert found["expected"]["one batch"] == pytest.approx(12 * 4 / 256)
        assert found["expected"]["twice lately"] == pytest.approx(2 * 4 / 256)

    # an exposure that is passed holds for all groups
    of_all = tk.compare_failures(rows, since=since, now=now, exposure=64).frame
    assert of_all["expected"].tolist() == (of_all["before"] / 64).tolist()


def test_a_rare_error_is_gone_only_if_failures_were_expected(tmp_path: Path) -> None:
    """Nearly all rare errors have no failure in the last hour, which says nothing about them."""
    rng, cut = np.random.default_rng(5), 119
    messages = [
        "quota used up", "bad token", "no route to host", "lock held by another worker", "out of paper",
        "KeyError: 'currency'", "certificate has expired", "address is not deliverable", "pipe broken",
        "division by zero", "the card was declined", "schema has no such column",
    ]  # fmt: skip
    rare = []
    for message in messages:
        rare += of_one_body(message, rng.uniform(0, cut, 3))
    rows = failures(
        *rare,
        *of_one_body("upstream timed out", np.arange(0, cut + 1, 0.25)),
        *of_one_body("disk full", np.arange(0, cut, 0.2)),
    )
    now = START + (cut + 1) * HOUR
    for frame in of_all_kinds(rows, tmp_path):
        found = tk.compare_failures(frame, since="1h", now=now).frame
        assert len(found) == len(messages) + 2
        changes = found.set_index("title")["change"]
        assert changes["disk full"] == "gone"
        assert (changes.drop("disk full") == "steady").all()


def test_an_error_of_two_loads_is_gone_if_the_queue_has_none_of_it() -> None:
    """The entries of a rare error left the queue, which is a fact; two spans of time only show a rate."""
    usual = of_one_body("upstream timed out", range(100))
    rare = of_one_body("quota used up", [20])
    later = of_one_body("upstream timed out", range(100, 110), "later ")
    loads = failures(*usual, *rare), failures(*usual, *later)
    spans = failures(*usual, *rare), failures(*later)
    changes = [
        tk.compare_failures(*frames).frame.set_index("title")["change"]["quota used up"]
        for frames in (loads, spans)
    ]
    assert changes == ["gone", "steady"]


def test_gaps_are_left_out_of_the_rates() -> None:
    """Of ten days five were not observed: the rate of the others is compared."""
    gap = Gap(
        start=(START + 60 * HOUR).isoformat(),
        end=(START + 180 * HOUR).isoformat(),
        is_certain=True,
    )
    hours = [*range(60), *range(180, 240)]
    rows = loaded(failures(*of_one_body("x", hours)), START + 240 * HOUR, (gap,))
    found = tk.compare_failures(rows, since="1d").frame
    assert (found["expected"].item(), found["change"].item()) == (24.0, "steady")


def test_why_entries_are_gone() -> None:
    """Retried ones by their runs, expired by the time, deleted where nothing ran, else unknown."""
    before = failures(
        *((name, "disk full", hour) for hour, name in enumerate("abcdefgh")),
        ("z", "x", 8),
    )
    after = failures(("h", "disk full", 7), ("y", "x", 24))
    retried = {"a": "r1", "b": "r2", "c": "r3", "d": "r4", "e": "lost"}
    states = {
        "r1": "RUN_SUCCESS",
        "r2": "RUN_FAILED",
        "r3": "RUN_STARTED",
        "r4": "RUN_CANCELED",
    }
    runs = frame_from_rows(
        [
            {"workflow_run_id": run, "workflow_url": "u", "state": state}
            for run, state in states.items()
        ],
        RUNS,
    )
    found = find_retry_outcomes(
        before, after, runs=runs, retried=retried, retention="7d"
    )
    assert found.frame.set_index("dlq_id")["outcome"].to_dict() == {
        "a": "retried and succeeded", "b": "retried and failed again", "c": "retried, not ended",
        "d": "retried and canceled", "e": "retried, not ended", "f": "deleted", "g": "deleted",
        "h": "still there", "z": "deleted",
    }  # fmt: skip
    assert set(found.frame["outcome"]) <= set(OUTCOMES)
    assert found.frame.set_index("dlq_id")["run"].to_dict()["a"] == "r1"
    row = tk.compare_failures(
        before, after, runs=runs, retried=retried, retention="7d"
    ).frame.iloc[-2:]
    shrunk = row[row["title"] == "disk full"].iloc[0]
    assert (
        shrunk.succeeded,
        shrunk.retried,
        shrunk.deleted,
        shrunk.expired,
        shrunk.unknown,
    ) == (
        1,
        4,
        2,
        0,
        0,
    )
    assert shrunk.left == 7


def test_expired_only_where_somebody_looked_shortly_before() -> None:
    """A look within a day of the expiry makes it one; after a longer absence nobody knows."""
    before = failures(("a", "x", 0), ("b", "x", 30))
    for looked, outcome in (
        (30, ["unknown", "unknown"]),
        (160, ["expired", "unknown"]),
    ):
        listed = pd.concat([before, failures(("l", "x", looked))], ignore_index=True)
        found = find_retry_outcomes(listed, failures(("n", "x", 400)), retention="7d")
        assert found.frame["outcome"].tolist()[:2] == outcome
    found = find_retry_outcomes(before, failures(("n", "x", 400)))
    assert found.counts.to_dict("records") == [
        {"outcome": "unknown", "count": 2, "share": 1.0}
    ]


def test_the_run_log_shows_that_nothing_was_retried() -> None:
    """Where it reaches back and no run of the workflow started in between, an entry was deleted."""
    before, after = (
        failures(("a", "x", 0), ("b", "x", 1)),
        failures(("b", "x", 1), ("n", "x", 5)),
    )
    for started, outcome in ((0.5, "deleted"), (2, "unknown")):
        runs = [
            {
                "workflow_run_id": f"r{at}",
                "workflow_url": "u",
                "created_at": START + at * HOUR,
            }
            for at in (started, 6)
        ]
        found = find_retry_outcomes(
            before, after, runs=frame_from_rows(runs, RUNS), retention="7d"
        )
        assert found.frame["outcome"].tolist() == [outcome, "still there"]


@pytest.mark.parametrize("run", [None, math.nan, pd.NA])
def test_an_entry_without_a_run_was_not_retried(run: Any) -> None:
    """The result of a redrive has all its entries, those that it left alone without a run."""
    entries = failures(("a", "x", 0), ("b", "x", 1))
    found = find_retry_outcomes(entries, entries, retried={"a": run, "b": "wfr_1"})
    assert found.frame["outcome"].tolist() == ["still there", "retried, not ended"]


def test_callbacks_say_how_retried_messages_ended() -> None:
    """Delivered is a success, exhausted another failure."""
    before, after = failures(("a", "x", 0), ("b", "x", 1)), failures(("n", "x", 5))
    callbacks = pd.DataFrame(
        {
            "source_message_id": ["m1", "m2"],
            "delivered": [True, False],
            "exhausted": [False, True],
        }
    )
    found = find_retry_outcomes(
        before, after, callbacks=callbacks, retried={"a": "m1", "b": "m2"}
    )
    assert found.frame["outcome"].tolist() == [
        "retried and succeeded",
        "retried and failed again",
    ]


def test_groups_that_rows_have_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans of one frame whose rows have their group are compared as without, and no text is read again."""
    before = failures(
        *(
            row
            for n in range(40)
            for row in of_one_body(f"no order {n} left", range(0, 90, 3))
        )
    )
    after = failures(
        *of_one_body("no order 7 left", range(100, 105)),
        *of_one_body("disk full", range(101, 160)),
    )
    expected = tk.compare_failures(before, after, exposure=1).frame
    similar = tk.find_similar_failures(after, before).frame
    groups = tk.group_failures(pd.concat([before, after]))
    signed = [groups.assign(frame) for frame in (before, after)]
    monkeypatch.setattr(grouping, "read_rows", None)
    found = compare_grouped(*signed, groups, exposure=1.0)
    pd.testing.assert_frame_equal(found.frame, expected)
    pd.testing.assert_frame_equal(
        similar_grouped(*signed[::-1], groups, k=5).frame, similar
    )


def test_a_snapshot_at_two_times(server: Any, tmp_path: Path) -> None:
    """The queue of each time, and what had left before the first as history."""

    def sync(*entries: tuple[str, str]) -> datetime:
        rows = [
            {
                "dlqId": name,
                "createdAt": 1_767_225_600_000,
                "responseBody": body,
                "url": "https://u.example/",
            }
            for name, body in entries
        ]
        server.json(json.dumps({"messages": rows}).encode())
        tk.sync_failures(server.service(), tmp_path / "kept", progress=False)
        time.sleep(0.02)
        return datetime.now(UTC)

    sync(("a", "pipe broken"), ("b", "disk full"), ("c", "no route"))
    second = sync(("b", "disk full"), ("c", "no route"))
    third = sync(("b", "disk full"), ("d", "pipe broken"), ("e", "out of paper"))
    for source in (tmp_path / "kept", tk.open_snapshot(tmp_path / "kept").to_arrow()):
        found = tk.compare_failures(second, third, snapshot=source)
        assert found.frame.set_index("title")["change"].to_dict() == {
            "out of paper": "new", "pipe broken": "back again", "no route": "gone", "disk full": "steady",
        }  # fmt: skip
        assert found.notes == ()
    early = tk.compare_failures(
        datetime(2026, 2, 1, tzinfo=UTC), third, snapshot=tmp_path / "kept"
    )
    assert "the queue was not observed before" in repr(early)
    with pytest.raises(InputError, match="not earlier than before"):
        tk.compare_failures(third, second, snapshot=tmp_path / "kept")


@pytest.mark.slow
def test_frames_of_a_snapshot_say_the_same_as_the_snapshot_at_their_times(
    server: Any, tmp_path: Path
) -> None:
    """Rows with `gone_before` have left the queue: they are stored, and not counted."""
    frames, times = [], []
    for names in (range(60), range(20, 80), range(70, 90)):
        rows = [
            {"dlqId": f"d{name}", "createdAt": 1_767_225_600_000 + name, "url": "https://u.example/",
             "responseBody": "disk full" if name % 10 else "no route"}
            for name in names
        ]  # fmt: skip
        server.json(json.dumps({"messages": rows}).encode())
        tk.sync_failures(server.service(), tmp_path / "kept", progress=False)
        frames.append(tk.read_snapshot(tmp_path / "kept"))
        time.sleep(0.02)
        times.append(datetime.now(UTC))
    for first, second in ((0, 1), (1, 2), (0, 2)):
        options: dict[str, Any] = {"retention": "7d", "now": times[second]}
        found = tk.compare_failures(frames[first], frames[second], **options).frame
        stored = tk.compare_failures(
            times[first], times[second], snapshot=tmp_path / "kept", retention="7d"
        )
        columns = [name for name in found if name not in ("expected", "confidence")]
        pd.testing.assert_frame_equal(found[columns], stored.frame[columns])
    disk = found.set_index("title").loc["disk full"]
    assert (disk.before, disk.after, disk.left) == (54, 18, 54)
    halves = [frames[2][frames[2]["dlq_id"].str.len() == length] for length in (2, 3)]
    # spans: of one receipt
    assert tk.compare_failures(*halves).frame["after"].sum() == 80


def test_spans_of_one_history_have_not_left() -> None:
    """A later span without the entries of the earlier says nothing of where they are."""
    history = failures(*of_one_body("x", range(10)))
    found = tk.compare_failures(
        history[:5], history[5:], retention="3d", retried={}
    ).frame
    assert (found["deleted"].item(), found["unknown"].item()) == (0, 5)


def test_frames_that_were_swapped_are_an_error() -> None:
    """Only where that is certain: not of overlapping times, and not where a time is that of the creation."""
    history = failures(*of_one_body("x", range(10)))
    for options in ({}, {"exposure": 2.0}):
        with pytest.raises(
            InputError,
            match=r"until 2026-03-02 04:00 UTC as after.*compare_failures\(before",
        ):
            tk.compare_failures(history[5:], history[:5], **options)
    unknown = history.assign(
        failed_at=history["failed_at"].where(history["failed_at"] != START)
    )
    for before, after in (
        (history[4:], history[:5]),
        (history[5:], unknown[:5]),
        (history, history[:0]),
    ):
        assert tk.compare_failures(before, after).frame["after"].item() == len(after)


def test_hostile_frames() -> None:
    """Nothing, one row, nulls, long and strange texts: a frame with all columns, and no secret in it."""
    nothing = failures()
    empty = tk.compare_failures(nothing, nothing)
    assert (len(empty.frame), repr(empty), empty.frame["before"].dtype) == (
        0,
        "0 groups",
        "Int64",
    )
    nulls = frame_from_rows([{"dlq_id": ""}, {"dlq_id": ""}], FAILURES).assign(
        dlq_id=None
    )
    assert tk.compare_failures(nulls, nulls).frame["change"].tolist() == ["steady"]
    secret = "Bearer abcdefghijklmnopqrstuvwxyz0123456789"
    strange = failures(
        ("a", secret, 1),
        ("b", "x" * 10_000_000, 1),
        ("c", "[" * 100_000, 1),
        ("d", '{"a": "\\ud800"}', 1),
    )
    found = tk.compare_failures(nothing, strange)
    assert found.frame["change"].tolist() == ["new"] * 4
    assert secret not in found.frame.to_csv() + repr(found) + found._repr_html_()
    assert (
        tk.compare_failures(strange[:1], strange[:1])
        ._repr_html_()
        .startswith("<p>1 group: 1 steady</p>")
    )
    for wrong in (None, 5, "x", pd.DataFrame({"a": [1]})):
        with pytest.raises(InputError):
            tk.compare_failures(wrong, strange)
        with pytest.raises(InputError):
            tk.compare_failures(strange, wrong)
    for exposure in (0, -1, math.nan, "x", True):
        with pytest.raises(InputError, match="exposure"):
            tk.compare_failures(strange, strange, exposure=exposure)


def test_expiring_by_group() -> None:
    """Which group loses what when, the one that loses most in the next day first."""
    rows = failures(
        ("a", "x", 0), ("b", "x", 30), ("c", "y", 2), ("d", "y", 3), ("e", "y", 160)
    )
    rows = tk.group_failures(rows).assign(rows)
    found = tk.analysis.count_expiring(
        rows, "7d", START + timedelta(days=6, hours=23), by="signature"
    )
    assert found["signature"].tolist() == [rows["signature"][2], rows["signature"][0]]
    assert found["within 6 hours"].tolist() == [2, 1]
    assert found["later"].tolist() == [1, 0]
    assert found["next_at"].tolist() == [
        START + timedelta(days=7, hours=2),
        START + timedelta(days=7),
    ]
    assert found.loc[:, "already due":"unknown"].sum().sum() == 5
    none = tk.analysis.count_expiring(failures(), "7d", START, by="workflow_url")
    assert list(none.columns) == [
        "workflow_url",
        *tk.analysis.count_expiring(rows, "7d", START)["when"],
        "next_at",
    ]
    with pytest.raises(InputError, match="by"):
        tk.analysis.count_expiring(rows, "7d", START, by="no such column")


def test_failures_that_may_expire_soon_are_not_missed_in_silence() -> None:
    """If an entry is older than the retention, no failure can be chosen, and an error names the reason."""
    rows = failures(*of_one_body("disk full", [0, 24 * 13]))
    now = START + timedelta(days=14)
    with pytest.raises(InputError, match="unknown, at least 13 days"):
        tk.find_expiring(rows, "7d", now, within="48h")
    assert len(tk.find_expiring(rows, "15d", now, within="48h")) == 1


def test_a_later_side_without_failures_is_told() -> None:
    """Only rare groups are steady then, which must not look as if the errors continued."""
    start = pd.Timestamp("2026-03-01T00:00Z")
    times = start + pd.to_timedelta(np.arange(40) * 7, unit="h")
    frame = pd.DataFrame({
        "dlq_id": [f"d{number}" for number in range(40)],
        "workflow_run_id": [f"wfr_{number}" for number in range(40)],
        "failed_at": times,
        "created_at": times,
        "workflow_url": "https://app.example/pay",
        "response_status": 500,
        "response_body": "no space left on device",
        "response_body_base64": None,
    })  # fmt: skip
    now = (times[-1] + pd.Timedelta(hours=3)).to_pydatetime()
    found = tk.compare_failures(frame, since="1h", now=now)
    assert found.verdict == "1 group: 1 steady; no failure is on the later side"
