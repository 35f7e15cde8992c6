r"""Stack traces of eight languages: the exceptions of a chain, the first application frame of its root cause.

Line numbers, paths, argument values, addresses and generated names differ between occurrences of a failure,
so none of them is kept. Only the text is read; nothing is known of the program.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

MAX_LINES: Final = 4_000  # a deeper trace is recursion: its ends are read
_FRAMES: Final = 40  # frames that are kept
_CHAIN: Final = 8  # exceptions of a chain that are kept, the outermost first


@dataclass(frozen=True)
class StackTrace:
    """What a stack trace says, without what differs from one occurrence to the next.

    Attributes
    ----------
    language : str
        ``python``, ``javascript``, ``java``, ``go``, ``ruby``, ``dotnet``, ``php`` or ``rust``.
    errors : tuple of (str, str)
        Type and message of each exception of the chain; the root cause is last.
    frame : str
        The first application frame of the root cause, as a qualified function; empty where there is none.
    frames : tuple of str
        The frames of the root cause, libraries' among them, the one nearest to the error first; at most 40.
    """

    language: str
    errors: tuple[tuple[str, str], ...]
    frame: str
    frames: tuple[str, ...] = field(default=(), repr=False)


def stack_trace(text: str) -> StackTrace | None:
    r"""Parse the first stack trace in a text; None where there is none.

    >>> stack_trace("Traceback (most recent call last):\n"
    ...     '  File "/app/orders.py", line 12, in total\n    return 1 / 0\nZeroDivisionError: no division')
    StackTrace(language='python', errors=(('ZeroDivisionError', 'no division'),), frame='orders.total')
    """
    for sign, parse in _LANGUAGES:
        if sign.search(text):
            lines = text.splitlines()
            if len(lines) > MAX_LINES:
                lines = lines[: MAX_LINES // 2] + lines[-MAX_LINES // 2 :]
            found = parse(lines)
            if found and found.errors:
                return found
    return None


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


def _plain(name: str) -> str:
    """A function's name without what compilers and runtimes add."""
    return _DOTS.sub("", _GENERATED.sub("", name)).strip()


def _stem(path: str) -> str:
    """The file's name alone: no folders, no extension, no content hash of a bundler."""
    name = re.split(r"[/\\]", path.split("?", 1)[0])[-1]
    while True:
        shorter = _HASHED.sub("", _EXTENSION.sub("", name))
        if shorter == name:
            return "" if name.startswith("<") else name
        name = shorter


@dataclass(frozen=True)
class _Frame:
    function: str
    path: str = ""
    minified: bool = False  # another name in the next build

    @property
    def library(self) -> bool:
        return bool(_LIBRARY.search(self.path) or _LIBRARY_NAMES.search(self.function))


def _first_application(frames: list[_Frame], *, recursive: bool, with_file: bool) -> str:
    """The qualified function nearest to the error that is not a library's."""
    own = [frame for frame in frames if not frame.library] or frames
    if not own:
        return ""
    names = [_named(frame, with_file=with_file) for frame in own]
    if recursive:  # which of the functions overflowed is chance
        counts = Counter(names)
        most = max(counts.values())
        return min(name for name, count in counts.items() if 2 * count >= most)
    return "" if own[0].minified else next((name for name in names if name), "")


def _named(frame: _Frame, *, with_file: bool) -> str:
    if frame.minified:
        return ""
    function, stem = _plain(frame.function), _stem(frame.path)
    return ".".join(part for part in (stem if with_file else "", function) if part)


_RECURSIVE: Final = re.compile(
    r"RecursionError|StackOverflow|Maximum call stack|stack level too deep|stack overflow"
    r"|SystemStackError|too much recursion"
)


def _trace(
    language: str, errors: Iterable[tuple[str, str]], frames: list[_Frame], *, with_file: bool = True
) -> StackTrace:
    chain = tuple(dict.fromkeys(errors))
    chain = chain[: _CHAIN - 1] + chain[-1:] if len(chain) > _CHAIN else chain
    recursive = any(_RECURSIVE.search(f"{kind} {message}") for kind, message in chain)
    if recursive:  # how a runtime words it depends on where the stack ended
        chain = tuple((kind, "") for kind, _ in chain)
    named = dict.fromkeys(_named(frame, with_file=with_file) for frame in frames[:_FRAMES])
    first = _first_application(frames, recursive=recursive, with_file=with_file)
    return StackTrace(language, chain, first, tuple(name for name in named if name))


_TYPED: Final = re.compile(
    r"^((?:[A-Za-z_$][\w$]*[.:\\]{1,2})*[A-Za-z_$][\w$]*)(?: \[[\w.]+\])?(?:: ?(.*))?$", re.DOTALL
)


