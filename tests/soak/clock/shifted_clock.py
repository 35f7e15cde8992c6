"""Shift the clock of a process: every ``datetime.now`` and ``time.time`` in it, also in libraries.

For example, a simulation of 60 days runs real commands at midnight of each day. Time goes on from the shifted
one, at its usual speed. `datetime.now` is replaced in the type itself, as many modules have imported the type
already, and a subclass would not be the type that compiled libraries know.
"""

from __future__ import annotations

import ctypes
import gc
import time
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final

_REAL_NOW: Final = datetime.now
_REAL_TIME: Final = time.time

_shift = timedelta()


def shift_clock_to(now: datetime) -> None:
    """Let the clock of this process show a time from now on."""
    global _shift  # noqa: PLW0603 - a process has one clock
    _shift = now - _REAL_NOW(UTC)
    (namespace,) = gc.get_referents(datetime.__dict__)
    namespace["now"] = staticmethod(_shifted_now)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime))
    time.time = _shifted_time


def _shifted_now(tz: tzinfo | None = None) -> Any:
    return _REAL_NOW(tz) + _shift


def _shifted_time() -> float:
    return _REAL_TIME() + _shift.total_seconds()
