"""The command line: help for every command, exit status, and each command against a running service."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

import toolkit as tk
from toolkit.cli import main

TOKEN = "command-line-token-0123456789"
COMMANDS = (
    "demo", "serve", "snapshot failures", "snapshot vectors", "report", "redrive plan",
    "redrive run", "redrive status", "replay", "check-fix", "watch", "status", "verify", "query",
    "pin-queries",
)  # fmt: skip


def run(
    *words: str, environment: dict[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "toolkit", *words],
        env=clean() if environment is None else environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def clean() -> dict[str, str]:
    """The variables of this process without any service."""
    families = ("TOOLKIT_", "QSTASH_", "UPSTASH_")
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(families)
    }


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def command(
    served: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Ended]:
    """The command in this process, with the service configured and a separate folder."""
    for name, value in served.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    def ended(*words: str) -> Ended:
        capsys.readouterr()
        return Ended(main(words), *capsys.readouterr())

    return ended


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Variables that lead to a service started with ``toolkit serve --sample``."""
    folder = tmp_path_factory.mktemp("served")
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "toolkit",
                "serve",
                "--port",
                "0",
                "--sample",
                "--retention",
                "30d",
                "--data-dir",
                str(folder / "data"),
                "--with-parent",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=clean() | {"TOOLKIT_SERVE_TOKEN": TOKEN},
        )
    first = child.stdout.readline()
    assert first, (folder / "log").read_text()
    result = json.loads(first)
    yield clean() | {
        "TOOLKIT_QUEUE_URL": result["queue_url"],
        "TOOLKIT_QUEUE_TOKEN": TOKEN,
        "TOOLKIT_VECTOR_URL": result["vector_urls"]["docs"],
        "TOOLKIT_VECTOR_TOKEN": TOKEN,
    }
    child.stdin.close()
    assert child.wait(15) == 0
    child.stdout.close()


