"""The page "Run it unattended": what can run here is executed, and the units are read by systemd."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from email import message_from_bytes, policy
from pathlib import Path

import pytest
import yaml

from tests.conftest import Asked, Reply, ScriptedServer, listening
from toolkit_service.demo.history import wire_entries

ROOT = Path(__file__).parents[1]
TOKEN = "token-of-the-unattended-job"
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FOLDERS = {
    "/etc/toolkit/environment": "environment",
    "/srv/snapshots": "snapshots",
    "/secrets/": "secrets/",
    "/state/": "state/",
    "/tmp/": "tmp/",  # noqa: S108 - of the page
}
"""Folders of the page, and those of the test that stand for them."""

_SENDMAIL = '#!/bin/sh\necho "$@" > "$STATE/arguments"\ncat > "$STATE/sent.eml"\n'


def blocks(language: str, mark: str = "") -> list[str]:
    """Return the blocks of the page in a language, which contain a mark."""
    found = _FENCE.findall((ROOT / "docs" / "unattended.md").read_text("utf-8"))
    return [text for name, text in found if name == language and mark in text]


@pytest.fixture(scope="module")
def queue() -> Iterator[ScriptedServer]:
    """A queue of 60 failures, which answers the windows that it is asked for."""
    now = int(time.time() * 1000)
    entries = wire_entries(now)
    entries = entries[:15] + entries[-45:]  # of the last hours, and of two weeks before

    def respond(asked: Asked) -> Reply:
        asked_for = dict(asked.query)
        first, last = (
            int(asked_for.get("fromDate", 0)),
            int(asked_for.get("toDate", 2**60)),
        )
        page = [entry for entry in entries if first <= entry["createdAt"] <= last]
        return Reply(
            200,
            {"Content-Type": "application/json"},
            json.dumps({"messages": page}).encode(),
        )

    with listening() as server:
        server.respond = respond
        yield server


class Machine:
    """Folders and programs that stand for those of the page, and a way to run its shell lines."""

    def __init__(self, folder: Path, queue_url: str) -> None:
        self.folder, self.queue_url = folder, queue_url
        for name in ("snapshots", "bin", "state", "secrets", "tmp"):
            (folder / name).mkdir()
        (folder / "bin" / "toolkit").symlink_to(Path(sys.executable).parent / "toolkit")
        self.program("sendmail", _SENDMAIL)
        (folder / "secrets" / "masking-key").write_text("ab" * 32)
        self.configure(queue_url)

    def configure(self, queue_url: str) -> None:
        """Write the file of variables."""
        text = f"TOOLKIT_QUEUE_URL={queue_url}\nTOOLKIT_QUEUE_TOKEN={TOKEN}\n"
        (self.folder / "environment").write_text(
            f"{text}TOOLKIT_MASKING_KEY={'12' * 32}\n"
        )

    def program(self, name: str, text: str) -> None:
        """Make a program on the path."""
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def here(self, text: str) -> str:
        """Return a block with the folders of this machine."""
        documented = re.compile("|".join(map(re.escape, _FOLDERS)))
        return documented.sub(lambda match: f"{self.folder}/{_FOLDERS[match[0]]}", text)

    def run(
        self, text: str, shell: tuple[str, ...] = ("/bin/sh", "-c"), **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run shell text with nothing but a path, a fresh home and these variables, as cron does."""
        home = self.folder / f"home-{time.monotonic_ns()}"
        home.mkdir()
        given = {
            "HOME": home,
            "PATH": f"{self.folder}/bin:/usr/bin:/bin",
            "STATE": self.folder,
        } | variables
        command = [
            "env",
            "-i",
            *(f"{name}={value}" for name, value in given.items()),
            *shell,
            text,
        ]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=self.folder
        )

    @property
    def variables(self) -> dict[str, str]:
        """The variables of the file."""
        lines = (self.folder / "environment").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)


@pytest.fixture
def machine(tmp_path: Path, queue: ScriptedServer) -> Machine:
    """A machine of the test's own."""
    return Machine(tmp_path, queue.url)


@pytest.mark.slow
def test_the_cron_line_is_quiet_if_all_is_well_and_prints_what_failed(
    machine: Machine,
) -> None:
    """Cron mails what is printed: nothing after a sync, the reason and the status after a failure."""
    (text,) = blocks("cron")
    settings = dict(re.findall(r"^([A-Z]+)=(.*)$", text, re.MULTILINE))
    assert settings.keys() == {"SHELL", "PATH", "MAILTO"}
    (line,) = re.findall(r"^(?:[\d*/]+ +){5}(.*)$", text, re.MULTILINE)
    assert "%" not in line
    line = machine.here(line)
    well = machine.run(line)
    assert well.returncode == 0, well.stdout
    assert well.stdout + well.stderr == ""
    assert (machine.folder / "snapshots" / "failures" / "_manifest.json").exists()
    (machine.folder / "environment").write_text(
        "TOOLKIT_QUEUE_URL=http://127.0.0.1:1/\n"
    )
    failed = machine.run(line)
    assert failed.returncode == 1
    assert "toolkit: " in failed.stdout
    assert "ended with 1" in failed.stdout
    assert TOKEN not in failed.stdout


