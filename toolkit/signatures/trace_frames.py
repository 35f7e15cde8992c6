"""Choose the frame that identifies a stack trace.

A stack has frames of the application, of libraries, of the runtime and of tests. The frame nearest to the
error that the application owns is where an engineer looks first: see `Owner` for the order of choice. For
example, of the Java frames

    java.util.Objects.requireNonNull     runtime: throws on behalf of every program
    com.acme.Checks.requireOrder         guard of the application: throws on behalf of its caller
    com.acme.OrderService.total          application: chosen
    org.springframework.Dispatcher.run   library

the third is chosen. A frame of minified code is not used, because it has another name in the next build.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import msgspec

from toolkit.signatures.frame_names import file_stem, is_minified, plain_name
from toolkit.signatures.frame_owners import OWNER_OF_FUNCTION, Owner, owner_of

MOST_FRAMES: Final = 40
"""Frames that are kept."""
_CHAIN: Final = 8
"""Exceptions of a chain that are kept: the outermost seven and the root cause."""
_IN_FILES: Final = frozenset({"python", "javascript", "ruby"})
"""Languages whose functions are told apart by file; in other languages, a name has a class or module."""

_RECURSIVE: Final = re.compile(
    r"RecursionError|StackOverflow|Maximum call stack|stack level too deep|stack overflow"
    r"|SystemStackError|too much recursion"
)
_WRAPPERS: Final = re.compile(
    r"(?:^|[.\\:])(?:(?:Unchecked)?ExecutionException|CompletionException|InvocationTargetException"
    r"|UndeclaredThrowableException|(?:Nested)?ServletException|ExceptionInInitializerError"
    r"|PrivilegedActionException|AggregateException|TargetInvocationException|(?:Base)?ExceptionGroup)$"
)
_GENERAL: Final = re.compile(
    r"(?:^|\.)(?:Runtime)?(?:Exception|Error)$|(?:^|\.)Throwable$"
)

_T = TypeVar("_T")

Error = tuple[str, str]
"""The type and the message of an exception."""


def error_in(found: re.Match[str]) -> Error:
    """Return the error of a line, whose pattern has the type and then the message, which can be missing."""
    message = found[2] or ""
    return found[1], message.strip()


def reader_of(
    pattern: re.Pattern[str], read: Callable[[re.Match[str]], _T]
) -> Callable[[str], _T | None]:
    """Return a function that reads a line if the line begins with a pattern, and returns None otherwise."""

    def read_line(line: str) -> _T | None:
        found = pattern.match(line)
        if found is None:
            return None

        return read(found)

    return read_line


class Frame(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A function on a stack, and the file if the trace names it."""

    function: str
    path: str = ""
    column: int | None = None
    """The column in a line of JavaScript."""

    @property
    def minified(self) -> bool:
        """True if the function has another name in the next build."""
        return is_minified(self.function, self.path, self.column)


class StackTrace(msgspec.Struct, frozen=True, gc=False):
    """A stack trace without the parts that differ from one occurrence to the next."""

    language: str
    errors: tuple[Error, ...]
    """The type and message of each error of the chain, the root cause last."""
    frame: str
    """The function that identifies the trace, with a class, module or file; "" if no function does."""
    stack: tuple[Frame, ...]
    """The frames of the root cause, the one nearest to the error first; at most 40."""

    @property
    def frames(self) -> tuple[str, ...]:
        """The names of all frames, also of libraries."""
        if self.language == "native":
            return tuple(dict.fromkeys(frame.function for frame in self.stack))

        names = (_named(frame, self.language) for frame in self.stack)
        return tuple(dict.fromkeys(filter(None, names)))


def trace_of(language: str, errors: Iterable[Error], frames: list[Frame]) -> StackTrace:
    """Return the trace of a chain of errors, the root cause last, and the frames of the root cause."""
    chain = tuple(dict.fromkeys(errors))
    if len(chain) > 1:
        chain = _without_wrappers(chain)
    if len(chain) > _CHAIN:
        chain = chain[: _CHAIN - 1] + chain[-1:]
    if _is_recursion(chain):
        # the message depends on the last call before the stack ended
        chain = tuple([(kind, "") for kind, _ in chain])
        frame = _recursive_application(frames, language)
    else:
        frame = _first_application(frames, language)

    return StackTrace(language, chain, frame, tuple(frames[:MOST_FRAMES]))