@pytest.mark.slow
def test_help_names_every_command() -> None:
    """The first help lists commands, variables and exit status, and loads neither plots nor servers."""
    result = run("--help")
    assert result.returncode == 0
    for word in {command.split()[0] for command in COMMANDS} | {
        "TOOLKIT_QUEUE_TOKEN",
        "exit status",
    }:
        assert word in result.stdout
    requested = "import sys, toolkit.cli; print({'matplotlib', 'ipywidgets', 'uvicorn'} & set(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", requested], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == "set()"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command explains itself, shows an example and the exit status; none accepts a token."""
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert f"example:\n  toolkit {command}" in text
    assert "exit status: 0 done" in text
    assert "130 interrupted" in " ".join(text.split())
    assert not re.search(r"--\S*token(?!-file)", text)


@pytest.mark.parametrize("command", ["snapshot failures", "report"])
def test_every_filter_is_an_option(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a `FailureFilter` can say (but the exact creation time) can be said on the command line."""
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    text = capsys.readouterr().out
    for option in (
        "since",
        "until",
        "workflow-url",
        "label",
        "state",
        "caller-ip",
        "flow-control-key",
        "status",
        "error",
        "run-id",
        "kind",
    ):
        assert f"--{option} " in text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """--version prints the package's version."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.strip() == f"toolkit {tk.__version__}"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nonsense"],
        ["snapshot"],
        ["query"],
        ["report", "--nonsense"],
        ["serve", "--port", "x"],
    ],
)
def test_invalid_arguments_exit_with_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Usage errors have a status of their own and show the usage."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: toolkit" in capsys.readouterr().err


@pytest.mark.slow
def test_an_error_ends_with_1_and_one_line(tmp_path: Path) -> None:
    """A toolkit error is explained on standard error, without a traceback."""
    result = run("report", folder=tmp_path)
    assert result.returncode == 1
    assert result.stderr.startswith("toolkit: connecting: got no address and no token")
    assert "Traceback" not in result.stderr
    assert run("verify", "nothing-here", folder=tmp_path).returncode == 1


def test_a_token_on_the_command_line_is_not_taken() -> None:
    """There is no option for tokens, so none can end up where every user can read it."""
    result = run("query", "text", "--token", TOKEN)
    assert result.returncode == 2


@pytest.mark.slow
def test_snapshots_and_reports(command, tmp_path: Path) -> None:
    """Failures go into a snapshot, a second time changes nothing, it verifies and is reported on."""
    first = command("snapshot", "failures", "kept")
    assert first.returncode == 0, first.stderr
    assert "kept: 5,000 added, 0 changed, 0 gone" in first.stdout
    assert "complete: 5,000 failures" in first.stderr
    again = command("snapshot", "failures", "kept")
    assert "kept: 0 added, 0 changed, 0 gone" in again.stdout, again.stderr
    assert pq.read_table(tmp_path / "kept").num_rows == 5000
    verified = command("verify", "kept")
    assert verified.returncode == 0, verified.stderr
    assert "5,000" in verified.stdout
    paths = ("out.html", "out.md", "out.json")
    options = [word for path in paths for word in ("--output", path)]
    reported = command("report", "--snapshot", "kept", "--retention", "30d", *options)
    assert reported.returncode == 0, reported.stderr
    for path in paths:
        assert (tmp_path / path).stat().st_size > 1000
        assert f"wrote {tmp_path / path}\n" in reported.stdout
    verdict = json.loads((tmp_path / "out.json").read_text())["verdict"]
    assert verdict.startswith("5,000 failures in 11 workflows between ")
    assert reported.stdout.endswith(f"{verdict}\n")
    assert TOKEN not in "".join((tmp_path / path).read_text() for path in paths)


@pytest.mark.slow
def test_a_vector_index_is_reported_on(command, tmp_path: Path) -> None:
    """With recall where the service is asked, without where a snapshot is; not with filters of failures."""
    snapshot = command("snapshot", "vectors", "kept", "--namespace", "runbooks")
    assert snapshot.returncode == 0, snapshot.stderr
    options = ("--output", "index.html", "--output", "index.json")
    reported = command("report", "--vectors", "--previous", "kept", *options)
    assert reported.returncode == 0, reported.stderr
    values = json.loads((tmp_path / "index.json").read_text())
    assert reported.stdout.endswith(f"{values['verdict']}\n")
    said = {section["name"]: section["sentence"] for section in values["sections"]}
    assert "nearest neighbours of 300 stored vectors" in said["recall"]
    assert "appeared" in said["drift"]
    assert TOKEN not in (tmp_path / "index.html").read_text()
    assert command("report", "--vectors", "--snapshot", "kept").returncode == 0
    assert "Recall was not measured" in (tmp_path / "index-report.html").read_text()
    refused = command("report", "--vectors", "--label", "a")
    assert refused.returncode != 0
    assert "Leave them out" in refused.stderr


def test_a_damaged_snapshot_does_not_verify(command, tmp_path: Path) -> None:
    """A single changed byte ends with 1 and names the file."""
    made = command("snapshot", "failures", "kept", "--label", "payments")
    assert made.returncode == 0, made.stderr
    path = next((tmp_path / "kept").rglob("*.parquet"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)
    result = command("verify", "kept")
    assert result.returncode == 1
    assert path.name in result.stderr


def _scheduled(
    environment: dict[str, str], folder: Path, *words: str
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "toolkit", "snapshot", *words],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_schedule_runs_until_it_is_stopped(
    server, tmp_path: Path, number: signal.Signals
) -> None:
    """A line a run; a failing run is reported and the next one tried; the signal ends it with 0."""
    page = json.dumps(
        {"messages": [{"dlqId": "a", "url": "https://example.com/", "createdAt": 1}]}
    )
    server.json(b'{"error": "not now"}', status=403)
    server.always(page.encode())
    environment = clean() | {
        "TOOLKIT_QUEUE_URL": server.url,
        "TOOLKIT_QUEUE_TOKEN": TOKEN,
    }
    with _scheduled(
        environment, tmp_path, "failures", "kept", "--every", "1s"
    ) as child:
        assert "not now" in child.stderr.readline()
        first, second = child.stdout.readline(), child.stdout.readline()
        child.send_signal(number)
        rest = child.communicate(timeout=60)
    assert "kept: 1 added, 0 changed, 0 gone; complete: 1 failure" in first
    assert "kept: 0 added, 0 changed, 0 gone; complete: 1 failure" in second
    assert child.returncode == 0
    assert rest[1].startswith("toolkit: stopped; ")
    assert len(tk.read_snapshot(tmp_path / "kept")) == 1


def test_a_single_run_that_is_terminated_ends_in_order(server, tmp_path: Path) -> None:
    """SIGTERM between two pages ends with 130, and the next run has them all."""
    entry = {"url": "https://example.com/", "createdAt": 1}
    requested = threading.Event()
    responded = threading.Event()

    def give(request) -> bytes:
        cursor = dict(request.query).get("cursor")
        if cursor == "next" and not responded.is_set():
            requested.set()
            responded.wait(60)
        page = {"messages": [{"dlqId": cursor or "first", **entry}]} | (
            {} if cursor else {"cursor": "next"}
        )
        return json.dumps(page).encode()

    server.responding(give)
    environment = clean() | {
        "TOOLKIT_QUEUE_URL": server.url,
        "TOOLKIT_QUEUE_TOKEN": TOKEN,
    }
    with _scheduled(environment, tmp_path, "failures", "kept") as child:
        assert requested.wait(60)
        child.send_signal(signal.SIGTERM)
        text = child.communicate(timeout=60)
        responded.set()
    # the only row had not been stored yet, so no message claims that it is kept
    assert (child.returncode, text) == (130, ("", "toolkit: interrupted\n"))
    with tk.connect(environ=environment) as service:
        changes = tk.sync_failures(service, tmp_path / "kept", progress=False)
    assert (changes.receipt.complete, changes.counts["added"]) == (True, 2)
    assert not list((tmp_path / "kept").glob("_checkpoint*"))


def test_a_permanent_error_ends_a_schedule(command, tmp_path: Path) -> None:
    """An age would mean other times at each run, and a snapshot of something else stays that."""
    aged = command("snapshot", "failures", "kept", "--since", "7d", "--every", "1h")
    assert aged.returncode == 1
    assert "choose when reading" in aged.stderr
    assert (
        command("snapshot", "failures", "kept", "--label", "payments").returncode == 0
    )
    bound = command("snapshot", "failures", "kept", "--every", "1h")
    assert bound.returncode == 1
    assert "separate folder" in bound.stderr


@pytest.mark.parametrize("text", ["0s", "1", "1M", "1y", "-1h", "\u0661h", ""])
def test_a_duration_that_is_none_is_not_understood(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A number with a unit, and more than nothing."""
    with pytest.raises(SystemExit) as ended:
        main(["snapshot", "failures", "kept", f"--every={text}"])
    assert ended.value.code == 2
    assert "expected a duration" in capsys.readouterr().err


