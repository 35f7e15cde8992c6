"""Cut the numbers of dense vectors out of JSON, so that the rest is decoded without them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Final

CUT: Final = '"\u2702 dense vector"'.encode()
"""JSON that replaces the numbers of a dense vector."""
_NAME: Final = re.compile(rb'"vector"\s*:\s*\[')


def cut_vectors(body: bytes) -> tuple[bytes, tuple[memoryview, ...]]:
    """Replace each dense vector by `CUT`. Return the JSON, and views of the vectors in order.

    All arrays under the name "vector" are cut out, each up to the first closing bracket. The cut is right if
    each part is an array of numbers and the rest is JSON. The caller checks both, and joins the parts with
    `uncut` if the cut was wrong. Nothing is cut out of a body that contains `CUT` already.

    >>> rest, vectors = cut_vectors(b'[{"id": "a", "vector": [1, 2]}, {"id": "b"}]')
    >>> [vector.tobytes() for vector in vectors]
    [b'[1, 2]']
    >>> uncut(rest, vectors)
    b'[{"id": "a", "vector": [1, 2]}, {"id": "b"}]'
    """
    match = _NAME.search(body)
    if match is None:
        return body, ()

    # A service writes all names alike. A name with other spaces is not cut out, which only costs time.
    name = match.group()
    name_length = len(name) - 1  # without the bracket
    find = body.find
    view = memoryview(body)

    rest: list[bytes] = []
    vectors: list[memoryview] = []
    done = 0
    start = match.start()
    while start >= 0:
        begin = start + name_length
        end = find(b"]", begin) + 1
        if not end:
            break
        rest.append(body[done:begin])
        vectors.append(view[begin:end])
        done = end
        start = find(name, end)

    rest.append(body[done:])
    shortened = CUT.join(rest)
    if shortened.count(CUT) != len(vectors):
        return body, ()

    return shortened, tuple(vectors)


def uncut(rest: bytes, vectors: tuple[memoryview, ...]) -> bytes:
    """Return the original JSON from the parts that `cut_vectors` made."""
    if not vectors:
        return rest

    parts = rest.split(CUT)
    pairs: Iterator[tuple[bytes, bytes | memoryview]] = zip(
        parts, (*vectors, b""), strict=True
    )
    return b"".join(chain.from_iterable(pairs))
