"""An invalid value never blocks a load, export, query or snapshot: its row is kept, the value as text."""

from __future__ import annotations

import json
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit import FailurePanel
from toolkit.cli import main
from toolkit.errors import (
    MalformedResponseError,
    ProtocolError,
    UnexpectedResultWarning,
)
from toolkit.tables.frame_filters import match_failures
from toolkit.tables.metadata_fields import metadata_fields

LONG = "7" * 5_000
CELL = 32_767  # characters that a cell of Excel holds


def nested(levels: int, inside: str = "1") -> str:
    """Objects in arrays in objects, so many levels deep."""
    whole, half = divmod(levels, 2)
    return '{"a": [' * whole + "[" * half + inside + "]" * half + "]}" * whole


ODD = {
    "5,000 digits": LONG,
    "minus 5,000 digits": f"-{LONG}",
    "an array of 5,000 digits": f'[1, {{"n": {LONG}}}]',
    "900 levels": nested(900),
    "1,100 levels": nested(1_100, LONG),
    "20,000 levels": nested(20_000),
}
WIRE = (
    "workflowUrl", "workflowRunId", "workflowCreatedAt", "url", "method", "header", "body", "bodyBase64",
    "maxRetries", "createdAt", "failureCallback", "callerIP", "label", "labels", "flowControlKey",
    "failureFunctionState", "responseStatus", "responseHeader", "responseBody", "responseBodyBase64",
    "notInTheSchema",
)  # fmt: skip


def entry(number: int, **raw: str) -> str:
    """A DLQ entry, some of its fields as JSON text."""
    fields = {
        "dlqId": f'"dlq_{number}"',
        "workflowUrl": '"https://app.example/orders"',
        "workflowRunId": f'"wfr_{number}"',
        "createdAt": str(1_767_225_600_000 + number),
        "responseStatus": "500",
        "responseHeader": '{"Date": ["Thu, 01 Jan 2026 00:00:00 GMT"]}',
        "responseBody": '"boom"',
        "labels": '["eu"]',
    } | raw
    return "{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}"


def listing(*entries: str, cursor: str = "") -> bytes:
    """A page of the DLQ."""
    return f'{{"messages": [{", ".join(entries)}], "cursor": "{cursor}"}}'.encode()


@pytest.fixture(params=ODD)
def odd(request: Any) -> str:
    """The JSON of a value that no column holds and no ordinary reader reads."""
    return ODD[request.param]


def test_an_entry_with_an_invalid_value_in_any_field_is_kept(server, odd):
    """Every field of an entry in turn: no row is lost, none of the others changes, and `extra` is JSON."""
    rows = [entry(number, **{name: odd}) for number, name in enumerate(WIRE)]
    server.always(listing(entry(99), *rows))
    frame = tk.load_failures(server.service(), progress=False)
    assert tk.get_receipt(frame).complete
    assert sorted(frame["dlq_id"]) == sorted(
        ["dlq_99", *(f"dlq_{n}" for n in range(len(WIRE)))]
    )
    result = frame.set_index("dlq_id")["extra"]
    assert pd.isna(result["dlq_99"])
    for number, name in enumerate(WIRE):
        value = json.loads(result[f"dlq_{number}"])[name]
        while not isinstance(value, str):
            # the text replaces only what could not be read
            value = value["n"] if isinstance(value, dict) else value[-1]
        assert value == (LONG if odd.startswith("[1") else odd)


