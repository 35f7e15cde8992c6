"""What a load counts on its way, what its pieces are, and what lets a later load go on from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from toolkit.client.pages import Page
from toolkit.loading.identities import Identities
from toolkit.loading.recognising import AtRest

_COUNTS: Final = (
    "pages",
    "requests",
    "bytes",
    "filtered_here",
    "windows",
    "reread",
    "duplicates",
    "unsettled",
    "notes",
)


@dataclass
class Work:
    """What a load has done so far.

    Attributes
    ----------
    pages, requests, bytes, filtered_here, windows, reread, duplicates : int
        As in `Receipt`.
    settles : bool
        Whether the reader of the tables reads again what moved, and says what it could not settle. Otherwise
        every row that comes twice unasked makes the load doubtful.
    unsettled, notes : list of str
        Reasons why the result may not be whole, and what else is worth knowing of how it was read.
    position : dict
        A JSON-able value, replaced (never changed in place) before a table is handed on: what all tables up
        to and including that one make up.
    rows : Identities
        Of the rows given out so far.
    at_rest : callable, optional
        Which entries are at rest as they came. A reader that can tell need not decode them: see `Piece`.
    """

    pages: int = 0
    requests: int = 0
    bytes: int = 0
    filtered_here: int = 0
    windows: int = 0
    reread: int = 0
    duplicates: int = 0
    settles: bool = False
    unsettled: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    position: dict[str, Any] = field(default_factory=dict)
    rows: Identities = field(default_factory=Identities)
    at_rest: AtRest | None = None

    def count(self, page: Page) -> None:
        """Add a page's work."""
        self.pages += 1
        self.requests += page.tries
        self.bytes += page.size

    def counts(self) -> dict[str, Any]:
        """What has been counted so far, as JSON-able values."""
        values = {name: getattr(self, name) for name in _COUNTS}
        return {name: list(value) if isinstance(value, list) else value for name, value in values.items()}

    def go_on(self, checkpoint: Checkpoint) -> None:
        """Count on from where an earlier load stopped."""
        self.position = checkpoint.position
        self.rows = Identities(checkpoint.identities)
        for name in _COUNTS:
            setattr(
                self, name, getattr(self, name) + checkpoint.receipt.get(name, type(getattr(self, name))())
            )


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A table, with what its reader knows of it. A load takes plain tables, too.

    Attributes
    ----------
    table : pyarrow.Table
    place : tuple
        Where its rows stand in a frame of the whole, as a key to sort by. Of equal keys, the earlier piece
        comes first.
    found : list of bytes, optional
        The identities of its rows.
    digests : list of bytes
        Of the bytes its rows came in, 16 each; empty where the reader does not tell.
    known : list of bytes
        Identities of further rows, which are at rest as they came, and none of which was given out before.
    later : pyarrow.Table, optional
        Rows that came before: their later version. A load finds them, not a reader.
    asked_again : bool
        Whether rows that are known are no sign of movement: they were asked for a second time.
    """

    table: pa.Table
    place: tuple[Any, ...] = ()
    found: list[bytes] | None = None
    digests: list[bytes] = field(default_factory=list)
    known: list[bytes] = field(default_factory=list)
    later: pa.Table | None = None
    asked_again: bool = False


def joined(pieces: Sequence[Piece]) -> Piece:
    """Pieces of a load as one, with zeros for the digests of rows that have none."""
    tables = [piece.table for piece in pieces if piece.table.num_rows]
    later = [piece.later for piece in pieces if piece.later is not None]
    return Piece(
        table=pa.concat_tables(tables or [pieces[0].table]),
        found=[identity for piece in pieces for identity in piece.found or ()],
        digests=[
            digest for piece in pieces for digest in piece.digests or [bytes(16)] * piece.table.num_rows
        ],
        known=[identity for piece in pieces for identity in piece.known],
        later=pa.concat_tables(later) if later else None,
    )


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """All that a later load needs to go on from where an earlier one stopped.

    Attributes
    ----------
    position : dict
        What the tables given out make up; JSON-able.
    identities : bytes
        16 bytes a row given out, in order.
    receipt : dict
        Counts so far, how often the load went on, and when the first one began; JSON-able.
    """

    position: dict[str, Any]
    identities: bytes = field(repr=False)
    receipt: dict[str, Any]
