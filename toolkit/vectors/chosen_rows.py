"""Choose rows of a snapshot of vectors by namespace, id and prefix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from toolkit.base.arguments import nearest, text, texts
from toolkit.base.errors import InputError

_DOING: Final = "restoring a part of a snapshot"


@dataclass(frozen=True)
class ChosenRows:
    """The rows that satisfy all given conditions; None is no condition."""

    ids: tuple[str, ...] | None = None
    prefix: str | None = None
    namespaces: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        ids: str | Iterable[str] | None,
        prefix: str | None,
        namespaces: str | Sequence[str] | None,
    ) -> ChosenRows:
        """Return a selection after checks of the arguments."""
        return cls(
            ids=None if ids is None else tuple(texts("ids", ids, column="id")),
            prefix=None if prefix is None else text("prefix", prefix, empty=False),
            namespaces=None
            if namespaces is None
            else tuple(texts("from_namespaces", namespaces, empty=True)),
        )

    @property
    def is_whole(self) -> bool:
        """Return whether all rows are selected."""
        return not self.binding

    @property
    def binding(self) -> list[Any]:
        """The conditions as JSON values, for the checkpoint; empty without conditions."""
        conditions = [self.ids, self.prefix, self.namespaces]
        if conditions == [None, None, None]:
            return []

        return conditions

    def check(self, dataset: ds.Dataset) -> None:
        """Raise InputError if the snapshot has none of the namespaces, or no selected row."""
        if self.is_whole:
            return

        keys = dataset.to_table(columns=["namespace", "id"])
        known = sorted(set(keys["namespace"].to_pylist()))
        for name in self.namespaces or ():
            if name not in known:
                raise InputError(
                    f"{_DOING}, reading from_namespaces",
                    got=f"{name[:80]!r}, which the snapshot does not have",
                    expected="namespaces of the snapshot",
                    next_step=nearest(name, known),
                )

        found = [batch for batch in map(self.rows, keys.to_batches()) if batch.num_rows]
        stored = set().union(*(batch["id"].to_pylist() for batch in found))

        missing = [item for item in self.ids or () if item not in stored]
        if missing or not found:
            got = "a selection that matches no row"
            if missing:
                got = f"{len(missing):,} ids that are not there, for example {missing[0][:80]!r}"
            raise InputError(
                f"{_DOING}, reading ids, prefix and from_namespaces",
                got=got,
                expected="rows of the snapshot",
                next_step="read_snapshot lists the rows.",
            )

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the selected rows of a batch."""
        if self.namespaces is not None:
            names = pa.array(self.namespaces, pa.string())
            batch = batch.filter(pc.is_in(batch["namespace"], value_set=names))

        if self.prefix is not None:
            batch = batch.filter(pc.starts_with(batch["id"], pattern=self.prefix))
        if self.ids is not None:
            ids = pa.array(self.ids, pa.string())
            batch = batch.filter(pc.is_in(batch["id"], value_set=ids))

        return batch
