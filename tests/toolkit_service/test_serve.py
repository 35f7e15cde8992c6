"""The service as a process: its first line, its token, its exit, and what survives it."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from toolkit.errors import LocalServiceError
from toolkit_service.demo.local_service import LocalService

Server = Any
COMMAND = [sys.executable, "-m", "toolkit", "serve"]


def wait_until(condition: Callable[[], Any], *, seconds: float = 15) -> Any:
    deadline = time.monotonic() + seconds
    while not (actual := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return actual


def client(service: LocalService) -> httpx.Client:
    return httpx.Client(
        base_url=service.url,
        headers={"Authorization": f"Bearer {service.token}"},
        timeout=10,
    )


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the command with options; ended after the test."""
    children: list[subprocess.Popen[str]] = []

    def begin(*options: str, **variables: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [*COMMAND, "--data-dir", str(tmp_path / "data"), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | variables,
        )
        children.append(child)
        return child

    yield begin
    for child in children:
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout, child.stderr):
            pipe.close()


def test_the_first_line_has_the_address_once_it_is_ready(
    started: Any, tmp_path: Path
) -> None:
    """Addresses of both APIs, the file with the generated token, the process; loopback only."""
    child = started("--index", "plain:dense:2:COSINE")
    line = json.loads(child.stdout.readline())
    assert set(line) == {"queue_url", "vector_urls", "token_file", "pid"}
    assert line["vector_urls"] == {"plain": f"{line['queue_url']}/vector/plain"}
    assert line["pid"] == child.pid
    assert line["queue_url"].startswith("http://127.0.0.1:")
    file = Path(line["token_file"])
    assert file == tmp_path / "data" / "token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    token = file.read_text().strip()
    for address in (
        f"{line['queue_url']}/v2/dlq",
        f"{line['vector_urls']['plain']}/info",
    ):
        assert (
            httpx.get(address, headers={"Authorization": f"Bearer {token}"}).status_code
            == 200
        )
    port = int(line["queue_url"].rpartition(":")[2])
    with socket.socket() as elsewhere, pytest.raises(OSError, match="refused"):
        elsewhere.connect(("127.0.0.2", port))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_cleanly_and_quickly(
    started: Any, number: signal.Signals
) -> None:
    """Exit status 0 soon, also with an idle connection open, and nothing on standard error."""
    child = started()
    address = (
        json.loads(child.stdout.readline())["queue_url"]
        .removeprefix("http://")
        .split(":")
    )
    with socket.create_connection((address[0], int(address[1]))):
        begun = time.monotonic()
        child.send_signal(number)
        _, errors = child.communicate(timeout=60)
    assert time.monotonic() - begun < 5
    assert (child.returncode, errors) == (0, "")


def test_it_ends_with_its_parent(started: Any) -> None:
    """With --with-parent it ends when standard input closes."""
    child = started("--with-parent")
    child.stdout.readline()
    child.stdin.close()
    assert child.wait(timeout=60) == 0


