"""The request of a failed delivery, and the code that sends it again."""

from __future__ import annotations

import ast
import base64
import json
import subprocess
import sys
from typing import Any

import pandas as pd
import pytest

import toolkit as tk
from toolkit.secrets.redaction import Redactor

TOKEN = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"
HOSTILE = [
    "'; touch hacked; '",
    "$(touch hacked)",
    "`touch hacked`",
    '"; import os; os.remove("x")',
    "${HOME}",
    "@/etc/hosts",
    "a\\'b\\",
    "%s {title} {0}",
    "\u202e\u2028é日本",
    "!history",
]


def failure(url: str = "https://shop.example/pay", **columns: Any) -> pd.Series:
    """Return a row as `load_failures` returns it."""
    row = {
        "dlq_id": "dlq_1",
        "workflow_url": url,
        "method": "POST",
        "headers": '{"Content-Type": ["application/json"]}',
        "body": '{"order": 7}',
        "body_base64": None,
        "response_status": 500,
        "error": "no order 7",
    }
    return pd.Series(row | columns)


def run_shell(
    command: str, folder: Any, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in an empty folder, with few variables."""
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin"} | variables
    return subprocess.run(
        ["sh"],
        input=command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_request_has_the_exact_body_and_the_headers_of_the_delivery():
    """Base64 is decoded, several values are kept, and headers of the connection and the signature go."""
    headers = {
        "X-Many": ["a", "b"],
        "Content-Length": ["3"],
        "Host": ["shop.example"],
        "Upstash-Signature": ["[masked len=9 tag=5d1c09ab]"],
        "Upstash-Message-Id": ["msg_1"],
    }
    raw = b"\x00\xff\x01"
    request = tk.reproduce(
        failure(
            headers=json.dumps(headers),
            body=None,
            body_base64=base64.b64encode(raw).decode(),
        )
    )
    assert request.body == raw
    assert request.headers == (
        ("X-Many", "a"),
        ("X-Many", "b"),
        ("Upstash-Message-Id", "msg_1"),
    )
    assert (request.status, request.error) == (500, "no order 7")


def test_headers_that_http_does_not_allow_are_left_out_and_named():
    """A line break in a value would be another header."""
    headers = {"X-A": ["1\r\nX-Evil: 2"], "X B": ["1"], "X-C": ["ok"]}
    request = tk.reproduce(failure(headers=json.dumps(headers)))
    assert request.headers == (("X-C", "ok"),)
    assert set(request.left_out) == {"X-A", "X B"}


@pytest.mark.parametrize("text", HOSTILE)
def test_curl_sends_the_exact_request(text, application, tmp_path):
    """Hostile values arrive as they are, and nothing is executed or read from a file."""
    path = "/pay/../a%20b[1]{2}"
    headers = {"X-Value": [text.encode("ascii", "ignore").decode()], "X-Empty": [""]}
    request = tk.reproduce(
        failure(application.url + path, headers=json.dumps(headers), body=text)
    )
    ended = run_shell(request.to_curl(), tmp_path)
    assert ended.returncode == 0, ended.stderr
    (received,) = application.received
    sent = dict(received.headers)
    assert received.body == text.encode()
    assert (received.method, received.path) == ("POST", path)
    assert sent["X-Value"] == headers["X-Value"][0].strip()
    assert sent["X-Empty"] == ""
    assert "Content-Type" not in sent
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("body", [bytes(range(256)), b"a" * 200_000])
def test_curl_sends_binary_and_long_bodies(body, application, tmp_path):
    """No argument of a program could contain them."""
    encoded = base64.b64encode(body).decode()
    request = tk.reproduce(failure(application.url, body=None, body_base64=encoded))
    ended = run_shell(request.to_curl(), tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert application.received[0].body == body


@pytest.mark.parametrize("text", HOSTILE)
def test_python_sends_the_exact_request(text, application):
    """The program consists of one call with literals, and the request arrives."""
    value = text.encode("latin-1", "ignore").decode("latin-1").strip()
    request = tk.reproduce(
        failure(
            f"{application.url}/pay",
            headers=json.dumps({"X-Value": [value]}),
            body=text,
            error=text,
        )
    )
    program = request.to_python()
    _only_literals(program)
    exec(compile(program, "program", "exec"), {})  # noqa: S102 - the code that is tested
    (received,) = application.received
    assert received.body == text.encode()
    assert dict(received.headers)["X-Value"] == value


def _only_literals(program: str) -> None:
    """Check that a program calls nothing but the named functions."""
    calls = [
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.Call)
    ]
    allowed = ("requests.request", "print", "os.environ.get")
    assert all(call in allowed or call.endswith(".encode") for call in calls), calls


@pytest.mark.parametrize("text", HOSTILE)
def test_the_test_file_fails_until_the_application_succeeds(
    text, application, tmp_path
):
    """The file is a test of pytest, whose result follows the status of the application."""
    request = tk.reproduce(failure(body=text, error=text, dlq_id=text))
    file = tmp_path / "test_failure.py"
    file.write_text(request.to_pytest(), encoding="utf-8")
    _only_literals(request.to_pytest())
    namespace: dict[str, Any] = {}
    exec(compile(file.read_text(encoding="utf-8"), file, "exec"), namespace)  # noqa: S102
    namespace["APPLICATION"] = application.url
    namespace["test_the_failed_request_succeeds"]()
    application.status = 500
    with pytest.raises(AssertionError):
        namespace["test_the_failed_request_succeeds"]()
    assert application.received[0].path == "/pay"


@pytest.mark.slow
def test_pytest_runs_the_test_file(application, tmp_path):
    """The address of the application is a variable of the environment."""
    (tmp_path / "test_failure.py").write_text(tk.reproduce(failure()).to_pytest())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    ended = subprocess.run(
        command,
        cwd=tmp_path,
        env={"APPLICATION": application.url, "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in ended.stdout, ended.stdout


def secret_step() -> str:
    """Return the body of a workflow whose first step returned a token."""
    step = {"stepId": 1, "stepName": "log in", "out": json.dumps({"token": TOKEN})}
    encoded = base64.b64encode(json.dumps(step).encode()).decode()
    return json.dumps([{"messageId": "m1", "body": encoded}])


@pytest.mark.parametrize(
    "columns",
    [
        {"body": json.dumps({"password": TOKEN})},
        {"body": f"Authorization: Bearer {TOKEN}"},
        {"body": secret_step()},
        {"body": base64.b64encode(secret_step().encode()).decode()},
        {
            "body": None,
            "body_base64": base64.b64encode(b"\xff token=" + TOKEN.encode()).decode(),
        },
        {"workflow_url": f"https://ann:{TOKEN}@shop.example/pay"},
        {"workflow_url": f"https://shop.example/pay?token={TOKEN}"},
        {"headers": json.dumps({"Authorization": [f"Bearer {TOKEN}"]})},
        {"headers": json.dumps({"X-Note": [f"token={TOKEN}"]})},
        {"error": f"bad token={TOKEN}"},
        {"dlq_id": TOKEN},
    ],
    ids=lambda columns: next(iter(columns)),
)
def test_code_never_contains_a_secret(columns):
    """Each place of a request can contain a secret, in base64 as well."""
    request = tk.reproduce(failure(**columns))
    shown = [request.to_curl(), request.to_python(), request.to_pytest()]
    shown += [repr(request), request._repr_html_()]
    for text in shown:
        assert TOKEN not in text
        assert base64.b64encode(TOKEN.encode()).decode().rstrip("=")[:-2] not in text
        for word in text.replace("\\", "").replace("'", '"').split('"'):
            assert TOKEN not in decoded(word)


def decoded(word: str) -> str:
    """Return the text of base64, two levels deep."""
    for _ in range(2):
        try:
            word = base64.b64decode(word, validate=True).decode("utf-8", "replace")
        except ValueError:
            break
    return word


def test_code_with_a_secret_stops_until_it_is_filled_in(application, tmp_path):
    """The shell and Python name the variable, and send the value when it is set."""
    mask = Redactor().mask(TOKEN)
    headers = json.dumps({"Authorization": [f"Bearer {mask}"]})
    request = tk.reproduce(failure(f"{application.url}/pay", headers=headers))
    (placeholder,) = request.placeholders
    assert placeholder.variable == "FILL_IN_AUTHORIZATION"
    ended = run_shell(request.to_curl(), tmp_path)
    assert ended.returncode != 0
    assert placeholder.variable in ended.stderr
    assert not application.received
    ended = run_shell(request.to_curl(), tmp_path, FILL_IN_AUTHORIZATION=TOKEN)
    assert ended.returncode == 0, ended.stderr
    assert dict(application.received[0].headers)["Authorization"].endswith(TOKEN)


def test_filling_in_names_what_is_missing():
    """An error names the variable; None leaves the header out."""
    headers = json.dumps(
        {"Authorization": ["[masked len=9 tag=5d1c09ab]"], "X-A": ["1"]}
    )
    request = tk.reproduce(failure(headers=headers))
    with pytest.raises(tk.errors.InputError, match="FILL_IN_AUTHORIZATION"):
        request.fill_in({})
    assert request.fill_in({"FILL_IN_AUTHORIZATION": None}).headers == (("X-A", "1"),)
    filled = request.fill_in({"FILL_IN_AUTHORIZATION": "Bearer x"})
    assert ("Authorization", "Bearer x") in filled.headers


def test_equal_values_share_a_variable_and_others_do_not():
    """Two headers whose names differ in punctuation only have two variables."""
    first, second = (
        Redactor().mask("one-secret-value"),
        Redactor().mask("another-secret"),
    )
    headers = json.dumps({"X-Key": [first, first], "X.Key": [second]})
    request = tk.reproduce(failure(headers=headers))
    variables = [placeholder.variable for placeholder in request.placeholders]
    assert variables == ["FILL_IN_X_KEY", "FILL_IN_X_KEY_2"]


@pytest.mark.parametrize("rows", [0, 2])
def test_one_row_is_expected(rows):
    """The error names the number of rows."""
    frame = pd.DataFrame([failure()] * rows, columns=failure().index)
    with pytest.raises(tk.errors.InputError, match="one row"):
        tk.reproduce(frame)


def test_a_status_can_be_a_float_of_pandas():
    """A column with a missing status has floats; a status that is no number is an input error."""
    assert tk.reproduce(failure(response_status=500.0)).status == 500
    assert tk.reproduce(failure(response_status=float("nan"))).status is None
    with pytest.raises(tk.errors.InputError, match="response_status 'soon' of 'dlq_1'"):
        tk.reproduce(failure(response_status="soon"))
