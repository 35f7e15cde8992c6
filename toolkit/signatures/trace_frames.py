"""Choose the frame that identifies a stack trace, and name it in the same way for every build.

A stack has frames of the application, of libraries, of the runtime and of tests. The frame nearest to the
error that the application owns is where an engineer looks first: see `Owner` for the order of choice. For
example, of the Java frames

    java.util.Objects.requireNonNull     runtime: throws on behalf of every program
    com.acme.Checks.requireOrder         guard of the application: throws on behalf of its caller
    com.acme.OrderService.total          application: chosen
    org.springframework.Dispatcher.run   library

the third is chosen. Compilers and bundlers add hashes, line numbers and generated parts to names.
`plain_name` and `file_stem` remove them. A frame of minified code is not used, because it has another name in
the next build.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import lru_cache, wraps
from typing import Final, TypeVar

import msgspec

_T = TypeVar("_T")

MOST_FRAMES: Final = 40
"""Frames that are kept."""
_CHAIN: Final = 8
"""Exceptions of a chain that are kept: the outermost seven and the root cause."""
_IN_FILES: Final = frozenset({"python", "javascript", "ruby"})
"""Languages whose functions are told apart by file; in other languages, a name has a class or module."""

_LIBRARY: Final = re.compile(
    r"site-packages[/\\]|dist-packages[/\\]|[/\\]lib[/\\]python\d|<frozen |<string>|importlib[/\\._]"
    r"|node_modules[/\\]|\bnode:|^internal/|^native |webpack/(?:bootstrap|runtime)|^<anonymous>$"
    r"|/gems/|/ruby/\d|<internal:|/rubygems/"
    r"|/vendor/|\[internal function\]"
    r"|/rustc/|/\.cargo/|/usr/local/go/|/go/pkg/mod/|/libexec/src/|/go/src/(?:runtime|net|internal|testing)/"
)
_LIBRARY_NAMES: Final = re.compile(
    r"^(?:java|javax|jakarta|jdk|sun|com\.sun|kotlin|kotlinx|scala|groovy|android|androidx|dalvik"
    r"|com\.android\.internal"
    r"|org\.(?:springframework|apache|hibernate|junit|eclipse|jboss|mockito|glassfish|codehaus"
    r"|postgresql|mongodb)"
    r"|io\.(?:netty|grpc|micronaut|quarkus|reactivex)|reactor|com\.(?:mysql|zaxxer|fasterxml"
    r"|google\.common|intellij)"
    r"|System|Microsoft|MS|Npgsql|Newtonsoft|Grpc|StackExchange)\."
    r"|^(?:std|core|alloc|tokio|futures_util|futures_core|backtrace|hyper|rayon_core|anyhow|serde"
    r"|serde_json)(?:::|$)"
    r"|^(?:<(?:std|core|alloc|tokio|F|T) |rust_begin_unwind|__rust|_start|__libc_start|main$(?<!main)|_main$)"
    r"|^(?:runtime|testing|net/http|net|reflect|sync|syscall|internal/\w+|panic|os|io|bufio|encoding/\w+"
    r"|database/sql)\."
    r"|^(?:process|Module|Object\.Module|Function\.Module|new Promise|Promise|Array|JSON|Timeout"
    r"|Immediate|Generator)(?:\.|$)"
)
_RUNTIME_NAMES: Final = re.compile(
    r"^(?:java|javax|jdk|sun|com\.sun|kotlin|scala|groovy|System|Microsoft)\."
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
    r"|_?(?:throw|raise|report|fail|wrap)(?:[A-Z_]\w*)|\w*(?:Error|Exception))$"
    r"|(?:^|[.$])[A-Z]\w*(?:Error|Exception)[.$]\w+$"
)
"""Functions that throw on behalf of their caller, for example `Preconditions.checkState` or `newError`.

