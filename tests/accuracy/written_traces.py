"""Stack traces and reports of native programs, written from their formats with what varies in reality.

A fault is an error at one place. Its occurrences differ in values, line numbers, addresses, process ids, threads,
the way that led there, frames of libraries, and whether something wrapped the exception on its way. Some faults
share the exception type, the message or the callers with others.
"""

# ruff: noqa: E501 - a format is a line

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.accuracy.log_lines import FIELDS

_NOUNS = (
    "order",
    "invoice",
    "price",
    "stock",
    "mail",
    "user",
    "refund",
    "report",
    "coupon",
    "cart",
)
_VERBS = ("load", "save", "parse", "send", "check", "merge", "apply", "render")
FAULTS = 30  # of each language


class Fault(NamedTuple):
    """What all occurrences of a fault share."""

    kind: str
    message: str  # with a place for an id, perhaps
    owner: str
    function: str
    wrapped: bool


class Written(NamedTuple):
    """How one language writes a trace."""

    errors: Sequence[tuple[str, str]]
    write: Callable[[Fault, random.Random], str]


def _way(rng: random.Random) -> list[tuple[str, str]]:
    """Who called: different from occurrence to occurrence."""
    return [(rng.choice(_NOUNS), rng.choice(_VERBS)) for _ in range(rng.randint(1, 6))]


def _line(rng: random.Random) -> int:
    return rng.randint(5, 900)


def _said(fault: Fault, rng: random.Random) -> str:
    return (
        fault.message.replace("%", FIELDS["id"](rng))
        if "id" in FIELDS
        else fault.message
    )


def _java(fault: Fault, rng: random.Random, language: str = "java") -> str:
    def at(owner: str, function: str) -> str:
        return f"\tat com.acme.{owner}.{owner.title()}Service.{function}({owner.title()}Service.{language}:{_line(rng)})"

    head = f"{fault.kind}: {_said(fault, rng)}" if fault.message else fault.kind
    inside = ["\tat java.base/java.util.ArrayList.forEach(ArrayList.java:1596)"] * (
        rng.random() < 0.3
    )
    ways = [at(owner, function) for owner, function in _way(rng)]
    if language == "kt":
        ways.insert(
            0,
            f"\tat com.acme.Flow$run${rng.randint(1, 9)}.invokeSuspend(Flow.kt:{_line(rng)})",
        )
    ways.append(f"\tat java.base/java.lang.Thread.run(Thread.java:{_line(rng)})")
    own = [*inside, at(fault.owner, fault.function)]
    if fault.wrapped and rng.random() < 0.4:
        return "\n".join(
            [
                f"java.util.concurrent.CompletionException: {head}",
                *ways,
                f"Caused by: {head}",
                *own,
                "\t... 7 more",
            ]
        )
    start = (
        f'Exception in thread "pool-{rng.randint(1, 9)}-thread-{rng.randint(1, 40)}" '
        * (rng.random() < 0.3)
    )
    return "\n".join([start + head, *own, *ways])


def _dotnet(fault: Fault, rng: random.Random) -> str:
    def at(owner: str, function: str) -> str:
        tail = f" in C:\\build\\{rng.randint(1, 99)}\\{owner}.cs:line {_line(rng)}" * (
            rng.random() < 0.8
        )
        return f"   at Acme.{owner.title()}.{owner.title()}Service.{function.title()}(String id){tail}"

    rows = [f"{fault.kind}: {_said(fault, rng)}", at(fault.owner, fault.function)]
    rows += ["--- End of stack trace from previous location ---"] * (rng.random() < 0.4)
    return "\n".join(rows + [at(owner, function) for owner, function in _way(rng)])


def _go(fault: Fault, rng: random.Random) -> str:
    def at(owner: str, function: str) -> list[str]:
        value = f"0xc{rng.getrandbits(36):09x}"
        return [
            f"acme.example/app/{owner}.{function.title()}({value}, 0x{rng.getrandbits(8):x})",
            f"\t/build/{rng.randint(1, 99)}/{owner}/{owner}.go:{_line(rng)} +0x{rng.getrandbits(9):x}",
        ]

    rows = [
        f"panic: {fault.kind}: {_said(fault, rng)}",
        "",
        f"goroutine {rng.randint(1, 90_000)} [running]:",
    ]
    for owner, function in [(fault.owner, fault.function), *_way(rng)]:
        rows += at(owner, function)
    return "\n".join([*rows, "exit status 2"])


