"""``toolkit replay`` against the embedded service and an application of this machine."""

from __future__ import annotations

import json

import pytest

import toolkit as tk
from toolkit.cli import main


@pytest.fixture
def entries(sample_service, monkeypatch) -> list[str]:
    """Return ids of two entries of the sample, and let the command find the service."""
    queue = sample_service.queue
    monkeypatch.setenv("TOOLKIT_QUEUE_URL", queue.url)
    monkeypatch.setenv("TOOLKIT_QUEUE_TOKEN", queue.token.reveal())
    failures = tk.load_failures(sample_service, limit=2, progress=False)
    return failures["dlq_id"].tolist()


def test_entries_are_sent_to_the_application(entries, application, capsys):
    """The status is 0 if every request succeeds, and 3 otherwise."""
    assert main(["replay", *entries, "--to", application.url, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["dlq_id"] for row in rows] == entries
    assert {row["outcome"] for row in rows} == {"succeeded"}
    application.status = 503
    assert main(["replay", entries[0], "--to", application.url]) == 3
    assert "503" in capsys.readouterr().out
    assert len(application.received) == 3


def test_code_is_printed_and_nothing_is_sent(entries, application, capsys):
    """Each kind of code is printed for the entry."""
    for kind, expected in (
        ("curl", "curl --request"),
        ("python", "requests"),
        ("pytest", "def test_"),
    ):
        assert main(["replay", entries[0], "--print", kind]) == 0
        assert expected in capsys.readouterr().out
    assert not application.received


@pytest.mark.parametrize(
    "words", [[], ["--to", "http://127.0.0.1:9", "--print", "curl"]]
)
def test_either_an_address_or_a_kind_of_code_is_expected(words, entries, capsys):
    """The error names both options."""
    assert main(["replay", entries[0], *words]) == 1
    error = capsys.readouterr().err
    assert "--to" in error
    assert "--print" in error