def _typed(line: str) -> tuple[str, str] | None:
    """Type and message of ``package.Type: message``."""
    found = _TYPED.match(line.strip())
    return (found[1], (found[2] or "").strip()) if found else None


_PY_FRAME: Final = re.compile(r'\s*File "([^"]*)", line \d+(?:, in (.+))?')
_PY_REPEATED: Final = re.compile(r"\s*\[Previous line repeated (\d{1,9}) more times?\]")
_PY_BAR: Final = re.compile(r"^[ |+\-]*[|+] ?(?:-+ \d+ -+)?")


def _python(lines: list[str]) -> StackTrace | None:
    chain: list[tuple[tuple[str, str], list[_Frame]]] = []  # in the order of the text
    frames: list[_Frame] = []
    reading = grouped = False
    plain = [_PY_BAR.sub("", line) if line.lstrip().startswith(("|", "+")) else line for line in lines]
    for number, line in enumerate(plain):
        if "Traceback (most recent call last)" in line:
            frames, reading = [], True
            grouped = grouped or "Exception Group" in line
        elif reading and (found := _PY_FRAME.match(line)):
            frames.append(_Frame(found[2] or "", found[1]))
        elif reading and frames and (repeated := _PY_REPEATED.match(line)):
            frames += frames[-1:] * min(int(repeated[1]), MAX_LINES)
        elif reading and line and not line[0].isspace():
            if error := _typed(_message_lines(line, plain[number + 1 :])):
                chain.append((error, frames[::-1]))
            reading = False
    if not grouped:  # the root cause is printed first; of a group, its members are printed after it
        chain.reverse()
    return _trace("python", [error for error, _ in chain], chain[-1][1]) if chain else None


def _message_lines(first: str, rest: list[str]) -> str:
    """The line of an error, with the lines of its message that follow, two at most."""
    more = []
    for line in rest[:2]:
        if not line.strip() or line.startswith((" ", "\t", "Traceback", "During", "The above", "|", "+")):
            break
        more.append(line)
    return " ".join([first, *more])


_JS_FRAME: Final = re.compile(
    r"^\s+at (?:async )?(?:(.+?) (?:\[as [^\]]+\] )?)?\(?((?:[a-z\-]+:)?[^()\s]*?|native"
    r"|<anonymous>)(?::\d+)?(?::(\d+))?\)?$"
)
_JS_GECKO: Final = re.compile(r"^([^@\s(]*)@((?:https?|file|webpack|resource):[^\s]*?)(?::\d+)?(?::(\d+))?$")
_JS_CAUSE: Final = re.compile(r"^\s*(?:\[cause\]|\[errors\]|Caused by):? ?\[?(.*)$")
_JS_ERROR: Final = re.compile(
    r"^(?:Uncaught (?:\(in promise\) )?)?((?:[A-Z][\w$]*\.)*[A-Z][\w$]*(?:Error|Exception"
    r"|Rejection)?)(?: \[(\w+)\])?(?:: ?(.*))?$"
)


def _javascript(lines: list[str]) -> StackTrace | None:
    errors: list[tuple[str, str]] = []
    frames: list[_Frame] = []
    above = ""
    fresh = True
    for line in (line.removesuffix(" {") for line in lines):
        found = _JS_FRAME.match(line) or _JS_GECKO.match(line)
        if found:
            if fresh:
                error = _js_error(above)
                if error:
                    errors.append(error)
                    frames = []
                fresh = False
            path, function = found[2] or "", found[1] or ""
            packed = int(found[3] or 0) >= _LONG_LINE or _HASHED.search(_EXTENSION.sub("", path))
            frames.append(_Frame(function, path, minified=bool(packed and _MINIFIED.match(_plain(function)))))
            continue
        cause = _JS_CAUSE.match(line)
        if cause and errors:
            above, fresh = cause[1], True
        elif line.strip() and (fresh or _JS_ERROR.match(line.strip())):
            fresh = True
            if not _JS_ERROR.match(above.strip()) or _JS_ERROR.match(line.strip()):
                above = line
    return _trace("javascript", errors, frames) if frames or errors else None


def _js_error(line: str) -> tuple[str, str] | None:
    found = _JS_ERROR.match(line.strip())
    if found:
        code = f" [{found[2]}]" if found[2] else ""
        return found[1] + code, (found[3] or "").strip(" {")
    return ("Error", line.strip()) if line.strip() else None


