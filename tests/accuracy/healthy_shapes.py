"""Vectors of healthy indexes in several shapes: what an audit should find nothing wrong with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[Any]
# rows of a topic: a single row on a subject of its own is an outlier by any rule
_LEAST = 5


def _topics(rng: np.random.Generator, rows: int, dimension: int) -> Matrix:
    """Twelve topics of different sizes and widths."""
    topic = _members(rng, rows, np.arange(1.0, 13))
    centres, width = rng.normal(size=(12, dimension)), rng.uniform(0.5, 1, 12)
    return centres[topic] + width[topic, None] * rng.normal(size=(rows, dimension))


def _many_topics(rng: np.random.Generator, rows: int, dimension: int) -> Matrix:
    """As many topics as rows allow, the frequency of each inverse to its rank."""
    count = max(4, rows // 40)
    topic = _members(rng, rows, 1 / np.arange(1.0, count + 1))
    centres, width = rng.normal(size=(count, dimension)), rng.uniform(0.3, 0.9, count)
    return centres[topic] + width[topic, None] * rng.normal(size=(rows, dimension))


def _members(
    rng: np.random.Generator, rows: int, weights: Matrix
) -> npt.NDArray[np.int64]:
    first = np.repeat(np.arange(len(weights)), _LEAST)
    return np.concatenate(
        [first, rng.choice(len(weights), rows - len(first), p=weights / weights.sum())]
    )


def _nested_topics(rng: np.random.Generator, rows: int, dimension: int) -> Matrix:
    """Twenty topics in four fields, rows of different widths."""
    fields = rng.normal(size=(4, dimension))
    topics = fields[np.arange(20) % 4] + 0.6 * rng.normal(size=(20, dimension))
    width = rng.uniform(0.35, 0.65, (rows, 1))
    return topics[_members(rng, rows, np.ones(20))] + width * rng.normal(
        size=(rows, dimension)
    )


def _documents(rng: np.random.Generator, rows: int, dimension: int) -> Matrix:
    """Documents of one to twelve chunks in eight topics: a twelfth of them have one chunk only."""
    topics, found = rng.normal(size=(8, dimension)), []
    while len(found) < rows:
        document = topics[rng.integers(8)] + 0.8 * rng.normal(size=dimension)
        found += [
            document + 0.4 * rng.normal(size=dimension)
            for _ in range(rng.integers(1, 13))
        ]
    return np.array(found[:rows])


def _surface(rng: np.random.Generator, rows: int, dimension: int) -> Matrix:
    """A curved surface of ten parameters, with a little noise."""
    bent = rng.uniform(-1, 1, (rows, 10)) @ rng.normal(size=(10, dimension)) * 0.5
    return np.tanh(bent + rng.normal(size=dimension)) + 0.05 * rng.normal(
        size=(rows, dimension)
    )


SHAPES: dict[str, Callable[[np.random.Generator, int, int], Matrix]] = {
    "normal": lambda rng, rows, dimension: rng.normal(size=(rows, dimension)),
    "off centre": lambda rng, rows, dimension: rng.normal(size=(rows, dimension)) + 1,
    "falling spectrum": lambda rng, rows, dimension: (
        rng.normal(size=(rows, dimension)) * np.arange(1, dimension + 1) ** -0.4 + 0.1
    ),
    "heavy tails": lambda rng, rows, dimension: rng.standard_t(
        4, size=(rows, dimension)
    ),
    "topics": _topics,
    "many topics": _many_topics,
    "nested topics": _nested_topics,
    "documents": _documents,
    "surface": _surface,
}
"""By name: what makes so many vectors of a dimension."""


def healthy_matrix(
    shape: str, rows: int, dimension: int, *, seed: int, outliers: int = 0
) -> Matrix:
    """Unit vectors of a shape; the last `outliers` of them have random directions."""
    rng = np.random.default_rng([seed, rows, dimension])
    matrix = SHAPES[shape](rng, rows, dimension)
    if outliers:
        matrix[-outliers:] = rng.normal(size=(outliers, dimension))
    return (matrix / np.linalg.norm(matrix, axis=1, keepdims=True)).astype(np.float32)
