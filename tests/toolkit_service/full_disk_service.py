"""Run the service on a small disk of its own until the disk is full, then with room again; print a report.

    python -m tests.toolkit_service.full_disk_service FOLDER

The disk is in memory, mounted where only this program and its children see it. The exit status is 77 if the
system does not let a program mount one.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from toolkit.errors import LocalServiceError
from toolkit_service.demo.local_service import LocalService

NOT_PERMITTED = 77
SMALL, LARGE = "6m", "64m"
FIRST_ROWS = 10
MOST = 1000  # requests until the disk must be full
NOBODY = "http://127.0.0.1:9/x"


def main(folder: Path) -> int:
    """Mount the disk, fill it, make room; return the exit status."""
    if _mount("-t", "tmpfs", "-o", f"size={SMALL}", "none", str(folder)):
        return NOT_PERMITTED
    report: dict[str, Any] = {}
    with (
        LocalService(folder / "data", indexes=["plain:dense:2:COSINE"]) as service,
        _client(service) as http,
    ):
        rows = [
            name
            for name in map(str, range(FIRST_ROWS))
            if _upsert(http, name).is_success
        ]
        messages, report["publish"] = _publish_until_refused(http)
        report["upsert"] = _upsert_until_refused(http, rows)
        report["listing"] = http.get("/v2/logs").status_code
        service.kill()
        try:
            service.start()
        except LocalServiceError as error:
            report["start"] = str(error)
        _mount("-o", f"remount,size={LARGE}", str(folder))
    with LocalService(folder / "data") as service, _client(service) as http:
        report["acknowledged"] = [len(messages), len(rows)]
        report["lost messages"] = [
            each for each in messages if http.get(f"/v2/messages/{each}").is_error
        ]
        fetched = http.post("/vector/plain/fetch", json={"ids": rows}).json()["result"]
        report["lost rows"] = [
            name for name, row in zip(rows, fetched, strict=True) if row is None
        ]
        report["after"] = [_publish(http).status_code, _upsert(http, "new").status_code]
    sys.stdout.write(json.dumps(report))
    return 0


def _publish_until_refused(http: httpx.Client) -> tuple[list[str], dict[str, Any]]:
    """Return the ids of the messages that were acknowledged, and the response to the one that was not."""
    accepted: list[str] = []
    while len(accepted) < MOST:
        response = _publish(http)
        if response.is_error:
            return accepted, {"status": response.status_code, **response.json()}
        accepted.append(response.json()["messageId"])
    return accepted, {}


def _upsert_until_refused(http: httpx.Client, accepted: list[str]) -> dict[str, Any]:
    """Add the ids of the rows that were acknowledged; return the response to the first that was not."""
    while len(accepted) < MOST:
        name = str(len(accepted))
        response = _upsert(http, name)
        if response.is_error:
            return {"status": response.status_code, **response.json()}
        accepted.append(name)
    return {}


def _publish(http: httpx.Client) -> httpx.Response:
    return http.post(
        f"/v2/publish/{NOBODY}", headers={"Service-Delay": "1d"}, content=b"y" * 50_000
    )


def _upsert(http: httpx.Client, name: str) -> httpx.Response:
    row = {"id": name, "vector": [1, 2], "data": "x" * 20_000}
    return http.post("/vector/plain/upsert", json=row)


def _client(service: LocalService) -> httpx.Client:
    headers = {"Authorization": f"Bearer {service.token}"}
    return httpx.Client(base_url=service.url, headers=headers, timeout=30)


def _mount(*arguments: str) -> int:
    return subprocess.run(
        ["mount", *arguments], check=False, capture_output=True
    ).returncode


def command(folder: Path) -> list[str] | None:
    """Return the command for this program with mounts of its own; None if that is not permitted."""
    for private in (
        ["unshare", "--mount"],
        ["unshare", "--user", "--map-root-user", "--mount"],
    ):
        if (
            shutil.which(private[0])
            and not subprocess.run([*private, "true"], check=False).returncode
        ):
            return [
                *private,
                sys.executable,
                "-m",
                "tests.toolkit_service.full_disk_service",
                str(folder),
            ]
    return None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
