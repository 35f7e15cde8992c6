"""The run log in numbers, and the deliveries of one run, against what is counted by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

import toolkit as tk
from toolkit.errors import InputError
from toolkit.failures.run_log import run_deliveries

START = pd.Timestamp("2026-01-01 10:00", tz="UTC")


def log(
    *rows: tuple[str | None, str | None, float | None, float | None],
) -> pd.DataFrame:
    """Runs: workflow, state, minutes until the start, seconds that it took."""
    frame = pd.DataFrame(rows, columns=["workflow_url", "state", "minute", "took"])
    created = START + pd.to_timedelta(frame["minute"].astype("float64"), unit="min")
    ended = created + pd.to_timedelta(frame["took"].astype("float64"), unit="s")
    return pd.DataFrame(
        {
            "workflow_url": frame["workflow_url"].astype("str"),
            "state": frame["state"].astype("str"),
            "created_at": created.astype("datetime64[ms, UTC]"),
            "completed_at": ended.astype("datetime64[ms, UTC]"),
        }
    )


RUNS = log(
    ("https://a.example/pay", "RUN_SUCCESS", 0, 2.0),
    ("https://a.example/pay", "RUN_SUCCESS", 10, 4.0),
    ("https://a.example/pay", "RUN_FAILED", 61, 900.0),
    ("https://a.example/ship?token=canary", "RUN_STARTED", 5, None),
    ("https://a.example/ship?token=canary", "RUN_CANCELED", 5, 1.0),
)


def test_runs_are_summed_up_by_workflow_and_in_all():
    """Rates are of what ended, durations of what succeeded; the most runs come first."""
    summed = tk.summarize_runs(RUNS)
    first, second = summed.frame.to_dict("records")
    assert (first["workflow_url"], first["runs"], first["succeeded"]) == (
        "https://a.example/pay",
        3,
        2,
    )
    assert (first["success_rate"], first["median"], first["p90"]) == (
        2 / 3,
        3.0,
        pytest.approx(3.8),
    )
    assert (second["cancelled"], second["running"], second["failed"]) == (1, 1, 0)
    assert np.isnan(second["success_rate"])
    assert np.isnan(second["median"])
    assert summed.total["success_rate"] == 2 / 3
    assert summed.verdict == (
        "5 runs of 2 workflows, 2026-01-01 10:00 to 2026-01-01 11:01 UTC: 67 % of those that ended succeeded "
        "(1 failed, 1 cancelled, 1 running). Half of the successful runs took at most 3 s, "
        "nine in ten at most 3.8 s."
    )
    assert "canary" not in f"{summed!r}{summed._repr_html_()}"
    assert "67 %" in repr(tk.summarize(RUNS.assign(workflow_run_id="w")))


def test_the_workflow_with_the_lowest_rate_is_named():
    """Of those of which enough have ended for a rate to say something."""
    rows = [("u/bad", "RUN_FAILED" if n else "RUN_SUCCESS", n, 1.0) for n in range(8)]
    rows += [("u/good", "RUN_SUCCESS", n, 1.0) for n in range(9)] + [
        ("u/few", "RUN_FAILED", 0, 1.0)
    ]
    assert (
        " The lowest rate is that of u/bad: 12 % of 8."
        in tk.summarize_runs(log(*rows)).verdict
    )


def test_no_runs_are_no_error():
    """Every column is there, with its type; the plots say so in a sentence."""
    none = RUNS.iloc[:0]
    summed, whole = tk.summarize_runs(none), tk.summarize_runs(RUNS)
    assert summed.verdict == "No runs."
    assert dict(summed.frame.dtypes) == dict(whole.frame.dtypes)
    assert dict(tk.analysis.run_rates(none).dtypes) == dict(
        tk.analysis.run_rates(RUNS).dtypes
    )
    assert tk.summarize_runs(RUNS.iloc[[3]]).verdict.endswith("none has ended yet.")
    for ax in (
        tk.plots.plot_success_rates(none, ax=Figure().add_subplot()),
        tk.plots.plot_success_rates(RUNS.iloc[[3]], ax=Figure().add_subplot()),
        summed.plot(ax=Figure().add_subplot()),
    ):
        assert "No run" in ax.texts[-1].get_text()


def test_rates_are_counted_per_workflow_and_hour():
    """A run counts in the hour in which it started; bins without ended runs have no rate."""
    rates = tk.analysis.run_rates(RUNS)
    assert rates["start"].dt.hour.tolist() == [10, 11, 10]
    assert rates["runs"].tolist() == [2, 1, 2]
    assert rates["failure_rate"].tolist()[:2] == [0.0, 1.0]
    assert np.isnan(rates["failure_rate"][2])
    wide = tk.analysis.run_rates(RUNS, freq="1d")
    assert wide[["runs", "failed"]].to_numpy().tolist() == [[3, 1], [2, 0]]
    with pytest.raises(InputError, match="freq"):
        tk.analysis.run_rates(RUNS, freq="30s")
    with pytest.raises(InputError, match="completed_at"):
        tk.analysis.run_rates(RUNS.drop(columns="completed_at"))


ROW = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.sampled_from(
        ["RUN_SUCCESS", "RUN_FAILED", "RUN_CANCELED", "RUN_STARTED", "NEW", None]
    ),
    st.none() | st.integers(0, 3_000),
    st.none() | st.integers(-5, 5_000),
)


@pytest.mark.slow
@given(st.lists(ROW, max_size=30), st.sampled_from(["15min", "1h", "7d"]))
def test_every_run_is_counted_once(rows, freq):
    """Whatever is missing: outcomes add up to the runs, bins to the runs with a start."""
    runs = log(*rows)
    summed, rates = tk.summarize_runs(runs), tk.analysis.run_rates(runs, freq=freq)
    outcomes = ["succeeded", "failed", "cancelled", "running"]
    for frame, count in (
        (summed.frame, len(rows)),
        (rates, sum(minute is not None for _, _, minute, _ in rows)),
    ):
        assert frame["runs"].sum() == count == frame[outcomes].sum().sum()
    for index, row in rates.iterrows():
        ended = row["succeeded"] + row["failed"]
        assert (
            np.isnan(row["failure_rate"])
            if not ended
            else row["failure_rate"] == row["failed"] / ended
        ), index
    shuffled = tk.summarize_runs(runs.iloc[::-1]).frame
    pd.testing.assert_frame_equal(shuffled, summed.frame)


def events(*rows: tuple[float, str, str, str]) -> pd.DataFrame:
    """Events: seconds, message, state, run."""
    frame = pd.DataFrame(
        rows, columns=["time", "message_id", "state", "workflow_run_id"]
    )
    return frame.assign(time=START + pd.to_timedelta(frame["time"], unit="s")).astype(
        {"message_id": "str"}
    )


EVENTS = events(
    (9, "m1", "FAILED", "w"), (0, "m0", "CREATED", "w"), (2, "m0", "RETRY", "w"), (5, "m0", "DELIVERED", "w"),
    (5, "m1", "CREATED", "w"), (7, "m1", "ERROR", "w"), (5, "m2", "CREATED", "w"), (0, "x", "CREATED", "v"),
)  # fmt: skip


def test_a_delivery_is_a_row_with_its_attempts():
    """In order of time, with the step that it brought and the one that it ran; open ones last till now."""
    steps = pd.DataFrame(
        {
            "message_id": ["m0", "m1"],
            "step_name": ["init", "pay"],
            "position": [0, 1],
            "workflow_run_id": "w",
        }
    )
    run = run_deliveries(EVENTS, steps, "w")
    assert run.frame.drop(columns="message_id").to_numpy().tolist() == [
        ["init → pay", 0.0, 5.0, "delivered", 1],
        ["pay → (failed)", 5.0, 9.0, "failed", 1],
        ["m2", 5.0, 9.0, "pending", 0],
    ]
    assert run.tried == [(0, 2.0), (1, 7.0)]
    ax = tk.plots.plot_run_timeline(
        EVENTS, steps=steps, run_id="w", ax=Figure().add_subplot()
    )
    assert sorted(bar.get_width() for bar in ax.patches) == [4.0, 4.0, 5.0]
    assert ax.collections[0].get_offsets()[:, 0].tolist() == [2.0, 7.0]
    assert ax.texts[0].get_text() == "init → pay  5 s, 1 retry"


@pytest.mark.parametrize(
    "said", [("RETRY",), ("ERROR",), ("ACTIVE", "ERROR"), ("ACTIVE", "ERROR", "RETRY")]
)
def test_an_attempt_that_was_repeated_counts_once_however_a_service_logs_it(
    said: tuple[str, ...],
):
    """By RETRY, by ERROR or by both; an attempt after which nothing came is none of them."""
    rows = [
        (0, "CREATED"),
        *((1, state) for state in said),
        *((5, state) for state in said if state != "RETRY"),
    ]
    events = pd.DataFrame([*rows, (5, "FAILED")], columns=["time", "state"])
    events["time"] = START + pd.to_timedelta(events["time"], unit="s")
    # newest first, as the log lists them
    run = run_deliveries(events.assign(message_id="m", workflow_run_id="w")[::-1])
    assert (run.tried, run.frame["retries"].tolist()) == ([(0, 1.0)], [1])


def test_of_several_runs_one_has_to_be_named():
    """The error names those that there are; without events there is a sentence."""
    for wanted in (None, "nobody"):
        with pytest.raises(InputError, match=r"They are of: 'v', 'w'"):
            tk.plots.plot_run_timeline(EVENTS, run_id=wanted, ax=Figure().add_subplot())
    ax = tk.plots.plot_run_timeline(EVENTS.iloc[:0], ax=Figure().add_subplot())
    assert ax.texts[-1].get_text() == "No events of a run"
