"""Group failures by their responses: one row per group, with a title, an example, counts and times.

Two failures belong to one group if their bodies are equal except for values. For example, "no order 17" and
"no order 4711" have the template "no order <num>" and are one group.

1. `read_rows` reads the bodies and makes a signature of each (`toolkit.signatures`).
2. `_ruled` merges and splits groups by the rules of the user, in their order.
3. `_summarised` makes a row per group.

If a snapshot has stored the signatures, `_stored` counts by them and reads only a few rows per group.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.base.errors import UnexpectedResultWarning
from toolkit.drawing.wording import (
    Plotted,
    counted,
    frame_table,
    percent,
    shorten,
    value_text,
)
from toolkit.failures.counts import LATEST_ROWS, latest_rows, stored_counts
from toolkit.failures.group_rules import (
    LABEL,
    LABELS,
    GroupRules,
    Rule,
    idle_splits,
    json_text,
    known_of,
    split_off,
    split_values,
)
from toolkit.failures.selection import (
    facts_of,
    opened,
    scanned,
    select,
    select_timed,
    timestamps,
    typed_rows,
)
from toolkit.failures.sources import AnyFrame
from toolkit.secrets.redaction import Redactor, visible
from toolkit.signatures.document import NO_FRAME, Document
from toolkit.signatures.headlines import (
    binary_line,
    error_text,
    headline,
    title_of,
)
from toolkit.signatures.placeholders import with_placeholders
from toolkit.signatures.signing import RULES_VERSION, Learned, Signature
from toolkit.tables.frames import checked_frame, made_visible
from toolkit.tables.signed_rows import (
    SIGNATURE,
    BodyReader,
    SignedRows,
    are_signed,
    sign_rows,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import Theme

_COLUMNS: Final = (
    "dlq_id",
    "workflow_url",
    "response_status",
    "response_body",
    "response_body_base64",
)
_DOING: Final = "grouping failures"
_TITLE: Final = 120  # characters
_TEMPLATE: Final = 500
_EXAMPLE: Final = 300
_EXAMPLES: Final = 3
_SHOWN: Final = 50  # groups that a notebook shows
_COMPARED: Final = 200  # different documents of a group, at most, for the cohesion
_COMPARED_TEXT: Final = 1_000  # characters of a body that are compared
_SIGNS: Final = re.compile(r"[<>{}\[\]\":,;=]+")
_WITHOUT_TEXT: Final = {"empty": "Empty body", "binary": "Body that is not UTF-8"}
_KEYS_OF_TITLE: Final = 4
_STATUSES: Final = 5
_ALIKE: Final = {
    "html": "HTML pages with the same title and heading",
    "empty": "empty bodies",
    "binary": "bodies that are not UTF-8",
}
"""Why the members of a group belong together, by the kind of the group."""
_TIME: Final = "datetime64[ms, UTC]"
_TYPES: Final = {
    "group": "str", "title": "str", "template": "str", "kind": "str", "rule": "str", "workflows": "Int64",
    "statuses": "str", "count": "Int64", "share": "float64", "first_at": _TIME, "last_at": _TIME,
    "examples": "str", "cohesion": "float64",
}  # fmt: skip
_DESCRIPTION: Final = [
    "group",
    "title",
    "template",
    "kind",
    "rule",
    "statuses",
    "examples",
    "cohesion",
]


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
    >>> groups = group_failures(load_failures(service, progress=False))
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
        failures = checked_frame("failures", failures, *_COLUMNS)
        rows = _ruled(read_rows(failures, self.rules), self.rules)
        groups = pd.Series(
            [rows.ids[code] for code in rows.groups], index=failures.index, dtype="str"
        )
        return failures.assign(signature=groups)

    def __repr__(self) -> str:
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
    names = opened(failures, doing=_DOING).names
    if SIGNATURE not in names:
        return None
    splits = _split_columns(rules, names)
    parts = [
        rule.value
        for rule in rules.rules
        if rule.action == "split" and rule.column == "body"
    ]
    counts = stored_counts(failures, splits, parts, doing=_DOING)
    if counts is None:
        return None
    rules = with_learned(rules, failures)
    selected = select_timed(
        failures, [*grouped_columns(rules, names), SIGNATURE], doing=_DOING
    )
    latest = latest_rows(selected, [SIGNATURE, *splits], parts, LATEST_ROWS)
    rows = _with_stored(read_rows(latest, rules), latest[SIGNATURE])
    contains = counts["contains_"].combine_chunks().dictionary_encode()
    texts: list[str | None] = contains.dictionary.to_pylist()
    signed = SignedRows(
        texts,
        [],
        [],
        np.zeros(0, np.int64),
        contains.indices.to_numpy().astype(np.int64),
    )
    counted = _ruled(
        _with_stored(rows._replace(table=counts, signed=signed), counts[SIGNATURE]),
        rules,
    )
    groups, _ = grouped_rows(rows, rules)
    return FailureGroups(
        _ordered(_with_counts(groups.frame, counted), rules.rules), groups.rules
    )


def with_learned(rules: GroupRules, failures: AnyFrame) -> GroupRules:
    """Return the rules, with the learned rules of a snapshot if no others are given and they are current."""
    learned = facts_of(failures).get("learned") or {}
    if rules.learned is None and learned.get("rules_version") == RULES_VERSION:
        return GroupRules(rules.text, learned)
    return rules


def _with_stored(rows: SignedFailures, ids: pa.ChunkedArray) -> SignedFailures:
    """Return the rows with the stored signatures as groups."""
    encoded = ids.combine_chunks().dictionary_encode()
    alone = encoded.indices.to_numpy().astype(np.int64)
    return rows._replace(alone=alone, groups=alone, ids=encoded.dictionary.to_pylist())


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
        statuses=[_status_list(statuses[group]) for group in frame["group"]],
        count=sums,
        share=sums / int(counts["count_"].sum() or 1),
        first_at=frame["group"].map(by_group["first_"].min()),
        last_at=frame["group"].map(by_group["last_"].max()),
    )


def grouped(
    failures: AnyFrame, rules: str | Path | GroupRules | None = None
) -> tuple[FailureGroups, list[str]]:
    """Return the groups of failures, as `group_failures` does, and the group of each row."""
    given = read_rules(rules)
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
    latest = latest_rows(rows, [SIGNATURE], (), LATEST_ROWS)
    groups, positions = grouped_rows(
        _with_stored(read_rows(latest, rules), latest[SIGNATURE]), rules
    )
    known = dict(
        zip(
            latest[SIGNATURE].to_pylist(),
            groups.frame["group"].iloc[positions],
            strict=True,
        )
    )
    ids = select(failures, [SIGNATURE], doing=_DOING).table()[SIGNATURE].to_pylist()
    return groups, [known[signature] for signature in ids]


def read_rules(rules: str | Path | GroupRules | None) -> GroupRules:
    """Return the rules of the argument ``rules`` of `group_failures`."""
    if rules is None:
        return GroupRules()
    if isinstance(rules, GroupRules):
        return rules
    return GroupRules.read(rules)


def grouped_columns(rules: GroupRules, names: Iterable[str] = ()) -> list[str]:
    """Return the columns that grouping reads of a frame with these names, without times."""
    return list(dict.fromkeys([*_COLUMNS, *_split_columns(rules, names)]))


def _split_columns(rules: GroupRules, names: Iterable[str]) -> list[str]:
    columns = [
        rule.column
        for rule in rules.rules
        if rule.action == "split" and rule.column != "body"
    ]
    return with_labels(columns, names)


def with_labels(columns: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the columns. If `label` is one of them and the frame has `labels`, that column is added."""
    columns = list(columns)
    if LABEL in columns and LABELS in names:
        columns.append(LABELS)
    return columns


