"""How a command finds its service, and what it tells if it finds none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from toolkit.cli import main


@pytest.mark.parametrize(
    ("command", "variable"),
    [
        (["report"], "QSTASH_TOKEN"),
        (["report", "--vectors"], "UPSTASH_VECTOR_REST_TOKEN"),
    ],
    ids=["queue", "vector"],
)
def test_without_settings_the_way_out_is_one_of_the_command_line(
    command: list[str], variable: str
) -> None:
    """The error names variables, the option and a command, and no argument of Python."""
    environment = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "SYSTEMROOT")
        if name in os.environ
    }
    done = subprocess.run(
        [sys.executable, "-m", "toolkit", *command],
        env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode != 0
    for part in (variable, "--token-file", "toolkit serve --sample"):
        assert part in done.stderr
    for part in ("queue_url=", "vector_url=", "connect("):
        assert part not in done.stderr


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"one\ntwo\n", b"\xff\xfe", b"x" * 5000]
)
def test_an_error_of_a_token_file_names_the_file(
    content: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Not the variable that it replaces, and never what is in it."""
    monkeypatch.setenv("TOOLKIT_QUEUE_URL", "http://127.0.0.1:9")
    file = tmp_path / "of-the-file"
    file.write_bytes(content)
    assert main(["report", "--token-file", str(file)]) == 1
    error = capsys.readouterr().err
    assert "of-the-file" in error
    assert "TOOLKIT_QUEUE_TOKEN" not in error
    assert "two" not in error
