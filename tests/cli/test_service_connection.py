"""How a command finds its service, and what it tells if it finds none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("command", "variable"),
    [(["report"], "QSTASH_TOKEN"), (["report", "--vectors"], "UPSTASH_VECTOR_REST_TOKEN")],
    ids=["queue", "vector"],
)
def test_without_settings_the_way_out_is_one_of_the_command_line(command: list[str], variable: str) -> None:
    """The error names variables, the option and a command, and no argument of Python."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "SYSTEMROOT") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-m", "toolkit", *command],
        env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode != 0
    for part in (variable, "--token-file", "toolkit serve --sample"):
        assert part in done.stderr
    for part in ("queue_url=", "vector_url=", "connect("):
        assert part not in done.stderr
