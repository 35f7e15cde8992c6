"""Judge an index by the audits: the verdict, the numbers, and the steps to take, the most urgent first.

For example, if vectors are duplicates, the verdict is "Not healthy", and the first step is the advice about
duplicates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

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

_HALF: Final = 0.5
"""If a namespace has a smaller share of its rows left, more than some documents were deleted."""
_MANY: Final = 0.1
"""Share of the rows without text that more than a change of some documents moves."""
_NEARLY_ALL: Final = 0.9
"""Share of the rows that moves if an index is embedded with another model."""


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
    """Yield the next steps: another dimension, low recall, lost and moved rows, errors, then the rest."""
    yield from _steps_of_dimensions(audits.drift)
    if isinstance(audits.recall, RecallAudit) and audits.recall.trusted is False:
        advice = "Let each search look at more vectors, or rebuild the index."
        yield IndexStep(advice, audits.recall.verdict, _ALL)

    if isinstance(audits.answers, AnswerChanges) and not audits.answers.passes():
        advice = "Look at the queries whose answers changed."
        yield IndexStep(advice, audits.answers.verdict, _ALL)

    yield from _steps_of_lost_rows(audits.drift, audits.health)
    yield from _steps_of_moved_vectors(audits.drift, audits.health)
    yield from _steps_of_unrelated_vectors(audits.drift)
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


def _steps_of_lost_rows(
    drift: VectorChanges | str, health: VectorAudit
) -> Iterator[IndexStep]:
    """Yield the namespaces that have less than half of their rows left."""
    if isinstance(drift, str):
        return

    rows = _by_namespace(health, "rows")
    appeared = _count_by_namespace(drift, "appeared")
    for namespace, vanished in _count_by_namespace(drift, "vanished").items():
        now = int(rows.get(namespace, 0))
        before = now + vanished - appeared.get(namespace, 0)
        if now < _HALF * before:
            yield IndexStep(
                "If these rows were not deleted on purpose, restore them from the earlier state.",
                f"{now:,} of {counted(before, 'row')} are left.",
                namespace,
                vanished,
            )


def _steps_of_moved_vectors(
    drift: VectorChanges | str, health: VectorAudit
) -> Iterator[IndexStep]:
    """Yield the namespaces with vectors of unchanged texts that are now far from the old ones.

    A vector that moved farther than its nearest neighbour is away is another vector for the search. Other
    numbers of one model, for example of another batch size, move it much less.
    """
    if isinstance(drift, str):
        return

    rows = _by_namespace(health, "rows")
    nearest = _by_namespace(health, "nearest_pair")
    appeared = _count_by_namespace(drift, "appeared")
    for name, part in drift.moved.groupby("namespace"):
        namespace = str(name)
        again = part[part["change"] == "vector only"]
        far = again[again["distance"] > 1 - nearest.get(namespace, np.nan)]
        common = rows.get(namespace, 0) - appeared.get(namespace, 0)
        share = len(far) / max(common, 1)
        # Without texts, it is not known whether the contents of a few rows changed.
        if far.empty or ("texts" in health.not_checked and share < _MANY):
            continue
        advice = "Embed all rows again with one model."
        reason = "others did not move, so the index has vectors of several models, or some are wrong."
        if len(again) >= _NEARLY_ALL * common:
            advice = "Send queries of the model that made the new vectors, and measure thresholds again."
            reason = "nearly all did, as after a change of the model."
        yield IndexStep(
            advice,
            "These vectors moved farther than their nearest neighbours are away, without another text: "
            f"{reason}",
            namespace,
            len(far),
            ", ".join(far["id"].head(LISTED)),
        )


def _steps_of_unrelated_vectors(drift: VectorChanges | str) -> Iterator[IndexStep]:
    """Yield the namespaces whose new vectors have nothing to do with the old ones."""
    if isinstance(drift, str):
        return

    for namespace in drift.drift.loc[drift.drift["unrelated"], "namespace"]:
        is_new = (drift.frame["change"] == "appeared") & (
            drift.frame["namespace"] == namespace
        )
        new = drift.frame[is_new]
        yield IndexStep(
            "Embed the new texts again with the model of the old ones, or all with one model.",
            "New vectors have nothing to do with the old ones, as if another model had made them: no query "
            "finds both.",
            str(namespace),
            len(new),
            ", ".join(new["id"].head(LISTED)),
        )


def _by_namespace(health: VectorAudit, column: str) -> dict[str, Any]:
    return dict(zip(health.facts["namespace"], health.facts[column], strict=True))


def _count_by_namespace(drift: VectorChanges, change: str) -> dict[str, int]:
    namespaces = drift.frame.loc[drift.frame["change"] == change, "namespace"]
    return {str(name): int(rows) for name, rows in namespaces.value_counts().items()}


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
    if isinstance(audits.drift, VectorChanges):
        verdict += f" Since the earlier state: {_not_capital(audits.drift.verdict)}"
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


def _not_capital(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:]}"


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
    kinds_of_defect = serious.drop_duplicates("finding")
    kinds = kinds_of_defect["severity"].value_counts()
    by_severity = ", ".join(
        counted(int(kinds.get(name, 0)), name) for name in ("error", "warning")
    )
    noun = "vectors"
    if rows == 1:
        noun = "vector"
    kinds_noun = "kinds of defect"
    if len(kinds_of_defect) == 1:
        kinds_noun = "kind of defect"
    numbers = [
        (noun, rows, f"{usable:,} with a usable vector"),
        (kinds_noun, len(kinds_of_defect), by_severity),
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