A plain `check` does work of its own. Functions of an exception make it, for example `ParseException.from`.
"""
_GENERATED: Final = re.compile(
    r"\$\$(?:Lambda|Enhancer|FastClass|SpringCGLIB|Proxy)[\w$/]*|\$Proxy\d+|\$\d+|/0x[0-9a-f]+|@[0-9a-f]{4,}"
    r"|lambda\$(?=\w)|\$lambda|access\$\d+|\$default|\$\w+\$lambda|-\$\$Nest\$\w+"
    r"|<locals>\.|<lambda>|<(?:listcomp|dictcomp|genexpr|setcomp)>|<anonymous>|<module>|<main>"
    r"|<top \(required\)>"
    r"|\{\{?closure\}?\}?|\{closure[#:][^}]*\}|::h[0-9a-f]{16}\b|\.func\d+(?:\.\d+)*|\.gowrap\d+"
    r"|\[\.\.\.\]|\(\*?(?=\w)|\)(?=\.)"
    r"|<>c(?:__DisplayClass[\d_]+)?[.+]?|<(?=\w+>[bdg]__)|>[bdg]__\w*|\.MoveNext|`\d+|\[T\w*\]"
    r"|\bblock (?:\(\d+ levels\) )?in |\brescue in |\bensure in |\basync |\bnew |\bsingleton class"
    r"|#<Class:0x[0-9a-f]+>"
)
_DOTS: Final = re.compile(r"\.{2,}|(?:::){2,}|\$+(?=\.|$)|[.:$#]+$|^[.:$#]+")
_MINIFIED: Final = re.compile(
    r"^(?:\w{1,2}|[a-z]\.\w{1,2}|\w{1,2}\.\w{1,2}|Object\.\w{1,2})$"
)
_LONG_LINE: Final = 300
"""Nobody writes longer lines by hand: a frame at a later column is minified code."""
_HASHED: Final = re.compile(
    r"[.\-_](?=[0-9a-z]*\d)[0-9a-z]{6,}$|\.(?:min|bundle|chunk|prod)$", re.IGNORECASE
)
_EXTENSION: Final = re.compile(r"\.(?:py|[mc]?[jt]sx?|rb|php|go|rs|cs|java|kt|min)$")
_SHORT: Final = 300
"""Characters of a name that is cached. Longer names would fill the memory."""


def cached(
    function: Callable[[str], _T], *, longest: int = _SHORT, most: int = 1 << 14
) -> Callable[[str], _T]:
    """Return the function with a cache for short strings: many traces consist of the same few frames."""
    known = lru_cache(maxsize=most)(function)

    @wraps(function)
    def call(text: str) -> _T:
        if len(text) > longest:
            return function(text)
        return known(text)

    return call


_BUILD_DIGITS: Final = re.compile(r"\d{3,}|(?=[a-f]*\d)[0-9a-f]{8,}")


@cached
def stable_name(name: str) -> str:
    """Return a function or type with the digits of a build replaced. Other digits belong to the name.

    >>> stable_name("Base64.decode"), stable_name("Worker$48213.run")
    ('Base64.decode', 'Worker$<num>.run')
    """
    function, bracket, code = name.partition(
        " ["
    )  # the code of an error, such as [P2002], stays
    return _BUILD_DIGITS.sub("<num>", function) + bracket + code


@cached
def plain_name(name: str) -> str:
    """Return the name of a function without the parts that compilers and runtimes add.

    >>> plain_name("com.acme.Orders$$Lambda$14/0x1f.run"), plain_name("Orders.<locals>.<lambda>")
    ('com.acme.Orders.run', 'Orders')
    """
    return _DOTS.sub("", _GENERATED.sub("", name)).strip()


@cached
def file_stem(path: str) -> str:
    """Return the name of a file without folders, extensions and the content hash of a bundler.

    >>> file_stem("/srv/dist/checkout.3f9c2a1b.min.js?v=7"), file_stem("<string>")
    ('checkout', '')
    """
    name = path.partition("?")[0].replace("\\", "/").rpartition("/")[2]
    shorter = _HASHED.sub("", _EXTENSION.sub("", name))
    while shorter != name:
        name, shorter = shorter, _HASHED.sub("", _EXTENSION.sub("", shorter))
    if name.startswith("<"):
        return ""  # code without a file
    return name


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A function on a stack, and the file if the trace names it."""

    function: str
    path: str = ""
    column: int | None = None
    """The column in a line of JavaScript."""

    @property
    def minified(self) -> bool:
        """True if the function has another name in the next build."""
        if self.column is None or not _MINIFIED.match(plain_name(self.function)):
            return False
        return (
            self.column >= _LONG_LINE
            or _HASHED.search(_EXTENSION.sub("", self.path)) is not None
        )


class StackTrace(msgspec.Struct, frozen=True):
    """A stack trace without the parts that differ from one occurrence to the next."""

    language: str
    errors: tuple[tuple[str, str], ...]
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


class Owner(IntEnum):
    """The owner of a frame. The frame of a failure is taken from the first owner that has one."""

    APPLICATION = 0
    APPLICATION_GUARD = 1
    LIBRARY = 2
    LIBRARY_GUARD = 3
    TEST = 4
    RUNTIME = 5


