"""Make the report on a vector index: health, recall, the meaning of scores, and changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, TypeAlias

import numpy.typing as npt
import pandas as pd

from toolkit.base.arguments import (
    choice,
    file_path,
    instance,
    positive,
    text,
    whole,
)
from toolkit.base.errors import InputError
from toolkit.base.progress import ProgressSteps, StepOption, rows_of
from toolkit.base.python_code import Code, PublicCall, fill, joined, variable
from toolkit.drawing.wording import counted, percent
from toolkit.failures.overview import completeness
from toolkit.failures.selection import receipt_of, when_counted
from toolkit.loading.vector_names import Namespaces
from toolkit.loading.vectors import load_index, of_vectors
from toolkit.reports.findings import Cleaner
from toolkit.reports.index_sections import (
    IDS,
    LISTED,
    NAMESPACE,
    Mask,
    answer_parts,
    drift_parts,
    health_parts,
    index_section,
    map_parts,
    recall_parts,
    score_parts,
)
from toolkit.reports.page import Report
from toolkit.reports.sections import (
    Notice,
    Part,
    ReportCode,
    ReportColumn,
    Section,
    table,
)
from toolkit.secrets.redaction import Redactor
from toolkit.service.settings import Service
from toolkit.service.vectors import IndexInfo, describe_index
from toolkit.tables.arrow_input import FrameLike
from toolkit.tables.frames import checked_frame
from toolkit.tables.receipt import Receipt
from toolkit.vectors.answers import AnswerChanges, check_queries
from toolkit.vectors.calibration import Calibration, calibrate_threshold
from toolkit.vectors.documents import Groups
from toolkit.vectors.exact_comparison import SIMILARITIES
from toolkit.vectors.health import VectorAudit, audit_vectors
from toolkit.vectors.projection import VectorProjection, project_vectors
from toolkit.vectors.recall_audit import RecallAudit, audit_recall, query_vectors
from toolkit.vectors.vector_changes import VectorChanges, compare_vectors
from toolkit.vectors.vector_rows import VectorSource, VectorTables

_DOING: Final = "making an index report"
_SCHEMA: Final = "index-report/2"
_MAP_POINTS: Final = 800  # each point is drawn four times: in two widths and two themes

_Step: TypeAlias = tuple[str, str, str | None, int | None, str]


class IndexReport(Report):
    """A report on a vector index; made by `report_index`.

    Notebooks show it inline. It contains only numbers and masked strings, no vectors, so you can share it.

    Examples
    --------
    >>> import numpy as np
    >>> report = report_index(np.eye(40, 8) + 1)
    >>> report.verdict
    'Not healthy. 1 kind of defect in 40 rows in 1 namespace: duplicate. Not checked: ...'
    """

    command: ClassVar[str] = "toolkit report --vectors --output index-report.html"


@dataclass(frozen=True, eq=False)
class _Audits:
    """The audits of an index, or the reason why an audit could not be made."""

    health: VectorAudit
    map: VectorProjection | str
    recall: RecallAudit | str
    scores: Calibration | str
    drift: VectorChanges | str
    answers: AnswerChanges | str | None = None  # None without pinned queries


_STEPS: Final = 5  # number of audits that `_audited` runs without pinned queries


def report_index(
    index: Service | VectorSource,
    vectors: VectorSource | None = None,
    *,
    previous: VectorSource | None = None,
    labels: FrameLike | None = None,
    queries: npt.ArrayLike | FrameLike | None = None,
    pinned: str | os.PathLike[str] | None = None,
    k: int = 10,
    precision: float = 0.9,
    groups: Groups = None,
    similarity: str | None = None,
    namespace: Namespaces | None = None,
    sample: int = 300,
    seed: int = 0,
    now: datetime | None = None,
    title: str | None = None,
    redactor: Redactor | None = None,
    progress: StepOption = None,
) -> IndexReport:
    """Report on a vector index: health, recall, meaning of scores, changes, and the next steps.

    Parameters
    ----------
    index : Service, frame, table, dataset or path
        A service, or vectors in any form that `audit_vectors` accepts. Recall is measured only if you pass a
        service, because that needs queries.
    vectors : frame, table, dataset or path, optional
        Vectors of the service that you loaded earlier. If omitted, all vectors are loaded now.
    previous : frame, table, dataset or path, optional
        An earlier state to compare with, for example the path of a snapshot.
    labels : pandas.DataFrame, optional
        Judged scores (`score`, `match`), as for `calibrate_threshold`.
    queries : matrix or frame, optional
        Your own queries to measure recall with, as for `audit_recall`, and to compute the scores of random
        pairs with, as for `calibrate_threshold`. Default: stored vectors.
    pinned : path, optional
        A file of `pin_queries`: the report asks the queries again, and shows which answers changed.
    k : int
        Number of neighbours per query when recall is measured.
    precision : float
        Share of matches above the threshold, if `labels` are given.
    groups : str or callable, optional
        The document of each vector, as for `compare_vectors`; only with `previous`.
    similarity : str, optional
        ``"COSINE"``, ``"EUCLIDEAN"`` or ``"DOT_PRODUCT"``, for vectors without a service. Default: cosine.
    namespace : str or sequence of str, optional
        The namespaces to load from a service if `vectors` is omitted, as for `load_vectors`. Default: all.
    sample : int
        Number of queries when recall is measured.
    seed : int
        Seed of samples and permutations.
    now : datetime, optional
        Time of the report. Default: the current time.
    title : str, optional
    redactor : Redactor, optional
        Masks secrets in everything shown. Default: the redactor of the service, or one with the user's key.
    progress : bool or callable, optional
        A callable is called with (steps done, number of steps, name of the step that begins). By default, a
        notebook or terminal shows a bar if there are many vectors.

    Returns
    -------
    IndexReport
        Sections: next steps, the index, health, a map, recall, scores, changes, and the code. If an audit
        cannot be made, the section gives the reason. ``docs/index-report.schema.json`` describes the JSON.

    Raises
    ------
    InputError
        If no column contains vectors, or an option is not valid.
    SnapshotError
        If a path contains no snapshot.

    Examples
    --------
    >>> vectors = tk.load_vectors(service, namespace="runbooks", progress=False)
    >>> report = report_index(vectors, previous=vectors)
    >>> [section.title for section in report.sections][:3]
    ['What to do first', 'What the index is', 'Health']
    """
    when = when_counted(now)
    k, sample = whole("k", k, most=1000), whole("sample", sample)
    seed = whole("seed", seed, least=0)
    similarity = choice("similarity", similarity, SIMILARITIES, optional=True)
    if title is None:
        title = "Index report"
    title = text("title", title)
    passed, name = index, "index"
    if vectors is not None:
        passed, name = vectors, "vectors"
    service = info = None
    if isinstance(index, Service):
        service = index
    if redactor is None:
        redactor = Redactor()
        if service is not None:
            # it also knows the live token of the service
            redactor = service.redactor
    clean = Cleaner(instance("redactor", redactor, Redactor, "a Redactor"))
    precision = positive("precision", precision)
    _check_optional(labels, queries, groups, previous, pinned)
    scale = similarity
    if service is not None:
        info = describe_index(service)
        # an index without dense vectors has no similarity
        scale = similarity or info.similarity or None
    source: VectorSource = passed
    if service is not None and vectors is None:
        source = load_index(service, namespace)
    elif namespace is not None:
        raise of_vectors(namespace)
    options: dict[str, Any] = {"k": k, "sample": sample, "seed": seed}
    if queries is not None:
        options["queries"] = queries
    # raises an error with the name of the argument
    VectorTables(source, doing=_DOING, name=name)
    if previous is not None:
        VectorTables(previous, doing=_DOING, name="previous")
    with ProgressSteps(
        progress,
        title="index report",
        total=_STEPS + int(pinned is not None),
        rows=rows_of(source),
    ) as step:
        audits = _audited(
            service, source, previous, labels, info, pinned,
            options=options, precision=precision, scale=scale, groups=groups, step=step,
        )  # fmt: skip
    steps = list(_steps(audits))
    loaded = receipt_of(source)
    given = {
        "previous": previous,
        "labels": labels,
        "queries": queries,
        "groups": groups,
        "pinned": pinned,
    }
    lines = [_loading(service is not None, passed, source)]
    lines += [
        _as_passed(name, value) for name, value in given.items() if value is not None
    ]
    codes = _codes(lines, options, labels is not None, precision, scale, groups, seed)
    sections = [_first(steps, audits), index_section(info, audits.health)]
    sections += _audit_sections(audits, codes, clean.value)
    sections.append(
        Section("code", "The code", parts=(ReportCode(codes["load"], folded=False),))
    )
    notices = []
    if loaded is not None:
        notices.append(_load_notice(loaded, audits.health, clean.value))
    return IndexReport(
        schema=_SCHEMA,
        title=clean.value(title),
        verdict=clean.value(_verdict(audits, steps)),
        values={
            "healthy": _is_healthy(audits, steps),
            "not_checked": _not_checked(audits),
        },
        made_at=when.isoformat(timespec="milliseconds"),
        notices=tuple(notices),
        numbers=tuple(_numbers(audits)),
        sections=tuple(
            section.masked(clean.value, redactor.code) for section in sections
        ),
    )


def _check_optional(
    labels: FrameLike | None,
    queries: FrameLike | npt.ArrayLike | None,
    groups: Groups,
    previous: VectorSource | None,
    pinned: str | os.PathLike[str] | None,
) -> None:
    """Raise InputError for wrong values before the first audit, which takes long."""
    if labels is not None:
        checked_frame("labels", labels, "score", "match")
    if queries is not None:
        query_vectors(queries)
    if pinned is not None:
        file_path("pinned", pinned)
    if groups is not None and previous is None:
        raise InputError(
            "reading groups",
            got="groups without previous",
            expected="previous, too: groups name the documents of two states",
        )


def _audited(
    service: Service | None,
    source: VectorSource,
    previous: VectorSource | None,
    labels: FrameLike | None,
    info: IndexInfo | None,
    pinned: str | os.PathLike[str] | None,
    *,
    options: Mapping[str, Any],
    precision: float,
    scale: str | None,
    groups: Groups,
    step: Callable[[str], None],
) -> _Audits:
    """Run all audits. Return the reason for each audit that cannot run."""
    seed, mixed = options["seed"], ""
    if info is not None and info.kind != "DENSE":
        # sparse and hybrid scores depend on the words or on the other results, so no threshold fits them
        mixed = f"The scores of a {info.kind.lower()} index have no common scale."
    recall: RecallAudit | str = (
        "Recall was not measured: that takes a service to query."
    )
    if info is not None:
        recall = "Recall was not measured: the index has no dense vectors."
    scores: Calibration | str = mixed
    drift: VectorChanges | str = "There is no earlier state to compare with."
    step("auditing vectors")
    health = audit_vectors(source)
    step("making a map")
    projected = _projected(source, seed)
    step("measuring recall")
    if service is not None and info is not None and info.similarity in SIMILARITIES:
        # a hybrid index is searched by its dense vectors
        recall = audit_recall(service, source, **options)
    step("calibrating scores")
    if not mixed:
        scores = calibrate_threshold(
            source,
            labels,
            queries=options.get("queries"),
            precision=precision,
            similarity=scale,
            seed=seed,
        )
    step("comparing with the earlier state")
    if previous is not None:
        drift = compare_vectors(previous, source, groups=groups, seed=seed)
    answers: AnswerChanges | str | None = None
    if pinned is not None:
        step("asking pinned queries")
        answers = "Pinned queries were not asked: that takes a service to query."
        if service is not None:
            answers = check_queries(service, pinned, seed=seed)
    return _Audits(
        health=health,
        map=projected,
        recall=recall,
        scores=scores,
        drift=drift,
        answers=answers,
    )


def _steps(audits: _Audits) -> Iterator[_Step]:
    """Yield the next steps: another dimension, low recall, errors, stale vectors, then warnings."""
    if isinstance(audits.drift, VectorChanges):
        for row in audits.drift.dimensions.to_dict("records"):
            advice = "Send queries of the model that made the new vectors."
            why = f"The dimension changed from {row['before']} to {row['after']}."
            yield advice, why, str(row["namespace"]), None, ""
    if isinstance(audits.recall, RecallAudit) and audits.recall.trusted is False:
        advice = "Let each search look at more vectors, or rebuild the index."
        yield advice, audits.recall.verdict, "(all)", None, ""
    if isinstance(audits.answers, AnswerChanges) and not audits.answers.passes():
        advice = "Look at the queries whose answers changed."
        yield advice, audits.answers.verdict, "(all)", None, ""
    findings = audits.health.frame
    for severity in ("error", "stale", "warning"):
        if severity == "stale" and isinstance(audits.drift, VectorChanges):
            for namespace, part in audits.drift.stale.groupby("namespace"):
                why = "Their texts changed and their vectors did not: new words do not find them."
                ids = ", ".join(part["id"].head(LISTED))
                yield "Embed these texts again.", why, str(namespace), len(part), ids
        for row in findings[findings["severity"] == severity].to_dict("records"):
            why, ids = (
                f"{row['finding']}: {row['effect']}",
                ", ".join(row["ids"][:LISTED]),
            )
            yield row["advice"], why, row["namespace"], int(row["count"]), ids


def _is_healthy(audits: _Audits, steps: list[_Step]) -> bool | None:
    """Return whether no step is needed; None if the index has no dense vectors to judge."""
    if steps:
        return False
    if audits.health.dense:
        return True
    return None


def _load_notice(loaded: Receipt, health: VectorAudit, mask: Mask) -> Notice:
    """Return a notice that names how complete the vectors are."""
    rows = int(health.facts["rows"].sum())
    sentence = f"The load of the vectors was {loaded.verdict}."
    # the frame may be a selection of the loaded rows
    if loaded.rows != rows:
        sentence = f"The vectors are {completeness(loaded, rows)}."
    return Notice(mask(sentence), good=loaded.complete and loaded.rows == rows)


def _audit_sections(
    audits: _Audits, codes: Mapping[str, Code], mask: Mask
) -> Iterator[Section]:
    """Yield one section per audit, with the verdict and parts, or with the reason why it is missing."""
    for part, heading, make in _AUDITED:
        result = getattr(audits, part)
        if result is None:
            continue
        if isinstance(result, str):
            yield Section(part, heading, result)
        else:
            yield Section(
                part, heading, result.verdict, tuple(make(result, codes[part], mask))
            )


def _verdict(audits: _Audits, steps: list[_Step]) -> str:
    verdict = audits.health.verdict
    if isinstance(audits.recall, RecallAudit):
        verdict += f" {audits.recall.verdict}"
    if isinstance(audits.answers, AnswerChanges):
        verdict += f" {audits.answers.verdict}"
    not_checked = _not_checked(audits)
    if not_checked:
        verdict += f" Not checked: {', '.join(not_checked)}."
    if steps:
        return f"Not healthy. {verdict} First: {steps[0][0].rstrip('.')}."
    if not audits.health.dense:
        return f"Not judged. {verdict}"
    if not_checked:
        return f"Healthy, as far as checked. {verdict}"
    return f"Healthy. {verdict}"


def _not_checked(audits: _Audits) -> list[str]:
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


def _numbers(audits: _Audits) -> Iterator[Mapping[str, Any]]:
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


def _as_passed(name: str, value: Any) -> Code:
    """Return code that assigns an argument if it was a path, and a comment about it otherwise."""
    if isinstance(value, str | os.PathLike):
        return fill("{name} = {path}", name=variable(name), path=os.fspath(value))
    return fill("{name}  # as it was passed", name=variable(name))


def _loading(has_service: bool, passed: Any, source: VectorSource) -> Code:  # noqa: FBT001 - not an option
    """Return code that loads the vectors of the report, if the receipt shows how they were loaded."""
    if not has_service:
        return _as_passed("vectors", passed)
    line = _as_passed("vectors", source)
    loaded = None
    if isinstance(source, pd.DataFrame):
        loaded = receipt_of(source)
    # only a complete load of all ids can be repeated with `namespace` alone
    if (
        isinstance(source, pd.DataFrame)
        and loaded is not None
        and loaded.complete
        and loaded.rows == len(source)
        and not loaded.scope["prefix"]
        and "filter" not in loaded.scope
    ):
        load = _LOAD.write(variable("service"), namespace=loaded.scope["namespaces"])
        line = fill("vectors = {load}", load=load)
    return joined([fill("service = tk.connect()"), line])


def _codes(
    lines: list[Code],
    options: Mapping[str, Any],
    labelled: bool,  # noqa: FBT001
    precision: float,
    scale: str | None,
    groups: Groups,
    seed: int,
) -> dict[str, Code]:
    """Return code that computes each part again."""
    vectors = variable("vectors")
    measured = dict(options)
    if "queries" in measured:
        measured["queries"] = variable("queries")
    recall = _RECALL.write(variable("service"), vectors, **measured)
    labels = []
    if labelled:
        labels.append(variable("labels"))
    # callers may pass any kind of number, for example a Decimal, but shown code only has literals
    scored: dict[str, object] = {"precision": float(precision), "seed": seed}
    if "queries" in measured:
        scored["queries"] = measured["queries"]
    if scale is not None:
        scored["similarity"] = scale
    compared: dict[str, object] = {"seed": seed}
    if groups is not None:
        compared["groups"] = variable("groups")
    return {
        "load": joined([fill("import toolkit as tk\n"), *lines]),
        "health": fill(
            "health = tk.audit_vectors(vectors)\nhealth.plot()\nhealth.frame"
        ),
        "map": fill(
            "map = {call}", call=_PROJECT.write(vectors, sample=_MAP_POINTS, seed=seed)
        ),
        "recall": fill("recall = {call}\nrecall.plot()\nrecall.by", call=recall),
        "scores": fill(
            "scores = {call}\nscores.plot()\nscores.frame",
            call=_SCORE.write(vectors, *labels, **scored),
        ),
        "drift": fill(
            "changes = {call}\nchanges.plot()\nchanges.counts",
            call=_COMPARE.write(variable("previous"), vectors, **compared),
        ),
        "answers": fill(
            "answers = {call}\nanswers.frame",
            call=_CHECK.write(variable("service"), variable("pinned"), seed=seed),
        ),
    }


_LOAD: Final = PublicCall("load_vectors", ("namespace",))
_PROJECT: Final = PublicCall("project_vectors", ("sample", "seed"))
_RECALL: Final = PublicCall("audit_recall", ("k", "sample", "seed", "queries"))
_SCORE: Final = PublicCall(
    "calibrate_threshold", ("queries", "precision", "similarity", "seed")
)
_COMPARE: Final = PublicCall("compare_vectors", ("groups", "seed"))
_CHECK: Final = PublicCall("check_queries", ("seed",))


def _projected(source: VectorSource, seed: int) -> VectorProjection | str:
    """Return the vectors projected onto a plane, or the reason why the map is missing."""
    try:
        return project_vectors(source, sample=_MAP_POINTS, seed=seed)
    except InputError as error:
        # for example vectors of several dimensions, or only sparse vectors
        return f"There is no map: {error.got}."


def _first(steps: list[_Step], audits: _Audits) -> Section:
    """Return the section of next steps, the most urgent first."""
    if not steps:
        sentence = "Load dense vectors, to judge them."
        if audits.health.dense:
            sentence = "Nothing: no defect was found."
            if _not_checked(audits):
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


_AUDITED: Final[
    tuple[tuple[str, str, Callable[[Any, Code, Mask], Iterator[Part]]], ...]
] = (
    ("health", "Health", health_parts),
    ("map", "Map", map_parts),
    ("recall", "Recall", recall_parts),
    ("scores", "What scores mean here", score_parts),
    ("drift", "What changed", drift_parts),
    ("answers", "Pinned queries", answer_parts),
)
"""Sections of the audits, in the order of the page: field of `_Audits`, heading, and function."""
