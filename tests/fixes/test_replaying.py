"""Failed requests that are sent again to an application on this machine."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from typing import Any

import pandas as pd
import pytest

import toolkit as tk
from toolkit.secrets.redaction import Redactor

KEY = "sig_" + "k" * 40


def failures(*bodies: str, **columns: Any) -> pd.DataFrame:
    """Return rows as `load_failures` returns them, one per recorded response."""
    times = pd.date_range("2026-01-01", periods=len(bodies), freq="h", tz="UTC")
    frame = pd.DataFrame(
        {
            "dlq_id": [f"dlq_{number}" for number in range(len(bodies))],
            "workflow_url": "https://shop.example/flows/pay",
            "method": "POST",
            "response_status": pd.array([500] * len(bodies), dtype="Int64"),
            "response_body": list(bodies),
            "response_body_base64": pd.array([None] * len(bodies), dtype="str"),
            "headers": json.dumps({"Upstash-Message-Id": ["msg_1"], "X-Tenant": ["a"]}),
            "body": [json.dumps({"order": number}) for number in range(len(bodies))],
            "failed_at": times,
            "created_at": times,
        }
    )
    return frame.assign(**columns)


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (500, b"no order 99", "same failure"),
        (500, b"disk full", "another failure"),
        (302, b"", "another failure"),
        (200, b"no order 7", "succeeded"),
        (204, b"", "succeeded"),
    ],
)
def test_the_response_is_compared_by_the_group_of_the_error(
    status, body, outcome, application
):
    """A number may differ, and a redirect is no success."""
    application.status, application.body = status, body
    replays = tk.replay_failure(failures("no order 7"), application.url, progress=False)
    (row,) = replays.frame.to_dict("records")
    assert row["outcome"] == outcome
    assert row["response_status"] == status
    (received,) = application.received
    assert (received.path, received.body) == ("/flows/pay", b'{"order": 0}')
    assert dict(received.headers)["X-Tenant"] == "a"


@pytest.mark.parametrize(
    ("body", "outcome"),
    [(b"no stock for figs today", "same failure"), (b"full", "another failure")],
)
def test_words_that_all_failures_show_to_be_values_may_differ(
    body, outcome, application
):
    """One request of the group is sent, and its response has another of these words."""
    application.status, application.body = 500, body
    fruits = ("apples", "pears", "plums", "kiwis")
    frame = failures(*(f"no stock for {fruit} today" for fruit in fruits))
    signed = tk.group_failures(frame).assign(frame)
    for rows in (frame, signed):
        replays = tk.replay_failure(rows, application.url, progress=False).frame
        assert replays["outcome"].tolist() == [outcome]
        assert set(replays["group"]) == set(signed["signature"])


def test_one_failure_per_group_is_sent_the_latest(application):
    """Others are sent if you ask for them."""
    frame = failures("no order 1", "no order 2", "disk full", "no order 3")
    replays = tk.replay_failure(frame, application.url, progress=False)
    assert replays.frame["dlq_id"].tolist() == ["dlq_3", "dlq_2"]
    everything = tk.replay_failure(
        frame, application.url, per_group=None, progress=False
    )
    assert sorted(everything.frame["dlq_id"]) == sorted(frame["dlq_id"])
    assert "4 requests" in repr(everything)


def test_a_row_is_enough(application):
    """A row of a frame is a failure."""
    row = failures("no order 1").iloc[0]
    assert len(tk.replay_failure(row, application.url, progress=False).frame) == 1


@pytest.mark.parametrize(
    "to",
    ["https://shop.example", "http://10.0.0.1", "http://localhost.shop.example:80"],
)
def test_another_machine_needs_a_confirmation_of_the_host(to, application):
    """Nothing is sent without it, or with the name of another host."""
    for confirm in (None, "localhost", "other.example"):
        with pytest.raises(tk.errors.InputError, match=r"another machine.*--confirm"):
            tk.replay_failure(failures("x"), to, confirm=confirm, progress=False)


def test_redirects_and_proxies_are_not_followed(application, monkeypatch):
    """A request reaches the named host, or none."""
    application.status, application.location = 307, f"{application.url}/elsewhere"
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    replays = tk.replay_failure(failures("x"), application.url, progress=False)
    assert replays.frame["outcome"].tolist() == ["another failure"]
    assert len(application.received) == 1


def test_no_answer_is_an_outcome_with_a_reason():
    """The error names the reason and no address."""
    replays = tk.replay_failure(failures("x"), "http://127.0.0.1:9", progress=False)
    (row,) = replays.frame.to_dict("records")
    assert row["outcome"] == "no answer"
    assert row["error"]
    assert pd.isna(row["response_status"])


def test_requests_are_signed_for_the_address_that_is_called(application):
    """The signature verifies with the key, for this body; the old signature is gone."""
    headers = json.dumps({"Upstash-Signature": ["old"], "Upstash-Message-Id": ["m"]})
    tk.replay_failure(
        failures("x", headers=headers),
        application.url,
        keys=[KEY, "n" * 40],
        progress=False,
    )
    (received,) = application.received
    signature = dict(received.headers)["Upstash-Signature"]
    url = f"{application.url}/flows/pay"
    tk.verify_signature(signature, received.body, url=url, keys=[KEY])
    public = "https://shop.example/flows/pay"
    tk.replay_failure(
        failures("x"), application.url, keys=[KEY], signed_url=public, progress=False
    )
    signature = dict(application.received[1].headers)["Upstash-Signature"]
    tk.verify_signature(signature, application.received[1].body, url=public, keys=[KEY])


def test_masked_values_must_be_filled_in_before_anything_is_sent(application):
    """The error names the variable. The value is sent, and appears in no result."""
    mask = Redactor().mask("the-secret-of-the-tenant")
    frame = failures("x", headers=json.dumps({"Authorization": [mask]}))
    with pytest.raises(tk.errors.InputError, match="FILL_IN_AUTHORIZATION"):
        tk.replay_failure(frame, application.url, progress=False)
    assert not application.received
    secrets = {"FILL_IN_AUTHORIZATION": "the-secret-of-the-tenant"}
    application.status, application.body = 401, b"bad token: the-secret-of-the-tenant"
    replays = tk.replay_failure(frame, application.url, secrets=secrets, progress=False)
    sent = dict(application.received[0].headers)["Authorization"]
    assert sent == "the-secret-of-the-tenant"
    shown = repr(replays) + replays._repr_html_() + replays.frame.to_json()
    assert "the-secret-of-the-tenant" not in shown


def test_a_secret_header_that_is_repeated_by_the_application_is_masked(application):
    """Failures that were loaded unmasked have the token itself."""
    token = "k7Qz-unmasked-token-of-a-tenant-91"
    frame = failures("x", headers=json.dumps({"Authorization": [f"Bearer {token}"]}))
    application.status, application.body = 401, f"not accepted: {token}".encode()
    replays = tk.replay_failure(frame, application.url, progress=False)
    assert dict(application.received[0].headers)["Authorization"] == f"Bearer {token}"
    shown = repr(replays) + replays._repr_html_() + replays.frame.to_json()
    assert token not in shown


def test_a_slow_response_ends_at_the_time_limit():
    """The limit covers the complete response, not each read of it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Event()

        def drip() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                while not ended.wait(0.1):
                    connection.sendall(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        replays = tk.replay_failure(failures("x"), url, timeout="1s", progress=False)
        ended.set()
        thread.join()
    (row,) = replays.frame.to_dict("records")
    assert row["outcome"] == "no answer"
    assert "time limit" in row["error"]
    assert row["seconds"] < 20


def test_a_path_of_the_application_replaces_the_original_path(application):
    """An address with a path is the complete address."""
    tk.replay_failure(
        failures("x"), f"{application.url}/v2/pay?debug=1", progress=False
    )
    assert application.received[0].path == "/v2/pay?debug=1"


def test_a_binary_response_is_compared_too(application):
    """It has no text, and is grouped by its status."""
    application.status, application.body = 500, b"\xff\xfe\x00"
    replays = tk.replay_failure(failures("x"), application.url, progress=False)
    assert replays.frame["outcome"].tolist() == ["another failure"]
    assert replays.frame["response_body"].isna().all()


def test_no_rows_are_no_requests():
    """A frame without rows returns a frame with the same columns."""
    empty = tk.replay_failure(failures("x")[:0], "http://127.0.0.1:9", progress=False)
    full = tk.replay_failure(failures("x"), "http://127.0.0.1:9", progress=False)
    assert empty.frame.dtypes.equals(full.frame.dtypes)


def test_replaying_changes_nothing_in_the_queue(sample_service, application):
    """The entries are the same before and after."""
    before = tk.load_failures(sample_service, limit=20, progress=False)
    tk.replay_failure(before, application.url, progress=False, secrets={}, per_group=1)
    after = tk.load_failures(sample_service, limit=20, progress=False)
    pd.testing.assert_frame_equal(before, after)
