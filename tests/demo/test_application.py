"""The failing application over real HTTP: it speaks the protocol, and fails in the ways it promises."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import jwt
import pytest

from toolkit.base.children import first_line, running
from toolkit.errors import LocalServiceError
from toolkit_service.demo.workflows import WORKFLOWS

PARENT = """
import subprocess, sys, time
command = [sys.executable, "-m", "toolkit_service.demo.application", "--with-parent"]
child = subprocess.Popen(command, stdin=subprocess.PIPE)
time.sleep(60)
"""
DELIVERY = {
    "Service-Workflow-Sdk-Version": "1",
    "Service-Workflow-RunId": "wfr_test",
    "Service-Retried": "0",
}


def item(value: object) -> dict[str, str]:
    """One item of a run's history."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return {
        "messageId": "msg_1",
        "body": base64.b64encode(raw).decode(),
        "callType": "step",
    }


def deliver(
    address: str, name: str, *history: object, retried: int = 0, timeout: float = 10
) -> httpx.Response:
    """Deliver as the service does: the history in the body, the protocol's headers beside it."""
    headers = DELIVERY | {"Service-Retried": str(retried)}
    body = json.dumps([item(value) for value in history])
    return httpx.post(
        f"{address}/flows/{name}", content=body, headers=headers, timeout=timeout
    )


def test_a_start_publishes_the_payload_to_itself(application: str, recorder) -> None:
    """Starting returns a run id and publishes the payload byte for byte."""
    payload = '{"order":  12, "name":"Zoë"}'
    response = httpx.post(
        f"{application}/flows/orders/prices",
        content=payload.encode(),
        headers={"X-Tenant": "t1"},
    )
    run_id = response.json()["workflowRunId"]
    assert run_id.startswith("wfr_")
    assert len(run_id) == 25
    (message,) = recorder.messages
    assert (message["destination"], message["body"]) == (
        f"{application}/flows/orders/prices",
        payload,
    )
    headers = message["headers"]
    assert headers["Service-Workflow-Init"] == "true"
    assert headers["Service-Workflow-RunId"] == run_id
    assert headers["Service-Forward-Service-Workflow-Sdk-Version"] == "1"
    assert headers["Service-Forward-x-tenant"] == "t1"
    assert headers["Service-Label"] == "shop,eu"
    assert headers["Service-Failure-Callback"] == f"{application}/failed"
    assert not [
        name
        for name in headers
        if name.lower().endswith(("forward-host", "forward-content-length"))
    ]
    assert recorder.tokens == {f"Bearer {recorder.token}"}


def test_a_run_executes_all_its_steps(application: str, recorder) -> None:
    """Each delivery runs one step and posts its result; a sleep is a delay; the end ends the run."""
    history: list[object] = [{"order": 250}]
    for name, kind in (("reserve", "Run"), ("wait", "SleepFor"), ("charge", "Run")):
        assert deliver(application, "orders/checkout", *history).status_code == 200
        message = recorder.messages[-1]
        step = json.loads(message["body"])
        assert (step["stepName"], step["stepType"], step["stepId"]) == (
            name,
            kind,
            len(history),
        )
        assert message["headers"]["Service-Workflow-Init"] == "false"
        assert ("Service-Delay" in message["headers"]) == (kind == "SleepFor")
        history.append(step)
    assert json.loads(recorder.messages[-1]["body"])["out"] == {"charged": 2.5}
    assert recorder.ended == []
    assert deliver(application, "orders/checkout", *history).status_code == 200
    assert recorder.ended == ["wfr_test?cancel=false"]
    assert len(recorder.messages) == 3


