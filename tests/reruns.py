"""Report tests that failed and passed when they ran again, and fail the run if they are many.

`.ci/run` runs a failed test once more (`--reruns 1`), because one test in ten thousand depends on the timing
of a page or process. Nobody has found the reason yet, so the test is unstable. Its name is printed,
so that somebody repairs it.
"""

from __future__ import annotations

import socket

import pytest
from _pytest.terminal import TerminalReporter

ALLOWED = 3
"""Unstable tests that a run may have. With more of them, something else is wrong."""


@pytest.hookimpl(trylast=True)  # after pytest-rerunfailures has connected
def pytest_configure(config: pytest.Config) -> None:
    """Send the counts of reruns at once.

    For each test, pytest-rerunfailures sends two short messages from the worker to the controller, and waits
    for the response. With Nagle's algorithm, the second message waits for the acknowledgement of the first
    one, which takes 40 ms: for 20,000 tests, 13 minutes.
    """
    connection = getattr(getattr(config, "failures_db", None), "sock", None)
    if connection is not None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _unstable(terminal: TerminalReporter) -> dict[str, str]:
    """Return why the first run of each test that ran twice failed, by its name."""
    reports = terminal.stats.get("rerun", [])
    return {report.nodeid: report.longreprtext for report in reports}


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print the names of the unstable tests and why they failed."""
    unstable = _unstable(terminalreporter)
    if not unstable:
        return
    terminalreporter.section(f"{len(unstable)} unstable: failed once, then ran again")
    for name, reason in sorted(unstable.items()):
        terminalreporter.line(f"{name}\n{reason}\n")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if more tests were unstable than allowed."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None:  # a worker
        return
    unstable = len(_unstable(terminal))
    if unstable > ALLOWED and session.exitstatus == pytest.ExitCode.OK:
        terminal.write_line(f"{unstable} tests were unstable; {ALLOWED} are allowed")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