def test_no_document_has_a_line_that_hides_failures() -> None:
    """A redirection to a log at the end of a line of cron swallows what would be mailed."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    hidden = re.compile(r"^(?:[\d*/,-]+\s+){5}.*>>\s*\S+\s+2>&1\s*$", re.MULTILINE)
    assert [page.name for page in pages if hidden.search(page.read_text("utf-8"))] == []


@pytest.mark.slow
def test_the_nightly_script_sends_a_mail_if_there_is_something_new(
    machine: Machine,
) -> None:
    """The status of the report is that of the script, and the mail has the recipient of the script."""
    (script,) = blocks("sh", "toolkit-nightly")
    ended = machine.run(machine.here(script), **machine.variables)
    assert ended.returncode in {4, 5}, ended.stderr
    message = message_from_bytes(
        (machine.folder / "sent.eml").read_bytes(), policy=policy.default
    )
    assert message["To"] == "ops@example.com"
    assert (machine.folder / "arguments").read_text() == "-t\n"
    assert (machine.folder / "snapshots" / "report.html").exists()


def test_the_units_refer_to_each_other_and_are_read_by_systemd(tmp_path: Path) -> None:
    """The service, its timer and the alarm fit together; if systemd is here, it finds no fault either."""
    units = {}
    for text in blocks("ini", "/etc/systemd/system/"):
        unit = configparser.ConfigParser(interpolation=None, strict=True)
        unit.optionxform = str
        unit.read_string(text)
        units[re.match(r"# /etc/systemd/system/(\S+)", text)[1]] = unit
    (timer,) = (name for name in units if name.endswith(".timer"))
    (alarm,) = (name for name in units if "@." in name)
    service = timer.replace(".timer", ".service")
    assert units.keys() == {timer, alarm, service}
    assert units[service]["Unit"]["OnFailure"].split("@")[0] == alarm.split("@")[0]
    assert units[service]["Service"]["ExecStart"] == "/usr/local/bin/toolkit-nightly"
    assert "%i" in units[alarm]["Service"]["ExecStart"]
    assert units[timer]["Install"]["WantedBy"] == "timers.target"
    assert units[timer]["Timer"]["OnCalendar"]
    if shutil.which("systemd-analyze"):
        _read_by_systemd(tmp_path)


def _read_by_systemd(tmp_path: Path) -> None:
    """Let systemd read the units, in which no directive may be misspelt."""
    names = []
    for text in blocks("ini", "/etc/systemd/system/"):
        name = re.match(r"# /etc/systemd/system/(\S+)", text)[1]
        # programs of the page that are not on this machine
        (tmp_path / name).write_text(
            text.replace("/usr/local/bin/toolkit-nightly", "/bin/true")
        )
        names.append(name)
    assert len(names) == 3
    paths = [
        str(tmp_path / name.replace("@.", "@toolkit-nightly.service."))
        for name in names
    ]
    variables = os.environ | {"SYSTEMD_UNIT_PATH": f"{tmp_path}:"}
    done = subprocess.run(
        ["systemd-analyze", "verify", *paths],
        capture_output=True,
        text=True,
        check=False,
        env=variables,
    )
    ours = [line for line in done.stderr.splitlines() if "toolkit" in line]
    assert ours == []
    (timer,) = (text for text in blocks("ini") if "[Timer]" in text)
    when = re.search("OnCalendar=(.*)", timer)[1]
    assert (
        subprocess.run(
            ["systemd-analyze", "calendar", when], capture_output=True, check=False
        ).returncode
        == 0
    )


@pytest.mark.slow
def test_the_workflow_of_github_runs_its_steps(machine: Machine) -> None:
    """The steps are executed as GitHub does; the last one writes the summary and ends with its status."""
    (text,) = blocks("yaml", "jobs:")
    workflow = yaml.safe_load(text)
    (job,) = workflow["jobs"].values()
    steps = {step["name"]: step["run"] for step in job["steps"] if "run" in step}
    assert list(steps) == ["install", "sync", "judge"]
    assert set(job["env"]) == set(machine.variables)
    bash = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")
    variables = machine.variables | {
        "GITHUB_STEP_SUMMARY": str(machine.folder / "summary.md")
    }
    assert machine.run(steps["sync"], bash, **variables).returncode == 0
    judged = machine.run(steps["judge"], bash, **variables)
    assert judged.returncode in {4, 5}, judged.stderr
    assert "**New:**" in (machine.folder / "summary.md").read_text("utf-8")
    assert (machine.folder / "failure-report.html").exists()


@pytest.mark.slow
def test_the_cron_job_of_kubernetes_writes_no_row_again_with_a_fresh_home(
    machine: Machine,
) -> None:
    """Its command runs twice, each time in another home: the key of the secret keeps the masks equal."""
    (text,) = blocks("yaml", "CronJob")
    job = yaml.safe_load(text)["spec"]
    pod = job["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        item["name"] for item in pod["volumes"]
    }
    assert (job["concurrencyPolicy"], pod["restartPolicy"]) == ("Forbid", "Never")
    variables = {item["name"]: machine.here(item["value"]) for item in container["env"]}
    variables |= {
        name: value
        for name, value in machine.variables.items()
        if name != "TOOLKIT_MASKING_KEY"
    }
    command, (script,) = tuple(container["command"]), container["args"]
    first, second = (
        machine.run(machine.here(script), command, **variables) for _ in range(2)
    )
    assert first.returncode in {4, 5}, first.stderr
    assert "60 added" in first.stdout
    assert "New: " in first.stdout
    assert "0 added, 0 changed, 0 gone" in second.stdout


@pytest.mark.slow
def test_the_container_keeps_the_masking_key_in_its_volume(machine: Machine) -> None:
    """The command of the image, run twice with a fresh home, changes no row."""
    (text,) = blocks("dockerfile")
    variables = dict(
        re.findall(r"(\w+)=(\S+)", re.search("^ENV (.*)$", text, re.MULTILINE)[1])
    )
    words = json.loads(re.search("^ENTRYPOINT (.*)$", text, re.MULTILINE)[1])
    words += json.loads(re.search("^CMD (.*)$", text, re.MULTILINE)[1])
    given = {
        name: machine.here(value) for name, value in variables.items()
    } | machine.variables
    del given["TOOLKIT_MASKING_KEY"]
    ran = [machine.run(machine.here(" ".join(words)), **given) for _ in range(2)]
    assert [done.returncode for done in ran] == [0, 0]
    assert "0 added, 0 changed, 0 gone" in ran[1].stdout
    assert (machine.folder / "state" / "config").is_dir()
    (machine.folder / "state" / "config").rename(machine.folder / "lost")
    assert (
        "0 added, 0 changed"
        not in machine.run(machine.here(" ".join(words)), **given).stdout
    )


@pytest.fixture
def synced(machine: Machine) -> Machine:
    """The machine after a sync, in whose folder the recipes run."""
    assert (
        machine.run(
            "toolkit snapshot failures failures", **machine.variables
        ).returncode
        == 0
    )
    return machine


@pytest.mark.slow
def test_the_recipe_for_sendmail_and_the_one_for_a_webhook_send(
    synced: Machine, server: ScriptedServer, request: pytest.FixtureRequest
) -> None:
    """The mail arrives at the program; the webhook gets JSON with a short text and its one link."""
    mail = next(
        text for text in blocks("sh", "sendmail -t <") if "toolkit-nightly" not in text
    )
    sent: Callable[..., subprocess.CompletedProcess[str]] = synced.run
    assert sent(mail, **synced.variables).returncode == 0
    assert b"MIME-Version" in (synced.folder / "sent.eml").read_bytes()
    (chat,) = blocks("sh", "WEBHOOK_URL")
    server.always(b"{}")
    done = sent(
        chat, **synced.variables, WEBHOOK_URL=f"{server.url}/hook", no_proxy="127.0.0.1"
    )
    assert done.returncode == 0, done.stderr
    text = json.loads(server.requests[-1].body)["text"]
    assert len(text) <= 1_500
    assert re.findall(r"https?://\S+", text) == [
        "https://reports.example.com/latest.html"
    ]


@pytest.mark.slow
def test_recipes_for_teams_and_an_alert_send_the_documented_json(
    synced: Machine, server: ScriptedServer
) -> None:
    """Teams gets a card with the report, and the alert is sent because the report found something."""
    server.always(b"{}")
    url = {"no_proxy": "127.0.0.1", "PAGERDUTY_KEY": "the-key"}
    for name in ("TEAMS_URL", "PAGERDUTY_URL"):
        (recipe,) = blocks("sh", name)
        done = synced.run(
            recipe, **synced.variables, **url, **{name: f"{server.url}/hook"}
        )
        assert done.returncode == 0, done.stderr

    card, alert = (json.loads(request.body) for request in server.requests)
    (text,) = card["attachments"][0]["content"]["body"]
    assert text["text"].startswith("Failure report")
    assert alert["routing_key"] == "the-key"
    assert alert["payload"]["summary"].startswith("Failure report")


@pytest.mark.slow
def test_a_signal_is_only_sent_after_a_complete_sync(
    machine: Machine, server: ScriptedServer
) -> None:
    """A failed sync sends none, so that the service which expects it alarms."""
    (text,) = blocks("sh", "PING_URL")
    ping = {"PING_URL": f"{server.url}/ping", "no_proxy": "127.0.0.1"}
    server.always(b"{}")
    assert machine.run(machine.here(text), **machine.variables, **ping).returncode == 0
    assert [request.path for request in server.requests] == ["/ping"]
    lost = machine.variables | {"TOOLKIT_QUEUE_TOKEN": ""}
    assert machine.run(machine.here(text), **lost, **ping).returncode == 1
    assert len(server.requests) == 1
