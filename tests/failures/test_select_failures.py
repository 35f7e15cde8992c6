"""From what explains a rise to its failures."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import toolkit as tk
from toolkit.analysis import find_incidents
from toolkit.errors import InputError, UnexpectedResultWarning
from toolkit.tables.failures import FailureDecoder
from toolkit.tables.frames import to_frame
from toolkit_service.demo.history import wire_entries

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def sample():
    """The sample history, as it ends at NOW, with the ids of its groups."""
    entries = wire_entries(int(NOW.timestamp() * 1000))
    failures = to_frame(FailureDecoder(None).decode(json.dumps(entries).encode()))
    return tk.group_failures(failures).assign(failures)


@pytest.fixture(scope="module")
def incidents(sample):
    """What is found in it."""
    return find_incidents(sample, now=NOW)


@pytest.mark.slow
def test_the_condition_of_an_incident_selects_its_failures(sample, incidents):
    """As many as were observed, by the condition and by each other condition of the same failures."""
    asked = set()
    for row in incidents.itertuples():
        span = {"since": row.from_at, "until": row.until_at}
        rows = tk.select_failures(sample, row.condition, **span)
        # those of a larger incident at the same time are not counted again
        assert len(rows) >= row.observed > 0
        assert row.rank not in (1, 3, 4) or len(rows) == row.observed
        assert list(rows.columns) == list(sample.columns)
        assert rows.index.isin(sample.index).all()
        for alternative in row.alternatives[:8]:
            again = tk.select_failures(sample, alternative, **span)
            assert 0.9 * len(rows) <= len(again) <= 1.1 * len(rows), alternative
            asked |= {name.rpartition(" ")[0] or name for name in alternative}
    assert asked >= {"workflow_url", "response_status", "signature", "response header"}


@pytest.mark.slow
def test_a_spike_selects_as_many_as_were_observed(sample):
    """Each condition, also of one label among several, of the rise that was found and of a given window."""
    days = (NOW - timedelta(days=3), NOW)
    by_label = sample[["failed_at", "created_at", "labels"]]
    for spike in (
        tk.explain_spike(sample, now=NOW),
        tk.explain_spike(sample, days),
        tk.explain_spike(by_label, days),
    ):
        selected = [
            len(spike.select(sample, rank=rank)) for rank in spike.frame["rank"]
        ]
        assert selected == spike.frame["observed"].tolist()
    labels = [
        condition for condition in spike.frame["condition"] if "label" in condition
    ]
    assert labels
    assert len(tk.select_failures(sample, labels[0])) > 0


def test_of_several_episodes_only_their_failures_are_selected():
    """As many as were observed, in the order of the frame, of any engine; the sentence counts them."""
    usual = pd.date_range("2026-03-01", periods=1_000, freq="20min", tz="UTC")
    begins = ("2026-03-03", "2026-03-10")
    bursts = [
        pd.date_range(start, periods=60, freq="min", tz="UTC") for start in begins
    ]
    times = usual.append(bursts)
    flows = ["pay", "mail", "ship", "bill"] * 250 + ["pay"] * 120
    texts = ["late", "down", "busy"] * 333 + ["late"] + ["row rejected"] * 120
    frame = pd.DataFrame({
        "failed_at": times, "created_at": times, "workflow_url": flows, "signature": texts,
        "dlq_id": np.arange(times.size).astype(str),
    }).sample(frac=1, random_state=1)  # fmt: skip
    spike = tk.explain_spike(frame)
    assert spike.window == (spike.episodes[0][0], spike.episodes[-1][1])
    within = np.logical_or.reduce(
        [frame["failed_at"].between(*episode) for episode in spike.episodes]
    )
    assert (
        within.sum() == spike.observed < frame["failed_at"].between(*spike.window).sum()
    )
    said = "in 2 episodes between 2026-03-03 00:00 and 2026-03-10 00:59 UTC: "
    assert repr(spike).startswith(f"{said}{within.sum()} observed, ")
    assert said in spike._repr_html_()
    for source in (
        frame,
        pa.Table.from_pandas(frame),
        duckdb.from_arrow(pa.Table.from_pandas(frame)),
    ):
        selected = [
            len(spike.select(source, rank=rank)) for rank in spike.frame["rank"]
        ]
        assert selected == spike.frame["observed"].tolist()
    chosen = spike.select(frame)
    assert chosen.index.tolist() == frame.index[frame.index.isin(chosen.index)].tolist()
    given = tk.explain_spike(frame, (bursts[0][0], bursts[0][-1]))
    assert given.episodes == []


def test_a_given_window_ends_before_its_end():
    """A failure at its end is neither counted nor selected; one of two labels counts for both."""
    times = pd.date_range("2026-03-01", periods=48, freq="h", tz="UTC")
    lists = ['["usual"]'] * 24 + [
        '["usual","release"]',
        '["usual","release","new"]',
    ] * 12
    frame = pd.DataFrame(
        {"failed_at": times, "created_at": times, "labels": lists, "workflow_url": "x"}
    )
    window = (datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 3, 2, 12, tzinfo=UTC))
    spike = tk.explain_spike(frame, window)
    counts = {
        row.condition["label"]: (row.rank, row.observed)
        for row in spike.frame.itertuples()
    }
    assert counts["release"][1] == 12
    assert all(
        len(spike.select(frame, rank=rank)) == observed
        for rank, observed in counts.values()
    )


def test_a_change_of_any_columns_selects_its_rows():
    """Numbers, missing values and booleans, as `explain_change` states them."""
    before = pd.DataFrame(
        {"code": [200.0, 500.0, np.nan] * 40, "new": [True, False, False] * 40}
    )
    after = pd.concat(
        [
            before,
            before[before["code"].isna()]
            .head(1)
            .loc[lambda rows: rows.index.repeat(90)],
        ]
    )
    found = tk.analysis.explain_change(before, after)
    assert len(found.select(after)) == found.frame["observed"][0] == 130
    with pytest.warns(UnexpectedResultWarning) as caught:
        assert found.select(after.assign(code=404)).empty
    assert caught[0].filename == __file__
    assert (
        len(tk.select_failures(after, {"code": "500"}))
        == len(tk.select_failures(after, {"code": "500.0"}))
        == 40
    )
    assert len(tk.select_failures(after, {"new": "True"})) == 40


def test_an_empty_value_is_a_missing_one():
    """Of a column and of a field, in what is observed as in what is selected, and however it is stated."""
    rows = np.arange(400)
    times = pd.Timestamp("2026-03-01", tz="UTC") + pd.to_timedelta(rows, unit="min")
    keys = np.where(rows % 4 == 0, "k", np.where(rows % 4 == 1, "", None))
    fields = np.where(
        rows % 4 == 0, '{"k": "1"}', np.where(rows % 4 == 1, '{"k": ""}', "{}")
    )
    frame = pd.DataFrame(
        {
            "failed_at": times,
            "created_at": times,
            "flow_control_key": keys,
            "body": fields,
        }
    )
    after = pd.concat(
        [frame[frame["flow_control_key"].isna()].head(60), frame[keys == ""].head(20)]
    )
    found = tk.analysis.explain_change(
        frame, after, exposure=50, attributes=["flow_control_key"]
    )
    assert found.frame["condition"][0] == {"flow_control_key": "(none)"}
    assert len(found.select(after)) == found.frame["observed"][0] == 80
    for name in ("flow_control_key", "body k"):
        for value in ("(none)", "", None):
            assert len(tk.select_failures(frame, {name: value})) == 300


def test_every_engine_selects_the_same(sample, tmp_path):
    """A frame keeps its index and receipt; a snapshot, Arrow and DuckDB return a frame of the rows."""
    tk.write_snapshot(sample, tmp_path / "kept")
    table = pa.table(tk.open_snapshot(tmp_path / "kept").to_arrow().to_table())
    condition = {"workflow_url": sample["workflow_url"].mode()[0], "label": "priority"}
    expected = tk.select_failures(
        sample, condition, since="2026-03-01", until="2026-03-08"
    )
    assert 0 < len(expected) < len(sample)
    for source in (tmp_path / "kept", table, duckdb.from_arrow(table)):
        rows = tk.select_failures(
            source, condition, since="2026-03-01", until="2026-03-08"
        )
        assert set(rows["dlq_id"]) == set(expected["dlq_id"])
        assert set(rows.columns) >= {*table.column_names, "error"}


@pytest.mark.slow
def test_groups_and_labels(sample):
    """A signature without its column is computed; a label is one of several; (none) is a missing value."""
    plain = sample.drop(columns="signature")
    group, count = next(iter(sample["signature"].value_counts().items()))
    rows = tk.select_failures(plain, {"signature": group})
    assert len(rows) == count
    assert list(rows.columns) == list(plain.columns)
    labelled = tk.analysis.count_labels(sample).set_index("label")["count"]
    assert (
        len(tk.select_failures(sample, {"label": "priority"})) == labelled["priority"]
    )
    without = tk.select_failures(sample, {"label": "(none)"})
    assert (
        without["labels"].isin(["[]", ""]).sum() + without["labels"].isna().sum()
        == len(without)
        > 0
    )
    keyless = tk.select_failures(sample, {"flow_control_key": "(none)"})
    assert len(keyless) == sample["flow_control_key"].isna().sum()
    assert len(tk.select_failures(sample, {})) == len(sample)


def test_a_value_that_no_row_has_is_a_warning(sample):
    """It lists the known ones, masked; conditions that only do not meet are not a mistake."""
    for condition, known in (
        ({"response_status": "4290"}, "Did you mean '429'"),
        ({"labels": "priorities"}, "Did you mean 'priority'"),
        ({"header User-Agent": "sample-publisher/9"}, "'sample-publisher/2.14'"),
    ):
        with pytest.warns(UnexpectedResultWarning, match=known):
            assert tk.select_failures(sample, condition).empty
    with pytest.warns(UnexpectedResultWarning, match="masked") as caught:
        tk.select_failures(sample, {"header Authorization": "Bearer mine"})
    assert "Bearer sample" not in str(caught[0].message)
    assert caught[0].filename == __file__
    assert tk.select_failures(
        sample, {"response_status": 429}, until=sample["created_at"].min()
    ).empty
    assert len(tk.select_failures(sample, {"labels": "priority"})) > 0
    assert len(tk.select_failures(sample, {"flow_control_key": None})) > 0


@pytest.mark.slow
def test_a_condition_that_cannot_be_met_says_why(sample):
    """A mistyped attribute, no dict, an unknown rank, an age that cannot be read."""
    with pytest.raises(InputError, match="Did you mean 'response_status'"):
        tk.select_failures(sample, {"respons_status": "500"})
    with pytest.raises(InputError, match="condition"):
        tk.select_failures(sample, "429")
    with pytest.raises(InputError, match="rank"):
        tk.explain_spike(sample, now=NOW).select(sample, rank=99)
    with pytest.raises(InputError, match="since"):
        tk.select_failures(sample, {}, since="last week")


@pytest.mark.slow
@pytest.mark.parametrize("days", [6, 7, 9])
def test_no_condition_is_listed_twice(sample, days):
    """A condition that is near to two sets of rows stands for both."""
    recent = sample[
        sample["created_at"] >= sample["created_at"].max() - pd.Timedelta(days=days)
    ]
    named = [
        tuple(sorted(one.items()))
        for one in tk.explain_spike(recent, now=NOW).frame["condition"]
    ]
    assert len(set(named)) == len(named) > 1
