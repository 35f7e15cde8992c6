r"""Read stack traces of eight languages and reports of native programs.

A trace is reduced to the chain of exceptions and to one frame, the first of the application in the root
cause (see `trace_frames`). Line numbers, paths, argument values, addresses and generated names differ between
occurrences of a failure, so none of them is kept.

`_SIGNS` at the end of this module tells the language of a trace, and one parser per language reads it. All
parsers work line by line: a line is a frame, the beginning of an error, a part of a message, or is skipped.
For example, in the Java trace

    java.lang.IllegalStateException: no total        error 1
        at com.acme.OrderService.total(Orders.java:7)   frame of error 1
    Caused by: java.io.IOException: closed           error 2, the root cause
        at com.acme.Store.read(Store.java:31)           frame of error 2
        ... 1 more                                      frames that error 2 shares with error 1

the errors are both exceptions, and the frame is `com.acme.Store.read`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import filterfalse, takewhile
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
"""Characters at the start of a trace, which usually show the language."""
MAX_LINES: Final = 4_000
"""Lines of a trace that are read. A longer trace is a recursion: the start and the end tell enough."""


def stack_trace(text: str) -> StackTrace | None:
    r"""Return the first stack trace of a message, or None if the message has no trace.

    >>> found = stack_trace("Traceback (most recent call last):\n"
    ...     '  File "/app/orders.py", line 12, in total\n    return 1 / 0\nZeroDivisionError: no division')
    >>> found.errors, found.frame
    ((('ZeroDivisionError', 'no division'),), 'orders.total')
    """
    trace = _find_trace(text[:_START], text)
    if trace is None and len(text) > _START:
        trace = _find_trace(text, text)
    return trace


def _find_trace(part: str, text: str) -> StackTrace | None:
    """Return the trace of the first language whose sign is in a part of a message."""
    for word, sign, parse in _SIGNS:
        if word in part and sign.search(part):
            trace = parse(_lines(text))
            if trace is not None and trace.errors:
                return trace
    return None


def _lines(text: str) -> list[str]:
    """Return the lines of a trace that are read."""
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        return lines[: MAX_LINES // 2] + lines[-MAX_LINES // 2 :]
    return lines


def _line_after(lines: list[str], number: int) -> str:
    """Return the next line without blanks around it; "" after the last line."""
    if number + 1 == len(lines):
        return ""
    return lines[number + 1].strip()


_TYPED: Final = re.compile(
    r"^((?:[A-Za-z_$][\w$]*[.:\\]{1,2})*[A-Za-z_$][\w$]*)(?: \[[\w.]+\])?(?:: ?(.*))?$",
    re.DOTALL,
)


def _typed(line: str) -> tuple[str, str] | None:
    """Return the type and message of ``package.Type: message``."""
    found = _TYPED.match(line.strip())
    if found is None:
        return None
    return found[1], (found[2] or "").strip()


_PY_FRAME: Final = re.compile(r'\s*File "([^"]*)", line \d+(?:, in (.+))?')
_PY_REPEATED: Final = re.compile(r"\s*\[Previous line repeated (\d{1,9}) more times?\]")
_PY_BAR: Final = re.compile(r"^[ |+\-]*[|+] ?(?:-+ \d+ -+)?")


def _python(lines: list[str]) -> StackTrace | None:
    """Read a Python trace: frames, then the error. Exceptions of a chain and of a group follow one another.

    Members of a group are printed after it and between bars, for example `  | ValueError: no price`.
    """
    chain: list[
        tuple[tuple[str, str], list[Frame]]
    ] = []  # each error with the frames, in printed order
    frames: list[Frame] = []
    is_in_trace = is_group = False
    plain_lines = [_without_bar(line) for line in lines]
    for number, line in enumerate(plain_lines):
        if "Traceback (most recent call last)" in line:
            frames, is_in_trace = [], True
            is_group = is_group or "Exception Group" in line
            continue
        if not is_in_trace:
            continue
        found = _PY_FRAME.match(line)
        if found:
            frames.append(Frame(found[2] or "", found[1]))
            continue
        repeated = _PY_REPEATED.match(line)
        if frames and repeated:
            times = min(int(repeated[1]), MAX_LINES)
            frames += frames[-1:] * times
        elif line and not line[0].isspace():
            error = _typed(_message_lines(line, plain_lines[number + 1 : number + 3]))
            if error is not None:
                chain.append((error, frames[::-1]))
            is_in_trace = False
    if not chain:
        return None
    if (
        not is_group
    ):  # the root cause is printed first, but the members of a group are printed last
        chain.reverse()
    _, frames_of_cause = chain[-1]
    return trace_of("python", [error for error, _ in chain], frames_of_cause)


def _without_bar(line: str) -> str:
    """Return a line of a Python trace without the bars that mark the members of a group."""
    if line.lstrip().startswith(("|", "+")):
        return _PY_BAR.sub("", line)
    return line


_AFTER_MESSAGE: Final = (" ", "\t", "Traceback", "During", "The above", "|", "+")
"""Beginnings of lines that do not belong to the message of a Python exception."""


def _message_lines(first: str, following: list[str]) -> str:
    """Return the line of an error with the following lines of the message."""
    more = takewhile(
        lambda line: line.strip(" -") and not line.startswith(_AFTER_MESSAGE), following
    )
    return " ".join([first, *more])


_JS_FRAME: Final = re.compile(
    r"^\s+at (?:async )?(?:(.+?) (?:\[as [^\]]+\] )?)?\(?((?:[a-z\-]+:)?[^()\s]*?|native"
    r"|<anonymous>)(?::\d+)?(?::(\d+))?\)?$"
)
# the form of most frames, with the groups of the pattern above; this pattern is several times as fast
_JS_USUAL: Final = re.compile(
    r"^\s+at (?:async )?(?!async )([\w$.<>]+) \((?![a-z\-]+:\d+:\d+\)$)([^()\s]*):\d+:(\d+)\)$"
)
_JS_GECKO: Final = re.compile(
    r"^([^@\s(]*)@((?:https?|file|webpack|resource):[^\s]*?)(?::\d+)?(?::(\d+))?$"
)
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
    reader = _JavaScriptReader()
    for line in lines:
        frame = _js_frame(line.removesuffix(" {"))  # before the properties of an error
        if frame is None:
            reader.read_other_line(line)
        else:
            reader.read_frame(frame)
    if not reader.frames and not reader.errors:
        return None
    return trace_of("javascript", reader.errors, reader.frames)


class _JavaScriptReader:
    """The errors of a JavaScript trace, and the frames of the last of them, while lines are read.

    `head` and `message_lines` are the beginning of an error whose first frame was not read yet.
    """

    def __init__(self) -> None:
        self.errors: list[tuple[str, str]] = []
        self.frames: list[Frame] = []
        self.head = ""
        self.message_lines: list[str] = []
        self.awaits_frame = True

    def read_frame(self, frame: Frame) -> None:
        """Add a frame. The first one after the lines of an error completes the error."""
        if self.awaits_frame:
            error = _js_error(self.head, self.message_lines)
            if error is not None:
                self.errors.append(error)
                self.frames = []
            self.awaits_frame = False
        self.frames.append(frame)

    def read_other_line(self, whole_line: str) -> None:
        """Read a line that is no frame, for example a cause, a part of a message, or a property."""
        line = whole_line.removesuffix(" {")
        cause = _JS_CAUSE.match(line)
        if cause and self.errors:
            self._begin(cause[1])
            return
        is_error_line = bool(_JS_ERROR.match(line.strip()))
        if whole_line.strip() and (self.awaits_frame or is_error_line):
            if is_error_line or not _JS_ERROR.match(self.head.strip()):
                self._begin(line)
            elif len(self.message_lines) < _MOST_JS_MESSAGE:
                self.message_lines.append(whole_line)
        elif self.errors:
            self._read_code(line)

    def _begin(self, head: str) -> None:
        self.head, self.message_lines, self.awaits_frame = head, [], True

    def _read_code(self, line: str) -> None:
        """Add the property `code` to the type of the last error, unless Node printed it there already."""
        code = _JS_CODE.match(line)
        if code is None:
            return
        kind, message = self.errors[-1]
        if f"[{code[1]}]" not in kind:
            self.errors[-1] = (f"{kind} [{code[1]}]", message)


@cached
def _js_frame(line: str) -> Frame | None:
    found = _JS_USUAL.match(line) or _JS_FRAME.match(line)
    if not found and "@" in line:
        found = _JS_GECKO.match(line)
    if not found:
        return None
    # no more digits than Python makes a number from
    return Frame(found[1] or "", found[2] or "", int((found[3] or "0")[:99]))


def _js_error(line: str, message_lines: list[str]) -> tuple[str, str] | None:
    """Return the type and message of an error. Later lines belong to the message if the first has little."""
    line = line.strip()
    if not line:
        return None
    found = _JS_ERROR.match(line)
    if found is None:
        return "Error", line
    kind = found[1]
    if found[2]:
        kind = f"{kind} [{found[2]}]"
    message = (found[3] or "").strip(" {")
    if message in ("", "["):
        message = "\n".join([message, *message_lines]).strip()
    return kind, message


_JAVA_FRAME: Final = re.compile(
    r"^\s*at (?:[\w.\-@]+/(?:[\w.\-@]*/)?)?([\w.$<>\-]+)\(([^()]*)\)"
)
_JAVA_HEAD: Final = re.compile(
    r"^(?:Exception in thread \"[^\"]*\" |Caused by: |\s*Suppressed: |Wrapped by: |.*?\s)??"
    r"((?:[a-z_][\w]*\.)+[A-Z$][\w$]*|[A-Z]\w*(?:Exception|Error|Throwable))(?:: (.*))?$"
)


_JAVA_OMITTED: Final = re.compile(
    r"^\s*\.\.\. ([1-9]\d{0,5}) (?:more|common frames omitted)"
)


def _java(lines: list[str]) -> StackTrace | None:
    """Read a Java trace. A cause leaves out the frames that it shares with the exception above it.

    For example, after `Caused by: java.io.IOException`, `... 2 more` stands for the last two frames of the
    exception that this one caused.
    """
    reader = _JavaReader()
    for line in lines:
        frame = _java_frame(line)
        if frame is not None:
            reader.complete_error()
            reader.frames.append(frame)
            continue
        omitted = _JAVA_OMITTED.match(line)
        if omitted:
            reader.frames += reader.frames_above[-int(omitted[1]) :]
        elif reader.is_head(line):
            reader.complete_error()
            reader.head = line
        elif line.lstrip().startswith("Suppressed: "):
            break  # an error while resources were closed, not the cause
    reader.complete_error()
    return trace_of("java", reader.errors, reader.frames)


class _JavaReader:
    """The errors of a Java trace, and the frames of the last of them, while lines are read."""

    def __init__(self) -> None:
        self.errors: list[tuple[str, str]] = []
        self.frames: list[Frame] = []
        self.frames_above: list[Frame] = []
        """Frames of the error that the last one caused."""
        self.head = ""
        """The first line of an error whose frames follow; "" while frames are read."""

    def is_head(self, line: str) -> bool:
        """Return whether a line begins an error: the first one, or a cause."""
        if line.startswith("Caused by: "):
            return True
        return not self.errors and not self.head and _JAVA_HEAD.match(line) is not None

    def complete_error(self) -> None:
        """Add the error that `head` begins, if there is a head, and begin its list of frames."""
        if not self.head:
            return
        self.frames, self.frames_above = [], self.frames
        found = _JAVA_HEAD.match(self.head)
        if found:
            self.errors.append((plain_name(found[1]), (found[2] or "").strip()))
        self.head = ""


@cached
def _java_frame(line: str) -> Frame | None:
    found = _JAVA_FRAME.match(line)
    if found is None:
        return None
    return Frame(found[1])


_NET_FRAME: Final = re.compile(
    r"^\s+at ([^()]+)\((?:.*\)|(?>.*?\) in ).*:line \d+)\s*$"
)
_NET_HEAD: Final = re.compile(
    r"^(?:Unhandled exception\.? ?"
    r"|\s*---> (?:\(Inner Exception #\d+\) )?)?((?:[A-Z]\w*\.)*[A-Z]\w*(?:Exception"
    r"|Error))(?: \(0x[0-9A-F]+\))?(?:: (.*))?$"
)


def _dotnet(lines: list[str]) -> StackTrace | None:
    """Read a .NET trace. The exceptions come first, the root cause last, then the frames of the root cause.

    For example, `System.Exception: no total ---> System.IO.IOException: closed` is a chain of two.
    """
    errors: list[tuple[str, str]] = []
    frames: list[Frame] = []
    for line in lines:
        if "Exception" in line or "Error" in line:
            errors += _dotnet_errors(line)
        frame = _NET_FRAME.match(line)
        if frame:
            frames.append(Frame(frame[1]))
        elif "--- End of inner exception" in line:
            break  # the frames of the outer exceptions follow
    return trace_of("dotnet", errors, frames)


def _dotnet_errors(line: str) -> Iterator[tuple[str, str]]:
    """Yield the type and message of each exception in a line."""
    parts = [line]
    if " ---> " in line and not line.lstrip().startswith("--->"):
        parts = [part.strip() for part in line.split(" ---> ")]
    for part in parts:
        found = _NET_HEAD.match(part)
        if found:
            yield found[1], (found[2] or "").strip()


_GO_PANIC: Final = re.compile(r"^(?:panic|fatal error): (.*?)(?: \[recovered\].*)?$")
_GO_FRAME: Final = re.compile(r"^((?:[\w.\-]+/)*[\w\-]+\.[\w.()*\[\]\-{}]+)\(.*\)$")


_GO_PANICKING: Final = (
    "panic(",
    "runtime.gopanic",
    "runtime.panic",
    "runtime.sigpanic",
)
"""Beginnings of frames of the runtime that panics. The frames above are deferred functions."""


def _go(lines: list[str]) -> StackTrace | None:
    """Read a Go trace: lines of the panic, then the first goroutine, with a line of the file per frame."""
    errors: list[tuple[str, str]] = []
    frames: list[Frame] = []
    routines = 0
    for number, line in enumerate(lines):
        error = _go_error(line)
        if error is not None:
            errors.append(error)
        elif line.startswith("goroutine "):
            routines += 1
            if routines > 1:
                break
        elif line.startswith(_GO_PANICKING):
            frames = []
        elif line.endswith(")"):
            found = _GO_FRAME.match(line.removeprefix("created by "))
            if found:
                frames.append(
                    Frame(found[1].rsplit("/", 1)[-1], _line_after(lines, number))
                )
    if frames and not errors:
        errors = [("panic", "")]
    return trace_of("go", errors, frames)


def _go_error(line: str) -> tuple[str, str] | None:
    """Return the type and message of a panic, or None if the line is none."""
    if ": " not in line:
        return None
    found = _GO_PANIC.match(line.strip())
    if found is None:
        return None
    message = found[1]
    if message.startswith("runtime error: "):
        return "runtime error", message.removeprefix("runtime error: ")
    if line.lstrip().startswith("panic"):
        return "panic", message
    return "fatal error", message


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
    """Read a Ruby trace. The error is in the line of the first frame, or in the line above (Rails logs)."""
    errors: list[tuple[str, str]] = []
    frames: list[Frame] = []
    line_above = ""
    for line in lines:
        found = _RUBY_FRAME.match(line)
        if found is None:
            line_above = line.strip() or line_above
            continue
        if found[4]:
            errors.append((found[4], found[3] or ""))
            frames = []
        elif not frames and not errors:
            head = _RUBY_HEAD.match(line_above)
            if head:
                errors.append((head[1], (head[2] or head[3] or "").strip()))
        frames.append(Frame(_RUBY_CLASS.sub("", plain_name(found[2])), found[1]))
    return trace_of("ruby", errors, frames)


_PHP_HEAD: Final = re.compile(
    r"(?:PHP )?(?:Fatal|Parse|Recoverable fatal)? ?(?:error: +)?(?:Uncaught )?((?:\w+\\)*\w*(?:Error"
    r"|Exception)\w*):? (.*?) in (\S+?)(?::\d+| on line \d+)"
)
_PHP_FRAME: Final = re.compile(
    r"^#\d+ (?:(\S.*?)\(\d+\)|(\[internal function\]|\{main\})):? ?(.*)$"
)


def _php(lines: list[str]) -> StackTrace | None:
    """Read a PHP trace. The root cause and its frames come first; "Next" begins each error that it caused."""
    errors: list[tuple[str, str]] = []
    frames: list[Frame] = []
    for whole_line in lines:
        line = whole_line.removeprefix("Next ")
        head = None
        if " in " in line and ("Error" in line or "Exception" in line):
            head = _PHP_HEAD.search(line)
        if head:
            errors.append((head[1], head[2]))
            continue
        found = _PHP_FRAME.match(line)
        is_of_root_cause = len(errors) <= 1
        if found and is_of_root_cause:
            function = found[3].partition("(")[0].replace("->", ".").replace("::", ".")
            frames.append(Frame(function, found[1] or found[2] or ""))
    return trace_of("php", errors[::-1], [frame for frame in frames if frame.function])


_RUST_PANIC: Final = re.compile(
    r"^thread '[^']*' (?:\(\d+\) )?panicked at (?:'(.*)', )?(.*?)(?::\d+)?(?::\d+)?:?$"
)
_RUST_FRAME: Final = re.compile(
    r"^\s*+\d+: +(?:0x[0-9a-f]+ - )?(\S.*?)(?:::h[0-9a-f]{16})?$"
)


def _rust(lines: list[str]) -> StackTrace | None:
    """Read a Rust panic. Without a backtrace, the file that panicked stands for the frame.

    Old versions print the message in the line of the panic, and new ones in the line after it.
    """
    errors: list[tuple[str, str]] = []
    frames: list[Frame] = []
    source = ""
    for number, line in enumerate(lines):
        panic = None
        if "panicked at " in line:
            panic = _RUST_PANIC.match(line.strip())
        if panic:
            message = panic[1]
            if message is None:
                message = _line_after(lines, number)
            errors.append(("panic", message.strip()))
            source = panic[2]
        elif errors:
            found = _RUST_FRAME.match(line)
            if found:
                frames.append(
                    Frame(found[1], _line_after(lines, number).removeprefix("at "))
                )
    if not frames and source:
        frames = [Frame("", source)]
    trace = trace_of("rust", errors, frames)
    if source and not trace.frame:
        return StackTrace("rust", trace.errors, file_stem(source), ())
    return trace


_SANITIZER: Final = re.compile(
    r"(?:ERROR|WARNING): (Address|Leak|Memory|Thread|UndefinedBehavior|HWAddress)Sanitizer: (.*)$"
)
_FUZZER: Final = re.compile(r"==\d+== ?ERROR: libFuzzer: ([a-z\- ]+)")
_UNDEFINED: Final = re.compile(r"^\S+:\d+(?::\d+)?: runtime error: (.*)$")
_LEAK: Final = re.compile(r"^(?:Direct|Indirect) leak of ")
_NATIVE_FRAME: Final = re.compile(r"^ *#(\d+) +0x[0-9a-f]+ +(?:in +)?(.*)$")
_VALGRIND: Final = re.compile(r"^==\d+== {0,3}(\S.*)$")
_VALGRIND_FRAME: Final = re.compile(
    r"^==\d+== {4,}(?:at|by) 0x[0-9A-Fa-f]+: (.+?)(?: \(([^()]*)\))?$"
)
_DETAILS: Final = re.compile(
    r" (?:on|in|of|at|for|by|\(pc|attempting|parameters?|requested)\b.*| \(.*|: .*|[0-9]+$",
    re.DOTALL,
)
_VALGRIND_ERROR: Final = re.compile(
    r"(?:Invalid|Conditional|Use of|Source and|Mismatched|Syscall|Process terminating|Argument)"
)
_VALUES: Final = re.compile(r"'[^']*'|0x[0-9a-f]+|[-+]?\d[\d.e+\-]*")
_CLONES: Final = re.compile(
    r"(?:\.(?:isra|part|constprop|cold|llvm|lto_priv)(?:\.\d+)?)+$"
)
_NATIVE_PATH: Final = re.compile(
    r" (\(?/[^ ]*|\(?[\w.\-]+\+0x[0-9a-f]+\)|[\w./\-]+:\d+(?::\d+)?)(?: .*)?$"
)
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
    """Read the first error in a report of a sanitizer, valgrind or libFuzzer about a native program.

    For example, the report

        ==1==ERROR: AddressSanitizer: heap-use-after-free on address 0x602000000010
            #0 0x55d0 in memcpy (/app/shop+0x55d0)
            #1 0x4af1 in total /src/orders.c:17
            #0 0x77e2 in free (/app/shop+0x77e2)

    has the kind "heap-use-after-free" and the frames `memcpy` and `total`. The second `#0` begins another
    stack, which shows how the memory was freed. `memcpy` belongs to the runtime, so `total` is the function.
    """
    kind = ""
    frames: list[Frame] = []  # the one nearest to the error first
    for line in lines:
        frame_number, frame = _native_frame(line)
        if frame is not None and kind:
            if frames and frame_number == "0":
                break
            frames.append(frame)
        elif frames:
            if (
                not line.strip()
                or not line.startswith(("    ", "=="))
                or _VALGRIND.match(line)
            ):
                break
        else:
            named_kind = _native_error(line)
            if named_kind is not None:
                kind = named_kind
    if not kind or not frames:
        return None
    own = filterfalse(_of_native_runtime, frames)
    if kind == "stack-overflow":
        function = frequent(Counter(frame.function for frame in list(own) or frames))
    else:
        function = next(own, frames[0]).function
    return StackTrace("native", ((kind, ""),), function, tuple(frames[:MOST_FRAMES]))


def _native_frame(line: str) -> tuple[str, Frame | None]:
    """Return the number of a frame, which valgrind omits, and the frame; None if the line is no frame."""
    found = _NATIVE_FRAME.match(line)
    if found:
        function, path = found[2], ""
        place = _NATIVE_PATH.search(function)
        if place:
            function, path = function[: place.start()], place[1]
        return found[1], Frame(_native_function(function), path)
    by_valgrind = _VALGRIND_FRAME.match(line)
    if by_valgrind:
        return "", Frame(_native_function(by_valgrind[1]), by_valgrind[2] or "")
    return "", None


def _native_error(line: str) -> str | None:
    """Return the kind of error that a line names, without values, or None.

    >>> _native_error("==7== Invalid read of size 8"), _native_error("Direct leak of 24 byte(s) in 1 object")
    ('Invalid read', 'memory leak')
    """
    sanitizer = _SANITIZER.search(line)
    if sanitizer:
        if sanitizer[1] == "Leak" or sanitizer[2].startswith("detected memory leaks"):
            return "memory leak"
        return _DETAILS.sub("", sanitizer[2]).strip()
    fuzzer = _FUZZER.search(line)
    if fuzzer:
        return fuzzer[1].strip().split(" after")[0]
    undefined = _UNDEFINED.match(line)
    if undefined:
        return _VALUES.sub("<value>", undefined[1]).split(":")[0].split(" <value>")[0]
    if _LEAK.match(line):
        return "memory leak"
    valgrind = _VALGRIND.match(line)
    if valgrind:
        return _valgrind_error(valgrind[1])
    return None


def _valgrind_error(message: str) -> str | None:
    """Return the kind of error that a message of valgrind names, or None."""
    if message.endswith(("detector", "et al.", "info")):
        return None  # the first lines of a report
    if _VALGRIND_ERROR.match(message):
        return _VALUES.sub("", re.sub(r" of size \d+", "", message)).strip()
    if " lost in loss record " in message:
        return "memory leak"
    return None


@cached
def _native_function(function: str) -> str:
    """Return the name of a function without the type of the result, arguments and clones of the compiler.

    >>> _native_function("void shop::add<int>(std::vector<int>&) const"), _native_function("total.isra.0")
    ('shop::add', 'total')
    """
    name = function.strip()
    if not name.startswith("operator"):
        name = _without_brackets(name).strip() or name
    return _CLONES.sub("", name).removesuffix(" const").split(" ")[-1]


def _without_brackets(name: str) -> str:
    """Return the characters of a name that are outside of all round and angle brackets."""
    depth = 0
    outside: list[str] = []
    for sign in name:
        if sign in "(<":
            depth += 1
        elif sign in ")>":
            depth -= 1
        if depth == 0 and sign not in ")>":
            outside.append(sign)
    return "".join(outside)


def _of_native_runtime(frame: Frame) -> bool:
    """Return whether a frame belongs to the runtime: by name, by path, or because it has only an address."""
    name = frame.function
    if name.startswith(("0x", "(")):
        return True
    return bool(_NATIVE_RUNTIME.match(name) or _RUNTIME_PATH.search(frame.path))


# empty lines may precede it; they are not read here, which would take the square of their number
_AT: Final = r"^[^\S\n]*\sat "
# For each language: words, a pattern, and the parser. A trace of the language contains one of the words and
# matches the pattern. The words are searched first, because this is much faster than the pattern: a message
# without them is of another language. More specific signs come first. For example, "at " begins the frames
# of three languages.
_SIGNS: Final = [
    (word, re.compile(pattern, re.MULTILINE), parse)
    for words, pattern, parse in (
        (
            ["Sanitizer"],
            r"\b(?:Address|Leak|Memory|Thread|UndefinedBehavior|HWAddress)Sanitizer\b",
            _native,
        ),
        (["libFuzzer"], r"==\d+== ?ERROR: libFuzzer", _native),
        ([": runtime error: "], r"^\S+:\d+:\d+: runtime error: ", _native),
        (["at 0x"], r"^==\d+== +at 0x[0-9A-Fa-f]+: ", _native),
        (
            ["Traceback (most recent call last)"],
            r"Traceback \(most recent call last\)",
            _python,
        ),
        (
            ["panic: ", "fatal error: ", "goroutine "],
            r"^(?:panic: |fatal error: )|^goroutine \d+ \[",
            _go,
        ),
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
        (
            ["@http", "@file:", "@webpack:"],
            r"^[^@\s]*@(?:https?|file|webpack):\S+:\d+",
            _javascript,
        ),
        (["at "], _AT + r"(?:[A-Z]\w*\.)+[\w<>`]+\(", _dotnet),
    )
    for word in words
]
