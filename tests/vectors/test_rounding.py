"""Rounding is told from re-embedding: in changes of an index, and in the health of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from tests.accuracy.ill_indexes import healthy_rows, to_frame
from toolkit.vectors.rounding import precision_of


def embedded(rows: int = 200, size: int = 384, *, seed: int = 0) -> Any:
    """Return unit vectors that lean to one side, as most models make them."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(rows, size)) + 0.5 * rng.normal(size=size)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix.astype(np.float32)


def framed(matrix: Any) -> pd.DataFrame:
    """Return vectors with ids and texts."""
    return pd.DataFrame(
        {
            "id": [f"v{number}" for number in range(len(matrix))],
            "vector": list(matrix),
            "data": [f"text {number}" for number in range(len(matrix))],
        }
    )


def bfloat16(matrix: Any) -> Any:
    """Round to the nearest bfloat16: the upper half of the bits of float32."""
    bits = matrix.view(np.uint32) + np.uint32(0x8000)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


def int8(matrix: Any) -> Any:
    """Round to 8 bits with a scale per row."""
    scale = np.abs(matrix).max(axis=1, keepdims=True) / 127
    return (np.round(matrix / scale) * scale).astype(np.float32)


ROUNDED: dict[str, Callable[[Any], Any]] = {
    "batch": lambda m: np.nextafter(m, np.float32(1)),
    "float16": lambda m: m.astype(np.float16).astype(np.float32),
    "bfloat16": bfloat16,
    "int8": int8,
    "6 decimals": lambda m: np.round(m, 6),
    "4 decimals": lambda m: np.round(m, 4),
    "renormalised": lambda m: m / np.linalg.norm(np.round(m, 7), axis=1, keepdims=True),
}


@pytest.mark.parametrize("form", ROUNDED)
def test_rounding_is_no_change(form: str) -> None:
    """Rounded vectors are counted and not listed, with the tolerance for their precision."""
    matrix = embedded()
    found = tk.compare_vectors(framed(matrix), framed(ROUNDED[form](matrix)))
    assert found.frame.empty
    assert found.verdict.startswith("Nothing changed in 200 vectors; ")
    assert "differ by rounding alone" in found.verdict
    assert found.rounding.rows >= 30
    assert found.rounding.largest <= found.rounding.tolerance <= 1e-3
    assert found.drift.empty


@pytest.mark.parametrize("noise", [0.05, 0.3])
def test_another_model_is_no_rounding(noise: float) -> None:
    """Vectors of another version of a model are changes, and the verdict names how far they moved."""
    matrix = embedded()
    other = matrix + noise * embedded(seed=1)
    other = (other / np.linalg.norm(other, axis=1, keepdims=True)).astype(np.float16)
    found = tk.compare_vectors(framed(matrix), framed(other.astype(np.float32)))
    assert found.counts["rows"].tolist() == [200]
    assert found.rounding.rows == 0
    median = found.moved["distance"].median()
    assert f"cosine distance of {median:.2g} at the median" in found.verdict


def test_rounding_does_not_hide_stale_texts() -> None:
    """A text that changed while its vector was only rounded still has the vector of the old text."""
    before, after = framed(embedded(50)), framed(ROUNDED["float16"](embedded(50)))
    after.loc[3, "data"] = "edited"
    found = tk.compare_vectors(before, after)
    assert found.stale["id"].tolist() == ["v3"]
    assert found.frame["change"].tolist() == ["text only"]


def test_another_length_is_a_change_of_its_own() -> None:
    """Vectors that were normalised have the same direction; a dot product ranks them differently."""
    matrix = embedded(50)
    found = tk.compare_vectors(framed(matrix * 3), framed(matrix))
    assert set(found.frame["change"]) == {"length only"}
    assert found.frame["distance"].max() < 1e-6
    assert "50 with another length of the vector" in found.verdict


def test_another_dimension_comes_first() -> None:
    """A change from 384 to 256 numbers begins the verdict and the steps of the report."""
    matrix = embedded(60)
    before, after = framed(matrix), framed(matrix[:, :256])
    found = tk.compare_vectors(before, after)
    assert found.verdict.startswith(
        "The dimension changed from 384 to 256 in the default namespace; 60 of 60"
    )
    assert "60 with a vector of another dimension" in found.verdict
    assert set(found.frame["change"]) == {"other dimension"}
    assert found.dimensions.to_numpy().tolist() == [["", 384, 256]]
    report = tk.report_index(after, previous=before)
    steps: Any = report.sections[0].parts[0]
    assert "384 to 256" in steps.rows[0][1]


@pytest.mark.parametrize("form", ["batch", "float16", "int8"])
def test_texts_with_rounded_vectors_are_duplicates(form: str) -> None:
    """One text with a vector and its rounded copy is of one model."""
    frame = to_frame(healthy_rows(200, seed=1))
    copies = frame.head(20).assign(
        id=[f"copy {number}" for number in range(20)],
        vector=list(ROUNDED[form](embedded_of(frame.head(20)))),
    )
    both = pd.concat([frame, copies], ignore_index=True)
    found = tk.audit_vectors(both).frame["finding"].tolist()
    assert "same text, other vector" not in found
    assert "duplicate" in found
    other = copies.assign(vector=list(np.roll(tk.as_matrix(copies), 5, axis=1)))
    both = pd.concat([frame, other], ignore_index=True)
    assert "same text, other vector" in tk.audit_vectors(both).frame["finding"].tolist()


def embedded_of(frame: pd.DataFrame) -> Any:
    """Return the vectors of a frame as a matrix."""
    return np.asarray(tk.as_matrix(frame), dtype=np.float32)


def test_rounded_copies_are_found_in_rows_of_any_order() -> None:
    """An audit reads rows twice, and a database can return them in another order each time."""
    random = np.random.default_rng(0)
    matrix = random.normal(size=(500, 32)).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    copies = matrix[:40].copy()
    copies[:, 0] += np.float32(6e-8)
    texts = [f"text {number}" for number in range(500)]
    rows = pd.DataFrame(
        {
            "id": [f"v{number}" for number in range(540)],
            "vector": np.concatenate([matrix, copies]).tolist(),
            "data": texts + texts[:40],
        }
    )
    shuffled = duckdb.sql(
        "SELECT id, CAST(vector AS FLOAT[]) AS vector, data FROM rows ORDER BY random()"
    )
    for source in (rows, shuffled):
        found = tk.audit_vectors(source).frame.set_index("finding")["count"]
        assert found["duplicate"] == 80
        assert "same text, other vector" not in found


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("batch", "float32"),
        ("float16", "float16"),
        ("bfloat16", "bfloat16"),
        ("int8", "8-bit integers"),
        ("4 decimals", "4 decimals"),
    ],
)
def test_the_precision_of_numbers_is_recognised(form: str, name: str) -> None:
    """By the values alone; few different values show no precision."""
    assert precision_of(ROUNDED[form](embedded())).name == name
    assert precision_of(np.eye(8, dtype=np.float32)).name == "float32"
