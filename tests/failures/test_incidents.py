"""Incidents: what rose, when, and what is left alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from tests.accuracy.histories import history, names_the_root
from toolkit.analysis import find_incidents
from toolkit.errors import InputError
from toolkit.failures.rate_windows import surprise
from toolkit.tables.failures import FailureDecoder
from toolkit.tables.frames import to_frame
from toolkit_service.demo.history import APPLICATION, wire_entries

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def sample():
    """The sample history, as it ends at NOW."""
    entries = wire_entries(int(NOW.timestamp() * 1000))
    return to_frame(FailureDecoder(None).decode(json.dumps(entries).encode()))


@pytest.mark.slow
def test_the_five_stories_of_the_sample_are_named(sample):
    """Each story is an incident: its workflow, what its failures share, and from when to when."""
    found = find_incidents(sample, now=NOW)
    titles = tk.group_failures(sample).frame.set_index("group")["title"]
    stories = [
        (
            "orders/fulfil",
            "reading 'currency'",
            "rise",
            124,
            120.5,
            1,
        ),  # hours before NOW: from, until
        ("stock/reserve", "requests a minute", "rise", 329, 41, 5),
        ("reports/render", "OutOfMemoryError", "rise", 240, 0, 1),
        ("payments/capture", "nil pointer", "rise", 3, 0, 1),
        ("legacy/sync", "Something went wrong", "steady", 336, 0, 1),
    ]
    for workflow, text, kind, start, stop, episodes in stories:
        match = [
            row
            for row in found.itertuples()
            if row.kind == kind and text in titles.get(row.shared.get("signature"), "")
        ]
        assert len(match) == 1, workflow
        row = match[0]
        assert f"{APPLICATION}/{workflow}" in row.workflows
        length = timedelta(hours=start - stop)
        assert abs(row.from_at - (NOW - timedelta(hours=start))) <= max(
            length / 5, timedelta(hours=1)
        )
        assert abs(row.until_at - (NOW - timedelta(hours=stop))) <= max(
            length / 5, timedelta(hours=1)
        )
        assert row.goes_on == (stop == 0)
        assert len(row.episodes) == episodes
    assert found["excess"][found["kind"] == "rise"].is_monotonic_decreasing
    noisy = next(row for row in found.itertuples() if len(row.episodes) == 5)
    assert noisy.shared["flow_control_key"] == "tenant-bulk-4411"
    assert noisy.shared["caller_ip"] == "203.0.113.77"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 3, 8, 9, 10, 11])
def test_incidents_with_known_roots_are_found(seed):
    """The first condition is the root, and its time is that of the incident."""
    case = history(seed)
    row = next(find_incidents(case.failures).itertuples())
    assert names_the_root([row.condition, *row.alternatives], case)
    near = max((case.stop - case.start) / 4, pd.Timedelta("30min"))
    assert abs(row.from_at - case.start) <= near
    assert abs(row.until_at - case.stop) <= near
    explanation = tk.explain_spike(case.failures)
    assert explanation.stands_out
    assert explanation.window == (row.from_at, row.until_at)
    assert explanation.frame["condition"].iloc[0] == row.condition


@pytest.mark.parametrize("seed", [4, 7, 15, 68, 500001, 500004, 500005, 500009])
def test_nothing_is_said_of_quiet_histories(seed):
    """No incident, and an explanation that does not stand out."""
    quiet = history(seed, quiet=True).failures
    assert find_incidents(quiet).empty
    assert not tk.explain_spike(quiet).stands_out


def _hourly(count, **columns):
    times = pd.date_range("2026-03-01", periods=count, freq="h", tz="UTC")
    return pd.DataFrame({"failed_at": times, "created_at": times, **columns})


def test_a_window_is_explained_beside_a_baseline():
    """Given times are taken as they are: counts by hand, and the ratio of their lengths."""
    rows = _hourly(240, workflow_url=["pay", "mail"] * 120)
    burst = _hourly(100, workflow_url="pay")
    burst["failed_at"] = pd.Timestamp("2026-03-05", tz="UTC") + pd.to_timedelta(
        np.arange(100), unit="min"
    )
    frame = pd.concat([rows, burst], ignore_index=True)
    window = (datetime(2026, 3, 5, tzinfo=UTC), datetime(2026, 3, 5, 2, tzinfo=UTC))
    baseline = (datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 3, tzinfo=UTC))
    found = tk.explain_spike(frame, window, baseline)
    assert (found.observed, found.expected) == (102, 2)  # 48 in 48 hours
    assert found.frame["condition"].iloc[0] == {"workflow_url": "pay"}
    assert found.window == window
    assert repr(found).startswith(
        "2026-03-05 00:00 to 2026-03-05 02:00 UTC: 102 observed, 2 expected: "
    )
    assert tk.explain_spike(frame, window).expected == pytest.approx(
        238 / 237.0 * 2, rel=0.02
    )


def test_a_small_step_of_one_workflow_is_found():
    """A workflow that fails four times as often for a day, beside a hundred times as many others."""
    random = np.random.default_rng(5)
    minutes = np.sort(random.integers(0, 14 * 1440, 6000))
    step = 9 * 1440 + random.integers(0, 1440, 40)
    quiet = random.integers(0, 14 * 1440, 60)
    times = pd.Timestamp("2026-03-01", tz="UTC") + pd.to_timedelta(
        np.concatenate([minutes, step, quiet]), unit="min"
    )
    names = [
        *(f"w{number}" for number in random.integers(0, 9, 6000)),
        *["small"] * 100,
    ]
    frame = pd.DataFrame(
        {"failed_at": times, "created_at": times, "workflow_url": names}
    )
    found = find_incidents(frame)
    assert found["condition"].tolist() == [{"workflow_url": "small"}]
    assert abs(
        found["from_at"].iloc[0] - pd.Timestamp("2026-03-10", tz="UTC")
    ) < pd.Timedelta("3h")


def test_a_rise_that_no_condition_explains_at_other_times_is_no_error():
    """Failures of some days, looked at months later, whose times together no condition explains."""
    some, count = np.random.default_rng(0), 600
    failed = pd.Timestamp("2026-03-14", tz="UTC") + pd.to_timedelta(
        some.uniform(0, 5, count), unit="D"
    )
    frame = pd.DataFrame(
        {
            "workflow_url": [
                f"https://a.example/{number}" for number in some.integers(0, 14, count)
            ],
            "failed_at": failed,
            "created_at": failed
            - pd.to_timedelta(some.exponential(9000, count), unit="s"),
            "response_status": some.choice([404, 429, 500, 502], count),
            "max_retries": some.integers(0, 6, count),
            "failure_function_state": [f"S{number}" for number in range(count)],
            "response_body": [
                f"text {number % 10} {number}" for number in range(count)
            ],
        }
    ).assign(workflow_run_id="w", labels=None)
    found = find_incidents(frame, now=datetime(2026, 11, 23, tzinfo=UTC))
    assert {"incident", "condition"} & set(found.columns)


def test_labels_are_found_one_by_one():
    """A label that rose is named, however many others stand beside it."""
    labels = [json.dumps(["a"] + ["b"] * (number % 2)) for number in range(240)]
    rows = _hourly(240, workflow_url=["x", "y", "z"] * 80, labels=labels)
    burst = _hourly(
        60,
        workflow_url=["x", "y", "z"] * 20,
        labels=['["a", "release"]', '["release"]'] * 30,
    )
    burst["failed_at"] = pd.Timestamp("2026-03-05", tz="UTC") + pd.to_timedelta(
        np.arange(60), unit="min"
    )
    found = find_incidents(pd.concat([rows, burst], ignore_index=True))
    assert found["condition"].tolist() == [{"label": "release"}]


def test_secrets_are_in_no_condition():
    """Values of secret headers and tokens in JSON fields are masked in conditions and what is shared."""
    rows = _hourly(
        240,
        workflow_url=["x", "y"] * 120,
        headers=json.dumps({"X-Api-Key": ["hunter2-hunter2"]}),
    )
    burst = _hourly(
        80, workflow_url="x", headers=json.dumps({"X-Api-Key": ["swordfish-swordfish"]})
    )
    burst["failed_at"] = pd.Timestamp("2026-03-05", tz="UTC") + pd.to_timedelta(
        np.arange(80), unit="min"
    )
    found = find_incidents(pd.concat([rows, burst], ignore_index=True))
    assert len(found) == 1
    assert "swordfish" not in str(found.to_dict("records"))


@pytest.mark.parametrize("rows", [0, 1, 2, 9, 200])
def test_hostile_frames_have_a_result(rows):
    """Nulls, no rows, one row, equal times, broken JSON, huge and odd texts: no incident, all columns."""
    odd = [
        "{",
        '{"a":' * 3000,
        "\x00",
        "[1]",
        "x" * 300_000,
        None,
        '{"a": {"b": 1e999}}',
    ]
    frame = _hourly(rows, **{
        name: pd.Series([odd[number % len(odd)] for number in range(rows)], dtype="str")
        for name in ("workflow_url", "labels", "label", "headers", "body", "extra", "caller_ip")
    })  # fmt: skip
    for times in (frame["failed_at"], pd.NaT, pd.Timestamp("2026-03-01", tz="UTC")):
        when = pd.Series(times, index=frame.index, dtype="datetime64[ms, UTC]")
        found = find_incidents(frame.assign(failed_at=when, created_at=when))
        assert list(found.columns[:4]) == ["rank", "kind", "condition", "workflows"]
        assert found.query("kind == 'rise'").empty


def test_the_same_frame_in_another_order_has_the_same_incidents():
    """Rows in any order, and any index: the same result."""
    case = history(3).failures
    found = find_incidents(case)
    again = find_incidents(case.sample(frac=1, random_state=1))
    pd.testing.assert_frame_equal(found, again)


@pytest.mark.parametrize(
    "arguments",
    [
        {"window": 5},
        {"window": (NOW, NOW)},
        {"window": (NOW,)},
        {"window": (NOW - timedelta(1), NOW), "baseline": "x"},
    ],
)
def test_wrong_times_are_refused(arguments):
    """Times that are no pair in order are an InputError that names the argument."""
    with pytest.raises(InputError):
        tk.explain_spike(_hourly(5, workflow_url="x"), **arguments)


@pytest.mark.parametrize(
    ("usual", "mean", "observed"),
    [(0, 1.0, 2), (3, 1.0, 3), (2, 4.0, 9), (40, 2.5, 14)],
)
def test_the_chance_of_bursts_is_that_of_a_simulation(
    usual: int, mean: float, observed: int
) -> None:
    """Of so many failures in a tenth of the time in which some bursts of geometric sizes came."""
    rng = np.random.default_rng(4)
    bursts = rng.poisson(rng.gamma(usual + 1, 1 / 10, 200_000))
    sizes = bursts + rng.negative_binomial(np.maximum(bursts, 1), 1 / mean) * (
        bursts > 0
    )
    chance = float((sizes >= observed).mean())
    assert chance > 0.001
    assert surprise(observed, usual, 10.0, mean) == pytest.approx(
        -np.log(chance), abs=0.1
    )


def _two_rises(first: str, second: str, *, apart: timedelta) -> pd.DataFrame:
    """A usual failure every six hours, and two workflows that begin to fail with a response of their own."""
    usual = pd.date_range(NOW - timedelta(days=14), NOW, freq="6h")
    begins = [NOW - timedelta(hours=3), NOW - timedelta(hours=3) + apart]
    rows = [("mail", time, 502, "Bad gateway") for time in usual]
    for workflow, begin, response in zip(
        ("orders", "invoices"), begins, (first, second), strict=True
    ):
        rows += [
            (workflow, time, 500, response)
            for time in pd.date_range(begin, NOW, freq="40s")
        ]

    return _frame(rows)


def _frame(rows: list[tuple[str, pd.Timestamp, int, str]]) -> pd.DataFrame:
    """Failures with a workflow, a time, a status and a response."""
    frame = pd.DataFrame(
        rows, columns=["workflow_url", "failed_at", "response_status", "response_body"]
    )
    return frame.assign(
        dlq_id=[f"d{number}" for number in range(len(frame))],
        workflow_run_id=[f"wfr_{number}" for number in range(len(frame))],
        created_at=frame["failed_at"],
        response_body_base64=None,
    )


_BUG = '{"error": "TypeError: no total of undefined"}'
_DISK = '{"error": "no space left on device"}'


def test_other_errors_of_other_workflows_that_began_at_other_times_are_two_incidents():
    """Although all of them have status 500, and all other failures another one."""
    found = find_incidents(_two_rises(_BUG, _DISK, apart=timedelta(hours=1)), now=NOW)
    rises = found[found["kind"] == "rise"]
    assert [row.workflows for row in rises.itertuples()] == [
        ("orders",),
        ("invoices",),
    ]
    assert list(rises["from_at"]) == [
        NOW - timedelta(hours=3),
        NOW - timedelta(hours=2),
    ]
    assert list(rises["observed"]) == [271, 181]


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        pytest.param(_BUG, _DISK, timedelta(minutes=2), id="began together"),
        pytest.param(_BUG, _BUG, timedelta(hours=1), id="one error"),
        pytest.param(
            '{"error": "PayDrop declined"}', '{"error": "503 from PayDrop"}',
            timedelta(hours=1), id="one third party",
        ),
    ],
)  # fmt: skip
def test_workflows_with_one_likely_cause_are_one_incident(first, second, apart):
    """They began together, or have an error or a name in common."""
    found = find_incidents(_two_rises(first, second, apart=apart), now=NOW)
    assert len(found[found["kind"] == "rise"]) == 1


def test_ordinary_words_and_keys_of_responses_are_no_names():
    """Only the name of a third party is worth a title."""
    failures = _two_rises(_BUG, _DISK, apart=timedelta())
    shared = find_incidents(failures, now=NOW)["shared"].iloc[0]
    assert "mentioned" not in shared


def test_a_nightly_job_is_found_next_to_a_release_with_the_same_status():
    """The release is found first. Its failures, which are left out then, tell the nights apart from it."""
    usual = pd.date_range(NOW - timedelta(days=14), NOW, freq="3h")
    nights = pd.date_range(NOW - timedelta(days=4), NOW, freq="D").normalize()
    release = pd.date_range(
        NOW - timedelta(days=2), NOW - timedelta(days=1), freq="90s"
    )
    nightly = ("a", "b", "c")
    rows = [
        ((*nightly, "orders")[number % 4], time, 502, "Bad gateway")
        for number, time in enumerate(usual)
    ]
    rows += [("orders", time, 500, _BUG) for time in release]
    rows += [
        (nightly[number % 3], night + timedelta(hours=3, seconds=20 * number), 500, _DISK)
        for night in nights
        for number in range(40)
    ]  # fmt: skip

    found = find_incidents(_frame(rows), now=NOW)
    rises = found[found["kind"] == "rise"]
    assert [row.workflows for row in rises.itertuples()] == [("orders",), nightly]
    assert list(rises["observed"]) == [len(release), 40 * len(nights)]
    assert rises["period"].iloc[1] == "every day at 03:00"


@pytest.mark.parametrize("per_night", [4, 12, 40])
def test_a_nightly_job_that_makes_most_failures_is_found(per_night: int):
    """Its nights are the daily wave of the history, so no night is a rise."""
    nights = pd.date_range(NOW - timedelta(days=14), periods=14, freq="D").normalize()
    rows = [
        ("stock", night + timedelta(hours=3, minutes=10, seconds=25 * number), 500, _DISK)
        for night in nights
        for number in range(per_night)
    ]  # fmt: skip
    usual = pd.date_range(NOW - timedelta(days=14), NOW, freq="5h13min")
    rows += [("orders", time, 502, "Bad gateway") for time in usual]

    (row,) = find_incidents(_frame(rows), now=NOW).to_dict("records")
    assert (row["kind"], row["period"]) == ("rise", "every day at 03:10")
    assert (row["workflows"], row["observed"]) == (("stock",), 14 * per_night)
    assert len(row["episodes"]) == 14
    assert row["episodes"][0][1] - row["episodes"][0][0] < timedelta(minutes=20)


def test_failures_at_random_times_are_not_regular():
    """As many failures, on as many days, but at any hour."""
    rng = np.random.default_rng(6)
    days = pd.date_range(NOW - timedelta(days=14), periods=14, freq="D").normalize()
    rows = [
        ("stock", day + timedelta(hours=hour, seconds=25 * number), 500, _DISK)
        for day, hour in zip(days, rng.uniform(0, 23, 14), strict=True)
        for number in range(12)
    ]
    found = find_incidents(_frame(rows), now=NOW)
    assert found["period"].isna().all()


@pytest.mark.parametrize(("per_hour", "kind"), [(1, "steady"), (5, "rise")])
def test_an_hourly_job_is_one_row_and_goes_on(per_hour: int, kind: str):
    """A failure per hour is a timer, five are an episode. Neither has ended some minutes before the next."""
    hours = pd.date_range(NOW - timedelta(days=9), NOW - timedelta(minutes=5), freq="h")
    rows = [
        ("stock", hour + timedelta(seconds=4 * number**2), 500, _DISK)
        for hour in hours
        for number in range(per_hour)
    ]
    usual = pd.date_range(NOW - timedelta(days=9), NOW, freq="13h17min")
    rows += [("orders", time, 502, "Bad gateway") for time in usual]
    rows += [("mail", time, 429, "Too many requests") for time in usual]

    (row,) = find_incidents(_frame(rows), now=NOW).to_dict("records")
    assert (row["kind"], row["observed"], row["goes_on"]) == (
        kind,
        len(hours) * per_hour,
        True,
    )
    assert row["period"] == "every hour at minute 0"
