"""Read failures with their signatures, and merge and split groups by rules of the user.

For example, a rule `merge` adds the failures of one group to another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.failures.group_rules import (
    LABEL,
    LABELS,
    GroupRules,
    Rule,
    known_of,
    split_off,
    split_values,
)
from toolkit.failures.selection import (
    facts_of,
    opened,
    select_timed,
)
from toolkit.failures.sources import AnyFrame
from toolkit.secrets.redaction import Redactor
from toolkit.signatures.signing import RULES_VERSION, Learned
from toolkit.tables.signed_rows import (
    SIGNATURE,
    BodyReader,
    SignedRows,
    are_signed,
    sign_rows,
)

GROUPED: Final = (
    "dlq_id",
    "workflow_url",
    "response_status",
    "response_body",
    "response_body_base64",
)
_DOING: Final = "grouping failures"


def with_learned(rules: GroupRules, failures: AnyFrame) -> GroupRules:
    """Return the rules, with the learned rules of a snapshot if no others are given and they are current.

    In any case, rules for groups that a sync has joined with others apply to the groups of today.
    """
    learned = _current_words(failures)
    if rules.learned is None and learned:
        return GroupRules(rules.text, learned)

    renamed = present_ids(failures)
    if not renamed:
        return rules
    own: Mapping[str, Any] = rules.learned or {}
    renamed = {**own.get("renamed", {}), **renamed}
    return GroupRules(rules.text, {**own, "renamed": renamed})


def present_ids(failures: AnyFrame) -> dict[str, str]:
    """Return the ids of groups that syncs of a snapshot have joined with others, with the ids of today.

    Frames of `read_snapshot` have them without the learned words.
    """
    learned = _current_words(failures)
    return dict(learned.get("renamed") or facts_of(failures).get("renamed") or {})


def _current_words(failures: AnyFrame) -> Mapping[str, Any]:
    """Return what the signatures of a snapshot have learned, or nothing if the rules have changed since."""
    learned = facts_of(failures).get("learned") or {}
    return learned if learned.get("rules_version") == RULES_VERSION else {}


def earlier_ids(failures: AnyFrame, group: str) -> list[str]:
    """Return the ids of the groups that syncs of a snapshot have joined into this one."""
    renamed = present_ids(failures)
    return [earlier for earlier, present in renamed.items() if present == group]


def read_rules(rules: str | Path | GroupRules | None) -> GroupRules:
    """Return the rules of the argument ``rules`` of `group_failures`."""
    if rules is None:
        return GroupRules()
    if isinstance(rules, GroupRules):
        return rules

    return GroupRules.read(rules)


def grouped_columns(rules: GroupRules, names: Iterable[str] = ()) -> list[str]:
    """Return the columns that grouping reads of a frame with these names, without times."""
    return list(dict.fromkeys([*GROUPED, *split_columns(rules, names)]))


def split_columns(rules: GroupRules, names: Iterable[str]) -> list[str]:
    """Return the columns that rules split groups by."""
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
    """Read failures, with columns that later rules may name. The rules are not applied yet.

    Rows with stored signatures keep them. A few rows of a snapshot do not show which words are values, so
    that they would get other ids than the snapshot has.
    """
    names = opened(failures, doing=_DOING).names
    wanted = with_labels([*grouped_columns(rules), *columns], names)
    if SIGNATURE in names:
        wanted.append(SIGNATURE)
    wanted = list(dict.fromkeys(wanted))
    table = select_timed(failures, wanted, doing=_DOING).whole_table(_DOING)
    reader, learned = BodyReader(Redactor()), known_of(rules)
    signed = sign_rows(table, learned, reader)
    ids = list(dict.fromkeys(document.id for document in signed.documents))
    numbers = {group: number for number, group in enumerate(ids)}
    of_document = np.array(
        [numbers[document.id] for document in signed.documents], dtype=np.int64
    )
    alone = of_document[signed.codes]
    rows = SignedFailures(table, signed, learned, alone, alone, ids, {}, reader.clean)
    if SIGNATURE in names and are_signed(table[SIGNATURE]):
        return with_stored(rows, table[SIGNATURE])

    return rows


def with_stored(rows: SignedFailures, ids: pa.ChunkedArray) -> SignedFailures:
    """Return the rows with the stored signatures as groups."""
    encoded = ids.combine_chunks().dictionary_encode()
    alone = encoded.indices.to_numpy().astype(np.int64)
    return rows._replace(alone=alone, groups=alone, ids=encoded.dictionary.to_pylist())


def with_rules(rows: SignedFailures, rules: GroupRules) -> SignedFailures:
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
