"""Classes of failures: right on labelled responses, and an answer for any response at all."""

from __future__ import annotations

import json
import time
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.accuracy.held_out_bodies import FROZEN
from tests.accuracy.labelled_bodies import (
    HELD_OUT,
    TUNED,
    Templates,
    labelled_bodies,
    macro_f1,
)
from toolkit import classify_failures
from toolkit.errors import InputError
from toolkit.failures import classes
from toolkit.failures.classes import CLASSES, REFUSED
from toolkit.signatures.document import Document

SECRET = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"


def failures(*rows: tuple[Any, Any]) -> pd.DataFrame:
    """A frame of statuses and bodies."""
    return pd.DataFrame(
        {
            "response_status": pd.array([status for status, _ in rows], dtype="Int64"),
            "response_body": pd.Series([body for _, body in rows], dtype="str"),
            "response_body_base64": pd.Series([None] * len(rows), dtype="str"),
        }
    )


def one(status: Any, body: Any) -> tuple[str, str, float]:
    """Class, evidence and confidence of one response."""
    row = classify_failures(failures((status, body))).frame.iloc[0]
    return row["class"], row["evidence"], row["confidence"]


@pytest.mark.parametrize(
    ("status", "body", "found_class"),
    [
        (500, "kotlinx.coroutines.TimeoutCancellationException: Timed out waiting for 5000 ms", "transient"),
        (500, ("PHP Fatal error: Uncaught TypeError: count(): Argument #1 ($value) must be of type "
         "Countable|array, null given in /srv/Cart.php:57"), "bug"),
        (422, "amount must be of type number", "poison input"),
        (500, "** (FunctionClauseError) no function clause matching in Shop.Orders.total/1", "bug"),
        (500, "** (exit) exited in: GenServer.call(Stock, :all, 5000)\n    ** (EXIT) time out", "transient"),
        (500, "Backend database is unavailable", "dependency down"),
        # the client of a database fails to start for many reasons
        (500, ('{"name": "PrismaClientInitializationError", "message": "Can\'t reach database server at '
         '`db.example.com:5432`"}'), "dependency down"),
        (522, "<html><title>a.example | 522: Connection timed out</title></html>", "dependency down"),
        # a certificate is not renewed like a password
        (500, ("System.Security.Authentication.AuthenticationException: The remote certificate is invalid "
         "because of errors in the certificate chain: NotTimeValid"), "unknown"),
    ],
)  # fmt: skip
def test_errors_of_more_languages_get_their_class(
    status: int, body: str, found_class: str
) -> None:
    """Kotlin, PHP, Elixir and .NET, and the page of a proxy."""
    assert one(status, body)[0] == found_class


@pytest.mark.parametrize(
    ("templates", "size", "least"),
    [((TUNED, HELD_OUT), 554, 0.9), ((TUNED,), 404, 0.9), ((HELD_OUT,), 150, 0.9)],
    ids=["all", "first", "second"],
)
def test_labelled_responses_get_their_class(
    templates: tuple[Templates, ...], size: int, least: float
) -> None:
    """Macro-F1 is at least .90, and hardly any response gets a wrong class."""
    rows = [row for listed in templates for row in labelled_bodies(listed)]
    assert len(rows) == size
    found = (
        classify_failures(failures(*((row.status, row.body) for row in rows)))
        .frame["class"]
        .tolist()
    )
    labels = [row.label for row in rows]
    assert set(labels) == {*CLASSES} - {REFUSED}
    assert macro_f1(labels, found) >= least
    wrong = [
        (row, name)
        for row, name in zip(rows, found, strict=True)
        if name not in (row.label, "unknown")
    ]
    assert len(wrong) <= 0.03 * len(rows), wrong


