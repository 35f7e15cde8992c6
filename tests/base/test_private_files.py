"""Files in folders that others may write to: none is written through a link, and secrets are private."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pytest

import toolkit as tk
from toolkit.base.children import start_module
from toolkit.base.private_files import user_folder
from toolkit.errors import (
    InputError,
    LocalServiceError,
    SettingsError,
    SnapshotDamagedError,
)
from toolkit.secrets.masking_key import masking_key
from toolkit_service.startup import read_token

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="modes and links of POSIX"
)

VICTIM = "alias ll='ls -l'\n"
Put = Callable[[Path, Path], object]
LINKS: dict[str, Put] = {
    "a link": lambda path, victim: path.symlink_to(victim),
    "a hard link": lambda path, victim: path.hardlink_to(victim),
}
OTHERS: dict[str, Put] = {
    "a pipe": lambda path, _: os.mkfifo(path),
    "a folder": lambda path, _: path.mkdir(),
}


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file that nobody but its owner is to change."""
    path = tmp_path / "victim"
    path.write_text(VICTIM)
    return path


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLKIT_SERVE_TOKEN", raising=False)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_lock_that_is_a_second_name_of_a_file_leaves_it_as_it_is(
    tmp_path: Path, victim: Path
) -> None:
    """A snapshot is written all the same, twice: copies made of hard links are a way to keep backups."""
    folder = tmp_path / "snapshot"
    folder.mkdir()
    (folder / ".lock").hardlink_to(victim)
    for _ in range(2):
        tk.write_snapshot(pd.DataFrame({"a": [1]}), folder)
    assert victim.read_text() == VICTIM
    assert len(tk.read_snapshot(folder)) == 1


def test_a_lock_that_is_somebodys_file_keeps_its_content(tmp_path: Path) -> None:
    """Only the number of a process is replaced."""
    folder = tmp_path / "snapshot"
    folder.mkdir()
    (folder / ".lock").write_text(VICTIM)
    tk.write_snapshot(pd.DataFrame({"a": [1]}), folder)
    assert (folder / ".lock").read_text() == VICTIM


@pytest.mark.parametrize("name", ["a link", "a pipe"])
def test_a_lock_that_is_a_link_or_a_pipe_is_refused(
    tmp_path: Path, victim: Path, name: str
) -> None:
    """Neither is written to, and nothing waits for a pipe."""
    folder = tmp_path / "snapshot"
    folder.mkdir()
    (LINKS | OTHERS)[name](folder / ".lock", victim)
    with pytest.raises(SnapshotDamagedError, match=r"\.lock"):
        tk.write_snapshot(pd.DataFrame({"a": [1]}), folder)
    assert victim.read_text() == VICTIM


@pytest.mark.parametrize("mode", [0o666, 0o644, 0o620, 0o600])
def test_a_token_file_is_private_from_now_on(tmp_path: Path, mode: int) -> None:
    """A token that is there stays, and nobody else reads it any more; an empty file is another file then."""
    file = tmp_path / "token"
    file.write_text("token-that-was-there\n")
    file.chmod(mode)
    assert read_token(file)[0].reveal() == "token-that-was-there"
    assert _mode(file) == 0o600
    file.write_text("")
    file.chmod(mode)
    with file.open() as opened_before:
        token = read_token(file)[0].reveal()
        assert opened_before.read() == ""
    assert file.read_text().strip() == token
    assert _mode(file) == 0o600
    assert read_token(file)[0].reveal() == token
    assert [path.name for path in tmp_path.iterdir()] == ["token"]


@pytest.mark.slow
def test_servers_that_start_at_once_have_one_token(tmp_path: Path) -> None:
    """Each of eight processes gets the same one, while any of them makes the file; none is refused."""
    code = (
        "import sys; from pathlib import Path; from toolkit_service.startup import read_token\n"
        "print('ready', flush=True)\n"
        "for line in sys.stdin:\n    print(read_token(Path(line.strip()))[0].reveal(), flush=True)"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    try:
        assert [racer.stdout.readline() for racer in racers] == ["ready\n"] * 8
        for number in range(40):
            folder = tmp_path / str(number)
            folder.mkdir()
            for racer in racers:
                racer.stdin.write(f"{folder / 'token'}\n")
                racer.stdin.flush()
            tokens = {racer.stdout.readline() for racer in racers}
            assert tokens == {(folder / "token").read_text()}
            assert [path.name for path in folder.iterdir()] == ["token"]
    finally:
        for racer in racers:
            racer.communicate(timeout=60)


def test_a_token_is_read_while_its_file_has_two_names(tmp_path: Path) -> None:
    """A process was stopped, or killed, after it had linked the file, and before it removed the draft."""
    code = (
        "import os, sys; from pathlib import Path; from toolkit_service.startup import read_token\n"
        "Path.unlink = lambda *_, **__: os._exit(9)\n"
        "read_token(Path(sys.argv[1]))"
    )
    file = tmp_path / "token"
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)], check=False, timeout=60
    )
    assert done.returncode == 9
    assert file.stat().st_nlink == 2
    (tmp_path / ".token.12345678.part").write_text("of another process")
    assert read_token(file)[0].reveal() == file.read_text().strip()
    assert file.stat().st_nlink == 1
    assert {path.name for path in tmp_path.iterdir()} == {
        "token",
        ".token.12345678.part",
    }


