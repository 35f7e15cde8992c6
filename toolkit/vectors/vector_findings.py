"""Findings of the audit of vectors: what each kind means for a search, and the call that acts on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import pandas as pd

from toolkit.base.python_code import fill
from toolkit.vectors.exact_comparison import NEAR
from toolkit.vectors.row_summaries import IDS, metadata_fields
from toolkit.vectors.vector_rows import VectorTables, typed_tuples

FINDINGS: Final = {
    "several dimensions": (
        "error",
        "Vectors of another dimension came from another model: they cannot be compared with the rest.",
        "Embed their texts again with the model of the rest.",
    ),
    "not finite": (
        "error",
        "NaN and infinity are not scores: these rows are never found, or always.",
        "Embed their texts again; look for empty or very long texts.",
    ),
    "zero vector": (
        "error",
        "A vector of length 0 has no direction: its cosine score is the same for every query.",
        "Embed their texts again; look for empty texts.",
    ),
    "padded with zeros": (
        "error",
        "These vectors end with zeros where others have numbers: they were cut, or are of a smaller model.",
        "Embed their texts again with the model of the rest.",
    ),
    "without vector": (
        "warning",
        "Rows without a vector are never found.",
        "Embed and upsert them again.",
    ),
    "without text": (
        "warning",
        "A hit among these rows has nothing to show.",
        "Upsert them with their text as data.",
    ),
    "not normalised": (
        "warning",
        "Most vectors have length 1: with a dot product, longer vectors win and shorter ones lose.",
        "Divide each by its length before upserting.",
    ),
    "lengths differ": (
        "info",
        "With a dot product, long vectors win; with cosine nothing changes.",
        "Normalise them, unless the length has a meaning.",
    ),
    "dead dimension": (
        "warning",
        "The dimension is always zero: it takes memory and carries no information.",
        "Check how the vectors are made.",
    ),
    "constant dimension": (
        "warning",
        "All rows have one value: it raises every score equally and separates nothing.",
        "Check how the vectors are made; subtract the mean.",
    ),
    "duplicate": (
        "warning",
        "Equal vectors with equal text, or without text, take several places among the hits.",
        "Keep one of each; make ids from the content.",
    ),
    "same vector, other text": (
        "error",
        "Different texts have the same dense vector: a search cannot tell them apart.",
        "Embed them again; look for truncated texts or a default vector.",
    ),
    "same text, other vector": (
        "warning",
        "One text has several vectors: from several models or versions, or from chunks with one text.",
        "Embed the older ones again.",
    ),
    "several models": (
        "error",
        "Rows with almost equal text have unrelated vectors: of several models, or not made from the text.",
        "Embed all rows again with one model; compare with an earlier snapshot to see which changed.",
    ),
    "text unrelated": (
        "warning",
        "Rows with almost equal text have unrelated vectors: of other rows, or not made from the text.",
        "If the vectors are of text, check that each is stored with its own text, and embed all again.",
    ),
    "near duplicate": (
        "info",
        f"Another vector is within a cosine of {NEAR}: hits repeat the content of others.",
        "Remove repeated boilerplate before embedding, or merge the hits.",
    ),
    "outlier": (
        "warning",
        "The vector is far from all others: the only one on a subject, or from damaged text or noise.",
        "Read the text. If it is damaged, embed it again.",
    ),
    "hub": (
        "warning",
        "The vector is among the nearest neighbours of far too many others: it crowds out better hits.",
        "Read the text: is it empty, boilerplate or a mean vector?",
    ),
    "hub by length": (
        "warning",
        "By dot product, these long vectors are among the nearest neighbours of far too many others.",
        "Divide all vectors by their length before upserting, unless the length has a meaning.",
    ),
    "few directions": (
        "warning",
        "The vectors use very few directions: scores are close to each other and small errors decide.",
        "Check the model; subtract the mean.",
    ),
    "id repeated": (
        "warning",
        "An index has each id once, so these rows were read several times, or are of several states.",
        "Load the index again, or keep one row of each: vectors.drop_duplicates(['namespace', 'id']).",
    ),
    "id almost equal": (
        "warning",
        "Ids that differ only by case or space are often the same document twice.",
        "Keep one; make ids in one way.",
    ),
    "without metadata": (
        "warning",
        "A filter never matches these rows, as others have metadata.",
        "Upsert their metadata.",
    ),
    "metadata not JSON": (
        "error",
        "No filter matches these rows, and explode_metadata raises an error for them.",
        "Write their metadata again as JSON objects.",
    ),
    "field missing": (
        "warning",
        "A filter on the field never matches these rows; nearly all others have the field.",
        "Fill the field.",
    ),
    "field of several types": (
        "warning",
        "A comparison matches one type only: rows of the other are left out without an error.",
        "Write one type.",
    ),
    "field rare and alike": (
        "warning",
        "Few rows have the field, and its name is almost that of a usual one: likely misspelt.",
        "Rename it.",
    ),
}
"""Per kind of finding: the severity, the effect on search, and advice."""

_UPSERT: Final = "tk.upsert_vectors(service, embedded_again, namespace={namespace})"
_METADATA: Final = (
    "tk.update_vectors(service, rows_with_metadata, namespace={namespace})"
)
_LOOK: Final = (
    "tk.fetch_vectors(service, audit.frame['ids'][{row}], namespace={namespace})"
)
_KEEP_ONE: Final = (
    "tk.delete_vectors(service, audit.surplus_ids({namespace}), namespace={namespace})"
)
_CALLS: Final = {
    "several dimensions": _UPSERT,
    "not finite": _UPSERT,
    "zero vector": _UPSERT,
    "padded with zeros": _UPSERT,
    "without vector": _UPSERT,
    "without text": "tk.update_vectors(service, rows_with_data, namespace={namespace})",
    "not normalised": _UPSERT,
    "duplicate": _KEEP_ONE,
    "same vector, other text": _UPSERT,
    "same text, other vector": _UPSERT,
    "several models": _UPSERT,
    "text unrelated": _LOOK,
    "near duplicate": _LOOK,
    "outlier": _LOOK,
    "hub": _LOOK,
    "hub by length": _LOOK,
    "id almost equal": _LOOK,
    "without metadata": _METADATA,
    "metadata not JSON": _METADATA,
    "field missing": _METADATA,
    "field of several types": _METADATA,
    "field rare and alike": _METADATA,
}
"""Per kind of finding: the call that looks at the rows or repairs them."""

_SEVERITIES: Final = ("error", "warning", "info")


class Finding(NamedTuple):
    """A defect of some rows of a namespace. `groups` are the ids of rows that are alike."""

    kind: str
    rows: int
    ids: list[str]
    detail: str
    groups: tuple[tuple[str, ...], ...] = ()
    field: str = ""


def of_rows(
    kind: str,
    ids: pd.Series[str],
    detail: str = "",
    *,
    groups: pd.Series[Any] | None = None,
    rows: int | None = None,
) -> Iterator[Finding]:
    """Yield a finding of rows, if there are any. Rows with equal values of `groups` are alike.

    `rows` is their number, if it is not the number of ids.
    """
    if not len(ids):
        return

    shown = ids.head(IDS)
    alike: tuple[tuple[str, ...], ...] = ()
    if groups is not None:
        parts = shown.groupby(groups[shown.index].to_numpy(), sort=False)
        alike = tuple(tuple(part) for _, part in parts)

    count = len(ids) if rows is None else rows
    yield Finding(kind, count, shown.tolist(), detail, alike)


def with_rows_that_lack_fields(
    findings: Iterable[tuple[str, Finding]], tables: VectorTables
) -> list[tuple[str, Finding]]:
    """Add the ids of the rows that lack a field; they are read again, if there is any such finding."""
    listed = list(findings)
    ids: dict[tuple[str, str], list[str]] = {
        (namespace, finding.field): []
        for namespace, finding in listed
        if finding.kind == "field missing"
    }
    if not ids:
        return listed

    for batch in tables:
        fields = map(metadata_fields, batch.metadata)
        for namespace, key, known in zip(
            batch.namespaces, batch.ids, fields, strict=True
        ):
            if known is None:
                continue
            for (place, field), without in ids.items():
                is_missing = place == namespace and field not in known
                if is_missing and len(without) < IDS:
                    without.append(key)

    return [
        (namespace, finding._replace(ids=ids[namespace, finding.field]))
        if finding.kind == "field missing"
        else (namespace, finding)
        for namespace, finding in listed
    ]


def findings_frame(findings: list[tuple[str, Finding]]) -> pd.DataFrame:
    """Return one row per finding, the worst first."""
    order = {kind: number for number, kind in enumerate(FINDINGS)}

    def urgency(item: tuple[str, Finding]) -> tuple[int, int, str]:
        namespace, finding = item
        severity = FINDINGS[finding.kind][0]
        return _SEVERITIES.index(severity), order[finding.kind], namespace

    rows = []
    for row, (namespace, finding) in enumerate(sorted(findings, key=urgency)):
        severity, effect, advice = FINDINGS[finding.kind]
        call = ""
        if finding.kind in _CALLS and finding.ids:
            call = fill(_CALLS[finding.kind], namespace=namespace, row=row)
        rows.append(
            (
                namespace, finding.kind, severity, finding.rows, tuple(finding.ids), finding.groups,
                finding.detail, effect, advice, str(call),
            )
        )  # fmt: skip

    return typed_tuples(
        rows, namespace="str", finding="str", severity="str", count="Int64", ids="object", groups="object",
        detail="str", effect="str", advice="str", call="str",
    )  # fmt: skip
