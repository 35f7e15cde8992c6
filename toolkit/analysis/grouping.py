"""Failures of one kind as one row: what they say, why they belong together, how many, where and when."""

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

from toolkit.analysis.counts import LATEST_ROWS, latest_rows, stored_counts
from toolkit.analysis.group_rules import (
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
from toolkit.analysis.selection import (
    facts_of,
    opened,
    scanned,
    select,
    select_timed,
    timestamps,
    typed_rows,
)
from toolkit.analysis.sources import AnyFrame
from toolkit.drawing.wording import Plotted, counted, frame_table, percent, shorten, value_text
from toolkit.errors import UnexpectedResultWarning
from toolkit.redaction import Redactor, visible
from toolkit.signatures.document import NO_FRAME, Document
from toolkit.signatures.headlines import binary_line, error_text, headline
from toolkit.signatures.placeholders import with_placeholders
from toolkit.signatures.signed_rows import SIGNATURE, BodyReader, SignedRows, are_signed, sign_rows
from toolkit.signatures.signing import RULES_VERSION, Learned, Signature
from toolkit.tables.frames import checked_frame, made_visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import Theme

_COLUMNS: Final = ("dlq_id", "workflow_url", "response_status", "response_body", "response_body_base64")
_DOING: Final = "grouping failures"
_TITLE: Final = 120  # characters
_TEMPLATE: Final = 500
_EXAMPLE: Final = 300
_EXAMPLES: Final = 3
_SHOWN: Final = 50  # groups that a notebook shows
_COMPARED: Final = 200  # different documents of a group that its cohesion is measured on
_COMPARED_TEXT: Final = 1_000  # characters of a text that are compared
_SIGNS: Final = re.compile(r"[<>{}\[\]\":,;=]+")
_WITHOUT_TEXT: Final = {"empty": "Empty body", "binary": "Body that is not UTF-8"}
_KEYS_OF_TITLE: Final = 4
_STATUSES: Final = 5
_ALIKE: Final = {
    "html": "HTML pages with the same title and heading",
    "empty": "empty bodies",
    "binary": "bodies that are not UTF-8",
}
"""Why members of a group belong together that is of one of these kinds."""
_TIME: Final = "datetime64[ms, UTC]"
_TYPES: Final = {
    "group": "str", "title": "str", "template": "str", "kind": "str", "rule": "str", "workflows": "Int64",
    "statuses": "str", "count": "Int64", "share": "float64", "first_at": _TIME, "last_at": _TIME,
    "examples": "str", "cohesion": "float64",
}  # fmt: skip
_SAID: Final = ["group", "title", "template", "kind", "rule", "statuses", "examples", "cohesion"]


@dataclass(frozen=True, repr=False)
class FailureGroups(Plotted):
    """Groups of failures; made by `group_failures`. `plot` draws a bar for each of the largest.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row a group, the largest first but for pinned ones: `group` (str, its id), `title` (str),
        `template` (str, what the members say, values as placeholders such as ``<num>``), `kind` (str: json,
        html, trace, message, empty or binary), `rule` (str: why the members belong together), `workflows`
        (Int64, how many different ones), `statuses` (str, the most frequent first), `count` (Int64), `share`
        (float64, of all failures), `first_at`, `last_at` (datetime64[ms, UTC]), `examples` (str: JSON, up to
        three of ``{"dlq_id", "text"}``), `cohesion` (float64, 0 to 1: how equal the members are; a low one is
        a doubtful merge).
    rules : GroupRules
        The rules given, with what was learned. Saved and given again, they keep the id of every group.

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
        """What was learned: a value to store as JSON, and to give again in `GroupRules`."""
        return dict(self.rules.learned or {})

    def assign(self, failures: pd.DataFrame) -> pd.DataFrame:
        """A copy of the failures with a column `signature` (str): the group of each.

        Rows that were not grouped have the id that they would have had.
        """
        failures = checked_frame("failures", failures, *_COLUMNS)
        rows = _ruled(read_rows(failures, self.rules), self.rules)
        groups = pd.Series([rows.ids[code] for code in rows.groups], index=failures.index, dtype="str")
        return failures.assign(signature=groups)

    def __repr__(self) -> str:
        total = int(self.frame["count"].sum())
        sentence = f"{counted(total, 'failure')} in {counted(len(self.frame), 'group')}"
        if not total:
            return sentence
        largest = int(self.frame["count"].to_numpy().argmax())
        share, title = self.frame["share"].iloc[largest], self.frame["title"].iloc[largest]
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
        more = f"; the first {_SHOWN} are shown" if len(self.frame) > _SHOWN else ""
        return frame_table(f"{self!r}{more}", shown)

    def _draw(self, ax: Axes, theme: Theme) -> Axes:
        from toolkit.drawing.result_bars import draw_groups  # noqa: PLC0415 - matplotlib is slow to import

        return draw_groups(self.frame, ax, theme)


def group_failures(failures: AnyFrame, *, rules: str | Path | GroupRules | None = None) -> FailureGroups:
    """Group failures by what their responses say, one row a group, the largest first.

    Failures are of one group when their bodies are equal but for values: types, codes, messages and the
    application's frame of a stack trace count; numbers, ids, times and line numbers do not. The status counts
    only where the body is empty, HTML or not UTF-8. Not for telling causes apart: one cause can speak in
    several ways.

    Parameters
    ----------
    failures : frame
        With the columns `dlq_id`, `workflow_url`, `response_status`, `response_body`,
        `response_body_base64`, `failed_at`, `created_at`.
    rules : str, Path or GroupRules, optional
        A file (UTF-8) by which users name, merge, split and pin groups, and which may hold what was learned
        earlier; or its value.

    Returns
    -------
    FailureGroups
        `.frame` holds the groups, `.assign` gives failures their group, `.rules.save` what to give next time.

    Raises
    ------
    InputError
        When a column is missing, or the rules cannot be read.

    Warns
    -----
    UnexpectedResultWarning
        When a rule splits a group of which no failure has that value.

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
    """Groups by the signatures that a snapshot stores; None where a row has none of today's rules."""
    failures = scanned(failures, doing=_DOING)
    names = opened(failures, doing=_DOING).names
    if SIGNATURE not in names:
        return None
    splits = _split_columns(rules, names)
    parts = [rule.value for rule in rules.rules if rule.action == "split" and rule.column == "body"]
    counts = stored_counts(failures, splits, parts, doing=_DOING)
    if counts is None:
        return None
    rules = with_learned(rules, failures)
    selected = select_timed(failures, [*grouped_columns(rules, names), SIGNATURE], doing=_DOING)
    latest = latest_rows(selected, [SIGNATURE, *splits], parts, LATEST_ROWS)
    rows = _with_stored(read_rows(latest, rules), latest[SIGNATURE])
    contains = counts["contains_"].combine_chunks().dictionary_encode()
    texts: list[str | None] = contains.dictionary.to_pylist()
    signed = SignedRows(texts, [], [], np.zeros(0, np.int64), contains.indices.to_numpy().astype(np.int64))
    counted = _ruled(_with_stored(rows._replace(table=counts, signed=signed), counts[SIGNATURE]), rules)
    groups, _ = grouped_rows(rows, rules)
    return FailureGroups(_ordered(_with_counts(groups.frame, counted), rules.rules), groups.rules)


def with_learned(rules: GroupRules, failures: AnyFrame) -> GroupRules:
    """The rules with what a snapshot has learned, where nothing else is given and its version is today's."""
    learned = facts_of(failures).get("learned") or {}
    if rules.learned is None and learned.get("rules_version") == RULES_VERSION:
        return GroupRules(rules.text, learned)
    return rules


def _with_stored(rows: SignedFailures, ids: pa.ChunkedArray) -> SignedFailures:
    """The rows with the stored signatures as their groups."""
    encoded = ids.combine_chunks().dictionary_encode()
    alone = encoded.indices.to_numpy().astype(np.int64)
    return rows._replace(alone=alone, groups=alone, ids=encoded.dictionary.to_pylist())


def _with_counts(frame: pd.DataFrame, rows: SignedFailures) -> pd.DataFrame:
    """The groups of a few rows with the counts, workflows, statuses and times of all."""
    counts = rows.table.to_pandas().assign(group=[rows.ids[group] for group in rows.groups])
    statuses: dict[str, Counter[str]] = defaultdict(Counter)
    for group, status, count in counts[["group", "response_status", "count_"]].itertuples(index=False):
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
    """The groups of failures, as `group_failures` returns them, and the group of each row."""
    given = read_rules(rules)
    groups, positions = grouped_rows(read_rows(failures, given), given)
    return groups, groups.frame["group"].iloc[positions].tolist()


def grouped_by_signature(failures: pa.Table, rules: GroupRules) -> tuple[FailureGroups, list[str]]:
    """As `grouped`, by stored signatures where all rows have them; groups then count their latest rows."""
    signed = SIGNATURE in failures.column_names and are_signed(failures[SIGNATURE])
    if not signed or any(rule.action == "split" for rule in rules.rules):
        return grouped(failures, rules)
    rows = select_timed(failures, [*grouped_columns(rules), SIGNATURE], doing=_DOING)
    latest = latest_rows(rows, [SIGNATURE], (), LATEST_ROWS)
    groups, positions = grouped_rows(_with_stored(read_rows(latest, rules), latest[SIGNATURE]), rules)
    known = dict(zip(latest[SIGNATURE].to_pylist(), groups.frame["group"].iloc[positions], strict=True))
    ids = select(failures, [SIGNATURE], doing=_DOING).table()[SIGNATURE].to_pylist()
    return groups, [known[signature] for signature in ids]


def read_rules(rules: str | Path | GroupRules | None) -> GroupRules:
    """Rules from the argument of `group_failures`."""
    if rules is None:
        return GroupRules()
    return rules if isinstance(rules, GroupRules) else GroupRules.read(rules)


def grouped_columns(rules: GroupRules, names: Iterable[str] = ()) -> list[str]:
    """The columns that grouping reads of a frame with these names, without times."""
    return list(dict.fromkeys([*_COLUMNS, *_split_columns(rules, names)]))


def _split_columns(rules: GroupRules, names: Iterable[str]) -> list[str]:
    columns = [rule.column for rule in rules.rules if rule.action == "split" and rule.column != "body"]
    return with_labels(columns, names)


def with_labels(columns: Iterable[str], names: Iterable[str]) -> list[str]:
    """These columns; with that of a single label, that of all labels, where a frame has it."""
    columns = list(columns)
    return [*columns, LABELS] if LABEL in columns and LABELS in names else columns


def grouped_rows(rows: SignedFailures, rules: GroupRules) -> tuple[FailureGroups, NDArray[np.int64]]:
    """Groups of rows that were read, and the position in their frame of the group of each row."""
    rows = _ruled(rows, rules)
    learned = rows.learned.extended(rows.signed.signatures)
    known = GroupRules(rules.text, msgspec.json.decode(msgspec.json.encode(learned)))
    frame = _summarised(rows, rules.rules)
    positions = {group: position for position, group in enumerate(frame["group"])}
    of_group = np.array([positions.get(group, -1) for group in rows.ids], dtype=np.int64)
    return FailureGroups(frame, known), of_group[rows.groups]


class SignedFailures(NamedTuple):
    """Failures, the signature of each, and the group that it is in."""

    table: pa.Table
    signed: SignedRows
    learned: Learned
    alone: NDArray[np.int64]  # the group of each row by its signature alone
    groups: NDArray[np.int64]  # the group of each row by the rules
    ids: list[str]
    splits: dict[str, str]  # from a group split off to why
    clean: Callable[[str], str]


def read_rows(failures: AnyFrame, rules: GroupRules, columns: Iterable[str] = ()) -> SignedFailures:
    """Read failures, with columns that later rules may name; rules are not applied yet."""
    names = opened(failures, doing=_DOING).names
    wanted = list(dict.fromkeys(with_labels([*grouped_columns(rules), *columns], names)))
    table = select_timed(failures, wanted, doing=_DOING).table()
    reader, learned = BodyReader(Redactor()), known_of(rules)
    signed = sign_rows(table, learned, reader)
    ids = list(dict.fromkeys(document.id for document in signed.documents))
    numbers = {group: number for number, group in enumerate(ids)}
    of_document = np.array([numbers[document.id] for document in signed.documents], dtype=np.int64)
    alone = of_document[signed.codes]
    return SignedFailures(table, signed, learned, alone, alone, ids, {}, reader.clean)


def _ruled(rows: SignedFailures, rules: GroupRules) -> SignedFailures:
    """The rows in groups that are merged and split in the order of the rules."""
    groups, splits = rows.alone.copy(), dict[str, str]()
    numbers = {group: number for number, group in enumerate(rows.ids)}
    columns: dict[str, list[list[str]]] = {}
    for rule in rules.rules:
        if rule.group not in numbers or rule.action not in ("merge", "split"):
            continue
        target, members = rule.value, groups == numbers[rule.group]
        if rule.action == "split":
            if rule.column == "body":
                texts = [rule.value in (text or "") for text in rows.signed.texts]
                members &= np.array(texts, dtype=bool)[rows.signed.bodies]
            else:
                if rule.column not in columns:
                    columns[rule.column] = split_values(rows.table, rule.column)
                members &= np.array([rule.value in values for values in columns[rule.column]], dtype=bool)
            target = split_off(rule)
            splits[target] = rule.condition
        groups[members] = numbers.setdefault(target, len(numbers))
    return rows._replace(groups=groups, ids=[*numbers], splits=splits)


def _summarised(rows: SignedFailures, rules: tuple[Rule, ...]) -> pd.DataFrame:
    texts = {"dlq_id": rows.table["dlq_id"].to_pylist(), "workflow": rows.table["workflow_url"].to_pylist()}
    frame = pd.DataFrame(texts, dtype=object).assign(
        group_=rows.groups, body_=rows.signed.bodies, when=timestamps(rows.table, "when_")
    )
    if frame.empty:
        return typed_rows([], _TYPES)
    latest = frame.sort_values(["when", "dlq_id"], ascending=False, kind="stable")
    repeated = latest.duplicated(["group_", "body_"])  # other texts first
    chosen = latest.assign(repeated=repeated).sort_values("repeated", kind="stable")
    shown_rows = chosen.groupby("group_").head(_EXAMPLES)["group_"].sort_values(kind="stable")
    examples = _parts(shown_rows.to_numpy(), shown_rows.index.to_numpy())
    status, responses = pd.factorize(pd.Series(rows.table["response_status"].to_pylist(), dtype=object))
    members = pd.DataFrame(
        {"group": rows.groups, "alone": rows.alone, "code": rows.signed.codes, "status": status}
    )
    members = members.groupby(list(members), sort=False).size().reset_index(name="count")
    speaking = np.zeros(len(rows.ids), dtype=np.int64)
    speaking[members["alone"]] = members["code"]
    members = members.sort_values("group", kind="stable")
    parts = _parts(members["group"].to_numpy(), members.drop(columns="group").to_numpy())
    grouped = frame.groupby("group_")
    summary = pd.DataFrame(
        {
            "workflows": grouped["workflow"].nunique(),
            "count": grouped.size(),
            "first_at": grouped["when"].min(),
            "last_at": grouped["when"].max(),
        }
    )
    names = {rule.group: rule.value for rule in rules if rule.action == "name"}
    text_of = np.zeros(len(rows.signed.documents), dtype=np.int64)
    text_of[rows.signed.codes] = rows.signed.bodies
    said = []
    for group, part, shown in zip(summary.index, parts, examples, strict=True):
        id_, own = rows.ids[group], Counter[int]()
        statuses, documents = Counter[str](), Counter[int]()
        for alone, code, response, count in part.tolist():
            own[alone] += count
            documents[code] += count
            if response >= 0:
                statuses[value_text(responses[response])] += count
        leader = group if group in own else min(own, key=lambda part: (-own[part], rows.ids[part]))
        signature = rows.signed.documents[speaking[leader]]
        row = (
            id_,
            shorten(names.get(id_) or _title(signature), _TITLE),
            shorten(" | ".join([*signature.facts, *signature.templates]), _TEMPLATE),
            signature.document.kind,
            _reason(signature, len(own) - 1, rows.splits.get(id_)),
            _status_list(statuses),
            json_text([_example(row, rows) for row in shown.tolist()]),
            _cohesion((_compared(code, rows, text_of), count) for code, count in documents.items()),
        )
        said.append(row)
    summary = summary.assign(share=summary["count"] / len(frame))
    return _ordered(summary.join(pd.DataFrame(said, summary.index, _SAID)), rules)


def _parts(groups: NDArray[np.int64], rows: NDArray[Any]) -> list[NDArray[Any]]:
    """The rows of each group, which are in the order of their groups."""
    return np.split(rows, np.flatnonzero(np.diff(groups)) + 1)


def _ordered(groups: pd.DataFrame, rules: tuple[Rule, ...]) -> pd.DataFrame:
    """The groups with their types: pinned ones first, then the largest."""
    pinned = {rule.group: number for number, rule in enumerate(rules) if rule.action == "pin"}
    order = groups.assign(
        pin=[pinned.get(group, len(pinned) + len(rules)) for group in groups["group"]], less=-groups["count"]
    ).sort_values(["pin", "less", "group"], ignore_index=True)
    return made_visible(order[list(_TYPES)].astype(_TYPES))


def _example(row: int, rows: SignedFailures) -> dict[str, str]:
    text = rows.signed.texts[rows.signed.bodies[row]]
    encoded = rows.table["response_body_base64"][row].as_py() if text is None else None
    line = binary_line(encoded) if encoded else rows.clean(error_text(text).text)
    dlq_id = rows.table["dlq_id"][row].as_py() or ""
    return {"dlq_id": rows.clean(dlq_id), "text": shorten(line, _EXAMPLE)}


def _title(signature: Signature) -> str:
    """Return the title of a group: the error in one line, with placeholders."""
    kind, facts = signature.document.kind, signature.facts
    status = next((fact for fact in facts if fact.startswith("status ")), "")
    if kind in _WITHOUT_TEXT:
        return ", ".join(filter(None, [_WITHOUT_TEXT[kind], status]))
    line = headline(kind, facts, signature.templates)
    if kind == "trace" and facts[-1] != NO_FRAME:
        return f"{line} {facts[-1]}"
    if kind == "html" and status:
        return f"{line} ({status})"
    return line or _title_of_keys(facts, status)


def _title_of_keys(facts: Sequence[str], status: str) -> str:
    """Return the title of JSON without a message, for example `JSON with "data" and "id" (status 400)`."""
    named = [fact for fact in facts if fact != status]
    if named[:1] != ["keys"]:
        return " ".join(facts)
    keys = [f'"{key}"' for key in named[1 : 1 + _KEYS_OF_TITLE]]
    title = f"JSON with {' and '.join([', '.join(keys[:-1]), keys[-1]] if keys[1:] else keys)}"
    if not keys:
        title = "JSON without an error"
    return f"{title} ({status})" if status else title


def _reason(signature: Signature, merged: int, split: str | None) -> str:
    """Why the members of a group belong together."""
    kind, facts = signature.document.kind, signature.facts
    status = next((f" and {fact}" for fact in facts if fact.startswith("status ")), "")
    values = any("<" in template for template in signature.templates)
    same = "the same message" + " but for its values" * values
    if kind == "trace":
        at = facts[-1].removeprefix("at ")
        frame = "" if facts[-1] == NO_FRAME else f", first application frame ({at})"
        why = f"stack traces of {facts[0]} with the same exceptions ({', '.join(facts[1:-1])}){frame}, {same}"
    elif kind == "json":
        named = [fact for fact in facts if not fact.startswith("status ")]
        parts = [f"the same {'names' if named[:1] == ['keys'] else 'codes and types'}"] * bool(named)
        why = f"JSON with {' and '.join([*parts, *[same] * bool(signature.templates)])}{status}"
    else:
        why = _ALIKE.get(kind, f"texts with {same}")
        why += status if kind == "html" else status.replace(" and ", " with ")
    split_off = f"; split off by a rule: {shorten(split, 100)}" if split else ""
    return why + split_off + (f"; {counted(merged, 'other group')} merged in by a rule" if merged else "")


def _status_list(statuses: Counter[str]) -> str:
    """The statuses, the most frequent first."""
    ordered = sorted(statuses, key=lambda status: (-statuses[status], status))
    return ", ".join(ordered[:_STATUSES]) + ", …" * (len(ordered) > _STATUSES)


def _compared(code: int, rows: SignedFailures, text_of: NDArray[np.int64]) -> Document:
    """Return what cohesion compares of a member: its document, or the text if the document states little.

    For example, a group of JSON with the keys "id" and "result" may contain errors in words that no form
    describes. The words of the texts differ, and so the cohesion is low.
    """
    document = rows.signed.documents[code].document
    if document.kind != "html" and document.facts[:1] != ("keys",):
        return document
    text = rows.signed.texts[text_of[code]] or ""
    return Document(document.kind, (), (with_placeholders(_SIGNS.sub(" ", text[:_COMPARED_TEXT])),))


def _cohesion(documents: Iterable[tuple[Document, int]]) -> float:
    """How many words members share with the commonest of them, on average (Dice coefficient)."""
    counts: Counter[Document] = Counter()
    for document, count in documents:
        counts[document] += count
    (middle, _), *others = counts.most_common(_COMPARED)
    words = Counter(_words(middle))
    total = same = float(counts[middle])
    for document, count in others:
        own = Counter(_words(document))
        every = words.total() + own.total()
        same += count * (2 * (words & own).total() / every if every else 1.0)
        total += count
    return same / total


def _words(document: Document) -> list[str]:
    return [word for text in (*document.facts, *document.messages) for word in text.split()]
