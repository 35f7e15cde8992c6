"""Add the sample to an embedded service."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from toolkit_service.demo.documents import documents
from toolkit_service.demo.history import wire_entries, wire_events, wire_runs
from toolkit_service.demo.stories import occurrences

if TYPE_CHECKING:
    from toolkit_service.queue.state import Store
    from toolkit_service.vectors.index_registry import IndexRegistry

INDEX: Final = "docs"
"""The vector index for the documents."""


def fill(store: Store, registry: IndexRegistry) -> None:
    """Add the sample, which ends now, to a queue, and the documents to `INDEX`."""
    now_ms = time.time_ns() // 1_000_000
    failures = occurrences()
    entries = wire_entries(now_ms, failures)
    store.insert_failures(entries)
    store.insert_runs(wire_runs(now_ms, failures))
    store.insert_events(wire_events(now_ms, failures, entries))

    # the user may have chosen other indexes, or an index without a model
    models = {spec.name: spec.model for spec in registry.specs()}
    if not models.get(INDEX):
        return

    rows = defaultdict[str, list[dict[str, Any]]](list)
    for document in documents():
        row = {"id": document.id, "data": document.data, "metadata": document.metadata}
        rows[document.namespace].append(row)

    for namespace, rows_of_namespace in rows.items():
        registry.get(INDEX).upsert_data(rows_of_namespace, namespace=namespace)
