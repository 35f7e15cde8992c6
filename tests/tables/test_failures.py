"""DLQ entries become rows: every documented field, nothing mangled, nothing dropped, secrets masked."""

from __future__ import annotations

import base64
import gc
import json

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.errors import ProtocolError
from toolkit.secrets.redaction import Redactor, Secret
from toolkit.tables.failures import DecodingTuning, FailureDecoder, decode_leniently
from toolkit.tables.frames import to_frame
from toolkit.tables.schemas import FAILURES
from toolkit_service.demo.history import wire_entries

REDACTOR = Redactor(key=b"test", own=[Secret("own-live-token-42")])

ENTRY = {
    "dlqId": "dlq_1",
    "workflowUrl": "https://app.example/pay",
    "workflowRunId": "wfr_1",
    "workflowCreatedAt": 1_767_225_600_000,
    "url": "https://app.example/pay",
    "method": "POST",
    "header": {"Content-Type": ["application/json"], "X-Many": ["a", "b"]},
    "body": '{"amount": 1}',
    "bodyBase64": "",
    "maxRetries": 3,
    "createdAt": 1_767_225_600_123,
    "failureCallback": "https://app.example/failed",
    "callerIP": "10.0.0.1",
    "label": "eu",
    "labels": ["eu", "beta"],
    "flowControlKey": "tenant-7",
    "failureFunctionState": "CALLBACK_FAIL",
    "responseStatus": 500,
    "responseHeader": {"date": ["Thu, 01 Jan 2026 00:10:00 GMT"]},
    "responseBody": "boom",
    "responseBodyBase64": "",
}


def decode_failures(rows: bytes, *, redactor) -> pa.Table:
    """A page decoded as a load does it; what both decoders can read, both read alike."""
    table = FailureDecoder(redactor).decode(rows)
    assert table.equals(decode_leniently(rows, redactor=redactor))
    return table


def rows_of(*entries, redactor=REDACTOR) -> list[dict]:
    """The decoded rows as plain values."""
    return decode_failures(json.dumps(entries).encode(), redactor=redactor).to_pylist()


def test_every_documented_field_has_its_column():
    """An entry with all fields of the specification fills every column but extra and the binary ones."""
    (row,) = rows_of(ENTRY)
    assert row["dlq_id"] == "dlq_1"
    assert row["workflow_created_at"] == pd.Timestamp("2026-01-01T00:00:00Z")
    assert row["created_at"] == pd.Timestamp("2026-01-01T00:00:00.123Z")
    assert row["failed_at"] == pd.Timestamp("2026-01-01T00:10:00Z")
    assert row["headers"] == '{"Content-Type":["application/json"],"X-Many":["a","b"]}'
    assert (row["body"], row["response_body"]) == ('{"amount": 1}', "boom")
    assert (row["max_retries"], row["response_status"]) == (3, 500)
    assert row["labels"] == '["eu","beta"]'
    assert {name for name, value in row.items() if value is None} == {
        "body_base64",
        "response_body_base64",
        "extra",
        "stated_failed_at",
    }


def test_missing_fields_are_null_and_an_empty_page_has_all_columns():
    """An entry of nothing but its id, and a page of no entries, have the whole schema."""
    (row,) = rows_of({"dlqId": "a"})
    assert [name for name, value in row.items() if value is not None] == ["dlq_id"]
    empty = decode_failures(b"[]", redactor=None)
    assert empty.schema == FAILURES
    frame = to_frame(empty)
    assert frame.dtypes["max_retries"] == "Int64"
    assert str(frame.dtypes["failed_at"]) == "datetime64[ms, UTC]"


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=200), st.booleans())
def test_bodies_survive_byte_for_byte(raw, response):
    """Text when UTF-8 and bytes when not, whatever the bytes and whichever field carries them."""
    plain, encoded = (
        ("responseBody", "responseBodyBase64") if response else ("body", "bodyBase64")
    )
    column = "response_body" if response else "body"
    try:
        sent = {plain: raw.decode(), encoded: ""}
    except UnicodeDecodeError:
        sent = {plain: "", encoded: base64.b64encode(raw).decode()}
    (row,) = rows_of({"dlqId": "a", **sent})
    found = (
        row[column].encode()
        if row[column] is not None
        else base64.b64decode(row[f"{column}_base64"])
    )
    assert found == raw
    assert (row[column] is None) == bool(sent[encoded])
    assert row["extra"] is None


