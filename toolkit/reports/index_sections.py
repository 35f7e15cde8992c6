"""Make the sections of an index report: the contents of the index, and one part per audit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pandas as pd

from toolkit.base.python_code import Code, fill, joined
from toolkit.drawing.wording import counted
from toolkit.reports.sections import (
    Part,
    ReportCode,
    ReportColumn,
    ReportFigure,
    ReportTable,
    Section,
    table,
)
from toolkit.service.vectors import IndexInfo
from toolkit.vectors.answers import AnswerChanges
from toolkit.vectors.calibration import Calibration
from toolkit.vectors.health import VectorAudit
from toolkit.vectors.projection import VectorProjection
from toolkit.vectors.recall_result import RecallAudit
from toolkit.vectors.vector_changes import VectorChanges

if TYPE_CHECKING:
    from toolkit.drawing.style import Theme

Mask: TypeAlias = Callable[[Any], Any]

LISTED: Final = 5  # ids per cell at most
_FIGURE: Final = 2.6  # height of a figure with one row, in inches
_ROW: Final = 0.4
NAMESPACE: Final = ReportColumn("namespace", missing="(default)")
IDS: Final = ReportColumn("ids", "id", below=True)


def index_section(info: IndexInfo | None, health: VectorAudit) -> Section:
    """Return the kind of the index, and counts per namespace."""
    sentence = "The vectors as they were loaded; the service was not asked."
    if info is not None:
        dimensions = "no dense vectors"
        if info.dimension:
            dimensions = f"{info.dimension:,} dimensions, {info.similarity}"
        model = info.model or "none, so it is queried by vectors alone"
        sentence = (
            f"A {info.kind.lower()} index of {dimensions}; embedding model: {model}."
        )

    columns = [
        NAMESPACE, "#rows", "#usable", "#dimension", "#compared", "#effective rank", "#random pair",
        "#nearest pair",
    ]  # fmt: skip
    numbers = _table(
        "Namespaces; the last two are median cosines", columns, health.facts
    )
    return Section("index", "What the index is", sentence, (numbers,))


def health_parts(health: VectorAudit, code: Code, mask: Mask) -> Iterator[Part]:
    """Return the findings of the health audit."""
    columns = [
        "finding", ReportColumn("detail", below=True), IDS, NAMESPACE, "severity", "#count",
        "effect on search", "advice",
    ]  # fmt: skip
    names = [
        "finding",
        "detail",
        "ids",
        "namespace",
        "severity",
        "count",
        "effect",
        "advice",
    ]
    shown = health.frame.assign(
        ids=[", ".join(ids[:LISTED]) for ids in health.frame["ids"]]
    )
    if len(shown):
        yield _table("Findings, the worst first", columns, shown[names])
    if len(health.similarities):
        title = "Cosines of nearest and of random pairs"
        yield from _figure(title, health, "similarities", "pair", code, mask)


def map_parts(projection: VectorProjection, code: Code, mask: Mask) -> Iterator[Part]:
    """Return the map, and the extent of each namespace on it."""
    if projection.frame.empty:
        return

    # the figure draws names, so they are masked here; the table is masked with the section
    names = projection.frame["namespace"]
    shown = replace(
        projection, frame=projection.frame.assign(namespace=names.map(mask))
    )
    color, drawn = None, fill("map.plot()")
    if len(names.unique()) > 1:
        color = "namespace"
        drawn = fill("map.plot(color={color})", color=color)

    groups = projection.frame.groupby("namespace")
    counts, ends = (
        groups.size().rename("vectors"),
        groups[["x", "y"]].agg(["min", "max"]),
    )
    listed = "; ".join(
        f"{mask(name) or '(default)'} {count:,}" for name, count in counts.items()
    )
    yield ReportFigure(
        "Map of the vectors", f"{counted(len(names), 'point')}, by namespace: {listed}", _FIGURE + 4 * _ROW,
        lambda ax, theme: shown.plot(color=color, ax=ax, theme=_name(theme)),
    )  # fmt: skip
    columns = [
        NAMESPACE,
        "#vectors",
        "#least x",
        "#largest x",
        "#least y",
        "#largest y",
    ]
    ends.columns = pd.Index(["least x", "largest x", "least y", "largest y"])
    numbers = pd.concat([counts, ends], axis=1).reset_index()
    yield _table("Map of the vectors: the numbers", columns, numbers, folded=True)
    yield ReportCode(joined([code, drawn]))


def recall_parts(recall: RecallAudit, code: Code, mask: Mask) -> Iterator[Part]:
    """Return the recall of the service, and the places with the most misses."""
    named = {name: recall.by[name].map(mask) for name in ("namespace", "filter")}
    shown = replace(recall, by=recall.by.assign(**named))
    yield ReportFigure(
        f"Recall@{recall.k}",
        f"The share of the {recall.k} nearest neighbours that is returned, with its interval",
        _FIGURE + _ROW * len(recall.by), lambda ax, theme: shown.plot(ax=ax, theme=_name(theme)),
    )  # fmt: skip
    columns = [
        NAMESPACE,
        "filter",
        "#selectivity",
        "#queries",
        "#share",
        "#low",
        "#high",
        "#score gap",
        "judged",
    ]
    yield _table(
        "Neighbours returned, with the 95 % interval over queries", columns, recall.by
    )
    yield ReportCode(code)
    worst = recall.frame[recall.frame["share"] < 1].head(LISTED)
    missed = worst[["namespace", "query", "share", "score_gap"]].assign(
        missed=[", ".join(keys[:LISTED]) for keys in worst["missed"]]
    )
    if len(missed):
        columns = [NAMESPACE, "query", "#share", "#score gap", "missed"]
        yield _table("The worst queries, and what they missed", columns, missed)


def score_parts(scores: Calibration, code: Code, mask: Mask) -> Iterator[Part]:
    """Return the threshold above which scores mean a match, per namespace."""
    columns = [
        NAMESPACE, "similarity", "pairs", "#threshold", ReportColumn("why", below=True), "#random median",
        "#random high", "#random share", "#duplicate share", "#labels",
    ]  # fmt: skip
    if len(scores.frame):
        shown = scores.frame.drop(columns=["queries", "best_median", "best_low"])
        yield _table("Scores of random pairs, and thresholds", columns, shown)
        yield from _figure("Scores of pairs", scores, "pairs", "pair", code, mask)


def drift_parts(drift: VectorChanges, code: Code, mask: Mask) -> Iterator[Part]:
    """Return the changes since an earlier load."""
    if len(drift.frame):
        yield _table(
            "Vectors that changed", [NAMESPACE, "change", "#rows"], drift.counts
        )

    if len(drift.drift):
        columns = [NAMESPACE, "#AUC", "#low", "#high", "#energy", "#p", "documents"]
        yield _table(
            "New vectors compared with old ones: 0.5 is no difference",
            columns,
            drift.drift.drop(columns="unrelated"),
        )

    moved = replace(drift, frame=drift.moved)
    if len(moved.frame):
        yield from _figure(
            "How far vectors moved", moved, "frame", "namespace", code, mask
        )
    elif len(drift.frame) or len(drift.drift):
        yield ReportCode(code)


def _figure(
    title: str, result: Any, field: str, column: str, code: Code, mask: Mask
) -> Iterator[Part]:
    """Return a figure of the distribution of scores, with a table and the code. Drawn names are masked."""
    values: pd.DataFrame = getattr(result, field)
    number = "distance"
    if "score" in values.columns:
        number = "score"
    groups = values.dropna(subset=number).groupby(column)[number]
    numbers = groups.describe()[
        ["count", "min", "25%", "50%", "75%", "max"]
    ].reset_index()
    described = "; ".join(
        f"{mask(name) or '(default)'} ({count:,.0f}): {least:.3g} to {most:.3g}, median {median:.3g}"
        for name, count, least, _, median, _, most in numbers.itertuples(index=False)
    )
    shown = replace(
        result, **{field: values.assign(**{column: values[column].map(mask)})}
    )
    yield ReportFigure(
        title, f"{title}. {described}", _FIGURE + _ROW * len(numbers),
        lambda ax, theme: shown.plot(ax=ax, theme=_name(theme)),
    )  # fmt: skip
    heading: str | ReportColumn = column
    if column == "namespace":
        heading = NAMESPACE
    columns = [
        heading,
        "#values",
        "#lowest",
        "#a quarter below",
        "#median",
        "#a quarter above",
        "#highest",
    ]
    yield _table(
        f"{title}: the numbers",
        columns,
        numbers.astype({"count": "int64"}),
        folded=True,
    )
    yield ReportCode(code)


def _table(
    caption: str, columns: list[Any], frame: pd.DataFrame, *, folded: bool = False
) -> ReportTable:
    """Return the rows of a frame, with empty cells for missing values."""
    plain = frame.astype(object)
    rows = plain.where(plain.notna(), None).to_numpy().tolist()
    return table(caption, columns, rows, missing="", folded=folded)


def _name(theme: Theme) -> Any:
    from toolkit.drawing.style import THEMES  # noqa: PLC0415 - matplotlib is slow to import

    return next(name for name, candidate in THEMES.items() if candidate is theme)


def answer_parts(answers: AnswerChanges, code: Code, _mask: Mask) -> Iterator[Part]:
    """Return the pinned queries whose answers changed most."""
    changed = answers.changed.head(LISTED)
    if len(changed):
        names = ("lost", "gained", "deleted")
        listed = {name: changed[name].map(_first_ids) for name in names}
        columns = ["query", "#overlap", "#order", *names]
        shown = changed[["asked", "overlap", "order"]].assign(**listed)
        yield _table("Queries whose answers changed", columns, shown)

    yield ReportCode(code)


def _first_ids(keys: tuple[str, ...]) -> str:
    return ", ".join(keys[:LISTED])
