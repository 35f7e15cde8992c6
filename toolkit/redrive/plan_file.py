"""Read the file of a plan by one schema, with a clear error for everything that does not fit.

Format 2 is a JSON object with ``format``, ``hash``, ``source``, ``limits``, ``options``, ``learned`` and
``entries``. No other key is known, and no key or id may occur twice. For example, ``"wave": 0`` and an option
that `plan_redrive` does not have are errors. The hash of format 1 covered less: plans of that format are read
from ledgers only, so that you can see the outcome of an earlier redrive.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal

import msgspec
import pandas as pd

from toolkit.base.errors import InputError
from toolkit.base.times import parse_duration
from toolkit.redrive.choices import Action, joined_marks, split_marks
from toolkit.redrive.limits import Limits
from toolkit.signatures.signing import Learned

FORMAT: Final = "redrive-plan/2"
"""Raised when a key, a reason or an action changes."""

OLDER: Final = "redrive-plan/1"

COLUMNS: Final = {
    "dlq_id": "str", "group": "str", "title": "str", "class": "str", "workflow_url": "str", "action": "str",
    "reason": "str", "expires_at": "datetime64[ms, UTC]", "workflow_run_id": "str",
    "created_at": "datetime64[ms, UTC]", "response_status": "Int64", "failure_function_state": "str",
    "marks": "str",
}  # fmt: skip
"""The columns of a plan's frame."""

_EXPECTED: Final = "a file that plan.save() wrote"
_AGAIN: Final = "Make the plan again with plan_redrive."
_WAY_OUT: Final = (
    "Make the plan again with plan_redrive. Pass the ledger as history=, and entries that came back are "
    "left. read_redrive_status and read_redrive_history read the ledger."
)
_SHOWN: Final = 200  # characters of a wrong value

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Mark = Literal[
    "gone", "returned", "masked body", "truncated body", "no failure function"
]
_Included = Literal[
    "refused", "poison input", "contract drift", "returned", "masked body", "truncated body",
]  # fmt: skip
_Class = Literal[
    "refused", "transient", "throttled", "poison input", "contract drift", "authentication", "configuration",
    "resource exhaustion", "dependency down", "bug", "unknown",
]  # fmt: skip