def grouped_rows(
    rows: SignedFailures, rules: GroupRules
) -> tuple[FailureGroups, NDArray[np.int64]]:
    """Return the groups of rows that were read, and for each row the position of the group in the frame."""
    rows = _ruled(rows, rules)
    learned = rows.learned.extended(rows.signed.signatures)
    known = GroupRules(rules.text, msgspec.json.decode(msgspec.json.encode(learned)))
    frame = _summarised(rows, rules.rules)
    positions = {group: position for position, group in enumerate(frame["group"])}
    of_group = np.array(
        [positions.get(group, -1) for group in rows.ids], dtype=np.int64
    )
    return FailureGroups(frame, known), of_group[rows.groups]


class SignedFailures(NamedTuple):
    """Failures with their signatures and groups, as numbers into `ids`."""

    table: pa.Table
    signed: SignedRows
    learned: Learned
    alone: NDArray[np.int64]  # the group of each row by the signature alone
    groups: NDArray[np.int64]  # the group of each row by the rules
    ids: list[str]
    splits: dict[str, str]  # from a group that was split off to the condition
    clean: Callable[[str], str]


def read_rows(
    failures: AnyFrame, rules: GroupRules, columns: Iterable[str] = ()
) -> SignedFailures:
    """Read failures, with columns that later rules may name. The rules are not applied yet."""
    names = opened(failures, doing=_DOING).names
    wanted = list(
        dict.fromkeys(with_labels([*grouped_columns(rules), *columns], names))
    )
    table = select_timed(failures, wanted, doing=_DOING).table()
    reader, learned = BodyReader(Redactor()), known_of(rules)
    signed = sign_rows(table, learned, reader)
    ids = list(dict.fromkeys(document.id for document in signed.documents))
    numbers = {group: number for number, group in enumerate(ids)}
    of_document = np.array(
        [numbers[document.id] for document in signed.documents], dtype=np.int64
    )
    alone = of_document[signed.codes]
    return SignedFailures(table, signed, learned, alone, alone, ids, {}, reader.clean)