def _rust(fault: Fault, rng: random.Random) -> str:
    rows = [
        f"thread '{rng.choice(['main', 'tokio-runtime-worker', '<unnamed>'])}' panicked at src/{fault.owner}.rs:{_line(rng)}:{rng.randint(1, 60)}:",
        f"{fault.kind}: {_said(fault, rng)}", "stack backtrace:", "   0: rust_begin_unwind",
        "             at /rustc/abc/library/std/src/panicking.rs:645:5",
        "   1: core::panicking::panic_fmt", "             at /rustc/abc/library/core/src/panicking.rs:72:14",
    ]  # fmt: skip
    for number, (owner, function) in enumerate(
        [(fault.owner, fault.function), *_way(rng)], 2
    ):
        rows += [
            f"   {number}: acme::{owner}::{function}::h{rng.getrandbits(64):016x}",
            f"             at ./src/{owner}.rs:{_line(rng)}:9",
        ]
    return "\n".join(rows)


def _ruby(fault: Fault, rng: random.Random) -> str:
    root = f"/srv/releases/{rng.randint(10**13, 10**14)}"
    ways = [(fault.owner, fault.function), *_way(rng)]
    rows = [
        f"{root}/app/{owner}.rb:{_line(rng)}:in `{function}'"
        for owner, function in ways
    ]
    rows[0] += f": {_said(fault, rng)} ({fault.kind})"
    gem = f"/usr/lib/ruby/gems/3.2.0/gems/rack-3.{rng.randint(0, 9)}/lib/rack.rb:{_line(rng)}:in `call'"
    return "\n\tfrom ".join([*rows, gem])


def _php(fault: Fault, rng: random.Random) -> str:
    root = f"/var/www/{rng.randint(1, 999)}"
    rows = [
        f"PHP Fatal error:  Uncaught {fault.kind}: {_said(fault, rng)} in {root}/{fault.owner}.php:{_line(rng)}",
        "Stack trace:",
    ]
    for number, (owner, function) in enumerate(
        [(fault.owner, fault.function), *_way(rng)]
    ):
        rows.append(
            f"#{number} {root}/{owner}.php({_line(rng)}): Acme\\{owner.title()}->{function}('{_line(rng)}')"
        )
    return "\n".join([*rows, f"#{len(rows)} {{main}}"])


def _native_frames(fault: Fault, rng: random.Random, runtime: str = "") -> list[str]:
    names = [*([runtime] if runtime else []), f"{fault.owner}_{fault.function}"]
    names += [f"{owner}_{function}" for owner, function in _way(rng)] + ["main"]
    rows = []
    for number, name in enumerate(names):
        place = f"/src/{name.split('_')[0]}.c:{_line(rng)}:{rng.randint(1, 60)}"
        if name.startswith("__"):
            place = "/llvm/compiler-rt/lib/asan/asan_interceptors.cpp:12:3"
        rows.append(f"    #{number} 0x{rng.getrandbits(44):012x} in {name} {place}")
    return [
        *rows,
        f"    #{len(names)} 0x{rng.getrandbits(44):012x} in __libc_start_main (/lib/libc.so.6+0x21b97)",
    ]


