"""A tour of every subcommand as the docs write it, in a locale of ASCII alone, against a real service."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolkit.cli.command_line import build_parser
from toolkit.cli.exit_status import ExitStatus

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
TOKEN = "token-of-the-tour-0123456789"
ASCII = {
    "LC_ALL": "C",
    "PYTHONUTF8": "0",
    "PYTHONCOERCECLOCALE": "0",
    "PYTHONIOENCODING": "ascii",
}

TOUR = (
    ("snapshot failures kept --retention 30d", 0),
    ("snapshot failures kept --rebind", 0),
    ("snapshot failures kept --repair", 0),
    ("snapshot failures elsewhere --workflow-url no-such-workflow", 1),
    ("snapshot failures kept --every soon", 2),
    ("snapshot vectors index --namespace runbooks", 0),
    ("snapshot vectors index2 --namespace no-such-namespace", 1),
    ("status kept index", 0),
    ("status kept --json", 0),
    ("status no-such-folder", 1),
    ("verify kept index --max-age 2h", 0),
    ("verify kept no-such-folder --max-age 2h", 1),
    ("report --snapshot kept --output report.html --output report.md", 0),
    ("report --snapshot kept --format short", 0),
    ("report --since 7d --format short-markdown --limit 50", 3),
    ("report --since 1d --fail-on new", 1),
    ("report --vectors --snapshot index --output index.html", 0),
    ("report --fail-on unhealthy", 1),
    ("redrive plan --since 2d --action leave --output plan.json", 0),
    ("redrive plan --since 2d --action leave --json", 0),
    ("redrive run plan.json --confirm 1-00000000", 1),
    ("redrive run plan.json --confirm CONFIRMATION", 0),
    ("redrive status", 0),
    ("redrive status --ledger no-such.sqlite", 1),
    ("pin-queries pinned.parquet --query connection --namespace runbooks", 0),
    ("pin-queries pinned.parquet", 1),
    ("check-queries pinned.parquet --fail-below 0.9", 0),
    ("check-queries no-such.parquet", 1),
    ("replay no-such-entry --print curl", 1),
    ("watch watched --once", 4),
    ("watch watched --once --notify https://chat.example/", 1),
    ("check-fix no-such-group --since 1h", 1),
    ("query connection --namespace runbooks --top-k 2", 0),
    ("query connection --namespace runbooks --json", 0),
    ("query connection --filter (", 1),
    ("completion bash", 0),
    ("completion zsh", 0),
    ("completion fish", 0),
    ("no-such-command", 2),
)
"""Commands with their statuses, in this order; `serve` and `demo` have tests of their own."""

_ALL = """
import json, sys
from pathlib import Path
from toolkit.cli import main
statuses = []
for text in json.loads(sys.argv[1]):
    if "CONFIRMATION" in text:
        from toolkit import RedrivePlan
        text = text.replace("CONFIRMATION", RedrivePlan.read("plan.json").confirmation)
    try:
        statuses.append(main(text.split()))
    except SystemExit as end:
        statuses.append(end.code)
Path("statuses.json").write_text(json.dumps(statuses))
"""


def _leaves(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[str]:
    """Yield every command without further ones below it."""
    below = [
        action
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    ]
    if not below:
        yield " ".join(words)
    for action in below:
        for name, child in action.choices.items():
            yield from _leaves(child, (*words, name))


def test_the_tour_visits_every_command_and_each_status_is_documented() -> None:
    """Whatever the parser has is in the tour, and statuses are those of the table."""
    leaves = set(_leaves(build_parser()))
    visited = {
        leaf
        for leaf in leaves
        if any(f"{text} ".startswith(f"{leaf} ") for text, _ in TOUR)
    }
    assert leaves - visited == {"serve", "demo"}
    documented = {
        int(number)
        for number in re.findall(r"^\| (\d+) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    }
    assert documented == {int(status) for status in ExitStatus}
    assert {status for _, status in TOUR} <= documented


def _variables() -> dict[str, str]:
    families = ("TOOLKIT_", "QSTASH_", "UPSTASH_")
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(families)
    }


@pytest.mark.slow
def test_every_command_ends_as_documented_in_a_locale_of_ascii(tmp_path: Path) -> None:
    """`serve` runs until it is stopped; no command shows a traceback or a token, and messages are ASCII."""
    variables = _variables() | {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    server = subprocess.Popen(
        [sys.executable, "-m", "toolkit", "serve", "--port", "0", "--sample", "--retention", "30d",
         "--data-dir", str(tmp_path / "data")],
        env=variables | {"TOOLKIT_SERVE_TOKEN": TOKEN}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        found = json.loads(server.stdout.readline())
        service = {
            "TOOLKIT_QUEUE_URL": found["queue_url"],
            "TOOLKIT_QUEUE_TOKEN": TOKEN,
            "TOOLKIT_VECTOR_URL": found["vector_urls"]["docs"],
            "TOOLKIT_VECTOR_TOKEN": TOKEN,
        }
        ran = subprocess.run(
            [sys.executable, "-c", _ALL, json.dumps([text for text, _ in TOUR])],
            env=variables | service | ASCII, cwd=tmp_path, capture_output=True, check=False, timeout=900,
        )  # fmt: skip
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == ExitStatus.DONE
        server.stdout.close()
    output = ran.stdout + ran.stderr
    assert ran.returncode == 0, output.decode()[-3_000:]
    statuses = json.loads((tmp_path / "statuses.json").read_text())
    ended = {text: status for (text, _), status in zip(TOUR, statuses, strict=True)}
    assert ended == dict(TOUR), ran.stderr.decode()[-5_000:]
    # reports and completions are written to standard output as UTF-8 in every locale
    assert ran.stderr.isascii()
    assert b"Traceback" not in output
    assert TOKEN.encode() not in output


@pytest.mark.slow
def test_the_demo_ends_well_in_a_locale_of_ascii(tmp_path: Path) -> None:
    """The main job of a few runs, without notebooks."""
    ran = subprocess.run(
        [sys.executable, "-m", "toolkit", "demo", "--out", "out", "--runs", "20"],
        env=_variables() | ASCII | {"XDG_CONFIG_HOME": str(tmp_path / "config")},
        cwd=tmp_path, capture_output=True, check=False, timeout=600,
    )  # fmt: skip
    assert ran.returncode == ExitStatus.DONE, ran.stderr.decode()[-3_000:]
    assert b"Traceback" not in ran.stdout + ran.stderr
    assert (ran.stdout + ran.stderr).isascii()
