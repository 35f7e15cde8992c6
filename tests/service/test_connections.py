"""What an interrupt leaves of a response that is being made."""

from __future__ import annotations

import gzip
import http.client
import itertools
import socket
import time

import pyarrow as pa
import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from toolkit.service.connections import (
    Connections,
    CorruptError,
    UnknownEncodingError,
    decoded,
)


@pytest.fixture
def response() -> type[http.client.HTTPResponse]:
    """The kind of response that a pool of ours makes."""
    with urllib3.HTTPConnectionPool("127.0.0.1") as pool:
        Connections(pool, time.monotonic)
        return pool.ConnectionCls.response_class


class Interrupted(socket.socket):
    """A socket whose reader presses Ctrl-C while its file is made."""

    def makefile(self, *_: object, **__: object) -> object:
        """Never gets so far."""
        raise KeyboardInterrupt


def test_a_response_that_was_interrupted_while_it_was_made_is_closed_quietly(
    response,
) -> None:
    """Python closes what it drops, and from 3.13 on it says what went wrong: in a terminal, in a notebook."""
    half = response.__new__(response)
    with Interrupted() as sock, pytest.raises(KeyboardInterrupt):
        half.__init__(sock)
    half.close()
    assert half.closed


PACK = {
    "gzip": gzip.compress,
    "zstd": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
}
encodings = pytest.mark.parametrize("encoding", sorted(PACK))
bodies = st.binary(max_size=300) | st.builds(
    bytes.__mul__, st.binary(max_size=3), st.integers(0, 100_000)
)


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    """The bytes, cut at these positions."""
    indices = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(indices)]


@encodings
@given(
    members=st.lists(bodies, min_size=1, max_size=3),
    cuts=st.lists(st.integers(0), max_size=6),
)
def test_any_members_in_any_chunks_are_returned(encoding, members, cuts):
    """One member or several, however they arrive, yield all their data in chunks of bounded size."""
    packed = b"".join(PACK[encoding](member) for member in members)
    result = list(decoded(pieces_of(packed, cuts), encoding))
    assert b"".join(result) == b"".join(members)
    assert all(0 < len(piece) <= 1 << 16 for piece in result)


@encodings
@given(body=bodies, end=st.integers(1), cuts=st.lists(st.integers(0), max_size=3))
def test_a_body_without_its_end_is_an_error(encoding, body, end, cuts):
    """Wherever a compressed body stops, it is an error, also when all its data was there."""
    packed = PACK[encoding](body)
    cut = packed[: 1 + end % (len(packed) - 1)]
    if cut == packed:
        cut = packed[:-1]
    with pytest.raises(CorruptError):
        list(decoded(pieces_of(cut, cuts), encoding))


@given(body=bodies, index=st.integers(0), change=st.integers(1, 255))
def test_a_changed_byte_of_gzip_never_changes_the_data(body, index, change):
    """Whichever byte was altered on the way, the data is right or there is an error."""
    packed = bytearray(gzip.compress(body))
    packed[index % len(packed)] ^= change
    try:
        result = b"".join(decoded([bytes(packed)], "gzip"))
    except CorruptError:
        return
    assert result == body


@encodings
def test_data_after_the_end_is_an_error(encoding):
    """Bytes behind the last member that are not a member are not passed over."""
    with pytest.raises(CorruptError):
        list(decoded([PACK[encoding](b"data"), b"and more"], encoding))


@encodings
def test_a_decompression_bomb_is_read_in_small_chunks(encoding):
    """A megabyte of zeros, compressed to a kilobyte, is yielded in chunks, so that the caller can stop."""
    packed = PACK[encoding](bytes(100_000_000))
    assert len(packed) < 200_000
    for number, piece in enumerate(decoded([packed], encoding)):
        assert len(piece) <= 1 << 16
        if number == 3:
            break


@encodings
def test_an_error_of_the_wire_is_raised_unchanged(encoding):
    """An error while the chunks arrive is raised unchanged, and not treated as damage."""

    def arriving():
        yield PACK[encoding](b"data" * 1000)[:20]
        raise TimeoutError("the wire")

    with pytest.raises(TimeoutError, match="the wire"):
        list(decoded(arriving(), encoding))


def test_other_encodings_are_refused_and_none_is_passed_through():
    """Chunks without an encoding are unchanged; an encoding that was not offered is a named error."""
    for encoding in ("", "identity", " Identity "):
        assert list(decoded([b"a", b"b"], encoding)) == [b"a", b"b"]
    assert list(decoded([], "gzip")) == []
    for encoding in ("br", "deflate", "gzip, gzip"):
        with pytest.raises(UnknownEncodingError, match=encoding):
            decoded([b"a"], encoding)
