"""A rules file that several kernels and users share: no line is lost, and its mode stays."""

from __future__ import annotations

import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import toolkit as tk
from toolkit.base.private_files import changing
from toolkit.errors import InputError

KERNELS, MERGES = 9, 8
# each kernel has failures of its own, so that each also learns what the others have not
CODE = """
import os, sys
import pandas as pd
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES
from toolkit.widgets.failure_grouping import FailureGrouping
from zoneinfo import ZoneInfo

path, kernels, merges = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
words = "Alpha Bravo Carbon Delta Ember Fjord Garnet Harbor Iris".split()
kinds = "Disk Lock Quota Route Token Queue Cache Index Schema".split()
when = pd.Timestamp("2026-03-10", tz="UTC")

def kernel(number):
    rows = [
        {"dlq_id": f"{row}-{copy}", "response_status": 500, "failed_at": when, "created_at": when,
         "response_body": f"{words[number]}{kind}Error: gave up"}
        for row, kind in enumerate(kinds) for copy in range(20 - row)
    ]
    grouping = FailureGrouping(frame_from_rows(rows, FAILURES), path, ZoneInfo("UTC"))
    groups = grouping.groups.frame["group"].tolist()
    for other in groups[1:1 + merges]:
        grouping.merge([groups[0], other])
    left = len(grouping.groups.frame)
    os._exit(0 if left == len(kinds) - merges else 3)

children = [os.fork() or kernel(number) for number in range(kernels)]
sys.exit(sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_nine_kernels_that_merge_at_once_lose_no_line(tmp_path: Path) -> None:
    """Each merge of each is in the file, with the lines by hand and what all have learned."""
    path = tmp_path / "rules.txt"
    path.write_text("# ours\npin s1-5f0c9a3b12de  # by hand\n")
    command = [sys.executable, "-c", CODE, str(path), str(KERNELS), str(MERGES)]
    done = subprocess.run(
        command, check=False, timeout=120, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = path.read_text().splitlines()
    assert lines[:2] == ["# ours", "pin s1-5f0c9a3b12de  # by hand"]
    merges = [line for line in lines if line.startswith("merge ")]
    assert len(set(merges)) == len(merges) == KERNELS * MERGES
    learned = tk.GroupRules.read(path).learned
    assert learned is not None
    assert {file.name for file in tmp_path.iterdir()} == {
        "rules.txt",
        ".rules.txt.lock",
    }


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
@pytest.mark.parametrize("mode", [0o664, 0o640, 0o600])
def test_a_saved_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    """A shared file stays shared; a new file is private."""
    path = tmp_path / "rules.txt"
    tk.GroupRules("pin s1-5f0c9a3b12de").save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(mode)
    tk.GroupRules("pin s1-5f0c9a3b12df").save(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert "12df" in path.read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
def test_the_lock_is_for_those_who_may_replace_the_file(tmp_path: Path) -> None:
    """Its mode follows from that of the folder."""
    shared, own = tmp_path / "shared", tmp_path / "own"
    for folder, mode, expected in ((shared, 0o775, 0o664), (own, 0o700, 0o600)):
        folder.mkdir()
        folder.chmod(mode)
        tk.GroupRules("pin s1-5f0c9a3b12de").save(folder / "rules.txt")
        found = stat.S_IMODE((folder / ".rules.txt.lock").stat().st_mode)
        assert found & 0o222 == expected & 0o222


def test_a_file_that_is_held_is_waited_for_and_then_named(tmp_path: Path) -> None:
    """A block waits for another one to end; for too long a wait, the error is a TimeoutError."""
    path = tmp_path / "rules.txt"
    order = []

    def later() -> None:
        with changing(path):
            order.append("second")

    with changing(path):
        waiting = threading.Thread(target=later)
        waiting.start()
        with pytest.raises(TimeoutError), changing(path, seconds=0.05):
            pass
        order.append("first")
    waiting.join(timeout=10)
    assert order == ["first", "second"]


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """Nothing is made where it leads."""
    (tmp_path / ".rules.txt.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"rules\.txt"):
        tk.GroupRules("pin s1-5f0c9a3b12de").save(tmp_path / "rules.txt")
    assert not (tmp_path / "elsewhere").exists()


def test_a_line_of_any_length_takes_little_time() -> None:
    """A rule of 800 KB is refused by its length, a comment of 800 KB is kept, and neither takes seconds."""
    long = "x" * 800_000
    begun = time.process_time()
    with pytest.raises(InputError, match="characters"):
        tk.GroupRules(f'name s1-5f0c9a3b12de "{long}"')
    assert long in tk.GroupRules(f"# {long}").text
    assert time.process_time() - begun < 2


@pytest.mark.parametrize("end", ["\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"])
def test_a_comment_hides_no_rule(end: str, tmp_path: Path) -> None:
    """Characters that end a line for Python alone are refused: an editor shows the rule as a comment."""
    path = tmp_path / "rules.txt"
    path.write_text(
        f"# ours\n# seen in March{end}merge s1-5f0c9a3b12de into s1-0123456789ab\n",
        "utf-8",
    )
    with pytest.raises(InputError, match="line 2"):
        tk.GroupRules.read(path)
