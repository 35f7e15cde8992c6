"""Hybrid collections in which fusing is known to help, to harm, and to change nothing on average."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pandas as pd
import requests

import toolkit as tk
from toolkit_service.demo.local_service import LocalService

DIMENSION, DOCUMENTS = 32, 400

COLLECTIONS = {
    "helps: both legs err, each on its own": (1.6, 1.6),
    "a wash for RRF: the sparse leg is worse": (1.0, 1.35),
    "harms: the sparse leg is nearly random": (0.6, 8.0),
}
"""By name: the noise of queries in the dense and the sparse leg."""


def documents(seed: int) -> tuple[list[dict[str, object]], np.ndarray]:
    """Documents whose dense and sparse vectors are the same numbers, and these."""
    topics = np.random.default_rng([seed, 0]).standard_normal((DOCUMENTS, DIMENSION))
    indices = list(range(DIMENSION))
    return [
        {"id": f"d{n}", "vector": row, "sparse": (indices, row)}
        for n, row in enumerate(topics)
    ], topics


def queries(
    topics: np.ndarray, noise: tuple[float, float], count: int, seed: int
) -> tuple[list[tk.VectorQuery], pd.DataFrame]:
    """Queries that each have one relevant document, seen through noise in either leg; and judgements."""
    rng = np.random.default_rng([seed, 1])
    wanted = rng.integers(0, DOCUMENTS, count)
    dense, sparse = (
        topics[wanted] + scale * rng.standard_normal((count, DIMENSION))
        for scale in noise
    )
    indices = list(range(DIMENSION))
    made = [
        tk.VectorQuery(vector=one, sparse=(indices, two))
        for one, two in zip(dense, sparse, strict=True)
    ]
    return made, pd.DataFrame({"query": range(count), "id": [f"d{n}" for n in wanted]})


@contextmanager
def hybrid_index(
    rows: list[dict[str, object]], *, rank_start: int = 1
) -> Iterator[tk.Service]:
    """A hybrid index of the embedded service with these rows, which counts ranks from a number."""
    with LocalService(indexes=[]) as running:
        url = f"{running.url}/vector/fusions"
        requests.put(
            url,
            json={
                "kind": "hybrid",
                "dimension": DIMENSION,
                "similarity": "COSINE",
                "rank_start": rank_start,
            },
            headers={"Authorization": f"Bearer {running.token}"},
            timeout=10,
        ).raise_for_status()
        service = tk.connect(vector_url=url, vector_token=running.token, environ={})
        tk.upsert_vectors(service, rows, progress=False)
        yield service
