"""Compressed answers, decoded piece by piece: whole or an error, in bounded memory.

What a decoder has not seen the end of is an error here, checksums included: the HTTP library takes a gzip
body without its trailer for a whole one.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa

ACCEPTED: Final = "gzip, zstd"
"""What is offered in ``Accept-Encoding``."""

_MOST: Final = 1 << 16
"""Bytes a decoder gives at once, however well a piece was compressed."""
_GZIP: Final = 16 + zlib.MAX_WBITS  # with header and trailer, as zlib counts it


class CorruptError(Exception):
    """The compressed bytes have no end, or are not what they should be."""


class UnknownEncodingError(Exception):
    """Encoded in a way that was not offered."""


def decoded(pieces: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """The body that arrives in these pieces, decoded, in pieces of at most 64 KB where it was compressed.

    Parameters
    ----------
    pieces : iterable of bytes
        As they arrive; none of them empty.
    encoding : str
        The answer's ``Content-Encoding``; empty when it has none.

    Raises
    ------
    CorruptError
        When the bytes are cut or damaged.
    UnknownEncodingError
        When the encoding is none of `ACCEPTED`.

    Examples
    --------
    >>> import gzip
    >>> b"".join(decoded([gzip.compress(b"a page")], "gzip"))
    b'a page'
    """
    name = encoding.strip().lower()
    if name in {"", "identity"}:
        return iter(pieces)
    if name not in _DECODERS:
        raise UnknownEncodingError(encoding)
    return _DECODERS[name](iter(pieces))


def _gunzipped(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """One or more gzip members, each with its trailer, which zlib compares with what it has decoded."""
    member, inside = zlib.decompressobj(_GZIP), False
    for arrived in pieces:
        piece = arrived
        while True:
            inside = inside or bool(piece)
            try:
                data = member.decompress(piece, _MOST)
            except zlib.error as error:
                raise CorruptError(str(error)) from None
            if data:
                yield data
            if member.eof:
                piece = member.unused_data
                member, inside = zlib.decompressobj(_GZIP), False
                if not piece:
                    break
            else:
                piece = member.unconsumed_tail
                # a full piece may have more behind it, with all input taken
                if not piece and len(data) < _MOST:
                    break
    if inside:
        raise CorruptError("gzip without its trailer")


def _unzstd(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """One or more zstd frames."""
    stream = pa.CompressedInputStream(pa.PythonFile(_File(pieces), mode="r"), "zstd")
    while True:
        try:
            data = stream.read(_MOST)
        except pa.ArrowException as error:
            raise CorruptError(str(error)) from None
        except OSError as error:
            # Arrow's own; what the pieces raise is no bare OSError
            if type(error) is not OSError:
                raise
            raise CorruptError(str(error)) from None
        if not data:
            return
        yield data


class _File:
    """The pieces as the file that Arrow reads from."""

    closed = False

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def read(self, size: int) -> bytes:
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
        given, self._rest = self._rest[:size], self._rest[size:]
        return bytes(given)

    def close(self) -> None:
        """Nothing to close: the connection is the transport's."""


_DECODERS: Final[dict[str, Callable[[Iterator[bytes]], Iterator[bytes]]]] = {
    "gzip": _gunzipped,
    "x-gzip": _gunzipped,
    "zstd": _unzstd,
}
