"""`connect("local")`: a real child process that never outlives the one that started it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

import toolkit as tk
from toolkit.errors import LocalServiceError

_PROGRAM = """
import json, sys, toolkit
service = toolkit.connect("local")
print(json.dumps(service.queue.url), flush=True)
sys.stdin.read()
"""


def responds(url: str) -> bool:
    """Whether something listens at the address."""
    service = tk.connect(queue_url=url, queue_token="a-wrong-token")
    try:
        tk.load_failures(service, limit=1)
    except tk.errors.AuthenticationError:
        return True
    except tk.errors.TransportError:
        return False
    raise AssertionError("a wrong token was accepted")


def gone(url: str) -> bool:
    """Whether nothing listens there any more, within a minute."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        host, port = url.removeprefix("http://").split(":")
        with socket.socket() as peer:
            if peer.connect_ex((host, int(port))) != 0:
                return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
def test_a_service_responds_and_ends_with_its_block(sample_service):
    """Inside the block it responds; after it, nothing listens there, and a request says so at once."""
    with tk.connect("local") as service:
        url = service.need("queue").url
        assert responds(url)
        assert "token" not in repr(service).lower()
        assert len(service.need("queue").signing_keys) == 2
    assert gone(url)
    service.close()
    started = time.monotonic()
    for ask in (tk.load_failures, tk.load_vectors, tk.describe_index):
        with pytest.raises(
            LocalServiceError, match=r"was closed; .* tk\.connect\('local'\)"
        ):
            ask(service)
    assert time.monotonic() - started < 1  # nothing is sent, so nothing is retried


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_the_child_ends_however_its_parent_dies(end):
    """Terminated, killed or interrupted: the pipe closes, and the service ends."""
    parent = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with parent:
        assert parent.stdout
        url = parent.stdout.readline().decode().strip().strip('"')
        assert responds(url)
        parent.send_signal(end)
        parent.wait(20)
    assert gone(url)


def test_a_child_that_does_not_start_says_why(monkeypatch):
    """A failing start is an error with the child's own last words."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(LocalServiceError, match="starting the embedded service"):
        tk.connect("local")


def test_the_token_is_not_on_the_command_line(sample_service):
    """A list of processes shows neither the token nor the signing keys."""
    queue = sample_service.need("queue")
    mine = subprocess.run(
        ["ps", "-o", "args", "--ppid", str(os.getpid())],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "serve" in mine
    assert queue.token.reveal() not in mine
    assert all(key.reveal() not in mine for key in queue.signing_keys)