@pytest.mark.slow
def test_a_killed_kernel_leaves_neither_its_service_nor_its_files(
    tmp_path: Path,
) -> None:
    """The service that ``connect("local")`` started ends, and removes its temporary folder itself."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    code = (
        "import time, toolkit as tk\n"
        "service = tk.connect('local')\n"
        "print(len(tk.load_failures(service, limit=3)), flush=True)\n"
        "time.sleep(300)"
    )
    kernel = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(temporary)},
    )
    with kernel:
        assert kernel.stdout is not None
        assert kernel.stdout.readline() == "3\n"
        assert len([*temporary.glob("toolkit-local-*/queue")]) == 1
        kernel.kill()
    wait_until(lambda: not [*temporary.glob("toolkit-*")])


def test_tokens_come_from_the_environment_and_are_in_no_argument(started: Any) -> None:
    """A given token is used and not written down; given signing keys are listed."""
    keys = ("sig_" + "a" * 40, "sig_" + "b" * 40)
    child = started(
        TOOLKIT_SERVE_TOKEN="a-token-from-outside",
        TOOLKIT_SERVE_CURRENT_SIGNING_KEY=keys[0],
        TOOLKIT_SERVE_NEXT_SIGNING_KEY=keys[1],
    )
    line = json.loads(child.stdout.readline())
    assert line["token_file"] is None
    response = httpx.get(
        f"{line['queue_url']}/v2/keys",
        headers={"Authorization": "Bearer a-token-from-outside"},
    )
    assert response.json() == {"current": keys[0], "next": keys[1]}
    assert (
        b"a-token-from-outside" not in Path(f"/proc/{child.pid}/cmdline").read_bytes()
    )


@pytest.mark.parametrize(
    ("options", "variables", "words"),
    [
        (["--index", "docs:dense"], {}, "docs:dense"),
        ([], {"TOOLKIT_SERVE_TOKEN": "short"}, "TOOLKIT_SERVE_TOKEN"),
        ([], {"TOOLKIT_SERVE_CURRENT_SIGNING_KEY": "x" * 40}, "signing keys"),
        (["--token-file", "/dev/null/token"], {}, "token file '/dev/null/token'"),
        (["--data-dir", "/dev/null/data"], {}, "data folder '/dev/null/data'"),
    ],
)
def test_startup_errors_are_one_line(
    started: Any, options: list[str], variables: dict[str, str], words: str
) -> None:
    """Exit status 1, one line on standard error, no traceback, no address."""
    child = started(*options, **variables)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 1
    assert output == ""
    assert words in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--port", "abc", "'abc' is not a whole number; expected 0 to 65535"),
        ("--port", "70000", "70000 is out of range; expected 0 to 65535"),
        (
            "--time-factor",
            "fast",
            "'fast' is not a number; expected 1e-06 to 1000000000",
        ),
        (
            "--max-message",
            "1k",
            "'1k' is not a whole number; expected 1 to 67108864 bytes",
        ),
        (
            "--request-timeout",
            "nan",
            "nan is out of range; expected 0.01 to 86400 seconds",
        ),
    ],
)
def test_an_option_that_is_no_number_says_which_are(
    started: Any, option: str, text: str, said: str
) -> None:
    """Exit status 2, and the last line names the option, what was typed and what fits."""
    child = started(option, text)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 2
    assert errors.endswith(f"argument {option}: {said}\n")


@pytest.mark.slow
def test_one_service_a_folder(tmp_path: Path) -> None:
    """A second one on the same data is refused, with the reason; after the first has ended it starts."""
    with LocalService(tmp_path) as first:
        with pytest.raises(LocalServiceError, match="another embedded service"):
            LocalService(tmp_path).start()
        first.stop()
        with LocalService(tmp_path) as second:
            assert second.url


@pytest.mark.slow
def test_a_killed_service_delivers_after_its_restart(
    tmp_path: Path, server: Server
) -> None:
    """Messages accepted before SIGKILL arrive after the restart under their ids, on the same port."""
    server.always(b"{}", 503)
    with (
        LocalService(
            tmp_path, indexes=["plain:dense:2:COSINE"], time_factor=10
        ) as service,
        client(service) as http,
    ):
        address = service.url
        accepted = [
            http.post(
                f"/v2/publish/{server.url}/{number}", headers={"Service-Delay": "2s"}
            ).json()["messageId"]
            for number in range(20)
        ]
        failing = http.post(f"/v2/publish/{server.url}/failing").json()["messageId"]
        wait_until(lambda: server.requests)
        assert service.kill() == -signal.SIGKILL
        server.always(b"{}")
        before = len(server.requests)
        service.start()
        assert service.url == address
        wait_until(lambda: len(server.requests) - before >= 21)
        delivered = {
            request.headers["Service-Message-Id"]
            for request in server.requests[before:]
        }
        assert delivered == {*accepted, failing}
        wait_until(
            lambda: (
                len(
                    http.get("/v2/logs", params={"state": "DELIVERED"}).json()["events"]
                )
                == 21
            ),
        )
        service.kill()
        count = len(server.requests)
        service.start()
        time.sleep(0.3)
        assert len(server.requests) == count


@pytest.mark.slow
def test_no_accepted_message_is_lost_over_many_kills(
    tmp_path: Path, server: Server
) -> None:
    """Killed again and again while messages are published and delivered, everything accepted arrives."""
    server.always(b"{}")
    accepted: set[str] = set()
    # the small destination resets connections when many are opened at once; the factor speeds up retries
    with LocalService(
        tmp_path, indexes=["plain:dense:2:COSINE"], time_factor=100
    ) as service:
        for cycle in range(4):
            with client(service) as http:
                for number in range(25):
                    item = {"destination": f"{server.url}/{number}", "body": "x"}
                    responses = http.post(
                        "/v2/batch", json=[item] * (1 + number % 3)
                    ).json()
                    accepted |= {response["messageId"] for response in responses}
                    if number == 5 * cycle + 4:
                        break
            service.kill()
            service.start()
        wait_until(
            lambda: (
                {
                    request.headers["Service-Message-Id"]
                    for request in list(server.requests)
                }
                >= accepted
            )
        )
    assert len(accepted) > 50


@pytest.mark.slow
def test_the_sample_is_filled_in_once(tmp_path: Path) -> None:
    """The whole command has the sample; a restart does not fill it in again."""
    with LocalService(tmp_path, sample=True) as service:
        with client(service) as http:
            before = http.get("/v2/workflows/dlq").json()["messages"]
        assert len(before) == 100
        service.stop()
        service.start()
        with client(service) as http:
            assert http.get("/v2/workflows/dlq").json()["messages"] == before


def test_a_service_shows_no_token(tmp_path: Path) -> None:
    """Neither its repr nor its files hold the token from the environment."""
    with LocalService(tmp_path, indexes=["plain:dense:2:COSINE"]) as service:
        assert service.token not in repr(service) + str(vars(service))
        httpx.get(f"{service.url}/v2/dlq", params={"queue_token": service.token})
        assert all(
            service.token.encode() not in file.read_bytes()
            for file in tmp_path.rglob("*")
            if file.is_file()
        )


def test_a_terminal_gets_the_lines_to_export(tmp_path):
    """Run by a shell, they connect the toolkit; the token itself is not shown."""
    terminal, end = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "toolkit",
        "serve",
        "--port",
        "0",
        "--data-dir",
        str(tmp_path / "it's"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=end)
    os.close(end)
    try:
        announced = json.loads(process.stdout.readline())
        shown = ""
        while shown.count("export") < 3 or not shown.endswith("\n"):
            shown += os.read(terminal, 4096).decode()
        token = Path(announced["token_file"]).read_text().strip()
        assert token not in shown
        lines = [
            line
            for line in shown.replace("\r", "").splitlines()
            if line.startswith("export ")
        ]
        calls = "print(len(tk.load_failures(s)), tk.describe_index(s).vector_count)"
        program = f"import toolkit as tk; s = tk.connect(); {calls}"
        script = "\n".join(
            [*lines, f"{shlex.quote(sys.executable)} -c {shlex.quote(program)}"]
        )
        done = subprocess.run(
            ["sh", "-c", script],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.stdout.split() == ["0", "0"], done.stderr
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()
        os.close(terminal)