class PlanOptions(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The arguments of `plan_redrive` that decide about entries."""

    actions: dict[_Text, Action] | Action | None = None
    idempotent: list[_Text] = []
    changed: list[_Text] = []
    include: list[_Included] = []
    history: _Text | None = None
    retention: _Text = "7d"


class _Entry(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"class_": "class"}
):
    """One row of a plan."""

    dlq_id: _Text
    group: _Text
    title: str
    class_: _Class
    workflow_url: str | None
    action: Action
    reason: str
    expires_at: str | None
    workflow_run_id: str | None
    created_at: str | None
    response_status: int | None
    failure_function_state: str | None
    marks: list[_Mark]


class SavedPlan(msgspec.Struct, forbid_unknown_fields=True):
    """The file of a plan."""

    format: Literal["redrive-plan/2"]
    hash: str
    source: str
    limits: Limits
    options: PlanOptions
    learned: Learned | None
    entries: list[_Entry]


class _OlderEntry(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"class_": "class"}
):
    """One row of a plan of format 1."""

    dlq_id: _Text
    group: _Text
    title: str | None
    class_: str | None
    workflow_url: str | None
    action: Action
    reason: str | None
    expires_at: str | None
    workflow_run_id: str | None
    created_at: str | None
    response_status: str | None
    failure_function_state: str | None


class _OlderPlan(msgspec.Struct, forbid_unknown_fields=True):
    """A plan of format 1."""

    format: Literal["redrive-plan/1"]
    hash: str
    source: str
    limits: Limits
    options: PlanOptions
    learned: Learned | None
    entries: list[_OlderEntry]


class PlanParts(msgspec.Struct, frozen=True):
    """The parts of a file, checked key by key."""

    format: str
    hash: str
    source: str
    limits: Limits
    options: dict[str, Any]
    learned: dict[str, Any]
    frame: pd.DataFrame


def checked_options(options: object) -> dict[str, Any]:
    """Return the options of a plan, known keys with values of their types; else an `InputError`."""
    with unreadable(
        "reading the options of a plan", expected="the arguments of plan_redrive"
    ):
        known = msgspec.convert(options, PlanOptions)
        parse_duration(known.retention, name="retention")

    values: dict[str, Any] = msgspec.to_builtins(known)
    return values


def checked_learned(learned: object) -> dict[str, Any]:
    """Return the rules that grouping had learned; else an `InputError`."""
    if learned in (None, {}):
        return {}

    with unreadable(
        "reading the rules of a plan", expected="rules that grouping had learned"
    ):
        known = msgspec.convert(learned, Learned)
        values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(known))

    return values


def read_parts(content: bytes, doing: str, *, older: bool) -> PlanParts:
    """Return the parts of the file of a plan. Format 1 is read only with `older`."""
    with unreadable(doing):
        values = _strict_json(content)
        if not isinstance(values, dict):
            raise InputError(
                doing,
                got=type(values).__name__,
                expected="a JSON object",
                next_step=_AGAIN,
            )

        is_older = values.get("format") == OLDER
        if is_older and not older:
            raise InputError(
                doing,
                got=f"a plan of format {OLDER}",
                expected=FORMAT,
                next_step=_WAY_OUT,
            )

        kind: Any = _OlderPlan if is_older else SavedPlan
        if not is_older and values.get("format") != FORMAT:
            raise InputError(
                doing, got=f"the format {values.get('format')!r}"[:_SHOWN],
                expected=f"{FORMAT}, as plan.save() writes it",
                next_step=f"{_AGAIN} A newer toolkit may have written it.",
            )  # fmt: skip

        saved = msgspec.convert(values, kind)
        parse_duration(saved.options.retention, name="retention")
        frame = _frame(saved.entries)
        learned = checked_learned(values["learned"])

    _check_ids(frame["dlq_id"], doing)
    return PlanParts(
        saved.format, saved.hash, saved.source, saved.limits,
        msgspec.to_builtins(saved.options), learned, frame,
    )  # fmt: skip


def entries_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a plan as JSON has them."""
    return [
        {
            **{name: _json_value(row[name]) for name in COLUMNS},
            "marks": split_marks(_json_value(row["marks"])),
        }
        for row in frame.to_dict("records")
    ]


def _json_value(value: Any) -> Any:
    if pd.isna(value):
        return None
    return str(value) if isinstance(value, str | pd.Timestamp) else int(value)


def _frame(entries: list[Any]) -> pd.DataFrame:
    """Return the rows of a file as the frame of a plan; format 1 has no marks, and numbers as text."""
    values = [msgspec.to_builtins(entry) for entry in entries]
    rows = pd.DataFrame(values, columns=list(COLUMNS), dtype="object")
    for name in ("expires_at", "created_at"):
        rows[name] = pd.to_datetime(rows[name], utc=True, format="ISO8601")
    rows["response_status"] = pd.to_numeric(rows["response_status"])
    rows["marks"] = [joined_marks(entry.get("marks", ())) for entry in values]

    return rows.astype(COLUMNS)


def _check_ids(ids: pd.Series[Any], doing: str) -> None:
    if twice := ids[ids.duplicated()].tolist():
        raise InputError(
            doing,
            got=f"the id {twice[0][:_SHOWN]!r} twice",
            expected="each entry once",
            next_step=_AGAIN,
        )


def _strict_json(content: object) -> Any:
    """Read JSON in UTF-8. Raise an error for NaN, and for a key that occurs twice in an object."""
    if not isinstance(content, bytes):
        # a ledger of another program may have other types
        raise TypeError(f"{type(content).__name__} instead of bytes")

    return json.loads(
        content.decode(), object_pairs_hook=_unique, parse_constant=_no_number
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as a dict; raise `ValueError` if a key occurs twice."""
    made = dict(pairs)
    if len(made) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"the key {twice[:_SHOWN]!r} twice")

    return made


def _no_number(text: str) -> Any:
    raise ValueError(f"{text}, which JSON does not have")


@contextmanager
def unreadable(doing: str, expected: str = _EXPECTED) -> Iterator[None]:
    """Turn every error that a damaged file raises into an `InputError` that names the file."""
    try:
        yield
    except InputError as error:
        if error.args and str(error).startswith(doing):
            raise
        raise InputError(
            doing, got=str(error)[:_SHOWN], expected=expected, next_step=_AGAIN
        ) from None
    except RecursionError:
        raise InputError(
            doing, got="JSON of too many levels", expected=expected, next_step=_AGAIN
        ) from None
    except (
        msgspec.DecodeError,
        UnicodeError,
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
    ) as error:
        got = f"{type(error).__name__}: {error}"[:_SHOWN]
        raise InputError(doing, got=got, expected=expected, next_step=_AGAIN) from None
