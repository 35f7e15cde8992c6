"""The plan of a redrive: exact entries, what is done with each and why, and the limits of the run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import pandas as pd

from toolkit.analysis.wording import counted, frame_table
from toolkit.arguments import file_path, instance
from toolkit.errors import InputError
from toolkit.private_files import read_file, write_file

ACTIONS: Final = ("resume", "restart", "failure function", "delete")
LEAVE: Final = "leave"
COLUMNS: Final = {
    "dlq_id": "str",
    "group": "str",
    "title": "str",
    "class": "str",
    "workflow_url": "str",
    "action": "str",
    "reason": "str",
    "expires_at": "datetime64[ms, UTC]",
    "workflow_run_id": "str",
    "created_at": "datetime64[ms, UTC]",
    "response_status": "Int64",
    "failure_function_state": "str",
}
UNCHANGED: Final = ("workflow_run_id", "created_at", "response_status", "failure_function_state")
"""What must be as planned when an entry is read again."""

_SHOWN: Final = 20  # rows of groups in a notebook
_FORMAT: Final = "redrive-plan/1"
_IDS_SHOWN: Final = 50


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How carefully a plan is run; times are in seconds."""

    canaries: int = 1
    wave: int = 50
    stop_above: float = 0.2
    deadline: float = 600.0
    rate: int | None = None
    parallelism: int | None = None


class _Saved(msgspec.Struct, forbid_unknown_fields=True):
    """A plan as its file holds it."""

    format: str
    hash: str
    source: str
    limits: Limits
    options: dict[str, Any]
    learned: dict[str, Any]
    entries: list[dict[str, str | None]]


# created here: msgspec's first inspection of a struct is not thread-safe
_SAVED: Final = msgspec.json.Decoder(_Saved)


