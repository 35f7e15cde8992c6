"""Ten stories that engineers on call know: each is named by its workflow, what is shared, start and end."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit.analysis import find_incidents
from toolkit.failures.periods import period_in_words
from toolkit.tables.schemas import FAILURES

START = pd.Timestamp("2026-03-01", tz="UTC")
DAYS = 14
END = START + pd.Timedelta(days=DAYS)
FLOWS = [
    "orders",
    "invoices",
    "emails",
    "exports",
    "payments",
    "refunds",
    "search",
    "stock",
]
TENANTS = [f"tenant-{number}" for number in range(12)]
REGIONS = ["fra", "iad", "sin"]
USUAL = [
    (500, "TypeError: Cannot read properties of undefined (reading 'total')"),
    (502, "upstream closed the connection"),
    (504, "request timed out after {n} ms"),
    (409, "version {n} is older than the stored one"),
]


class Story:
    """A history with a calm background, to which failures are added."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._rows: list[dict[str, Any]] = []
        for hour in self._rng.uniform(0, DAYS * 24, 1500):
            status, text = USUAL[self._rng.choice(len(USUAL), p=[0.4, 0.2, 0.3, 0.1])]
            self.add(hour, status=status, text=text)

    def add(self, hour: float, **known: Any) -> None:
        """Add a failure; what is not known is drawn."""
        drawn = {
            "flow": self._rng.choice(FLOWS),
            "tenant": self._rng.choice(TENANTS),
            "region": self._rng.choice(REGIONS),
            "label": self._rng.choice(["web", "batch"]),
            "status": 500,
            "text": "x",
        }
        self._rows.append(drawn | known | {"hour": hour})

    def spread(self, first: float, last: float, count: int, **known: Any) -> None:
        """Add failures at random times of a span; a list of texts or workflows is drawn from."""
        for hour in self._rng.uniform(first, last, count):
            one = {
                name: value[self._rng.integers(len(value))]
                if isinstance(value, list)
                else value
                for name, value in known.items()
            }
            self.add(hour, **one)

    def growing(self, first: float, last: float, count: int, **known: Any) -> None:
        """Add failures that become more frequent."""
        for share in np.sqrt(self._rng.uniform(0, 1, count)):
            self.add(first + share * (last - first), **known)

    def frame(self) -> pd.DataFrame:
        """Return the failures, oldest first."""
        rows = pd.DataFrame(self._rows).sort_values("hour", ignore_index=True)
        when = (
            (START + pd.to_timedelta(rows["hour"], unit="h"))
            .dt.floor("s")
            .dt.as_unit("ms")
        )
        numbers = self._rng.integers(1, 10**6, len(rows))
        urls = "https://shop.example.com/flows/" + rows["flow"]
        frame = pd.DataFrame(
            {
                "dlq_id": [f"d{number}" for number in range(len(rows))],
                "workflow_run_id": [f"wfr_{number}" for number in range(len(rows))],
                "workflow_url": urls,
                "url": urls,
                "failed_at": when,
                "created_at": when,
                "flow_control_key": rows["tenant"],
                "labels": [json.dumps([label]) for label in rows["label"]],
                "headers": [
                    json.dumps({"X-Region": [region]}) for region in rows["region"]
                ],
                "response_status": rows["status"].astype("Int64"),
                "response_body": [
                    text.format(n=n)
                    for text, n in zip(rows["text"], numbers, strict=True)
                ],
            }
        )
        return frame.reindex(columns=FAILURES.names)


def found(story: Story) -> pd.Series:
    """Return the largest incident."""
    incidents = find_incidents(story.frame(), now=END.to_pydatetime())
    assert len(incidents), "no incident was found"
    return incidents.iloc[0]


def near(one: pd.Timestamp, hour: float, within: float) -> bool:
    """Return whether a time is at most so many hours from an hour of the history."""
    return bool(
        abs(one - (START + pd.Timedelta(hours=hour))) <= pd.Timedelta(hours=within)
    )


def flow(name: str) -> str:
    """Return the address of a workflow."""
    return f"https://shop.example.com/flows/{name}"


def test_a_deploy_that_breaks_one_workflow() -> None:
    """Its workflow and its error, since the deploy, and ongoing."""
    story = Story(1)
    story.spread(300, 336, 220, flow="orders", text="KeyError: 'currency'")
    row = found(story)
    assert row["shared"]["workflow_url"] == flow("orders")
    assert row["goes_on"]
    assert near(row["from_at"], 300, 2)
    assert row["observed"] == pytest.approx(220, rel=0.1)


def test_an_outage_of_a_third_party_under_three_messages() -> None:
    """Three workflows and three messages have one name in common: the third party."""
    story = Story(2)
    for name, text in (
        ("orders", "charge failed: 502 from PayDrop"),
        ("refunds", "PayDrop did not answer, refund is open"),
        ("payments", "cannot capture, PayDrop is not available"),
    ):
        story.spread(200, 206, 90, flow=name, text=text, status=502)
    row = found(story)
    assert row["shared"]["mentioned"] == "PayDrop"
    assert set(row["workflows"][:3]) == {
        flow(name) for name in ("orders", "refunds", "payments")
    }
    assert near(row["from_at"], 200, 0.5)
    assert near(row["until_at"], 206, 0.5)
    assert not row["goes_on"]
    report = tk.report_failures(story.frame(), now=END.to_pydatetime())
    assert "PayDrop" in report.verdict
    # each of the errors is one of a dependency
    assert "Wait for the dependency" in report.to_markdown()
    for form in (report.to_html(), report.to_markdown()):
        assert "docs/groups-and-explanations.md" in form