def test_frozen_responses_get_their_class() -> None:
    """Macro-F1 is at least .90 of responses that no rule was written or changed for."""
    rows = [
        (label, status, body)
        for label, listed in FROZEN.items()
        for status, body in listed
    ]
    assert len(rows) == len({body for *_, body in rows}) == 150
    found = (
        classify_failures(failures(*((status, body) for _, status, body in rows)))
        .frame["class"]
        .tolist()
    )
    labels = [label for label, *_ in rows]
    assert macro_f1(labels, found) >= 0.9
    wrong = sum(
        name not in (label, "unknown")
        for label, name in zip(labels, found, strict=True)
    )
    assert wrong <= 0.03 * len(rows)


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (504, "upstream request timed out after 30000 ms", "dependency down"),
        (504, "upstream request timeout", "dependency down"),
        (504, '{"message":"Endpoint request timed out"}', "dependency down"),
        (504, "FUNCTION_INVOCATION_TIMEOUT", "resource exhaustion"),
        (
            500,
            "Timed out fetching a new connection from the connection pool.",
            "resource exhaustion",
        ),
        (500, "certificate verify failed: certificate has expired", "configuration"),
        (500, "Can't reach database server at `db:5432`", "dependency down"),
        (500, "dial tcp 10.0.0.1:443: i/o timeout", "transient"),
    ],
)
def test_common_messages_get_their_class(status: int, body: str, expected: str) -> None:
    """A timeout that a gateway reports is that of the service behind it, and not of one request."""
    assert one(status, body)[0] == expected


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (409, '{"error": "Seat 12A is no longer available"}', "poison input"),
        (
            409,
            '{"message": "The chosen slots are no longer available"}',
            "poison input",
        ),
        (422, '{"error": "coupon SPRING is no longer available"}', "poison input"),
        (409, '{"error": "Item 4711 has been removed from the shop"}', "poison input"),
        (404, '{"message": "The guest has been removed"}', "poison input"),
        (410, '{"message": "This endpoint is no longer available"}', "contract drift"),
        (400, '{"message": "model small-2 is no longer available"}', "contract drift"),
        (400, '{"message": "The field total has been removed"}', "contract drift"),
        (404, '{"message": "This page has been removed"}', "contract drift"),
        (400, '{"message": "TLS 1.0 is no longer supported"}', "contract drift"),
        (500, "the replica db-2 is no longer available", "dependency down"),
        (503, '{"message": "The service is no longer available"}', "unknown"),
    ],
)
def test_things_that_are_gone_are_no_interfaces(
    status: int, body: str, expected: str
) -> None:
    """A seat that somebody else has booked is no change of the interface, and no server that is down."""
    assert one(status, body)[0] == expected


_CDN_PAGE = """<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 4.01 Transitional//EN">
<HTML><HEAD><TITLE>ERROR: The request could not be satisfied</TITLE></HEAD><BODY>
<H1>{status} ERROR</H1><H2>The request could not be satisfied.</H2><HR noshade size="1px">
{reason}
We can't connect to the server for this app or website at this time. There might be too much traffic or a
configuration error. Try again later, or contact the app or website owner.
<BR clear="all">If you provide content to customers through CloudFront, you can find steps to
troubleshoot and help prevent this error by reviewing the CloudFront documentation.
<BR clear="all"><HR noshade size="1px"><PRE>
Generated by cloudfront (CloudFront)
Request ID: 9sKxfAWJ8kM3pHcYgyW4ZnXBhkqX1b8Mdd6xjZbq==
</PRE></BODY></HTML>"""


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (403, "Request blocked.", "authentication"),
        (403, "The distribution is configured to block access from your country.", "authentication"),
        (403, "Bad request.", "unknown"),
        (502, "The origin closed the connection.", "dependency down"),
        (503, "", "dependency down"),
        (504, "The server didn't respond in time.", "dependency down"),
    ],
)  # fmt: skip
def test_sentences_of_every_page_of_a_network_are_no_evidence(
    status: int, reason: str, expected: str
) -> None:
    """The same sentences about a server and its traffic are below each reason, also of blocked requests."""
    assert one(status, _CDN_PAGE.format(status=status, reason=reason))[0] == expected


@pytest.mark.parametrize(
    "body",
    [
        "<html><title>Sorry, you have been blocked</title><h1>Sorry, you have been blocked</h1></html>",
        "The request is blocked.",
        '{"message": "Your request was blocked by the firewall"}',
    ],
)
def test_a_blocked_request_is_a_question_of_access(body: str) -> None:
    """A firewall refuses it until somebody changes the rules."""
    assert one(403, body)[0] == "authentication"


def test_the_evidence_says_what_decided() -> None:
    """Statuses, codes and exception types, and words are told apart."""
    assert one(429, "") == ("throttled", "status 429", 0.8)
    found, evidence, confidence = one(500, '{"code": "ECONNREFUSED"}')
    assert (found, evidence, confidence) == ("dependency down", "ECONNREFUSED", 0.9)
    assert one(500, "no space left on device")[1] == '"no space left"'


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, ""),
        (None, None),
        (400, ""),
        (404, "Not Found"),
        (500, "order 40001 failed"),
        (200, "{}"),
    ],
)
def test_little_evidence_is_unknown(status: int | None, body: str | None) -> None:
    """A status that many causes have, or a number that looks like a code, names no class."""
    assert one(status, body) == ("unknown", "", 0.0)


