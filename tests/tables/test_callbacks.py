"""Callback bodies become rows: every field, exactly, and nothing is thrown away."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolkit.errors import InputError, ProtocolError
from toolkit.secrets.redaction import Redactor, Secret
from toolkit.tables.callback_rows import (
    ReceivedCallback,
    callback_fields,
    decode_callbacks,
)
from toolkit.tables.frames import to_frame
from toolkit.tables.schemas import CALLBACKS

CANARY = "canary-6f1e5d8"
OWN = "own-token-of-the-toolkit"

FAILURE = {
    "status": 503,
    "header": {"Content-Type": ["text/html"], "Set-Cookie": [f"a={CANARY}", "b=2"]},
    "body": base64.b64encode("<h1>Ünavailable</h1>".encode()).decode(),
    "retried": 3,
    "maxRetries": 3,
    "dlqId": "1767225600000-0",
    "sourceMessageId": "msg_1",
    "topicName": "orders",
    "endpointName": "billing",
    "url": f"https://ann:{CANARY}@app.example/orders?key={CANARY}",
    "method": "POST",
    "sourceHeader": {"Authorization": f"Bearer {CANARY}", "Accept": "*/*"},
    "sourceBody": base64.b64encode(b"\xff\xfe\x00").decode(),
    "notBefore": "1767225600001",
    "createdAt": "1767225600000",
    "scheduleId": "scd_1",
    "callerIP": "198.51.100.7",
}


def row(body, redactor: Redactor | None = None):
    (found,) = decode_callbacks([body], redactor=redactor).to_pylist()
    return found


def test_every_field_of_the_body_has_its_column():
    """All seventeen fields of the specification, decoded and typed; the flags follow from them."""
    assert row(json.dumps(FAILURE)) == {
        "source_message_id": "msg_1",
        "kind": "failure",
        "status": 503,
        "headers": f'{{"Content-Type":["text/html"],"Set-Cookie":["a={CANARY}","b=2"]}}',
        "body": "<h1>Ünavailable</h1>",
        "body_base64": None,
        "body_truncated": False,
        "retried": 3,
        "max_retries": 3,
        "delivered": False,
        "exhausted": True,
        "dlq_id": "1767225600000-0",
        "in_dlq": True,
        "topic_name": "orders",
        "endpoint_name": "billing",
        "url": f"https://ann:{CANARY}@app.example/orders?key={CANARY}",
        "method": "POST",
        "source_headers": f'{{"Authorization":["Bearer {CANARY}"],"Accept":["*/*"]}}',
        "source_body": None,
        "source_body_base64": "//4A",
        "source_body_truncated": False,
        "not_before": datetime(2026, 1, 1, 0, 0, 0, 1000, tzinfo=UTC),
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        "schedule_id": "scd_1",
        "caller_ip": "198.51.100.7",
        "received_at": None,
        "verified": None,
        "extra": None,
    }


def test_bytes_text_and_objects_give_the_same_row():
    """A body may be handed over as it came or read already; mappings are not changed."""
    given_mapping = json.loads(json.dumps(FAILURE))
    rows = decode_callbacks(
        [json.dumps(FAILURE).encode(), json.dumps(FAILURE), given_mapping],
        redactor=None,
    ).to_pylist()
    assert rows[0] == rows[1] == rows[2]
    assert given_mapping == FAILURE


@pytest.mark.parametrize(
    ("status", "delivered"),
    [(200, True), (299, True), (300, False), (199, False), (None, None)],
)
def test_delivered_is_a_2xx_status(status, delivered):
    """Redirects and errors are not a delivery; without a status it is unknown."""
    assert row({"status": status})["delivered"] is delivered


@pytest.mark.parametrize(
    ("retried", "most", "exhausted"),
    [
        (3, 3, True),
        (0, 0, True),
        (2, 3, False),
        (4, 3, True),
        (None, 3, None),
        (3, None, None),
    ],
)
def test_exhausted_is_retried_equal_to_max_retries(retried, most, exhausted):
    """The specification's rule, beyond the allowed retries, too, and null where a number is missing."""
    assert row({"retried": retried, "maxRetries": most})["exhausted"] is exhausted


