"""Make the report on a vector index: health, recall, the meaning of scores, and changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

import numpy.typing as npt

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
from toolkit.base.python_code import Code
from toolkit.failures.overview import completeness
from toolkit.failures.selection import receipt_of, when_counted
from toolkit.loading.vector_names import Namespaces
from toolkit.loading.vectors import load_index, of_vectors
from toolkit.reports.findings import Cleaner
from toolkit.reports.index_audits import STEPS, AuditedIndex, IndexAudits, run_audits
from toolkit.reports.index_code import codes_of_parts, loading_lines
from toolkit.reports.index_sections import (
    Mask,
    answer_parts,
    drift_parts,
    health_parts,
    index_section,
    map_parts,
    recall_parts,
    score_parts,
)
from toolkit.reports.index_verdict import (
    first_section,
    is_healthy,
    next_steps,
    not_checked,
    numbers_of,
    verdict_of,
)
from toolkit.reports.page import Report
from toolkit.reports.sections import (
    Notice,
    Part,
    ReportCode,
    Section,
)
from toolkit.secrets.redaction import Redactor
from toolkit.service.settings import Service
from toolkit.service.vectors import describe_index
from toolkit.tables.arrow_input import FrameLike
from toolkit.tables.frames import checked_frame
from toolkit.tables.receipt import Receipt
from toolkit.vectors.documents import Groups
from toolkit.vectors.exact_comparison import SIMILARITIES
from toolkit.vectors.health import VectorAudit
from toolkit.vectors.recall_queries import query_vectors
from toolkit.vectors.vector_rows import VectorSource, VectorTables

_DOING: Final = "making an index report"
_SCHEMA: Final = "index-report/2"


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
        The namespaces to load from a service if `vectors` is omitted, as for `load_vectors`, and to compare
        with `previous`. Default: all.
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

    # raises an error with the name of the argument
    VectorTables(source, doing=_DOING, name=name)
    if previous is not None:
        VectorTables(previous, doing=_DOING, name="previous")
    audited = AuditedIndex(
        source=source,
        service=service,
        info=info,
        previous=previous,
        labels=labels,
        queries=queries,
        groups=groups,
        namespace=namespace,
        pinned=pinned,
        k=k,
        sample=sample,
        seed=seed,
        precision=precision,
        scale=scale,
    )

    total = STEPS + int(pinned is not None)
    with ProgressSteps(
        progress, title="index report", total=total, rows=rows_of(source)
    ) as step:
        audits = run_audits(audited, step)

    steps = list(next_steps(audits))
    codes = codes_of_parts(audited, loading_lines(audited, passed))
    sections = [first_section(steps, audits), index_section(info, audits.health)]
    sections += _audit_sections(audits, codes, clean.value)
    sections.append(
        Section("code", "The code", parts=(ReportCode(codes["load"], folded=False),))
    )
    notices = []
    loaded = receipt_of(source)
    if loaded is not None:
        notices.append(_load_notice(loaded, audits.health, clean.value))
    return IndexReport(
        schema=_SCHEMA,
        title=clean.value(title),
        verdict=clean.value(verdict_of(audits, steps)),
        values={
            "healthy": is_healthy(audits, steps),
            "not_checked": not_checked(audits),
        },
        made_at=when.isoformat(timespec="milliseconds"),
        notices=tuple(notices),
        numbers=tuple(numbers_of(audits)),
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


def _load_notice(loaded: Receipt, health: VectorAudit, mask: Mask) -> Notice:
    """Return a notice that names how complete the vectors are."""
    rows = int(health.facts["rows"].sum())
    sentence = f"The load of the vectors was {loaded.verdict}."
    # the frame may be a selection of the loaded rows
    if loaded.rows != rows:
        sentence = f"The vectors are {completeness(loaded, rows)}."
    return Notice(mask(sentence), good=loaded.complete and loaded.rows == rows)


def _audit_sections(
    audits: IndexAudits, codes: Mapping[str, Code], mask: Mask
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
"""Sections of the audits, in the order of the page: field of `IndexAudits`, heading, and function."""
