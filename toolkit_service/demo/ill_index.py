"""An embedded index with six faults, and the vectors as they were before five of them were planted."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import pandas as pd

import toolkit as tk
from toolkit.service.connecting import start_local
from toolkit_service.demo.documents import documents

NAMESPACE: Final = "runbooks"
ILLS: Final = {
    "one vector for several texts": 12,
    "stored twice, under an id in capitals": 15,
    "vector of a damaged text": 20,
    "version as text": 25,
    "text edited, vector not": 18,
}
"""The planted faults, and the number of documents with each. The sixth is a search that misses neighbours."""

_POOR: Final = ("--approximate-above", "500", "--approximate-expansion", "4")


def start_ill_index(*, seed: int = 0) -> tuple[tk.Service, pd.DataFrame]:
    """Start an embedded service with a faulty index. Return it, and the vectors before the faults.

    The service ends when it is closed, or with this process.
    """
    service = start_local("--index", "docs:dense:256:COSINE:hashing", *_POOR)
    runbooks = [document for document in documents() if document.namespace == NAMESPACE]
    rows = [
        {"id": document.id, "data": document.data, "metadata": document.metadata}
        for document in runbooks
    ]
    tk.upsert_vectors(service, rows, namespace=NAMESPACE, progress=False)
    before = tk.load_vectors(service, namespace=NAMESPACE, progress=False)
    faulty_rows, _ = plant(before, seed=seed)
    tk.upsert_vectors(service, faulty_rows, namespace=NAMESPACE, progress=False)

    return service, before


def plant(
    vectors: pd.DataFrame, *, seed: int = 0
) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """Return the rows that plant the faults, and the ids of the documents per fault.

    No document has two faults. Rows have the keys of `upsert_vectors`.
    """
    rng = np.random.default_rng(seed)
    columns = (
        vectors["id"],
        tk.as_matrix(vectors).tolist(),
        vectors["data"],
        vectors["metadata"],
    )
    rows = [
        {"id": key, "vector": vector, "data": text, "metadata": json.loads(metadata)}
        for key, vector, text, metadata in zip(*columns, strict=True)
    ]
    # each fault takes the next documents of a random order, so that no document has two
    shuffled = rng.permutation(len(rows)).tolist()

    changed: list[dict[str, Any]] = []
    planted: dict[str, list[str]] = {}
    for fault, count in ILLS.items():
        chosen = [rows[shuffled.pop()] for _ in range(count)]
        planted[fault] = sorted(row["id"] for row in chosen)
        shared_vector = chosen[0]["vector"]
        for row in chosen:
            _damage(row, fault, shared_vector, rng)
        changed += chosen

    return changed, planted


def _damage(
    row: dict[str, Any],
    fault: str,
    shared_vector: list[float],
    rng: np.random.Generator,
) -> None:
    match fault:
        case "one vector for several texts":
            row["vector"] = shared_vector
        case "stored twice, under an id in capitals":
            row["id"] = row["id"].upper()
        case "vector of a damaged text":
            noise = rng.normal(size=len(shared_vector))
            row["vector"] = (noise / np.linalg.norm(noise)).tolist()
        case "version as text":
            row["metadata"]["version"] = f"v{row['metadata']['version']}"
        case _:
            row["data"] = f"Withdrawn: ask the team on call. ({row['id']})"
