"""The report on a vector index, on one page: its health, its recall, what scores mean, what changed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy.typing as npt
import pandas as pd

from toolkit.analysis.selection import receipt_of, when_counted
from toolkit.analysis.wording import counted, percent
from toolkit.arguments import choice, instance, text, whole
from toolkit.audits.calibration import Calibration, calibrate_threshold
from toolkit.audits.exact_comparison import SIMILARITIES
from toolkit.audits.health import VectorAudit, audit_vectors
from toolkit.audits.projection import VectorProjection
from toolkit.audits.recall_audit import RecallAudit, audit_recall
from toolkit.audits.vector_changes import VectorChanges, compare_vectors
from toolkit.audits.vector_rows import VectorSource, VectorTables
from toolkit.client.vectors import index_info
from toolkit.loading.vectors import Namespaces, load_index, of_vectors
from toolkit.redaction import Redactor
from toolkit.reports.findings import Cleaner
from toolkit.reports.index_sections import (
    LISTED,
    MAP_POINTS,
    drift_section,
    first_section,
    health_section,
    index_section,
    map_section,
    projected,
    recall_section,
    scores_section,
)
from toolkit.reports.page import Report
from toolkit.reports.sections import (
    Notice,
    ReportCode,
    Section,
)
from toolkit.settings.service import Service

_DOING: Final = "making an index report"
_SCHEMA: Final = "index-report/2"
_GOOD: Final = 0.95  # recall from which on search can be trusted, as its audit says


class IndexReport(Report):
    """A report on a vector index; made by `index_report`.

    Notebooks show it as a part of their page. It holds no vectors: only numbers, and texts with their secrets
    masked.

    Examples
    --------
    >>> import numpy as np
    >>> report = index_report(np.eye(40, 8) + 1)
    >>> report.verdict
    'Not healthy. 1 kind of defect in 40 rows in 1 namespace: duplicate. First: Keep one of each; ...'
    """


@dataclass(frozen=True, eq=False)
class _Audits:
    """The audits of an index; where one could not be made, why not."""

    health: VectorAudit
    map: VectorProjection | str
    recall: RecallAudit | str
    scores: Calibration | str
    drift: VectorChanges | str


def index_report(
    index: Service | VectorSource,
    vectors: VectorSource | None = None,
    *,
    previous: VectorSource | None = None,
    labels: pd.DataFrame | None = None,
    queries: npt.ArrayLike | pd.DataFrame | None = None,
    k: int = 10,
    precision: float = 0.9,
    similarity: str | None = None,
    namespace: Namespaces | None = None,
    sample: int = 300,
    seed: int = 0,
    now: datetime | None = None,
    title: str | None = None,
    redactor: Redactor | None = None,
) -> IndexReport:
    """Report on a vector index: health, recall, what scores mean, what changed, and what to do first.

    Parameters
    ----------
    index : Service, or what `audit_vectors` accepts
        An index, which is queried too, or vectors of one.
    vectors : frame, table, dataset or path, optional
        With a service: its vectors, loaded earlier. Default: all are loaded now.
    previous : frame, table, dataset or path, optional
        An earlier state, to compare with, such as the path of a snapshot.
    labels : pandas.DataFrame, optional
        Judged scores (`score`, `match`), as `calibrate_threshold` takes them.
    queries : matrix or frame, optional
        Queries of your own for the recall, as `audit_recall` takes them. Default: stored vectors.
    k : int
        How many neighbours recall is measured with.
    precision : float
        The share of matches that a threshold promises, where there are labels.
    similarity : str, optional
        Of vectors without a service: ``"COSINE"``, ``"EUCLIDEAN"`` or ``"DOT_PRODUCT"``. Default: cosine.
    namespace : str or sequence of str, optional
        Of a service, without `vectors`: the namespaces to load, as in `load_vectors`. Default: all.
    sample : int
        How many queries recall is measured with.
    seed : int
        For samples and permutations.
    now : datetime, optional
        When the report is made. Default: the clock.
    title : str, optional
    redactor : Redactor, optional
        Masks secrets in everything shown. Default: that of the service, or one with the user's key.

    Returns
    -------
    IndexReport
        Sections: what to do first, what the index is, health, a map, recall, scores, changes, the code. One
        that cannot be answered says why. ``docs/index-report.schema.json`` describes its JSON.

    Raises
    ------
    InputError
        When there are no vectors, or an option cannot be read.
    SnapshotError
        When there is no snapshot at a path.

    Examples
    --------
    >>> vectors = tk.load_vectors(service, namespace="runbooks", progress=False)
    >>> report = index_report(vectors, previous=vectors)
    >>> [section.title for section in report.sections][:3]
    ['What to do first', 'What the index is', 'Health']
    """
    when = when_counted(now)
    whole("k", k, most=1000)
    whole("sample", sample)
    whole("seed", seed, least=0)
    choice("similarity", similarity, SIMILARITIES, optional=True)
    if title is not None:
        text("title", title)
    service = index if isinstance(index, Service) else None
    if redactor is None:
        redactor = Redactor() if service is None else service.redactor
    clean = Cleaner(instance("redactor", redactor, Redactor, "a Redactor"))
    info = None if service is None else index_info(service)
    source: VectorSource = vectors if vectors is not None else index
    if service is not None and vectors is None:
        source = load_index(service, namespace)
    elif namespace is not None:
        raise of_vectors(namespace)
    options: dict[str, Any] = {"k": k, "sample": sample, "seed": seed} | (
        {} if queries is None else {"queries": queries}
    )
    scale = similarity or (info.similarity if info is not None else None) or None
    name = "index" if vectors is None else "vectors"
    VectorTables(source, doing=_DOING, name=name)  # says which argument is wrong
    if previous is not None:
        VectorTables(previous, doing=_DOING, name="previous")
    health = audit_vectors(source)
    dense = info is None or info.kind == "DENSE"
    mixed = f"The scores of a {info.kind.lower()} index have no common scale." if info and not dense else ""
    audits = _Audits(
        health=health,
        map=projected(source, seed),
        recall=audit_recall(service, source, **options)
        if service is not None and dense
        else mixed or "Recall was not measured: that takes a service to query.",
        scores=mixed or calibrate_threshold(source, labels, precision=precision, similarity=scale, seed=seed),
        drift="There is no earlier state to compare with."
        if previous is None
        else compare_vectors(previous, source, seed=seed),
    )
    steps = _steps(audits)
    loaded = receipt_of(source)
    given = {"previous": previous, "labels": labels, "queries": queries}
    lines = [_loading(service is not None, vectors if vectors is not None else index, source)]
    lines += [_as_passed(name, value) for name, value in given.items() if value is not None]
    codes = _codes(lines, options, labels is not None, precision, scale, seed)
    sections = [
        first_section(steps),
        index_section(info, health),
        health_section(health, codes, clean.value),
        map_section(audits.map, codes, clean.value),
        recall_section(audits.recall, codes, clean.value),
        scores_section(audits.scores, codes, clean.value),
        drift_section(audits.drift, codes, clean.value),
        Section(name="code", title="The code", parts=(ReportCode(code=codes["load"], folded=False),)),
    ]  # fmt: skip
    notices = []
    if loaded is not None:
        notice = str(clean.text(f"The load of the vectors was {loaded.verdict}."))
        notices = [Notice(text=notice, good=loaded.complete)]
    return IndexReport(
        schema=_SCHEMA,
        title=str(clean.text("Index report" if title is None else title)),
        verdict=str(clean.text(_verdict(audits, steps))),
        made_at=when.isoformat(timespec="milliseconds"),
        notices=tuple(notices),
        numbers=tuple(_numbers(audits)),
        sections=tuple(section.masked(clean.value, redactor.code) for section in sections),
    )


def _steps(audits: _Audits) -> list[tuple[str, str, str | None, int | None, str]]:
    """What to do, the most urgent first: search, then what is wrong, then what may be."""
    steps: list[tuple[str, str, str | None, int | None, str]] = []
    if isinstance(audits.recall, RecallAudit) and audits.recall.overall.low < _GOOD:
        advice = "Let each search look at more vectors, or rebuild the index."
        steps.append((advice, audits.recall.verdict, "(all)", None, ""))
    findings = audits.health.frame
    for severity in ("error", "stale", "warning"):
        if severity == "stale" and isinstance(audits.drift, VectorChanges):
            stale = audits.drift.frame[audits.drift.frame["change"] == "text only"]
            for namespace, part in stale.groupby("namespace"):
                why = "Their texts changed and their vectors did not: new words do not find them."
                ids = ", ".join(part["id"].head(LISTED))
                steps.append(("Embed these texts again.", why, str(namespace), len(part), ids))
        for row in findings[findings["severity"] == severity].to_dict("records"):
            why = f"{row['finding']}: {row['effect']}"
            steps.append(
                (row["advice"], why, row["namespace"], int(row["count"]), ", ".join(row["ids"][:LISTED]))
            )
    return steps


def _verdict(audits: _Audits, steps: list[Any]) -> str:
    sentences = [audits.health.verdict]
    if isinstance(audits.recall, RecallAudit):
        sentences.append(audits.recall.verdict)
    if not steps:
        return f"Healthy. {' '.join(sentences)}"
    first = steps[0][0].rstrip(".")
    return f"Not healthy. {' '.join(sentences)} First: {first}."


def _numbers(audits: _Audits) -> Iterator[Mapping[str, Any]]:
    rows = int(audits.health.facts["rows"].sum())
    usable = int(audits.health.facts["usable"].sum())
    serious = audits.health.frame[audits.health.frame["severity"] != "info"]
    yield {"name": "vectors", "value": rows, "change": None, "note": f"{usable:,} with a usable vector"}
    kinds = serious.drop_duplicates("finding")["severity"].value_counts()
    note = ", ".join(counted(int(kinds.get(name, 0)), name) for name in ("error", "warning"))
    yield {"name": "kinds of defect", "value": serious["finding"].nunique(), "change": None, "note": note}
    if isinstance(audits.recall, RecallAudit) and audits.recall.frame["share"].notna().any():
        overall = audits.recall.overall
        note = f"of the {audits.recall.k} nearest; {percent(overall.low)} to {percent(overall.high)}"
        yield {
            "name": "% of neighbours returned",
            "value": round(100 * overall.mean),
            "change": None,
            "note": note,
        }
    if isinstance(audits.drift, VectorChanges):
        changed = f"of {audits.drift.rows:,}"
        yield {"name": "vectors changed", "value": len(audits.drift.frame), "change": None, "note": changed}


def _as_passed(name: str, value: Any) -> str:
    """A line that makes an argument again where it was a path, and otherwise says what it was."""
    is_path = isinstance(value, str | os.PathLike)
    return f"{name} = {os.fspath(value)!r}" if is_path else f"{name}  # as it was passed"


def _loading(has_service: bool, passed: Any, source: VectorSource) -> str:  # noqa: FBT001 - not an option
    """Lines that load the vectors of the report, where that is known of them."""
    if not has_service:
        return _as_passed("vectors", passed)
    line = _as_passed("vectors", source)
    rows = len(source) if isinstance(source, pd.DataFrame) else None
    loaded = None if rows is None else receipt_of(source)
    if loaded is not None and loaded.complete and loaded.rows == rows and not loaded.scope["prefix"]:
        line = f"vectors = tk.load_vectors(service, namespace={loaded.scope['namespaces']!r})"
    return f"service = tk.connect()\n{line}"


def _codes(
    lines: list[str],
    options: Mapping[str, Any],
    labelled: bool,  # noqa: FBT001
    precision: float,
    scale: str | None,
    seed: int,
) -> dict[str, str]:
    """Python that computes each part again."""
    given = [f"{name}={'queries' if name == 'queries' else repr(value)}" for name, value in options.items()]
    labels = "labels, " if labelled else ""
    similarity = "" if scale is None else f"similarity={scale!r}, "
    return {
        "load": "\n".join(["import toolkit as tk\n", *lines]),
        "health": "health = tk.audit_vectors(vectors)\nhealth.plot()\nhealth.frame",
        "map": f"map = tk.project_vectors(vectors, sample={MAP_POINTS}, seed={seed!r})\n",
        "recall": f"recall = tk.audit_recall(service, vectors, {', '.join(given)})\nrecall.plot()\nrecall.by",
        "scores": f"scores = tk.calibrate_threshold(vectors, {labels}precision={precision!r}, {similarity}"
        f"seed={seed!r})\nscores.plot()\nscores.frame",
        "drift": f"changes = tk.compare_vectors(previous, vectors, seed={seed!r})\n"
        "changes.plot()\nchanges.counts",
    }