@pytest.mark.parametrize("name", LINKS | OTHERS)
def test_a_token_is_not_read_or_written_through_a_link(
    tmp_path: Path, victim: Path, name: str
) -> None:
    """A link, a second name, a pipe and a folder in its place are refused, full or empty."""
    for text in (VICTIM, ""):
        victim.write_text(text)
        victim.chmod(0o644)
        file = tmp_path / "token"
        (LINKS | OTHERS)[name](file, victim)
        with pytest.raises(SettingsError, match="token file"):
            read_token(file)
        assert victim.read_text() == text
        assert _mode(victim) == 0o644
        file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="needs to become another user",
)
def test_another_users_file_is_not_ours() -> None:
    """Who owns a file knows what is in it, however private it looks."""
    code = (
        "import os, sys, pathlib; from toolkit.base.private_files import open_private\n"
        "os.setgid(12345); os.setuid(12345)\n"
        "try:\n    open_private(pathlib.Path(sys.argv[1]), os.O_RDONLY)\n"
        "except OSError as error:\n    print(error.strerror)\n"
    )
    with TemporaryDirectory() as folder:
        file = Path(folder, "token")
        file.write_text("token-of-somebody-else")
        file.chmod(0o644)
        Path(folder).chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-c", code, str(file)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.stdout == "another user's file\n", done.stderr


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize(
    "file",
    [
        "lock",
        "queue/queue.sqlite",
        "queue/queue.sqlite-wal",
        "vectors/a.sqlite",
        "vectors/a.1.f32",
    ],
)
def test_the_service_writes_no_file_through_a_link(
    tmp_path: Path, victim: Path, file: str, name: str
) -> None:
    """A data folder in which somebody has put links is refused before anything is opened."""
    folder = tmp_path / "data"
    (folder / file).parent.mkdir(parents=True)
    LINKS[name](folder / file, victim)
    done = subprocess.run(
        [sys.executable, "-m", "toolkit", "serve", "--data-dir", str(folder), "--port", "0"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert Path(file).name in done.stderr
    assert "Traceback" not in done.stderr
    assert victim.read_text() == VICTIM


@pytest.mark.parametrize("name", LINKS | OTHERS)
def test_a_log_is_not_written_through_a_link(
    tmp_path: Path, victim: Path, name: str
) -> None:
    """The standard error of a child goes to a file of this user alone, or the child is not started."""
    log = tmp_path / "serve.log"
    (LINKS | OTHERS)[name](log, victim)
    with pytest.raises(LocalServiceError, match=r"serve\.log"):
        start_module("this", variables={}, log=log)
    assert victim.read_text() == VICTIM


def test_a_log_is_private(tmp_path: Path) -> None:
    """It is made for this user alone, whatever the umask says."""
    before = os.umask(0)
    try:
        start_module("this", variables={}, log=tmp_path / "serve.log").communicate(
            timeout=60
        )
    finally:
        os.umask(before)
    assert _mode(tmp_path / "serve.log") == 0o600


@pytest.mark.parametrize("name", LINKS)
def test_the_masking_key_is_no_link(tmp_path: Path, victim: Path, name: str) -> None:
    """What is not a key is not a key by another name either."""
    LINKS[name](tmp_path / "masking.key", victim)
    with pytest.raises(SettingsError, match="masking key"):
        masking_key(tmp_path)


@pytest.mark.parametrize("path", ["~tilde", "~tilde/snapshots/failures"])
def test_a_home_folder_that_is_none_is_an_error(path: str) -> None:
    """A name behind the tilde that is not a user's says so, and how to name such a folder."""
    calls: list[Callable[[], Any]] = [
        lambda: tk.read_snapshot(path),
        lambda: tk.verify_snapshot(path),
        lambda: tk.write_snapshot(pd.DataFrame({"a": [1]}), path),
    ]
    for call in calls:
        with pytest.raises(InputError, match=r"without a home folder.*\./~tilde"):
            call()


def test_a_tilde_is_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a shell."""
    monkeypatch.setenv("HOME", str(tmp_path))
    tk.write_snapshot(pd.DataFrame({"a": [1]}), "~/snapshot")
    assert (tmp_path / "snapshot" / "_manifest.json").is_file()


@pytest.mark.parametrize(
    ("kind", "usual"), [("config", ".config"), ("data", ".local/share")]
)
def test_folders_are_those_of_the_user(
    kind: Any, usual: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where XDG variables say, else as the system has it; a relative path in a variable is none."""
    name = "workflow-vector-toolkit"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "Local"))
    monkeypatch.setenv(f"XDG_{kind.upper()}_HOME", str(tmp_path / "chosen"))
    assert user_folder(kind) == tmp_path / "chosen" / name
    for unusable in ("", " ", "relative"):
        monkeypatch.setenv(f"XDG_{kind.upper()}_HOME", unusable)
        monkeypatch.setattr("sys.platform", "linux")
        assert user_folder(kind) == tmp_path / usual / name
        monkeypatch.setattr("sys.platform", "darwin")
        assert user_folder(kind) == tmp_path / "Library" / "Application Support" / name
        monkeypatch.setattr("sys.platform", "win32")
        assert user_folder(kind) == tmp_path / "Local" / name / name
