"""Vectors as embeddings are: in clusters of clusters. Without structure approximate search finds little."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def clustered(count: int, dimension: int, *, seed: int) -> NDArray[np.float32]:
    """Vectors of a fixed set of 2,000 clusters in 50 topics, shape (count, dimension)."""
    fixed = np.random.default_rng(0)
    topics = fixed.standard_normal((50, dimension))
    centres = topics[fixed.integers(50, size=2000)] + 0.6 * fixed.standard_normal(
        (2000, dimension)
    )
    numbers = np.random.default_rng(seed)
    noise = 0.4 * numbers.standard_normal((count, dimension), dtype=np.float32)
    return centres.astype(np.float32)[numbers.integers(2000, size=count)] + noise
