"""What an interrupt leaves of a response that is being made."""

from __future__ import annotations

import http.client
import socket
import time

import pytest
import urllib3

from toolkit.client.connections import Connections


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


def test_a_response_that_was_interrupted_while_it_was_made_is_closed_quietly(response) -> None:
    """Python closes what it drops, and from 3.13 on it says what went wrong: in a terminal, in a notebook."""
    half = response.__new__(response)
    with Interrupted() as sock, pytest.raises(KeyboardInterrupt):
        half.__init__(sock)
    half.close()
    assert half.closed