def test_an_invalid_entry_passes_through_all_readers_of_a_frame(server, odd, tmp_path):
    """Filters, tables, summaries, plots, reports, panels, workbooks, snapshots and exports accept its row."""
    rows = [
        entry(1, notInTheSchema=odd, responseStatus=odd, labels=odd),
        entry(2),
        entry(3, header=odd),
    ]
    server.always(listing(*rows))
    service = server.service()
    frame = tk.load_failures(service, progress=False)
    wanted = tk.FailureFilter(response_status=500)
    assert sorted(frame[match_failures(frame, wanted)]["dlq_id"]) == ["dlq_2", "dlq_3"]
    assert len(tk.load_failures(service, filter=wanted, progress=False)) == 2
    assert len(tk.explode_headers(frame)) == 0
    assert len(tk.explode_headers(frame, column="response_headers")) == 3
    assert sorted(tk.explode_labels(frame)["dlq_id"]) == ["dlq_2", "dlq_3"]
    assert len(tk.flatten(frame)) == 3
    longest = frame["extra"].str.len().max()
    with pytest.warns(UnexpectedResultWarning) if longest > CELL else nullcontext():
        tk.export_excel(frame, tmp_path / "failures.xlsx")
    assert len(pd.read_excel(tmp_path / "failures.xlsx")) == 3
    assert tk.analysis.count_errors(frame)["count"].sum() == 3
    assert tk.summarize(frame).rows == 3
    tk.plots.plot_failure_trend(frame)
    tk.plots.plot_failure_matrix(frame)
    plt.close("all")
    assert "3 failures" in tk.report_failures(frame).to_markdown()
    browser = FailurePanel(frame)
    for dlq_id in frame["dlq_id"]:
        browser.show_failure(dlq_id)
    browser.close()
    tk.write_snapshot(frame, tmp_path / "written")
    pd.testing.assert_frame_equal(tk.read_snapshot(tmp_path / "written"), frame)
    for new in (3, 0):
        changes = tk.sync_failures(service, tmp_path / "synced", progress=False)
        assert (len(changes.added), len(changes.changed), len(changes.gone)) == (
            new,
            0,
            0,
        )
    assert len(tk.read_snapshot(tmp_path / "synced")) == 3
    assert len(json.loads(frame.to_json(orient="records", date_format="iso"))) == 3


def test_an_invalid_entry_is_loaded_by_its_id(server, odd):
    """The single entry as in a listing."""
    server.always(entry(1, notInTheSchema=odd).encode())
    result = tk.load_failure(server.service(), "dlq_1")
    assert result["dlq_id"].tolist() == ["dlq_1"]
    assert "notInTheSchema" in result["extra"][0]


def test_an_invalid_entry_is_retried_where_a_connection_ends_without_a_length(server):
    """A response that ends with its connection is whole if its JSON is, however deep."""
    body = listing(entry(1, notInTheSchema=ODD["20,000 levels"]))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
    server.raw(head + body[:-40])
    server.raw(head + body)
    assert len(tk.load_failures(server.service(), limit=5, progress=False)) == 1
    assert len(server.requests) == 2


def vector_service(server: Any, odd: str) -> tk.Service:
    """An index in which each vector has an invalid value in another field."""
    rows = [
        '{"id": "plain", "vector": [1, 2], "metadata": {"city": "Izmir", "year": 2024}, "score": 0.9}',
        f'{{"id": "metadata", "vector": [1, 2], "metadata": {{"city": "Oslo", "odd": {odd}}}, "score": 0.8}}',
        f'{{"id": "whole", "vector": [1, 2], "metadata": {odd}, "score": 0.7}}',
        f'{{"id": "vector", "vector": [1, {odd}], "score": 0.6}}',
        f'{{"id": "instead", "vector": {odd}, "score": 0.5}}',
        f'{{"id": "sparse", "score": 0.4, "sparseVector": {{"indices": [{odd}], "values": [1]}}}}',
        f'{{"id": "data", "vector": [1, 2], "data": {odd}, "unknown": {odd}, "score": 0.3}}',
    ]
    listed = ", ".join(rows)
    info = {
        "dimension": 2,
        "similarityFunction": "COSINE",
        "namespaces": {"": {"vectorCount": len(rows)}},
    }
    bodies = {
        "/info": json.dumps({"result": info}),
        "/range": f'{{"result": {{"nextCursor": "", "vectors": [{listed}]}}}}',
        "/fetch": f'{{"result": [{listed}, null]}}',
        "/query-data": f'{{"result": [{listed}]}}',
        "/query": f'{{"result": [{listed}]}}',
    }
    server.responding(lambda asked: bodies[asked.path].encode())
    return server.service()


IDS = ["plain", "metadata", "whole", "vector", "instead", "sparse", "data"]


def test_a_vector_with_an_invalid_value_is_kept(server, odd, tmp_path):
    """In metadata, numbers, sparse vectors and data: loaded, exported, fetched and queried, and each said."""
    service = vector_service(server, odd)
    frame = tk.load_vectors(service, progress=False)
    assert frame["id"].tolist() == IDS
    text = frame.set_index("id")["vector_problem"]
    assert text.isna().tolist() == [True, True, True, False, False, False, True]
    texts = frame.set_index("id")["metadata"]
    assert texts["whole"] == odd
    assert texts["metadata"] == f'{{"city": "Oslo", "odd": {odd}}}'
    assert frame.set_index("id")["data"]["data"] == odd
    assert tk.export_vectors(service, tmp_path / "out", progress=False).complete
    stored = tk.read_snapshot(tmp_path / "out")
    pd.testing.assert_frame_equal(stored[frame.columns], frame)
    assert tk.fetch_vectors(service, prefix="p")["id"].tolist() == IDS
    hits = tk.query(
        service, vector=[1.0, 2.0], include_vectors=True, include_metadata=True
    )
    assert hits["id"].tolist() == IDS
    assert hits["score"].tolist() == [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]


