"""The main job end to end, on real parts: a run that fails, followed from the application to the report."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest

import toolkit as tk
from toolkit.base.children import first_line, running
from toolkit_service.demo.local_service import LocalService

CANARY = "canary-5f2b9d"


@pytest.fixture(scope="module")
def local() -> Iterator[LocalService]:
    """An embedded service without history, whose waits are a thousandth."""
    with LocalService(
        time_factor=1000, indexes=["docs:dense:64:COSINE:hashing"]
    ) as service:
        yield service


@pytest.fixture
def service(local) -> tk.Service:
    """A connection to it."""
    current, following = local.signing_keys
    return tk.connect(
        queue_url=local.url,
        queue_token=local.token,
        vector_url=local.vector_urls["docs"],
        vector_token=local.token,
        current_signing_key=current,
        next_signing_key=following,
    )


@pytest.fixture
def application(local, tmp_path, monkeypatch) -> Iterator[str]:
    """The address of the application that fails, running as its own process."""
    current, following = local.signing_keys
    variables = os.environ | {
        "TOOLKIT_QUEUE_URL": local.url,
        "TOOLKIT_QUEUE_TOKEN": local.token,
        "TOOLKIT_QUEUE_CURRENT_SIGNING_KEY": current,
        "TOOLKIT_QUEUE_NEXT_SIGNING_KEY": following,
    }
    log = tmp_path / "application.log"
    with running(
        "toolkit_service.demo.application", variables=variables, log=log
    ) as process:
        yield first_line(process, what="the application", log=log)["url"]


def failed_entry(service: tk.Service, run: str, *, kind: str = "workflows"):
    """The DLQ entry of a run, as soon as it is there."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        frame = tk.load_failures(
            service, tk.FailureFilter(workflow_run_id=run), kind=kind, progress=False
        )
        if len(frame):
            return frame
        time.sleep(0.1)
    raise AssertionError(f"{run} did not reach the DLQ")


@pytest.mark.slow
def test_a_run_that_fails_is_followed_from_the_application_to_the_report(
    service, application, tmp_path
):
    """One id: in the application's response, the DLQ, the frame, the run log, the Parquet and the report."""
    run = tk.start_run(service, f"{application}/flows/invoices/send", {"order": 8})
    frame = failed_entry(service, run)
    (entry,) = frame.to_dict("records")
    assert entry["workflow_run_id"] == run
    assert entry["response_status"] == 500
    assert "KeyError" in entry["response_body"]
    # the application's server renews its Date header, of whole seconds, about once a second
    assert entry["failed_at"] >= entry["created_at"].floor("s") - pd.Timedelta("5s")
    runs = tk.load_runs(service, progress=False).set_index("workflow_run_id")
    assert runs.loc[run, "state"] == "RUN_FAILED"

    snapshot = tmp_path / "failures"
    changes = tk.sync_failures(service, snapshot, progress=False)
    assert entry["dlq_id"] in changes.added["dlq_id"].tolist()
    opened = tk.open_snapshot(snapshot)
    plain = pq.read_table(opened.files())
    assert entry["dlq_id"] in plain["dlq_id"].to_pylist()
    found = duckdb.execute(
        "SELECT workflow_run_id, response_body FROM read_parquet(?) WHERE dlq_id = ?",
        [opened.files(), entry["dlq_id"]],
    ).fetchall()
    assert found == [(run, entry["response_body"])]

    report = tk.report_failures(frame)
    for name in ("report.html", "report.md", "report.json"):
        report.save(tmp_path / name)
        assert entry["dlq_id"] in (tmp_path / name).read_text()


@pytest.mark.slow
def test_the_failure_function_was_called_and_its_state_shows(service, application):
    """A run with a failure function reaches CALLBACK_SUCCESS, and the function got the DLQ id."""
    run = tk.start_run(service, f"{application}/flows/orders/prices", {"order": 1})
    until = time.monotonic() + 30
    state = None
    while state != "CALLBACK_SUCCESS" and time.monotonic() < until:
        state = failed_entry(service, run)["failure_function_state"][0]
    assert state == "CALLBACK_SUCCESS"


@pytest.mark.slow
def test_a_callback_is_received_verified_and_in_a_frame(service, application):
    """Callback and failure callback come signed; the failure callback's DLQ id leads to the entry."""
    with tk.CallbackReceiver(service) as receiver:
        delivered = tk.publish(
            service, f"{application}/orders", {"order": 1}, callback=receiver.url
        )
        failing = tk.publish(
            service,
            "http://127.0.0.1:9/nobody",
            {"order": 2},
            retries=1,
            failure_callback=receiver.url,
        )
        receiver.wait(2, timeout=30)
        callbacks = tk.load_callbacks(receiver)
    assert callbacks["verified"].all()
    rows = callbacks.set_index("source_message_id")
    assert rows.loc[delivered.message_id, "kind"] == "callback"
    assert rows.loc[delivered.message_id, "delivered"]
    assert rows.loc[failing.message_id, "kind"] == "failure"
    assert rows.loc[failing.message_id, "exhausted"]
    entry = tk.load_failure(
        service, rows.loc[failing.message_id, "dlq_id"], kind="messages"
    )
    assert entry["url"][0] == "http://127.0.0.1:9/nobody"


def test_canary_secrets_appear_nowhere(service, local, tmp_path, caplog):
    """Secrets in headers and URLs, and our own token, are in no repr, log, frame, file or report."""
    caplog.set_level(logging.DEBUG)
    published = tk.publish(
        service,
        f"http://127.0.0.1:9/hook?code={CANARY}",
        f"our own token is {local.token}",
        headers={
            "Authorization": f"Bearer {CANARY}",
            "X-Api-Key": CANARY,
            "X-Note": f"Bearer {CANARY}",
        },
        content_type="text/plain",
        retries=0,
    )
    frame = None
    until = time.monotonic() + 30
    while time.monotonic() < until:
        frame = tk.load_failures(service, kind="messages", progress=False)
        if published.message_id in "".join(frame["extra"].dropna()):
            break
        time.sleep(0.1)
    assert published.message_id in "".join(frame["extra"].dropna())
    tk.write_snapshot(frame, tmp_path / "snapshot")
    frame.to_parquet(tmp_path / "plain.parquet")
    report = tk.report_failures(frame)
    for name in ("report.html", "report.md", "report.json"):
        report.save(tmp_path / name)
    with pytest.raises(tk.errors.NotFoundError) as raised:
        tk.load_failure(service, "nothing")
    texts = [
        repr(service),
        str(vars(service)),
        caplog.text,
        frame.to_csv(),
        json.dumps(frame.attrs),
        report._repr_html_(),
        repr(raised.value),
        str(vars(raised.value)),
        *(
            path.read_bytes().decode("latin-1")
            for path in Path(tmp_path).rglob("*")
            if path.is_file()
        ),
    ]
    texts += [str(frame[column].tolist()) for column in frame.columns]
    texts += [
        str(pq.read_table(path).to_pylist())
        for path in Path(tmp_path).rglob("*.parquet")
    ]
    for secret in (CANARY, local.token, *local.signing_keys):
        assert [text[:200] for text in texts if secret in text] == []
