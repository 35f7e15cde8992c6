"""Error texts out of response bodies."""

from __future__ import annotations

import base64
import json
import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.analysis import count_errors, error_text, mask_text
from toolkit.secrets.redaction import Redactor, Secret
from toolkit.tables.failures import FailureDecoder
from toolkit.tables.frames import frame_from_rows, to_frame
from toolkit.tables.schemas import FAILURES

START = datetime(2026, 3, 2, tzinfo=UTC)

PYTHON = """Traceback (most recent call last):
  File "/app/steps.py", line 40, in charge
    raise CardDeclined(order)
  File "/app/cards.py", line 9, in check
    amount = totals["sum"]
KeyError: 'sum'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/app/steps.py", line 44, in charge
    raise CardDeclined(order) from None
app.errors.CardDeclined: order 1234 was declined
"""
JAVASCRIPT = """TypeError: Cannot read properties of undefined (reading 'id')
    at charge (/app/steps.js:10:22)
    at async run (node:internal/process:95:5)
"""
JAVA = """java.lang.RuntimeException: step failed
\tat com.example.Step.run(Step.java:10)
Caused by: java.net.ConnectException: Connection refused
\tat java.base/sun.nio.ch.Net.connect0(Native Method)
\t... 12 more
"""


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ('{"error": "no such user"}', "json", "no such user"),
        (
            '{"error": "TypeError", "message": "x is not a function"}',
            "json",
            "TypeError: x is not a function",
        ),
        ('{"Message": "Task timed out"}', "json", "Task timed out"),
        ('{"data": null, "errors": [{"message": "bad field"}]}', "json", "bad field"),
        ('{"result": {"status": {"detail": "deep"}}}', "json", "deep"),
        ('["first", "second"]', "json", "first"),
        ('{"code": 17}', "json", '{"code": 17}'),
        ('{"error": "cut', "json", "cut"),
        ('{"status": 500, "message": "no sto', "json", "no sto"),
        ("[" * 50_000, "message", None),
        (
            "<!doctype html><TITLE>Shop&nbsp;closed</TITLE><h1>nginx</h1>",
            "html",
            "Shop closed - nginx",
        ),
        (
            "<html><body><h1>Service <b>down</b></h1></body></html>",
            "html",
            "Service down",
        ),
        ("<html><body>plain words</body></html>", "html", "plain words"),
        (PYTHON, "trace", "KeyError: 'sum'"),
        (
            JAVASCRIPT,
            "trace",
            "TypeError: Cannot read properties of undefined (reading 'id')",
        ),
        (JAVA, "trace", "java.net.ConnectException: Connection refused"),
        ("\n\n  upstream   timed out\nmore", "message", "upstream timed out more"),
        ("", "empty", "empty body"),
        (None, "empty", "empty body"),
    ],
)
def test_the_line_that_says_it(body, kind, text):
    """JSON, HTML, stack traces of three languages and plain text become the line with the error."""
    found = error_text(body)
    assert found.kind == kind
    assert text is None or found.text == text


def test_traces_inside_json():
    """A stack trace as a JSON value is read as a stack trace."""
    assert (
        error_text('{"error": "TypeError: x\\n    at run (a.js:1:1)"}').text
        == "TypeError: x"
    )


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("user 17 at 2026-01-01T10:00:00.123Z", "user <num> at <time>"),
        ("run wfr_A1b2C3d4E5 gone", "run <id> gone"),
        ("id 0f8fad5b-d9cb-469f-a165-70867728950e", "id <uuid>"),
        ("at 0x7ffee4 commit 5d1c09ab77", "at <hex> commit <hex>"),
        ("can't connect to 'db-1'", "can't connect to '<id>'"),
        ("load_customers failed in step_two", "load_customers failed in step_two"),
        ("token [masked len=42 tag=5d1c09ab] refused", "token <secret> refused"),
        ("took 1,234.5 ms", "took <duration>"),
    ],
)
def test_particulars_are_masked(text, pattern):
    """Numbers, times, ids and quoted strings are masked; names stay."""
    assert mask_text(text) == pattern


