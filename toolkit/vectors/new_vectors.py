"""Test whether the new vectors of an index are like the old ones, per namespace and by document.

Documents about another subject differ from the old ones, and so do vectors of another model. The nearest old
vectors tell these apart: a vector of another model is as far from them as from unrelated vectors, which are
the old ones with their numbers in another order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from toolkit.vectors.documents import NOT_FOUND, DocumentFinder
from toolkit.vectors.drift import NO_DIFFERENCE, PERMUTATIONS, UNLIKELY, drift
from toolkit.vectors.exact_comparison import unit_rows
from toolkit.vectors.vector_batches import Matrix
from toolkit.vectors.vector_rows import IndexRows, typed_tuples

_LEAST: Final = 20  # vectors of a namespace that are needed to compare distributions


@dataclass(frozen=True)
class UnrelatedTuning:
    """Constants of the test for another model."""

    rows: int = 1_000
    """Vectors of each side that are compared, drawn at random; enough for a median."""
    least_gap: float = 0.1
    """Old vectors must be nearer to each other than to unrelated ones by this cosine, to tell these apart."""
    most_related: float = 0.25
    """Share of this gap up to which new vectors have nothing to do with old ones. New subjects of real
    models share a direction with the old ones, which is half of the gap or more."""


_TUNING: Final = UnrelatedTuning()
_MEASURES: Final = ("auc", "low", "high", "energy", "p_value")


def drifts(
    is_new: pd.DataFrame,
    before: IndexRows,
    after: IndexRows,
    finder: DocumentFinder,
    seed: int,
) -> pd.DataFrame:
    """Return one row per namespace with enough vectors: measures of drift, documents, and the test of models.

    `is_new` has the namespace, the id and the change of each vector that appeared or changed.
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
        measures = (getattr(found, measure) for measure in _MEASURES)
        # vectors that moved are changes of their own: those that appeared are compared with the others
        appeared = is_new["id"][
            (is_new["namespace"] == name) & (is_new["change"] == "appeared")
        ]
        has_appeared = np.isin(new_ids.astype(str), appeared.to_numpy(dtype=str))
        is_unrelated = found.is_clear and _are_unrelated(
            new_vectors[~kept], new_vectors[has_appeared], seed
        )
        rows.append((name, *measures, how, is_unrelated))

    return typed_tuples(
        rows, namespace="str", **dict.fromkeys(_MEASURES, "float64"), documents="str", unrelated="bool"
    )  # fmt: skip


def _are_unrelated(old: Matrix, new: Matrix, seed: int) -> bool:
    """Return whether new vectors are as far from the old ones as unrelated vectors are."""
    if min(len(old), len(new)) < _LEAST:
        return False

    rng = np.random.default_rng([seed, 6])
    old_rows, new_rows = (
        unit_rows(side[rng.permutation(len(side))[: _TUNING.rows]])
        for side in (old, new)
    )
    own = old_rows @ old_rows.T
    np.fill_diagonal(own, -1.0)
    usual = float(np.median(own.max(axis=1)))
    # one order for all rows, so that they stay alike
    shuffled = old_rows[:, rng.permutation(old_rows.shape[1])]
    unrelated = float(np.median((new_rows @ shuffled.T).max(axis=1)))
    actual = float(np.median((new_rows @ old_rows.T).max(axis=1)))
    gap = usual - unrelated

    return gap > _TUNING.least_gap and actual - unrelated < _TUNING.most_related * gap


def drift_sentences(table: pd.DataFrame) -> list[str]:
    """Return the statements about namespaces whose new vectors differ or may differ."""
    if table.empty:
        return []

    # With many namespaces, some p-value is low by chance, so the limit is divided by their number
    # (Bonferroni). It cannot be below the least p-value that permutations can give.
    limit = max(UNLIKELY / len(table), 1 / (1 + PERMUTATIONS))
    drifted = table[(table["low"] > NO_DIFFERENCE) & (table["p_value"] <= limit)]
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