def test_contradictory_evidence_is_unknown() -> None:
    """Two classes with about the same evidence: both are named, neither is chosen."""
    found, evidence, confidence = one(500, "deadlock detected; invalid api key")
    assert (found, confidence) == ("unknown", 0.0)
    assert evidence.startswith("contradictory: ")
    assert "authentication" in evidence
    assert "transient" in evidence


@pytest.mark.parametrize(
    "body",
    [
        "connect ETIMEDOUT 10.0.0.1:5432",
        '{"code": "ETIMEDOUT", "error": "connect ETIMEDOUT 10.0.0.1:5432"}',
        "request timed out",
        "please try again later",
    ],
)
def test_a_timeout_is_no_contradiction_of_a_dependency_that_is_down(body: str) -> None:
    """Status 503 with a timeout is one cause."""
    found, evidence, _ = one(503, body)
    assert found == "dependency down"
    assert evidence.startswith("status 503; ")
    assert one(500, body)[0] == "transient"


def test_a_third_class_contradicts_a_timeout_of_a_dependency() -> None:
    """The input may be the cause, so that a retry would fail again."""
    assert one(503, "ValueError: request timed out")[0] == "unknown"


def test_weaker_evidence_for_another_class_lowers_the_confidence() -> None:
    """The same error is less sure behind a status that says something else."""
    assert one(500, "NullPointerException")[2] > one(503, "NullPointerException")[2] > 0


def test_the_root_cause_decides() -> None:
    """An exception that another one caused weighs less than its cause."""
    body = (
        "Traceback (most recent call last):\n"
        '  File "/app/a.py", line 1, in a\n    x\nConnectionRefusedError: [Errno 111]\n\n'
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n"
        '  File "/app/b.py", line 1, in b\n    y\nAttributeError: no pool\n'
    )
    assert one(500, body)[0] == "dependency down"


def test_rows_keep_their_index_and_are_counted() -> None:
    """One row a failure under its own index; the counts add up, and are shown."""
    frame = failures((429, ""), (500, "connection refused"), (429, "x")).set_index(
        pd.Index([7, 3, 7])
    )
    given_to = frame.copy()
    found = classify_failures(frame)
    pd.testing.assert_frame_equal(frame, given_to)
    assert found.frame.index.tolist() == [7, 3, 7]
    assert found.frame["class"].tolist() == [
        "throttled",
        "dependency down",
        "throttled",
    ]
    assert found.counts["class"].tolist() == ["throttled", "dependency down"]
    assert found.counts["count"].tolist() == [2, 1]
    assert repr(found) == "3 failures: 2 throttled (67 %), 1 dependency down (33 %)"
    assert "<td>2</td>" in found._repr_html_()


def test_no_failures_have_all_columns() -> None:
    """An empty frame gives an empty frame of the same types, and shows itself."""
    empty, full = classify_failures(failures()), classify_failures(failures((500, "x")))
    assert empty.frame.dtypes.to_dict() == full.frame.dtypes.to_dict()
    assert empty.counts.dtypes.to_dict() == full.counts.dtypes.to_dict()
    assert repr(empty) == "0 failures"
    assert "<tbody></tbody>" in empty._repr_html_()


def test_arrow_tables_are_read_as_frames_are() -> None:
    """The same rows as an Arrow table get the same classes."""
    frame = failures((429, ""), (500, None), (None, "connection refused"))
    expected = classify_failures(frame).frame
    pd.testing.assert_frame_equal(
        classify_failures(pa.Table.from_pandas(frame)).frame, expected
    )


def test_a_missing_column_is_an_error_of_ours() -> None:
    """The message names the column."""
    with pytest.raises(InputError, match="response_body"):
        classify_failures(pd.DataFrame({"response_status": [500]}))


@pytest.mark.parametrize(
    "body",
    [
        f"connection refused: token={SECRET}",
        f'{{"code": "{SECRET}_ValidationError", "message": "invalid api key {SECRET}"}}',
        json.dumps(
            {"error": json.dumps({"message": f"column {SECRET} does not exist"})}
        ),
        f"deadlock detected; invalid api key; role {SECRET} does not exist",
        f"Authorization: Bearer {SECRET} is not set",
    ],
)
def test_no_secret_is_shown(body: str) -> None:
    """Evidence is of masked text, however the secret is wrapped."""
    found = classify_failures(failures((500, body)))
    assert SECRET not in found.frame.to_csv() + repr(found) + found._repr_html_()