def test_a_body_without_a_dlq_id_is_a_callback():
    """Only failure callbacks carry one."""
    found = row({"status": 200})
    assert (found["kind"], found["in_dlq"], found["dlq_id"]) == (
        "callback",
        False,
        None,
    )
    assert row({"dlqId": ""})["kind"] == "callback"


@pytest.mark.parametrize(
    ("body", "in_dlq"),
    [
        ({"status": 500, "retried": 3, "maxRetries": 3, "dlqId": "d1"}, True),
        ({"status": 500, "retried": 3, "maxRetries": 3}, True),
        ({"status": 500, "retried": 0, "maxRetries": 0, "dlqId": ""}, True),
        ({"status": 500, "retried": 2, "maxRetries": 3}, False),
        ({"status": 200, "retried": 3, "maxRetries": 3}, False),
        ({"status": 200}, False),
        (
            {
                "status": 489,
                "retried": 0,
                "maxRetries": 3,
                "header": {"Upstash-NonRetryable-Error": ["true"]},
            },
            True,
        ),
        ({"status": 489, "retried": 0, "maxRetries": 3}, False),
        ({"status": 500}, None),
        ({"retried": 3, "maxRetries": 3}, None),
        ({}, None),
    ],
)
def test_in_dlq_is_whether_delivery_failed_for_good(body, in_dlq):
    """With a DLQ id, or without one in a callback of the last attempt; null where the body does not say."""
    assert row(body)["in_dlq"] is in_dlq


