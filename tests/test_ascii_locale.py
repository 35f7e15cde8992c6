"""The command under a locale that only knows ASCII, as in a bare container: no traceback, nothing lost."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from email import message_from_bytes, policy
from pathlib import Path

import pytest

import toolkit as tk
from tests.reports.conftest import failures, ordinary
from toolkit.base.children import program_variables
from toolkit.cli.command_line import build_parser
from toolkit.cli.shared_options import PATH_ARGUMENTS

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
TITLE = "Zürich 夜"
_ALL = """
import json, os, sys
from toolkit.cli import main
statuses = {"a path that this locale cannot name": main(["verify", "kept-\\xfc"])}
for given in json.loads(sys.argv[1]):
    words = [os.fsdecode(word.encode("utf-8")) for word in given]  # as the system passes them
    try:
        statuses[" ".join(given)] = main(words)
    except SystemExit as end:
        statuses[" ".join(given)] = end.code
with open("statuses.json", "w") as file:
    json.dump(statuses, file)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a snapshot whose texts are beyond ASCII."""
    folder = tmp_path_factory.mktemp("ascii")
    rows = ordinary(6)
    rows[0] |= {
        "workflow_url": f"https://shop.example/{TITLE}",
        "response_body": f'{{"error": "{TITLE}"}}',
    }
    tk.write_snapshot(failures(rows), folder / "kept")
    return folder


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    variables = (
        program_variables() | ASCII | {"XDG_CONFIG_HOME": str(folder / "config")}
    )
    command = [sys.executable, *words]
    return subprocess.run(
        command, capture_output=True, cwd=folder, env=variables, check=False
    )


@pytest.mark.slow
def test_no_command_ends_with_a_traceback(folder: Path) -> None:
    """Reports, checks, plans, errors and the help of every command; a file of the report is complete."""
    commands = [
        [
            "report",
            "--snapshot",
            "kept",
            "--title",
            TITLE,
            "--output",
            "report.html",
            "--output",
            "report.md",
        ],
        ["report", "--snapshot", f"kept-{TITLE}"],
        ["verify", "kept", f"kept-{TITLE}"],
        ["redrive", "status", "--ledger", f"{TITLE}.sqlite"],
        ["redrive", "run", f"{TITLE}.json", "--confirm", "1-12345678"],
        ["query", TITLE],
        ["snapshot", "failures", "new"],
        ["snapshot", "failures", "--help"],
        *(
            [name, "--help"]
            for name in ("demo", "serve", "report", "query", "verify", "completion")
        ),
        *(["completion", shell] for shell in ("bash", "zsh", "fish")),
    ]
    done = _run(folder, "-c", _ALL, json.dumps(commands))
    assert done.returncode == 0, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert done.stdout.isascii()
    assert done.stderr.isascii()
    statuses = json.loads((folder / "statuses.json").read_text("utf-8"))
    assert len(statuses) == 1 + len(commands)
    _, first, *others = statuses.values()
    assert first == 0
    assert set(others) == {0, 1}
    assert TITLE in (folder / "report.html").read_text("utf-8")


def test_a_mail_on_standard_output_is_whole_under_ascii(folder: Path) -> None:
    """Bytes for a program are the same in every locale; the verdict goes to standard error."""
    words = (
        "-m",
        "toolkit",
        "report",
        "--snapshot",
        "kept",
        "--title",
        TITLE,
        "--format",
        "email",
    )
    done = _run(folder, *words, "--to", "ops@example.com")
    assert done.returncode == 0, done.stderr.decode()
    message = message_from_bytes(done.stdout, policy=policy.default)
    assert message["To"] == "ops@example.com"
    assert message["Subject"].startswith(TITLE)
    assert TITLE in message.get_body(("html",)).get_content()
    assert not list(folder.glob("failure-report*"))
    assert b"6 failures since" in done.stderr


def test_a_file_of_any_option_can_have_a_name_beyond_ascii(folder: Path) -> None:
    """The rules are found; the group is what this snapshot does not have."""
    (folder / "Zürich.txt").write_text("# no rules\n", encoding="utf-8")
    words = ["check-fix", "abc", "--since", "2026-03-10T11:00Z", "--snapshot", "kept"]
    done = _run(folder, "-m", "toolkit", *words, "--rules", "Zürich.txt")
    assert done.returncode == 1
    assert b"the group 'abc'" in done.stderr


def test_every_option_of_a_file_or_folder_is_a_path() -> None:
    """Paths are not converted: the system finds files by the surrogates of the locale."""

    def options(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
        for action in parser._actions:
            yield action
            if isinstance(action, argparse._SubParsersAction):
                for command in action.choices.values():
                    yield from options(command)

    files = [
        item for item in options(build_parser()) if item.metavar in {"FILE", "DIR"}
    ]
    unknown = {
        item.dest
        for item in files
        if item.type is not Path and item.dest not in PATH_ARGUMENTS
    }
    assert files
    assert unknown == set()