@lru_cache(maxsize=1 << 14)
def _owner(function: str, path: str) -> Owner:
    """Return the owner of a function by name and path.

    >>> _owner("com.acme.Checks.requireOrder", ""), _owner("send", "/app/site-packages/http/client.py")
    (<Owner.APPLICATION_GUARD: 1>, <Owner.LIBRARY: 2>)
    """
    if _RUNTIME_NAMES.search(function):
        return Owner.RUNTIME
    if _TEST_NAMES.search(function):
        return Owner.TEST
    owner, guard = Owner.APPLICATION, Owner.APPLICATION_GUARD
    if _LIBRARY.search(path) or _LIBRARY_NAMES.search(function):
        owner, guard = Owner.LIBRARY, Owner.LIBRARY_GUARD
    if _GUARDS.search(function):
        return guard
    return owner


def _owner_of(frame: Frame) -> Owner:
    return _owner(frame.function[:_SHORT], frame.path[-_SHORT:])


def _own(frames: Iterable[Frame]) -> list[Frame]:
    """Return the frames of the best owner in a trace, in their order.

    For example, of `Validate.notEmpty`, `OrderService.total` and `OrderServiceTest.adds`, only the second. If
    a trace contains frames of libraries only, all of them are returned.
    """
    owners = {frame: _owner_of(frame) for frame in frames}
    best = min(owners.values(), default=Owner.RUNTIME)
    return [frame for frame, owner in owners.items() if owner is best]


def _first_application(frames: list[Frame], language: str) -> str:
    """Return the qualified function nearest to the error that the application owns, else the best owner."""
    nearest = next(
        (frame for frame in frames if _owner_of(frame) is Owner.APPLICATION), None
    )
    if nearest is not None and not nearest.minified:
        name = _named(nearest, language)
        if name:
            return name
    own = _own(frames)
    if not own or own[0].minified:
        return ""
    return next(filter(None, (_named(frame, language) for frame in own)), "")


def _recursive_application(frames: list[Frame], language: str) -> str:
    """Return the function that called itself until the stack overflowed."""
    occurrences, counts = Counter(frames), Counter[str]()
    for frame in _own(occurrences):
        counts[_named(frame, language)] += occurrences[frame]
    return frequent(counts)


def frequent(counts: Counter[str]) -> str:
    """Return the first by name of the functions that occur about as often as the most frequent one.

    Functions that call one another occur equally often in a recursion, except for the last call before
    the stack ended. The last call is chance, so the choice must not depend on it.

    >>> frequent(Counter({"visit": 100, "children": 99, "main": 1}))
    'children'
    """
    most = max(counts.values(), default=0)
    return min(
        (name for name, count in counts.items() if 2 * count >= most), default=""
    )


def _named(frame: Frame, language: str) -> str:
    """Return the name of a frame, for example "orders.total"; "" for minified code."""
    if frame.minified:
        return ""
    function = plain_name(frame.function)
    if language not in _IN_FILES:
        return function
    return ".".join(filter(None, (file_stem(frame.path), function)))


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


def _without_wrappers(
    errors: tuple[tuple[str, str], ...],
) -> tuple[tuple[str, str], ...]:
    """Return the errors of a chain without exceptions that only carry another one.

    Executors and reflection wrap exceptions. If the same fault also occurs without a wrapper, both get one
    id. For example, `RuntimeException: java.io.IOException: closed` only repeats the cause, which is
    `java.io.IOException: closed`.
    """

    def wraps_another(number: int) -> bool:
        kind, message = errors[number]
        inner_types = tuple([kind for kind, _ in errors[number + 1 :]])
        repeats_cause = _GENERAL.search(kind) and message.startswith(inner_types)
        return bool(_WRAPPERS.search(kind) or repeats_cause)

    last = len(errors) - 1
    carried = [
        error for number, error in enumerate(errors[:last]) if not wraps_another(number)
    ]
    return (*carried, *errors[last:])


def trace_of(
    language: str, errors: Iterable[tuple[str, str]], frames: list[Frame]
) -> StackTrace:
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


def _is_recursion(chain: tuple[tuple[str, str], ...]) -> bool:
    """Return whether an error of a chain is a stack overflow."""
    joined = "\n".join(f"{kind} {message}" for kind, message in chain)
    # these parts of the words are found much faster than the words by the pattern
    if "tack" not in joined and "ecursion" not in joined:
        return False
    return _RECURSIVE.search(joined) is not None
