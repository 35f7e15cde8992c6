"""Pin the answers of queries in a file, and check later whether the index still gives them.

For example, you pin 100 usual questions today. After the index was rebuilt, `check_queries` asks them again
and reports which answers changed: documents that are gone, other documents, another order, or other scores.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from toolkit.base.arguments import file_path, shown, text, whole
from toolkit.base.errors import InputError, UnexpectedResultWarning
from toolkit.base.private_files import read_file, write_file
from toolkit.base.visible_text import visible
from toolkit.drawing.result_tables import frame_table
from toolkit.drawing.wording import counted, shorten
from toolkit.filters.query import VectorQuery
from toolkit.loading.fetching import ABSENT, fetch_vectors
from toolkit.loading.queries import run_queries
from toolkit.service.settings import Service
from toolkit.service.vectors import describe_index
from toolkit.tables.arrow_input import FrameLike
from toolkit.vectors.fusion import measures_of, read_judgements
from toolkit.vectors.given_queries import listed_queries
from toolkit.vectors.retrieval import Recall, mean_recall, paired_difference
from toolkit.vectors.vector_rows import typed_tuples

Queries: TypeAlias = str | VectorQuery | Iterable[str | VectorQuery]
_Hits = list[tuple[str, float]]

_PINNING: Final = "pinning queries"
_CHECKING: Final = "checking queries"
_FORMAT: Final = "pinned-queries/1"
_AT_ONCE: Final = 100  # queries per request
_NAMED: Final = 3  # queries without an answer that a warning names
_PERSISTENCE: Final = 0.9  # of a reader: the first ten ranks have 86 % of the weight
_TIE: Final = 1e-4  # relative difference of scores that rounding explains


@dataclass(frozen=True, repr=False, eq=False)
class AnswerChanges:
    """Answers of pinned queries compared with the answers now; made by `check_queries`.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row per query, the most changed first: `query` (Int64, the number), `asked` (the text, id or kind
        of the query), `overlap` (float64, the share of the pinned documents that are returned), `order`
        (float64, the rank-biased overlap), `score_change` (float64, the median change of the scores of the
        documents in both), `lost`, `gained` (tuples of ids), `deleted` (tuple of lost ids that the index no
        longer contains).
    overlap, order : Recall
        The means over queries, with 95 % intervals.
    judged : pandas.DataFrame
        With judgements: `measure` (``ndcg``, ``recall``), `before`, `after`, `difference`, `low`, `high`
        (float64, the difference with the 95 % interval over queries).
    moved : bool
        Whether the scores of most documents of a dense index changed by more than rounding, as they do with
        another model.
    unanswered : int
        Number of queries that had no answer when they were pinned, so that nothing can be lost.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp()) / "pinned.parquet"
    >>> asked = pin_queries(service, ["connection refused", "disk full"], path, namespace="runbooks")
    >>> check_queries(service, path).verdict
    'The answers of 2 queries are the same.'
    """

    frame: pd.DataFrame
    overlap: Recall
    order: Recall
    judged: pd.DataFrame
    moved: bool
    unanswered: int = 0

    @property
    def deleted(self) -> tuple[str, ...]:
        """Return the ids of pinned documents that the index no longer contains."""
        return tuple(dict.fromkeys(chain.from_iterable(self.frame["deleted"])))

    @property
    def changed(self) -> pd.DataFrame:
        """Return the rows of `frame` whose documents or order changed."""
        return self.frame[self.frame["order"] < 1]

    def passes(self, least: float = 0.9) -> bool:
        """Return whether the answers are good enough for a check without a person.

        No document was deleted, scores did not move as with another model, and the order of each query is at
        least `least`. If no pinned query had an answer, nothing is known, and the check fails.
        """
        if self.unanswered == len(self.frame):
            return False

        lowest = self.frame["order"].min()
        return not self.deleted and not self.moved and not lowest < least

    @property
    def verdict(self) -> str:
        """Return one sentence with the changes, and one if pinned queries had no answer."""
        if not self.unanswered:
            return self._changes()
        if self.unanswered == len(self.frame):
            return "Nothing is known: no pinned query had an answer. Pin the queries again."

        without = _queries_counted(self.unanswered)
        return f"{self._changes()} {without} had no answer when pinned."

    def _changes(self) -> str:
        queries = _queries_counted(len(self.frame))
        changed = len(self.changed)
        if not changed and not self.moved:
            return f"The answers of {queries} are the same."

        parts = [f"the answers of {changed:,} of {queries} changed"]
        if not changed:
            parts = [f"the documents of {queries} are the same"]
        else:
            parts += [
                f"{_percents(self.overlap)} of the documents are still returned",
                f"rank-biased overlap {self.order.mean:.3f} [{self.order.low:.3f}, {self.order.high:.3f}]",
            ]

        if self.deleted:
            parts.append(
                f"{counted(len(self.deleted), 'document')} no longer in the index:"
                f" {', '.join(self.deleted[:3])}"
            )

        if self.moved:
            change = self.frame["score_change"].median()
            parts.append(
                f"scores moved by {change:.2g} at the median, as with another model"
            )

        for row in self.judged.to_dict("records"):
            interval = f"[{row['low']:+.3f}, {row['high']:+.3f}]"
            parts.append(f"{row['measure']} {row['difference']:+.3f} {interval}")

        sentence = "; ".join(parts)
        return f"{sentence[0].upper()}{sentence[1:]}."

    def worst(self, n: int = 5) -> pd.DataFrame:
        """Return the `n` queries whose answers changed most."""
        return self.frame.head(whole("n", n))

    def __repr__(self) -> str:
        changed = self.changed.head(10)
        if changed.empty:
            return visible(self.verdict)

        return visible(f"{self.verdict}\n{changed.to_string(index=False)}")

    def _repr_html_(self) -> str:
        listed = self.changed.head(10)
        columns = {
            name: [", ".join(ids[:5]) for ids in listed[name]]
            for name in ("lost", "gained", "deleted")
        }
        return frame_table(self.verdict, listed.assign(**columns))


def pin_queries(
    service: Service,
    queries: Queries,
    path: str | os.PathLike[str],
    *,
    k: int = 10,
    namespace: str = "",
) -> pd.DataFrame:
    """Store queries with their present answers in a file, to check them later.

    Parameters
    ----------
    service : Service
        From `connect`.
    queries : str, VectorQuery, or iterable of them
        Text, if the index has a model, or queries by vector, text or id, with their filters.
    path : path
        The Parquet file to write. It contains the queries, so only you can read it.
    k : int
        Number of answers of a query that is text. A VectorQuery has `top_k`.
    namespace : str
        Namespace for queries that are text. A VectorQuery has a namespace.

    Returns
    -------
    pandas.DataFrame
        One row per answer: `query` (Int64), `rank` (Int64), `id` (str), `score` (float64).

    Raises
    ------
    InputError
        If there are no queries, a query cannot be used, no query has an answer, for example because the
        namespace does not exist, or the file cannot be written.
    ServiceError
        When a request fails.

    Warns
    -----
    UnexpectedResultWarning
        If some queries have no answer: the warning names them.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> asked = tk.VectorQuery(data="connection refused", top_k=3, namespace="runbooks")
    >>> pin_queries(service, asked, Path(mkdtemp()) / "pinned.parquet")["rank"].tolist()
    [1, 2, 3]
    """
    target = file_path("path", path)
    wanted = _wanted(queries, whole("k", k, most=1000), text("namespace", namespace))
    info = describe_index(service)
    answers = _ask(service, wanted)
    unanswered = [number for number, hits in enumerate(answers) if not hits]
    if unanswered:
        _report_unanswered(service, wanted, unanswered)

    rows: list[tuple[int, int, str, float]] = []
    for number, hits in enumerate(answers):
        rows += [
            (number, rank, key, score) for rank, (key, score) in enumerate(hits, 1)
        ]

    frame = typed_tuples(rows, query="Int64", rank="Int64", id="str", score="float64")
    about = {
        "format": _FORMAT,
        "kind": info.kind,
        "queries": [_stored(item) for item in wanted],
    }
    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.replace_schema_metadata({"pinned": json.dumps(about)})
    write_file(target, lambda file: pq.write_table(table, file))

    return frame


def check_queries(
    service: Service,
    path: str | os.PathLike[str],
    *,
    judgements: FrameLike | None = None,
    seed: int = 0,
) -> AnswerChanges:
    """Ask pinned queries again, and compare the answers with the pinned ones.

    Parameters
    ----------
    service : Service
        From `connect`.
    path : path
        A file of `pin_queries`.
    judgements : pandas.DataFrame, optional
        Relevant ids, as for `compare_fusion`: `query` (the number or text), `id`, optionally `relevance`.
        With them, nDCG and recall before and after are compared.
    seed : int
        Seed for the intervals.

    Returns
    -------
    AnswerChanges

    Raises
    ------
    InputError
        If the file was not written by `pin_queries`, or judgements cannot be read.
    ServiceError
        When a request fails.

    Notes
    -----
    The order is compared by rank-biased overlap (Webber, Moffat and Zobel, 2010; extrapolated, p = 0.9), in
    which the first ranks weigh most. Scores that differ by less than 1 in 10,000 are ties: rounding can
    exchange such documents, which is no change.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp()) / "pinned.parquet"
    >>> asked = pin_queries(service, "connection refused", path, namespace="runbooks")
    >>> check_queries(service, path).passes()
    True
    """
    seed = whole("seed", seed, least=0)
    wanted, pinned, kind = _read(file_path("path", path))
    relevance = read_judgements(judgements, wanted)
    answers = _ask(service, wanted)

    rows: list[dict[str, Any]] = []
    for number, (before, after) in enumerate(zip(pinned, answers, strict=True)):
        rows.append(
            {"query": number, "asked": _asked(wanted[number])}
            | _compared(before, after, wanted[number].top_k)
        )

    _find_deleted(service, wanted, rows)
    columns = {
        "query": "Int64", "asked": "str", "overlap": "float64", "order": "float64", "score_change": "float64",
        "lost": "object", "gained": "object", "deleted": "object",
    }  # fmt: skip
    frame = typed_tuples(
        [tuple(row[name] for name in columns) for row in rows], **columns
    )
    k = max(item.top_k for item in wanted)
    changes = frame["score_change"].dropna()

    return AnswerChanges(
        frame=frame.sort_values(["order", "query"], ignore_index=True),
        overlap=mean_recall(frame["overlap"].tolist(), k=k, seed=seed),
        order=mean_recall(frame["order"].tolist(), k=k, seed=seed),
        judged=_judged(pinned, answers, relevance, k, seed),
        # scores of sparse and hybrid indexes move with each document that is added
        moved=kind == "DENSE" and len(changes) > 0 and bool(changes.median() > _TIE),
        unanswered=sum(not hits for hits in pinned),
    )


def _report_unanswered(
    service: Service, wanted: Sequence[VectorQuery], unanswered: Sequence[int]
) -> None:
    """Warn of queries without an answer. Raise InputError if no query has one."""
    # a request names a reason only if none of its queries has an answer
    _, reasons = run_queries(service, [wanted[unanswered[0]]])
    reason = " ".join(reasons)
    if len(unanswered) == len(wanted):
        raise InputError(
            _PINNING,
            got=f"no answer to {_queries_counted(len(wanted))}",
            expected="answers, with which later ones are compared",
            next_step=reason or "Look at the namespace and the filters.",
        )

    named = ", ".join(
        f"{number} ({service.redactor.own(_asked(wanted[number]))})"
        for number in unanswered[:_NAMED]
    )
    if len(unanswered) > _NAMED:
        named += ", …"
    warnings.warn(
        f"{len(unanswered):,} of {len(wanted):,} queries have no answer: {named}. {reason}".rstrip(),
        UnexpectedResultWarning,
        stacklevel=3,
    )


def _wanted(queries: Any, k: int, namespace: str) -> list[VectorQuery]:
    wanted = []
    listed = listed_queries(queries, namespace=namespace, top_k=k)
    for number, item in enumerate(listed):
        if not isinstance(item, VectorQuery):
            raise InputError(
                f"reading queries at position {number}",
                got=shown(item),
                expected="a string or a VectorQuery",
            )
        ids_only = replace(
            item, include_metadata=False, include_vectors=False, include_data=False
        )
        wanted.append(ids_only)

    return wanted


def _ask(service: Service, wanted: Sequence[VectorQuery]) -> list[_Hits]:
    """Return ids and scores of each query, best first."""
    answers: list[_Hits] = [[] for _ in wanted]
    for start in range(0, len(wanted), _AT_ONCE):
        # a namespace that is gone gives no answers, which is a change and not a mistake of the caller
        hits, _ = run_queries(service, list(wanted[start : start + _AT_ONCE]))
        for number, key, score in zip(
            hits["query"], hits["id"], hits["score"], strict=True
        ):
            answers[start + number].append((str(key), float(score)))

    return answers


def _stored(item: VectorQuery) -> dict[str, Any]:
    """Return a query as JSON values."""
    return {field.name: getattr(item, field.name) for field in fields(item)}


def _read(path: Path) -> tuple[list[VectorQuery], list[_Hits], str]:
    """Return the queries of a file, their answers, and the kind of the index."""
    try:
        table = pq.read_table(BytesIO(read_file(path)))
        about = json.loads((table.schema.metadata or {})[b"pinned"])
        if about["format"] != _FORMAT:
            raise ValueError(about["format"])  # noqa: TRY301 - one answer for each damaged file
        wanted = [VectorQuery(**item) for item in about["queries"]]
        kind = str(about["kind"])
        answers: list[_Hits] = [[] for _ in wanted]
        for row in table.to_pylist():
            answers[row["query"]].append((row["id"], row["score"]))
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(
            _CHECKING,
            got=f"{path.name!r}, which cannot be read ({type(error).__name__})",
            expected=f"a file that pin_queries wrote, in the format {_FORMAT}",
            next_step="Pin the queries again: pin_queries(service, queries, path).",
        ) from None

    return wanted, answers, kind


def _asked(item: VectorQuery) -> str:
    """Return a query in a few words."""
    if item.data is not None:
        asked = item.data
    elif item.id is not None:
        asked = f"id {item.id}"
    elif item.vector is not None:
        asked = f"{len(item.vector):,} numbers"
    else:
        asked = "a sparse vector"

    if item.filter:
        asked += f" ({item.filter})"
    return shorten(asked, 60)


def _compared(before: _Hits, after: _Hits, k: int) -> dict[str, Any]:
    """Compare two answers of one query."""
    old, new = dict(before), dict(after)
    missing = [key for key in old if key not in new]
    lost = [key for key in missing if not _is_tie(old[key], before, after, k)]
    extra = [key for key in new if key not in old]
    # as many documents came in by a tie as went out by it
    ties = len(missing) - len(lost)
    gained = extra[: len(extra) - ties] if ties else extra
    kept = [key for key in old if key in new]
    score_change = np.nan
    if kept:
        changes = [abs(new[key] - old[key]) / max(1.0, abs(old[key])) for key in kept]
        score_change = float(np.median(changes))

    overlap = 1.0
    if old:
        overlap = 1 - len(lost) / len(old)
    elif new:
        overlap = 0.0

    stand_ins = dict(
        zip(extra[len(extra) - ties :], _without(missing, lost), strict=False)
    )
    order = [stand_ins.get(key, key) for key in _as_pinned(after, list(old))]

    return {
        "overlap": overlap,
        "order": rank_biased_overlap(list(old), order),
        "score_change": score_change,
        "lost": tuple(lost),
        "gained": tuple(gained),
        "deleted": (),
    }


def _without(keys: list[str], removed: list[str]) -> list[str]:
    return [key for key in keys if key not in removed]


def _is_tie(score: float, before: _Hits, after: _Hits, k: int) -> bool:
    """Return whether a document left a full answer because its score equals that of the last one."""
    if len(before) < k or len(after) < k:
        return False
    return all(_are_equal(score, hits[-1][1]) for hits in (before, after))


def _are_equal(one: float, other: float) -> bool:
    return abs(one - other) <= _TIE * max(1.0, abs(one))


def _as_pinned(hits: _Hits, pinned: list[str]) -> list[str]:
    """Return the ids of hits; hits with equal scores are in the order of the pinned answer.

    For example, rounding exchanges b and c with the scores 0.80001 and 0.80000: the order is that of before.
    """
    rank = {key: number for number, key in enumerate(pinned)}
    ordered: list[str] = []
    group: _Hits = []
    for key, score in hits:
        if group and not _are_equal(group[0][1], score):
            ordered += sorted(
                (name for name, _ in group), key=lambda name: rank.get(name, len(rank))
            )
            group = []

        group.append((key, score))

    return ordered + sorted(
        (name for name, _ in group), key=lambda name: rank.get(name, len(rank))
    )


def rank_biased_overlap(
    first: Sequence[str], second: Sequence[str], persistence: float = _PERSISTENCE
) -> float:
    """Return how alike two rankings are: 1 if they are equal, 0 if they share nothing.

    This is the extrapolated rank-biased overlap. The agreement at depth d is the number of shared ids among
    the first d, divided by d; depths have falling weights.

    >>> rank_biased_overlap(["a", "b"], ["a", "b"]), rank_biased_overlap(["a"], ["b"])
    (1.0, 0.0)
    """
    depth = max(len(first), len(second))
    if not depth:
        return 1.0

    shared = 0
    seen_first: set[str] = set()
    seen_second: set[str] = set()
    total = 0.0
    for place in range(depth):
        seen_first.update(first[place : place + 1])
        seen_second.update(second[place : place + 1])
        shared = len(seen_first & seen_second)
        total += shared / (place + 1) * persistence**place

    extrapolated = shared / depth * persistence**depth
    return float(round((1 - persistence) * total + extrapolated, 12))


def _find_deleted(
    service: Service, wanted: Sequence[VectorQuery], rows: list[dict[str, Any]]
) -> None:
    """Add the lost documents that the index no longer contains to each row."""
    by_namespace: dict[str, set[str]] = {}
    for item, row in zip(wanted, rows, strict=True):
        by_namespace.setdefault(item.namespace, set()).update(row["lost"])
    for namespace, lost in by_namespace.items():
        if not lost:
            continue
        found = fetch_vectors(
            service,
            sorted(lost),
            namespace=namespace,
            include_vectors=False,
            include_metadata=False,
            include_data=False,
        )
        # fetching an id that the index does not contain gives a row that names the problem
        exists = found["vector_problem"].fillna("") != ABSENT
        gone = lost - set(found["id"][exists])
        for item, row in zip(wanted, rows, strict=True):
            if item.namespace == namespace:
                row["deleted"] = tuple(key for key in row["lost"] if key in gone)


def _judged(
    before: list[_Hits],
    after: list[_Hits],
    relevance: list[dict[str, float]],
    k: int,
    seed: int,
) -> pd.DataFrame:
    """Return nDCG and recall before and after, over the queries with a relevant id."""
    measured: list[list[tuple[float, float, float]]] = [[], []]
    for number, judged in enumerate(relevance):
        if any(judged.values()):
            for side, answers in zip(measured, (before, after), strict=True):
                side.append(measures_of([key for key, _ in answers[number]], judged, k))

    rows: list[tuple[Any, ...]] = []
    if measured[0]:
        old, new = (np.array(side) for side in measured)
        for name, column in (("ndcg", 0), ("recall", 2)):
            difference = paired_difference(new[:, column], old[:, column], seed=seed)
            means = float(old[:, column].mean()), float(new[:, column].mean())
            rows.append((name, *means, *difference))

    numbers = dict.fromkeys(("before", "after", "difference", "low", "high"), "float64")
    return typed_tuples(rows, measure="str", **numbers)


def _queries_counted(number: int) -> str:
    if number == 1:
        return "1 query"
    return f"{number:,} queries"


def _percents(share: Recall) -> str:
    return f"{share.mean * 100:.1f} % [{share.low * 100:.1f}, {share.high * 100:.1f}]"
