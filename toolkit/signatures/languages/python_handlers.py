"""Tell whether an exception that was raised while another one was handled is a failure of its own.

Python prints both exceptions with "During handling of the above exception, another exception occurred". There
are two cases. First, code looks up a value, and takes another way if it is missing:

    try:
        return self.known[key]              KeyError, which is expected
    except KeyError:
        return self.load(key)               fails: "too many connections"

The second exception is the failure, and the first one tells nothing. Second, a handler translates an error,
reports it, or cleans up:

    try:
        charge(order)                       KeyError in a function of `charge`
    except Exception:
        raise PaymentError("no charge")     also: abort(500), connection.rollback()

Here the first exception is the root cause, although the second one is printed last. So the second exception
is a failure of its own only if all of these are true:

1. The first one is of a type that tells that something was not found (`_MISSING`).
2. It was raised where it was caught: below the function with the handler, there are only libraries.
3. The handler called a function that failed, or another lookup failed. It did not raise an error on purpose,
   neither by `raise` nor by a function such as `abort` or `raise_missing`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from toolkit.signatures.frame_owners import Owner, owner_of
from toolkit.signatures.trace_frames import Error, Frame

_MISSING: Final = re.compile(
    r"(?:^|\.)(?:KeyError|IndexError|LookupError|AttributeError|StopIteration|ImportError|ModuleNotFoundError"
    r"|FileNotFoundError|Empty|\w*(?:DoesNotExist|NotFound|NoResultFound|Miss))$"
)
_RAISES: Final = re.compile(r"\s*(?:raise\b|assert\b|(?:sys\.)?exit\()")
_RAISING_NAME: Final = re.compile(r"(?:^|\.)_?(?:abort|raise|throw|fail)(?:_\w+)?$")
"""Functions that do nothing but raise an error."""


class Raised(NamedTuple):
    """An exception of a chain."""

    error: Error
    frames: list[Frame]
    """The frame that raised it comes first."""
    code: str
    """The line of code that raised it, if `while_handling`; "" if the trace does not print it."""
    while_handling: bool
    """Whether it was raised while the exception before it was handled, without `from`."""


def is_own_failure(first: Raised, second: Raised) -> bool:
    """Return whether the second of two exceptions is a failure of its own."""
    if not first.frames or not second.frames or not _MISSING.search(first.error[0]):
        return False

    # the first trace begins at the function that caught the exception
    *inner, handler = first.frames
    if any(owner_of(one.function, one.path) < Owner.LIBRARY for one in inner):
        return False
    if handler not in second.frames:
        return False

    return not _raises_on_purpose(second, second.frames.index(handler))


def _raises_on_purpose(second: Raised, handler: int) -> bool:
    """Return whether a handler raised an error itself, or by a function that does only this."""
    if handler == 0:
        return not second.code or _RAISES.match(second.code) is not None

    called = second.frames[handler - 1]
    return _RAISING_NAME.search(called.function) is not None
