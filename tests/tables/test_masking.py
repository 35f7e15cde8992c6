"""Columns are masked as the redactor masks single values, whatever they hold."""

from __future__ import annotations

import base64
import json
import sys
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.base import own_tokens
from toolkit.base.times import http_date_ms
from toolkit.secrets.redaction import Redactor, Secret
from toolkit.tables.base64_bodies import base64_text
from toolkit.tables.column_values import unix_ms
from toolkit.tables.header_maps import header_column
from toolkit.tables.http_dates import http_dates
from toolkit.tables.json_cells import labels_json
from toolkit.tables.masking import ColumnMasker, holding_own

TOKEN = "own-live-token-42"
REDACTOR = Redactor(key=b"test", own=[Secret(TOKEN)])
MASKER = ColumnMasker(REDACTOR)

PARTS = [
    "plain",
    "ü",
    " ",
    "Bearer canary-12345",
    "basic dXNlcjpwYXNz",
    "eyJhbGciOiJI.eyJzdWIiOiIx.c2ln",
    "AKIAABCDEFGHIJKLMNOP",
    "-----BEGIN A KEY-----x",
    "https://ann:pw@host.example/a",
    "//bob:pw@host/",
    "/path",
    "?a=b&token=x",
    "#part",
    "@",
    TOKEN,
    TOKEN.encode().hex(),
    "".join(f"\\u{ord(letter):04x}" for letter in TOKEN),
    "".join(f"%25{ord(letter):02X}" for letter in TOKEN),
    TOKEN.replace("o", "&#x6F;"),
    base64.b64encode(b"a" + TOKEN.encode()).decode(),
]
texts = st.lists(st.sampled_from(PARTS) | st.text(max_size=6), max_size=4).map("".join)
names = st.sampled_from(
    ["Accept", "accept", "X-Api-Key", "Cookie", "Date", "date"]
) | st.text(max_size=4)
maps = st.none() | st.dictionaries(names, st.lists(texts, max_size=3), max_size=4)


@settings(deadline=None)
@given(st.lists(st.none() | texts, max_size=8))
def test_columns_of_text_are_masked_as_single_values(values):
    """Each value as by text, url and own; null stays null, and bytes are masked as text is."""
    column = pa.array(values, pa.string())
    for masked, mask in (
        (MASKER.texts(column), REDACTOR.text),
        (MASKER.urls(column), REDACTOR.url),
        (MASKER.own(column), REDACTOR.own),
    ):
        assert masked.to_pylist() == [
            None if value is None else mask(value) for value in values
        ]
    for raw in [value.encode() + b"\xff" for value in values if value is not None]:
        masked = REDACTOR.own(raw.decode("latin-1")).encode("latin-1")
        assert base64.b64decode(base64_text(raw, REDACTOR)) == masked
    labels = [value for value in values if value is not None]
    assert json.loads(labels_json(labels, REDACTOR) or "[]") == [
        REDACTOR.text(label) for label in labels
    ]


@given(st.lists(st.none() | texts, max_size=8), st.integers(0, 3))
def test_every_row_with_a_token_of_ours_is_found(values, start):
    """The search of a column's bytes finds each row that holds the token, in slices of columns too."""
    column = pa.array(values, pa.string()).slice(start)
    found = set(holding_own(column).tolist())
    assert found >= {
        row
        for row, text in enumerate(column.to_pylist())
        if text and own_tokens.is_in(text)
    }


def test_ordinary_escapes_are_not_searched_for_tokens():
    """Line ends and letters of other alphabets are not escapes that an ASCII token could be written with."""
    usual = [
        r'{"at": "\u00e9\u4e2d", "stack": "a\n\tb"}',
        "100 % of it & more",
        "a & b 50%",
    ]
    assert holding_own(pa.array(usual)).tolist() == []


@settings(deadline=None)
@given(st.lists(maps, max_size=6))
def test_columns_of_headers_are_masked_as_single_maps(found):
    """Each map as by headers, its order and its empty lists as they were; null stays null."""
    masked = MASKER.headers(header_column(found))
    masked.validate(full=True)
    assert [row and list(json.loads(row).items()) for row in masked.to_pylist()] == [
        None if headers is None else list(REDACTOR.headers(headers).items())
        for headers in found
    ]


@settings(deadline=None)
@given(st.lists(maps, max_size=6))
def test_the_first_value_of_a_header_is_found_without_case(found):
    """The first that has a value, in the map's order, however its name is written."""
    expected = []
    for headers in found:
        dates = [
            values
            for name, values in (headers or {}).items()
            if name.lower() == "date" and values
        ]
        expected.append(dates[0][0] if dates else None)
    assert header_column(found).first_values("date").to_pylist() == expected