def _ruled(rows: SignedFailures, rules: GroupRules) -> SignedFailures:
    """Return the rows with groups merged and split, in the order of the rules."""
    groups = rows.alone.copy()
    splits: dict[str, str] = {}
    numbers = {group: number for number, group in enumerate(rows.ids)}
    is_split_off = _SplitConditions(rows)
    for rule in rules.rules:
        if rule.group not in numbers or rule.action not in ("merge", "split"):
            continue
        members = groups == numbers[rule.group]
        target = rule.value
        if rule.action == "split":
            members &= is_split_off(rule)
            target = split_off(rule)
            splits[target] = rule.condition
        # A rule may name a group that these failures do not have, or a new one. It gets the next number.
        groups[members] = numbers.setdefault(target, len(numbers))
    return rows._replace(groups=groups, ids=[*numbers], splits=splits)


class _SplitConditions:
    """Conditions of rules that split a group, for all rows. Columns are read once."""

    def __init__(self, rows: SignedFailures) -> None:
        self._rows = rows
        self._columns: dict[str, list[list[str]]] = {}

    def __call__(self, rule: Rule) -> NDArray[np.bool_]:
        """Return the rows for which the condition of a rule is true."""
        if rule.column == "body":
            signed = self._rows.signed
            contains = [rule.value in (text or "") for text in signed.texts]
            return np.array(contains, dtype=bool)[signed.bodies]
        if rule.column not in self._columns:
            self._columns[rule.column] = split_values(self._rows.table, rule.column)
        return np.array(
            [rule.value in values for values in self._columns[rule.column]], dtype=bool
        )


class _Member(NamedTuple):
    """Rows of a group with the same signature, document and status, as numbers, and how many they are."""

    alone: int
    code: int
    status: int
    rows: int


def _summarised(rows: SignedFailures, rules: tuple[Rule, ...]) -> pd.DataFrame:
    """Return one row per group, in the order and with the types of `FailureGroups.frame`."""
    columns = {
        "dlq_id": rows.table["dlq_id"].to_pylist(),
        "workflow": rows.table["workflow_url"].to_pylist(),
    }
    frame = pd.DataFrame(columns, dtype=object).assign(
        group_=rows.groups,
        body_=rows.signed.bodies,
        when=timestamps(rows.table, "when_"),
    )
    if frame.empty:
        return typed_rows([], _TYPES)
    rows_of_group = frame.groupby("group_")
    summary = pd.DataFrame(
        {
            "workflows": rows_of_group["workflow"].nunique(),
            "count": rows_of_group.size(),
            "share": rows_of_group.size() / len(frame),
            "first_at": rows_of_group["when"].min(),
            "last_at": rows_of_group["when"].max(),
        }
    )
    descriptions = pd.DataFrame(
        _descriptions(rows, rules, _example_rows(frame)), summary.index, _DESCRIPTION
    )
    return _ordered(summary.join(descriptions), rules)


def _example_rows(frame: pd.DataFrame) -> list[NDArray[Any]]:
    """Return the positions of the examples of each group: the latest rows, different bodies first."""
    latest = frame.sort_values(["when", "dlq_id"], ascending=False, kind="stable")
    repeated = latest.duplicated(["group_", "body_"])
    candidates = latest.assign(repeated=repeated).sort_values("repeated", kind="stable")
    examples = (
        candidates.groupby("group_")
        .head(_EXAMPLES)["group_"]
        .sort_values(kind="stable")
    )
    return _parts(examples.to_numpy(), examples.index.to_numpy())


