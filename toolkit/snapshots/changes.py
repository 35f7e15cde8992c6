"""What a sync found: the added, the changed and the gone entries, and the receipt of its load."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from toolkit.errors import SnapshotError
from toolkit.receipt import Receipt
from toolkit.redaction import escape_html
from toolkit.snapshots.columns import FAILURES_AT_REST
from toolkit.snapshots.folder import SnapshotStore
from toolkit.snapshots.manifest import REPAIRED, repairs
from toolkit.tables.frames import to_frame


@dataclass(frozen=True)
class Piece:
    """Rows of one data file.

    Attributes
    ----------
    path : str
        Relative to the snapshot.
    rows : int
    places : numpy.ndarray or None
        Which rows of the file; None for all.
    """

    path: str
    rows: int
    places: npt.NDArray[np.int64] | None


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Changes:
    """What a sync found. The frames are read from the snapshot when they are first asked for.

    Attributes
    ----------
    receipt : Receipt
        Of the load. Nothing is marked gone unless it is complete.
    rows : int
        Rows in the snapshot now, those gone included.
    folder : SnapshotStore
        Where it lies.
    added_pieces, changed_pieces, gone_pieces : tuple of Piece
        Where in its files the rows of the frames are.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from toolkit import sync_failures
    >>> with TemporaryDirectory() as folder:
    ...     changes = sync_failures(service, f"{folder}/failures", progress=False)
    ...     len(changes.added), len(changes.changed), len(changes.gone)
    (5000, 0, 0)
    """

    receipt: Receipt
    rows: int
    folder: SnapshotStore = field(repr=False)
    added_pieces: tuple[Piece, ...]
    changed_pieces: tuple[Piece, ...]
    gone_pieces: tuple[Piece, ...]

    @cached_property
    def added(self) -> pd.DataFrame:
        """Entries never seen before: as in a failures frame, `first_seen_at`, `gone_after`, `gone_before`."""
        return self._frame(self.added_pieces)

    @cached_property
    def changed(self) -> pd.DataFrame:
        """Entries with new content, as they are now, and those back after having been gone."""
        return self._frame(self.changed_pieces)

    @cached_property
    def gone(self) -> pd.DataFrame:
        """Entries no longer there, as last seen; they left between `gone_after` and `gone_before`."""
        return self._frame(self.gone_pieces)

    @property
    def counts(self) -> dict[str, int]:
        """How many were added, changed and gone, without reading them."""
        pieces = {"added": self.added_pieces, "changed": self.changed_pieces, "gone": self.gone_pieces}
        return {name: sum(piece.rows for piece in several) for name, several in pieces.items()}

    @property
    def verdict(self) -> str:
        """One sentence: the counts, what a repair did, and why nothing is called gone, if so."""
        counted = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        counted = "; ".join((counted, *(REPAIRED + said for said in repairs((self.receipt.to_dict(),)))))
        if self.receipt.complete:
            return counted
        return f"{counted} (the load is not complete, so nothing was marked gone)"

    def __repr__(self) -> str:
        return f"Changes({self.verdict}; {self.rows:,} rows in {self.folder}; {self.receipt.verdict})"

    def _repr_html_(self) -> str:
        facts = {
            **{name: f"{count:,}" for name, count in self.counts.items()},
            "rows in the snapshot": f"{self.rows:,}",
            "snapshot": str(self.folder),
            "load": self.receipt.verdict,
        }
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left">{escape_html(name)}</th>'
            f'<td style="text-align:left">{escape_html(value)}</td></tr>'
            for name, value in facts.items()
        )
        return f"<table><caption>{escape_html(self.verdict)}</caption>{rows}</table>"

    def _frame(self, pieces: tuple[Piece, ...]) -> pd.DataFrame:
        tables = [self._table(piece) for piece in pieces if piece.rows]
        return to_frame(pa.concat_tables(tables) if tables else FAILURES_AT_REST.empty_table(), self.receipt)

    def _table(self, piece: Piece) -> pa.Table:
        try:
            with self.folder.open(piece.path) as file:
                table = pq.read_table(file).replace_schema_metadata(None)
        except FileNotFoundError:
            raise SnapshotError(
                f"reading the changes of the snapshot {self.folder}",
                got="files that a later sync has replaced",
                expected="the files this sync wrote",
                next_step="Ask for .added, .changed and .gone before the next sync, or read the snapshot.",
            ) from None
        return table if piece.places is None else table.take(pa.array(piece.places))
