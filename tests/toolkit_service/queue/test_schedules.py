"""Schedules: due at the times of their expressions and at no others, also across restarts and kills."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit_service.api import ApiError
from toolkit_service.queue.schedules import next_time

Service = Any
Server = Any


def make(
    service: Service, destination: str, cron: str, body: bytes = b"", **headers: str
) -> str:
    """Make a schedule; returns its id."""
    named = {
        f"Service-{name.replace('_', '-')}": value for name, value in headers.items()
    }
    headers = named | {"Service-Cron": cron}
    response = service.http.post(
        f"/v2/schedules/{destination}", content=body, headers=headers
    )
    assert response.status_code == 200, response.text
    return response.json()["scheduleId"]


def shown(service: Service, schedule: str) -> dict[str, Any]:
    """A schedule as it is shown."""
    return service.http.get(f"/v2/schedules/{schedule}").json()


def to_minute(service: Service) -> None:
    """Advance the clock to the start of the next minute."""
    service.clock.advance(seconds=(60_000 - service.clock.now_ms() % 60_000) / 1000)


def to_hour(service: Service) -> None:
    """Advance the clock to the start of the next hour."""
    service.clock.advance(
        seconds=(3_600_000 - service.clock.now_ms() % 3_600_000) / 1000
    )


def settled(service: Service, server: Server) -> int:
    """How many requests there are once all that is due has been delivered."""
    probe = service.publish(f"{server.url}/probe")["messageId"]
    service.wait(lambda: "DELIVERED" in service.events(probe))
    return sum(request.path != "/probe" for request in server.requests)


def test_a_message_is_made_at_each_time(service: Service, server: Server) -> None:
    """Once a minute, however often the service looks; `scheduleId` is in logs, callbacks and entries."""
    server.always(b"{}")
    to_minute(service)
    schedule = make(
        service,
        f"{server.url}/tick",
        "* * * * *",
        b"x",
        Method="PUT",
        Label="l",
        Retries="0",
    )
    assert settled(service, server) == 0
    for count in range(1, 5):
        service.clock.advance(seconds=60)
        service.wait(lambda count=count: settled(service, server) == count)
        service.clock.advance(seconds=29)
        assert settled(service, server) == count
        service.clock.advance(seconds=-29)
        assert settled(service, server) == count
    ticks = [request for request in server.requests if request.path == "/tick"]
    assert {(request.method, request.body) for request in ticks} == {("PUT", b"x")}
    logged = service.http.get(
        "/v2/logs", params={"scheduleId": schedule, "state": "DELIVERED"}
    ).json()["logs"]
    assert len(logged) == 4
    now = service.clock.now_ms()
    listed = shown(service, schedule)
    assert (listed["lastScheduleTime"], listed["nextScheduleTime"]) == (
        now,
        now + 60_000,
    )
    assert listed["lastScheduleStates"] == {logged[0]["messageId"]: "SUCCESS"}


def test_what_fails_says_of_which_schedule_it_was(
    service: Service, server: Server
) -> None:
    """In the failure callback, in the DLQ and in the states of the schedule."""
    server.always(b"no", 500)
    to_hour(service)
    schedule = make(
        service,
        f"{server.url}/a",
        "0 * * * *",
        Schedule_Id="mine",
        Retries="0",
        Failure_Callback=f"{server.url}/failed",
        Delay="10m",
    )
    assert schedule == "mine"
    service.clock.advance(seconds=3600)
    service.wait(lambda: shown(service, "mine").get("lastScheduleStates"))
    assert list(shown(service, "mine")["lastScheduleStates"].values()) == [
        "IN_PROGRESS"
    ]
    assert server.requests == []
    service.clock.advance(seconds=600)
    service.wait(lambda: len(server.requests) >= 2)
    assert json.loads(server.requests[1].body)["scheduleId"] == "mine"
    assert [entry["scheduleId"] for entry in service.dlq(scheduleId="mine")] == ["mine"]
    assert list(shown(service, "mine")["lastScheduleStates"].values()) == ["FAIL"]


def test_times_missed_while_it_was_down_count_once(
    served: Callable[..., Any], server: Server
) -> None:
    """After a restart there is one message for all of them, and then one at each time again."""
    server.always(b"{}")
    with served() as service:
        to_minute(service)
        schedule = make(service, f"{server.url}/tick", "* * * * *")
        clock = service.clock
    clock.advance(seconds=600)
    with served(clock=clock) as service:
        service.wait(lambda: settled(service, server) == 1)
        service.clock.advance(seconds=60)
        service.wait(lambda: settled(service, server) == 2)
        assert shown(service, schedule)["nextScheduleTime"] == clock.now_ms() + 60_000
    for count in range(3, 6):
        with served(clock=clock) as service:
            # a restart between any two times makes none twice
            assert settled(service, server) == count - 1
            service.clock.advance(seconds=60)
            service.wait(
                lambda service=service, count=count: settled(service, server) == count
            )


def test_a_paused_schedule_makes_none_and_does_not_catch_up(
    service: Service, server: Server
) -> None:
    """Resumed, it goes on from its next time."""
    server.always(b"{}")
    to_minute(service)
    schedule = make(service, f"{server.url}/tick", "* * * * *")
    assert service.http.post(f"/v2/schedules/{schedule}/pause").status_code == 200
    assert shown(service, schedule)["isPaused"]
    service.clock.advance(seconds=600)
    assert settled(service, server) == 0
    service.http.post(f"/v2/schedules/{schedule}/resume")
    assert settled(service, server) == 0
    service.clock.advance(seconds=60)
    service.wait(lambda: settled(service, server) == 1)
    assert service.http.delete(f"/v2/schedules/{schedule}").status_code == 200
    service.clock.advance(seconds=600)
    assert settled(service, server) == 1
    assert service.http.get(f"/v2/schedules/{schedule}").status_code == 404
    assert service.http.delete(f"/v2/schedules/{schedule}").status_code == 404


def test_a_known_id_changes_the_schedule(service: Service, server: Server) -> None:
    """It keeps its age and its pause; all else is as given last."""
    make(service, f"{server.url}/a", "1 1 1 1 1", b"old", Schedule_Id="s", Label="l")
    before = shown(service, "s")
    service.http.post("/v2/schedules/s/pause")
    service.clock.advance(seconds=5)
    make(
        service,
        f"{server.url}/b",
        "*/5 * * * *",
        b"new",
        Schedule_Id="s",
        Queue_Name="q",
    )
    (after,) = service.http.get("/v2/schedules").json()
    assert (after["createdAt"], after["isPaused"]) == (before["createdAt"], True)
    assert (after["destination"], after["cron"], after["body"]) == (
        f"{server.url}/b",
        "*/5 * * * *",
        "new",
    )
    assert (after["queueName"], "labels" in after) == ("q", False)


def test_groups_and_queues_are_destinations(service: Service, server: Server) -> None:
    """A message an endpoint, through the queue; a group that is gone by then is said in `error`."""
    server.always(b"{}")
    endpoints = [{"url": f"{server.url}/{name}"} for name in "ab"]
    service.http.post("/v2/topics/both/endpoints", json={"endpoints": endpoints})
    to_hour(service)
    schedule = make(service, "both", "0 * * * *", Queue_Name="q")
    service.clock.advance(seconds=3600)
    service.wait(lambda: len(server.requests) == 2)
    logged = service.http.get(
        "/v2/logs", params={"queueName": "q", "state": "CREATED"}
    ).json()["logs"]
    assert {(event["topicName"], event["scheduleId"]) for event in logged} == {
        ("both", schedule)
    }
    service.http.delete("/v2/topics/both")
    service.clock.advance(seconds=3600)
    service.wait(lambda: "URL group" in shown(service, schedule).get("error", ""))
    assert len(server.requests) == 2


def test_redacted_fields_are_not_shown(service: Service, server: Server) -> None:
    """The schedule shows hashes of what the publish redacts."""
    schedule = make(
        service, f"{server.url}/a", "1 1 1 1 1", b"the secret", Redact_Fields="body"
    )
    assert "the secret" not in service.http.get(f"/v2/schedules/{schedule}").text


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({}, "Cron"),
        *(
            ({"Service-Cron": cron}, "Cron")
            for cron in (
                "* * * *", "* * * * * *", "60 * * * *", "* * 32 * *", "*/0 * * * *", "0 0 30 2 *", "@daily",
                "CRON_TZ=Nowhere/At * * * * *", "CRON_TZ=../../etc/passwd * * * * *", "1," * 200, "x" * 5000,
                "5-1 * * * *", "CRON_TZ=UTC", "-1 * * * *",
            )
        ),
        ({"Service-Cron": "* * * * *", "Service-Schedule-Id": "a b"}, "Schedule-Id"),
        ({"Service-Cron": "* * * * *", "Service-Queue-Name": "a/b"}, "Queue-Name"),
        ({"Service-Cron": "* * * * *", "Service-Not-Before": "1"}, "one message"),
        ({"Service-Cron": "* * * * *", "Service-Deduplication-Id": "1"}, "one message"),
        ({"Service-Cron": "* * * * *", "Service-Workflow-RunId": "wfr_1"}, "one message"),
        ({"Service-Cron": "* * * * *", "Service-Callback": "ftp://127.0.0.1/"}, "callback"),
    ],
)  # fmt: skip
def test_unusable_schedules_are_refused(
    shared: Service, headers: dict[str, str], says: str
) -> None:
    """With what was got and expected; nothing is stored."""
    response = shared.http.post("/v2/schedules/http://127.0.0.1:9/", headers=headers)
    assert (response.status_code, says in response.json()["error"]) == (400, True), (
        response.text
    )
    assert shared.http.get("/v2/schedules").json() == []


def test_destinations_are_those_of_a_publish(shared: Service) -> None:
    """Neither hosts elsewhere nor unknown groups."""
    for destination in ("http://169.254.169.254/", "nobody", "ftp://127.0.0.1/"):
        response = shared.http.post(
            f"/v2/schedules/{destination}", headers={"Service-Cron": "* * * * *"}
        )
        assert response.status_code == 400, response.text


@pytest.mark.slow
@given(
    minute=st.sampled_from(["*", "*/7", "0", "5,35", "10-20"]),
    hour=st.sampled_from(["*", "3", "*/6", "9-17"]),
    day=st.sampled_from(["*", "1", "*/10"]),
    month=st.sampled_from(["*", "2", "1-6"]),
    start=st.datetimes(datetime(2026, 1, 1), datetime(2029, 1, 1)),  # noqa: DTZ001 - UTC, added below
)
def test_no_time_is_skipped(
    minute: str, hour: str, day: str, month: str, start: datetime
) -> None:
    """The next time is the first minute after the start that all fields allow, tried one after the other."""

    def allowed(field: str, value: int, low: int) -> bool:
        if field.startswith("*/"):
            return (value - low) % int(field[2:]) == 0
        if "-" in field:
            first, last = map(int, field.split("-"))
            return first <= value <= last
        return field == "*" or value in map(int, field.split(","))

    moment = start.replace(second=0, microsecond=0, tzinfo=UTC) + timedelta(minutes=1)
    for _ in range(3 * 24 * 60):
        fields = (
            (minute, moment.minute, 0),
            (hour, moment.hour, 0),
            (day, moment.day, 1),
            (month, moment.month, 1),
        )
        if all(allowed(*field) for field in fields):
            break
        moment += timedelta(minutes=1)
    else:
        moment = datetime.max.replace(tzinfo=UTC)
    actual = next_time(
        f"{minute} {hour} {day} {month} *",
        round(start.replace(tzinfo=UTC).timestamp() * 1000),
    )
    assert actual is not None
    assert actual == round(moment.timestamp() * 1000) or (
        moment.year == 9999 and actual > start.timestamp() * 1000
    )


def test_time_zones_follow_their_clocks() -> None:
    """Nine in the morning in Berlin is another time of UTC in winter than in summer."""
    berlin = ZoneInfo("Europe/Berlin")
    at = round(datetime(2026, 3, 27, 12, tzinfo=berlin).timestamp() * 1000)
    hours = []
    for _ in range(4):
        at = next_time("CRON_TZ=Europe/Berlin 0 9 * * *", at) or 0
        hours.append(
            (
                datetime.fromtimestamp(at / 1000, berlin).hour,
                datetime.fromtimestamp(at / 1000, UTC).hour,
            )
        )
    assert hours == [(9, 8), (9, 7), (9, 7), (9, 7)]
    with pytest.raises(ApiError):
        next_time("CRON_TZ=Berlin 0 9 * * *", at)