def test_status_and_error_filter_on_the_command_line(command, tmp_path: Path) -> None:
    """What the service cannot filter by is compared here: every row has the status and the text."""
    result = command(
        "snapshot",
        "failures",
        "kept",
        "--status",
        "429",
        "--status",
        "500",
        "--error",
        "rate limited",
    )
    assert result.returncode == 0, result.stderr
    rows = pq.read_table(tmp_path / "kept").to_pylist()
    assert len(rows) > 100
    assert {row["response_status"] for row in rows} == {429}
    assert all("rate limited" in row["response_body"].lower() for row in rows)


def test_filters_reach_the_service(
    command, served: dict[str, str], tmp_path: Path
) -> None:
    """Repeated values of a filter combine with OR, different filters with AND, as in a loader."""
    words = [
        "--since",
        "2d",
        "--label",
        "payments",
        "--label",
        "bulk",
        "--caller-ip",
        "192.0.2.11",
        "--state",
        "CALLBACK_FAIL",
    ]
    result = command("snapshot", "failures", "kept", *words)
    assert result.returncode == 0, result.stderr
    rows = pq.read_table(tmp_path / "kept").to_pylist()
    assert 0 < len(rows) < 100
    for row in rows:
        assert {"payments", "bulk"} & set(json.loads(row["labels"]))
        assert (row["caller_ip"], row["failure_function_state"]) == (
            "192.0.2.11",
            "CALLBACK_FAIL",
        )
    with tk.connect(environ=served) as service:
        chosen = tk.FailureFilter(
            since="2d",
            label=["payments", "bulk"],
            caller_ip="192.0.2.11",
            failure_function_state="CALLBACK_FAIL",
        )
        assert set(tk.load_failures(service, chosen)["dlq_id"]) == {
            row["dlq_id"] for row in rows
        }