def _first_application(frames: list[Frame], language: str) -> str:
    """Return the qualified function nearest to the error that the best owner in the trace has.

    For example, of `Validate.notEmpty`, `OrderService.total` and `OrderServiceTest.adds`, the second. If a
    trace contains frames of libraries only, the first one is returned.
    """
    nearest = _nearest(frames)
    if nearest is None or nearest.minified:
        return ""

    nearest_name = _named(nearest, language)
    if nearest_name:
        return nearest_name

    # the nearest function has no name, such as a lambda. Others of the same owner have one
    owner = owner_of(nearest.function, nearest.path)
    for frame in frames:
        name = _named(frame, language)
        if name and owner_of(frame.function, frame.path) is owner:
            return name

    return ""


# Python 3.11 looks up a member of an enum, and their number, more slowly than the owner of a frame
_APPLICATION: Final = Owner.APPLICATION
_NO_OWNER: Final = len(Owner)


def _nearest(frames: Iterable[Frame]) -> Frame | None:
    """Return the first frame of the best owner in the trace; None without frames.

    Frames after the first one of the application are not judged, which saves most of the time.
    """
    nearest = None
    best = _NO_OWNER
    for frame in frames:
        owner = (
            owner_of(frame.function, frame.path)
            if frame.path
            else OWNER_OF_FUNCTION[frame.function]
        )
        if owner < best:
            nearest = frame
            best = owner
            if owner is _APPLICATION:
                break

    return nearest


def _recursive_application(frames: list[Frame], language: str) -> str:
    """Return the function that called itself until the stack overflowed."""
    occurrences = Counter(frames)
    owners = {frame: owner_of(frame.function, frame.path) for frame in occurrences}
    best = min(owners.values(), default=Owner.RUNTIME)
    counts = Counter[str]()
    for frame, count in occurrences.items():
        if owners[frame] is best:
            counts[_named(frame, language)] += count

    return frequent(counts)


def frequent(counts: Counter[str]) -> str:
    """Return the first by name of the functions that occur about as often as the most frequent one.

    Functions that call one another occur equally often in a recursion, except for the last call before
    the stack ended. The last call is chance, so the choice must not depend on it.

    >>> frequent(Counter({"visit": 100, "children": 99, "main": 1}))
    'children'
    """
    most = max(counts.values(), default=0)
    frequent_names = [name for name, count in counts.items() if 2 * count >= most]
    return min(frequent_names, default="")


def _named(frame: Frame, language: str) -> str:
    """Return the name of a frame, for example "orders.total"; "" for minified code."""
    if frame.minified:
        return ""

    function = plain_name(frame.function)
    if language not in _IN_FILES:
        return function

    return ".".join(filter(None, (file_stem(frame.path), function)))


def _without_wrappers(errors: tuple[Error, ...]) -> tuple[Error, ...]:
    """Return the errors of a chain without exceptions that only carry another one.

    Executors and reflection wrap exceptions. If the same fault also occurs without a wrapper, both get one
    id. For example, `RuntimeException: java.io.IOException: closed` only repeats the cause, which is
    `java.io.IOException: closed`.
    """
    root_cause = errors[-1]
    inner_types: tuple[str, ...] = (root_cause[0],)
    kept = [root_cause]

    for error in reversed(errors[:-1]):
        kind, message = error
        repeats_cause = _GENERAL.search(kind) and message.startswith(inner_types)
        if not repeats_cause and not _WRAPPERS.search(kind):
            kept.append(error)
        inner_types = (kind, *inner_types)

    return tuple(kept[::-1])


def _is_recursion(chain: tuple[Error, ...]) -> bool:
    """Return whether an error of a chain is a stack overflow."""
    joined = "\n".join([f"{kind} {message}" for kind, message in chain])
    # these parts of the words are found much faster than the words by the pattern
    if "tack" not in joined and "ecursion" not in joined:
        return False

    return _RECURSIVE.search(joined) is not None
