"""Exit statuses of real processes, what they print last, and what a schedule survives."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit.cli import main
from toolkit.cli.exit_status import ExitStatus, exit_help
from toolkit.cli.last_judged import last_judged, note_judged
from toolkit.cli.status_command import snapshot_status
from toolkit.errors import TransportError
from toolkit.snapshots.manifest import HEARTBEAT, JUDGED

TOKEN = "command-line-token-0123456789"
PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"


def run(
    *words: str, folder: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "toolkit", *words],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def entry(
    name: str, hours: float = 1, body: str = "connection refused"
) -> dict[str, Any]:
    """An entry of the queue that failed some hours ago."""
    failed = datetime.now(UTC) - timedelta(hours=hours)
    return {
        "dlqId": name, "url": "https://example.com/", "createdAt": int(failed.timestamp() * 1000),
        "responseStatus": 500, "responseBody": body,
    }  # fmt: skip


def configured(url: str) -> dict[str, str]:
    """The variables that lead to a server."""
    return dict(os.environ) | {"TOOLKIT_QUEUE_URL": url, "TOOLKIT_QUEUE_TOKEN": TOKEN}


@pytest.fixture
def synced(server, tmp_path: Path) -> Path:
    """A folder with the snapshots `before` (one kind of failure) and `kept` (two kinds)."""
    old = [entry(f"old-{number}", hours=30 + number) for number in range(40)]
    new = [
        entry(f"new-{number}", body="disk quota exceeded for tenant")
        for number in range(9)
    ]
    with server.service() as service:
        for name, rows in (("before", old), ("kept", old + new)):
            server.always(json.dumps({"messages": rows}).encode())
            tk.sync_failures(service, tmp_path / name, progress=False)
    return tmp_path


def test_help_and_documentation_have_the_same_table() -> None:
    """Each status, its summary and its meaning are in the page; the help of every command lists them."""
    rows = re.findall(
        r"^\| (\d+) \| (.+?) \| (.+?) \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    assert rows == [
        (str(int(status)), status.summary, status.meaning) for status in ExitStatus
    ]
    for status in ExitStatus:
        assert f"{int(status)} {status.summary}" in " ".join(exit_help().split())


@pytest.mark.slow
def test_failures_have_a_status_for_each_verdict(synced: Path) -> None:
    """0, 3, 4 and 6 of processes; the last line of the output is the verdict."""
    report = (
        "report",
        "--snapshot",
        "kept",
        "--previous",
        "before",
        "--output",
        "a.json",
    )
    new = run(*report, "--fail-on", "new", folder=synced)
    assert new.returncode == ExitStatus.NEW, new.stderr
    assert (
        new.stdout.splitlines()[-1]
        == "--fail-on new: failed with status 4 (1 new group)"
    )
    passed = run(
        "report",
        "--snapshot",
        "kept",
        "--previous",
        "kept",
        "--fail-on",
        "new",
        folder=synced,
    )
    assert passed.returncode == ExitStatus.DONE, passed.stderr
    assert passed.stdout.splitlines()[-1].startswith("--fail-on new: passed (")
    assert "not the" not in passed.stderr
    time.sleep(1.1)
    old = run("status", "kept", "--max-age", "1s", folder=synced)
    assert old.returncode == ExitStatus.TOO_OLD
    assert "49 rows; TOO OLD" in old.stdout


def test_verify_goes_on_after_a_damaged_snapshot(synced: Path) -> None:
    """Every path has its line, and one error is enough for status 1."""
    ended = run("verify", "before", "nothing", "kept", folder=synced)
    assert ended.returncode == ExitStatus.FAILED
    assert [line.split(":")[0] for line in ended.stdout.splitlines()] == [
        "before",
        "kept",
    ]
    assert ended.stderr.startswith("toolkit: nothing: ")


def test_options_may_stand_between_paths(synced: Path, monkeypatch, capsys) -> None:
    """Commands of several paths take options before, between and after them; after -- all are paths."""
    monkeypatch.chdir(synced)
    assert (
        main(["verify", "before", "--max-age", "1h", "kept", "--log-format", "time"])
        == 0
    )
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        "before",
        "kept",
    ]
    assert main(["status", "--max-age", "1h", "before", "--json", "kept"]) == 0
    assert [
        json.loads(line)["path"] for line in capsys.readouterr().out.splitlines()
    ] == ["before", "kept"]
    (synced / "kept").rename("--max-age")
    assert main(["verify", "before", "--", "--max-age"]) == 0
    for words in (
        ["verify", "--max-age", "1h"],
        ["verify", "before", "--maximum", "kept"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2


@pytest.mark.slow
def test_an_index_that_is_not_healthy_fails(tmp_path: Path) -> None:
    """With --fail-on unhealthy 7, else 0; of failures it is refused."""
    vectors = pd.DataFrame(
        {
            "id": [f"v{number}" for number in range(40)],
            "vector": list(np.eye(40, 8) + 1),
        }
    )
    vectors["vector"] = vectors["vector"].astype("vector[float32, 8]")
    tk.write_snapshot(vectors, tmp_path / "ill")
    report = ("report", "--vectors", "--snapshot", "ill")
    ended = run(*report, "--fail-on", "unhealthy", folder=tmp_path)
    assert ended.returncode == ExitStatus.UNHEALTHY, ended.stderr
    assert (
        ended.stdout.splitlines()[-1]
        == "--fail-on unhealthy: failed with status 7 (not healthy)"
    )
    assert (
        run(
            "report", "--snapshot", "ill", "--fail-on", "unhealthy", folder=tmp_path
        ).returncode
        == 1
    )


def test_a_folder_without_permission_is_named_and_nothing_else_is_claimed(
    synced: Path,
) -> None:
    """Readers ask to read, writers to write; no snapshot that is not there is called whole."""
    if not hasattr(os, "geteuid"):
        pytest.skip("a system without permissions of POSIX")
    drop = (
        ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
        if os.geteuid() == 0
        else []
    )

    def refused(*words: str) -> str:
        command = [*drop, sys.executable, "-m", "toolkit", *words]
        ended = subprocess.run(
            command, cwd=synced, env=configured("http://127.0.0.1:9"), capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert ended.returncode == 1, ended.stderr
        return " ".join(ended.stderr.split())

    manifest = synced / "kept" / "_manifest.json"
    manifest.chmod(0)
    for command in ("verify", "status"):
        error = refused(command, "kept")
        assert "_manifest.json" in error
        assert "snapshot is complete" not in error
        assert "write" not in error
    manifest.chmod(0o600)
    synced.chmod(0o500)
    try:
        error = refused("snapshot", "failures", "fresh")
    finally:
        synced.chmod(0o700)
    assert "fresh" in error
    assert "The snapshot is complete" not in error


_STOPPED_WHILE_IMPORTED = """
import os, signal, sys

