"""Results for people fit the terminal, from 60 columns on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

import toolkit as tk
from tests.cli.test_statuses import configured, entry
from toolkit.cli import main
from toolkit.cli.command_line import COMMANDS, build_parser
from toolkit.cli.terminal import say_table, say_wrapped, table_text
from toolkit.drawing.wording import ROWS_SHOWN
from toolkit.redrive.ledger import Ledger

WORDS = "connection refused by the database of the orders service at port 5432"


@pytest.fixture
def planned(
    server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """The output of a plan of 30 kinds of failures, made with these options."""
    monkeypatch.chdir(tmp_path)
    for name, value in configured(server.url).items():
        monkeypatch.setenv(name, value)
    kinds = [
        "".join(chr(ord("a") + int(digit)) for digit in f"{number:03}") * 3
        for number in range(30)
    ]
    rows = [
        entry(f"id-{number}", body=f"{kind} {WORDS}")
        | {
            "workflowUrl": f"https://example.com/orders/{kind}",
            "workflowRunId": f"wfr_{number}",
        }
        for number, kind in enumerate(kinds)
    ]
    server.always(json.dumps({"messages": rows}).encode())

    def output(*words: str) -> str:
        capsys.readouterr()
        assert main(["redrive", "plan", *words]) == 0
        return capsys.readouterr().out

    return output


def test_a_plan_fits_60_columns_and_ends_with_its_command(planned, monkeypatch) -> None:
    """Wider tables become blocks of lines; the last line runs the plan; JSON has the same confirmation."""
    monkeypatch.setenv("COLUMNS", "60")
    wrote, *lines = planned("--action", "delete").splitlines()
    assert wrote.startswith("wrote /")
    assert max(map(len, lines)) <= 60
    assert "20 of 30 rows; --all prints all" in lines
    plan = tk.RedrivePlan.read("plan.json")
    advised = {
        f"{row['class']}: {row['advice']}" for row in plan.groups.to_dict("records")
    }
    assert all(
        " ".join(advice.split()) in " ".join(" ".join(lines).split())
        for advice in advised
    )
    confirmation = re.fullmatch(
        r"toolkit redrive run plan\.json --confirm (\d+-[0-9a-f]{16})", lines[-1]
    )[1]
    assert sum(line.startswith("title ") for line in lines) == ROWS_SHOWN
    everything = planned("--action", "delete", "--all").splitlines()
    assert sum(line.startswith("title ") for line in everything) == 30
    preview = json.loads(planned("--action", "delete", "--json"))
    assert (
        preview["confirmation"]
        == confirmation
        == tk.RedrivePlan.read("plan.json").confirmation
    )
    assert (preview["failures"], preview["actions"], len(preview["groups"])) == (
        30,
        {"delete": 30},
        30,
    )


def test_output_for_programs_is_not_wrapped(planned, monkeypatch) -> None:
    """Without a terminal and without COLUMNS, a row of a table is one line."""
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = planned("--action", "delete", "--all").splitlines()
    assert sum("https://example.com/orders/" in line for line in lines) == 30
    assert max(map(len, lines)) > 100


def test_cells_are_whole_in_blocks() -> None:
    """A word that is too long continues on the next line, and nothing is lost."""
    address = "https://example.com/" + "a" * 70
    frame = pd.DataFrame(
        {"title": [WORDS], "url": [address], "count": [3], "advice": [WORDS]}
    )
    text = table_text(frame, 60)
    assert max(map(len, text.splitlines())) <= 60
    cells = {"title": WORDS, "url": address}
    joined = re.sub(r"\s+", "", text)
    assert joined == f"title{cells['title']}url{address}count3advice{WORDS}".replace(
        " ", ""
    )
    assert table_text(frame, 300).splitlines()[0].split() == list(frame)


@pytest.mark.parametrize("width", [80, 110])
def test_long_cells_of_a_table_have_several_lines(width: int) -> None:
    """Columns stay side by side, numbers end at the right, and addresses break after slashes."""
    address = "https://shop.example.com/flows/accounts/welcome"
    frame = pd.DataFrame(
        {"title": [WORDS] * 2, "url": address, "count": [3, 1_000], "reason": WORDS}
    )
    head, *lines = table_text(frame, width).splitlines()
    assert head.split() == list(frame)
    assert max(map(len, lines)) <= width
    end = head.index("count") + len("count")
    assert [line[:end].split()[-1] for line in lines if line[end - 1].isdigit()] == [
        "3",
        "1000",
    ]
    start, stop = head.index("url"), head.index("count")
    broken = [line[start:stop].strip() for line in lines[: len(lines) // 2]]
    assert "".join(broken) == address
    assert all(
        part.endswith("/")
        for part in broken[: len([part for part in broken if part]) - 1]
    )


@pytest.mark.parametrize("columns", ["20", "60", "80"])
def test_paragraphs_wrap_between_words(columns: str, monkeypatch, capsys) -> None:
    """A path stays whole; a terminal below 60 columns is treated as one of 60."""
    monkeypatch.setenv("COLUMNS", columns)
    path = "/srv/" + "folder/" * 12
    say_wrapped(f"{WORDS} {path}")
    lines = capsys.readouterr().out.splitlines()
    assert path in [line.strip() for line in lines]
    assert max(len(line) for line in lines if path not in line) <= max(60, int(columns))
    say_table(pd.DataFrame({"title": []}), is_whole=False)
    assert capsys.readouterr().out == ""


def test_every_help_fits_60_columns(monkeypatch) -> None:
    """Only a command to copy, and a word that cannot be broken, may be longer."""
    monkeypatch.setenv("COLUMNS", "60")
    parsers = [build_parser()]
    for parser in parsers:
        for action in parser._actions:
            if isinstance(action.choices, dict):
                parsers += action.choices.values()
    assert len(parsers) > len(COMMANDS)
    for parser in parsers:
        lines = parser.format_help().splitlines()
        too_long = [line for line in lines if len(line) > 60 and " " in line.strip()]
        assert [
            line for line in too_long if not re.match(r" *(toolkit |\[--\S+ \{)", line)
        ] == []


def test_a_ledger_of_many_groups_is_shortened(planned, monkeypatch, capsys) -> None:
    """The status of a redrive has the first rows and their number, or all."""
    monkeypatch.setenv("COLUMNS", "60")
    planned("--action", "delete")
    plan = tk.RedrivePlan.read("plan.json")
    with Ledger.running("redrive.sqlite") as ledger:
        ledger.add(plan)
    capsys.readouterr()
    for words, rows in (((), ROWS_SHOWN), (("--all",), 30)):
        assert main(["redrive", "status", *words]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 60
        assert sum(line.startswith("title ") for line in lines) == rows
        assert ("20 of 30 rows; --all prints all" in lines) == (not words)
