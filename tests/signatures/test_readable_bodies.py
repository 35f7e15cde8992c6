"""Bodies that are text, but not UTF-8, are read like other bodies; their bytes stay as they are."""

from __future__ import annotations

import base64
import gzip
import random
import tracemalloc
import zlib

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolkit as tk
from toolkit.secrets.redaction import Redactor
from toolkit.signatures.readable_bodies import readable_body
from toolkit.tables.frames import error_column

BODY = '{"error": "order 17: Größe überschritten", "code": "E_SIZE"}'
SECRET = "k3J9x0Q2v7B1m5P8w6T4"


def encoded(raw: bytes) -> str:
    """Bytes as a frame has them."""
    return base64.b64encode(raw).decode()


FORMS = {
    "gzip": gzip.compress(BODY.encode()),
    "gzip of Latin-1": gzip.compress(BODY.encode("latin-1")),
    "zlib": zlib.compress(BODY.encode()),
    "UTF-16": BODY.encode("utf-16"),
    "UTF-16 of the other order": b"\xfe\xff" + BODY.encode("utf-16-be"),
    "UTF-16 without a mark": BODY.encode("utf-16-le"),
    "UTF-16 of the other order without a mark": BODY.encode("utf-16-be"),
    "UTF-32": BODY.encode("utf-32"),
    "Latin-1": BODY.encode("latin-1"),
    "Windows-1252": BODY.encode("cp1252"),
}


@pytest.mark.parametrize("name", FORMS)
def test_text_of_any_encoding_is_read(name):
    """By what the bytes show."""
    assert readable_body(None, encoded(FORMS[name])) == BODY


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("no quota for Zoë".encode()[:-1], "no quota for Zo"),
        (gzip.compress(b"disk full " * 5_000)[:-9], "disk full disk full"),
        ("price “€ 5” is wrong".encode("cp1252"), "price “€ 5” is wrong"),
    ],
    # gzip contains the time, and workers have to agree on the names of tests
    ids=["UTF-8", "gzip", "Windows-1252"],
)
def test_text_that_was_cut_off_and_signs_of_windows_are_read(raw, expected):
    """The service truncates bodies at any byte."""
    text = readable_body(None, encoded(raw))
    assert text is not None
    assert text.startswith(expected)


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff",
        b"\xff\xfe\x00\x01",
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x02",
        b"\x1f\x8b\x08 not gzip, although it begins so",
        gzip.compress(bytes(range(256)) * 3),
        b"\x08\x96\x01\x12\x07disk full\xff",
        "ошибка диска".encode("cp1251"),
        random.Random(7).randbytes(500),
    ],
    ids=[
        "byte", "mark", "PNG", "no gzip", "gzip of bytes", "protobuf", "Cyrillic", "random",
    ],
)  # fmt: skip
def test_other_bytes_are_no_text(raw):
    """Images, messages of protobuf, and letters of which nobody can tell the alphabet."""
    assert readable_body(None, encoded(raw)) is None


@given(st.binary(max_size=300))
def test_any_bytes_are_text_or_not(raw):
    """No bytes are an error, and text has no control characters."""
    text = readable_body(None, encoded(raw))
    assert text is None or (text.strip() and "\x00" not in text)


@pytest.mark.parametrize("value", [None, "", "not base64!", "YQ"])
def test_a_missing_body_stays_missing(value):
    """As does base64 that cannot be decoded."""
    assert readable_body(None, value) is None
    assert readable_body("plain", value) == "plain"


def test_ascii_in_utf_16_is_read_although_it_is_utf_8():
    """The service sends it as text with a zero next to each letter."""
    text = "disk full"
    assert readable_body(text.encode("utf-16-le").decode(), None) == text
    assert readable_body("a zero \x00 in a text", None) == "a zero \x00 in a text"


def test_a_bomb_takes_little_memory():
    """100 MB of one character are 100 kB compressed; only the start is decompressed."""
    bomb = encoded(gzip.compress(b"x" * 100_000_000))
    tracemalloc.start()
    text = readable_body(None, bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert text is not None
    assert len(text) == 400_000
    assert peak < 5_000_000


def frame(*raws: bytes) -> pd.DataFrame:
    """Failures with these bodies."""
    count = len(raws)
    times = pd.to_datetime(["2026-03-01"] * count, utc=True).astype(
        "datetime64[ms, UTC]"
    )
    return pd.DataFrame(
        {
            "dlq_id": [f"d{number}" for number in range(count)],
            "workflow_url": ["https://shop.example/checkout"] * count,
            "response_status": pd.array([500] * count, "Int64"),
            "response_body": pd.array([None] * count, "str"),
            "response_body_base64": [*map(encoded, raws)],
            "failed_at": times,
            "created_at": times,
        }
    )


def test_all_encodings_of_one_error_are_one_group():
    """With the title and class of the error; bytes that are no text stay a group of their own."""
    failures = frame(*FORMS.values(), b"\x00\xff\x00\xfe")
    groups = tk.group_failures(failures).frame.set_index("kind")
    assert groups.loc["json", "count"] == len(FORMS)
    assert "Größe überschritten" in groups.loc["json", "title"]
    assert groups.loc["binary", "count"] == 1
    errors = tk.analysis.count_errors(failures)
    assert set(errors["kind"]) == {"json", "binary"}
    full = frame(gzip.compress(b'{"error": "disk quota exceeded"}'))
    plain = full.assign(
        response_body='{"error": "disk quota exceeded"}', response_body_base64=None
    )
    classes = [
        tk.classify_failures(one).frame["class"].tolist() for one in (full, plain)
    ]
    assert classes[0] == classes[1]


def test_the_column_error_and_a_filter_read_the_text():
    """The lines of the column are those of a body in UTF-8; a filter compares the same line."""
    failures = frame(*FORMS.values(), b"\x00\xff\x00\xfe")
    table = pa.Table.from_pandas(failures)
    lines = error_column(table, Redactor()).to_pylist()
    assert set(lines[:-1]) == {"E_SIZE: order 17: Größe überschritten"}
    assert lines[-1] == "binary, 4 bytes"
    zeros = (
        BODY.replace("ö", "o").replace("ß", "s").replace("ü", "u").encode("utf-16-le")
    )
    plain = table.set_column(
        table.schema.get_field_index("response_body"),
        "response_body",
        pa.array([zeros.decode()] * len(table), pa.string()),
    )
    (line,) = set(
        error_column(
            plain.drop_columns("response_body_base64").append_column(
                "response_body_base64", pa.nulls(len(table), pa.string())
            ),
            Redactor(),
        ).to_pylist()
    )
    assert line == "E_SIZE: order 17: Grose uberschritten"
    entry = {"responseBodyBase64": encoded(FORMS["gzip"])}
    assert tk.FailureFilter(error="Größe").matches(entry)


def test_secrets_in_encoded_bodies_are_masked():
    """Wherever the text of such a body is shown; the stored bytes stay exact."""
    raws = [
        gzip.compress(f"no access with api_key={SECRET}".encode()),
        f"kein Zugriff für api_key={SECRET}".encode("latin-1"),
        f"no access with api_key={SECRET}".encode("utf-16-le"),
    ]
    failures = frame(*raws)
    groups = tk.group_failures(failures)
    shown = groups.frame.to_csv() + tk.analysis.count_errors(failures).to_csv()
    assert "no access" in shown
    assert SECRET not in shown
    assert SECRET not in repr(groups.learned)
    assert failures["response_body_base64"].tolist() == [*map(encoded, raws)]
