"""Tell who owns a frame of a stack trace: the application, a library, a test or the runtime.

The tables name packages and folders of libraries, and words of functions. For example,
`org.springframework.Dispatcher.run` belongs to a library, and `com.acme.Checks.requireOrder` is a guard of
the application: it throws on behalf of its caller.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache
from typing import Final

from toolkit.signatures.remembering import LONGEST, Memo

_LIBRARY: Final = re.compile(
    r"site-packages[/\\]|dist-packages[/\\]|[/\\]lib[/\\]python\d|<frozen |<string>|importlib[/\\._]"
    r"|node_modules[/\\]|\bnode:|^internal/|^native |webpack/(?:bootstrap|runtime)|^<anonymous>$"
    r"|/gems/|/ruby/\d|<internal:|/rubygems/"
    r"|/vendor/|\[internal function\]"
    r"|/rustc/|/\.cargo/|/usr/local/go/|/go/pkg/mod/|/libexec/src/|/go/src/(?:runtime|net|internal|testing)/"
)
_LIBRARY_NAMES: Final = re.compile(
    r"(?:java|javax|jakarta|jdk|sun|com\.sun|kotlin|kotlinx|scala|groovy|android|androidx|dalvik"
    r"|com\.android\.internal"
    r"|org\.(?:springframework|apache|hibernate|junit|eclipse|jboss|mockito|glassfish|codehaus"
    r"|postgresql|mongodb)"
    r"|io\.(?:netty|grpc|micronaut|quarkus|reactivex)|reactor|com\.(?:mysql|zaxxer|fasterxml"
    r"|google\.common|intellij)"
    r"|System|Microsoft|MS|Npgsql|Newtonsoft|Grpc|StackExchange)\."
    r"|(?:std|core|alloc|tokio|futures_util|futures_core|backtrace|hyper|rayon_core|anyhow|serde"
    r"|serde_json)(?:::|$)"
    r"|(?:<(?:std|core|alloc|tokio|F|T) |rust_begin_unwind|__rust|_start|__libc_start|main$(?<!main)|_main$)"
    r"|(?:runtime|testing|net/http|net|reflect|sync|syscall|internal/\w+|panic|os|io|bufio|encoding/\w+"
    r"|database/sql)\."
    r"|(?:process|Module|Object\.Module|Function\.Module|new Promise|Promise|Array|JSON|Timeout"
    r"|Immediate|Generator)(?:\.|$)"
)
_RUNTIME_NAMES: Final = re.compile(
    r"(?:java|javax|jdk|sun|com\.sun|kotlin|scala|groovy|System|Microsoft)\."
)
"""The language itself. It throws on behalf of every program, so it is the last choice for a frame."""
_TEST_NAMES: Final = re.compile(
    r"^(?:junit|org\.junit|org\.testng|_pytest|pluggy|unittest)\b|\.(?:junit|testng)\."
    r"|(?:^|[.$])(?:Test(?=[A-Z_\d])\w*|[A-Z]\w*Tests?|TestCase)[.$]|(?:^|\.)test_\w+$"
)
"""Test runners and tests. They call the code that fails, as a user would."""
_GUARDS: Final = re.compile(
    r"[.:](?:(?:check|require|verify|validate|ensure|assert)(?:[A-Z]\w*|_\w+)"
    r"|(?:not|no|is)(?:Null|Empty|Blank|True|False|NullOrEmpty)\w*"
    r"|_?(?:throw|raise|report|fail|wrap)(?:[A-Z_]\w*))$"
)
"""Functions that throw on behalf of their caller, for example `.checkState`.

A plain `check` does work of its own.
"""
_MAKES_ERROR: Final = re.compile(
    r"[.:]\w*(?:Error|Exception)$|(?:^|[.$])[A-Z]\w*(?:Error|Exception)[.$]\w+$"
)
"""Functions that make an exception, and functions of it, for example `.newError` or `ParseException.from`."""


class Owner(IntEnum):
    """The owner of a frame. The frame of a failure is taken from the first owner that has one."""

    APPLICATION = 0
    APPLICATION_GUARD = 1
    LIBRARY = 2
    LIBRARY_GUARD = 3
    TEST = 4
    RUNTIME = 5


def owner_of(function: str, path: str) -> Owner:
    """Return the owner of a function by name and path.

    >>> owner_of("com.acme.Checks.requireOrder", ""), owner_of("send", "/app/site-packages/http/client.py")
    (<Owner.APPLICATION_GUARD: 1>, <Owner.LIBRARY: 2>)
    """
    if not path:
        return OWNER_OF_FUNCTION[function]
    return _owner_in_file(function[:LONGEST], path[-LONGEST:])


@lru_cache(maxsize=1 << 14)
def _owner_in_file(function: str, path: str) -> Owner:
    owner = OWNER_OF_FUNCTION[function]
    if owner < Owner.LIBRARY and _LIBRARY.search(path):
        # the same function of a library
        return Owner(owner + Owner.LIBRARY)

    return owner


def _owner_of_function(function: str) -> Owner:
    """Return the owner by the start of the name only."""
    function = function[:LONGEST]
    if _RUNTIME_NAMES.match(function):
        return Owner.RUNTIME

    if _may_be_test(function) and _TEST_NAMES.search(function):
        return Owner.TEST

    is_guard = _is_guard(function)
    if _LIBRARY_NAMES.match(function):
        return Owner.LIBRARY_GUARD if is_guard else Owner.LIBRARY

    return Owner.APPLICATION_GUARD if is_guard else Owner.APPLICATION


def _may_be_test(function: str) -> bool:
    """Return whether `_TEST_NAMES` can match a name, which takes much longer to search."""
    names_test = "test" in function or "Test" in function
    return names_test or "junit" in function or "pluggy" in function


def _is_guard(function: str) -> bool:
    """Return whether a function throws on behalf of its caller. The last part of the name tells it."""
    last_sign = max(function.rfind("."), function.rfind(":"))
    if last_sign >= 0 and _GUARDS.match(function, last_sign):
        return True
    if "Error" not in function and "Exception" not in function:
        return False

    return _MAKES_ERROR.search(function) is not None


OWNER_OF_FUNCTION: Final = Memo(_owner_of_function)
"""The owners of functions without a path, of which a trace has dozens. A lookup runs no Python code."""
