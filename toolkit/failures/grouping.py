"""Group failures by their responses: one row per group, with a title, an example, counts and times.

Two failures belong to one group if their bodies are equal except for values. For example, "no order 17" and
"no order 4711" have the template "no order <num>" and are one group.

1. `read_rows` reads the bodies and makes a signature of each (`toolkit.signatures`).
2. `with_rules` merges and splits groups by the rules of the user, in their order.
3. `summarised` makes a row per group.

If a snapshot has stored the signatures, `_stored` counts by them and reads only a few rows per group.
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.base.errors import UnexpectedResultWarning
from toolkit.drawing.result_tables import Plotted, frame_table
from toolkit.drawing.wording import counted, percent, value_text
from toolkit.failures.counts import LATEST_ROWS, latest_rows, stored_counts
from toolkit.failures.group_rules import (
    GroupRules,
    idle_splits,
)
from toolkit.failures.selection import (
    opened,
    scanned,
    select,
    select_timed,
)
from toolkit.failures.sources import AnyFrame, SelectedRows
from toolkit.secrets.redaction import visible
from toolkit.tables.frames import checked_frame
from toolkit.tables.signed_rows import (
    SIGNATURE,
    SignedRows,
    are_signed,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import Theme

from toolkit.failures.group_descriptions import in_order, status_list, summarised
from toolkit.failures.signed_failures import (
    GROUPED,
    SignedFailures,
    grouped_columns,
    read_rows,
    read_rules,
    split_columns,
    with_learned,
    with_rules,
    with_stored,
)

_DOING: Final = "grouping failures"

_SHOWN: Final = 50  # groups that a notebook shows


@dataclass(frozen=True, repr=False)
class FailureGroups(Plotted):
    """Groups of failures; made by `group_failures`. `plot` draws a bar for each of the largest.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row per group, pinned groups first, then the largest: `group` (str, the id), `title` (str),
        `template` (str, the common message, with placeholders such as ``<num>`` for values), `kind` (str:
        json, html, trace, message, empty or binary), `rule` (str: why the members belong together),
        `workflows` (Int64, the number of different workflows), `statuses` (str, the most frequent first),
        `count` (Int64), `share` (float64, of all failures), `first_at`, `last_at` (datetime64[ms, UTC]),
        `examples` (str: JSON, up to three of ``{"dlq_id", "text"}``), `cohesion` (float64, 0 to 1: how equal
        the members are; if it is low, the merge is doubtful).
    rules : GroupRules
        The rules that were passed, with the learned rules. Save and pass them again to keep the group ids.

    Examples
    --------
    >>> from toolkit import group_failures, load_failures
    >>> groups = group_failures(load_failures(service, limit=250))
    >>> list(groups.frame.columns[:4])
    ['group', 'title', 'template', 'kind']
    """

    frame: pd.DataFrame
    rules: GroupRules = field(compare=False)

    @property
    def learned(self) -> dict[str, Any]:
        """Return the learned rules: a value to store as JSON, and to pass to `GroupRules`."""
        return dict(self.rules.learned or {})

    def assign(self, failures: pd.DataFrame) -> pd.DataFrame:
        """Return a copy of the failures with the group of each in the column `signature` (str).

        You can pass failures that were not grouped: they get the group that the rules give them.
        """
        failures = checked_frame("failures", failures, *GROUPED)
        rows = with_rules(read_rows(failures, self.rules), self.rules)
        groups = pd.Series(
            [rows.ids[code] for code in rows.groups], index=failures.index, dtype="str"
        )

        return failures.assign(signature=groups)

    @property
    def verdict(self) -> str:
        """Return one sentence with the number of groups, and the largest one."""
        total = int(self.frame["count"].sum())
        sentence = f"{counted(total, 'failure')} in {counted(len(self.frame), 'group')}"
        if not total:
            return sentence

        largest = int(self.frame["count"].to_numpy().argmax())
        share, title = (
            self.frame["share"].iloc[largest],
            self.frame["title"].iloc[largest],
        )
        return f"{sentence}; the largest, {percent(share)}: {visible(title)}"

    def __repr__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        names = [
            "title",
            "count",
            "share",
            "statuses",
            "workflows",
            "first_at",
            "last_at",
            "kind",
            "cohesion",
        ]
        shown = self.frame.head(_SHOWN)[[*names, "group"]]
        shown = shown.assign(share=shown["share"].map(percent))
        caption = repr(self)
        if len(self.frame) > _SHOWN:
            caption += f"; the first {_SHOWN} are shown"
        return frame_table(caption, shown)

    def _draw(self, ax: Axes, theme: Theme) -> Axes:
        from toolkit.drawing.result_bars import draw_groups  # noqa: PLC0415 - matplotlib is slow to import

        return draw_groups(self.frame, ax, theme)


def group_failures(
    failures: AnyFrame, *, rules: str | Path | GroupRules | None = None
) -> FailureGroups:
    """Group failures by the messages of their responses, the largest group first.

    Failures belong to one group if their bodies are equal except for values: types, codes, messages and the
    application's frame of a stack trace count; numbers, ids, times and line numbers do not. For example, "no
    order 17" and "no order 4711" are one group. The status counts only if the body is empty, HTML or not
    UTF-8. Do not use groups to tell causes apart: one cause can have several messages.

    Parameters
    ----------
    failures : frame
        With the columns `dlq_id`, `workflow_url`, `response_status`, `response_body`,
        `response_body_base64`, `failed_at`, `created_at`.
    rules : str, Path or GroupRules, optional
        A file (UTF-8) with rules that name, merge, split and pin groups, and with the rules that were learned
        earlier; or the rules as a value.

    Returns
    -------
    FailureGroups
        `.frame` contains the groups, `.assign` adds the group to failures, `.rules.save` stores the rules for
        the next call.

    Raises
    ------
    InputError
        If a column is missing, or the rules cannot be read.

    Warns
    -----
    UnexpectedResultWarning
        If a rule splits a group by a value that no failure of the group has.

    Examples
    --------
    >>> bodies = ["no order 17", "no order 4711", "disk full"]
    >>> times = pd.to_datetime(["2026-01-01", "2026-01-02", "2026-01-03"], utc=True)
    >>> frame = pd.DataFrame({"dlq_id": ["a", "b", "c"], "workflow_url": "u", "response_status": 500,
    ...     "failed_at": times, "created_at": times, "response_body": bodies,
    ...     "response_body_base64": [None] * 3})
    >>> group_failures(frame).frame[["title", "kind", "count", "cohesion"]]
                title     kind  count  cohesion
    0  no order <num>  message      2       1.0
    1       disk full  message      1       1.0
    """
    given = read_rules(rules)
    stored = _stored(failures, given)
    groups = grouped(failures, given)[0] if stored is None else stored
    for message in idle_splits(given.rules, set(groups.frame["group"])):
        warnings.warn(message, UnexpectedResultWarning, stacklevel=2)
    return groups


def _stored(failures: AnyFrame, rules: GroupRules) -> FailureGroups | None:
    """Group by the signatures that a snapshot has stored; None if they are missing or of older rules."""
    failures = scanned(failures, doing=_DOING)
    stored = stored_rows(failures, rules)
    if stored is None:
        return None

    rules = with_learned(rules, failures)
    counts, latest = stored
    rows = read_rows(latest, rules)
    contains = counts["contains_"].combine_chunks().dictionary_encode()
    texts: list[str | None] = contains.dictionary.to_pylist()
    signed = SignedRows(
        texts,
        [],
        [],
        np.zeros(0, np.int64),
        contains.indices.to_numpy().astype(np.int64),
    )
    counted = with_rules(
        with_stored(rows._replace(table=counts, signed=signed), counts[SIGNATURE]),
        rules,
    )
    groups, _ = grouped_rows(rows, rules)

    return FailureGroups(
        in_order(_with_counts(groups.frame, counted), rules.rules), groups.rules
    )


def stored_rows(
    failures: AnyFrame, rules: GroupRules
) -> tuple[pa.Table, pa.Table] | None:
    """Return the counts and the latest rows by stored signature; None without current signatures."""
    names = opened(failures, doing=_DOING).names
    if SIGNATURE not in names:
        return None

    splits = split_columns(rules, names)
    parts = [
        rule.value
        for rule in rules.rules
        if rule.action == "split" and rule.column == "body"
    ]
    counts = stored_counts(failures, splits, parts, doing=_DOING)
    if counts is None:
        return None

    columns = [*grouped_columns(with_learned(rules, failures), names), SIGNATURE]
    selected = select_timed(failures, columns, doing=_DOING)
    return counts, latest_rows(selected, [SIGNATURE, *splits], parts, LATEST_ROWS)


def _with_counts(frame: pd.DataFrame, rows: SignedFailures) -> pd.DataFrame:
    """Replace the counts, workflows, statuses and times of a few rows by the values of all rows."""
    counts = rows.table.to_pandas().assign(
        group=[rows.ids[group] for group in rows.groups]
    )
    statuses: dict[str, Counter[str]] = defaultdict(Counter)
    for group, status, count in counts[
        ["group", "response_status", "count_"]
    ].itertuples(index=False):
        if not pd.isna(status):
            statuses[group][value_text(float(status))] += count

    by_group = counts.groupby("group")
    sums = frame["group"].map(by_group["count_"].sum())

    return frame.assign(
        workflows=frame["group"].map(by_group["workflow_url"].nunique()),
        statuses=[status_list(statuses[group]) for group in frame["group"]],
        count=sums,
        share=sums / int(counts["count_"].sum() or 1),
        first_at=frame["group"].map(by_group["first_"].min()),
        last_at=frame["group"].map(by_group["last_"].max()),
    )


def grouped(
    failures: AnyFrame, rules: str | Path | GroupRules | None = None
) -> tuple[FailureGroups, list[str]]:
    """Return the groups of failures, as `group_failures` does, and the group of each row.

    Rows of a snapshot are signed with the words that it has learned, so that each has the stored id.
    """
    given = with_learned(read_rules(rules), failures)
    groups, positions = grouped_rows(read_rows(failures, given), given)
    return groups, groups.frame["group"].iloc[positions].tolist()


def grouped_by_signature(
    failures: pa.Table, rules: GroupRules
) -> tuple[FailureGroups, list[str]]:
    """Return the same as `grouped`, faster if all rows have stored signatures.

    The counts of the groups then cover only the latest rows of each signature.
    """
    is_signed = SIGNATURE in failures.column_names and are_signed(failures[SIGNATURE])
    has_splits = any(rule.action == "split" for rule in rules.rules)
    if has_splits or not is_signed:
        return grouped(failures, rules)

    rows = select_timed(failures, [*grouped_columns(rules), SIGNATURE], doing=_DOING)
    groups, known = groups_of_signatures(rows, rules)
    ids = select(failures, [SIGNATURE], doing=_DOING).table()[SIGNATURE].to_pylist()

    return groups, [known[signature] for signature in ids]


def groups_of_signatures(
    rows: SelectedRows, rules: GroupRules, needed: Iterable[str] = ()
) -> tuple[FailureGroups, dict[str, str]]:
    """Return the groups of the latest rows of each stored signature, and the group of each signature.

    `needed` are further columns that earlier steps of the rows use.
    """
    latest = latest_rows(rows, [SIGNATURE], (), LATEST_ROWS, needed=needed)
    groups, positions = grouped_rows(read_rows(latest, rules), rules)
    ids = groups.frame["group"].iloc[positions]

    return groups, dict(zip(latest[SIGNATURE].to_pylist(), ids, strict=True))


def grouped_rows(
    rows: SignedFailures, rules: GroupRules
) -> tuple[FailureGroups, NDArray[np.int64]]:
    """Return the groups of rows that were read, and for each row the position of the group in the frame."""
    rows = with_rules(rows, rules)
    learned = rows.learned.extended(rows.signed.signatures)
    known = GroupRules(rules.text, msgspec.json.decode(msgspec.json.encode(learned)))
    frame = summarised(rows, rules.rules)
    positions = {group: position for position, group in enumerate(frame["group"])}
    of_group = np.array(
        [positions.get(group, -1) for group in rows.ids], dtype=np.int64
    )

    return FailureGroups(frame, known), of_group[rows.groups]


def times_and_groups(
    rows: SignedFailures, groups: FailureGroups, codes: NDArray[np.int64]
) -> pa.Table:
    """Return the times and the `group` of each row, for `failure_trend`.

    Groups are named by their ids, because titles may be equal.
    """
    group_ids = groups.frame["group"].to_numpy(dtype=object)
    row_groups: Any = []
    if len(group_ids):
        row_groups = group_ids[codes]
    times = rows.table.select(["failed_at", "created_at"])

    return times.append_column("group", pa.array(row_groups, pa.string()))
