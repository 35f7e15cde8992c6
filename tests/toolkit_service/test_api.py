"""Strict JSON: what is an error, with its offset, and that everything else is read exactly."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit_service.api import ApiError, error_body, parse_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_json_is_read_exactly(value: object) -> None:
    """Whatever can be written as JSON is read as it was."""
    assert parse_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "its end at offset 0"),
        (b'{"a": }', "'}' at offset 6"),
        (b'{"a": 1} x', "'x' at offset 9"),
        (b'\xef\xbb\xbf{"a": 1}', "offset 0"),
        (b'{"a": "\xff"}', "0xff at offset 7"),
        (b"[" * 100_000, "at offset 200"),
        (b'{"a": "]]]", "b": ' + b"[" * 100_000, "at offset 217"),
        (b'["9", ' + b"9" * 5000, "5000 digits at offset 6"),
        (b'["NaN", NaN]', "NaN at offset 8"),
        (b"[-Infinity]", "-Infinity at offset 1"),
        (b"[1e400]", "1e400 at offset 1"),
        (b'{"a": 1, "a": 2}', "'a' a second time at offset 9"),
        (
            b'[{"a": "a:"}, {"b": {"a": 1}, "a": 0, "\\u0062": 2}]',
            "'b' a second time at offset 38",
        ),
    ],
)
def test_what_is_not_strict_json_is_refused(body: bytes, words: str) -> None:
    """400, saying what and where."""
    with pytest.raises(ApiError) as raised:
        parse_json(body)
    assert raised.value.status == 400
    assert words in raised.value.message
    assert "; got " in raised.value.message
    assert "; expected " in raised.value.message


def test_errors_of_vectors_repeat_the_status() -> None:
    """Those of the queue do not."""
    assert json.loads(error_body(404, "gone", "/v2/dlq")) == {"error": "gone"}
    assert json.loads(error_body(404, "gone", "/vector/docs")) == {
        "error": "gone",
        "status": 404,
    }
    assert json.loads(error_body(404, "gone", "/vectors")) == {"error": "gone"}