def test_a_tenant_at_its_rate_limit_in_four_episodes() -> None:
    """The key of the tenant, and four episodes."""
    story = Story(3)
    for begin in (50, 121, 200, 290):
        story.spread(
            begin,
            begin + 3,
            60,
            tenant="tenant-7",
            flow="exports",
            status=429,
            text="too many requests",
        )
    row = found(story)
    assert row["shared"]["flow_control_key"] == "tenant-7"
    assert len(row["episodes"]) == 4
    assert near(row["from_at"], 50, 1)
    assert near(row["until_at"], 293, 1)
    assert pd.isna(row["period"])


def test_a_slow_leak() -> None:
    """A workflow that fails more and more for five days, and still does."""
    story = Story(4)
    story.growing(
        216, 336, 300, flow="search", text="MemoryError: cannot allocate {n} bytes"
    )
    row = found(story)
    assert row["shared"]["workflow_url"] == flow("search")
    assert row["goes_on"]
    assert near(row["from_at"], 216, 48)


def test_an_expired_certificate() -> None:
    """All failures of one workflow since the minute at which it expired."""
    story = Story(5)
    story.spread(
        240,
        336,
        400,
        flow="emails",
        status=502,
        text="certificate has expired for smtp.example.net",
    )
    row = found(story)
    assert row["shared"]["workflow_url"] == flow("emails")
    assert near(row["from_at"], 240, 2)
    assert row["goes_on"]


@pytest.mark.parametrize(
    ("stop", "goes_on"), [(336, True), (334.5, True), (333.5, True), (312, False)]
)
def test_failures_in_clumps_with_pauses(stop: float, *, goes_on: bool) -> None:
    """A pause that is as long as the others does not end an incident, and a longer one does."""
    story = Story(11)
    for begin in np.arange(stop - 45, stop, 3):
        story.spread(begin, begin + 0.05, 12, flow="orders", text="KeyError: 'region'")
    row = found(story)
    assert row["shared"]["workflow_url"] == flow("orders")
    assert row["goes_on"] == goes_on


def test_a_nightly_job_is_one_incident_that_has_ended_by_noon() -> None:
    """Each night, 25 failures within eight minutes: the nights are not listed one by one."""
    story = Story(12)
    for night in range(3, 14 * 24, 24):
        story.spread(night, night + 0.13, 25, flow="exports", status=409, text="locked")
    noon = START + pd.Timedelta(days=DAYS - 1, hours=12)
    incidents = find_incidents(story.frame(), now=noon.to_pydatetime())
    assert incidents["period"].str.match("every day at 03:0[0-2]").tolist() == [True]
    assert incidents["observed"].tolist() == [14 * 25]
    assert near(incidents["until_at"].iloc[0], 13 * 24 + 3, 0.2)
    assert not incidents["goes_on"].any()


def test_a_callback_address_that_is_gone() -> None:
    """A status that was never seen before, in one workflow."""
    story = Story(6)
    story.spread(264, 336, 150, flow="invoices", status=410, text="Gone")
    row = found(story)
    assert row["shared"]["workflow_url"] == flow("invoices")
    assert row["shared"]["response_status"] == "410"
    assert near(row["from_at"], 264, 3)
    assert row["goes_on"]


def test_a_batch_of_poison_input() -> None:
    """The label of the batch, and twenty minutes."""
    story = Story(7)
    story.spread(
        180,
        180.3,
        120,
        flow="exports",
        label="migration",
        status=422,
        text="quantity must be positive",
    )
    row = found(story)
    assert row["shared"]["label"] == "migration"
    assert near(row["from_at"], 180, 0.2)
    assert near(row["until_at"], 180.3, 0.2)
    assert not row["goes_on"]


def test_an_outage_of_a_region() -> None:
    """The region, in all workflows."""
    story = Story(8)
    story.spread(
        150, 153, 300, region="sin", status=504, text=[text for _, text in USUAL]
    )
    row = found(story)
    conditions = [row["condition"], *row["alternatives"]]
    assert any(condition.get("header X-Region") == "sin" for condition in conditions)
    assert row["workflow_count"] == len(FLOWS)
    assert near(row["from_at"], 150, 0.5)
    assert near(row["until_at"], 153, 0.5)


@pytest.mark.parametrize("nights", [4, DAYS])
def test_a_nightly_lock_has_its_period(nights: int) -> None:
    """Every day at 03:10, in the frame and in the report; also if it fails in all nights of the history."""
    story = Story(9)
    for day in range(DAYS - nights, DAYS):
        for minute in np.linspace(10, 24, 25):
            story.add(
                24 * day + 3 + minute / 60,
                flow="stock",
                text="database is locked by session {n}",
            )
    row = found(story)
    assert row["shared"]["workflow_url"] == flow("stock")
    assert row["period"] == "every day at 03:10"
    assert row["observed"] == 25 * nights
    page = tk.report_failures(story.frame(), now=END.to_pydatetime()).to_markdown()
    assert "every day at 03:10" in page


def test_a_quiet_fortnight() -> None:
    """Nothing rose."""
    assert find_incidents(Story(10).frame(), now=END.to_pydatetime()).empty


@pytest.mark.parametrize(
    ("hours", "period"),
    [
        ([3, 27, 51, 75], "every day at 03:00"),
        ([3, 51, 75, 99], "every day at 03:00"),  # a night is missing
        ([27, 51.2, 75, 98.9], "every day at 03:00"),
        ([3, 27], None),
        ([3, 30, 40, 90], None),
        ([0, 168, 336], "every Sunday at 00:00"),
        ([5.5, 6.5, 7.5, 8.5], "every hour at minute 30"),
    ],
)
def test_periods(hours: list[float], period: str | None) -> None:
    """A night can be missing and a job can be late; two episodes, and irregular ones, have no period."""
    begins = [(START + pd.Timedelta(hours=hour)).value for hour in hours]
    assert period_in_words(begins) == period
