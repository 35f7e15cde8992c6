"""An embedded index that is ill in six ways, and its vectors as they were before five of them."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import pandas as pd

import toolkit as tk
from toolkit.settings.service import start_local
from toolkit_demo.documents import documents

NAMESPACE: Final = "runbooks"
ILLS: Final = {
    "one vector for several texts": 12,
    "stored twice, under an id in capitals": 15,
    "vector of a damaged text": 20,
    "version as text": 25,
    "text edited, vector not": 18,
}
"""What is planted, and in how many documents each; the sixth is a search that misses neighbours."""

_POOR: Final = ("--approximate-above", "500", "--approximate-expansion", "4")


def start_ill_index(*, seed: int = 0) -> tuple[tk.Service, pd.DataFrame]:
    """Start an embedded service with an ill index; returns it, and its vectors before they were ill.

    The service ends when it is closed, or with this process.
    """
    service = start_local("--index", "docs:dense:256:COSINE:hashing", *_POOR)
    rows = [
        {"id": document.id, "data": document.data, "metadata": document.metadata}
        for document in documents()
        if document.namespace == NAMESPACE
    ]
    tk.upsert_vectors(service, rows, namespace=NAMESPACE, progress=False)
    before = tk.load_vectors(service, namespace=NAMESPACE, progress=False)
    ill, _ = plant(before, seed=seed)
    tk.upsert_vectors(service, ill, namespace=NAMESPACE, progress=False)
    return service, before


def plant(vectors: pd.DataFrame, *, seed: int = 0) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """The rows that make these vectors ill, and the ids of the documents of each ill.

    No document has two ills. Rows have the keys that `upsert_vectors` takes.
    """
    rng = np.random.default_rng(seed)
    rows = [
        {"id": key, "vector": vector, "data": text, "metadata": json.loads(metadata)}
        for key, vector, text, metadata in zip(
            vectors["id"], tk.as_matrix(vectors).tolist(), vectors["data"], vectors["metadata"], strict=True
        )
    ]
    free = rng.permutation(len(rows)).tolist()
    changed: list[dict[str, Any]] = []
    planted: dict[str, list[str]] = {}
    for name, count in ILLS.items():
        chosen = [rows[free.pop()] for _ in range(count)]
        planted[name] = sorted(row["id"] for row in chosen)
        first = chosen[0]["vector"]
        for row in chosen:
            match name:
                case "one vector for several texts":
                    row["vector"] = first
                case "stored twice, under an id in capitals":
                    row["id"] = row["id"].upper()
                case "vector of a damaged text":
                    noise = rng.normal(size=len(first))
                    row["vector"] = (noise / np.linalg.norm(noise)).tolist()
                case "version as text":
                    row["metadata"]["version"] = f"v{row['metadata']['version']}"
                case _:
                    row["data"] = f"Withdrawn: ask the team on call. ({row['id']})"
            changed.append(row)
    return changed, planted
