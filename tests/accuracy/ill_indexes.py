"""Frames of vectors, healthy or with planted defects, as `load_vectors` returns them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import vectors

DIMENSION = 64


def healthy_rows(count: int, *, seed: int) -> list[dict[str, Any]]:
    """Rows in 12 topics of different sizes and widths: unit vectors, texts and metadata in all of them.

    From 100 rows on, a topic has at least five: a row on a subject of its own is an outlier by any rule.
    """
    rng = np.random.default_rng(seed)
    topics = rng.normal(size=(12, DIMENSION))
    topic = rng.choice(12, count, p=np.arange(1, 13) / 78)
    while count >= 100 and (sizes := np.bincount(topic, minlength=12)).min() < 5:
        topic[np.flatnonzero(topic == sizes.argmax())[0]] = sizes.argmin()
    width = rng.uniform(0.5, 1.0, 12)[topic, None]
    matrix = topics[topic] + width * rng.normal(size=(count, DIMENSION))
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return [
        {
            "namespace": "",
            "id": f"doc-{number:05}",
            "vector": matrix[number].astype(np.float32).tolist(),
            "data": f"text {number} of topic {topic[number]}",
            "metadata": {
                "topic": int(topic[number]),
                "year": int(rng.integers(2015, 2026)),
                "lang": "en",
            }
            | ({"reviewed": True} if rng.random() < 0.3 else {}),
        }
        for number in range(count)
    ]


def to_frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """The rows as a frame; the column of vectors has a fixed size where they all have one."""
    texts = [
        row | {"metadata": row["metadata"] and json.dumps(row["metadata"])}
        for row in rows
    ]
    sizes = {len(row["vector"]) for row in rows if row["vector"] is not None}
    return frame_from_rows(texts, vectors(sizes.pop() if len(sizes) == 1 else None))


def _unit(values: Any) -> list[float]:
    array = np.asarray(values, dtype=np.float64)
    return [
        float(value) for value in (array / np.linalg.norm(array)).astype(np.float32)
    ]


def _plant(
    change: Callable[[dict[str, Any], np.random.Generator], None],
) -> Callable[..., None]:
    def plant(
        rows: list[dict[str, Any]], chosen: list[int], rng: np.random.Generator
    ) -> None:
        for number in chosen:
            change(rows[number], rng)

    return plant


def _copies(*, text: bool, vector: str) -> Callable[..., None]:
    """Every second of the chosen rows becomes like the one before it."""

    def plant(
        rows: list[dict[str, Any]], chosen: list[int], rng: np.random.Generator
    ) -> None:
        for one, two in zip(chosen[::2], chosen[1::2], strict=True):
            if text:
                rows[two]["data"] = rows[one]["data"]
            if vector == "equal":
                rows[two]["vector"] = list(rows[one]["vector"])
            elif vector == "near":
                noise = rng.normal(0, 0.002, DIMENSION)
                rows[two]["vector"] = _unit(np.array(rows[one]["vector"]) + noise)

    return plant


def _almost_equal_ids(
    rows: list[dict[str, Any]], chosen: list[int], rng: np.random.Generator
) -> None:
    for one, two in zip(chosen[::2], chosen[1::2], strict=True):
        rows[two]["id"] = (
            rows[one]["id"].upper() if rng.random() < 0.5 else f"{rows[one]['id']} "
        )


def _drop(row: dict[str, Any], field: str) -> None:
    del row["metadata"][field]


DEFECTS: dict[str, Callable[..., None]] = {
    "several dimensions": _plant(
        lambda row, rng: row.update(vector=_unit(rng.normal(size=32)))
    ),
    "not finite": _plant(
        lambda row, rng: row.update(vector=[float("nan"), *row["vector"][1:]])
    ),
    "zero vector": _plant(lambda row, rng: row.update(vector=[0.0] * DIMENSION)),
    "without vector": _plant(lambda row, rng: row.update(vector=None)),
    "without text": _plant(lambda row, rng: row.update(data=None)),
    "not normalised": _plant(
        lambda row, rng: row.update(vector=[3 * value for value in row["vector"]])
    ),
    "duplicate": _copies(text=True, vector="equal"),
    "same vector, other text": _copies(text=False, vector="equal"),
    "same text, other vector": _copies(text=True, vector="own"),
    "near duplicate": _copies(text=False, vector="near"),
    "outlier": _plant(
        lambda row, rng: row.update(vector=_unit(rng.normal(size=DIMENSION)))
    ),
    "id almost equal": _almost_equal_ids,
    "without metadata": _plant(lambda row, rng: row.update(metadata=None)),
    "field missing": _plant(lambda row, rng: _drop(row, "lang")),
    "field of several types": _plant(
        lambda row, rng: row["metadata"].update(year=str(row["metadata"]["year"]))
    ),
    "field rare and alike": _plant(
        lambda row, rng: row["metadata"].update(review=True)
    ),
    "padded with zeros": _plant(
        lambda row, rng: row.update(vector=_unit([*row["vector"][:-8], *[0.0] * 8]))
    ),
}
"""Defects of single rows, by the name of their finding."""


def ill_frame(
    count: int, *, seed: int, defects: dict[str, int]
) -> tuple[pd.DataFrame, dict[str, set[str]]]:
    """A frame with each defect planted in so many rows, no row twice; and the ids of the rows of each."""
    rng = np.random.default_rng([seed, 1])
    rows = healthy_rows(count, seed=seed)
    free = rng.permutation(count).tolist()
    planted = {}
    for name, number in defects.items():
        chosen = [free.pop() for _ in range(number)]
        DEFECTS[name](rows, chosen, rng)
        planted[name] = {rows[position]["id"] for position in chosen}
    return to_frame(rows), planted