_JAVA_FRAME: Final = re.compile(r"^\s*at (?:[\w.\-@]+/(?:[\w.\-@]*/)?)?([\w.$<>\-]+)\(([^()]*)\)")
_JAVA_HEAD: Final = re.compile(
    r"^(?:Exception in thread \"[^\"]*\" |Caused by: |\s*Suppressed: |Wrapped by: |.*?\s)??"
    r"((?:[a-z_][\w]*\.)+[A-Z$][\w$]*|[A-Z]\w*(?:Exception|Error|Throwable))(?:: (.*))?$"
)


def _java(lines: list[str]) -> StackTrace | None:
    errors: list[tuple[str, str]] = []
    frames: list[_Frame] = []
    head = ""
    for line in lines:
        found = _JAVA_FRAME.match(line)
        if found:
            if head:
                _java_error(head, errors, frames)
                head = ""
            if not frames or frames[-1] is not None:
                frames.append(_Frame(found[1]))
        elif line.startswith("Caused by: ") or (not errors and not head and _JAVA_HEAD.match(line)):
            if head:
                _java_error(head, errors, frames)
            head = line
        elif line.lstrip().startswith("Suppressed: "):
            break
    if head:
        _java_error(head, errors, frames)
    return _trace("java", errors, frames, with_file=False)


def _java_error(head: str, errors: list[tuple[str, str]], frames: list[_Frame]) -> None:
    found = _JAVA_HEAD.match(head)
    if found:
        errors.append((_plain(found[1]), (found[2] or "").strip()))
        frames.clear()


_NET_FRAME: Final = re.compile(r"^\s+at ([^()]+?)\(.*?\)(?: in (.*?):line \d+)?\s*$")
_NET_HEAD: Final = re.compile(
    r"^(?:Unhandled exception\.? ?"
    r"|\s*---> (?:\(Inner Exception #\d+\) )?)?((?:[A-Z]\w*\.)*[A-Z]\w*(?:Exception"
    r"|Error))(?: \(0x[0-9A-F]+\))?(?:: (.*))?$"
)


def _dotnet(lines: list[str]) -> StackTrace | None:
    errors: list[tuple[str, str]] = []
    root: list[_Frame] = []
    done = False
    for line in lines:
        for part in line.split(" ---> ") if not line.lstrip().startswith("--->") else [line]:
            found = _NET_HEAD.match(part.strip() if part != line else part)
            if found and not done:
                errors.append((found[1], (found[2] or "").strip()))
        frame = _NET_FRAME.match(line)
        if frame and not done:
            root.append(_Frame(frame[1]))
        elif "--- End of inner exception" in line:
            done = True  # the innermost is printed first
    return _trace("dotnet", errors, root, with_file=False)


_GO_PANIC: Final = re.compile(r"^(?:panic|fatal error): (.*?)(?: \[recovered\].*)?$")
_GO_FRAME: Final = re.compile(r"^((?:[\w.\-]+/)*[\w\-]+(?:\.[\w.()*\[\]\-{}]+)+)\(.*\)$")


def _go(lines: list[str]) -> StackTrace | None:
    errors: list[tuple[str, str]] = []
    frames: list[_Frame] = []
    after_panic = False
    routines = 0
    for number, line in enumerate(lines):
        if found := _GO_PANIC.match(line.strip()):
            message = found[1]
            kind = "panic" if line.lstrip().startswith("panic") else "fatal error"
            if message.startswith("runtime error: "):
                kind, message = "runtime error", message.removeprefix("runtime error: ")
            errors.append((kind, message))
        elif line.startswith("goroutine "):
            routines += 1
            if routines > 1:
                break
        elif line.startswith(("panic(", "runtime.gopanic", "runtime.panic", "runtime.sigpanic")):
            frames, after_panic = [], True
        elif found := _GO_FRAME.match(line.removeprefix("created by ")):
            path = lines[number + 1].strip() if number + 1 < len(lines) else ""
            frames.append(_Frame(found[1].rsplit("/", 1)[-1], path))
    del after_panic
    return _trace("go", errors or [("panic", "")] if frames else errors, frames, with_file=False)


_RUBY_FRAME: Final = re.compile(
    r"^\s*(?:from |\d+: from )?(\S+?\.(?:rb|erb|rake|ru)|<internal:[^>]+>"
    r"|\S+):\d+:in [`'](.+?)'(?:: (.*?)(?: \(([\w:]+)\))?)?$"
)
_RUBY_HEAD: Final = re.compile(
    r"^((?:[A-Z]\w*::)*[A-Z]\w*(?:Error|Exception|NotFound|Invalid|Timeout|Failed)?) ?(?:\((.*)\)"
    r"|: ?(.*))?:?$"
)


