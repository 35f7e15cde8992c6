"""Completion scripts offer the commands, options and values that the parser has."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolkit.cli import main
from toolkit.cli.command_line import COMMANDS, build_parser

_TRY = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_toolkit
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scripts, as the command prints them."""
    return tmp_path_factory.mktemp("completion")


@pytest.fixture
def script(scripts: Path, capsys: pytest.CaptureFixture[str]):
    """Return the file of a script, made by the command."""

    def made(shell: str) -> Path:
        path = scripts / f"toolkit.{shell}"
        assert main(["completion", shell]) == 0
        path.write_text(capsys.readouterr().out, "utf-8")
        return path

    return made


def test_bash_completes_commands_options_values_and_paths(
    script, tmp_path: Path
) -> None:
    """Bash itself runs the script; what is offered depends on the words before."""
    (tmp_path / "kept").mkdir()
    path = script("bash")

    def offered(*words: str) -> set[str]:
        command = ["bash", "-c", _TRY, "bash", str(path), "toolkit", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=tmp_path
        )
        return set(done.stdout.split())

    assert set(COMMANDS) <= offered("")
    assert offered("re") == {"report", "redrive", "replay"}
    assert {"failures", "vectors"} <= offered("snapshot", "")
    assert offered("snapshot", "failures", "--ki") == {"--kind"}
    assert {"new", "worse"} <= offered("report", "--fail-on", "")
    assert offered("report", "--format", "short") == {"short", "short-markdown"}
    assert "kept" in offered("verify", "k")
    assert "kept" in offered("report", "--snapshot", "")
    assert offered("completion", "z") == {"zsh"}
    assert offered("snapshot", "failures", "--reb") == {"--rebind"}
    assert offered("status", "--max") == {"--max-age"}
    assert offered("report", "--form") == {"--format"}


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser, and those of the commands in it."""
    yield parser
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for inner in action.choices.values():
                yield from parsers(inner)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_script_is_read_by_its_shell_and_has_every_command(
    shell: str, script
) -> None:
    """The syntax is checked by the shell where that is installed; names are checked everywhere."""
    path = script(shell)
    text = path.read_text("utf-8")
    words = set(re.findall(r"[\w-]+", text))
    assert {*COMMANDS, "failures", "vectors", "fail-on", "worse"} <= {
        word.removeprefix("--") for word in words
    }
    options = {
        option.removeprefix("--")
        for parser in parsers(build_parser())
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--") and action.help != argparse.SUPPRESS
    }
    assert {"max-age", "rebind", "format", "all"} <= options
    assert options <= {word.removeprefix("--") for word in words}
    if shutil.which(shell):
        assert (
            subprocess.run(
                [shell, "-n", str(path)], capture_output=True, check=False
            ).returncode
            == 0
        )
