"""Groups of failures that were seen before, and those that never were."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest

import toolkit as tk
from toolkit.errors import InputError
from toolkit.tables.frames import frame_from_rows, to_table
from toolkit.tables.schemas import FAILURES

START = datetime(2026, 3, 2, tzinfo=UTC)


def failures(prefix: str, *bodies: str) -> pd.DataFrame:
    """Failures with these bodies, an hour apart."""
    return frame_from_rows(
        [
            {"dlq_id": f"{prefix}{number}", "workflow_url": "u", "response_status": 500,
             "response_body": body, "failed_at": START + timedelta(hours=number)}
            for number, body in enumerate(bodies)
        ],
        FAILURES,
    )  # fmt: skip


def test_the_same_similar_and_never_seen() -> None:
    """A known group is its own best match, a look-alike comes behind, and nothing is a row that says so."""
    history = failures(
        "h",
        "no order 17",
        "no order 18",
        "connection to the database refused",
        "no space left on device",
    )
    new = failures(
        "n",
        "no order 99",
        "no order 98",
        "no order 97",
        "connection to the cache refused",
        "teapot",
    )
    retried = {"h0": "r1", "h1": "r2"}
    runs = pd.DataFrame(
        {"workflow_run_id": ["r1", "r2"], "workflow_url": "u", "state": ["RUN_SUCCESS", "RUN_FAILED"],
         "created_at": pd.to_datetime([START] * 2)}
    )  # fmt: skip
    for source in (new, to_table(new, FAILURES)):
        found = tk.find_similar_failures(
            source, history, k=1, runs=runs, retried=retried
        )
        rows = found.frame.set_index("title")
        assert rows.index.tolist()[0] == "no order <num>"
        same = rows.loc["no order <num>"]
        assert (same.similar, same.similarity, same.seen, same["count"]) == (
            same.group,
            1.0,
            True,
            2,
        )
        assert same.outcome == "1 retried and succeeded, 1 retried and failed again"
        assert same.last_at == START + timedelta(hours=1)
        like = rows.loc["connection to the cache refused"]
        assert (like.similar_title, like.seen, like["rank"]) == (
            "connection to the database refused",
            True,
            1,
        )
        assert like.outcome == "1 unknown"
        never = rows.loc["teapot"]
        assert never.seen == False  # noqa: E712 - of numpy
        assert pd.isna(never["rank"])
        assert pd.isna(never.similar)
        assert repr(found) == "3 groups: 2 seen before, 1 never; never seen: teapot"
        assert "teapot" in found._repr_html_()


def test_a_time_that_cannot_be_is_not_when_a_failure_was_last_seen() -> None:
    """A clock that was wrong by centuries counts here no more than in any other count."""
    history = failures("h", "no order 17", "no order 18")
    for implausible in ("2199-01-01", "1971-01-01"):
        history.loc[1, ["failed_at", "created_at"]] = pd.Timestamp(
            implausible, tz="UTC"
        )
        found = tk.find_similar_failures(failures("n", "no order 99"), history).frame
        assert found["count"].tolist() == [2]
        assert found["last_at"].tolist() == [START]


def test_entries_of_both_are_no_history() -> None:
    """A frame was never seen before itself."""
    rows = failures("a", "disk full", "no route")
    assert tk.find_similar_failures(rows, rows).frame["seen"].tolist() == [False, False]


@pytest.mark.slow
def test_hostile_input() -> None:
    """Nothing, secrets, and many different groups: all columns, no secret, no error."""
    nothing, one = failures("n"), failures("o", "disk full")
    assert str(tk.find_similar_failures(nothing, one).frame["rank"].dtype) == "Int64"
    assert tk.find_similar_failures(one, nothing).frame["seen"].tolist() == [False]
    assert (
        repr(tk.find_similar_failures(nothing, nothing))
        == "0 groups: 0 seen before, 0 never"
    )
    secret = "Bearer abcdefghijklmnopqrstuvwxyz0123456789 refused"
    found = tk.find_similar_failures(
        failures("s", secret), failures("t", f"{secret} again")
    )
    assert "abcdefghijklmnop" not in found.frame.to_csv() + found._repr_html_() + repr(
        found
    )
    names = [
        chr(97 + number % 26) * (2 + number // 26) + "ness found"
        for number in range(3_000)
    ]
    many = tk.find_similar_failures(
        failures("m", *names), failures("k", *names[:100]), k=1
    )
    assert many.frame["seen"].sum() >= 100
    for k in (0, None, "x"):
        with pytest.raises(InputError, match="k"):
            tk.find_similar_failures(one, one, k=k)
    with pytest.raises(InputError, match="history"):
        tk.find_similar_failures(one, None)