def _ruby(lines: list[str]) -> StackTrace | None:
    errors: list[tuple[str, str]] = []
    frames: list[_Frame] = []
    above = ""
    for line in lines:
        found = _RUBY_FRAME.match(line)
        if found:
            if found[4]:
                errors.append((found[4], found[3] or ""))
                frames = []
            elif not frames and not errors and (head := _RUBY_HEAD.match(above)):
                errors.append((head[1], (head[2] or head[3] or "").strip()))
            function = re.sub(r"^.*[#.](?=\w)", "", _plain(found[2]))  # Ruby 3.4 adds the class
            frames.append(_Frame(function, found[1]))
        elif line.strip():
            above = line.strip()
    return _trace("ruby", errors, frames)


_PHP_HEAD: Final = re.compile(
    r"(?:PHP )?(?:Fatal|Parse|Recoverable fatal)? ?(?:error: +)?(?:Uncaught )?((?:\w+\\)*\w*(?:Error"
    r"|Exception)\w*):? (.*?) in (\S+?)(?::\d+| on line \d+)"
)
_PHP_FRAME: Final = re.compile(r"^#\d+ (?:(\S.*?)\(\d+\)|(\[internal function\]|\{main\})):? ?(.*)$")


def _php(lines: list[str]) -> StackTrace | None:
    errors: list[tuple[str, str]] = []
    frames: list[_Frame] = []
    for line in (line.removeprefix("Next ") for line in lines):
        if head := _PHP_HEAD.search(line):
            errors.append((head[1], head[2]))
        elif (found := _PHP_FRAME.match(line)) and len(errors) < 2:  # noqa: PLR2004 - the first is the root cause
            function = re.sub(r"\(.*$", "", found[3]).replace("->", ".").replace("::", ".")
            frames.append(_Frame(function, found[1] or found[2] or ""))
    # PHP prints the root cause first
    return _trace("php", errors[::-1], [frame for frame in frames if frame.function], with_file=False)


_RUST_PANIC: Final = re.compile(
    r"^thread '[^']*' (?:\(\d+\) )?panicked at (?:'(.*)', )?(.*?)(?::\d+)?(?::\d+)?:?$"
)
_RUST_FRAME: Final = re.compile(r"^\s*\d+: +(?:0x[0-9a-f]+ - )?(\S.*?)(?:::h[0-9a-f]{16})?$")


def _rust(lines: list[str]) -> StackTrace | None:
    errors: list[tuple[str, str]] = []
    frames: list[_Frame] = []
    source = ""
    for number, line in enumerate(lines):
        if found := _RUST_PANIC.match(line.strip()):
            message = (
                found[1] if found[1] is not None else (lines[number + 1] if number + 1 < len(lines) else "")
            )
            errors.append(("panic", message.strip()))
            source = found[2]
        elif errors and (found := _RUST_FRAME.match(line)):
            path = lines[number + 1].strip().removeprefix("at ") if number + 1 < len(lines) else ""
            frames.append(_Frame(found[1], path))
    frames = frames or ([_Frame("", source)] if source else [])
    trace = _trace("rust", errors, frames, with_file=False)
    return trace if trace.frame or not source else StackTrace("rust", trace.errors, _stem(source))


_Parser = Callable[[list[str]], StackTrace | None]
_LANGUAGES: Final[tuple[tuple[re.Pattern[str], _Parser], ...]] = (
    (re.compile(r"Traceback \(most recent call last\)"), _python),
    (re.compile(r"^(?:panic: |fatal error: )|^goroutine \d+ \[", re.MULTILINE), _go),
    (re.compile(r"^thread '[^']*' (?:\(\d+\) )?panicked at ", re.MULTILINE), _rust),
    (re.compile(r"^#0 .*(?:\(\d+\)|\{main\}|\[internal function\])", re.MULTILINE), _php),
    (re.compile(r":\d+:in [`']"), _ruby),
    (
        re.compile(
            r"^\s+at [\w.<>`+\[\],$ ]+\(.*\) in .*:line \d+|^\s*--- End of |^\s+at (?:System|Microsoft)\.",
            re.MULTILINE,
        ),
        _dotnet,
    ),
    (
        re.compile(
            r"^\s+at [\w.$/<>@\-]+\((?:[\w$\-]+\.(?:java|kt|scala|groovy|clj)(?::\d+)?|Native Method"
            r"|Unknown Source|<generated>)",
            re.MULTILINE,
        ),
        _java,
    ),
    (
        re.compile(
            r"^\s+at .*:\d+:\d+\)?$|^\s+at .*\((?:<anonymous>|native)\)$|^[^@\s]*@(?:https?|file"
            r"|webpack):\S+:\d+",
            re.MULTILINE,
        ),
        _javascript,
    ),
    (re.compile(r"^\s+at (?:[A-Z]\w*\.)+[\w<>`]+\(", re.MULTILINE), _dotnet),
)
