"""The sections of an index report, names and texts in them masked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from toolkit.analysis.wording import counted
from toolkit.audits.calibration import Calibration
from toolkit.audits.health import VectorAudit
from toolkit.audits.projection import VectorProjection, project_vectors
from toolkit.audits.recall_audit import RecallAudit
from toolkit.audits.vector_changes import VectorChanges
from toolkit.audits.vector_rows import VectorSource
from toolkit.client.vectors import IndexInfo
from toolkit.errors import InputError
from toolkit.plots.style import THEMES, Theme
from toolkit.reports.sections import (
    Part,
    ReportCode,
    ReportColumn,
    ReportFigure,
    Section,
    table,
)

LISTED: Final = 5  # ids named where there are more
MAP_POINTS: Final = 800  # of the map: each is drawn four times, in two widths and two themes
_FIGURE: Final = 2.6  # inches of height of a figure with one row
_ROW: Final = 0.4

_Mask = Callable[[Any], Any]


def first_section(steps: list[Any]) -> Section:
    """What to do, the most urgent first."""
    if not steps:
        return Section(name="first", title="What to do first", sentence="Nothing: no defect was found.")
    return Section(
        name="first",
        title="What to do first",
        parts=(
            table(
                "Steps, the most urgent first",
                _columns("what to do", "why", "namespace", "#count", "ids"),
                steps,
            ),
        ),
    )


def index_section(info: IndexInfo | None, health: VectorAudit) -> Section:
    """The kind of index, and its namespaces in numbers."""
    sentence = "The vectors as they were loaded; the service was not asked."
    if info is not None:
        dimensions = (
            f"{info.dimension:,} dimensions, {info.similarity}" if info.dimension else "no dense vectors"
        )
        model = info.model or "none, so it is queried by vectors alone"
        sentence = f"A {info.kind.lower()} index of {dimensions}; embedding model: {model}."
    columns = _columns(
        "namespace", "#rows", "#usable", "#dimension", "#compared", "#effective rank", "#random pair",
        "#nearest pair",
    )  # fmt: skip
    caption = "Namespaces; the last two are median cosines"
    return Section(
        name="index", title="What the index is", sentence=sentence,
        parts=(table(caption, columns, _rows(health.facts)),),
    )  # fmt: skip


def health_section(health: VectorAudit, codes: Mapping[str, str], mask: _Mask) -> Section:
    """What the audit of health found."""
    columns = _columns(
        "namespace", "finding", "severity", "#count", "ids", "detail", "effect on search", "advice"
    )
    shown = health.frame.assign(ids=[", ".join(ids[:LISTED]) for ids in health.frame["ids"]])
    parts: list[Part] = [table("Findings, the worst first", columns, _rows(shown))] if len(shown) else []
    if len(health.similarities):
        parts += _figure(
            "Cosines of random pairs and of nearest neighbours",
            health,
            "similarities",
            "pair",
            codes["health"],
            mask,
        )
    return Section(name="health", title="Health", sentence=health.verdict, parts=tuple(parts))


def projected(source: VectorSource, seed: int) -> VectorProjection | str:
    """Vectors on a plane, or why there is no map."""
    try:
        return project_vectors(source, sample=MAP_POINTS, seed=seed)
    except InputError as error:  # several dimensions, or sparse vectors only
        return f"There is no map: {error.got}."


def map_section(projection: VectorProjection | str, codes: Mapping[str, str], mask: _Mask) -> Section:
    """The map, and the groups on it."""
    if isinstance(projection, str) or projection.frame.empty:
        sentence = projection if isinstance(projection, str) else projection.verdict
        return Section(name="map", title="Map", sentence=sentence)
    names = projection.frame["namespace"]
    shown = replace(projection, frame=projection.frame.assign(namespace=names.map(mask)))
    color = "namespace" if len(names.unique()) > 1 else None
    columns = _columns("namespace", "#vectors", "#least x", "#largest x", "#least y", "#largest y")
    groups = projection.frame.groupby("namespace")
    counts = groups.size().rename("vectors")
    ends = groups[["x", "y"]].agg(["min", "max"])
    ends.columns = pd.Index(["least x", "largest x", "least y", "largest y"])
    figure = ReportFigure(
        title="Map of the vectors",
        description=f"{counted(len(names), 'point')}, by namespace: "
        + "; ".join(f"{mask(name) or '(default)'} {count:,}" for name, count in counts.items()),
        height=_FIGURE + 4 * _ROW,
        draw=lambda ax, theme: shown.plot(color=color, ax=ax, theme=_name(theme)),
    )
    rows = _rows(pd.concat([counts, ends], axis=1).reset_index())
    numbers = table("Map of the vectors: the numbers", columns, rows, folded=True)
    code = ReportCode(code=codes["map"] + (f'map.plot(color="{color}")' if color else "map.plot()"))
    return Section(name="map", title="Map", sentence=projection.verdict, parts=(figure, numbers, code))


def recall_section(recall: RecallAudit | str, codes: Mapping[str, str], mask: _Mask) -> Section:
    """How much of the exact neighbours the service returned, and where it missed most."""
    title = "Recall"
    if isinstance(recall, str):
        return Section(name="recall", title=title, sentence=recall)
    columns = _columns(
        "namespace", "filter", "#selectivity", "#queries", "#share", "#low", "#high", "#score gap"
    )
    worst = recall.frame[recall.frame["share"] < 1].head(LISTED)
    missed = worst[["namespace", "query", "share", "score_gap"]].assign(
        missed=[", ".join(keys[:LISTED]) for keys in worst["missed"]]
    )
    shown = replace(
        recall, by=recall.by.assign(**{name: recall.by[name].map(mask) for name in ("namespace", "filter")})
    )
    parts: list[Part] = [
        ReportFigure(
            title=f"Recall@{recall.k}",
            description=f"The share of the {recall.k} nearest neighbours that is returned, with its interval",
            height=_FIGURE + _ROW * len(recall.by),
            draw=lambda ax, theme: shown.plot(ax=ax, theme=_name(theme)),
        ),
        table("Neighbours returned, with the 95 % interval over queries", columns, _rows(recall.by)),
        ReportCode(code=codes["recall"]),
    ]
    if len(missed):
        headings = _columns("namespace", "query", "#share", "#score gap", "missed")
        parts.append(table("The worst queries, and what they missed", headings, _rows(missed)))
    return Section(name="recall", title=title, sentence=recall.verdict, parts=tuple(parts))


def scores_section(scores: Calibration | str, codes: Mapping[str, str], mask: _Mask) -> Section:
    """Which scores mean a match."""
    title = "What scores mean here"
    if isinstance(scores, str):
        return Section(name="scores", title=title, sentence=scores)
    columns = _columns(
        "namespace", "similarity", "#threshold", "why", "#random median", "#random high", "#random share",
        "#duplicate share", "#labels",
    )  # fmt: skip
    parts: list[Part] = []
    if len(scores.frame):
        parts = [
            table("Scores of random pairs, and thresholds", columns, _rows(scores.frame)),
            *_figure("Scores of pairs", scores, "pairs", "pair", codes["scores"], mask),
        ]
    return Section(name="scores", title=title, sentence=scores.verdict, parts=tuple(parts))


def drift_section(drift: VectorChanges | str, codes: Mapping[str, str], mask: _Mask) -> Section:
    """What changed since an earlier load."""
    title = "What changed"
    if isinstance(drift, str):
        return Section(name="drift", title=title, sentence=drift)
    counts = _columns("namespace", "change", "#rows")
    measures = _columns("namespace", "#AUC", "#low", "#high", "#energy", "#p")
    parts: list[Part] = []
    if len(drift.frame):
        parts.append(table("Vectors that changed", counts, _rows(drift.counts)))
    if len(drift.drift):
        parts.append(table("New vectors beside old ones: 0.5 is no difference", measures, _rows(drift.drift)))
    moved = replace(drift, frame=drift.moved)
    if len(moved.frame):
        parts += _figure("How far vectors moved", moved, "frame", "namespace", codes["drift"], mask)
    elif parts:
        parts.append(ReportCode(code=codes["drift"]))
    return Section(name="drift", title=title, sentence=drift.verdict, parts=tuple(parts))


def _figure(title: str, result: Any, field: str, column: str, code: str, mask: _Mask) -> Iterator[Part]:
    """A figure of scores of pairs, its numbers, and its code; names in it are masked as texts are."""
    values: pd.DataFrame = getattr(result, field)
    number = "score" if "score" in values.columns else "distance"
    groups = values.dropna(subset=number).groupby(column)[number]
    numbers = groups.describe()[["count", "min", "25%", "50%", "75%", "max"]].reset_index()
    described = (
        f"{mask(name) or '(default)'} ({count:,.0f}): {least:.3g} to {most:.3g}, median {median:.3g}"
        for name, count, least, _, median, _, most in numbers.itertuples(index=False)
    )
    shown = replace(result, **{field: values.assign(**{column: values[column].map(mask)})})
    yield ReportFigure(
        title=title,
        description=f"{title}. {'; '.join(described)}",
        height=_FIGURE + _ROW * len(numbers),
        draw=lambda ax, theme: shown.plot(ax=ax, theme=_name(theme)),
    )
    columns = _columns(
        column, "#values", "#lowest", "#a quarter below", "#median", "#a quarter above", "#highest"
    )
    rows = numbers.astype({"count": "int64"})
    yield table(f"{title}: the numbers", columns, _rows(rows), folded=True)
    yield ReportCode(code=code)


def _columns(*names: str) -> tuple[ReportColumn, ...]:
    """Columns of texts, and of numbers where the name begins with ``#``."""
    return tuple(
        ReportColumn(name=name.removeprefix("#"), kind="number", missing="")
        if name.startswith("#")
        else ReportColumn(name=name, missing="(default)" if name == "namespace" else "")
        for name in names
    )


def _rows(frame: pd.DataFrame) -> list[list[Any]]:
    rows: list[list[Any]] = frame.astype(object).to_numpy().tolist()
    return [[None if not isinstance(item, tuple) and pd.isna(item) else item for item in row] for row in rows]


def _name(theme: Theme) -> Any:
    return next(name for name, candidate in THEMES.items() if candidate is theme)
