"""Progress: a bar in terminals and notebooks, silence in scripts, numbers for callables."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios

import pytest

from toolkit.base.progress import ProgressBar

_LOAD = """
import time
from toolkit.base.progress import ProgressBar
with ProgressBar(None, title="failures", unit="entries", total=300) as progress:
    for _ in range(3):
        progress.add(100, retries=1200)
        time.sleep(0.6)
"""


@pytest.mark.slow
def test_a_script_stays_silent():
    """Without a terminal nothing is written, neither to the output nor to the error stream."""
    done = subprocess.run(
        [sys.executable, "-c", _LOAD], capture_output=True, check=True
    )
    assert (done.stdout, done.stderr) == (b"", b"")


@pytest.mark.slow
def test_a_terminal_shows_a_bar_after_the_first_second():
    """On a terminal the bar names what is read and how much, and is gone at the end."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    with subprocess.Popen(
        [sys.executable, "-c", _LOAD], stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the terminal is closed once the program has ended
                break
            shown += piece
    os.close(ours)
    assert process.returncode == 0
    assert b"failures" in shown
    assert b"/300" in shown
    assert b"1,200 retries" in shown


def test_a_callable_receives_progress_and_total():
    """A callable is called after every page."""
    told = []
    with ProgressBar(
        lambda *done: told.append(done), title="x", unit="y", total=5
    ) as progress:
        progress.add(2)
        progress.add(3)
    assert told == [(2, 5), (5, 5)]


@pytest.mark.parametrize("option", [False, True])
def test_it_can_be_switched(option, capfd, monkeypatch):
    """False never shows anything; True shows a bar also without a terminal."""
    monkeypatch.setattr("toolkit.base.progress._BAR_DELAY", 0.0)
    with ProgressBar(option, title="vectors", unit="vectors", total=10) as progress:
        progress.add(10)
    assert ("vectors" in capfd.readouterr().err) is option
