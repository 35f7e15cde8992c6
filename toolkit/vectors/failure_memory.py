"""Store groups of failures in a vector index, so that a team finds them again after months.

A row per group: the id is the id of the group, the text is a masked example, and the metadata tell which
workflows failed, from when to when, and the outcomes of the failures. A group that is stored again keeps the
first time. If a sync has joined groups since, one row takes the place of their rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from toolkit.base.arguments import text, unmasked
from toolkit.base.progress import ProgressOption, checked_progress
from toolkit.failures.classes import classify_failures
from toolkit.failures.comparable_rows import comparable
from toolkit.failures.group_rules import GroupRules, known_of
from toolkit.failures.grouping import grouped
from toolkit.failures.outcomes import find_retry_outcomes
from toolkit.failures.remembered import NAMESPACE, stored_text, time_of
from toolkit.failures.seen_before import outcomes_in_words
from toolkit.failures.signed_failures import read_rules, with_learned
from toolkit.failures.sources import AnyFrame
from toolkit.loading.fetching import fetch_vectors
from toolkit.loading.text_embedding import Embed, check_embed, embeddings
from toolkit.secrets.redaction import Redactor
from toolkit.service.settings import Service, endpoint_of
from toolkit.service.vectors import list_namespaces
from toolkit.tables.frames import plain_frame
from toolkit.tables.metadata_fields import metadata_values
from toolkit.vectors.removals import delete_vectors
from toolkit.vectors.upserts import upsert_vectors

_WORKFLOWS: Final = 20  # names that are stored per group


def index_failures(
    failures: AnyFrame,
    service: Service,
    *,
    namespace: str = NAMESPACE,
    embed: Embed | None = None,
    rules: str | Path | GroupRules | None = None,
    runs: AnyFrame | None = None,
    retried: Mapping[str, str] | None = None,
    progress: ProgressOption = None,
) -> int:
    """Store groups of failures in your vector index, as the memory of a team.

    `find_similar_failures` searches it: pass the service as the history. Call it regularly, for example each
    night: a group that is stored again keeps the time when it was first seen. Do not use it as a backup of
    failures: only one masked example per group is stored.

    Parameters
    ----------
    failures : frame
        With the columns of `load_failures`. A snapshot is best, because it also contains entries that left
        the queue.
    service : Service
        With a vector index, from `connect`.
    namespace : str, default "failures"
        Namespace of the memory; it is created if it does not exist.
    embed : callable, optional
        Function that embeds a list of strings, as in `suggest_runbooks`. If omitted, the model of the index
        embeds the strings.
    rules : str, Path or GroupRules, optional
        As in `group_failures`.
    runs, retried
        Facts about entries that left the queue, as in `find_retry_outcomes`.
    progress : bool or callable, optional
        As in `load_vectors`.

    Returns
    -------
    int
        Number of stored groups. Each has the metadata `title`, `template`, `class`, `workflows` (20 at most),
        `first_at`, `last_at` (ISO 8601), `count` and `outcome`. All text is masked.

    Raises
    ------
    InputError
        If a column is missing, or an argument is not valid.
    UnprocessableError
        If the index has no model and `embed` is omitted, or if the embeddings have another dimension.
    ServiceError
        If a request fails.

    Examples
    --------
    >>> failures = tk.load_failures(service, limit=50)
    >>> stored = index_failures(failures, service, namespace="failures-of-my-team")
    >>> stored == len(tk.group_failures(failures).frame)
    True
    >>> tk.delete_namespace(service, "failures-of-my-team", confirm=True) == stored
    True
    """
    endpoint_of(service, "vector")
    namespace = unmasked("namespace", text("namespace", namespace))
    check_embed(embed)
    checked_progress(progress)
    given = with_learned(read_rules(rules), failures)
    table = comparable(failures, "failures", given, signed=True)
    # before groups, because a wrong `runs` or `retried` is found here
    outcomes = find_retry_outcomes(failures, runs=runs, retried=retried).frame[
        "outcome"
    ]
    groups, ids = grouped(table, given)
    if groups.frame.empty:
        return 0

    rows = _latest_rows(table, ids, outcomes)
    names = [*groups.frame["group"]]
    # rows that were stored before a sync joined these groups
    earlier = {
        old: present
        for old, present in known_of(given).renamed.items()
        if present in set(names) and old not in set(names)
    }
    known = _known(service, [*names, *earlier], namespace)
    known_of_group: defaultdict[str, list[Mapping[Any, Any]]] = defaultdict(list)
    for name, values in known.items():
        known_of_group[earlier.get(name, name)].append(values)
    redactor = service.redactor

    texts, metadata = [], []
    for group in groups.frame.itertuples(index=False):
        name = str(group.group)
        row: Any = rows.loc[name]
        texts.append(stored_text(row["response_body"], redactor))
        metadata.append(_metadata(group, row, known_of_group[name], redactor))

    made = zip(names, texts, embeddings(texts, embed), metadata, strict=True)
    stored = (
        {"id": name, "data": example, **fields, "metadata": about}
        for name, example, fields, about in made
    )
    count = upsert_vectors(service, stored, namespace=namespace, progress=progress)

    # only now, so that no time is lost if this stops in between
    replaced = [name for name in known if name in earlier]
    if replaced:
        delete_vectors(service, replaced, namespace=namespace, confirm=True)
    return count


def _latest_rows(table: pa.Table, ids: list[str], outcomes: pd.Series) -> pd.DataFrame:
    """Return, per group, the body and class of the last failure, the workflows, and the outcomes in words."""
    columns = [
        "workflow_url",
        "response_status",
        "response_body",
        "response_body_base64",
    ]
    frame = plain_frame(table.select([*columns, "failed_at"]))
    frame = frame.assign(group=ids, outcome=outcomes.to_numpy())
    last = frame.sort_values("failed_at", kind="stable").groupby("group").tail(1)
    classes = classify_failures(last[columns]).frame["class"]
    by_group = frame.groupby("group")
    last = last.assign(failure_class=classes).set_index("group")

    return last.assign(
        workflows=by_group["workflow_url"].agg(_most_frequent),
        outcome=by_group["outcome"].agg(outcomes_in_words),
    )


def _most_frequent(workflows: pd.Series) -> tuple[str, ...]:
    return tuple(map(str, workflows.value_counts().index[:_WORKFLOWS]))


def _known(
    service: Service, groups: list[str], namespace: str
) -> dict[str, Mapping[Any, Any]]:
    """Return the stored metadata of groups, by id."""
    if namespace not in list_namespaces(service):
        return {}

    stored = fetch_vectors(
        service, groups, namespace=namespace, include_vectors=False, include_data=False
    )
    pairs = zip(stored["id"], metadata_values(stored["metadata"]), strict=True)
    return {str(name): values for name, values in pairs if isinstance(values, Mapping)}


def _metadata(
    group: Any, row: pd.Series, known: Sequence[Mapping[Any, Any]], redactor: Redactor
) -> dict[str, Any]:
    first, last = pd.Timestamp(group.first_at), pd.Timestamp(group.last_at)
    for stored in known:
        first = min(first, time_of(stored, "first_at") or first)
        last = max(last, time_of(stored, "last_at") or last)

    return {
        "title": redactor.text(str(group.title)),
        "template": redactor.text(str(group.template)),
        "class": row["failure_class"],
        "workflows": [redactor.url(name) for name in row["workflows"]],
        "first_at": first.isoformat(),
        "last_at": last.isoformat(),
        "count": int(group.count),
        "outcome": row["outcome"],
    }
