"""The event log of messages: field by field from a scripted server, filter by filter from a real service."""

from __future__ import annotations

import base64
import json
import time

import pandas as pd
import pytest

import toolkit as tk
from toolkit.errors import IncompleteLoadError, InputError, ProtocolError
from toolkit_service.demo.local_service import LocalService


def log(*events, cursor="", under="events") -> bytes:
    """A page of the event log."""
    return json.dumps({under: events, "cursor": cursor}).encode()


EVENT = {
    "time": 1_767_225_600_000,
    "messageId": "msg_1",
    "state": "ERROR",
    "url": "https://a.example/orders?code=canary",
    "responseStatus": 503,
    "error": "password=canary was refused",
    "nextDeliveryTime": 1_767_225_660_000,
    "maxRetries": 3,
    "method": "POST",
    "header": {"Authorization": ["Bearer canary"], "X-A": ["1"]},
    "body": base64.b64encode('{"n": "ü"}'.encode()).decode(),
    "responseHeaders": {"Retry-After": ["60"]},
    "responseBody": "later",
    "topicName": "orders",
    "endpointName": "billing",
    "queueName": "q",
    "scheduleId": "scd_1",
    "label": "eu",
    "flowControlKey": "k",
    "timeout": 900,
}


def test_events_become_rows(server):
    """Every documented field has its column, secrets are masked, unknown fields are kept."""
    server.json(log(EVENT, cursor="next", under="logs"))
    server.json(
        log(
            {"messageId": "msg_1", "time": 1_767_225_500_000, "state": "CREATED"},
            under="logs",
        )
    )
    events = tk.load_events(server.service(), progress=False)
    first, second = events.to_dict("records")
    assert (events["time"].diff().iloc[1], first["state"]) == (
        pd.Timedelta("-100s"),
        "ERROR",
    )
    assert (first["body"], first["response_body"]) == ('{"n": "ü"}', "later")
    assert json.loads(first["response_headers"]) == {"Retry-After": ["60"]}
    assert json.loads(first["extra"]) == {"timeout": 900}
    assert json.loads(first["labels"]) == ["eu"]
    names = (
        "topic_name",
        "endpoint_name",
        "queue_name",
        "schedule_id",
        "flow_control_key",
    )
    assert [first[name] for name in names] == ["orders", "billing", "q", "scd_1", "k"]
    assert "canary" not in events.to_csv()
    assert pd.isna(second["response_status"])
    assert pd.isna(second["next_delivery_time"])
    assert [request.path for request in server.requests] == ["/v2/logs"] * 2
    assert tk.get_receipt(events).complete
    server.json(log(EVENT))
    assert (
        "canary"
        in tk.load_events(server.service(), reveal=True, progress=False).to_csv()
    )


def test_filters_are_sent_as_the_service_names_them(server):
    """On every page; an unknown state and a masked value are errors before any request."""
    server.json(log({"messageId": "a", "time": 1, "state": "FAILED"}, cursor="next"))
    server.json(log())
    wanted = {
        "state": "FAILED",
        "message_id": "a",
        "url": "https://a.example/",
        "topic_name": "t",
    }
    wanted |= {
        "schedule_id": "s",
        "queue_name": "q",
        "label": ["eu", "us"],
        "flow_control_key": "k",
    }
    events = tk.load_events(
        server.service(),
        since="2026-01-01",
        until="2026-01-02",
        filter=tk.EventFilter(**wanted),
        progress=False,
    )
    for request in server.requests:
        assert {pair for pair in request.query if pair[0] not in ("count", "cursor")} == {
            ("fromDate", "1767225600000"), ("toDate", "1767312000000"), ("state", "FAILED"),
            ("messageId", "a"), ("url", "https://a.example/"), ("topicName", "t"), ("scheduleId", "s"),
            ("queueName", "q"), ("label", "eu"), ("label", "us"), ("flowControlKey", "k"),
        }  # fmt: skip
    assert tk.get_receipt(events).scope["label"] == ["eu", "us"]
    before = len(server.requests)
    for wrong in (
        {"state": "BROKEN"},
        {"url": "https://a.example/?k=[masked len=3 tag=cef30295]"},
    ):
        with pytest.raises(InputError):
            tk.load_events(server.service(), filter=tk.EventFilter(**wrong))
    assert len(server.requests) == before


