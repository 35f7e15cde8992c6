"""Reading a publish: any headers are settings or an error, and messages are stored without loss."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolkit_service.api import ApiError
from toolkit_service.queue.destinations import check_url
from toolkit_service.queue.listing import CursorSigner
from toolkit_service.queue.messages import Message, body_fields, decode_message
from toolkit_service.queue.publishing import read_publish

URL = "http://127.0.0.1:8000/a"
NAMES = [
    "Method", "Timeout", "Retries", "Retry-Delay", "Delay", "Not-Before", "Label", "Flow-Control-Key",
    "Flow-Control-Value", "Deduplication-Id", "Content-Based-Deduplication", "Forward-X", "Forward-",
    "Callback", "Failure-Callback", "Redact-Fields", "Workflow-Init", "Workflow-RunId", "Workflow-Url",
    "Workflow-CallType", "Feature-Set", "Unheard-Of", "",
]  # fmt: skip
SCOPES = st.sampled_from(["", "Callback-", "Failure-Callback-"])
PREFIXES = st.sampled_from(["Service-", "Upstash-", "upstash-", "X-"])
HEADERS = st.lists(
    st.tuples(
        st.tuples(PREFIXES, SCOPES, st.sampled_from(NAMES)).map("".join)
        | st.text(max_size=20),
        st.sampled_from(
            [
                "1",
                "true",
                URL,
                "5s",
                "rate=1, period=1m",
                "parallelism=2",
                "body, header[X]",
                "1000*retried",
            ]
        )
        | st.text(max_size=30),
    ),
    max_size=8,
)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(headers=HEADERS, body=st.binary(max_size=100))
def test_any_headers_are_read_or_refused(
    headers: list[tuple[str, str]], body: bytes
) -> None:
    """Only an error with 400 is raised, and settings are stored unchanged."""
    try:
        publish = read_publish(URL, headers, body)
    except ApiError as error:
        assert error.status == 400  # noqa: PT017 - either outcome is right
        return
    message = Message(
        id="msg_1",
        kind="message",
        prefix=publish.prefix,
        settings=publish.settings,
        created_at=1,
        not_before=2,
        body=publish.body,
        callback=publish.callback,
        failure_callback=publish.failure_callback,
        redact=publish.redact,
    )
    assert decode_message(message.encode()) == message


@settings(max_examples=400, deadline=None)
@given(
    url=st.text(max_size=60)
    | st.text("htps:/.@[]%0123456789abcdefx#?", max_size=60).map("http://{}".format)
)
@example("http://[::1")
@example("http://127.0.0.1:\u0661/")
def test_any_text_is_a_url_to_call_or_refused(url: str) -> None:
    """Nothing but an API error is raised."""
    with contextlib.suppress(ApiError):
        assert check_url(url, "destination").startswith(("http://", "https://"))


def test_every_setting_is_read_in_its_scope() -> None:
    """A message, its callback and its failure callback have separate settings."""
    publish = read_publish(
        URL,
        [
            ("upstash-method", "put"),
            ("upstash-timeout", "30"),
            ("upstash-retries", "5"),
            ("upstash-label", "a, b,,a"),
            ("upstash-forward-x-one", "1"),
            ("upstash-forward-x-one", "2"),
            ("upstash-forward-host", "evil"),
            ("upstash-callback", f"{URL}/callback"),
            ("upstash-callback-retries", "1"),
            ("upstash-callback-method", "PATCH"),
            ("upstash-callback-forward-x-two", "3"),
            ("upstash-failure-callback", f"{URL}/failed"),
            ("upstash-failure-callback-timeout", "1m"),
            ("upstash-failure-callback-delay", "1h"),
            ("content-type", "text/plain"),
        ],
        b"",
    )
    own, callback, failure = (
        publish.settings,
        publish.callback,
        publish.failure_callback,
    )
    assert (own.method, own.timeout_ms, own.retries, own.labels) == (
        "PUT",
        30_000,
        5,
        ("a", "b"),
    )
    assert own.headers == (
        ("Content-Type", "text/plain"),
        ("x-one", "1"),
        ("x-one", "2"),
    )
    assert callback
    assert failure
    assert (callback.url, callback.retries, callback.method) == (
        f"{URL}/callback",
        1,
        "PATCH",
    )
    assert callback.headers == (("x-two", "3"),)
    assert (failure.url, failure.timeout_ms, failure.delay_ms) == (
        f"{URL}/failed",
        60_000,
        3_600_000,
    )
    assert publish.prefix == "Upstash-"


@given(body=st.binary())
def test_bodies_are_text_or_base64_and_never_both(body: bytes) -> None:
    """UTF-8 stays text, anything else is base64, and both restore the body."""
    actual = body_fields("body", body)
    assert set(actual) == {"body", "bodyBase64"}
    assert not (actual["body"] and actual["bodyBase64"])
    assert (base64.b64decode(actual["bodyBase64"]) or actual["body"].encode()) == body


@given(
    place=st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)),
    junk=st.text(max_size=40),
)
def test_cursors_lead_back_and_nothing_else_is_one(
    place: tuple[int, int], junk: str
) -> None:
    """A cursor restores its position; those of another list or key and other texts are refused."""
    cursors = CursorSigner(b"k" * 32)
    cursor = cursors.make("list", place)
    assert cursors.read("list", cursor) == place
    others: list[tuple[Any, str, str]] = [
        (cursors, "other", cursor),
        (CursorSigner(b"o" * 32), "list", cursor),
        (cursors, "list", junk or "x"),
        (cursors, "list", cursor + "A"),
    ]
    for reader, listing, text in others:
        with pytest.raises(ApiError):
            reader.read(listing, text)
