"""A range's answer without reading its numbers: its dense vectors set apart, and the cursor at its head.

Nearly all bytes of an answer are the numbers of dense vectors. Finding where an array of numbers ends is a
search for one character; the little that is left is then read as JSON like any other answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Final

import msgspec

from toolkit.client.shapes import MOST_CURSOR

CUT: Final = '"\u2702 dense vector"'.encode()
"""The JSON that stands where the numbers of a dense vector were."""

_NAME: Final = re.compile(rb'"vector"\s*:\s*\[')
_HEAD: Final = re.compile(rb'\s*\{\s*"result"\s*:\s*\{\s*"nextCursor"\s*:\s*("(?:[^"\\]|\\.)*")')
_MOST_HEAD: Final = 1 << 16


def cut_vectors(body: bytes) -> tuple[bytes, tuple[memoryview, ...]]:
    """The JSON with each dense vector replaced by `CUT`, and the vectors' JSON in order.

    All arrays under the name "vector" are cut out, whatever they hold and however deep they lie, each up to
    its first closing bracket. That is right wherever what was cut out is an array of numbers and what is
    left is JSON: whoever uses the parts checks both, and puts them together with `uncut` where they are not.

    Parameters
    ----------
    body : bytes

    Returns
    -------
    tuple
        The rest, and what was cut out of it: views of the body, as copies would take as long as finding
        them. Nothing is cut out of a body that has `CUT` already.

    Examples
    --------
    >>> rest, vectors = cut_vectors(b'[{"id": "a", "vector": [1, 2]}, {"id": "b"}]')
    >>> [vector.tobytes() for vector in vectors]
    [b'[1, 2]']
    >>> uncut(rest, vectors)
    b'[{"id": "a", "vector": [1, 2]}, {"id": "b"}]'
    """
    found = _NAME.search(body)
    if found is None:
        return body, ()
    # every service spells all its rows alike: another spelling stays where it is, and costs only time
    name = found.group()
    size, find = len(name) - 1, body.find
    rest, vectors, done = [], [], 0
    view = memoryview(body)
    start = found.start()
    while start >= 0:
        begin = start + size
        end = find(b"]", begin) + 1
        if not end:
            break
        rest.append(body[done:begin])
        vectors.append(view[begin:end])
        done = end
        start = find(name, end)
    rest.append(body[done:])
    whole = CUT.join(rest)
    return (whole, tuple(vectors)) if whole.count(CUT) == len(vectors) else (body, ())


def uncut(rest: bytes, vectors: tuple[memoryview, ...]) -> bytes:
    """The JSON as it came, from the parts that `cut_vectors` made of it."""
    if not vectors:
        return rest
    parts = rest.split(CUT)
    pairs: Iterator[tuple[bytes, bytes | memoryview]] = zip(parts, (*vectors, b""), strict=True)
    return b"".join(chain.from_iterable(pairs))


def head_cursor(body: bytes | bytearray) -> str | None:
    """The next cursor at the head of a range's answer, of which only the beginning may have arrived.

    Parameters
    ----------
    body : bytes or bytearray

    Returns
    -------
    str or None
        None when it is not there (yet), is the end, or is too long for a cursor.

    Examples
    --------
    >>> head_cursor(b'{"result": {"nextCursor": "7", "vectors": [{"id"')
    '7'
    """
    found = _HEAD.match(bytes(body[:_MOST_HEAD]))
    try:
        cursor = None if found is None else msgspec.json.decode(found.group(1), type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return cursor if cursor and len(cursor) <= MOST_CURSOR else None