@pytest.mark.slow
def test_a_first_look_is_not_complete(command, tmp_path: Path) -> None:
    """With --limit the report is written, and status 3 says that it is not the whole."""
    result = command("report", "--limit", "50", "--output", "look.html")
    assert result.returncode == 3, result.stderr
    assert "not complete" in result.stderr
    assert (tmp_path / "look.html").exists()


def test_a_snapshot_is_reported_on_as_it_is(tmp_path: Path) -> None:
    """Filters with --snapshot would be ignored, so they are refused."""
    result = run("report", "--snapshot", "kept", "--label", "a", folder=tmp_path)
    assert result.returncode == 1
    assert "expected the snapshot alone" in result.stderr


def test_a_snapshot_of_a_frame_without_a_receipt_is_reported_on(
    command, served, tmp_path: Path
) -> None:
    """Loads put together have none: the report is written, its verdict printed, what is not known is said."""
    with tk.connect(environ=served) as service:
        loads = [
            tk.load_failures(service, limit=number, progress=False) for number in (2, 3)
        ]
    both = pd.concat(loads).drop_duplicates()
    assert "receipt" not in both.attrs
    tk.write_snapshot(both, tmp_path / "own")
    result = command("report", "--snapshot", "own", "--output", "own.html")
    assert result.returncode == 0, result.stderr
    assert "3 failures" in result.stdout
    assert "no receipt" in result.stderr
    assert (tmp_path / "own.html").exists()


@pytest.mark.slow
def test_a_report_ends_with_a_status_for_what_is_new_or_worse(
    command, served, tmp_path: Path
) -> None:
    """4 for a group never seen before, 5 for a higher rate, as `--fail-on` says; 0 where neither is."""
    # the workflow that fails since yesterday: reports on all failures would take much longer
    capture = "https://shop.example.com/flows/payments/capture"
    made = command("snapshot", "failures", "kept", "--workflow-url", capture)
    assert made.returncode == 0, made.stderr
    report = (
        "report",
        "--snapshot",
        "kept",
        "--retention",
        "30d",
        "--output",
        "out.json",
    )
    new = command(*report, "--fail-on", "new")
    assert new.returncode == 4, new.stderr
    change = json.loads((tmp_path / "out.json").read_text())["change"]
    group = change["new_groups"][0]
    assert (
        f"new since {change['since']}: {change['titles'][group]} ({group})"
        in new.stderr
    )
    worse = command(*report, "--fail-on", "worse")
    assert worse.returncode == 5
    assert "worse since" in worse.stderr
    assert command(*report, "--fail-on", "worse", "--fail-on", "new").returncode == 4
    compared = command(
        *report, "--previous", "kept", "--fail-on", "new", "--fail-on", "worse"
    )
    assert compared.returncode == 0, compared.stderr
    with tk.connect(environ=served) as service:
        failures = tk.load_failures(service, limit=20, progress=False)
    tk.write_snapshot(failures, tmp_path / "few")
    few = command(
        "report", "--snapshot", "few", "--output", "few.json", "--fail-on", "worse"
    )
    assert few.returncode == 3, few.stderr
    assert "nothing earlier to compare with" in few.stderr


