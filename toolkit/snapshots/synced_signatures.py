"""Sign the rows of a sync, and rename ids of stored rows whose templates the new rows join.

For example, a snapshot has the failures "no stock for apples" and "no stock for pears", with an id each. The
next sync adds "no stock for plums". Now all three have the template "no stock for <value>" and one id, as if
they had been loaded together. The manifest maps the earlier two ids to it, so that their rules still apply.

If an older version of the rules signed the stored rows, all of them are signed again. The manifest then maps
each of their ids to the id that most of its rows have now.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.secrets.redaction import Redactor
from toolkit.signatures.signing import Learned
from toolkit.snapshots.data_files import stored_failures
from toolkit.snapshots.new_rows import NewRows
from toolkit.snapshots.row_index import Mask, Positions
from toolkit.snapshots.transaction import Transaction
from toolkit.tables.signed_rows import (
    SIGNATURE,
    SIGNED_COLUMNS,
    BodyReader,
    UnsignedRows,
    renamed_ids,
    with_ids,
    with_renamed,
)


class SyncedSignatures:
    """The signatures of the rows of a sync. `learn` comes before all other methods."""

    def __init__(self, transaction: Transaction, new: NewRows) -> None:
        self.learned = transaction.learned
        self.renamed: dict[str, str] = {}
        """Ids of stored rows that become another id."""
        self.renamed_files: set[str] = set()
        """Paths of the data files that contain such an id."""
        self._transaction = transaction
        self._new = new
        self._reader = BodyReader(Redactor())
        self._ids = pa.array([], pa.string())
        self._new_numbers: npt.NDArray[np.int32] = np.zeros(
            len(new.entries), dtype=np.int32
        )
        self._stored_numbers: npt.NDArray[np.int32] | None = None
        self._older_ids: Counter[tuple[str | None, int]] = Counter()
        """The rows of each stored id and number, of rows that are signed again."""

    def learn(self, unsigned: Mask | None = None) -> None:
        """Read all new rows, and sign them. `unsigned` selects stored rows to sign, of older rules."""
        rows = UnsignedRows(self._reader)
        self._read_new(rows)
        if unsigned is not None:
            self._read_stored(rows, unsigned)

        before = self.learned
        joined = before.joined_by(rows.documents)
        if joined is not before:
            self._rename(before, joined)
        self._ids, learned = rows.sign(joined.with_renamed(self.renamed))
        learned = learned.with_renamed(self._renamed_by_rules())
        self.learned = learned.without_renamed(self._ids.to_pylist())

    def of_new(self, rows: Positions | slice) -> pa.Array:
        """Return the signatures of new rows."""
        return self._ids.take(pa.array(self._new_numbers[rows]))

    def with_signatures(self, table: pa.Table, rows: slice) -> pa.Table:
        """Return stored rows with their present signatures. `rows` are their positions in the index."""
        if self._stored_numbers is not None:
            return with_ids(table, self._ids.take(pa.array(self._stored_numbers[rows])))
        if self.renamed:
            return with_renamed(table, self.renamed)

        return table

    def _read_new(self, rows: UnsignedRows) -> None:
        for group in self._new.groups(self._new.chosen):
            bodies = (table["response_body"].to_pylist() for table, _ in group)
            self._reader.read_ahead(chain.from_iterable(bodies))
            for table, positions in group:
                self._new_numbers[positions] = rows.add(table)

        self._reader.read_ahead(())  # forgets the bodies of the last group

    def _read_stored(self, rows: UnsignedRows, unsigned: Mask) -> None:
        self._stored_numbers = np.zeros(len(unsigned), dtype=np.int32)
        for _, table, positions in self._stored_tables([*SIGNED_COLUMNS, SIGNATURE]):
            chosen = unsigned[positions]
            chosen_rows = table.filter(pa.array(chosen))
            numbers = rows.add(chosen_rows)
            self._stored_numbers[positions][chosen] = numbers
            stored_ids = chosen_rows[SIGNATURE].to_pylist()
            self._older_ids.update(zip(stored_ids, numbers.tolist(), strict=True))

    def _renamed_by_rules(self) -> dict[str, str]:
        """Return the ids that older rules gave, with the ids that most of their rows have now."""
        before = self._transaction.previous
        if before is None or not self._older_ids:
            return {}

        present_ids = self._ids.to_pylist()
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for (stored_id, number), count in self._older_ids.items():
            if stored_id is not None:
                counts[stored_id][present_ids[number]] += count

        renamed = {stored_id: _most_frequent(ids) for stored_id, ids in counts.items()}
        renamed_before = {
            earlier: renamed[stored_id]
            for earlier, stored_id in before.learned.renamed.items()
            if stored_id in renamed
        }
        return renamed_before | renamed

    def _rename(self, before: Learned, joined: Learned) -> None:
        """Find out which ids of stored rows change, from the first row of each id."""
        files_of_ids: dict[str, set[str]] = {}
        first_rows = []
        columns = [*SIGNED_COLUMNS, SIGNATURE]
        for path, table, _ in self._stored_tables(columns):
            distinct = table[SIGNATURE].to_pandas().dropna().drop_duplicates()
            unknown = []
            for row, stored_id in distinct.items():
                if stored_id not in files_of_ids:
                    unknown.append(row)
                files_of_ids.setdefault(stored_id, set()).add(path)
            first_rows.append(table.take(pa.array(unknown, pa.int64())))

        if not first_rows:
            return

        rows = pa.concat_tables(first_rows)
        self.renamed = renamed_ids(rows, before, joined, self._reader)
        for stored_id in self.renamed:
            self.renamed_files |= files_of_ids[stored_id]

    def _stored_tables(
        self, columns: Sequence[str] = SIGNED_COLUMNS
    ) -> Iterator[tuple[str, pa.Table, slice]]:
        """Yield the stored rows in tables, with the path of their file and their positions in the index."""
        before = self._transaction.previous
        if before is None:
            return

        for file, rows in before.slices:
            start = rows.start
            for table in stored_failures(
                self._transaction.store, before, file, columns
            ):
                yield file.path, table, slice(start, start := start + table.num_rows)


def _most_frequent(ids: Counter[str]) -> str:
    """Return the id with the most rows, whatever the order of the rows."""
    return min(ids, key=lambda one: (-ids[one], one))