@pytest.mark.parametrize(
    ("name", "number", "status", "kind", "sign"),
    [
        ("orders/prices", 1000, 500, "application/json", b'"error":"FetchError"'),
        ("orders/prices", 1001, 422, "application/json", b"validation failed"),
        ("orders/prices", 1002, 409, "application/json", b"conflict"),
        ("orders/prices", 1003, 500, "application/json", b"<script>"),
        (
            "legacy/sync",
            1000,
            500,
            "text/html; charset=utf-8",
            b"<h1>Something went wrong</h1>",
        ),
        ("legacy/sync", 1001, 502, "text/html; charset=utf-8", b"502 Bad Gateway"),
        ("invoices/send", 1000, 500, "text/plain; charset=utf-8", b"KeyError: 'XK'"),
        ("invoices/send", 1001, 500, "text/plain; charset=utf-8", b"KeyError: 'ZZ'"),
        (
            "orders/fulfil",
            1000,
            500,
            "text/plain; charset=utf-8",
            b"at async fulfil (/srv/shop/src",
        ),
        ("media/thumbnail", 1002, 500, "image/png", b"\x89PNG\r\n"),
        (
            "media/thumbnail",
            1000,
            500,
            "text/plain; charset=iso-8859-1",
            "Händler".encode("latin-1"),
        ),
        (
            "media/thumbnail",
            1001,
            500,
            "text/plain; charset=utf-16",
            "archive".encode("utf-16-le"),
        ),
        ("exports/bulk", 1000, 429, "application/json", b"rate limited"),
        (
            "ledger/post",
            1000,
            500,
            "text/plain; charset=utf-8",
            b"During handling of the above exception",
        ),
        (
            "ledger/post",
            1001,
            507,
            "text/plain; charset=utf-8",
            b"no space left on device",
        ),
        ("accounts/remove", 1000, 489, "application/json", b"unknown order"),
    ],
)
def test_each_failing_workflow_fails_in_its_way(
    application: str,
    recorder,
    name: str,
    number: int,
    status: int,
    kind: str,
    sign: bytes,
) -> None:
    """JSON, HTML, stack traces, binary bodies, rate limits: status, type and text are as promised."""
    response = deliver(application, name, {"order": number})
    assert (response.status_code, response.headers["content-type"]) == (status, kind)
    assert sign in response.content
    assert recorder.messages == []
    assert (status == 429) == ("retry-after" in response.headers)
    assert (status == 489) == ("service-nonretryable-error" in response.headers)


def test_every_workflow_marked_as_failing_does(application: str) -> None:
    """The demo waits in the DLQ for exactly the runs that cannot succeed."""
    for workflow in WORKFLOWS:
        if workflow.name == "reports/render":  # tested below: it responds too late
            continue
        history: list[object] = [{"order": 1000}]
        for _ in workflow.steps:
            response = deliver(
                application, workflow.name, *history, retried=workflow.retries
            )
            history.append({"out": None})
            if response.status_code != 200:
                break
        assert (response.status_code != 200) == workflow.fails, workflow.name


def test_the_second_step_of_the_payment_fails(application: str, recorder) -> None:
    """The first step succeeds, the second panics."""
    assert deliver(application, "payments/capture", {"order": 1000}).status_code == 200
    response = deliver(
        application,
        "payments/capture",
        {"order": 1000},
        json.loads(recorder.messages[0]["body"]),
    )
    assert response.status_code == 500
    assert b"goroutine" in response.content


def test_the_traceback_is_of_a_real_exception(application: str) -> None:
    """The Python failure is a real traceback: it names the line that raised."""
    response = deliver(application, "invoices/send", {"order": 1000})
    assert 'toolkit_service/demo/workflows.py", line ' in response.text


def test_the_flaky_workflow_succeeds_on_its_third_try(application: str) -> None:
    """Two attempts fail, the third succeeds."""
    found = [
        deliver(application, "orders/flaky", {"order": 7}, retried=retried).status_code
        for retried in range(3)
    ]
    assert found == [503, 503, 200]


def test_the_slow_workflow_does_not_respond_in_time(application: str) -> None:
    """It sets a timeout of a second, and is slower."""
    slow = next(workflow for workflow in WORKFLOWS if workflow.name == "reports/render")
    assert slow.settings["Timeout"] == "1s"
    with pytest.raises(httpx.ReadTimeout):
        deliver(application, "reports/render", {"order": 1}, timeout=1.2)


def test_a_body_that_is_no_history_gets_an_error_response(application: str) -> None:
    """Bodies that no service sends get an error that says why, and the next request is served."""
    for body in (
        b"",
        b"{}",
        b"[]",
        b"[1]",
        b'[{"body": 5}]',
        b'[{"body": "e30="}, {"body": "W10="}]',
        b"\xff",
    ):
        response = httpx.post(
            f"{application}/flows/orders/prices", content=body, headers=DELIVERY
        )
        assert response.status_code == 500, body
        assert response.json()["error"] == "ProtocolError"
    for payload in (b"{}", b"no JSON", b"\xff\xfe"):
        response = deliver(application, "orders/prices", payload)
        assert response.status_code == 400


