r"""Stack traces of eight languages and reports of native programs: exceptions of a chain, and its frame.

The frame is the first of the application in the root cause.

Line numbers, paths, argument values, addresses and generated names differ between occurrences of a failure,
so none of them is kept. Only the text is read; nothing is known of the program.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import filterfalse
from typing import Final

from toolkit.signatures.trace_frames import (
    MOST_FRAMES,
    Frame,
    StackTrace,
    cached,
    file_stem,
    frequent,
    plain_name,
    trace_of,
)

_START: Final = 2_000
"""Characters at the start of a text in which the language is usually seen already."""
MAX_LINES: Final = 4_000  # a deeper trace is recursion: its ends are read


def stack_trace(text: str) -> StackTrace | None:
    r"""Parse the first stack trace in a text; None where there is none.

    >>> found = stack_trace("Traceback (most recent call last):\n"
    ...     '  File "/app/orders.py", line 12, in total\n    return 1 / 0\nZeroDivisionError: no division')
    >>> found.errors, found.frame
    ((('ZeroDivisionError', 'no division'),), 'orders.total')
    """
    start = text[:_START]
    for part in (start, text) if len(text) > _START else (text,):
        for word, sign, parse in _SIGNS:
            if word in part and sign.search(part):
                found = parse(_lines(text))
                if found and found.errors:
                    return found
    return None


def _lines(text: str) -> list[str]:
    """Return the lines of a trace that are read."""
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        return lines[: MAX_LINES // 2] + lines[-MAX_LINES // 2 :]
    return lines


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
    chain: list[tuple[tuple[str, str], list[Frame]]] = []  # in the order of the text
    frames: list[Frame] = []
    reading = grouped = False
    plain = [_PY_BAR.sub("", line) if line.lstrip().startswith(("|", "+")) else line for line in lines]
    for number, line in enumerate(plain, 1):
        if "Traceback (most recent call last)" in line:
            frames, reading = [], True
            grouped = grouped or "Exception Group" in line
        elif reading and (found := _PY_FRAME.match(line)):
            frames.append(Frame(found[2] or "", found[1]))
        elif reading and frames and (repeated := _PY_REPEATED.match(line)):
            frames += frames[-1:] * min(int(repeated[1]), MAX_LINES)
        elif reading and line and not line[0].isspace():
            if error := _typed(_message_lines(line, plain[number : number + 2])):
                chain.append((error, frames[::-1]))
            reading = False
    if not grouped:  # the root cause is printed first; of a group, its members are printed after it
        chain.reverse()
    return trace_of("python", [error for error, _ in chain], chain[-1][1]) if chain else None


def _message_lines(first: str, following: list[str]) -> str:
    """The line of an error, with those of the lines that follow that are of its message."""
    more = []
    for line in following:
        if not line.strip(" -") or line.startswith((" ", "\t", "Traceback", "During", "The above", "|", "+")):
            break
        more.append(line)
    return " ".join([first, *more])


_JS_FRAME: Final = re.compile(
    r"^\s+at (?:async )?(?:(.+?) (?:\[as [^\]]+\] )?)?\(?((?:[a-z\-]+:)?[^()\s]*?|native"
    r"|<anonymous>)(?::\d+)?(?::(\d+))?\)?$"
)
# what most frames look like, with the groups of the pattern above, and found several times as fast
_JS_USUAL: Final = re.compile(
    r"^\s+at (?:async )?(?!async )([\w$.<>]+) \((?![a-z\-]+:\d+:\d+\)$)([^()\s]*):\d+:(\d+)\)$"
)
_JS_GECKO: Final = re.compile(r"^([^@\s(]*)@((?:https?|file|webpack|resource):[^\s]*?)(?::\d+)?(?::(\d+))?$")
_JS_CAUSE: Final = re.compile(r"^\s*(?:\[cause\]|\[errors\]|Caused by):? ?\[?(.*)$")
_JS_ERROR: Final = re.compile(
    r"^(?:error: )?(?:Uncaught (?:\(in promise\) )?)?((?:[A-Z][\w$]*\.)*[A-Z][\w$]*(?:Error|Exception"
    r"|Rejection)?)(?: \[(\w+)\])?(?:: ?(.*))?$"
)


_JS_CODE: Final = re.compile(r"^\s+code: '([\w\-]{1,60})',?$")
_MOST_JS_MESSAGE: Final = 60
"""Lines of a message. Validators print a list of problems in it, as JSON."""


def _javascript(lines: list[str]) -> StackTrace | None:
    """Read a JavaScript trace: a line with the error, more lines of its message, then frames.

    After the frames, Node prints the properties of the error. For example, `code: 'P2002'` of a database
    client belongs to the error, because the messages of different codes can be equal.
    """
    errors: list[tuple[str, str]] = []
    frames: list[Frame] = []
    head = ""
    message_lines: list[str] = []
    is_new_error = True
    for whole_line in lines:
        line = whole_line.removesuffix(" {")  # before the properties of an error
        frame = _js_frame(line)
        if frame is not None:
            if is_new_error:
                error = _js_error(head, message_lines)
                if error:
                    errors.append(error)
                    frames = []
                is_new_error = False
            frames.append(frame)
            continue
        cause = _JS_CAUSE.match(line)
        is_error_line = bool(_JS_ERROR.match(line.strip()))
        if cause and errors:
            head, message_lines, is_new_error = cause[1], [], True
        elif whole_line.strip() and (is_new_error or is_error_line):
            is_new_error = True
            if is_error_line or not _JS_ERROR.match(head.strip()):
                head, message_lines = line, []
            elif len(message_lines) < _MOST_JS_MESSAGE:
                message_lines.append(whole_line)
        elif errors and (code := _JS_CODE.match(line)):
            kind, message = errors[-1]
            if f"[{code[1]}]" not in kind:
                errors[-1] = (f"{kind} [{code[1]}]", message)
    return trace_of("javascript", errors, frames) if frames or errors else None


@cached
def _js_frame(line: str) -> Frame | None:
    found = _JS_USUAL.match(line) or _JS_FRAME.match(line) or ("@" in line and _JS_GECKO.match(line))
    if not found:
        return None
    # no more digits than Python makes a number from
    return Frame(found[1] or "", found[2] or "", int((found[3] or "0")[:99]))


def _js_error(line: str, message_lines: list[str]) -> tuple[str, str] | None:
    """Return the type and message of an error. Later lines belong to the message if the first has little."""
    found = _JS_ERROR.match(line.strip())
    if found is None:
        return ("Error", line.strip()) if line.strip() else None
    code = f" [{found[2]}]" if found[2] else ""
    message = (found[3] or "").strip(" {")
    if message in ("", "["):
        message = "\n".join([message, *message_lines]).strip()
    return found[1] + code, message


_JAVA_FRAME: Final = re.compile(r"^\s*at (?:[\w.\-@]+/(?:[\w.\-@]*/)?)?([\w.$<>\-]+)\(([^()]*)\)")
_JAVA_HEAD: Final = re.compile(
    r"^(?:Exception in thread \"[^\"]*\" |Caused by: |\s*Suppressed: |Wrapped by: |.*?\s)??"
    r"((?:[a-z_][\w]*\.)+[A-Z$][\w$]*|[A-Z]\w*(?:Exception|Error|Throwable))(?:: (.*))?$"
)


_JAVA_OMITTED: Final = re.compile(r"^\s*\.\.\. ([1-9]\d{0,5}) (?:more|common frames omitted)")


def _java(lines: list[str]) -> StackTrace | None:
    """Read a Java trace. A cause leaves out the frames that it shares with the exception above it.

    For example, after `Caused by: java.io.IOException`, `... 2 more` stands for the last two frames of the
    exception that this one caused.
    """
    errors: list[tuple[str, str]] = []
    frames: list[Frame] = []
    frames_above: list[Frame] = []
    head = ""
    for line in lines:
        frame = _java_frame(line)
        if frame is not None:
            if head:
                frames, frames_above = [], frames
                _java_error(head, errors)
                head = ""
            frames.append(frame)
        elif omitted := _JAVA_OMITTED.match(line):
            frames += frames_above[-int(omitted[1]) :]
        elif line.startswith("Caused by: ") or (not errors and not head and _JAVA_HEAD.match(line)):
            if head:
                frames, frames_above = [], frames
                _java_error(head, errors)
            head = line
        elif line.lstrip().startswith("Suppressed: "):
            break
    if head:
        frames = []
        _java_error(head, errors)
    return trace_of("java", errors, frames)


@cached
def _java_frame(line: str) -> Frame | None:
    found = _JAVA_FRAME.match(line)
    return Frame(found[1]) if found else None


def _java_error(head: str, errors: list[tuple[str, str]]) -> None:
    found = _JAVA_HEAD.match(head)
    if found:
        errors.append((plain_name(found[1]), (found[2] or "").strip()))


_NET_FRAME: Final = re.compile(r"^\s+at ([^()]+)\((?:.*\)|(?>.*?\) in ).*:line \d+)\s*$")
_NET_HEAD: Final = re.compile(
    r"^(?:Unhandled exception\.? ?"
    r"|\s*---> (?:\(Inner Exception #\d+\) )?)?((?:[A-Z]\w*\.)*[A-Z]\w*(?:Exception"
    r"|Error))(?: \(0x[0-9A-F]+\))?(?:: (.*))?$"
)


def _dotnet(lines: list[str]) -> StackTrace | None:
    errors: list[tuple[str, str]] = []
    root: list[Frame] = []
    for line in lines:
        if "Exception" in line or "Error" in line:
            for part in line.split(" ---> ") if not line.lstrip().startswith("--->") else [line]:
                found = _NET_HEAD.match(part.strip() if part != line else part)
                if found:
                    errors.append((found[1], (found[2] or "").strip()))
        if frame := _NET_FRAME.match(line):
            root.append(Frame(frame[1]))
        elif "--- End of inner exception" in line:
            break  # the innermost is printed first
    return trace_of("dotnet", errors, root)


_GO_PANIC: Final = re.compile(r"^(?:panic|fatal error): (.*?)(?: \[recovered\].*)?$")
_GO_FRAME: Final = re.compile(r"^((?:[\w.\-]+/)*[\w\-]+\.[\w.()*\[\]\-{}]+)\(.*\)$")


def _go(lines: list[str]) -> StackTrace | None:
    errors: list[tuple[str, str]] = []
    frames: list[Frame] = []
    routines = 0
    for number, line in enumerate(lines):
        if ": " in line and (found := _GO_PANIC.match(line.strip())):
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
            frames = []
        elif line.endswith(")") and (found := _GO_FRAME.match(line.removeprefix("created by "))):
            path = lines[number + 1].strip() if number + 1 < len(lines) else ""
            frames.append(Frame(found[1].rsplit("/", 1)[-1], path))
    return trace_of("go", errors or [("panic", "")] if frames else errors, frames)


_RUBY_FRAME: Final = re.compile(
    r"^\s*(?:from |\d+: from )?(\S+?\.(?:rb|erb|rake|ru)|<internal:[^>]+>"
    r"|\S+):\d+:in [`'](.+?)'(?:: (.*?)(?: \(([\w:]+)\))?)?$"
)
_RUBY_HEAD: Final = re.compile(
    r"^((?:[A-Z]\w*::)*[A-Z]\w*(?:Error|Exception|NotFound|Invalid|Timeout|Failed)?) ?(?:\((.*)\)"
    r"|: ?(.*))?:?$"
)
_RUBY_CLASS: Final = re.compile(r"^.*[#.](?=\w)")  # Ruby 3.4 adds it


def _ruby(lines: list[str]) -> StackTrace | None:
    errors: list[tuple[str, str]] = []
    frames: list[Frame] = []
    above = ""
    for line in lines:
        found = _RUBY_FRAME.match(line)
        if found:
            if found[4]:
                errors.append((found[4], found[3] or ""))
                frames = []
            elif not frames and not errors and (head := _RUBY_HEAD.match(above)):
                errors.append((head[1], (head[2] or head[3] or "").strip()))
            frames.append(Frame(_RUBY_CLASS.sub("", plain_name(found[2])), found[1]))
        elif line.strip():
            above = line.strip()
    return trace_of("ruby", errors, frames)


_PHP_HEAD: Final = re.compile(
    r"(?:PHP )?(?:Fatal|Parse|Recoverable fatal)? ?(?:error: +)?(?:Uncaught )?((?:\w+\\)*\w*(?:Error"
    r"|Exception)\w*):? (.*?) in (\S+?)(?::\d+| on line \d+)"
)
_PHP_FRAME: Final = re.compile(r"^#\d+ (?:(\S.*?)\(\d+\)|(\[internal function\]|\{main\})):? ?(.*)$")


def _php(lines: list[str]) -> StackTrace | None:
    errors: list[tuple[str, str]] = []
    frames: list[Frame] = []
    for line in (line.removeprefix("Next ") for line in lines):
        if " in " in line and ("Error" in line or "Exception" in line) and (head := _PHP_HEAD.search(line)):
            errors.append((head[1], head[2]))
        elif (found := _PHP_FRAME.match(line)) and len(errors) < 2:  # noqa: PLR2004 - the first is the root cause
            function = found[3].partition("(")[0].replace("->", ".").replace("::", ".")
            frames.append(Frame(function, found[1] or found[2] or ""))
    # PHP prints the root cause first
    return trace_of("php", errors[::-1], [frame for frame in frames if frame.function])


_RUST_PANIC: Final = re.compile(
    r"^thread '[^']*' (?:\(\d+\) )?panicked at (?:'(.*)', )?(.*?)(?::\d+)?(?::\d+)?:?$"
)
_RUST_FRAME: Final = re.compile(r"^\s*+\d+: +(?:0x[0-9a-f]+ - )?(\S.*?)(?:::h[0-9a-f]{16})?$")


def _rust(lines: list[str]) -> StackTrace | None:
    errors: list[tuple[str, str]] = []
    frames: list[Frame] = []
    source = ""
    for number, line in enumerate(lines):
        if "panicked at " in line and (found := _RUST_PANIC.match(line.strip())):
            message = (
                found[1] if found[1] is not None else (lines[number + 1] if number + 1 < len(lines) else "")
            )
            errors.append(("panic", message.strip()))
            source = found[2]
        elif errors and (found := _RUST_FRAME.match(line)):
            path = lines[number + 1].strip().removeprefix("at ") if number + 1 < len(lines) else ""
            frames.append(Frame(found[1], path))
    frames = frames or ([Frame("", source)] if source else [])
    trace = trace_of("rust", errors, frames)
    return trace if trace.frame or not source else StackTrace("rust", trace.errors, file_stem(source), ())


_SANITIZER: Final = re.compile(
    r"(?:ERROR|WARNING): (Address|Leak|Memory|Thread|UndefinedBehavior|HWAddress)Sanitizer: (.*)$"
)
_FUZZER: Final = re.compile(r"==\d+== ?ERROR: libFuzzer: ([a-z\- ]+)")
_UNDEFINED: Final = re.compile(r"^\S+:\d+(?::\d+)?: runtime error: (.*)$")
_LEAK: Final = re.compile(r"^(?:Direct|Indirect) leak of ")
_NATIVE_FRAME: Final = re.compile(r"^ *#(\d+) +0x[0-9a-f]+ +(?:in +)?(.*)$")
_VALGRIND: Final = re.compile(r"^==\d+== {0,3}(\S.*)$")
_VALGRIND_FRAME: Final = re.compile(r"^==\d+== {4,}(?:at|by) 0x[0-9A-Fa-f]+: (.+?)(?: \(([^()]*)\))?$")
_DETAILS: Final = re.compile(
    r" (?:on|in|of|at|for|by|\(pc|attempting|parameters?|requested)\b.*| \(.*|: .*|[0-9]+$", re.DOTALL
)
_VALGRIND_ERROR: Final = re.compile(
    r"(?:Invalid|Conditional|Use of|Source and|Mismatched|Syscall|Process terminating|Argument)"
)
_VALUES: Final = re.compile(r"'[^']*'|0x[0-9a-f]+|[-+]?\d[\d.e+\-]*")
_CLONES: Final = re.compile(r"(?:\.(?:isra|part|constprop|cold|llvm|lto_priv)(?:\.\d+)?)+$")
_NATIVE_PATH: Final = re.compile(r" (\(?/[^ ]*|\(?[\w.\-]+\+0x[0-9a-f]+\)|[\w./\-]+:\d+(?::\d+)?)(?: .*)?$")
_NATIVE_RUNTIME: Final = re.compile(
    r"^(?:__(?:asan|interceptor|sanitizer|ubsan|msan|tsan|lsan|hwasan|libc|GI|memcpy|memset|strlen|str|mem"
    r"|assert|isoc99|vfprintf|overflow|fortify)\w*|_?(?:mem|str|wcs|w?mem)[a-z]*(?:_\w+)?|[vfsnw]*printf(?:_\w+)?"
    r"|[vfs]*scanf|_IO_\w+|mem(?:cpy|move|set|cmp)\w*|malloc|calloc|realloc\w*|reallocarray|free|cfree"
    r"|posix_memalign|abort|raise|gsignal|exit|_exit|kill|_start|__start|atoi|atol|strto\w+|f?(?:read|write|gets"
    r"|puts|open|close)(?:64)?|operator (?:new|delete).*|fuzzer::.*|LLVMFuzzer\w+|start_thread|clone3?"
    r"|std::.*|__gnu_cxx::.*|__cxa\w*|_Unwind\w*|ExecuteFilesOnyByOne|main|rust_\w+|<null>|\?\?\?)$"
)
_RUNTIME_PATH: Final = re.compile(
    r"/compiler-rt/|sanitizer_common|/sysdeps/|/glibc|/libc[.\-]|libc\.so|ld-linux|libasan|vg_replace|vgpreload"
    r"|/include/c\+\+/|libstdc\+\+|libpthread"
)


def _native(lines: list[str]) -> StackTrace | None:
    """The first error in a report of a sanitizer, valgrind or libFuzzer about a native program."""
    kind = ""
    frames: list[Frame] = []  # the one nearest to the error first
    for line in lines:
        found = _NATIVE_FRAME.match(line)
        by_valgrind = None if found else _VALGRIND_FRAME.match(line)
        if by_valgrind and kind:
            frames.append(Frame(_native_function(by_valgrind[1]), by_valgrind[2] or ""))
        elif found and kind:
            if frames and found[1] == "0":
                break  # another stack: where the memory was allocated
            path = _NATIVE_PATH.search(found[2])
            function = found[2][: path.start()] if path else found[2]
            frames.append(Frame(_native_function(function), path[1] if path else ""))
        elif frames:
            if not line.strip() or not line.startswith(("    ", "==")) or _VALGRIND.match(line):
                break
        elif (named := _native_error(line)) is not None:
            kind = named
    if not kind or not frames:
        return None
    own = filterfalse(_of_native_runtime, frames)
    if kind == "stack-overflow":
        function = frequent(Counter(frame.function for frame in list(own) or frames))
    else:
        function = next(own, frames[0]).function
    return StackTrace("native", ((kind, ""),), function, tuple(frames[:MOST_FRAMES]))


def _native_error(line: str) -> str | None:
    """The kind of error that a line names, without values."""
    if head := _SANITIZER.search(line):
        leaks = head[1] == "Leak" or head[2].startswith("detected memory leaks")
        return "memory leak" if leaks else _DETAILS.sub("", head[2]).strip()
    if head := _FUZZER.search(line):
        return head[1].strip().split(" after")[0]
    if head := _UNDEFINED.match(line):
        return _VALUES.sub("<value>", head[1]).split(":")[0].split(" <value>")[0]
    if _LEAK.match(line):
        return "memory leak"
    if (head := _VALGRIND.match(line)) and not head[1].endswith(("detector", "et al.", "info")):
        if _VALGRIND_ERROR.match(head[1]):
            return _VALUES.sub("", re.sub(r" of size \d+", "", head[1])).strip()
        if " lost in loss record " in head[1]:
            return "memory leak"
    return None


@cached
def _native_function(function: str) -> str:
    """A function's name without arguments and clones."""
    name = function.strip()
    depth, plain = 0, []
    for sign in name if not name.startswith("operator") else "":
        depth += (sign in "(<") - (sign in ")>")
        if depth == 0 and sign not in ")>":
            plain.append(sign)
    return _CLONES.sub("", "".join(plain).strip() or name).removesuffix(" const").split(" ")[-1]


