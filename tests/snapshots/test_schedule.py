"""Schedules: when the next call comes, with a clock that a test moves."""

from __future__ import annotations

import signal
import threading

import pytest

from toolkit.snapshots.resumable import repeat, sigterm_as_interrupt


class _Stop(Exception):  # noqa: N818 - no error
    """The end of a test's schedule."""


class _Time:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Move on."""
        assert seconds > 0
        self.now += seconds


@pytest.mark.parametrize(
    ("takes", "starts"),
    [
        ([1, 1, 1], [0, 60, 120, 180]),
        ([1, 70, 1], [0, 60, 180, 240]),
        ([60, 200, 0], [0, 120, 360, 420]),
    ],
)
def test_calls_begin_at_multiples_of_the_time_between(takes: list[float], starts: list[float]) -> None:
    """The time a call takes delays no later one; times that pass meanwhile are left out."""
    clock, begun = _Time(), []
    left = iter(takes)

    def run() -> None:
        begun.append(clock.now - 1000)
        if len(begun) > len(takes):
            raise _Stop
        clock.now += next(left)

    with pytest.raises(_Stop):
        repeat(run, every=60, sleep=clock.sleep, monotonic=clock)
    assert begun == starts


def test_the_signal_that_ends_a_process_is_an_interrupt_inside_only() -> None:
    """Within the block SIGTERM raises, afterwards it is as it was; in other threads nothing changes."""
    before = signal.getsignal(signal.SIGTERM)

    @sigterm_as_interrupt()
    def terminated() -> None:
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        terminated()
    assert signal.getsignal(signal.SIGTERM) is before
    found = []

    @sigterm_as_interrupt()
    def elsewhere() -> None:
        found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [before]
