"""Frames of stack traces: which are the application's, and what each is called whatever build it is of."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from typing import Final, NamedTuple, TypeVar

_T = TypeVar("_T")

MOST_FRAMES: Final = 40  # frames that are kept
_CHAIN: Final = 8  # exceptions of a chain that are kept, the outermost first


@dataclass(frozen=True)
class StackTrace:
    """What a stack trace says, without what differs from one occurrence to the next."""

    language: str
    errors: tuple[tuple[str, str], ...]  # type and message of each of the chain, the root cause last
    frame: str  # the first application frame of the root cause, as a qualified function; "" without one
    frames: tuple[str, ...] = field(default=(), repr=False)
    """The frames of the root cause, libraries' among them, the one nearest to the error first; at most 40."""


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
    r"^(?:java|javax|jdk|sun|com\.sun|kotlin|scala|groovy|junit|org\.junit|org\.mockito|System|Microsoft)\."
)
"""Of a trace through libraries alone, what is not even one of those."""
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
MINIFIED: Final = re.compile(r"^(?:\w{1,2}|[a-z]\.\w{1,2}|\w{1,2}\.\w{1,2}|Object\.\w{1,2})$")
LONG_LINE: Final = 300  # a column beyond is a line that no person wrote
HASHED: Final = re.compile(r"[.\-_](?=[0-9a-z]*\d)[0-9a-z]{6,}$|\.(?:min|bundle|chunk|prod)$", re.IGNORECASE)
EXTENSION: Final = re.compile(r"\.(?:py|[mc]?[jt]sx?|rb|php|go|rs|cs|java|kt|min)$")
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


@cached
def plain_name(name: str) -> str:
    """A function's name without what compilers and runtimes add."""
    return _DOTS.sub("", _GENERATED.sub("", name)).strip()


@cached
def file_stem(path: str) -> str:
    """The file's name alone: no folders, no extension, no content hash of a bundler."""
    name = re.split(r"[/\\]", path.split("?", 1)[0])[-1]
    while True:
        shorter = HASHED.sub("", EXTENSION.sub("", name))
        if shorter == name:
            return "" if name.startswith("<") else name
        name = shorter


@cached
def is_hashed(path: str) -> bool:
    """Whether a bundler wrote the file."""
    return bool(HASHED.search(EXTENSION.sub("", path)))


@cached
def _is_library_file(path: str) -> bool:
    return bool(_LIBRARY.search(path))


@cached
def _is_library_name(function: str) -> bool:
    return bool(_LIBRARY_NAMES.search(function))


class Frame(NamedTuple):
    """A function on a stack, and the file it is in where that is said."""

    function: str
    path: str = ""
    minified: bool = False  # another name in the next build

    @property
    def library(self) -> bool:
        """Whether it is not the application's."""
        return _is_library_file(self.path) or _is_library_name(self.function)


def _first_application(frames: list[Frame], *, recursive: bool, with_file: bool) -> str:
    """The qualified function nearest to the error that is not a library's."""
    occurrences = Counter(frames)
    own = [frame for frame in occurrences if not frame.library]
    own = own or [frame for frame in occurrences if not _RUNTIME_NAMES.search(frame.function)]
    own = own or list(occurrences)
    if not own:
        return ""
    names = (_named(frame, with_file=with_file) for frame in own)
    if recursive:  # which of the functions overflowed is chance
        counts = Counter[str]()
        for frame, name in zip(own, names, strict=True):
            counts[name] += occurrences[frame]
        most = max(counts.values())
        return min(name for name, count in counts.items() if 2 * count >= most)
    return "" if own[0].minified else next(filter(None, names), "")


def _named(frame: Frame, *, with_file: bool) -> str:
    if frame.minified:
        return ""
    function, stem = plain_name(frame.function), file_stem(frame.path) if with_file else ""
    return f"{stem}.{function}" if stem and function else stem or function


_RECURSIVE: Final = re.compile(
    r"RecursionError|StackOverflow|Maximum call stack|stack level too deep|stack overflow"
    r"|SystemStackError|too much recursion"
)
_WRAPPERS: Final = re.compile(
    r"(?:^|[.\\:])(?:(?:Unchecked)?ExecutionException|CompletionException|InvocationTargetException"
    r"|UndeclaredThrowableException|(?:Nested)?ServletException|ExceptionInInitializerError"
    r"|PrivilegedActionException|AggregateException|TargetInvocationException)$"
)
_GENERAL: Final = re.compile(r"(?:^|\.)(?:Runtime)?(?:Exception|Error)$|(?:^|\.)Throwable$")


def _without_wrappers(chain: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Without exceptions that only carry another one, as executors and reflection do on some ways."""

    def wraps_another(number: int) -> bool:
        (kind, message), inner = chain[number], tuple(kind for kind, _ in chain[number + 1 :])
        return bool(_WRAPPERS.search(kind) or (_GENERAL.search(kind) and message.startswith(inner)))

    last = len(chain) - 1
    return tuple(one for number, one in enumerate(chain) if number == last or not wraps_another(number))


def trace_of(
    language: str, errors: Iterable[tuple[str, str]], frames: list[Frame], *, with_file: bool = True
) -> StackTrace:
    """The trace of a chain of errors, the root cause last, and the frames of that."""
    chain = _without_wrappers(tuple(dict.fromkeys(errors)))
    chain = chain[: _CHAIN - 1] + chain[-1:] if len(chain) > _CHAIN else chain
    recursive = any(_RECURSIVE.search(f"{kind} {message}") for kind, message in chain)
    if recursive:  # how a runtime words it depends on where the stack ended
        chain = tuple((kind, "") for kind, _ in chain)
    nearest = dict.fromkeys(frames[:MOST_FRAMES])
    named = dict.fromkeys(_named(frame, with_file=with_file) for frame in nearest)
    first = _first_application(frames, recursive=recursive, with_file=with_file)
    return StackTrace(language, chain, first, tuple(name for name in named if name))