def test_evidence_cannot_break_lines() -> None:
    """What a body holds stays on one line and is visible."""
    assert "\n" not in one(500, "column a\x1b[31m\u202eb does not exist")[1]
    assert "\x1b" not in one(500, "column a\x1b[31mb does not exist")[1]


@pytest.mark.parametrize(
    "body",
    [
        '{"error":' * 20_000,
        '{"error":' * 500 + '"connection refused"' + "}" * 500,
        "[" * 100_000,
        "a " * 5_000_000,
        "x" * 10_000_000,
        "<html>" + "<h1" * 1_000_000,
        "ErrorError." * 500_000,
        "token " * 1_000_000,
        "at \n" * 1_000_000,
        "invalid " * 1_000_000,
        "the password of a b c d " * 400_000,
        "column " + "x" * 1_000_000 + " does not exist",
        "\x00\x1b\u202e",
    ],
    ids=lambda body: f"{body[:9]!r}{len(body)}",
)
def test_large_and_deep_bodies_take_bounded_time(body: str) -> None:
    """Any body is answered within seconds."""
    started = time.perf_counter()
    assert one(500, body)[0] in CLASSES
    assert time.perf_counter() - started < 10


def test_lone_surrogates_are_a_clear_error_or_read_within_json() -> None:
    """No column of texts can hold them; escaped in JSON they are read."""
    frame = failures((500, "x")).astype({"response_body": object})
    frame.loc[0, "response_body"] = "connection refused \ud800"
    with pytest.raises(InputError, match="surrogates not allowed"):
        classify_failures(frame)
    assert one(500, '{"message": "connection refused \\ud800"}')[0] == "dependency down"


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.none() | st.integers(-1, 9_999), st.none() | st.text(max_size=60)),
        max_size=5,
    )
)
def test_any_response_has_a_class(rows: list[tuple[int | None, str | None]]) -> None:
    """One row each, a known class, a confidence of 0 exactly where it is unknown; order does not matter."""
    rows = [
        (status, body and body.encode("utf-8", "ignore").decode())
        for status, body in rows
    ]
    found = classify_failures(failures(*rows)).frame
    assert len(found) == len(rows)
    assert set(found["class"]) <= set(CLASSES)
    assert found["confidence"].between(0, 1).all()
    assert ((found["confidence"] == 0) == (found["class"] == "unknown")).all()
    again = classify_failures(failures(*rows[::-1])).frame
    assert again["class"].tolist()[::-1] == found["class"].tolist()


def test_repeated_responses_are_read_once() -> None:
    """A hundred thousand rows of three hundred responses take seconds."""
    rows = [
        (row.status, row.body)
        for row in labelled_bodies(TUNED) + labelled_bodies(HELD_OUT)
    ]
    frame = failures(*(rows * 334)[:100_000])
    started = time.perf_counter()
    assert len(classify_failures(frame).frame) == 100_000
    assert time.perf_counter() - started < 10


def test_words_are_found_as_python_finds_them() -> None:
    """In labelled bodies as they are, in other cases, alphabets and between control characters."""
    bodies = [row.body for row in labelled_bodies(TUNED)]
    bodies += [body.upper() for body in bodies[::5]] + [
        body.replace(" ", "\u2003") for body in bodies[::7]
    ]
    bodies += [body.replace(" ", "\x0b") for body in bodies[::9]] + [
        f"{body}\n\u212a" for body in bodies[::11]
    ]
    documents = [Document("message", (), (body,)) for body in bodies]
    hits = 0
    for body, found in zip(bodies, classes._words(documents), strict=True):
        rules = [
            (name, weight, rule.search(body[:4_000]))
            for name, weight, rule in classes._WORD_RULES
        ]
        assert found == [
            (name, weight, f'"{match[0]}"') for name, weight, match in rules if match
        ]
        hits += len(found)
    assert hits > 300


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "Incompatible step name. Expected 'charge', got 'reserve' from the request",
            "contract drift",
        ),
        (
            "Failed to verify that the Workflow request comes from the queue",
            "authentication",
        ),
    ],
)
def test_errors_of_workflow_packages_have_a_class(body: str, expected: str) -> None:
    """Changed steps, and wrong signing keys, are frequent errors of applications of workflows."""
    [found] = classify_failures(failures((500, body))).frame["class"]
    assert found == expected