def test_a_filter_of_a_name_that_is_not_there_does_not_pass(
    command, tmp_path: Path
) -> None:
    """A typo would pass a check for ever: with `--fail-on` it is an error; no failures then is none."""
    report = ("report", "--fail-on", "new", "--fail-on", "worse")
    typo = command(*report, "--workflow-url", "https://shop.example.com/typo")
    assert typo.returncode == 1
    assert (
        "no workflow_url 'https://shop.example.com/typo'. Did you mean" in typo.stderr
    )
    assert "No report is written. --allow-no-match accepts the filter.\n" in typo.stderr
    assert not list(tmp_path.iterdir())
    nothing = command(*report, "--label", "shop", "--until", "2001-01-01")
    assert nothing.returncode == 6, nothing.stderr
    assert "out of date: the data end at 2001-01-0" in nothing.stderr
    for words in (("report",), ("redrive", "plan"), ("snapshot", "failures", "typo")):
        refused = command(*words, "--label", "no such label")
        assert refused.returncode == 1, words
        assert "no label 'no such label'" in refused.stderr
        assert "--allow-no-match" in refused.stderr
    allowed = command("report", "--label", "no such label", "--allow-no-match")
    assert allowed.returncode == 0
    assert "no label 'no such label'" in allowed.stderr


@pytest.mark.slow
def test_failures_are_redriven_by_a_plan(command, tmp_path: Path) -> None:
    """Planned, confirmed by the count and hash that the preview shows, run, and looked at."""
    planned = command(
        "redrive",
        "plan",
        "--since",
        "2d",
        "--action",
        "delete",
        "--canaries",
        "3",
        "--wave",
        "3",
    )
    assert planned.returncode == 0, planned.stderr
    confirmation = re.search(r"confirm='(\d+-[0-9a-f]{16})'", planned.stdout)
    assert confirmation is not None
    plan = json.loads((tmp_path / "plan.json").read_bytes())
    plan["entries"] = plan["entries"][:4]
    (tmp_path / "edited.json").write_text(json.dumps(plan))
    edited = command("redrive", "run", "edited.json", "--confirm", confirmation[1])
    assert (edited.returncode, "edited" in edited.stderr) == (1, True)
    wrong = command("redrive", "run", "plan.json", "--confirm", "4-00000000")
    assert (wrong.returncode, "confirm" in wrong.stderr) == (1, True)
    nothing = command(
        "redrive", "plan", "--action", "leave", "--output", "nothing.json"
    )
    confirm = re.search(r"confirm='(0-[0-9a-f]{16})'", nothing.stdout)
    assert confirm is not None
    ran = command("redrive", "run", "nothing.json", "--confirm", confirm[1])
    assert (
        ran.returncode,
        ran.stdout.startswith("Nothing to do: 5,000 entries are left"),
    ) == (0, True)
    assert command("redrive", "status").stdout == ran.stdout


def test_plain_messages_are_another_kind(command, tmp_path: Path) -> None:
    """--kind messages reads the other DLQ, which the sample leaves empty."""
    result = command("snapshot", "failures", "kept", "--kind", "messages")
    assert result.returncode == 0, result.stderr
    assert pq.read_table(tmp_path / "kept").num_rows == 0


def test_vectors_are_exported(command, tmp_path: Path) -> None:
    """All namespaces by default, the named ones when they are named."""
    everything = command("snapshot", "vectors", "all")
    assert everything.returncode == 0, everything.stderr
    assert pq.read_table(tmp_path / "all").num_rows == 2000
    some = command(
        "snapshot",
        "vectors",
        "some",
        "--namespace",
        "runbooks",
        "--namespace",
        "",
    )
    assert some.returncode == 0, some.stderr
    assert set(pq.read_table(tmp_path / "some")["namespace"].to_pylist()) == {
        "runbooks",
        "",
    }