def test_base64_that_is_utf8_becomes_text_and_broken_base64_is_kept():
    """The text column holds all UTF-8; a field that does not decode is kept in extra as it was sent."""
    first, second = rows_of(
        {"dlqId": "a", "bodyBase64": base64.b64encode(b"plain").decode()},
        {"dlqId": "b", "bodyBase64": "%%%"},
    )
    assert (first["body"], first["body_base64"]) == ("plain", None)
    assert (second["body"], second["body_base64"]) == (None, None)
    assert json.loads(second["extra"]) == {"body": None, "bodyBase64": "%%%"}


def test_text_that_is_not_utf_8_is_kept_as_bytes():
    """Bytes that are not UTF-8 and lone surrogates in a body become bytes; neighbours stay as they are."""
    page = (
        b'[{"dlqId": "a", "body": "x\xff"}, {"dlqId": "b", "body": "\\ud800"},'
        b' {"dlqId": "c", "body": "ok"}]'
    )
    rows = decode_failures(page, redactor=REDACTOR).to_pylist()
    assert [row["body_base64"] for row in rows] == ["eP8=", "7aCA", None]
    assert [row["body"] for row in rows] == [None, None, "ok"]


def test_such_text_elsewhere_is_escaped_and_kept_in_extra():
    """A lone surrogate in a column of text shows as an escape, and its JSON stays exact in extra."""
    (row,) = decode_failures(
        b'[{"dlqId": "a", "flowControlKey": "k\\ud800"}]', redactor=REDACTOR
    ).to_pylist()
    assert row["flow_control_key"] == "k\\ud800"
    assert row["extra"] == '{"flowControlKey":"k\\ud800"}'


@pytest.mark.parametrize(
    ("wire", "value", "column"),
    [
        ("maxRetries", "3", "max_retries"),
        ("maxRetries", True, "max_retries"),
        ("maxRetries", 2.5, "max_retries"),
        ("responseStatus", 2**63, "response_status"),
        ("createdAt", -1, "created_at"),
        ("createdAt", 10**17, "created_at"),
        ("workflowCreatedAt", "yesterday", "workflow_created_at"),
        ("labels", "eu", "labels"),
        ("labels", ["eu", 1], "labels"),
        ("header", ["a"], "headers"),
        ("header", {"a": [1]}, "headers"),
        ("method", 5, "method"),
        ("body", {"a": 1}, "body"),
    ],
)
def test_values_that_do_not_fit_their_column_are_in_extra(wire, value, column):
    """A known field of the wrong kind is null in its column, its JSON in extra, and the row is kept."""
    (row,) = rows_of({"dlqId": "a", wire: value})
    assert row[column] is None
    assert json.loads(row["extra"])[wire] == value


def test_unknown_fields_survive_with_all_their_digits():
    """Fields that are unknown are in extra; integers keep every digit."""
    (row,) = rows_of(
        {"dlqId": "a", "newThing": {"n": 12345678901234567890123}, "empty": {}}
    )
    assert row["extra"] == '{"empty":{},"newThing":{"n":12345678901234567890123}}'


def test_integers_with_nulls_stay_integers():
    """A column of large integers and nulls does not become floats."""
    frame = to_frame(
        decode_failures(
            b'[{"dlqId":"a","maxRetries":9007199254740993},{"dlqId":"b"}]',
            redactor=None,
        )
    )
    assert frame["max_retries"].tolist() == [9007199254740993, pd.NA]