def test_a_start_that_cannot_be_published_fails(application: str, recorder) -> None:
    """When the service refuses the first message, the caller gets an error; binary payloads are refused."""
    assert (
        httpx.post(f"{application}/flows/orders/prices", content=b"\xff").status_code
        == 400
    )
    recorder.refuse = True
    response = httpx.post(f"{application}/flows/orders/prices", content=b"{}")
    assert response.status_code == 500
    assert "status 503" in response.json()["message"]


def test_callbacks_are_kept_and_failure_functions_can_fail(application: str) -> None:
    """One failure function works, one does not; both, and the callback endpoint, store the requests."""
    body = {"status": 500, "url": "http://127.0.0.1/a", "dlqId": "dlq_1", "retried": 2}
    assert httpx.post(f"{application}/failed", json=body).status_code == 200
    assert httpx.post(f"{application}/failed/broken", json=body).status_code == 500
    assert (
        httpx.post(f"{application}/callback", json=body | {"dlqId": None}).status_code
        == 200
    )
    found = httpx.get(f"{application}/received").json()[-3:]
    assert [(callback["kind"], callback["dlqId"]) for callback in found] == [
        ("failure", "dlq_1"),
        ("failure", "dlq_1"),
        ("callback", None),
    ]
    assert (
        httpx.post(f"{application}/orders", content=b"\x00\xff").content == b"\x00\xff"
    )


def signed(url: str, body: bytes, key: str) -> dict[str, str]:
    """A signature as the service makes it."""
    now = int(time.time())
    digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode()
    claims = {
        "iss": "Upstash",
        "sub": url,
        "iat": now,
        "nbf": now,
        "exp": now + 300,
        "jti": f"j{now}",
        "body": digest,
    }
    return {"Service-Signature": jwt.encode(claims, key, algorithm="HS256")}


def test_with_signing_keys_unsigned_requests_are_refused(
    recorder, tmp_path: Path
) -> None:
    """Deliveries and callbacks must be signed with either key over exactly this body; starts need not be."""
    log = tmp_path / "log"
    environment = recorder.environment(*recorder.keys)
    module = "toolkit_service.demo.application"
    with running(module, "--with-parent", variables=environment, log=log) as process:
        address = first_line(process, what="the application", log=log)["url"]
        body = json.dumps([item({"order": 1})]).encode()
        url = f"{address}/flows/orders/fulfil"
        good = [
            httpx.post(
                url, content=body, headers=DELIVERY | signed(url, body, key)
            ).status_code
            for key in recorder.keys
        ]
        other = signed(url, body + b" ", recorder.keys[0])
        foreign = signed(url, body, "another_key_0123456789abcdef0123456789")
        bad = [
            httpx.post(url, content=body, headers=DELIVERY | extra).status_code
            for extra in ({}, other, foreign)
        ]
        unsigned = httpx.post(f"{address}/callback", json={"status": 200}).status_code
        started = httpx.post(url, content=b"{}").status_code
    assert (good, bad, unsigned, started) == ([500, 500], [401, 401, 401], 401, 200)


def test_it_ends_when_its_parent_is_killed(recorder, marked) -> None:
    """When the parent is killed, that closes the pipe, and the application ends by itself."""
    environment = marked.environment | recorder.environment()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env=environment
    )
    pid = json.loads(parent.stdout.readline())["pid"]
    assert str(pid) in marked.processes()
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert marked.after(10) == []


def test_a_child_that_does_not_start_says_why(tmp_path: Path) -> None:
    """Without a configured queue the application ends, and the error carries its last words."""
    log = tmp_path / "log"
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TOOLKIT_", "QSTASH_"))
    }
    with (
        pytest.raises(
            LocalServiceError,
            match=r"starting the application: got .*no address and no token",
        ),
        running(
            "toolkit_service.demo.application", variables=environment, log=log
        ) as process,
    ):
        first_line(process, what="the application", log=log)
