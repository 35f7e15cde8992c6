"""Describe groups of failures: title, template, examples, and how alike their bodies are.

For example, the bodies "no order 17" and "no order 4711" have the title "no order <num>".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toolkit.drawing.wording import (
    counted,
    shorten,
    value_text,
)
from toolkit.failures.group_rules import (
    Rule,
    json_text,
)
from toolkit.failures.selection import (
    timestamps,
    typed_rows,
)
from toolkit.failures.signed_failures import SignedFailures
from toolkit.signatures.document import NO_FRAME, Document
from toolkit.signatures.headlines import binary_line, error_text, headline, title_of
from toolkit.signatures.placeholders import with_placeholders
from toolkit.signatures.signing import Signature
from toolkit.tables.frames import made_visible


@dataclass(frozen=True)
class DescriptionTuning:
    """How much of a group is described and compared, with the reasons."""

    title: int = 120
    """Characters of a name that a rule gives to a group, as of the other titles."""
    template: int = 500
    """Characters of the template. The first lines of a message identify the group."""
    example: int = 300
    """Characters of an example, which is read in a cell of a table."""
    examples: int = 3
    """Examples of a group: enough to see which words differ."""
    compared: int = 200
    """Different documents of a group that are compared for the cohesion, so that a large group stays fast."""
    compared_text: int = 1_000
    """Characters of a body that are compared: as many as of a message."""
    own_facts: int = 2
    """Facts that tell a group from others with the same title, for example the fields of a validation."""
    keys: int = 4
    """Keys in the title of JSON without a message. More do not fit into a title."""
    statuses: int = 5
    """Statuses that are listed, the most frequent first."""


_TUNING: Final = DescriptionTuning()
_SIGNS: Final = re.compile(r"[<>{}\[\]\":,;=]+")
_WITHOUT_TEXT: Final = {"empty": "Empty body", "binary": "Body that is not UTF-8"}
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


class _Member(NamedTuple):
    """Rows of a group with the same signature, document and status, as numbers, and how many they are."""

    alone: int
    code: int
    status: int
    rows: int


def summarised(rows: SignedFailures, rules: tuple[Rule, ...]) -> pd.DataFrame:
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

    return in_order(summary.join(descriptions), rules)


def _example_rows(frame: pd.DataFrame) -> list[NDArray[Any]]:
    """Return the positions of the examples of each group: the latest rows, different bodies first."""
    latest = frame.sort_values(["when", "dlq_id"], ascending=False, kind="stable")
    repeated = latest.duplicated(["group_", "body_"])
    candidates = latest.assign(repeated=repeated).sort_values("repeated", kind="stable")
    examples = (
        candidates.groupby("group_")
        .head(_TUNING.examples)["group_"]
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
    facts_of: list[Sequence[str]] = []
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
            _title_of_group(names.get(group_id), signature),
            shorten(" | ".join([*signature.facts, *signature.templates]), _TUNING.template),
            signature.document.kind,
            _reason(signature, len(by_signature) - 1, rows.splits.get(group_id)),
            status_list(Counter({value_text(statuses[code]): count for code, count in by_status.items()})),
            json_text([_example(row, rows) for row in shown.tolist()]),
            _cohesion(documents),
        ))  # fmt: skip
        # a name of a rule is shown as it is
        facts_of.append(() if group_id in names else signature.facts)

    titles = told_apart([description[1] for description in described], facts_of)
    return [
        (group_id, title, *others)
        for (group_id, _, *others), title in zip(described, titles, strict=True)
    ]


def told_apart(titles: Sequence[str], facts_of: Sequence[Sequence[str]]) -> list[str]:
    """Return the titles of groups; if several are equal, each with the first facts that the others lack.

    >>> told_apart(["Required", "Required", "Invalid"], [("400", "email"), ("400", "sku"), ("400", "id")])
    ['Required (email)', 'Required (sku)', 'Invalid']
    """
    number_of = Counter(titles)
    # how many groups with this title have a fact
    groups_with = Counter(
        (title, fact)
        for title, facts in zip(titles, facts_of, strict=True)
        for fact in set(facts)
    )
    distinct = []
    for title, facts in zip(titles, facts_of, strict=True):
        own = [
            fact
            for fact in facts
            if groups_with[title, fact] < number_of[title] and fact not in title
        ]
        if own:
            title = f"{title} ({', '.join(own[: _TUNING.own_facts])})"  # noqa: PLW2901 - the same title, longer
        distinct.append(title)

    return distinct


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


def in_order(groups: pd.DataFrame, rules: tuple[Rule, ...]) -> pd.DataFrame:
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

    return {"dlq_id": rows.clean(dlq_id), "text": shorten(line, _TUNING.example)}


def _title_of_group(name: str | None, signature: Signature) -> str:
    """Return the name that a rule gives the group, else the title without a cut in a sentence."""
    if name:
        return shorten(name, _TUNING.title)
    return title_of(_title(signature))


def _title(signature: Signature) -> str:
    """Return the title of a group: the error in one line, with placeholders."""
    kind, facts = signature.document.kind, signature.facts
    status = _status(signature)
    if kind == "empty" and not status:
        # a response has a status, even without a body
        return "No response"
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

    keys = [f'"{key}"' for key in named[1 : 1 + _TUNING.keys]]
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


def status_list(statuses: Counter[str]) -> str:
    """Return the statuses, the most frequent first, for example "502, 500"."""
    ordered = sorted(statuses, key=lambda status: (-statuses[status], status))
    shown = ordered[: _TUNING.statuses]
    if len(ordered) > _TUNING.statuses:
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
        document.kind,
        (),
        (with_placeholders(_SIGNS.sub(" ", text[: _TUNING.compared_text])),),
    )


def _cohesion(documents: Iterable[tuple[Document, int]]) -> float:
    """Return how many words the members share with the most common member, on average.

    The measure is the Dice coefficient of the words: twice the common words, divided by all words of both.
    For example, "disk full on a" and "disk full on b" share 3 of 4 words: 2 * 3 / 8 = 0.75.
    """
    counts: Counter[Document] = Counter()
    for document, count in documents:
        counts[document] += count
    (most_common, _), *others = counts.most_common(_TUNING.compared)
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
