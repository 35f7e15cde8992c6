"""Frames of stack traces: which are the application's, and what each is called whatever build it is of."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import lru_cache, wraps
from typing import Final, TypeVar

import msgspec

_T = TypeVar("_T")

MOST_FRAMES: Final = 40  # frames that are kept
_CHAIN: Final = 8  # exceptions of a chain that are kept, the outermost first
_IN_FILES: Final = frozenset({"python", "javascript", "ruby"})
"""Languages whose functions are told apart by their files; those of others are in classes or modules."""

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
_RUNTIME_NAMES: Final = re.compile(r"^(?:java|javax|jdk|sun|com\.sun|kotlin|scala|groovy|System|Microsoft)\.")
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
_MINIFIED: Final = re.compile(r"^(?:\w{1,2}|[a-z]\.\w{1,2}|\w{1,2}\.\w{1,2}|Object\.\w{1,2})$")
_LONG_LINE: Final = 300  # a column beyond is a line that no person wrote
_HASHED: Final = re.compile(r"[.\-_](?=[0-9a-z]*\d)[0-9a-z]{6,}$|\.(?:min|bundle|chunk|prod)$", re.IGNORECASE)
_EXTENSION: Final = re.compile(r"\.(?:py|[mc]?[jt]sx?|rb|php|go|rs|cs|java|kt|min)$")
_SHORT: Final = 300  # characters of a name; longer ones would fill memory


def cached(
    function: Callable[[str], _T], *, longest: int = _SHORT, most: int = 1 << 14
) -> Callable[[str], _T]:
    """The function with a cache for short texts: many traces consist of the same few frames."""
    known = lru_cache(maxsize=most)(function)

    @wraps(function)
    def call(text: str) -> _T:
        return known(text) if len(text) <= longest else function(text)

    return call


_BUILD_DIGITS: Final = re.compile(r"\d{3,}|(?=[a-f]*\d)[0-9a-f]{8,}")


@cached
def stable_name(name: str) -> str:
    """Return a function or type with the digits of a build replaced. Other digits belong to the name.

    >>> stable_name("Base64.decode"), stable_name("Worker$48213.run")
    ('Base64.decode', 'Worker$<num>.run')
    """
    function, bracket, code = name.partition(" [")  # the code of an error, such as [P2002], stays
    return _BUILD_DIGITS.sub("<num>", function) + bracket + code


@cached
def plain_name(name: str) -> str:
    """A function's name without what compilers and runtimes add."""
    return _DOTS.sub("", _GENERATED.sub("", name)).strip()


@cached
def file_stem(path: str) -> str:
    """The file's name alone: no folders, no extension, no content hash of a bundler."""
    name = path.partition("?")[0].replace("\\", "/").rpartition("/")[2]
    while True:
        shorter = _HASHED.sub("", _EXTENSION.sub("", name))
        if shorter == name:
            return "" if name.startswith("<") else name
        name = shorter


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A function on a stack, and the file it is in where that is said."""

    function: str
    path: str = ""
    column: int | None = None  # of JavaScript

    @property
    def minified(self) -> bool:
        """Whether it has another name in the next build."""
        if self.column is None or not _MINIFIED.match(plain_name(self.function)):
            return False
        return self.column >= _LONG_LINE or _HASHED.search(_EXTENSION.sub("", self.path)) is not None


class StackTrace(msgspec.Struct, frozen=True):
    """What a stack trace says, without what differs from one occurrence to the next."""

    language: str
    errors: tuple[tuple[str, str], ...]  # type and message of each of the chain, the root cause last
    frame: str  # the first application frame of the root cause, as a qualified function; "" without one
    stack: tuple[Frame, ...]  # of the root cause, the frame nearest to the error first; at most 40

    @property
    def frames(self) -> tuple[str, ...]:
        """The names of the frames, libraries' among them."""
        if self.language == "native":
            return tuple(dict.fromkeys(frame.function for frame in self.stack))
        names = (_named(frame, self.language) for frame in self.stack)
        return tuple(dict.fromkeys(filter(None, names)))