def test_any_blank_between_a_name_and_a_value_is_one_in_columns():
    r"""RE2, which searches columns, takes five of Python's 29 blanks for ``\s``."""
    blanks = [chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()]
    assert len(blanks) == 29
    forms = [
        "invalid token{} k3J9x0Q2v7B1m5Zz refused",
        "password{}was k3J9x0Q2v7B1m5Zz",
        "secret{}->{}k3J9x0Q2v7B1m5Zz",
        "the api key:{}k3J9x0Q2v7B1m5Zz",
        "passphrase{}'k3J9x0Q2v7B1m5Zz'",
        "identified by{}'k3J9x0Q2v7B1m5Zz'",
        "client_secret{}={}k3J9x0Q2v7B1m5Zz",
        "https://a.example/x{}?token=k3J9x0Q2v7B1m5Zz",
    ]
    texts = [form.replace("{}", blank) for form in forms for blank in blanks]
    # a short column is searched by Python
    harmless = [f"step {number} of the import has failed" for number in range(2_000)]
    column = pa.array(texts + harmless)
    assert MASKER.texts(column).to_pylist()[: len(texts)] == [
        *map(REDACTOR.text, texts)
    ]
    assert MASKER.urls(column).to_pylist()[: len(texts)] == [*map(REDACTOR.url, texts)]


def test_long_columns_are_masked_as_short_ones():
    """However many distinct values there are, each is masked as by itself."""
    values = [f"{part}{number}" for part in PARTS for number in range(10)]
    column = pa.array(values)
    for masker, redactor in (
        (MASKER, REDACTOR),
        (ColumnMasker(Redactor(key=b"k")), Redactor(key=b"k")),
    ):
        assert masker.texts(column).to_pylist() == [
            redactor.text(value) for value in values
        ]
        assert masker.urls(column).to_pylist() == [
            redactor.url(value) for value in values
        ]


def test_few_long_values_are_masked_as_single_values():
    """Arrow searches them, and `re` searches few short ones: both find every secret."""
    filler = "no order 17 in stock\n" * 2_000
    values = [None, filler, *(f"{filler}{part} {filler}" for part in PARTS)]
    column = pa.array(values, pa.string())
    single = [None if value is None else REDACTOR.text(value) for value in values]
    assert MASKER.texts(column).to_pylist() == single
    assert TOKEN not in "".join(filter(None, single))


def test_without_a_redactor_columns_are_returned_unchanged():
    """Nothing is masked and nothing is copied."""
    column = pa.array([TOKEN])
    masker = ColumnMasker(None)
    assert masker.texts(column) is masker.urls(column) is masker.own(column) is column


dates = st.datetimes(datetime(1900, 1, 1), datetime(9999, 12, 31)).map(  # noqa: DTZ001 - written as GMT
    lambda moment: (
        moment.strftime("%a, %d %b ")
        + f"{moment.year:04d}"
        + moment.strftime(" %H:%M:%S GMT")
    )
)
nearly = st.from_regex(
    r"(Thu|Foo), [0-3][0-9] (Jan|Feb|Jun|Xyz) [0-9]{4} [0-2][0-9]:[0-6][0-9]:[0-6][0-9] (GMT|UTC|\+0100)",
    fullmatch=True,
)


@settings(deadline=None)
@given(st.lists(st.none() | dates | nearly | st.text(max_size=12), max_size=8))
def test_a_column_of_dates_is_read_as_single_dates(values):
    """In the usual form or in another, possible or not: the same milliseconds, or null."""
    found = http_dates(pa.array(values, pa.string())).cast(pa.int64()).to_pylist()
    assert found == [
        None if value is None else unix_ms(http_date_ms(value)) for value in values
    ]


def test_every_day_of_four_years_and_the_last_ones():
    """Leap days, month ends and the last second of the calendar are where they belong."""
    days = [
        datetime(2023, 12, 31, 23, 59, 59, tzinfo=UTC) + timedelta(days=number)
        for number in range(1500)
    ]
    days += [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    ]
    texts = [day.strftime("%a, %d %b %Y %H:%M:%S GMT") for day in days]
    assert http_dates(pa.array(texts)).to_pylist() == days
    odd = [
        "Thu, 31 Jun 2026 00:00:00 GMT",
        "Sat, 29 Feb 2025 00:00:00 GMT",
        "Thu, 00 Jan 2026 00:00:00 GMT",
    ]
    assert http_dates(pa.array(odd)).to_pylist() == [None, None, None]


def test_names_of_any_spelling_are_found_in_many_values():
    """In full-width letters, with accents or signs between, as they are or as escapes, before any number."""
    names = [
        "\uff50\uff41\uff53\uff53\uff57\uff4f\uff52\uff44",
        "p\xe4ssword",
        "conn_str",
        "db_pw",
        "creds",
        "s\xadecret",
    ]
    values = [
        json.dumps(
            {"of": {name: 4711}, "n": number},
            ensure_ascii=escaped,
            separators=(",", ":"),
        ).encode()
        for number in range(40)
        for name in names
        for escaped in (False, True)
    ]
    masker = ColumnMasker(Redactor(key=b"key"))
    found = masker.objects({"field": pa.array(values)}, rows=len(values)).to_pylist()
    assert not [text for text in found if "4711" in text]