def test_an_event_that_comes_twice_is_one_row_and_is_said(server):
    """Events have no id: those that are equal in everything were read twice, others of one time were not."""
    event = {"messageId": "a", "time": 5, "state": "RETRY"}
    server.json(
        log(event, event | {"retried": 1}, event | {"state": "FAILED"}, cursor="next")
    )
    server.json(log(event, {"messageId": "b", "time": 5, "state": "RETRY"}))
    with pytest.warns(tk.errors.IncompleteLoadWarning, match="1 were read twice"):
        events = tk.load_events(server.service(), progress=False)
    assert len(events) == 4
    assert not tk.get_receipt(events).complete


def test_an_end_too_early_and_pages_that_are_none(server):
    """A cursor that comes again is an error with what was read; an event without a message is one, too."""
    server.json(log(EVENT, cursor="a"))
    server.json(log(EVENT | {"time": 1}, cursor="a"))
    with pytest.raises(IncompleteLoadError, match="cursor") as caught:
        tk.load_events(server.service(), progress=False)
    assert len(caught.value.partial) == 2
    server.json(log({"time": 1}))
    with pytest.raises(ProtocolError, match="messageId"):
        tk.load_events(server.service(), progress=False)


def test_an_empty_log_has_all_columns_and_a_log_is_kept_as_a_snapshot(server, tmp_path):
    """No events: every column with its type; what was loaded is read back the same."""
    server.json(log())
    empty = tk.load_events(server.service(), progress=False)
    server.json(log(EVENT))
    events = tk.load_events(server.service(), progress=False)
    assert dict(empty.dtypes) == dict(events.dtypes)
    tk.write_snapshot(events, tmp_path / "events")
    pd.testing.assert_frame_equal(tk.read_snapshot(tmp_path / "events"), events)


@pytest.mark.slow
def test_each_attempt_of_a_real_delivery_is_a_row():
    """Accepted, retried twice, given up; delivered messages; and what each filter leaves."""
    with LocalService(time_factor=100_000, indexes=[]) as local:
        service = tk.connect(queue_url=local.url, queue_token=local.token)
        lost = tk.publish(
            service, "http://127.0.0.1:9/closed", retries=2, labels=["eu"]
        )
        tk.publish(
            service, f"{local.url}/v2/keys", method="GET", retries=0, labels=["us"]
        )
        until = time.monotonic() + 60
        while (events := tk.load_events(service, progress=False))["state"].isin(
            ["FAILED"]
        ).sum() < 2:
            assert time.monotonic() < until
            time.sleep(0.1)
        mine = tk.load_events(
            service, filter=tk.EventFilter(message_id=lost.message_id), progress=False
        ).sort_values("time")
        assert sorted(mine["state"]) == sorted(
            ["CREATED", *["ACTIVE", "ERROR"] * 3, *["RETRY"] * 2, "FAILED"]
        )
        assert mine["response_status"].dropna().unique().tolist() == [503]
        assert mine.loc[mine["state"] == "RETRY", "next_delivery_time"].notna().all()
        assert tk.get_receipt(mine).complete
        for wanted, expected in (
            (
                {"filter": tk.EventFilter(state="RETRY")},
                events["state"] == "RETRY",
            ),
            (
                {"filter": tk.EventFilter(label="us")},
                events["labels"] == '["us"]',
            ),
            (
                {"filter": tk.EventFilter(url="http://127.0.0.1:9/closed")},
                events["message_id"] == lost.message_id,
            ),
            (
                {"since": events["time"].iloc[2]},
                events["time"] >= events["time"].iloc[2],
            ),
        ):
            found = tk.load_events(service, progress=False, **wanted)
            assert 0 < len(found) < len(events)
            assert sorted(found["message_id"] + found["state"]) == sorted(
                events.loc[expected, "message_id"] + events.loc[expected, "state"]
            )


@pytest.mark.parametrize(
    ("load", "under"), [(tk.load_events, "events"), (tk.load_runs, "runs")]
)
def test_former_arguments_are_fields_of_the_filter(server, load, under):
    """A former argument still filters, with a warning; next to a filter it is refused."""
    server.json(log(under=under))
    with pytest.warns(DeprecationWarning, match="filter="):
        load(server.service(), "7d", label="eu", progress=False)
    assert ("label", "eu") in server.requests[0].query
    with pytest.raises(TypeError, match="label"):
        load(server.service(), label="eu", filter=None)