def test_invalid_metadata_passes_through_all_readers_of_a_frame(server, odd, tmp_path):
    """Filters see the other fields of the row; the invalid one is text in tables of its own."""
    service = vector_service(server, odd)
    frame = tk.load_vectors(service, progress=False)
    assert frame[tk.match_metadata(frame, "city = 'Oslo'")]["id"].tolist() == [
        "metadata"
    ]
    assert "metadata" in frame[tk.match_metadata(frame, "HAS FIELD odd")]["id"].tolist()
    with warnings.catch_warnings():
        # a comparison of the invalid text with a number is explained
        warnings.simplefilter("ignore", UnexpectedResultWarning)
        matches = tk.match_metadata(frame, "odd.a.b.c = 1 OR odd > 5000 OR odd[0] = 2")
    assert not matches.any()
    exploded = tk.explode_metadata(frame)
    assert exploded["city"].tolist()[:2] == ["Izmir", "Oslo"]
    value = exploded["odd"][1]
    assert (json.loads(value)[1]["n"] if odd.startswith("[1") else value) == (
        LONG if odd.startswith("[1") else odd
    )
    assert [item.name for item in metadata_fields(frame)][:2] != []
    tk.flatten(frame)
    with pytest.warns(UnexpectedResultWarning) if len(odd) > CELL else nullcontext():
        tk.export_excel(frame, tmp_path / "vectors.xlsx")
    tk.write_snapshot(frame, tmp_path / "written")
    pd.testing.assert_frame_equal(tk.read_snapshot(tmp_path / "written"), frame)
    tk.plots.plot_vector_norms(frame)
    plt.close("all")
    tk.MetadataFilterPanel(frame).close()
    hits = tk.query(
        service, vector=[1.0, 2.0], include_vectors=True, include_metadata=True
    )
    tk.plots.plot_score_by_rank(hits)
    tk.plots.plot_score_distribution(hits)
    plt.close("all")


@pytest.mark.parametrize(
    ("score", "read"), [(LONG, np.inf), (f"-{LONG}", -np.inf), ("7" * 350, np.inf)]
)
def test_a_score_of_too_many_digits_is_infinite(server, score, read):
    """The hit stays, as those of 1e400 do."""
    server.always(
        f'{{"result": [{{"id": "a", "score": {score}}}, {{"id": "b", "score": 0.5}}]}}'.encode()
    )
    assert tk.query(server.service(), vector=[1.0])["score"].tolist() == [read, 0.5]


def test_callbacks_and_runs_with_invalid_values_are_kept(server, odd, tmp_path):
    """Bodies of callbacks, from bytes and from files, and rows of the run log."""
    body = (
        f'{{"sourceMessageId": "m", "status": {odd}, "header": {odd}, "other": {odd}}}'
    )
    (tmp_path / "many.json").write_text(f"[{body}, {body}]")
    (tmp_path / "lines.jsonl").write_text(f"{body}\n{body}\n")
    (tmp_path / "one.json").write_text(body)
    for source, count in ((body.encode(), 1), (tmp_path, 5)):
        result = tk.load_callbacks(source if isinstance(source, Path) else [source])
        assert result["source_message_id"].tolist() == ["m"] * count
        assert set(json.loads(result["extra"][0])) == {"status", "header", "other"}
    server.always(
        f'{{"runs": [{{"workflowRunId": "a", "labels": {odd}, "x": {odd}}}], "cursor": ""}}'.encode()
    )
    runs = tk.load_runs(server.service(), progress=False)
    assert runs["workflow_run_id"].tolist() == ["a"]
    assert set(json.loads(runs["extra"][0])) == {"labels", "x"}


def test_the_command_line_prints_hits_with_odd_metadata(
    server, odd, monkeypatch, capfdbinary
):
    """As JSON lines that every reader of JSON can read."""
    vector_service(server, odd)
    monkeypatch.setenv("TOOLKIT_VECTOR_URL", server.url)
    monkeypatch.setenv("TOOLKIT_VECTOR_TOKEN", "vector-token-of-the-test")
    assert main(["query", "--json", "hello"]) == 0
    printed = capfdbinary.readouterr().out.decode()
    lines = [json.loads(line) for line in printed.splitlines()]
    assert [line["id"] for line in lines] == IDS