def test_the_deprecated_label_counts_where_it_is_alone():
    """Labels are what came; only where there are none does the single label become a list."""
    rows = rows_of(
        {"dlqId": "a", "label": "old"},
        {"dlqId": "b", "label": "old", "labels": []},
        {"dlqId": "c", "label": "old", "labels": ["new"]},
        {"dlqId": "d", "labels": []},
    )
    assert [row["labels"] for row in rows] == ['["old"]', '["old"]', '["new"]', None]


@pytest.mark.parametrize(
    "bad",
    [b"[1]", b"[null]", b'[{"dlqId": ""}]', b"[{}]", b'[{"dlqId": 5}]', b"{}", b"[{]"],
)
def test_rows_without_an_identity_are_a_protocol_error(bad):
    """Entries without an id, and what is not an object, are errors and never dropped."""
    with pytest.raises(ProtocolError):
        decode_failures(bad, redactor=None)


def test_secrets_in_headers_and_urls_are_masked_and_comparable():
    """Equal secrets have equal masks; harmless headers stay; bodies stay exact but for our own token."""
    entry = ENTRY | {
        "header": {
            "Upstash-Forward-Authorization": ["Bearer canary-1"],
            "X-Note": ["Bearer canary-1"],
            "Accept": ["*/*"],
        },
        "url": "https://ann:canary-2@app.example/pay?code=canary-3#canary-4",
        "body": "Bearer canary-5 and own-live-token-42",
        "newThing": {"password": "canary-6", "note": "own-live-token-42"},
    }
    row, again = rows_of(entry, entry | {"dlqId": "dlq_2"})
    text = json.dumps({**row, "body": None}, default=str)
    assert all(f"canary-{number}" not in text for number in (1, 2, 3, 4, 6))
    assert "own-live-token-42" not in json.dumps(row, default=str)
    assert row["body"].startswith("Bearer canary-5 and [masked len=17 tag=")
    assert json.loads(row["headers"])["Accept"] == ["*/*"]
    assert row["headers"] == again["headers"]
    assert row["url"].startswith("https://[masked len=12 tag=")
    assert "/pay?code=[masked len=8 tag=" in row["url"]


def test_reveal_keeps_everything():
    """Without a redactor, values are kept as they were sent."""
    entry = ENTRY | {
        "header": {"Authorization": ["Bearer canary"]},
        "url": "https://a:b@h.example/?q=1",
    }
    (row,) = rows_of(entry, redactor=None)
    assert row["headers"] == '{"Authorization":["Bearer canary"]}'
    assert row["url"] == "https://a:b@h.example/?q=1"


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.fixed_dictionaries(
            {}, optional=dict.fromkeys([*ENTRY, "unknown"], json_values)
        ),
        max_size=4,
    )
)
def test_any_json_in_any_field_keeps_every_row(entries):
    """However wrong the values, every entry with an id has its row, of the one schema."""
    entries = [entry | {"dlqId": f"id-{index}"} for index, entry in enumerate(entries)]
    table = decode_failures(json.dumps(entries).encode(), redactor=REDACTOR)
    assert table.schema == FAILURES
    assert table["dlq_id"].to_pylist() == [entry["dlqId"] for entry in entries]
    table.validate(full=True)
    assert pa.Table.from_pandas(
        to_frame(table), schema=FAILURES, preserve_index=False
    ).num_rows == len(entries)


@pytest.mark.slow
def test_pages_as_specified_are_decoded_strictly(monkeypatch):
    """The sample history, with fields no schema knows and with bytes in base64, needs no lenient decoder."""
    entries = wire_entries(1_767_225_600_000)[:2000]
    pages = [
        json.dumps(entries[start : start + 100]).encode()
        for start in range(0, 2000, 100)
    ]
    lenient = [decode_leniently(page, redactor=REDACTOR) for page in pages]
    monkeypatch.setattr("toolkit.tables.failures.decode_leniently", None)
    table = FailureDecoder(REDACTOR).decode(pages)
    assert table.equals(pa.concat_tables(lenient))
    assert table["extra"].null_count < table.num_rows


