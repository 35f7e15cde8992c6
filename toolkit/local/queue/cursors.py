"""Opaque cursors: where a listing goes on, signed, so that a foreign or edited one is told from ours."""

from __future__ import annotations

import base64
import binascii
import hmac
import json

from toolkit.local.answers import ApiError

_TAG = 12  # bytes of the HMAC that are kept


class Cursors:
    """Makes and reads cursors.

    A cursor holds a position, not a page number: it stays right while entries come and go.

    Parameters
    ----------
    key : bytes
        Kept with the data, so that cursors survive a restart.

    Examples
    --------
    >>> cursors = Cursors(b"k" * 32)
    >>> cursors.read("dlq", cursors.make("dlq", (1700000000000, 7)))
    (1700000000000, 7)
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def make(self, listing: str, place: tuple[int, int] | None) -> str:
        """The cursor that goes on behind `place`; empty when there is nothing more."""
        if place is None:
            return ""
        raw = json.dumps(place).encode()
        return base64.urlsafe_b64encode(self._tag(listing, raw) + raw).decode().rstrip("=")

    def read(self, listing: str, cursor: str) -> tuple[int, int] | None:
        """The place behind which to go on; None for the start.

        Raises
        ------
        ApiError
            400 when this listing did not make it.
        """
        if not cursor:
            return None
        try:
            data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            data = b""
        tag, raw = data[:_TAG], data[_TAG:]
        # the one spelling that `make` gives: base64 has others with the same bytes
        ours = base64.urlsafe_b64encode(data).decode().rstrip("=") == cursor
        if not raw or not ours or not hmac.compare_digest(tag, self._tag(listing, raw)):
            raise ApiError(
                400, f"cursor is not known; got {cursor[:40]!r}; expected one from this listing, unchanged"
            )
        first, second = json.loads(raw)
        return first, second

    def _tag(self, listing: str, raw: bytes) -> bytes:
        return hmac.digest(self._key, listing.encode() + b"\0" + raw, "sha256")[:_TAG]