@dataclass(frozen=True, repr=False, eq=False)
class RedrivePlan:
    """What a redrive will do with which entries; made by `plan_redrive`, run by `run_redrive`.

    A plan holds exact ids, never a filter: what fails after it was made is not touched.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row a failure, in the order in which they are acted on (what expires first): `dlq_id`, `group`,
        `title`, `class`, `workflow_url`, `action` (str: resume, restart, failure function, delete or leave),
        `reason` (str), `expires_at`, and how the entry was when the plan was made: `workflow_run_id`,
        `created_at`, `response_status`, `failure_function_state`.
    source : str
        Hash of the failures that it was made from.
    limits : Limits
        `canaries`, `wave`, `stop_above`, `deadline` (seconds), `rate`, `parallelism`.
    options : dict
        The other arguments of `plan_redrive`.
    learned : dict
        What grouping had learnt, so that a new failure is compared by the same rules.

    Examples
    --------
    >>> plan = tk.plan_redrive(tk.load_failures(service, limit=20, progress=False))
    >>> plan.frame["action"].isin(["resume", "leave"]).all()
    np.True_
    """

    frame: pd.DataFrame
    source: str
    limits: Limits
    options: dict[str, Any]
    learned: dict[str, Any]

    @cached_property
    def hash(self) -> str:
        """SHA-256 of everything that decides what a run does, in hex."""
        acted = self.acted.drop(columns=["title", "class", "reason", "expires_at"])
        rows = [
            [None if pd.isna(value) else str(value) for value in row] for row in acted.itertuples(index=False)
        ]
        return sha256(msgspec.json.encode([_FORMAT, self.limits, rows])).hexdigest()

    @property
    def confirmation(self) -> str:
        """What `run_redrive` expects as ``confirm``: the number of entries, and the start of the hash."""
        return f"{len(self.acted)}-{self.hash[:8]}"

    @property
    def acted(self) -> pd.DataFrame:
        """The rows of `frame` that something is done with."""
        return self.frame[self.frame["action"] != LEAVE]

    @property
    def groups(self) -> pd.DataFrame:
        """One row a group, workflow and action, as the preview shows them.

        `group`, `title`, `class`, `workflow_url`, `action`, `reason` (str), `count` (Int64) and
        `first_expiry` (datetime64[ms, UTC]).
        """
        keys = ["group", "title", "class", "workflow_url", "action", "reason"]
        found = self.frame.groupby(keys, sort=False, dropna=False)["expires_at"].agg(["size", "min"])
        named = found.reset_index().rename(columns={"size": "count", "min": "first_expiry"})
        return named.astype({"count": "Int64"})

    @property
    def verdict(self) -> str:
        """One sentence."""
        actions = self.acted["action"].value_counts()
        said = ", ".join(f"{action} {count:,}" for action, count in sorted(actions.items()))
        left = len(self.frame) - len(self.acted)
        begins = f"{counted(len(self.frame), 'failure')}: " + (said or "nothing to do")
        return f"{begins}{f', leave {left:,}' if left else ''}; confirm={self.confirmation!r}"

    def __repr__(self) -> str:
        columns = ["title", "workflow_url", "action", "count", "reason"]
        return f"{self._headline()}\n{self.groups[columns].head(_SHOWN).to_string(index=False)}"

    def _repr_html_(self) -> str:
        return frame_table(self._headline(), self.groups.drop(columns="group").head(_SHOWN))

    def _headline(self) -> str:
        rows = len(self.groups)
        return self.verdict + (f"; {_SHOWN} of {rows:,} rows of .groups:" if rows > _SHOWN else "")

    def diff(self, other: RedrivePlan) -> pd.DataFrame:
        """What another plan does differently.

        Parameters
        ----------
        other : RedrivePlan

        Returns
        -------
        pandas.DataFrame
            One row an entry whose action differs: `dlq_id`, `before`, `after` (str; missing where the plan
            does not have it).
        """
        instance("other", other, RedrivePlan, "a plan")
        before, after = (plan.frame.set_index("dlq_id")["action"] for plan in (self, other))
        table = pd.DataFrame({"before": before, "after": after}).rename_axis("dlq_id").reset_index()
        different = table["before"].fillna("") != table["after"].fillna("")
        return pd.DataFrame(table[different]).reset_index(drop=True).astype("str")

    def to_code(self, ledger: str | os.PathLike[str] = "redrive.sqlite") -> str:
        """Python that makes this plan again and runs it.

        Parameters
        ----------
        ledger : str or path
            The file that the run writes.

        Returns
        -------
        str
            It finds the failures under the name ``failures``: up to 50 by their exact ids; of more, the frame
            that the plan was made from. Other failures make another plan, which ``confirm=`` refuses.
        """
        ids = self.frame["dlq_id"].tolist()
        file = str(file_path("ledger", ledger))
        run = f"tk.run_redrive(service, plan, ledger={file!r}, confirm={self.confirmation!r})"
        limits = msgspec.structs.asdict(self.limits) | {"deadline": f"{self.limits.deadline:g}s"}
        given = (self.options | limits).items()
        options = "".join(f"    {name}={value!r},\n" for name, value in given if value not in (None, []))
        few = len(ids) <= _IDS_SHOWN
        chosen = f"failures[failures['dlq_id'].isin({ids!r})]" if few else "failures"
        return f"plan = tk.plan_redrive(\n    {chosen},\n{options})\n{run}"

    def to_json(self) -> bytes:
        """The plan as JSON: what `save` writes."""
        entries = [dict(zip(COLUMNS, row, strict=True)) for row in _texts(self.frame)]
        saved = _Saved(_FORMAT, self.hash, self.source, self.limits, self.options, self.learned, entries)
        return msgspec.json.format(msgspec.json.encode(saved, order="sorted"))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the plan to a file (JSON), to be read, compared, reviewed and run later.

        Parameters
        ----------
        path : str or path
            Replaced when it exists. Only this user can read it.

        Returns
        -------
        Path

        Raises
        ------
        InputError
            When the file cannot be written.
        """
        target, content = file_path("path", path), self.to_json()
        write_file(target, lambda file: file.write(content))
        return target

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a plan that `save` wrote.

        Parameters
        ----------
        path : str or path

        Returns
        -------
        RedrivePlan

        Raises
        ------
        InputError
            When the file cannot be read, is no plan, or was edited.
        """
        try:
            content = read_file(file_path("path", path))
        except OSError as error:
            raise InputError(
                f"reading the plan {path}", got=str(error.strerror or error), expected="a file"
            ) from None
        return cls.from_json(content, str(path))

    @classmethod
    def from_json(cls, content: bytes, name: str) -> Self:
        """The plan that `to_json` made; `name` says in errors which one it is."""
        doing = f"reading the plan {name}"
        try:
            saved = _SAVED.decode(content)
            rows = [[entry[column] for column in COLUMNS] for entry in saved.entries]
            texts = pd.DataFrame(rows, columns=list(COLUMNS), dtype="str")
            times = texts[["expires_at", "created_at"]].apply(pd.to_datetime, utc=True, format="ISO8601")
            numbers = pd.to_numeric(texts["response_status"])
            frame = texts.assign(**times, response_status=numbers).astype(COLUMNS)
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
            got = f"{type(error).__name__}: {error}"[:200]
            raise InputError(doing, got=got, expected="what plan.save() wrote") from None
        made = cls(frame, saved.source, saved.limits, saved.options, saved.learned)
        if saved.format != _FORMAT or saved.hash != made.hash:
            raise InputError(
                doing,
                got="a plan that was edited, or of another version",
                expected=f"one as plan.save() wrote it ({_FORMAT})",
                next_step="Make it again with plan_redrive.",
            )
        return made


def checked_action(name: str, action: object) -> str:
    """An action, or an `InputError` that lists them."""
    if not isinstance(action, str) or action not in (*ACTIONS, LEAVE):
        raise InputError(
            f"reading {name}", got=repr(action)[:80], expected=", ".join((*ACTIONS, f"or {LEAVE}"))
        )
    return action


def checked_actions(actions: object) -> Mapping[str, str] | str | None:
    """The argument ``actions``: one for all groups, or one a group."""
    if actions is None or isinstance(actions, str):
        return None if actions is None else checked_action("actions", actions)
    if not isinstance(actions, Mapping):
        raise InputError(
            "reading actions",
            got=type(actions).__name__,
            expected="an action, or a dict from group to action",
        )
    return {str(group): checked_action(f"actions[{group!r}]", action) for group, action in actions.items()}


def _texts(frame: pd.DataFrame) -> list[list[str | None]]:
    """The rows of a plan as texts."""
    rows = frame.itertuples(index=False)
    return [[None if pd.isna(value) else str(value) for value in row] for row in rows]