def _descriptions(
    rows: SignedFailures, rules: tuple[Rule, ...], examples: list[NDArray[Any]]
) -> list[tuple[Any, ...]]:
    """Return the values of the columns `_DESCRIPTION` for each group, in the order of the groups."""
    status, statuses = pd.factorize(
        pd.Series(rows.table["response_status"].to_pylist(), dtype=object)
    )
    members = pd.DataFrame(
        {
            "group": rows.groups,
            "alone": rows.alone,
            "code": rows.signed.codes,
            "status": status,
        }
    )
    members = (
        members.groupby(list(members), sort=False).size().reset_index(name="count")
    )
    # any document of a signature can describe it: they differ only in values
    document_of = np.zeros(len(rows.ids), dtype=np.int64)
    document_of[members["alone"]] = members["code"]
    members = members.sort_values("group", kind="stable")
    parts = _parts(
        members["group"].to_numpy(), members.drop(columns="group").to_numpy()
    )
    names = {rule.group: rule.value for rule in rules if rule.action == "name"}
    # any row of a document can be compared: they differ only in values
    text_of = np.zeros(len(rows.signed.documents), dtype=np.int64)
    text_of[rows.signed.codes] = rows.signed.bodies
    described = []
    for group, part, shown in zip(np.unique(rows.groups), parts, examples, strict=True):
        group_id = rows.ids[group]
        group_members = [_Member(*values) for values in part.tolist()]
        by_signature, by_document, by_status = (Counter[int]() for _ in range(3))
        for member in group_members:
            by_signature[member.alone] += member.rows
            by_document[member.code] += member.rows
            by_status[member.status] += member.rows
        del by_status[-1]  # no response
        leader = _leader(group, by_signature, rows.ids)
        signature = rows.signed.documents[document_of[leader]]
        documents = [
            (_compared(code, rows, text_of), count)
            for code, count in by_document.items()
        ]
        described.append((
            group_id,
            _shown_title(names.get(group_id), signature),
            shorten(" | ".join([*signature.facts, *signature.templates]), _TEMPLATE),
            signature.document.kind,
            _reason(signature, len(by_signature) - 1, rows.splits.get(group_id)),
            _status_list(Counter({value_text(statuses[code]): count for code, count in by_status.items()})),
            json_text([_example(row, rows) for row in shown.tolist()]),
            _cohesion(documents),
        ))  # fmt: skip
    return described


def _leader(group: int, by_signature: Counter[int], ids: list[str]) -> int:
    """Return the signature that describes a group, or the largest one if the group was split off."""
    if group in by_signature:
        return group
    return min(
        by_signature, key=lambda signature: (-by_signature[signature], ids[signature])
    )


def _parts(groups: NDArray[np.int64], rows: NDArray[Any]) -> list[NDArray[Any]]:
    """Split rows, which are in the order of their groups, into the rows of each group."""
    # Cut at each change of the group. For example, the groups 0, 0, 2 have one change, after the second row.
    return np.split(rows, np.flatnonzero(np.diff(groups)) + 1)


def _ordered(groups: pd.DataFrame, rules: tuple[Rule, ...]) -> pd.DataFrame:
    """Return the groups with their types: pinned groups first, then the largest."""
    pinned = {
        rule.group: number for number, rule in enumerate(rules) if rule.action == "pin"
    }
    not_pinned = len(pinned) + len(rules)
    order = groups.assign(
        pin=[pinned.get(group, not_pinned) for group in groups["group"]],
        less=-groups["count"],
    ).sort_values(["pin", "less", "group"], ignore_index=True)
    return made_visible(order[list(_TYPES)].astype(_TYPES))


def _example(row: int, rows: SignedFailures) -> dict[str, str]:
    body = rows.signed.texts[rows.signed.bodies[row]]
    encoded = rows.table["response_body_base64"][row].as_py()
    line = rows.clean(error_text(body).text)
    if body is None and encoded:
        line = binary_line(encoded)
    dlq_id = rows.table["dlq_id"][row].as_py() or ""
    return {"dlq_id": rows.clean(dlq_id), "text": shorten(line, _EXAMPLE)}


def _shown_title(name: str | None, signature: Signature) -> str:
    """Return the name that a rule gives the group, else the title without a cut in a sentence."""
    if name:
        return shorten(name, _TITLE)
    return title_of(_title(signature))


def _title(signature: Signature) -> str:
    """Return the title of a group: the error in one line, with placeholders."""
    kind, facts = signature.document.kind, signature.facts
    status = _status(signature)
    if kind in _WITHOUT_TEXT:
        return ", ".join([_WITHOUT_TEXT[kind], *status])
    line = headline(kind, facts, signature.templates)
    if kind == "trace" and facts[-1] != NO_FRAME:
        return f"{line} {facts[-1]}"
    if kind == "html" and status:
        return f"{line} ({status[0]})"
    return line or _title_of_keys(facts, status)


