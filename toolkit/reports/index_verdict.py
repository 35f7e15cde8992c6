"""Judge an index by the audits: the verdict, the numbers, and the steps to take, the most urgent first.

For example, if vectors are duplicates, the verdict is "Not healthy", and the first step is the advice about
duplicates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from toolkit.drawing.wording import counted, percent
from toolkit.reports.index_audits import IndexAudits
from toolkit.reports.index_sections import (
    IDS,
    LISTED,
    NAMESPACE,
)
from toolkit.reports.sections import (
    ReportColumn,
    Section,
    table,
)
from toolkit.vectors.answers import AnswerChanges
from toolkit.vectors.health import VectorAudit
from toolkit.vectors.recall_result import RecallAudit
from toolkit.vectors.vector_changes import VectorChanges


class IndexStep(NamedTuple):
    """Something to do about an index."""

    advice: str
    reason: str
    namespace: str
    vectors: int | None = None
    """Vectors to change, if they are known."""
    ids: str = ""
    """Some of them."""


def next_steps(audits: IndexAudits) -> Iterator[IndexStep]:
    """Yield the next steps: another dimension, low recall, errors, stale vectors, then warnings."""
    yield from _steps_of_dimensions(audits.drift)
    if isinstance(audits.recall, RecallAudit) and audits.recall.trusted is False:
        advice = "Let each search look at more vectors, or rebuild the index."
        yield IndexStep(advice, audits.recall.verdict, _ALL)

    if isinstance(audits.answers, AnswerChanges) and not audits.answers.passes():
        advice = "Look at the queries whose answers changed."
        yield IndexStep(advice, audits.answers.verdict, _ALL)

    yield from _steps_of_findings(audits.health, "error")
    yield from _steps_of_stale_vectors(audits.drift)
    yield from _steps_of_findings(audits.health, "stale")
    yield from _steps_of_findings(audits.health, "warning")


_ALL: Final = "(all)"
"""Shown in place of a namespace."""


def _steps_of_dimensions(drift: VectorChanges | str) -> Iterator[IndexStep]:
    if isinstance(drift, str):
        return

    for row in drift.dimensions.to_dict("records"):
        yield IndexStep(
            "Send queries of the model that made the new vectors.",
            f"The dimension changed from {row['before']} to {row['after']}.",
            str(row["namespace"]),
        )


def _steps_of_stale_vectors(drift: VectorChanges | str) -> Iterator[IndexStep]:
    if isinstance(drift, str):
        return

    for namespace, part in drift.stale.groupby("namespace"):
        yield IndexStep(
            "Embed these texts again.",
            "Their texts changed and their vectors did not: new words do not find them.",
            str(namespace),
            len(part),
            ", ".join(part["id"].head(LISTED)),
        )


def _steps_of_findings(health: VectorAudit, severity: str) -> Iterator[IndexStep]:
    findings = health.frame
    for row in findings[findings["severity"] == severity].to_dict("records"):
        yield IndexStep(
            row["advice"],
            f"{row['finding']}: {row['effect']}",
            row["namespace"],
            int(row["count"]),
            ", ".join(row["ids"][:LISTED]),
        )


def is_healthy(audits: IndexAudits, steps: list[IndexStep]) -> bool | None:
    """Return whether no step is needed; None if the index has no dense vectors to judge."""
    if steps:
        return False
    if audits.health.dense:
        return True

    return None


def verdict_of(audits: IndexAudits, steps: list[IndexStep]) -> str:
    """Return whether the index is healthy, the verdicts of the audits, and the first step."""
    verdict = audits.health.verdict
    if isinstance(audits.recall, RecallAudit):
        verdict += f" {audits.recall.verdict}"
    if isinstance(audits.answers, AnswerChanges):
        verdict += f" {audits.answers.verdict}"
    unchecked = not_checked(audits)
    if unchecked:
        verdict += f" Not checked: {', '.join(unchecked)}."
    if steps:
        return f"Not healthy. {verdict} First: {steps[0].advice.rstrip('.')}."
    if not audits.health.dense:
        return f"Not judged. {verdict}"
    if unchecked:
        return f"Healthy, as far as checked. {verdict}"

    return f"Healthy. {verdict}"


def not_checked(audits: IndexAudits) -> list[str]:
    """Return what no audit looked at, so that the verdict does not cover it."""
    health = audits.health
    if not health.facts["rows"].sum():
        return []

    parts = []
    if isinstance(audits.recall, str) or audits.recall.trusted is None:
        parts.append("recall")
    if health.sparse:
        parts.append("search by sparse vectors")
    if isinstance(audits.answers, str):
        parts.append("pinned queries")
    return [*parts, *health.not_checked]


def numbers_of(audits: IndexAudits) -> Iterator[Mapping[str, Any]]:
    """Yield the numbers at the top of the page: vectors, defects, recall and changes."""
    rows, usable = (int(audits.health.facts[name].sum()) for name in ("rows", "usable"))
    # a finding can occur in several namespaces, but is one kind of defect
    serious = audits.health.frame[audits.health.frame["severity"] != "info"]
    kinds = serious.drop_duplicates("finding")["severity"].value_counts()
    by_severity = ", ".join(
        counted(int(kinds.get(name, 0)), name) for name in ("error", "warning")
    )
    noun = "vectors"
    if rows == 1:
        noun = "vector"
    numbers = [
        (noun, rows, f"{usable:,} with a usable vector"),
        ("kinds of defect", serious["finding"].nunique(), by_severity),
    ]

    if (
        isinstance(audits.recall, RecallAudit)
        and (worst := audits.recall.worst_group) is not None
    ):
        # the report sends no filters, so groups are namespaces
        note = f"of the {audits.recall.k} nearest; {percent(worst['low'])} to {percent(worst['high'])}"
        if len(audits.recall.by) > 1:
            note += ", in the worst namespace"
        numbers.append(("% of neighbours returned", int(100 * worst["share"]), note))

    if isinstance(audits.drift, VectorChanges):
        numbers.append(
            ("vectors changed", len(audits.drift.frame), f"of {audits.drift.rows:,}")
        )

    for name, value, note in numbers:
        yield {"name": name, "value": value, "change": None, "note": note}


def first_section(steps: list[IndexStep], audits: IndexAudits) -> Section:
    """Return the section of next steps, the most urgent first."""
    if not steps:
        sentence = "Load dense vectors, to judge them."
        if audits.health.dense:
            sentence = "Nothing: no defect was found."
            if not_checked(audits):
                sentence = "Nothing: no defect was found in what was checked."

        return Section("first", "What to do first", sentence)

    columns = [
        "what to do",
        ReportColumn("why", below=True),
        NAMESPACE,
        "#count",
        IDS,
    ]
    listed = table("Steps, the most urgent first", columns, steps, missing="")
    return Section("first", "What to do first", parts=(listed,))