class Owner(IntEnum):
    """Whose a frame is, the best choice for the frame of a failure first."""

    APPLICATION = 0
    APPLICATION_GUARD = 1
    LIBRARY = 2
    LIBRARY_GUARD = 3
    TEST = 4
    RUNTIME = 5


@lru_cache(maxsize=1 << 14)
def _owner(function: str, path: str) -> Owner:
    if _RUNTIME_NAMES.search(function):
        return Owner.RUNTIME
    if _TEST_NAMES.search(function):
        return Owner.TEST
    is_guard = bool(_GUARDS.search(function))
    if _LIBRARY.search(path) or _LIBRARY_NAMES.search(function):
        return Owner.LIBRARY_GUARD if is_guard else Owner.LIBRARY
    return Owner.APPLICATION_GUARD if is_guard else Owner.APPLICATION


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
    """The qualified function nearest to the error that is not a library's."""
    nearest = next((frame for frame in frames if _owner_of(frame) is Owner.APPLICATION), None)
    if nearest is not None and not nearest.minified and (name := _named(nearest, language)):
        return name
    own = _own(frames)
    if not own or own[0].minified:
        return ""
    return next(filter(None, (_named(frame, language) for frame in own)), "")


def _recursive_application(frames: list[Frame], language: str) -> str:
    """The function of a stack overflow."""
    occurrences, counts = Counter(frames), Counter[str]()
    for frame in _own(occurrences):
        counts[_named(frame, language)] += occurrences[frame]
    return frequent(counts)


def frequent(counts: Counter[str]) -> str:
    """Of the functions of a recursion always the same one: which of them overflowed is chance."""
    most = max(counts.values(), default=0)
    return min((name for name, count in counts.items() if 2 * count >= most), default="")


def _named(frame: Frame, language: str) -> str:
    if frame.minified:
        return ""
    function, stem = plain_name(frame.function), file_stem(frame.path) if language in _IN_FILES else ""
    return f"{stem}.{function}" if stem and function else stem or function


_RECURSIVE: Final = re.compile(
    r"RecursionError|StackOverflow|Maximum call stack|stack level too deep|stack overflow"
    r"|SystemStackError|too much recursion"
)
_WRAPPERS: Final = re.compile(
    r"(?:^|[.\\:])(?:(?:Unchecked)?ExecutionException|CompletionException|InvocationTargetException"
    r"|UndeclaredThrowableException|(?:Nested)?ServletException|ExceptionInInitializerError"
    r"|PrivilegedActionException|AggregateException|TargetInvocationException|(?:Base)?ExceptionGroup)$"
)
_GENERAL: Final = re.compile(r"(?:^|\.)(?:Runtime)?(?:Exception|Error)$|(?:^|\.)Throwable$")


def _without_wrappers(errors: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Without exceptions that only carry another one, as executors and reflection do on some ways."""

    def wraps_another(number: int) -> bool:
        (kind, message), inner = errors[number], tuple(kind for kind, _ in errors[number + 1 :])
        return bool(_WRAPPERS.search(kind) or (_GENERAL.search(kind) and message.startswith(inner)))

    last = len(errors) - 1
    return tuple(one for number, one in enumerate(errors) if number == last or not wraps_another(number))


def trace_of(language: str, errors: Iterable[tuple[str, str]], frames: list[Frame]) -> StackTrace:
    """The trace of a chain of errors, the root cause last, and the frames of that."""
    told = tuple(dict.fromkeys(errors))
    told = _without_wrappers(told) if len(told) > 1 else told
    told = told[: _CHAIN - 1] + told[-1:] if len(told) > _CHAIN else told
    said = "\n".join(f"{kind} {message}" for kind, message in told)
    # the parts of the words are found much faster than these by the pattern
    if ("tack" in said or "ecursion" in said) and _RECURSIVE.search(said):
        told = tuple((kind, "") for kind, _ in told)  # how it is worded depends on where the stack ended
        frame = _recursive_application(frames, language)
    else:
        frame = _first_application(frames, language)
    return StackTrace(language, told, frame, tuple(frames[:MOST_FRAMES]))