def test_equal_failures_stand_together():
    """Texts that differ in particulars are one row, with the latest failure as the example."""
    rows = [
        {
            "dlq_id": "old",
            "workflow_url": "a",
            "failed_at": START,
            "response_body": '{"error": "no user 1"}',
        },
        {
            "dlq_id": "new",
            "workflow_url": "b",
            "failed_at": START + timedelta(hours=1),
            "response_body": '{"error": "no user 22"}',
        },
        {
            "dlq_id": "undated",
            "workflow_url": "b",
            "response_body": '{"error": "no user 3"}',
        },
        {
            "dlq_id": "bin",
            "response_body_base64": base64.b64encode(b"\xff" * 2048).decode(),
        },
        {"dlq_id": "none"},
    ]
    found = count_errors(frame_from_rows(rows, FAILURES))
    assert found["text"].tolist() == ["no user <num>", "binary, <size>", "empty body"]
    assert found["count"].tolist() == [3, 1, 1]
    assert found["workflows"].tolist() == [2, 1, 1]
    assert found["dlq_id"].tolist() == ["new", "bin", "none"]
    assert found["example"].tolist() == [
        "no user 22",
        "binary, 2,048 bytes",
        "empty body",
    ]
    assert found["share"].tolist() == [0.6, 0.2, 0.2]
    assert len(count_errors(frame_from_rows(rows, FAILURES), top=1)) == 1


def test_no_rows():
    """An empty frame returns no rows, with types."""
    found = count_errors(frame_from_rows([], FAILURES))
    assert len(found) == 0
    assert str(found["last_at"].dtype) == "datetime64[ms, UTC]"


def test_secrets_are_cleaned_before_and_after_reading():
    """A secret is masked whether it is plain in the body or escaped in JSON; ``clean=str`` shows it."""
    secret = "tok-canary-0123456789"
    hidden = "".join(f"\\u{ord(character):04x}" for character in secret)
    bodies = [
        f'{{"error": "refused {secret}"}}',
        f'{{"error": "refused {hidden}"}}',
        f"refused Bearer {secret}",
    ]
    rows = frame_from_rows(
        [{"dlq_id": str(n), "response_body": body} for n, body in enumerate(bodies)],
        FAILURES,
    )
    redactor = Redactor(key=b"k", own=[Secret(secret)])
    assert "canary" in count_errors(rows, clean=str)["example"].str.cat()
    assert (
        "canary"
        not in count_errors(rows, clean=redactor.text)[["text", "example"]].to_csv()
    )
    assert "canary" not in count_errors(rows)[["text", "example"]].to_csv()
    others = frame_from_rows(
        [{"dlq_id": "a", "response_body": f"no: password={secret}"}], FAILURES
    )
    assert "canary" not in count_errors(others)[["text", "example"]].to_csv()


@pytest.mark.parametrize(
    "piece",
    ["<title", "<h1>", "'", '"', "{", "    at x\n", "Caused by: ", "a1", "1.", "\\u00"],
)
def test_reading_is_quick_on_hostile_bodies(piece):
    """A body of one repeated part is read quickly."""
    begun = time.perf_counter()
    for body in (piece * 60_000, f"<{piece * 60_000}", f"{{{piece * 60_000}"):
        mask_text(error_text(body).text)
    assert time.perf_counter() - begun < 5


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=300))
def test_any_text_becomes_one_short_line(body):
    """For any body, the result is one line, and masking it again changes nothing that matters."""
    found = error_text(body)
    assert found.text
    assert "\n" not in found.text
    assert len(found.text) <= 2_000
    assert len(mask_text(found.text).splitlines()) <= 1


def test_half_of_a_surrogate_pair_is_no_text() -> None:
    """JSON can spell one; the line can still be stored, and the frame is made."""
    body = '{"message": "\\ud800 is half"}'
    assert error_text(body).text.encode()
    table = FailureDecoder(Redactor()).decode(
        json.dumps([{"dlqId": "a", "responseBody": body}]).encode()
    )
    frame = to_frame(table)
    assert frame["error"].tolist() == ["\\ud800 is half"]