def test_many_pages_are_decoded_as_one_by_one(monkeypatch):
    """In batches of any size, with misfits and new fields between them, rows are in the pages' order."""
    pages = [
        json.dumps([ENTRY | {"dlqId": f"a{number}"} for number in range(3)]).encode(),
        b"[]",
        json.dumps([ENTRY | {"dlqId": "b", "first": 1}]).encode(),
        json.dumps(
            [
                ENTRY | {"dlqId": "c", "createdAt": -1},
                {"dlqId": "d", "second": {"a": []}},
            ]
        ).encode(),
        b'[{"dlqId": "e", "body": "\xff"}]',
        json.dumps([{"dlqId": "f", "bodyBase64": "%"}]).encode(),
        json.dumps([ENTRY | {"dlqId": "g", "first": None}]).encode(),
    ]
    alone = pa.concat_tables(
        [decode_leniently(page, redactor=REDACTOR) for page in pages]
    )
    assert alone["dlq_id"].to_pylist() == [
        "a0",
        "a1",
        "a2",
        "b",
        "c",
        "d",
        "e",
        "f",
        "g",
    ]
    for size in (1, 800, 3000, 1_000_000):
        monkeypatch.setattr(
            "toolkit.tables.failures.TUNING", DecodingTuning(batch_bytes=size)
        )
        assert FailureDecoder(REDACTOR).decode(pages).equals(alone)
    assert FailureDecoder(REDACTOR).decode([]).equals(FAILURES.empty_table())


@pytest.mark.parametrize(
    "name", ['a"b', "a\\b", "a\nb", "\x00", "é", "`", "unknown_0", "dlqid", ""]
)
def test_unknown_fields_of_any_name_survive(name):
    """Whatever a field is called, its row has it, and other fields are still learned afterwards."""
    decoder = FailureDecoder(REDACTOR)
    for number, fields in enumerate([{name: 1}, {"other": 2}, {name: 3, "last": 4}]):
        (row,) = decoder.decode(json.dumps([ENTRY | fields]).encode()).to_pylist()
        assert json.loads(row["extra"]) == fields, number


@pytest.mark.parametrize(
    "form",
    [
        "Bearer {}",
        "?code={}",
        "password={}",
        "postgres://a:{}@h/x",
        "eyJhbGciOiJIUzI1NiJ9.{}.sig",
        "ghp_{}",
    ],
)
def test_a_secret_in_the_name_of_an_unknown_field_is_masked(form):
    """What is written stays JSON, and other unknown fields stay beside it."""
    secret = "Zq7canary9XtR4vLm2Kd8"
    (row,) = rows_of({**ENTRY, form.format(secret): 1, "zeta": "x"})
    assert secret not in row["extra"]
    names = json.loads(row["extra"])
    assert names.pop("zeta") == "x"
    assert "[masked len=" in "".join(names)


def test_pages_before_a_broken_one_are_yielded():
    """Complete pages are yielded before the error, and none after it."""
    pages = [
        json.dumps([ENTRY | {"dlqId": str(number)}]).encode() for number in range(4)
    ]
    tables = FailureDecoder(REDACTOR).tables([*pages[:3], b'[{"dlqId" "x"}]', pages[3]])
    assert [next(tables)["dlq_id"].to_pylist() for _ in range(3)] == [
        ["0"],
        ["1"],
        ["2"],
    ]
    with pytest.raises(ProtocolError, match="not JSON"):
        next(tables)


@pytest.mark.parametrize("levels", [1, 99, 100, 101, 500, 900, 5000, 100_000])
@pytest.mark.parametrize("more", ["", ', "odd": NaN', ', "createdAt": -1'])
def test_values_that_are_nested_too_deeply_become_their_text(levels, more):
    """At more than 100 levels, wherever an interpreter's own end is, and however the page is decoded."""
    deep = "[" * levels + "]" * levels
    page = f'[{{"dlqId": "a", "cause": {deep}{more}}}, {{"dlqId": "b"}}]'.encode()
    for redactor in (REDACTOR, None):
        first, second = FailureDecoder(redactor).decode(page)["extra"].to_pylist()
        cause = json.loads(first)["cause"]
        assert cause == deep if levels > 100 else json.dumps(cause) == deep
        assert second is None


