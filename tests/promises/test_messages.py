"""No error, warning or log shows a token of ours: whatever a response echoes, wherever, in whatever spelling.

Calls by places in a response by spellings, made by construction. What is looked at is the whole exception:
its text, arguments, attributes and notes, the errors it came from, and its traceback.
"""

from __future__ import annotations

import json
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import toolkit as tk
from tests.conftest import Asked, Reply, ScriptedServer
from tests.promises.canaries import (
    QUEUE_TOKEN,
    SIGNING_KEY,
    SPELLINGS,
    VECTOR_TOKEN,
    shown,
)
from toolkit.errors import ToolkitError

pytestmark = pytest.mark.slow

_APART = 12  # each place has another part of the spellings
TOKENS = (QUEUE_TOKEN, VECTOR_TOKEN, SIGNING_KEY)
CALLS: dict[str, Callable[[tk.Service, str], Any]] = {
    "load_failures": lambda service, _: tk.load_failures(service, progress=False),
    "iter_failures": lambda service, _: list(tk.iter_failures(service, progress=False)),
    "load_failure": lambda service, text: tk.load_failure(service, f"id-{text}"),
    "delete_failures": lambda service, text: tk.delete_failures(
        service, [f"id-{text}"], confirm=True
    ),
    "resume_failures": lambda service, text: tk.resume_failures(
        service, [f"id-{text}"], confirm=True
    ),
    "load_runs": lambda service, _: tk.load_runs(service, progress=False),
    "publish": lambda service, _: tk.publish(service, "https://app.example/a", "x"),
    "load_vectors": lambda service, _: tk.load_vectors(service, progress=False),
    "fetch_vectors": lambda service, text: tk.fetch_vectors(service, [f"id-{text}"]),
    "query_text": tk.query_text,
    "upsert_vectors": lambda service, text: tk.upsert_vectors(
        service, {"id": text, "data": text}
    ),
    "describe_index": lambda service, _: tk.describe_index(service),
    "list_namespaces": lambda service, _: tk.list_namespaces(service),
    "query of a masked id": lambda service, text: tk.query(
        service, id=f"[masked len=1 tag=00000000]{text}"
    ),
}
# what is quoted is truncated: the token begins at its start, or shortly before its end
_BEFORE = (
    "",
    "x" * 40,
)


def _json(value: Any) -> Reply:
    return Reply(200, {"Content-Type": "application/json"}, json.dumps(value).encode())