def _sanitizer(fault: Fault, rng: random.Random) -> str:
    pid, address = rng.randint(2, 90_000), f"0x{rng.getrandbits(44):012x}"
    if fault.kind == "undefined":
        frames = _native_frames(fault, rng)
        return "\n".join(
            [
                f"{fault.owner}.c:{_line(rng)}:7: runtime error: {_said(fault, rng)}",
                *frames,
            ]
        )
    if fault.kind == "valgrind":
        rows = [
            f"=={pid}== Memcheck, a memory error detector",
            f"=={pid}== {_said(fault, rng)}",
        ]
        for number, (owner, function) in enumerate(
            [(fault.owner, fault.function), *_way(rng)]
        ):
            at = "by" if number else "at"
            rows.append(
                f"=={pid}==    {at} 0x{rng.getrandbits(30):X}: {owner}_{function} ({owner}.c:{_line(rng)})"
            )
        return "\n".join(
            [
                *rows,
                f"=={pid}==  Address {address} is 0 bytes after a block of size 40 alloc'd",
            ]
        )
    if fault.kind == "leak":
        size = rng.randint(1, 9999)
        rows = [f"=={pid}==ERROR: LeakSanitizer: detected memory leaks", ""]
        rows += [
            f"Direct leak of {size} byte(s) in {rng.randint(1, 9)} object(s) allocated from:"
        ]
        return "\n".join([*rows, *_native_frames(fault, rng, "__interceptor_malloc")])
    runtime = "__interceptor_memcpy" if fault.wrapped else ""
    return "\n".join(
        [
            "=" * 65,
            f"=={pid}==ERROR: AddressSanitizer: {fault.kind} on address {address} at pc {address} bp 0x7f sp 0x7e",
            f"{'READ' if fault.wrapped else 'WRITE'} of size {rng.choice([1, 4, 8])} at {address} thread T0",
            *_native_frames(fault, rng, runtime), "",
            f"{address} is located {rng.randint(0, 64)} bytes to the right of {rng.randint(8, 999)}-byte region",
            "allocated by thread T0 here:", *_native_frames(fault, rng, "__interceptor_malloc"),
        ]
    )  # fmt: skip


_MESSAGES = (
    "no such row %",
    "",
    "value % is out of range",
    "connection to % lost",
    "state of % is not open",
)
_JVM = [
    (kind, message)
    for kind in (
        "java.lang.NullPointerException",
        "java.lang.IllegalStateException",
        "com.acme.RuleException",
    )
    for message in _MESSAGES
]
WRITTEN = {
    "Java": Written(_JVM, _java),
    "Kotlin": Written(_JVM, lambda fault, rng: _java(fault, rng, "kt")),
    ".NET": Written(
        [(kind, message or "Value cannot be null.") for kind in ("System.InvalidOperationException", "Acme.RuleException") for message in _MESSAGES],
        _dotnet,
    ),
    "Go": Written([("order failed", message or "nil") for message in _MESSAGES], _go),
    "Rust": Written([("called `Option::unwrap()` on a value", message or "none") for message in _MESSAGES], _rust),
    "Ruby": Written([(kind, message or "nil") for kind in ("NoMethodError", "Acme::RuleError") for message in _MESSAGES], _ruby),
    "PHP": Written([(kind, message or "null") for kind in ("TypeError", "Acme\\RuleException") for message in _MESSAGES], _php),
    "sanitizers": Written(
        [
            ("heap-buffer-overflow", ""), ("heap-use-after-free", ""), ("stack-buffer-overflow", ""), ("SEGV", ""),
            ("undefined", "signed integer overflow: 2147483647 + 7 cannot be represented in type 'int'"),
            ("undefined", "shift exponent 40 is too large for 32-bit type 'int'"),
            ("valgrind", "Invalid read of size 4"), ("valgrind", "Conditional jump or move depends on uninitialised value(s)"),
            ("leak", ""),
        ],
        _sanitizer,
    ),
}  # fmt: skip


def written_traces(
    language: str, repeats: int, *, seed: int
) -> tuple[list[str], list[int]]:
    """Occurrences of faults of one language, shuffled, and the fault of each."""
    rng = random.Random(f"{language} {seed}")
    places = rng.sample([(noun, verb) for noun in _NOUNS for verb in _VERBS], FAULTS)
    faults = [
        Fault(*rng.choice(WRITTEN[language].errors), *place, rng.random() < 0.5)
        for place in places
    ]
    pairs = [
        (WRITTEN[language].write(fault, rng), number)
        for number, fault in enumerate(faults)
        for _ in range(repeats)
    ]
    rng.shuffle(pairs)
    return [text for text, _ in pairs], [number for _, number in pairs]
