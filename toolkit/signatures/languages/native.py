"""Read reports of sanitizers, valgrind and libFuzzer about native programs.

For example, the report

    ==1==ERROR: AddressSanitizer: heap-use-after-free on address 0x602000000010
        #0 0x55d0 in memcpy (/app/shop+0x55d0)
        #1 0x4af1 in total /src/orders.c:17
        #0 0x77e2 in free (/app/shop+0x77e2)

has the kind "heap-use-after-free" and the frames `memcpy` and `total`. The second `#0` begins another stack,
which shows how the memory was freed. `memcpy` belongs to the runtime, so `total` is the function.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import filterfalse
from typing import Final, NamedTuple

from toolkit.signatures.remembering import Memo, cached
from toolkit.signatures.trace_frames import (
    MOST_FRAMES,
    Frame,
    StackTrace,
    frequent,
    reader_of,
)

_SANITIZER: Final = re.compile(
    r"(?:ERROR|WARNING): (Address|Leak|Memory|Thread|UndefinedBehavior|HWAddress)Sanitizer: (.*)$"
)
_FUZZER: Final = re.compile(r"==\d+== ?ERROR: libFuzzer: ([a-z\- ]+)")
_UNDEFINED: Final = re.compile(r"^\S+:\d+(?::\d+)?: runtime error: (.*)$")
_LEAK: Final = re.compile(r"^(?:Direct|Indirect) leak of ")
_FRAME: Final = re.compile(r"^ *#(\d+) +0x[0-9a-f]+ +(?:in +)?(.*)$")
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
_PATH: Final = re.compile(
    r" (\(?/[^ ]*|\(?[\w.\-]+\+0x[0-9a-f]+\)|[\w./\-]+:\d+(?::\d+)?)(?: .*)?$"
)
_RUNTIME: Final = re.compile(
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


def read_native(lines: list[str]) -> StackTrace | None:
    """Read the first error of a report, and the stack below it."""
    reader = _NativeReader()
    for line, numbered in zip(
        lines, map(_FRAME_OF_LINE.__getitem__, lines), strict=True
    ):
        if numbered is not None and reader.kind:
            reader.read_frame(numbered)
        else:
            reader.read_other_line(line)

        if reader.is_complete:
            break

    return reader.trace()


class _NativeReader:
    """The kind of an error and the frames below it, while lines are read."""

    def __init__(self) -> None:
        self.kind = ""
        self.is_complete = False
        self._frames: list[Frame] = []
        """The frame nearest to the error first."""

    def read_frame(self, numbered: _NumberedFrame) -> None:
        """Add a frame, unless another stack begins."""
        if self._frames and numbered.number == "0":
            self.is_complete = True
        else:
            self._frames.append(numbered.frame)

    def read_other_line(self, line: str) -> None:
        """Read the kind of the error, or the end of the stack."""
        if not self._frames:
            self.kind = _named_error(line) or self.kind
            return

        # lines of valgrind and indented ones belong to a stack
        is_inner_line = line.startswith(("    ", "==")) and line.strip() != ""
        self.is_complete = not is_inner_line or _VALGRIND.match(line) is not None

    def trace(self) -> StackTrace | None:
        """Return the trace; None without a kind of error or without frames."""
        if not self.kind or not self._frames:
            return None

        function = _function(self.kind, self._frames)
        frames = tuple(self._frames[:MOST_FRAMES])
        return StackTrace("native", ((self.kind, ""),), function, frames)


def _function(kind: str, frames: list[Frame]) -> str:
    """Return the function of the program nearest to the error; the frequent one of a recursion."""
    own = filterfalse(_is_of_runtime, frames)
    if kind == "stack-overflow":
        return frequent(Counter(frame.function for frame in list(own) or frames))

    return next(own, frames[0]).function


class _NumberedFrame(NamedTuple):
    """A frame and the number in the line, which valgrind omits."""

    number: str
    frame: Frame


def _numbered_frame(line: str) -> _NumberedFrame | None:
    if " 0x" not in line:
        return None
    return _frame_of_sanitizer(line) or _frame_of_valgrind(line)


def _sanitizer_frame(found: re.Match[str]) -> _NumberedFrame:
    number, function = found.groups()
    path = ""
    place = _PATH.search(function)
    if place is not None:
        path = place[1]
        function = function[: place.start()]

    return _NumberedFrame(number, Frame(_function_name(function), path))


def _valgrind_frame(found: re.Match[str]) -> _NumberedFrame:
    function = _function_name(found[1])
    return _NumberedFrame("", Frame(function, found[2] or ""))


_frame_of_sanitizer: Final = reader_of(_FRAME, _sanitizer_frame)
_frame_of_valgrind: Final = reader_of(_VALGRIND_FRAME, _valgrind_frame)


_FRAME_OF_LINE: Final = Memo(_numbered_frame)


def _is_of_runtime(frame: Frame) -> bool:
    """Return whether a frame is of the runtime, by name, by path, or because it has only an address."""
    return _IS_RUNTIME_NAME[frame.function] or _IS_RUNTIME_PATH[frame.path]


def _is_runtime_name(function: str) -> bool:
    return function.startswith(("0x", "(")) or _RUNTIME.match(function) is not None


def _is_runtime_path(path: str) -> bool:
    return _RUNTIME_PATH.search(path) is not None


_IS_RUNTIME_NAME: Final = Memo(_is_runtime_name)
_IS_RUNTIME_PATH: Final = Memo(_is_runtime_path)


def _named_error(line: str) -> str | None:
    """Return the kind of error that a line names, without values, or None.

    >>> _named_error("==7== Invalid read of size 8"), _named_error("Direct leak of 24 byte(s) in 1 object")
    ('Invalid read', 'memory leak')
    """
    # the words are found much faster than the patterns
    if "Sanitizer: " in line and (sanitizer := _SANITIZER.search(line)):
        return _sanitizer_error(sanitizer[1], sanitizer[2])
    if "libFuzzer: " in line and (fuzzer := _FUZZER.search(line)):
        return fuzzer[1].strip().partition(" after")[0]
    if ": runtime error: " in line and (undefined := _UNDEFINED.match(line)):
        message = _VALUES.sub("<value>", undefined[1])
        return message.partition(":")[0].partition(" <value>")[0]
    if _LEAK.match(line):
        return "memory leak"

    valgrind = _VALGRIND.match(line)
    if valgrind is not None:
        return _valgrind_error(valgrind[1])

    return None


def _sanitizer_error(tool: str, message: str) -> str:
    """Return the kind of error in a message of a sanitizer, for example "heap-use-after-free"."""
    if tool == "Leak" or message.startswith("detected memory leaks"):
        return "memory leak"
    return _DETAILS.sub("", message).strip()


def _valgrind_error(message: str) -> str | None:
    """Return the kind of error that a message of valgrind names, or None."""
    if message.endswith(("detector", "et al.", "info")):
        return None  # the first lines of a report
    if _VALGRIND_ERROR.match(message):
        without_size = re.sub(r" of size \d+", "", message)
        return _VALUES.sub("", without_size).strip()
    if " lost in loss record " in message:
        return "memory leak"

    return None


@cached
def _function_name(signature: str) -> str:
    """Return the name of a function without the type of the result, arguments and clones of the compiler.

    >>> _function_name("void shop::add<int>(std::vector<int>&) const"), _function_name("total.isra.0")
    ('shop::add', 'total')
    """
    name = signature.strip()
    if not name.startswith("operator"):
        name = _without_brackets(name).strip() or name
    plain_name = _CLONES.sub("", name).removesuffix(" const")

    return plain_name.rpartition(" ")[2]


def _without_brackets(name: str) -> str:
    """Return the characters of a name that are outside of all round and angle brackets."""
    depth = 0
    outside: list[str] = []
    for sign in name:
        if sign in "(<":
            depth += 1
        elif sign in ")>":
            depth -= 1
        elif depth == 0:
            outside.append(sign)

    return "".join(outside)
