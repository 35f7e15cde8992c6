"""Putting the sample into an embedded service."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Final

from toolkit_demo.documents import documents
from toolkit_demo.history import wire_entries, wire_events, wire_runs
from toolkit_demo.stories import occurrences

if TYPE_CHECKING:
    from toolkit.local.queue.state import Store
    from toolkit.local.vectors.vector_index import IndexRegistry

INDEX: Final = "docs"
"""The vector index that gets the documents."""


def fill(store: Store, registry: IndexRegistry) -> None:
    """Put the sample, ending now, into a queue, and its documents into `INDEX`."""
    now_ms = time.time_ns() // 1_000_000
    failed = occurrences()
    store.insert_failures(wire_entries(now_ms, failed))
    store.insert_runs(wire_runs(now_ms, failed))
    store.insert_events(wire_events(now_ms, failed))
    if not any(spec.name == INDEX and spec.model for spec in registry.specs()):
        return  # the user chose other indexes
    index = registry.get(INDEX)
    for namespace, found in itertools.groupby(documents(), key=lambda document: document.namespace):
        rows = [
            {"id": document.id, "data": document.data, "metadata": document.metadata} for document in found
        ]
        index.upsert_data(rows, namespace=namespace)
