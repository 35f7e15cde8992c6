"""Find earlier failures that look like new ones, and the outcome of the earlier failures."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from toolkit.base.arguments import text as checked_text
from toolkit.base.arguments import unmasked, whole, wrong
from toolkit.base.errors import UnexpectedResultWarning
from toolkit.drawing.result_tables import frame_table
from toolkit.drawing.wording import counted
from toolkit.failures.comparable_rows import check_memory, comparable, when_failed
from toolkit.failures.group_rules import GroupRules
from toolkit.failures.grouping import FailureGroups, grouped
from toolkit.failures.outcome_names import OUTCOMES
from toolkit.failures.outcomes import RetryOutcomes, find_retry_outcomes
from toolkit.failures.remembered import (
    NAMESPACE,
    earlier_rows,
    remembered,
    stored_text,
)
from toolkit.failures.selection import typed_rows
from toolkit.failures.signed_failures import read_rules, with_learned
from toolkit.failures.sources import AnyFrame
from toolkit.failures.text_index import Match, TextIndex
from toolkit.loading.text_embedding import Embed, check_embed
from toolkit.secrets.redaction import Redactor, visible
from toolkit.service.settings import Service, endpoint_of
from toolkit.signatures.signing import error_signatures, text_or_none
from toolkit.tables.signed_rows import SIGNATURE


@dataclass(frozen=True)
class SeenTuning:
    """Constants of "seen before", with the data they were set on."""

    seen: float = 0.55
    """Least similarity of the error and the frames near it for a message that was seen before.

    On 301 public Java traces, 91 % of the traces with an earlier trace of the same fault reach it, and 35 %
    of the others. The similarity of the complete message decides worse at any limit: at .5, 99 % and 60 %.
    """
    never_seen_error: float = 0.12
    """Error rate of "never seen": the share of such messages with an earlier message of the same fault.

    Measured on 301 public Java traces (13 of 110 such traces). On the project's own traces, half of which are
    new, it is .03 (18 of 602).
    """
    most: int = 2_000
    """Largest groups of failures that are compared."""
    most_queried: int = 200
    """Largest groups of failures that are searched in a vector index."""
    most_known: int = 100_000
    """Largest groups of the history that are compared."""
    longest: int = 20_000
    """Compared characters per body."""


TUNING: Final = SeenTuning()


def similar_texts(
    texts: Iterable[str | None], history: Iterable[str | None], k: int = 5
) -> pd.DataFrame:
    """Find, for each message, the most similar messages of a history.

    Messages are compared by words, lines of stack traces, and group; rare features count more (tf-idf).
    Values, for example numbers and ids, do not count. Do not use this to decide whether two messages have the
    same cause: use `error_signatures` for that.

    Parameters
    ----------
    texts, history : iterable of str or None
        Error messages, response bodies or stack traces. None and empty strings are similar to nothing.
    k : int
        Number of similar messages to return for each message, at least 1.

    Returns
    -------
    pandas.DataFrame
        Up to `k` rows per message, the most similar first: `query` (Int64, position in `texts`), `rank`
        (Int64, from 1), `row` (Int64, position in `history`), `similarity` (float64, above 0 to 1), `seen`
        (bool: whether the error of the best match, with the frames near it, is similar enough to count as
        seen before).

    Raises
    ------
    InputError
        If `texts` or `history` contain anything but strings and None, or `k` is below 1.

    Examples
    --------
    >>> history = ["no space left on device /dev/sda1", "connection to db-7 refused"]
    >>> similar_texts(["connection to db-12 was refused"], history, k=1)
       query  rank  row  similarity  seen
    0      0     1    1    0.532907  True
    """
    k = whole("k", k)
    queried, known = _checked("texts", texts), _checked("history", history)
    groups = error_signatures([*queried, *known])

    return _similar_texts(queried, known, groups, k)


def _similar_texts(
    queried: Sequence[str], known: Sequence[str], groups: Sequence[str | None], k: int
) -> pd.DataFrame:
    """Compare messages. `groups` contains the group of each queried message, then of each known message."""
    index = TextIndex(known, groups[len(queried) :])
    rows: list[tuple[int, int, int, float, bool]] = []
    matches: dict[tuple[str, str | None], list[Match]] = {}
    for query, text in enumerate(zip(queried, groups[: len(queried)], strict=True)):
        if text not in matches:
            matches[text] = index.nearest(*text, k)
        nearest = matches[text]
        seen = bool(nearest) and nearest[0].error_similarity >= TUNING.seen
        rows += [
            (query, rank, match.row, match.similarity, seen)
            for rank, match in enumerate(nearest, start=1)
        ]

    types = {
        "query": "Int64",
        "rank": "Int64",
        "row": "Int64",
        "similarity": "float64",
        "seen": "bool",
    }
    return pd.DataFrame(rows, columns=list(types)).astype(types)


def _checked(name: str, texts: Any) -> list[str]:
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise wrong(name, texts, "an iterable of texts")

    return [text_or_none(name, text) or "" for text in texts]


_SHOWN: Final = 50  # rows that a notebook shows
_TYPES: Final = {
    "group": "str", "title": "str", "rank": "Int64", "similar": "str", "similar_title": "str",
    "similarity": "float64", "seen": "bool", "count": "Int64", "last_at": "datetime64[ms, UTC]",
    "outcome": "str",
}  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class SimilarFailures:
    """The most similar earlier groups of each group of failures; made by `find_similar_failures`.

    Attributes
    ----------
    frame : pandas.DataFrame
        Up to `k` rows per group, the largest group first: `group`, `title` (str), `rank` (Int64, from 1;
        missing if no earlier group is similar), `similar`, `similar_title` (str: the earlier group),
        `similarity` (float64, above 0 to 1; 1 for the same group), `seen` (bool: whether the best match is
        similar enough to count as seen before), and for the earlier failures `count` (Int64), `last_at`
        (datetime64[ms, UTC]) and `outcome` (str, for example "2 deleted, 1 expired").
    never_seen_error : float
        Error rate of "never seen": the share of such messages with an earlier message of the same fault.
        `make accuracy` measures it on stack traces, half of them new.

    Examples
    --------
    >>> from toolkit import load_failures, find_similar_failures
    >>> failures = load_failures(service, limit=250)
    >>> bool(find_similar_failures(failures[:50], failures[50:]).frame["seen"].any())
    True
    """

    frame: pd.DataFrame
    never_seen_error: float = TUNING.never_seen_error

    def __repr__(self) -> str:
        first = self.frame.drop_duplicates("group")
        new = int((~first["seen"]).sum())
        sentence = f"{counted(len(first), 'group')}: {len(first) - new:,} seen before, {new:,} never"
        if not new:
            return sentence

        return (
            f"{sentence}; never seen: {visible(first['title'][~first['seen']].iloc[0])}"
        )

    def _repr_html_(self) -> str:
        error = f"never seen is wrong for about {self.never_seen_error:.0%}"
        return frame_table(f"{self!r} ({error})", self.frame.head(_SHOWN))


def find_similar_failures(
    failures: AnyFrame,
    history: AnyFrame | Service,
    *,
    k: int = 5,
    runs: AnyFrame | None = None,
    retried: Mapping[str, str] | None = None,
    retention: str | timedelta | None = None,
    rules: str | Path | GroupRules | None = None,
    namespace: str = NAMESPACE,
    embed: Embed | None = None,
) -> SimilarFailures:
    """Find, for each group of failures, similar earlier groups and their outcomes.

    If the history has a group with the same id, it is the most similar one. The 2,000 largest groups of
    failures are compared with the 100,000 largest groups of the history by words and lines of stack traces.
    Do not use this to decide whether two groups have the same cause.

    Parameters
    ----------
    failures : frame
        With the columns of `load_failures`.
    history : frame or Service
        Earlier failures with the same columns; entries in both frames count only as failures. If you pass a
        snapshot, it also contains entries that left the queue. If you pass a service, the groups that
        `index_failures` stored in the vector index are the history, if they are older than the group.
    k : int
        Number of similar groups per group, at least 1.
    runs, retried, retention
        Facts about entries that left the queue, as for `find_retry_outcomes`.
    rules : str, Path or GroupRules, optional
        As in `group_failures`.
    namespace : str, default "failures"
        Namespace of the stored groups, if `history` is a service.
    embed : callable, optional
        The function that was passed to `index_failures`, if `history` is a service.

    Returns
    -------
    SimilarFailures
        `.frame` has up to `k` rows per group.

    Raises
    ------
    InputError
        If a column is missing or an option is not valid.
    ServiceError
        If `history` is a service, and a request fails.

    Warns
    -----
    UnexpectedResultWarning
        If `history` is a service without this namespace.

    Examples
    --------
    >>> def failures(*bodies):
    ...     times = pd.to_datetime(["2026-01-01"] * len(bodies), utc=True)
    ...     return pd.DataFrame({"dlq_id": list(bodies), "workflow_url": "u", "workflow_run_id": "w",
    ...         "failed_at": times, "created_at": times, "response_status": 500, "response_body": bodies,
    ...         "response_body_base64": [None] * len(bodies)})
    >>> history = failures("connection to the database refused", "no space left on device")
    >>> found = find_similar_failures(failures("connection to the cache refused", "teapot"), history, k=1)
    >>> found
    2 groups: 1 seen before, 1 never; never seen: teapot
    """
    k, given = whole("k", k), read_rules(rules)
    if isinstance(history, Service):
        new = comparable(failures, "failures", given, signed=True)
        name = unmasked("namespace", checked_text("namespace", namespace))
        given = with_learned(given, failures)
        return _similar_remembered(new, history, given, k, name, embed)

    check_memory(given, failures=failures, history=history)
    new, old = (
        comparable(failures, "failures", given),
        comparable(history, "history", given),
    )
    outcomes = find_retry_outcomes(
        history, runs=runs, retried=retried, retention=retention
    )
    given = with_learned(with_learned(given, failures), history)
    groups, ids = grouped(pa.concat_tables([new, old]), given)

    return _similar(new, old, ids, groups, outcomes, k)


def _similar_remembered(
    new: pa.Table,
    service: Service,
    rules: GroupRules,
    k: int,
    namespace: str,
    embed: Embed | None,
) -> SimilarFailures:
    """Compare groups of failures with the groups that are stored in a vector index."""
    endpoint_of(service, "vector")
    check_embed(embed)
    groups, ids = grouped(new, rules)
    queries = _largest(_rows(new, ids))[: TUNING.most_queried]
    bodies = _texts(new, queries, partial(stored_text, redactor=service.redactor))
    names = [row.group for row in queries]
    stored, mistakes = remembered(names, bodies, service, namespace, embed)
    for mistake in mistakes:
        warnings.warn(mistake, UnexpectedResultWarning, stacklevel=3)
    index = TextIndex([row.text for row in stored], [row.group for row in stored])
    about = groups.frame.set_index("group")

    everything: list[dict[str, Any]] = []
    for group, body in zip(names, bodies, strict=True):
        # all candidates, because some may be later than the group
        matches = index.nearest(body, group, len(stored)) if stored else []
        first_at = about.loc[group, "first_at"]
        found = earlier_rows(matches, stored, first_at, group, TUNING.seen)[:k]
        row = {"group": group, "title": about.loc[group, "title"]}
        row["seen"] = bool(found) and found[0]["seen"]
        everything += [one | row for one in found] or [row]

    return SimilarFailures(typed_rows(everything, _TYPES))


def similar_grouped(
    failures: pd.DataFrame, history: pd.DataFrame, groups: FailureGroups, *, k: int
) -> SimilarFailures:
    """Return `find_similar_failures` of rows with a group, as `groups.assign` added it."""
    new, old = (
        comparable(failures, "failures", groups.rules),
        comparable(history, "history", groups.rules),
    )
    ids = pd.concat([failures[SIGNATURE], history[SIGNATURE]]).tolist()
    return _similar(new, old, ids, groups, find_retry_outcomes(history), k)


def _similar(
    new: pa.Table,
    old: pa.Table,
    ids: list[str],
    groups: FailureGroups,
    outcomes: RetryOutcomes,
    k: int,
) -> SimilarFailures:
    titles = dict(zip(groups.frame["group"], groups.frame["title"], strict=True))
    rows = _rows(new, ids[: new.num_rows])
    two = _rows(old, ids[new.num_rows :]).assign(
        outcome=outcomes.frame["outcome"].to_numpy()
    )
    # A history can contain the failures themselves, which would all have been seen before.
    two = two[~two["id"].isin(rows["id"])]
    queries, known = _largest(rows), _largest(two)
    by_group = two.groupby("group")
    about = by_group.agg(count=("id", "size"), last_at=("at", "max"))
    about = about.assign(outcome=by_group["outcome"].agg(outcomes_in_words))
    facts: dict[Any, dict[Any, Any]] = about.to_dict("index")
    clean = Redactor().text
    queried, remembered = queries[: TUNING.most], known[: TUNING.most_known]
    ids_of_groups = [row.group for row in (*queried, *remembered)]
    matches = _similar_texts(
        _texts(new, queried, clean), _texts(old, remembered, clean), ids_of_groups, k
    )
    near = dict(iter(matches.groupby("query")))

    everything: list[dict[str, Any]] = []
    for number, group in enumerate(row.group for row in queries):
        pairs = [(group, 1.0)] if group in facts else []
        seen = bool(pairs)
        if number in near:
            seen = seen or bool(near[number]["seen"].iloc[0])
            pairs += [
                (known[row].group, similarity)
                for row, similarity in zip(
                    near[number]["row"], near[number]["similarity"], strict=True
                )
                if known[row].group != group
            ]

        for rank, (other, similarity) in enumerate(
            pairs[:k] or [(None, float("nan"))], 1
        ):
            row = {
                "group": group,
                "title": titles.get(group),
                "similarity": similarity,
                "seen": seen,
            }
            if other is not None:
                row |= {
                    "rank": rank,
                    "similar": other,
                    "similar_title": titles.get(other),
                    **facts[other],
                }

            everything.append(row)

    return SimilarFailures(typed_rows(everything, _TYPES))


def _rows(table: pa.Table, groups: list[str]) -> pd.DataFrame:
    frame = pd.DataFrame(
        {"group": groups, "id": table["dlq_id"].to_pylist()}, dtype=object
    )
    return frame.assign(at=when_failed(table), row=range(len(frame)))


def _largest(frame: pd.DataFrame) -> list[Any]:
    """Return the id and the first row of each group, the largest group first."""
    groups = frame.groupby("group", as_index=False).agg(
        count=("id", "size"), row=("row", "first")
    )
    groups = groups.sort_values(["count", "group"], ascending=[False, True])
    return list(groups.itertuples(index=False))


def _texts(table: pa.Table, groups: list[Any], clean: Any) -> list[str]:
    rows = pa.array([group.row for group in groups], pa.int64())
    bodies = table["response_body"].take(rows).to_pylist()
    return [clean((body or "")[: TUNING.longest]) for body in bodies]


def outcomes_in_words(outcomes: pd.Series) -> str:
    """Return the outcomes in words, the most frequent first, for example "2 deleted, 1 expired"."""
    sizes = outcomes.value_counts()
    ordered = sorted(sizes.index, key=lambda name: (-sizes[name], OUTCOMES.index(name)))
    return ", ".join(f"{sizes[name]:,} {name}" for name in ordered)
