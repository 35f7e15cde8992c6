"""JSON documents that are nearly right: trees of raw text, in which anything can be put at any position."""

from __future__ import annotations

import json
from random import Random
from typing import Any, TypeAlias

TOKEN = "Zq7+canary/of-the-queue==9"
VECTOR_TOKEN = "Vx3+canary/of-the-index==8"
TOKENS = (TOKEN, VECTOR_TOKEN)


class Members(list[tuple[bytes, "Node"]]):
    """The members of an object, names as they are written; a name may be repeated."""


Node: TypeAlias = "bytes | Members | list[Node]"


def _token_spellings(token: str) -> list[bytes]:
    inner = json.dumps(token)[1:-1]
    spellings = [
        inner,
        inner.replace("/", "\\/"),
        inner.replace("+", "\\u002b"),
        f"Bearer {inner}",
        f"https://a.example/?queue_token={inner}",
        "".join(f"\\u{ord(letter):04x}" for letter in token),
    ]
    return [f'"{spelling}"'.encode() for spelling in spellings]


NUMBERS = [
    b"0",
    b"-0",
    b"-1",
    b"1.5",
    b"-0.0",
    b"1e400",
    b"-1e400",
    b"1e-400",
    b"2147483648",
    b"9007199254740993",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"18446744073709551616",
    b"1e19",
    b"253402300800000",
    b"1772366400.5",
    b"NaN",
    b"-Infinity",
    b"1" * 400,
    b"7" * 4301,
    b"01",
    b"+1",
    b"1772366400123",
    b"503",
    b"3.4028236e38",
    b"1E+2",
    b"0x10",
    b"1_000",
]
TEXTS = [
    b'""',
    b'" "',
    b'"text"',
    b'"\\u0000"',
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b'"\xed\xa0\x80"',
    b'"\xff\xfe"',
    b'"\\"',
    b'"\n"',
    b'"' + "é☃\U0001f600".encode() + b'"',
    '"\u202egnp.exe"'.encode(),
    b'"NaN"',
    b'"None"',
    b'"0"',
    b'"2026-01-01T00:00:00Z"',
    b'"Sun, 01 Mar 2026 12:00:05 GMT"',
    b'"Mon, 01 Jan 99999 00:00:00 +9999"',
    b'"Mon, 01 Jan 2024 00:00:00 +99999999999999999999"',
    b'"b2s="',
    b'"b2s"',
    b'"/w=="',
    b'"=== not base64"',
    b'"=cmd()"',
    b'"$\\\\href{x}{y}$"',
    b'"<script>alert(1)</script>"',
    b'"http://[::1"',
    b'"https://u:p@h/?key=abcdefgh"',
    b'"//"',
    b'"javascript:1"',
    b'"' + b"x" * 70_000 + b'"',
    b'"{\\"a\\":"',
    b'"[1,2"',
    b'"namespace/../x"',
    b'".."',
    b'"Content-Type"',
    b'"Authorization"',
    b'"INF"',
    b'"1e5"',
    b'"true"',
    b'"\\u2028\\u0085"',
]
CONTAINERS = [
    b"[]",
    b"{}",
    b"[[]]",
    b"[null]",
    b"[{}]",
    b'{"a":1,"a":2}',
    b'{"":null}',
    b'{"\\ud800":1}',
    b'{"a":{"b":[1,"x",null]}}',
    b"[" * 40 + b"]" * 40,
    b"[" * 1200 + b"]" * 1200,
    b'{"a":' * 600 + b"1" + b"}" * 600,
    b"[1,2,3,4]",
    b'["a","b"]',
    b"[0.1,0.2]",
    b"[[1,2],[3,4]]",
    b'{"indices":[1,2],"values":[0.5]}',
    b'{"indices":[-1,"x"],"values":[null,1e400]}',
    b'{"authorization":["Bearer abcdefghijklmnop"]}',
    b'{"credentials":{"user":"u","value":"hunter2hunter2"}}',
    b'{"a":NaN}',
    b"[1e400]",
    b'{"x":' + b"9" * 4301 + b"}",
    b"[" + b"1," * 3000 + b"1]",
]
BROKEN = [
    b"",
    b"nul",
    b"'text'",
    b"[1,]",
    b'{"a"}',
    b"//",
    b"undefined",
    b"<html>",
    b"\x00",
    b"\xef\xbb\xbf1",
]
WORDS = [b"null", b"true", b"false"]
ODD = [
    NUMBERS,
    TEXTS,
    CONTAINERS,
    WORDS,
    WORDS,
    [spelled for token in TOKENS for spelled in _token_spellings(token)],
]
NAMES = [
    b'""',
    b'"a"',
    b'"id"',
    b'"cursor"',
    b'"nextCursor"',
    b'"messages"',
    b'"extra"',
    b'"dlqId"',
    b'"\\ud800"',
    b'"\\u0000"',
    b'"\xff"',
    b'"error"',
    b'"result"',
    b'"__class__"',
    b'"index"',
    b'"' + b"n" * 3000 + b'"',
    b'"X-Api-Key"',
    b'"password"',
    *(spelled for token in TOKENS for spelled in _token_spellings(token)[:3]),
]


