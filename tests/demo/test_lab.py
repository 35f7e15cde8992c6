"""`make lab`: JupyterLab runs on the notebooks, its kernels find the service, and nothing is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from jupyter_client.blocking import BlockingKernelClient

from toolkit_service.demo.lab import main

PROJECT = Path(__file__).parents[2]


class Lab:
    """The command, running, and the processes that carry its mark."""

    def __init__(self, folder: Path) -> None:
        self.mark, self.folder, self.log = uuid.uuid4().hex, folder, folder / "log"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        names = (
            "JUPYTER_CONFIG_DIR",
            "JUPYTER_DATA_DIR",
            "JUPYTER_RUNTIME_DIR",
            "IPYTHONDIR",
            "TMPDIR",
        )
        scratch = {name: str(folder / name.lower()) for name in names}
        for path in scratch.values():
            Path(path).mkdir()
        (folder / "notebooks").mkdir()
        (folder / "notebooks" / "story.ipynb").write_bytes(
            (PROJECT / "notebooks" / "01_first_look.ipynb").read_bytes()
        )
        command = [
            sys.executable,
            "-m",
            "toolkit_service.demo.lab",
            "--no-browser",
            "--port",
            str(port),
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ
                | scratch
                | {"XDG_STATE_HOME": f"/nonexistent/{self.mark}"},
                start_new_session=True,
            )
        self.url, self.token = "", ""

    def ask(self, method: str, path: str, **options: Any) -> requests.Response:
        """Call Jupyter's own API."""
        headers = {"Authorization": f"token {self.token}"}
        return requests.request(
            method, f"{self.url}{path}", headers=headers, timeout=20, **options
        )

    def ready(self) -> re.Match[str] | None:
        """The line with its address."""
        return re.search(
            r"(http://127\.0\.0\.1:\d+)/lab\?token=(\w+)", self.log.read_text()
        )

    def connection_file(self) -> Path | None:
        """The file that says how to reach its kernel, once that has opened its ports."""
        files = list((self.folder / "jupyter_runtime_dir").glob("kernel-*.json"))
        return (
            files[0]
            if files and accepts(json.loads(files[0].read_text())["shell_port"])
            else None
        )

    def run_in_kernel(self, code: str) -> None:
        """Run code in its kernel: one that has opened its ports is still starting, and no signal suits it."""
        client = BlockingKernelClient(connection_file=str(until(self.connection_file)))
        client.load_connection_file()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=60)
            reply = client.execute_interactive(code, timeout=60)
        finally:
            client.stop_channels()
        assert reply["content"]["status"] == "ok"

    def marked(self) -> dict[int, dict[str, str]]:
        """Variables of each process that came from this lab, by process id."""
        found = {}
        for process in Path("/proc").iterdir():
            try:
                raw = (
                    (process / "environ").read_bytes()
                    if process.name.isdigit()
                    else b""
                )
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if self.mark.encode() in raw:
                pairs = (
                    line.split(b"=", 1) for line in raw.split(b"\0") if b"=" in line
                )
                found[int(process.name)] = {
                    name.decode(): value.decode() for name, value in pairs
                }
        return found


def accepts(port: int) -> bool:
    """Whether a process listens."""
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def until(found: Callable[[], Any], seconds: float = 60) -> Any:
    """The first true result of the function."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.1)
    return value


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Ready."""
    running = Lab(tmp_path)
    try:
        running.url, running.token = until(running.ready).groups()
        # the address is printed a little early
        until(lambda: accepts(int(running.url.rpartition(":")[2])))
        yield running
    finally:
        for number in running.marked():
            os.kill(number, signal.SIGKILL)
        running.process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_its_kernels_find_the_service_and_all_end_together(
    lab: Lab, how: signal.Signals
) -> None:
    """It lists the notebooks; a kernel gets the variables; any signal ends Jupyter, kernel and service."""
    listed = lab.ask("GET", "/api/contents/").json()
    assert [item["name"] for item in listed["content"]] == ["story.ipynb"]
    assert lab.ask("POST", "/api/kernels", json={"name": "python3"}).status_code == 201
    lab.run_in_kernel("pass")
    # a kernel may have processes of its own for a moment, with the same variables
    service, *others = [
        found for found in lab.marked().values() if "JPY_PARENT_PID" in found
    ]
    assert {found["TOOLKIT_QUEUE_URL"] for found in others} <= {
        service["TOOLKIT_QUEUE_URL"]
    }
    assert service["TOOLKIT_QUEUE_URL"].startswith("http://127.0.0.1:")
    response = requests.get(
        f"{service['TOOLKIT_QUEUE_URL']}/v2/workflows/dlq?count=1",
        headers={"Authorization": f"Bearer {service['TOOLKIT_QUEUE_TOKEN']}"},
        timeout=20,
    )
    assert len(response.json()["messages"]) == 1
    assert service["TOOLKIT_QUEUE_TOKEN"] not in lab.log.read_text()

    lab.process.send_signal(how)
    status = lab.process.wait(40)
    assert (
        status == {signal.SIGINT: 0, signal.SIGTERM: 128 + 15, signal.SIGKILL: -9}[how]
    )
    until(lambda: not lab.marked(), seconds=40)
    assert "Traceback" not in lab.log.read_text()
    if how is not signal.SIGKILL:  # then no process is left to clean up
        assert list((lab.folder / "tmpdir").glob("toolkit-*")) == []


@pytest.mark.slow
def test_it_asks_for_a_token(lab: Lab) -> None:
    """Requests without the token are refused; the first notebook and the address are printed."""
    said = lab.log.read_text()
    assert "JupyterLab opens story.ipynb" in said
    assert "Serving notebooks" not in said
    assert len(said.splitlines()) < 12
    assert requests.get(f"{lab.url}/api/contents/", timeout=20).status_code == 403
    assert lab.ask("POST", "/api/shutdown").status_code == 200
    assert lab.process.wait(40) == 0
    until(lambda: not lab.marked(), seconds=40)


def test_elsewhere_it_says_where_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Outside the project's folder there are no notebooks: status 1 and one line, no traceback."""
    before = {
        number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    monkeypatch.chdir(tmp_path)
    try:
        assert main([]) == 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    (line,) = capsys.readouterr().err.splitlines()
    assert "got 'notebooks'" in line
    assert "folder of the project" in line