def test_an_unknown_namespace_is_an_error(command, tmp_path: Path) -> None:
    """No snapshot of nothing, which would belong to that name; neither is a query of it a result."""
    for words in (("snapshot", "vectors", "kept"), ("query", "disk")):
        ended = command(*words, "--namespace", "runbook")
        assert (ended.returncode, ended.stdout) == (1, "")
        says = "toolkit: The index has no namespace 'runbook'. Did you mean 'runbooks'? Known: "
        assert ended.stderr.startswith(says)
        assert ended.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
    assert command("snapshot", "vectors", "kept").returncode == 0


def test_a_query_without_hits_says_so(command) -> None:
    """On standard error, with 0: nothing that was asked for is unknown."""
    ended = command(
        "query", "disk", "--namespace", "runbooks", "--filter", "city = 'nowhere'"
    )
    assert ended == Ended(0, "", "toolkit: no hits\n")


def test_queries_by_text(command) -> None:
    """Hits come ranked, as lines or as JSON, and obey namespace, filter and number."""
    words = (
        "query",
        "the certificate expired",
        "--namespace",
        "runbooks",
        "--top-k",
        "4",
        "--filter",
        "city = 'Izmir'",
    )
    result = command(*words)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 4
    assert re.match(r"  1  0\.\d{4}  runbook-\d{4}  When you see this", lines[0])
    hits = [json.loads(line) for line in command(*words, "--json").stdout.splitlines()]
    assert [hit["rank"] for hit in hits] == [1, 2, 3, 4]
    assert {hit["metadata"]["city"] for hit in hits} == {"Izmir"}
    assert hits[0]["metadata"]["topic"] == "certificates"
    assert [hit["score"] for hit in hits] == sorted(
        (hit["score"] for hit in hits), reverse=True
    )


def test_a_filter_that_does_not_parse_ends_with_1(command) -> None:
    """The error names the position."""
    result = command("query", "text", "--filter", "city = ")
    assert result.returncode == 1
    assert "position 7" in result.stderr