def test_an_id_that_is_no_text_is_still_an_error(server, odd):
    """Rows are identified by their ids: a missing one is not made up."""
    server.always(listing(f'{{"dlqId": {odd}}}'))
    with pytest.raises(ProtocolError, match="dlqId="):
        tk.load_failures(server.service(), progress=False)


WHOLE = listing(entry(1), entry(2))
HALVED = {
    "two arrays": b'{"messages":['
    + entry(1).encode()
    + b'],"messages":[],"cursor":""}',
    "two arrays, the first empty": b'{"messages":[],"messages":['
    + entry(1).encode()
    + b'],"cursor":""}',
    "another spelling": b'{"messages":['
    + entry(1).encode()
    + b'],"mess\\u0061ges":[],"cursor":""}',
    "two cursors": b'{"messages":['
    + entry(1).encode()
    + b'],"cursor":"","messages":[],"cursor":""}',
    "an end in the middle": b'{"messages":['
    + entry(1).encode()
    + b'],"cursor":""} {"messages":[],"cursor":""}',
    "broken in between": b'{"messages":['
    + entry(1).encode()
    + b',{"dlqId"}],"cursor":""}',
}


@pytest.mark.parametrize("name", HALVED)
def test_a_page_with_duplicate_rows_is_read_again(server, name, tmp_path):
    """It is never half of a listing: a load has all rows, and a sync marks nothing gone."""
    service = server.service()
    server.always(WHOLE)
    tk.sync_failures(service, tmp_path, progress=False)
    server.json(HALVED[name])
    changes = tk.sync_failures(service, tmp_path, progress=False)
    assert (len(changes.added), len(changes.changed), len(changes.gone)) == (0, 0, 0)
    server.json(HALVED[name])
    frame = tk.load_failures(service, progress=False)
    assert frame["dlq_id"].tolist() == ["dlq_1", "dlq_2"]
    receipt = tk.get_receipt(frame)
    assert receipt.complete
    assert (receipt.pages, receipt.retries) == (1, 1)


@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize("name", HALVED)
def test_a_page_that_always_has_rows_twice_is_an_error(server, name, tmp_path):
    """Malformed for every call, and the snapshot is unchanged."""
    service = server.service()
    server.always(WHOLE)
    tk.sync_failures(service, tmp_path, progress=False)
    server.always(HALVED[name])
    for act in (
        lambda: tk.load_failures(service, progress=False),
        lambda: tk.load_failures(
            service, filter=tk.FailureFilter(error="boom"), progress=False
        ),
        lambda: tk.sync_failures(service, tmp_path, progress=False),
    ):
        with pytest.raises(MalformedResponseError):
            act()
    stored = tk.read_snapshot(tmp_path)
    assert stored["dlq_id"].tolist() == ["dlq_1", "dlq_2"]
    assert stored["gone_after"].isna().all()


def test_members_that_are_not_known_are_no_rows_twice(server):
    """Other fields of an envelope are left alone, wherever they are."""
    for body in (
        b'{"messages":[' + entry(1).encode() + b'],"more":[],"cursor":""}',
        b'{"messages":[' + entry(1).encode() + b'],"n":{"messages":[]},"cursor":null}',
        b'{"total":1,"cursor":"","messages":[' + entry(1).encode() + b"]}",
    ):
        server.always(body)
        frame = tk.load_failures(server.service(), progress=False)
        assert frame["dlq_id"].tolist() == ["dlq_1"]
        assert tk.get_receipt(frame).retries == 0


@pytest.mark.parametrize(
    "dtype", ["datetime64[us]", "datetime64[ms, UTC]", "timestamp[us][pyarrow]"]
)
def test_times_without_a_zone_are_compared_in_utc(dtype):
    """Frames that others made, or that a spreadsheet wrote, often have none."""
    times = pd.Series(pd.to_datetime(["2026-01-01 10:00", "2026-01-01 12:00"])).astype(
        "datetime64[ms]" if "UTC" in dtype else dtype
    )
    times = times.dt.tz_localize("UTC") if "UTC" in dtype else times
    wanted = tk.FailureFilter(since="2026-01-01T11:00:00Z")
    assert match_failures(
        pd.DataFrame({"created_at": times, "failed_at": times}), wanted
    ).tolist() == [
        False,
        True,
    ]