class Stopping:
    def find_spec(self, name, path=None, target=None):
        if name == "toolkit.cli":
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Stopping())
from toolkit.__main__ import main
sys.exit(main())
"""


def test_sigterm_while_a_command_is_imported_has_the_usual_status(
    tmp_path: Path,
) -> None:
    """Importing takes a second, of which a job that is stopped at once must not have another status."""
    command = [sys.executable, "-c", _STOPPED_WHILE_IMPORTED, "verify", "nothing"]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stderr) == (ExitStatus.INTERRUPTED, "")


def test_options_that_would_do_nothing_are_refused(
    synced: Path, monkeypatch, capsys
) -> None:
    """An option that is ignored looks like an alarm that is set."""
    monkeypatch.chdir(synced)
    for name, value in configured("http://127.0.0.1:9").items():
        monkeypatch.setenv(name, value)
    for words in (
        ["snapshot", "failures", "kept", "--max-failures", "2"],
        ["snapshot", "failures", "kept", "--heartbeat", "beat.json"],
        ["report", "--vectors", "--snapshot", "kept", "--max-age", "2h"],
        ["report", "--vectors", "--snapshot", "kept", "--retention", "3d"],
    ):
        assert main(words) == ExitStatus.FAILED
        assert " got " in capsys.readouterr().err


def test_an_error_in_the_middle_of_a_load_is_an_error(
    server, synced: Path, monkeypatch, capsys
) -> None:
    """Status 1 for a report and for a snapshot, which tells that the next run resumes."""
    monkeypatch.chdir(synced)
    for name, value in configured(server.url).items():
        monkeypatch.setenv(name, value)
    for words in (["report"], ["snapshot", "failures", "part"]):
        capsys.readouterr()
        server.json(
            json.dumps({"messages": [entry("first")], "cursor": "next"}).encode()
        )
        server.always(b'{"error": "no such cursor"}', status=400)
        assert main(words) == ExitStatus.FAILED
        assert ("same command resumes" in capsys.readouterr().err) == (
            words[0] == "snapshot"
        )


def test_a_repair_that_does_not_bring_back_every_row_is_not_complete(
    server, synced: Path, monkeypatch
) -> None:
    """Rows of a lost file that the queue no longer has: status 3."""
    monkeypatch.chdir(synced)
    for name, value in configured(server.url).items():
        monkeypatch.setenv(name, value)
    next((synced / "kept").rglob("*.parquet")).unlink()
    server.always(
        json.dumps(
            {"messages": [entry("new-1", body="disk quota exceeded for tenant")]}
        ).encode()
    )
    assert main(["snapshot", "failures", "kept", "--repair"]) == ExitStatus.NOT_COMPLETE
    assert main(["verify", "kept"]) == ExitStatus.DONE


def test_results_that_cannot_be_written_are_an_error(synced: Path) -> None:
    """A full disk behind standard output: status 1 and one line, no traceback."""
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "toolkit", "verify", "kept"],
            cwd=synced, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert ended.returncode == ExitStatus.FAILED
    assert ended.stderr.startswith(
        "toolkit: writing to standard output: got No space left"
    )
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("words", "closed", "status"),
    [
        ("verify kept", "1 2", ExitStatus.DONE),
        ("verify no-such-folder", "1 2", ExitStatus.FAILED),
        ("status kept", "0 1", ExitStatus.DONE),
        ("no-such-command", "2", ExitStatus.USAGE),
    ],
)
def test_streams_may_be_closed(synced: Path, words, closed, status) -> None:
    """The status is that of the command, and no file gets the number of a closed stream."""
    closing = " ".join(f"{number}>&-" for number in closed.split())
    ended = subprocess.run(
        ["sh", "-c", f'"$0" -m toolkit {words} {closing}', sys.executable],
        cwd=synced, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == status
    assert ended.stderr == ""


def test_another_program_writes_into_no_file_if_streams_are_closed(
    tmp_path: Path,
) -> None:
    """The numbers of closed streams are taken before a command opens a file."""
    code = (
        "import os, subprocess\n"
        "from toolkit.cli.output import open_closed_streams\n"
        "open_closed_streams()\n"
        "with open('rows', 'wb') as rows:\n"
        "    os.set_inheritable(rows.fileno(), True)\n"
        "    subprocess.run(['sh', '-c', 'echo out; echo err >&2'], close_fds=False, check=True)\n"
    )
    command = ["sh", "-c", '"$0" -c "$1" <&- >&- 2>&-', sys.executable, code]
    assert (
        subprocess.run(command, cwd=tmp_path, timeout=60, check=False).returncode == 0
    )
    assert (tmp_path / "rows").read_bytes() == b""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["--help", "verify --help", "--version"])
def test_help_that_nobody_reads_is_no_error(words: str, unbuffered: str) -> None:
    """``toolkit --help | true`` and a full disk end without a traceback."""
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "toolkit", *words.split()],
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (ExitStatus.DONE, "")


@pytest.mark.slow
def test_a_schedule_survives_its_log_and_a_rotated_token(
    server, tmp_path: Path, capsys
) -> None:
    """Neither a full log nor a token that is refused once ends it; the heartbeat and `status` tell of it."""
    server.always(b'{"error": "unauthorized"}', status=401)
    token = tmp_path / "token"
    token.write_text("old-token\n")
    kept = tmp_path / "kept"
    words = [
        "snapshot",
        "failures",
        str(kept),
        "--every",
        "2s",
        "--token-file",
        str(token),
    ]
    with Path("/dev/full").open("wb") as full:
        child = subprocess.Popen(
            [sys.executable, "-m", "toolkit", *words],
            env=configured(server.url),
            stdout=full,
            stderr=full,
        )
    heartbeat = _waited(kept, lambda beat: beat["failures_in_a_row"] == 1)
    assert "401" in heartbeat["last_error"]
    assert main(["status", str(kept)]) == ExitStatus.TOO_OLD
    server.always(json.dumps({"messages": [entry("a")]}).encode())
    token.write_text("new-token\n")
    first = _waited(kept, lambda beat: beat["rows"] == 1)
    later = _waited(
        kept, lambda beat: beat["last_complete_at"] > first["last_complete_at"]
    )
    assert later["failures_in_a_row"] == 0
    assert server.requests[0].headers["Authorization"] == "Bearer old-token"
    assert server.requests[-1].headers["Authorization"] == "Bearer new-token"
    capsys.readouterr()
    assert main(["status", str(kept), "--json"]) == ExitStatus.DONE
    status = json.loads(capsys.readouterr().out)
    assert (status["rows"], status["max_age_seconds"], status["status"]) == (
        1,
        3600.0,
        0,
    )
    assert tk.verify_snapshot(kept).unlisted == ()
    assert len(pd.read_parquet(kept)) == 1
    child.send_signal(signal.SIGTERM)
    assert child.wait(30) == ExitStatus.DONE
    assert json.loads((kept / HEARTBEAT).read_bytes())["state"] == "stopped"


def test_status_and_report_allow_the_same_age(
    server, tmp_path: Path, monkeypatch, capsys
) -> None:
    """After one sync a day, after two a minute apart an hour: as the report of the same snapshot."""
    for name, value in configured(server.url).items():
        monkeypatch.setenv(name, value)
    server.always(json.dumps({"messages": [entry("a")]}).encode())
    kept = tmp_path / "kept"
    for hours in (24, 1):
        assert main(["snapshot", "failures", str(kept)]) == ExitStatus.DONE
        capsys.readouterr()
        assert main(["status", str(kept), "--json"]) == ExitStatus.DONE
        status = json.loads(capsys.readouterr().out)
        report = tk.report_failures(tk.read_snapshot(kept)).to_dict()
        assert (
            status["max_age_seconds"]
            == hours * 3600
            == report["data"]["max_age_hours"] * 3600
        )
    # a clock was wrong: nobody knows how old these data are
    early = datetime.now(UTC) - timedelta(days=2)
    assert snapshot_status(str(kept), now=early).exit_status is ExitStatus.TOO_OLD
    assert "a clock is wrong" in str(snapshot_status(str(kept), now=early))


@pytest.mark.slow
def test_a_report_names_what_came_since_one_could_judge_last(
    server, tmp_path: Path, capsys
) -> None:
    """An error of 40 hours ago is new if the last report that could judge was 45 hours ago, then no more."""
    rows = [entry(f"old-{number}", hours=60 + number) for number in range(40)]
    server.always(
        json.dumps(
            {"messages": [*rows, entry("late", 40, "certificate has expired")]}
        ).encode()
    )
    kept = str(tmp_path / "kept")
    with server.service() as service:
        tk.sync_failures(service, kept, progress=False)
    words = ["report", "--snapshot", kept, "--fail-on", "new", "--format", "short"]
    assert main(words) == ExitStatus.DONE
    (Path(kept) / JUDGED).unlink()
    note_judged(kept, datetime.now(UTC) - timedelta(hours=45))
    capsys.readouterr()
    assert main(words) == ExitStatus.NEW
    assert "certificate has expired" in capsys.readouterr().err
    assert main(words) == ExitStatus.DONE
    # a report whose clock was ahead left a time of the future
    note_judged(kept, datetime.now(UTC) + timedelta(days=30))
    assert last_judged(kept) <= datetime.now(UTC)
    (Path(kept) / JUDGED).write_text("no JSON")
    assert last_judged(kept) is None
    assert tk.verify_snapshot(kept).unlisted == ()


def _waited(kept: Path, ready: Any) -> dict[str, Any]:
    """The heartbeat when it is ready, within half a minute."""
    for _ in range(300):
        try:
            heartbeat = json.loads((kept / HEARTBEAT).read_bytes())
        except FileNotFoundError:
            heartbeat = None
        if heartbeat is not None and ready(heartbeat):
            return heartbeat
        time.sleep(0.1)
    raise AssertionError(heartbeat)


def test_messages_name_the_cause(tmp_path: Path, monkeypatch, capsys) -> None:
    """A missing folder is no full disk, and a token with a line end is not the fault of its address."""
    (tmp_path / "kept").write_text("a file")
    cases = {
        ("verify", str(tmp_path / "kept" / "inner")): {},
        ("report", "--output", str(tmp_path / "a.json")): {
            "TOOLKIT_QUEUE_URL": "https://queue.example.com", "TOOLKIT_QUEUE_TOKEN": f"{TOKEN}\n",
        },
    }  # fmt: skip
    said = []
    for words, variables in cases.items():
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert main(words) == ExitStatus.FAILED
        said.append(capsys.readouterr().err)
    assert "room" not in said[0]
    assert "TOOLKIT_QUEUE_TOKEN" in said[1]
    assert "TOOLKIT_QUEUE_URL" not in said[1]
    assert TOKEN not in said[1]


def test_a_dead_proxy_is_named(monkeypatch, no_backoff) -> None:
    """With the variables to look at, and without the password that its address may have."""
    monkeypatch.setenv("HTTP_PROXY", "http://user:pw-canary@127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://user:pw-canary@127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.warns(UserWarning, match="clear text"):
        service = tk.connect(queue_url="http://queue.example.com", queue_token=TOKEN)
    with service, pytest.raises(TransportError) as raised:
        tk.load_failures(service, progress=False)
    assert "127.0.0.1:9" in str(raised.value)
    assert "HTTP_PROXY" in str(raised.value)
    assert "pw-canary" not in str(raised.value)


def test_the_service_logs_events(tmp_path: Path) -> None:
    """With --log-format json, standard error is one object per line; the address stays on standard output."""
    words = ["serve", "--port", "0", "--temporary", "--log-format", "json"]
    with subprocess.Popen(
        [sys.executable, "-m", "toolkit", *words],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert json.loads(child.stdout.readline())["queue_url"].startswith(
            "http://127.0.0.1:"
        )
        child.send_signal(signal.SIGTERM)
        events = [
            json.loads(line) for line in child.communicate(timeout=30)[1].splitlines()
        ]
    assert [event["event"] for event in events] == ["starting", "stopped"]
    assert child.returncode == ExitStatus.DONE