def test_a_reader_that_leaves_early_is_no_error_to_show(served: dict[str, str]) -> None:
    """Piping into head prints no traceback."""
    command = (
        f"{sys.executable} -m toolkit query connection --top-k 900 --json | head -n 1"
    )
    result = subprocess.run(
        ["sh", "-c", command],
        env=served,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert json.loads(result.stdout)["rank"] == 1
    assert result.stderr == ""


@pytest.mark.slow
def test_files_are_written_though_the_reader_leaves_early(
    served: dict[str, str], tmp_path: Path
) -> None:
    """Nobody reads the output: a plan, and each of the reports, is there nevertheless."""
    for words in (
        "redrive plan --since 2d",
        "report --limit 9 --output a.md --output b.json",
    ):
        shell = f"{sys.executable} -m toolkit {words} | true"
        subprocess.run(
            ["sh", "-c", shell], env=served, cwd=tmp_path, check=True, timeout=60
        )
    assert {path.name for path in tmp_path.iterdir()} == {"plan.json", "a.md", "b.json"}


@pytest.mark.slow
def test_serve_says_where_it_is_and_ends_with_its_parent(tmp_path: Path) -> None:
    """SIGTERM and SIGINT end the service quickly; without a token it makes one in a private file."""
    for number in (signal.SIGTERM, signal.SIGINT):
        child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "toolkit",
                "serve",
                "--port",
                "0",
                "--data-dir",
                str(tmp_path / str(number)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=clean(),
        )
        result = json.loads(child.stdout.readline())
        assert result["queue_url"].startswith("http://127.0.0.1:")
        assert Path(result["token_file"]).stat().st_mode & 0o777 == 0o600
        begin = time.monotonic()
        child.send_signal(number)
        child.wait(10)
        child.stdout.close()
        assert time.monotonic() - begin < 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_ends_with_130(number: signal.Signals) -> None:
    """Ctrl-C or SIGTERM while the service does not respond: one line and the usual status."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        child = subprocess.Popen(
            [sys.executable, "-m", "toolkit", "query", "text"],
            env=clean()
            | {"TOOLKIT_VECTOR_URL": address, "TOOLKIT_VECTOR_TOKEN": TOKEN},
            stderr=subprocess.PIPE,
            text=True,
        )
        connection, _ = silent.accept()
        child.send_signal(number)
        text = child.communicate(timeout=60)[1]
        connection.close()
    assert (child.returncode, text) == (130, "toolkit: interrupted\n")


def test_an_interrupted_load_ends_with_130(server, monkeypatch, capsys) -> None:
    """Ctrl-C between two pages: the usual status, and a sentence that speaks of no Python."""
    page = {
        "messages": [{"dlqId": "a", "url": "https://example.com/", "createdAt": 1}],
        "cursor": "next",
    }
    main_thread = threading.main_thread()

    def give(request) -> bytes:
        if dict(request.query).get("cursor") == "next":
            time.sleep(0.5)
            signal.pthread_kill(main_thread.ident, signal.SIGINT)
            time.sleep(1)
        return json.dumps(page).encode()

    server.responding(give)
    monkeypatch.setenv("TOOLKIT_QUEUE_URL", server.url)
    monkeypatch.setenv("TOOLKIT_QUEUE_TOKEN", TOKEN)
    assert main(["report"]) == 130
    message = capsys.readouterr().err
    assert message.startswith("toolkit: interrupted")
    assert "(1 row)" in message


@pytest.mark.parametrize("module", ["pandas", "argparse"])
@pytest.mark.parametrize(
    "code_of_module", ["raise KeyboardInterrupt", "exec('raise KeyboardInterrupt')"]
)
def test_an_interrupt_of_imports_is_quiet(
    module: str, code_of_module: str, tmp_path: Path
) -> None:
    """Ctrl-C in the first second, in the package and in its command line; an import elsewhere raises.

    pandas is imported by the command itself, which then reports the interruption without a traceback.
    Dataclasses are made by `exec`: an interrupt in there once ended ``python -m toolkit`` by the signal.
    """
    (tmp_path / f"{module}.py").write_text(code_of_module)
    environment = clean() | {"PYTHONPATH": str(tmp_path)}
    ended = run("verify", "kept", environment=environment)
    message = {"pandas": "toolkit: interrupted\n", "argparse": ""}[module]
    assert (ended.returncode, ended.stderr) == (130, message)
    code = "from toolkit.__main__ import main; raise SystemExit(main())"  # as the script of the command
    words = {"pandas": ["-c", "import toolkit"], "argparse": ["-c", code]}[module]
    script = subprocess.run(
        [sys.executable, *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    quiet = module == "argparse"
    assert (script.returncode == 130, script.stderr == "") == (quiet, quiet)


@pytest.mark.slow
def test_a_report_that_cannot_be_written_ends_with_1(command) -> None:
    """A folder that does not exist and an unknown suffix are errors with a next step, not tracebacks."""
    for path in ("nowhere/report.html", "report.docx"):
        result = command("report", "--limit", "1", "--output", path)
        assert result.returncode == 1, result.stderr
        assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_a_query_masks_values_under_secret_names(server) -> None:
    """Texts, numbers, lists and objects of the metadata, and what looks like a secret in the data."""
    hidden = {
        "password": "Zq7canary",
        "credentials": {"user": "ann-canary", "more": ["canary-1", 4711]},
    }
    hit = {
        "id": "a",
        "score": 0.5,
        "data": "password=Zq7canary",
        "metadata": {"city": "Izmir", **hidden},
    }

    def give(request) -> bytes:
        index = {"dimension": 2, "vectorCount": 1, "namespaces": {}}
        return json.dumps(
            {"result": index if request.path == "/info" else [hit]}
        ).encode()

    server.responding(give)
    environment = clean() | {
        "TOOLKIT_VECTOR_URL": server.url,
        "TOOLKIT_VECTOR_TOKEN": TOKEN,
    }
    for words in (("query", "text"), ("query", "text", "--json")):
        ended = run(*words, environment=environment)
        assert ended.returncode == 0, ended.stderr
        assert "canary" not in ended.stdout
        assert "4711" not in ended.stdout
        assert "masked len=" in ended.stdout
    assert json.loads(ended.stdout)["metadata"]["city"] == "Izmir"