@given(st.binary(max_size=40), st.integers(0, 60))
def test_truncated_base64_is_decoded_as_far_as_it_goes(raw, size):
    """Cut anywhere, a body is a prefix of the whole one, and says so wherever that can be known."""
    encoded = base64.b64encode(raw).decode()[:size]
    found = row({"body": encoded, "sourceBody": encoded})
    for name in ("body", "source_body"):
        text, coded = found[name], found[f"{name}_base64"]
        read = base64.b64decode(coded) if text is None else text.encode()
        known = raw[: len(encoded.rstrip("=")) * 6 // 8]
        assert raw.startswith(read)
        assert len(known) - len(read) <= (3 if len(encoded) % 4 else 0)
        assert found[f"{name}_truncated"] is bool(len(encoded) % 4)
    assert found["extra"] is None


def test_a_text_that_is_truncated_inside_a_character_stays_a_text():
    """The half character at the end is left out; bytes that are not text stay bytes; no base64 is neither."""
    encoded = base64.b64encode("naïve ☃".encode()).decode()
    found = row({"body": encoded[:11], "sourceBody": encoded[:-1]})
    assert (found["body"], found["body_base64"], found["body_truncated"]) == (
        "naïve ",
        None,
        True,
    )
    assert (found["source_body"], found["source_body_truncated"]) == ("naïve ☃", True)
    found = row(
        {
            "body": base64.b64encode(b"\xff\xfe\xfd\xfc").decode()[:6],
            "sourceBody": "no base64",
        }
    )
    assert (found["body"], found["body_base64"], found["body_truncated"]) == (
        None,
        "//79/A==",
        True,
    )
    assert (found["source_body"], found["source_body_truncated"]) == (None, None)
    assert json.loads(found["extra"]) == {"sourceBody": "no base64"}
    assert row({})["body_truncated"] is None


@pytest.mark.parametrize("body", ["é", "\x00", "=", "YWJjé", "YWI=\n", "YW\nI="])
def test_what_is_no_base64_is_kept_and_not_taken_for_truncated(body):
    """A character outside of the alphabet is not the end of a truncated body: nothing is dropped."""
    found = row({"body": body})
    assert (found["body"], found["body_base64"], found["body_truncated"]) == (
        None,
        None,
        None,
    )
    assert json.loads(found["extra"]) == {"body": body}


def test_header_maps_of_text_and_of_lists_are_both_read():
    """Each of the two maps may come in either shape."""
    found = row({"header": {"A": "1"}, "sourceHeader": {"B": ["2", "3"]}})
    assert found["headers"] == '{"A":["1"]}'
    assert found["source_headers"] == '{"B":["2","3"]}'


def test_secrets_in_headers_and_urls_are_masked_and_bodies_stay():
    """With a redactor: secret-looking headers, user info and query values; ids and bodies stay exact."""
    found = row(
        FAILURE | {"body": base64.b64encode(CANARY.encode()).decode()},
        Redactor(key=b"k"),
    )
    assert found["body"] == CANARY
    found["body"] = None
    assert CANARY not in repr(found)
    assert found["url"].startswith("https://[masked len=18 ")
    assert json.loads(found["headers"])["Content-Type"] == ["text/html"]
    assert found["source_message_id"] == "msg_1"


def test_our_own_token_is_masked_in_bodies_too():
    """A response that echoes our token does not bring it into a frame, in text or in binary data."""
    redactor = Redactor(key=b"k", own=[Secret(OWN)])
    body = {
        "body": base64.b64encode(f"got {OWN}!".encode()).decode(),
        "sourceBody": base64.b64encode(b"\xff" + OWN.encode() + b"\xfe").decode(),
        "later": f"https://x.example/?t={OWN}",
    }
    found = row(body, redactor)
    assert OWN not in repr(found)
    assert found["body"].startswith("got [masked")
    raw = base64.b64decode(found["source_body_base64"])
    assert raw.startswith(b"\xff[masked")
    assert raw.endswith(b"]\xfe")


def test_unknown_fields_are_kept_as_json():
    """Numbers keep their digits; secrets under secret names are masked."""
    found = row(
        {"workflowRunId": "wfr_1", "big": 2**70, "nested": {"token": CANARY}},
        Redactor(key=b"k"),
    )
    extra = json.loads(found["extra"])
    assert extra["workflowRunId"] == "wfr_1"
    assert extra["big"] == 2**70
    assert CANARY not in found["extra"]


@pytest.mark.parametrize(
    ("field", "value", "column"),
    [
        ("status", "200", "status"),
        ("status", True, "status"),
        ("status", 2**63, "status"),
        ("retried", 1.5, "retried"),
        ("maxRetries", [3], "max_retries"),
        ("url", 5, "url"),
        ("dlqId", {"a": 1}, "dlq_id"),
        ("header", ["A"], "headers"),
        ("header", {"A": [1]}, "headers"),
        ("sourceHeader", "A: 1", "source_headers"),
        ("createdAt", "yesterday", "created_at"),
        ("createdAt", "-1", "created_at"),
        ("createdAt", "", "created_at"),
        ("notBefore", "9" * 30, "not_before"),
        ("notBefore", "1e3", "not_before"),
        ("body", "no base64!", "body"),
        ("sourceBody", 5, "source_body"),
    ],
)
def test_a_value_that_does_not_fit_is_null_and_kept_in_extra(field, value, column):
    """The row stays, the column is null, the value is kept in `extra` as it was sent."""
    found = row({"sourceMessageId": "msg_1", field: value})
    assert found[column] is None
    assert json.loads(found["extra"]) == {field: value}
    assert found["source_message_id"] == "msg_1"


def test_times_may_be_numbers_too():
    """Unix milliseconds as a number instead of text."""
    assert row({"createdAt": 1767225600000})["created_at"] == datetime(
        2026, 1, 1, tzinfo=UTC
    )


def test_bytes_of_a_body_that_are_not_utf_8_are_escaped_and_kept():
    """Bytes that are not UTF-8 and lone surrogates do not make a row disappear."""
    found = row(b'{"method": "\xff", "url": "\\ud800", "status": NaN}')
    assert (found["method"], found["url"], found["status"]) == (
        "\\udcff",
        "\\ud800",
        None,
    )
    assert json.loads(found["extra"])["method"] == "\udcff"


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", "text", b"{", b"[" * 100_000, b"\xff", b"{} {}"]
)
def test_a_body_that_is_no_json_object_is_an_error_that_names_it(body):
    """The second of three bodies is broken, and the error says so."""
    with pytest.raises(ProtocolError, match="body 1 of source"):
        decode_callbacks([b"{}", body, b"{}"], redactor=None)


def test_a_mapping_that_json_cannot_hold_is_refused():
    """Python objects in a dict are an input error."""
    with pytest.raises(InputError, match="JSON can represent"):
        callback_fields({"createdAt": datetime(2026, 1, 1, tzinfo=UTC)})


def test_facts_known_to_the_receiver_are_in_the_row():
    """Time of arrival and verification come from the receiver alone."""
    arrived = datetime(2026, 1, 1, 12, 0, 0, 5000, tzinfo=UTC)
    found = row(ReceivedCallback(body=b"{}", received_at=arrived, verified=True))
    assert (found["received_at"], found["verified"]) == (arrived, True)


def test_no_bodies_give_an_empty_table_of_the_same_schema():
    """Nothing received is a normal result; in pandas, too."""
    table = decode_callbacks([], redactor=None)
    assert table.schema.equals(CALLBACKS)
    assert table.num_rows == 0
    full, empty = to_frame(decode_callbacks([FAILURE], redactor=None)), to_frame(table)
    assert list(empty.dtypes.astype(str)) == list(full.dtypes.astype(str))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.slow
@given(
    st.dictionaries(
        st.sampled_from([*FAILURE, "later"]) | st.text(max_size=5), _JSON, max_size=8
    )
)
@example({"?#0": None})
def test_no_body_breaks_decoding_and_no_value_is_lost(body):
    """Whatever the fields hold: one row, and each value in a column or in `extra`, secret names masked."""
    redactor = Redactor(key=b"k")
    table = decode_callbacks([json.dumps(body)], redactor=redactor)
    assert table.schema.equals(CALLBACKS)
    (found,) = table.to_pylist()
    extra = json.loads(found["extra"] or "{}")
    columns = {
        "header": "headers",
        "sourceHeader": "source_headers",
        "maxRetries": "max_retries",
        "status": "status",
    }
    for name, value in body.items():
        if name not in FAILURE:
            assert redactor.text(name) in extra
        elif name in columns and value is not None:
            assert (found[columns[name]] is None) == (name in extra)


@given(st.binary(max_size=60))
def test_bodies_survive_exactly(body):
    """Text or bytes: joined again, they are what the destination sent."""
    found = row(
        {
            "body": base64.b64encode(body).decode(),
            "sourceBody": base64.b64encode(body).decode(),
        }
    )
    for column in ("body", "source_body"):
        text, coded = found[column], found[f"{column}_base64"]
        assert (text is None) != (coded is None)
        assert (text.encode() if coded is None else base64.b64decode(coded)) == body


@pytest.mark.parametrize(
    ("text", "keep", "length", "outcome"),
    [
        ("abc", 4, "3", ("abc", False)),
        ("abcdef", 4, "6", ("abc", True)),  # between two groups of four
        ("abcdef", 5, "6", ("abc", True)),
        ("abcdef", 6, "6", ("abcd", True)),
        ("abcdef", 7, "6", ("abcde", True)),
        ("ab", 3, "2", ("ab", False)),  # without padding, and whole
        ("ab", 3, None, ("ab", True)),  # of which nothing else is known
        ("ab", 4, "99 bytes", ("ab", False)),
        ("", 0, "0", ("", False)),
    ],
)
def test_a_body_is_truncated_when_it_is_shorter_than_the_response_said(
    text: str, keep: int, length: str | None, outcome: tuple[str, bool]
):
    """Wherever its base64 ends; without a stated length, by whether it ends inside a group."""
    encoded = base64.b64encode(text.encode()).decode()[:keep]
    headers = {} if length is None else {"header": {"Content-Length": [length]}}
    found = row({"status": 500, "body": encoded, **headers})
    assert (found["body"], found["body_truncated"]) == outcome
    packed = {"header": {"content-length": ["99"], "Content-Encoding": ["gzip"]}}
    assert row({"status": 500, "body": encoded, **packed})["body_truncated"] is (
        keep % 4 != 0
    )