def test_deeply_nested_values_are_masked_as_text():
    """Only the parts that look like secrets, or the whole text where a name in it says so."""
    bearer = "Bearer abcdefghijkl"
    for inside, kept in (
        (f'{{"note": "{bearer}", "n": 1.10}}', '"n": 1.10}'),
        (f'{{"note": "\\u0042earer{bearer[6:]}", "n": 1.10}}', '"n": 1.10}'),
        ('{"pass\\u0077ord": "abcdefghijkl"}', "[masked len="),
        ('{"password": ["abcdefghijkl"]}', "[masked len="),
    ):
        deep = "[" * 200 + inside + "]" * 200
        (row,) = (
            FailureDecoder(REDACTOR)
            .decode(f'[{{"dlqId": "a", "cause": {deep}}}]'.encode())
            .to_pylist()
        )
        assert "abcdefghijkl" not in row["extra"]
        assert "[masked len=" in row["extra"]
        assert kept in json.loads(row["extra"])["cause"]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_pages_with_misfits_stay_in_order(odd):
    """However many there are, and wherever: each page's rows, in the pages' order."""
    pages = [
        json.dumps(
            [ENTRY | {"dlqId": str(number), "createdAt": -1 if is_odd else 1}]
        ).encode()
        for number, is_odd in enumerate(odd)
    ]
    tables = list(FailureDecoder(REDACTOR).tables(pages))
    assert [table["dlq_id"].to_pylist() for table in tables] == [
        [str(number)] for number in range(len(odd))
    ]
    assert [table["created_at"][0].is_valid for table in tables] == [
        not is_odd for is_odd in odd
    ]


def test_a_page_that_is_no_page_fails_among_others():
    """Pages are read each by itself: two broken ones do not make a whole one."""
    with pytest.raises(ProtocolError):
        FailureDecoder(None).decode([b'[{"dlqId": "a", "body": "', b'"}]'])


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(
                ["n", "api_key", "Bearer abcdefgh1234", "?code=abcdef12"], json_values
            ),
        ),
        max_size=5,
    )
)
def test_unknown_fields_are_written_alike_by_both_decoders(extras):
    """Whatever unknown fields hold: the same text, masked the same, on one page or on two."""
    entries = [{"dlqId": f"id-{index}", **extra} for index, extra in enumerate(extras)]
    page = json.dumps(entries, ensure_ascii=False).encode("utf-8", "surrogatepass")
    other = json.dumps(
        [{"dlqId": "z", "n": "own-live-token-42", "m": "Bearer canary-1"}]
    ).encode()
    expected = [decode_leniently(raw, redactor=REDACTOR) for raw in (page, other)]
    assert (
        FailureDecoder(REDACTOR)
        .decode([page, other])
        .equals(pa.concat_tables(expected))
    )


def test_labels_are_masked_as_other_text_is():
    """Our own token is masked in labels as in the single label."""
    for extra in ({}, {"maxRetries": "odd"}):
        (row,) = rows_of({"dlqId": "a", "label": "own-live-token-42", **extra})
        (other,) = rows_of(
            {"dlqId": "a", "labels": ["eu", "own-live-token-42"], **extra}
        )
        assert (
            json.loads(row["labels"])
            == [row["label"]]
            == json.loads(other["labels"])[1:]
        )
        assert "own-live-token-42" not in json.dumps([row, other], default=str)


def test_collection_of_cycles_is_as_it_was():
    """Decoding leaves the collector on where it was on and off where it was off, errors or not."""
    for switch, on in ((gc.enable, True), (gc.disable, False), (gc.enable, True)):
        switch()
        FailureDecoder(None).decode([b"[]", json.dumps([ENTRY]).encode()])
        assert gc.isenabled() is on
        with pytest.raises(ProtocolError):
            FailureDecoder(None).decode(b"{}")
        assert gc.isenabled() is on