def _title_of_keys(facts: Sequence[str], status: list[str]) -> str:
    """Return the title of JSON without a message, for example `JSON with "data" and "id" (status 400)`."""
    named = [fact for fact in facts if fact not in status]
    if named[:1] != ["keys"]:
        return " ".join(facts)
    keys = [f'"{key}"' for key in named[1 : 1 + _KEYS_OF_TITLE]]
    title = "JSON without an error"
    if keys:
        listed = " and ".join(filter(None, [", ".join(keys[:-1]), keys[-1]]))
        title = f"JSON with {listed}"
    return " ".join([title, *(f"({words})" for words in status)])


def _status(signature: Signature) -> list[str]:
    """Return the status as words, for example "status 502"; none if the signature has no status."""
    return [fact for fact in signature.facts if fact.startswith("status ")][:1]


def _reason(signature: Signature, merged: int, split: str | None) -> str:
    """Return why the members of a group belong together, for the column `rule`."""
    reasons = [_likeness(signature)]
    if split:
        reasons.append(f"split off by a rule: {shorten(split, 100)}")
    if merged:
        reasons.append(f"{counted(merged, 'other group')} merged in by a rule")
    return "; ".join(reasons)


def _likeness(signature: Signature) -> str:
    """Return the facts and messages that the members of a group have in common."""
    kind, facts = signature.document.kind, signature.facts
    status = _status(signature)
    same = "the same message"
    if any("<" in template for template in signature.templates):
        same = "the same message but for its values"
    if kind == "trace":
        parts = [
            f"stack traces of {facts[0]} with the same exceptions ({', '.join(facts[1:-1])})"
        ]
        if facts[-1] != NO_FRAME:
            parts.append(f"first application frame ({facts[-1].removeprefix('at ')})")
        return ", ".join([*parts, same])
    if kind == "json":
        parts = [_json_likeness(facts), same if signature.templates else "", *status]
        return f"JSON with {' and '.join(filter(None, parts))}"
    words = _ALIKE.get(kind, f"texts with {same}")
    return (" and " if kind == "html" else " with ").join([words, *status])


def _json_likeness(facts: Sequence[str]) -> str:
    named = [fact for fact in facts if not fact.startswith("status ")]
    if not named:
        return ""
    return "the same names" if named[0] == "keys" else "the same codes and types"


def _status_list(statuses: Counter[str]) -> str:
    """Return the statuses, the most frequent first, for example "502, 500"."""
    ordered = sorted(statuses, key=lambda status: (-statuses[status], status))
    shown = ordered[:_STATUSES]
    if len(ordered) > _STATUSES:
        shown.append("…")
    return ", ".join(shown)


def _compared(code: int, rows: SignedFailures, text_of: NDArray[np.int64]) -> Document:
    """Return the document of a member for the cohesion, or the words of the body if it has few facts.

    For example, a group of JSON with the keys "id" and "result" may contain errors in words that no form
    describes. The words of the bodies differ, and so the cohesion is low.
    """
    document = rows.signed.documents[code].document
    if document.kind != "html" and document.facts[:1] != ("keys",):
        return document
    text = rows.signed.texts[text_of[code]] or ""
    return Document(
        document.kind, (), (with_placeholders(_SIGNS.sub(" ", text[:_COMPARED_TEXT])),)
    )


def _cohesion(documents: Iterable[tuple[Document, int]]) -> float:
    """Return how many words the members share with the most common member, on average.

    The measure is the Dice coefficient of the words: twice the common words, divided by all words of both.
    For example, "disk full on a" and "disk full on b" share 3 of 4 words: 2 * 3 / 8 = 0.75.
    """
    counts: Counter[Document] = Counter()
    for document, count in documents:
        counts[document] += count
    (most_common, _), *others = counts.most_common(_COMPARED)
    words = Counter(_words(most_common))
    total = similarity = float(counts[most_common])
    for document, count in others:
        other_words = Counter(_words(document))
        all_words = words.total() + other_words.total()
        # two documents without words are equal
        dice = 2 * (words & other_words).total() / all_words if all_words else 1.0
        similarity += count * dice
        total += count
    return similarity / total


def _words(document: Document) -> list[str]:
    return [
        word for text in (*document.facts, *document.messages) for word in text.split()
    ]