PLACES: dict[str, Callable[[str], Reply]] = {
    "no JSON": lambda text: Reply(200, {}, f"<html>{text}".encode()),
    "truncated JSON": lambda text: Reply(
        200, {}, f'{{"messages": [{{"dlqId": "{text}'.encode()
    ),
    "text": _json,
    "a list": lambda text: _json([text]),
    "names": lambda text: _json({text: 1}),
    "rows as text": lambda text: _json(
        dict.fromkeys(("messages", "runs", "result", "cursor"), text)
    ),
    "a row as text": lambda text: _json(
        {"messages": [text], "runs": [text], "result": {"vectors": [text]}}
    ),
    "no id": lambda text: _json(
        {
            "messages": [{"dlqId": [text]}],
            "runs": [{text: 1}],
            "result": [{"id": [text]}],
        }
    ),
    "a cursor": lambda text: _json(
        {
            "messages": [{"dlqId": "a"}],
            "runs": [{"workflowRunId": "a"}],
            "cursor": f"c {text}",
        }
        | {
            "result": {
                "vectors": [{"id": "a"}],
                "nextCursor": f"c {text}",
                "dimension": text,
                "namespaces": [text],
            }
        }
    ),
    "numbers": lambda text: _json(
        {"deleted": text, "workflowRunId": [text], "result": {"dimension": text}}
    ),
    "an encoding": lambda text: Reply(200, {"Content-Encoding": _line(text)}, b"{}"),
    "a status": lambda text: Reply(
        418, {}, json.dumps({"error": f"no: {text}"}).encode()
    ),
    "a refusal": lambda text: Reply(
        400, {}, json.dumps({"error": {"message": text}}).encode()
    ),
    "a page of an error": lambda text: Reply(403, {}, f"<h1>{text}</h1>".encode()),
    "a redirect": lambda text: Reply(
        302, {"Location": f"https://app.example/{_line(text)}"}, b""
    ),
    "a limit": lambda text: Reply(
        429,
        {"Retry-After": "0", "X": _line(text)},
        json.dumps({"error": text}).encode(),
    ),
    "a reason": lambda text: _raw(f"HTTP/1.1 400 {_line(text)}\r\n\r\n"),
    "a status line": lambda text: _raw(f"{_line(text)}\r\n\r\n"),
    "a header without a colon": lambda text: _raw(
        f"HTTP/1.1 200 OK\r\n{_line(text)}\r\n\r\n{{}}"
    ),
    "the name of a header": lambda text: _raw(
        f"HTTP/1.1 400 No\r\nX-{_line(text)}: a\r\n\r\n"
    ),
    "a length": lambda text: _raw(
        f"HTTP/1.1 200 OK\r\nContent-Length: {_line(text)}\r\n\r\n{{}}"
    ),
    "a chunk": lambda text: _raw(
        f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{_line(text)}\r\n{{}}\r\n"
    ),
    "times": lambda text: Reply(
        503,
        dict.fromkeys(("Date", "Retry-After", "Burst-RateLimit-Reset"), _line(text)),
        b"",
    ),
}


def _raw(text: str) -> Reply:
    return Reply(raw=text.encode())


def _line(text: str) -> str:
    return text.encode("ascii", "replace").decode()


def _said(error: BaseException) -> Iterator[str]:
    """Everything an exception says, and those that it came from."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        waiting += [one.__cause__, one.__context__]
        yield f"{one} {one!r} {one.args} {vars(one)} {getattr(one, '__notes__', '')}"
        yield "".join(traceback.format_exception(one))


@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize("call", CALLS)
def test_no_message_shows_a_token(
    server: ScriptedServer,
    call: str,
    record_property: Callable[[str, object], None],
    caplog: pytest.LogCaptureFixture,
):
    """For any response and any number of requests, errors, warnings and logs do not contain it."""
    caplog.set_level(logging.DEBUG)
    service = tk.connect(
        queue_url=server.url, queue_token=QUEUE_TOKEN, vector_url=server.url, vector_token=VECTOR_TOKEN,
        current_signing_key=SIGNING_KEY,
    )  # fmt: skip
    spelt = [
        name
        for name in SPELLINGS
        if name.endswith(("each", "padded")) or "," not in name
    ]
    tried = raised = 0
    for turn, (index, reply) in enumerate(PLACES.items()):
        for number, spelling in enumerate(["plain", *spelt[turn % _APART :: _APART]]):
            text = _BEFORE[number % 2] + SPELLINGS[spelling](TOKENS[number % 3])
            response = reply(text)
            caplog.clear()
            server.respond = lambda _, response=response: response
            tried += 1
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                try:
                    CALLS[call](service, text)
                except ToolkitError as error:
                    raised += 1
                    said = [*_said(error), *(str(one.message) for one in warned)]
                else:
                    said = [str(one.message) for one in warned]
            assert (
                shown(
                    "\n".join(dict.fromkeys((*said, *caplog.text.splitlines()))), TOKENS
                )
                == {}
            ), f"{index}, {spelling}"
    record_property("tried", tried)
    assert raised > tried / 2


def test_a_request_is_as_it_was(server: ScriptedServer):
    """Only messages are masked: requests still have the token where it belongs."""
    server.always(b'{"messages": [], "cursor": ""}')
    tk.load_failures(server.service(), progress=False)
    asked: list[Asked] = server.requests
    assert asked[0].headers["Authorization"] == "Bearer queue-token-of-the-test"
