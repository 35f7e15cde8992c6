"""Reports of sanitizers, valgrind and fuzzers about native programs: the error, and where it arose."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_LINES: Final = 4_000  # lines that are read

SIGNS: Final = re.compile(
    r"\b(?:Address|Leak|Memory|Thread|UndefinedBehavior|HWAddress)Sanitizer\b|==\d+== ?ERROR: libFuzzer"
    r"|^\S+:\d+:\d+: runtime error: |^==\d+== +at 0x[0-9A-Fa-f]+: ",
    re.MULTILINE,
)
SIGN_WORDS: Final = ("Sanitizer", "libFuzzer", ": runtime error: ", "at 0x")
"""One of them is wherever `SIGNS` are."""
_HEAD: Final = re.compile(
    r"(?:ERROR|WARNING): (Address|Leak|Memory|Thread|UndefinedBehavior|HWAddress)Sanitizer: (.*)$"
)
_FUZZER: Final = re.compile(r"==\d+== ?ERROR: libFuzzer: ([a-z\- ]+)")
_UNDEFINED: Final = re.compile(r"^\S+:\d+(?::\d+)?: runtime error: (.*)$")
_LEAK: Final = re.compile(r"^(?:Direct|Indirect) leak of ")
_FRAME: Final = re.compile(r"^ *#(\d+) +0x[0-9a-f]+ +(?:in +)?(.*)$")
_VALGRIND: Final = re.compile(r"^==\d+== {0,3}(\S.*)$")
_VALGRIND_FRAME: Final = re.compile(r"^==\d+== {4,}(?:at|by) 0x[0-9A-Fa-f]+: (.+?)(?: \(([^()]*)\))?$")
_ADDRESS: Final = re.compile(
    r" (?:on|in|of|at|for|by|\(pc|attempting|parameters?|requested)\b.*| \(.*|: .*|[0-9]+$", re.DOTALL
)
_VALUES: Final = re.compile(r"'[^']*'|0x[0-9a-f]+|[-+]?\d[\d.e+\-]*")
_CLONES: Final = re.compile(r"(?:\.(?:isra|part|constprop|cold|llvm|lto_priv)(?:\.\d+)?)+$")
_PATH: Final = re.compile(r" (\(?/[^ ]*|\(?[\w.\-]+\+0x[0-9a-f]+\)|[\w./\-]+:\d+(?::\d+)?)(?: .*)?$")
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


class NativeReport(NamedTuple):
    """The kind of an error, what is said of it, and its frames, the one nearest to the error first."""

    kind: str
    message: str
    frames: tuple[tuple[str, bool], ...]  # function, and whether it belongs to the runtime


def native_report(lines: list[str]) -> NativeReport | None:
    """Parse the first error of a report; None where there is none.

    >>> native_report(["==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x61 at pc 0x4f",
    ...     "READ of size 4 at 0x61 thread T0", "    #0 0x4f8a in parse /src/parse.c:45:12"])
    NativeReport(kind='heap-use-after-free', message='', frames=(('parse', False),))
    """
    kind, message = "", ""
    frames: list[tuple[str, bool]] = []
    for line in lines[:_LINES]:
        found = _FRAME.match(line)
        by_valgrind = None if found else _VALGRIND_FRAME.match(line)
        if by_valgrind and kind:
            frames.append(_named(by_valgrind[1], by_valgrind[2] or ""))
        elif found and kind:
            if frames and found[1] == "0":
                break  # another stack: where the memory was allocated
            frames.append(_framed(found[2]))
        elif frames:
            if not line.strip() or not line.startswith(("    ", "==")):
                break
            if _VALGRIND.match(line):
                break
        else:
            named = _kind(line)
            if named and not (kind and named[0] == "valgrind"):
                kind, message = named
    return NativeReport(kind, message, tuple(frames)) if kind and (frames or message) else None


def _kind(line: str) -> tuple[str, str] | None:
    """The kind of error that a line names, and its message without values."""
    if head := _HEAD.search(line):
        named = _ADDRESS.sub("", head[2]).strip()
        if head[1] == "Leak" or head[2].startswith("detected memory leaks"):
            return "memory leak", ""
        return named, ""
    if head := _FUZZER.search(line):
        return head[1].strip().split(" after")[0], ""
    if head := _UNDEFINED.match(line):
        said = _VALUES.sub("<value>", head[1])
        return said.split(":")[0].split(" <value>")[0], ""
    if _LEAK.match(line):
        return "memory leak", ""
    if (head := _VALGRIND.match(line)) and not head[1].endswith(("detector", "et al.", "info")):
        if re.match(
            r"(?:Invalid|Conditional|Use of|Source and|Mismatched|Syscall|Process terminating|Argument)",
            head[1],
        ):
            return _VALUES.sub("", re.sub(r" of size \d+", "", head[1])).strip(), ""
        if " lost in loss record " in head[1]:
            return "memory leak", ""
    return None


def _framed(text: str) -> tuple[str, bool]:
    found = _PATH.search(text)
    path = found[1] if found else ""
    return _named(text[: found.start()] if found else text, path)


def _named(function: str, path: str) -> tuple[str, bool]:
    """A function's name without arguments and clones, and whether it is of the runtime."""
    name = function.strip()
    depth, plain = 0, []
    for sign in name if not name.startswith("operator") else "":
        depth += (sign in "(<") - (sign in ")>")
        if depth == 0 and sign not in ")>":
            plain.append(sign)
    name = _CLONES.sub("", "".join(plain).strip() or name).removesuffix(" const").split(" ")[-1]
    return name, bool(_RUNTIME.match(name) or _RUNTIME_PATH.search(path)) or name.startswith(("0x", "("))