def tree(value: Any) -> Node:
    """A value as a tree."""
    if isinstance(value, dict):
        return Members(
            (json.dumps(name).encode(), tree(item)) for name, item in value.items()
        )
    if isinstance(value, list):
        return [tree(item) for item in value]
    return json.dumps(value).encode()


def text(node: Node) -> bytes:
    """A tree as it is written."""
    if isinstance(node, Members):
        return b"{" + b",".join(name + b":" + text(item) for name, item in node) + b"}"
    if isinstance(node, list):
        return b"[" + b",".join(map(text, node)) + b"]"
    return node


def odd_value(random: Random) -> bytes:
    """Any value, sometimes none at all."""
    return random.choice(BROKEN if random.random() < 0.03 else random.choice(ODD))


def spoilt(random: Random, node: Node, changes: int) -> Node:
    """The tree with changes at as many positions."""
    for _ in range(changes):
        node = _changed(random, node)
    return node


def _changed(random: Random, node: Node) -> Node:
    indices: list[tuple[Any, int]] = []
    waiting: list[Any] = [node]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, list):
            indices += [(inner, number) for number in range(len(inner))]
            waiting += [
                item[1] if isinstance(inner, Members) else item for item in inner
            ]
    if not indices or random.random() < 0.02:
        return odd_value(random)
    # deep places are many: half of the changes go to the first levels
    container, number = random.choice(
        indices[: 1 + len(indices) // 8] if random.random() < 0.5 else indices
    )
    named = isinstance(container, Members)
    name, item = container[number] if named else (b"", container[number])
    action = random.randrange(10)
    if action < 5:
        item = odd_value(random)
    elif action == 5:
        item = random.choice(
            [[item], [item, item], Members([(random.choice(NAMES), item)])]
        )
    elif action == 6:
        del container[number]
        return node
    elif action == 7:
        container.insert(random.randrange(len(container) + 1), container[number])
        return node
    elif action == 8 and named:
        container.append(
            (random.choice([name, random.choice(NAMES)]), odd_value(random))
        )
        return node
    else:
        name = random.choice(NAMES)
    container[number] = (name, item) if named else item
    return node


def spoilt_bytes(random: Random, content: bytes) -> bytes:
    """The bytes cut, flipped, doubled or wrapped in others."""
    index = random.randrange(len(content) + 1)
    action = random.randrange(8)
    if action == 0:
        return content[:index]
    if action == 1:
        return content[index:]
    if action == 2:
        return (
            random.choice([b"\xef\xbb\xbf", b"\x00", b" \n", b")]}',\n", b"[", b"{"])
            + content
        )
    if action == 3:
        return content + random.choice(
            [content, b"}", b"]", b"\x00", b" ", b"garbage", content[:index]]
        )
    if action == 4:
        return (
            content[:index] + random.randbytes(random.randrange(1, 9)) + content[index:]
        )
    if action == 5:
        return content[:index] + content[index + random.randrange(1, 40) :]
    if action == 6:
        return random.choice(
            [
                b"",
                b"null",
                b"[]",
                b"{}",
                b"<html>busy</html>",
                b'""',
                content[: index // 2] * 2,
            ]
        )
    changed = bytearray(content)
    for _ in range(random.choice([1, 1, 2, 8])):
        if changed:
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)
