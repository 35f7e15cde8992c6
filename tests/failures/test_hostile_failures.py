"""Failures as nobody expects them: each function has a result or a clear error, in bounded time."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from tests.covering import in_turn
from toolkit.analysis import (
    change_points,
    error_signatures,
    failure_trend,
    similar_texts,
)
from toolkit.errors import ToolkitError

pytestmark = pytest.mark.slow

SECONDS = 60
"""Of processor time, for what takes one or two: a hang, or time that grows with the square, exceeds it."""

START = pd.Timestamp("2026-03-01", tz="UTC")
NOW = datetime(2026, 3, 9, tzinfo=UTC)
MEGABYTE = 1_000_000


def frame_of(bodies: list[Any], **columns: Any) -> pd.DataFrame:
    """A failure an hour with each of these bodies."""
    size = len(bodies)
    when = pd.Series(
        START + pd.to_timedelta(np.arange(size) % 150, unit="h")
    ).dt.as_unit("ms")
    values = {
        "dlq_id": [f"d{number}" for number in range(size)],
        "workflow_url": [f"https://a.example/{number % 3}" for number in range(size)],
        "workflow_run_id": [f"r{number}" for number in range(size)],
        "failed_at": when,
        "created_at": when,
        "response_status": pd.Series([500] * size, dtype="Int64"),
        "response_body": pd.Series(bodies, dtype=object),
        "response_body_base64": pd.Series([None] * size, dtype="str"),
        **columns,
    }
    return pd.DataFrame(values)


def nothing(kind: str, size: int = 7) -> pd.Series:
    """A column of missing values."""
    return pd.Series([None] * size, dtype=kind)


TEXTS: dict[str, list[Any]] = {
    "no text at all": [],
    "one text": ["no order 17"],
    "nulls": [None] * 7,
    "empty texts": ["", " ", "\n", "\ufeff", "\u200b"],
    "one text again and again": ["no order 17"] * 5_000,
    "5,000 different texts": [f"{number:x} {'abcd'[number % 4]} w{number * 79:x}" for number in range(5000)],
    "10 MB of one line": ["x" * (10 * MEGABYTE), "y " * (5 * MEGABYTE), None],
    "10 MB of lines": ["no order 17 \n" * 900_000, "Traceback (most recent call last)\n" * 300_000],
    "10 MB of JSON": [json.dumps({"error": "z" * (10 * MEGABYTE)}), json.dumps([{"message": "a"}] * 700_000)],
    "lone surrogates": ["\ud800 no order 17", '{"error": "\\ud800"}', "\udfff" * 50, "ok"],
    "JSON nested 10,000 deep": [
        "[" * 10_000 + "]" * 10_000,
        '{"error":' * 10_000 + '"x"' + "}" * 10_000,
        "[" * 10_000,
        json.dumps("[" * 10_000 + "]" * 10_000),
    ],
    "HTML nested 10,000 deep": [
        "<html>" + "<b>" * 10_000 + "</b>" * 10_000, "<h1" * 20_000, "<title>" * 10_000,
    ],
    "what patterns stumble over": [
        "a" * 100_000,
        "1." * 50_000,
        "0" * 100_000,
        '="' * 50_000,
        "a=" * 50_000,
        "((((" * 25_000,
        "'" * 99_999,
        "/a" * 50_000,
        "a.b" * 33_000,
        ":" * 100_000,
        "1:" * 50_000,
        " at a.b(" * 12_000,
        "\n at " * 20_000,
        "\n    at a.b(C.java:1)" * 5_000,
        '  File "' * 12_000,
        "\n#0 " * 25_000,
        "Caused by: " * 9_000,
        "-" * 100_000,
        "<" * 100_000,
        "{" * 100_000,
        "panic: " * 14_000,
        " ---> " * 16_000,
        "%" * 100_000,
        "eyJ" * 33_000,
    ],
    "control characters": [
        "\x00\x01 no order", "\u202e drawkcab", "\r\n\t\v\f", "\x1b[31mred\x1b[0m", "$x_$ <b>",
    ],
    "a word of each alphabet": ["заказ 17 не найден", "注文 17 がありません", "٣ طلب", "e\u0301" * 999],
}  # fmt: skip
FRAMES: dict[str, Callable[[], pd.DataFrame]] = {
    **{name: lambda texts=texts: frame_of(texts) for name, texts in TEXTS.items()},
    "nulls in every column": lambda: pd.DataFrame(
        {name: nothing(str(kind)) for name, kind in frame_of(["x"]).dtypes.items()}
    ),
    "no columns": lambda: frame_of(["x"])[[]],
    "numbers for bodies": lambda: frame_of([1.5, 2.5, 3.5]).astype({"response_body": "float64"}),
    "other objects for bodies": lambda: frame_of([{"a": 1}, ["b"], b"c"]),
    "odd statuses": lambda: frame_of(
        ["x"] * 6, response_status=[math.inf, -math.inf, math.nan, -1.0, 1e300, 0.5]
    ),
    "times at the ends": lambda: frame_of(
        ["x"] * 4,
        failed_at=pd.to_datetime(["1900-01-01", "2262-01-01", None, "1970-01-01"], utc=True),
        created_at=pd.to_datetime([None, "2261-01-01", None, "2026-01-01"], utc=True).as_unit("ms"),
    ),
    "one id for all": lambda: frame_of(["x", "y", "z"], dlq_id="d"),
    "an index with repeats": lambda: frame_of(["x", "y", "z"]).set_index(pd.Index([0, 0, 0])),
    "bytes that are not text": lambda: frame_of(
        [""] * 3, response_body_base64=["/w==", "no base64", "A" * MEGABYTE]
    ),
}  # fmt: skip
OF_FAILURES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "group_failures": lambda frame: tk.group_failures(frame).frame,
    "assign": lambda frame: tk.group_failures(frame).assign(frame)["signature"],
    "classify_failures": lambda frame: tk.classify_failures(frame).frame,
    "failure_trend": lambda frame: failure_trend(frame, now=NOW),
    "compare_failures": lambda frame: (
        tk.compare_failures(frame[: len(frame) // 2], frame).frame
    ),
    "explain_change": lambda frame: (
        tk.analysis.explain_change(frame[: len(frame) // 2], frame).frame
    ),
    "explain_spike": lambda frame: tk.explain_spike(frame).frame,
    "find_similar_failures": lambda frame: (
        tk.find_similar_failures(frame, frame[1:]).frame
    ),
    "report_failures": lambda frame: tk.report_failures(frame, now=NOW).to_html(),
    "results as HTML": lambda frame: [
        made._repr_html_()
        for made in (tk.group_failures(frame), tk.compare_failures(frame[:0], frame))
    ],
}
OF_TEXTS: dict[str, Callable[[list[Any]], Any]] = {
    "error_signatures": error_signatures,
    "similar_texts": lambda texts: similar_texts(texts[:200], texts[:2_000]),
}
COUNTS: dict[str, Any] = {
    "none": [],
    "one": [3],
    "nulls": [None, None, 3],
    "not a number": [math.nan] * 100,
    "infinite": [1.0] * 50 + [math.inf],
    "negative": [-1] * 50,
    "huge": [1e300] * 50 + [0] * 50,
    "texts": ["a", "b"],
    "nested": [[1, 2], [3, 4]],
    "all zero": [0] * 10_000,
    "one burst": [0] * 9_999 + [10**9],
    "10,000 bins": np.random.default_rng(3).negative_binomial(2, 0.1, 10_000),
    "100,000 bins": np.random.default_rng(3).negative_binomial(2, 0.1, 100_000),
    "100,000 bins of bursts": np.random.default_rng(3)
    .pareto(0.5, 100_000)
    .clip(0, 1e9),
    "100,000 bins, each another": np.arange(100_000) ** 2,
}


def bounded(function: Callable[[Any], Any], value: Any) -> Any:
    """What a function returns, or the error by which it refuses; any other error fails the test."""
    before = time.process_time()
    try:
        result = function(value)
    except ToolkitError as error:
        result = error
    assert time.process_time() - before < SECONDS
    return result


PAIRS = [
    (function, what)
    for number, what in enumerate(FRAMES)
    for function in in_turn(OF_FAILURES, number, of=2)
]
"""Each frame with every second function, and the next frame with the others."""


@pytest.mark.parametrize(("function", "what"), PAIRS)
def test_failures_have_a_result_or_a_clear_error(function, what):
    """Whatever the bodies, statuses and times are; the frame stays as it was."""
    frame = FRAMES[what]()
    before = frame.copy(deep=True)
    result = bounded(OF_FAILURES[function], frame)
    assert not isinstance(result, ToolkitError) or len(str(result)) < 2_000
    pd.testing.assert_frame_equal(frame, before)


@pytest.mark.parametrize("what", TEXTS)
@pytest.mark.parametrize("function", OF_TEXTS)
def test_texts_have_a_result(function, what):
    """Of texts none is refused, whatever they hold."""
    texts = TEXTS[what]
    result = bounded(OF_TEXTS[function], texts)
    assert not isinstance(result, ToolkitError)
    if function == "error_signatures":
        assert len(result) == len(texts)
        again = dict(zip(texts, result, strict=True))
        assert error_signatures(texts[::-1]) == [again[text] for text in texts[::-1]]


@pytest.mark.parametrize("what", COUNTS)
def test_counts_have_change_points_or_a_clear_error(what):
    """Bins of any number and size."""
    result = bounded(change_points, COUNTS[what])
    assert isinstance(result, ToolkitError) or list(result) == [
        "at",
        "before",
        "after",
        "confidence",
    ]
