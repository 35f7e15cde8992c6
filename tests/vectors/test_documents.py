"""Documents of chunks: by ids, metadata or `groups`, and drift that is tested by document."""

from __future__ import annotations

import json
import uuid
from typing import Any

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit.errors import InputError
from toolkit.vectors.documents import document_pattern

STYLES = {
    "hash": "doc-{0}#{1}",
    "dash": "doc-{0}-{1}",
    "letter": "doc-{0}_c{1}",
    "slash": "doc-{0}/{1}",
    "colons": "https://x.example/{0}::chunk-{1}",
    "file": "guides/{0}.md:{1}",
    "page and chunk": "doc-{0}_p{1}_c0",
}


def chunked(
    documents: range, style: str, *, seed: int, shift: float = 0.0
) -> pd.DataFrame:
    """Return five chunks per document, which are alike."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for document in documents:
        centre = rng.normal(shift, 1, 8)
        rows.extend(
            {
                "id": style.format(document, chunk),
                "vector": (centre + 0.1 * rng.normal(size=8)).tolist(),
                "metadata": json.dumps({"doc": f"d{document}", "lang": "en"}),
            }
            for chunk in range(5)
        )
    return pd.DataFrame(rows)


def compared(style: str, *, seed: int, shift: float = 0.0, **options: Any) -> Any:
    """Compare 60 documents with the same and 30 new ones."""
    before = chunked(range(60), style, seed=seed)
    new = chunked(range(60, 90), style, seed=seed + 1000, shift=shift)
    after = pd.concat([before, new], ignore_index=True)
    if not options.pop("metadata", False):
        before, after = before.drop(columns="metadata"), after.drop(columns="metadata")
    return tk.compare_vectors(before, after, **options)


@pytest.mark.parametrize("style", STYLES)
def test_chunks_are_grouped_by_ids_of_any_style(style: str) -> None:
    """The document of an id is found for each usual separator."""
    ids = [
        STYLES[style].format(document, chunk)
        for document in range(40)
        for chunk in range(5)
    ]
    found = document_pattern(ids)
    assert found is not None
    documents = [found.document(key) for key in ids]
    assert len(set(documents)) == 40
    assert all(
        len(set(documents[start : start + 5])) == 1 for start in range(0, 200, 5)
    )


@pytest.mark.parametrize(
    "ids",
    [
        [f"doc-{number:05}" for number in range(200)],
        [str(uuid.UUID(int=number << 64 | 7)) for number in range(200)],
        [f"user-{number % 20}-order-{number + 800}" for number in range(200)],
        [f"{number % 3 + 2022}-{number // 3}" for number in range(200)],
    ],
    ids=["numbered", "uuid", "orders", "years"],
)
def test_numbers_of_documents_are_no_numbers_of_chunks(ids: list[str]) -> None:
    """Ids that number documents, orders or years have no chunks."""
    assert document_pattern(ids) is None


@pytest.mark.parametrize("style", ["dash", "letter"])
def test_new_chunks_without_drift_raise_no_alarm(style: str) -> None:
    """New documents of the same kind do not differ, and the table names how documents were found."""
    found = compared(STYLES[style], seed=1)
    assert found.drift["p_value"][0] > 0.01
    assert "differ" not in found.verdict
    separator = {"dash": "-", "letter": "_"}[style]
    assert f"'{separator}'" in found.drift["documents"][0]


@pytest.mark.slow
def test_alarms_without_drift_are_rare() -> None:
    """At most 5 % of comparisons of chunked documents report a difference, with any ids."""
    styles = [*list(STYLES.values())[:4], "{0}x{1}y"]
    alarms = sum(
        "new vectors differ" in compared(style, seed=seed).verdict
        for seed in range(8)
        for style in styles
    )
    assert alarms <= 2


def test_drift_of_documents_is_found() -> None:
    """New documents of another kind differ, by document."""
    found = compared(STYLES["slash"], seed=2, shift=1.5)
    assert "new vectors differ from old ones in the default namespace" in found.verdict


def test_without_documents_the_claim_is_weaker() -> None:
    """Ids without structure give a hint with advice; `groups` makes a claim of it, or shows no drift."""
    style = "{0}x{1}y"
    found = compared(style, seed=3, shift=1.5)
    assert "new vectors may differ" in found.verdict
    assert "groups=" in found.verdict
    assert found.drift["documents"][0] == "not found"
    named = compared(style, seed=3, groups=lambda key: key.partition("x")[0])
    assert "differ" not in named.verdict
    each = compared(style, seed=3, shift=1.5, groups=str)
    assert "new vectors differ" in each.verdict


def test_documents_are_read_from_metadata() -> None:
    """By a usual name, or by the named field; a field that no row has is an error."""
    usual = compared("{0}x{1}y", seed=3, metadata=True)
    assert usual.drift["documents"][0] == "metadata field doc"
    assert "differ" not in usual.verdict
    named = compared("{0}x{1}y", seed=3, metadata=True, groups="doc")
    assert named.drift["p_value"][0] == usual.drift["p_value"][0]
    with pytest.raises(InputError, match=r"groups.*'nope'.*doc"):
        compared("{0}x{1}y", seed=3, metadata=True, groups="nope")
    with pytest.raises(InputError, match="groups"):
        compared("{0}x{1}y", seed=3, groups=7)


def test_the_report_groups_chunks() -> None:
    """A report compares with the earlier state by document, and takes `groups`."""
    before = chunked(range(60), "{0}x{1}y", seed=4).drop(columns="metadata")
    new = chunked(range(60, 90), "{0}x{1}y", seed=1004).drop(columns="metadata")
    after = pd.concat([before, new], ignore_index=True)
    report = tk.report_index(
        after, previous=before, groups=lambda key: key.partition("x")[0]
    )
    section = next(one for one in report.sections if one.name == "drift")
    assert "differ" not in section.sentence