def _of_native_runtime(frame: Frame) -> bool:
    name = frame.function
    return bool(
        _NATIVE_RUNTIME.match(name) or _RUNTIME_PATH.search(frame.path) or name.startswith(("0x", "("))
    )


# empty lines may precede it; they are not read here, which would take the square of their number
_AT: Final = r"^[^\S\n]*\sat "
# a text without the words is of another language, which is found much faster than by the pattern
_SIGNS: Final = [
    (word, re.compile(pattern, re.MULTILINE), parse)
    for words, pattern, parse in (
        (["Sanitizer"], r"\b(?:Address|Leak|Memory|Thread|UndefinedBehavior|HWAddress)Sanitizer\b", _native),
        (["libFuzzer"], r"==\d+== ?ERROR: libFuzzer", _native),
        ([": runtime error: "], r"^\S+:\d+:\d+: runtime error: ", _native),
        (["at 0x"], r"^==\d+== +at 0x[0-9A-Fa-f]+: ", _native),
        (["Traceback (most recent call last)"], r"Traceback \(most recent call last\)", _python),
        (["panic: ", "fatal error: ", "goroutine "], r"^(?:panic: |fatal error: )|^goroutine \d+ \[", _go),
        (["panicked at "], r"^thread '[^']*' (?:\(\d+\) )?panicked at ", _rust),
        (["#0 "], r"^#0 .*(?:\(\d+\)|\{main\}|\[internal function\])", _php),
        ([":in `", ":in '"], r":\d+:in [`']", _ruby),
        ([":line "], _AT + r"[\w.<>`+\[\],$ ]+\((?>.*?\) in ).*:line \d+", _dotnet),
        (["--- End of "], r"^[^\S\n]*--- End of ", _dotnet),
        (["at System.", "at Microsoft."], _AT + r"(?:System|Microsoft)\.", _dotnet),
        (
            [".java", ".kt", ".scala", ".groovy", ".clj"],
            _AT + r"[\w.$/<>@\-]+\([\w$\-]+\.(?:java|kt|scala|groovy|clj)",
            _java,
        ),
        (
            ["(Native Method", "(Unknown Source", "(<generated>"],
            _AT + r"[\w.$/<>@\-]+\((?:Native Method|Unknown Source|<generated>)",
            _java,
        ),
        (["at "], _AT + r".*(?::\d+:\d+\)?|\((?:<anonymous>|native)\))$", _javascript),
        (["@http", "@file:", "@webpack:"], r"^[^@\s]*@(?:https?|file|webpack):\S+:\d+", _javascript),
        (["at "], _AT + r"(?:[A-Z]\w*\.)+[\w<>`]+\(", _dotnet),
    )
    for word in words
]
