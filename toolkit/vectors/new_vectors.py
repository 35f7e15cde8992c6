"""Test whether the new vectors of an index are like the old ones, per namespace and by document."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from toolkit.vectors.documents import NOT_FOUND, DocumentFinder
from toolkit.vectors.drift import PERMUTATIONS, drift
from toolkit.vectors.vector_rows import IndexRows, typed_tuples

_LEAST: Final = 20  # vectors of a namespace that are needed to compare distributions
_CHANCE, _UNLIKELY = 0.5, 0.05  # of an area under the curve; of a p-value
_MEASURES: Final = ("auc", "low", "high", "energy", "p_value")


def drifts(
    is_new: pd.DataFrame,
    before: IndexRows,
    after: IndexRows,
    finder: DocumentFinder,
    seed: int,
) -> pd.DataFrame:
    """Return one row per namespace with enough vectors: measures of drift, and how documents were found.

    `is_new` has the namespace and id of each vector that appeared or changed.
    """
    rows: list[tuple[Any, ...]] = []
    for name in sorted(before.sampled.keys() & after.sampled.keys()):
        old_at, old = before.sampled[name]
        new_at, new_vectors = after.sampled[name]
        old_ids = before.rows["id"].to_numpy(dtype=object)[old_at]
        new_ids = after.rows["id"].to_numpy(dtype=object)[new_at]
        inside = is_new["id"][is_new["namespace"] == name].to_numpy(dtype=str)

        kept = np.isin(new_ids.astype(str), inside)
        if (
            min(len(old), int(kept.sum())) < _LEAST
            or old.shape[1] != new_vectors.shape[1]
        ):
            continue

        how, documents = finder.documents(name, (old_ids, new_ids[kept]))
        found = drift(old, new_vectors[kept], groups=documents, seed=seed)
        rows.append((name, *(getattr(found, measure) for measure in _MEASURES), how))

    return typed_tuples(
        rows, namespace="str", **dict.fromkeys(_MEASURES, "float64"), documents="str"
    )


def drift_sentences(table: pd.DataFrame) -> list[str]:
    """Return the statements about namespaces whose new vectors differ or may differ."""
    if table.empty:
        return []

    # With many namespaces, some p-value is low by chance, so the limit is divided by their number
    # (Bonferroni). It cannot be below the least p-value that permutations can give.
    limit = max(_UNLIKELY / len(table), 1 / (1 + PERMUTATIONS))
    drifted = table[(table["low"] > _CHANCE) & (table["p_value"] <= limit)]
    has_documents = drifted["documents"] != NOT_FOUND
    sentences = []
    if has_documents.any():
        places = _places(drifted[has_documents])
        sentences.append(f"new vectors differ from old ones in {places}")

    if not has_documents.all():
        places = _places(drifted[~has_documents])
        sentences.append(
            f"new vectors may differ from old ones in {places}, or are chunks of few documents:"
            " pass groups= to test that"
        )

    return sentences


def _places(drifted: pd.DataFrame) -> str:
    named = [name or "the default namespace" for name in drifted["namespace"][:3]]
    if len(drifted) > len(named):
        named.append(f"{len(drifted) - len(named)} more")
    return ", ".join(named)
