"""Drop the rows of a load of vectors that a metadata filter does not match."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, Final

import pyarrow as pa

from toolkit.filters.metadata import MetadataFilter
from toolkit.loading.load import Batch, LoadState
from toolkit.service.vectors import VectorParts
from toolkit.tables.frames import to_frame
from toolkit.tables.metadata_fields import metadata_values
from toolkit.tables.unmatched_conditions import explain_no_match

_METADATA: Final = "metadata"
_EXPLAINED: Final = (
    10_000  # rows that an explanation uses at least, if there are as many
)


@dataclass
class FilteredBatches:
    """Select the rows of batches by their metadata. Without a condition, batches stay as they are."""

    condition: MetadataFilter | None
    parts: VectorParts
    state: LoadState
    _unmatched: list[Any] = field(default_factory=list)
    _has_match: bool = False

    @property
    def parts_to_read(self) -> VectorParts:
        """The requested parts, and metadata if the condition needs them."""
        if self.condition is None:
            return self.parts
        return replace(self.parts, metadata=True)

    def matching(self, batch: Batch) -> Batch:
        """Return the matching rows of a batch, and count the others."""
        if self.condition is None:
            return batch

        if batch.later_versions is not None:
            # the earlier version has been yielded or dropped already
            self.state.unsettled.append(
                f"{batch.later_versions.num_rows:,} changed while being read, and the filter was applied to "
                "an earlier version"
            )

        is_match = self._matches(batch.table)
        self.state.filtered_here += is_match.count(False)

        return replace(
            batch,
            table=self._without_metadata(
                batch.table.filter(pa.array(is_match, pa.bool_()))
            ),
            identities=list(compress(batch.identities, is_match)),
            digests=list(compress(batch.digests, is_match)),
        )

    def _matches(self, table: pa.Table) -> list[bool]:
        condition = self.condition
        if condition is None or not table.num_rows:
            return []

        metadata = list(metadata_values(to_frame(table.select([_METADATA]))[_METADATA]))
        is_match = [condition.matches(value) for value in metadata]
        self._has_match = self._has_match or any(is_match)
        if not self._has_match and len(self._unmatched) < _EXPLAINED:
            self._unmatched += metadata
        return is_match

    def explanations(self) -> list[str]:
        """Return why no row matches; empty if any does."""
        if self.condition is None or self._has_match or not self._unmatched:
            return []
        return explain_no_match(self._unmatched, self.condition)

    def _without_metadata(self, table: pa.Table) -> pa.Table:
        """Return the table without the metadata if they were read only for the condition."""
        if self.parts.metadata:
            return table

        position = table.schema.get_field_index(_METADATA)
        kind = table.schema.field(position)
        return table.set_column(position, kind, pa.nulls(table.num_rows, kind.type))
