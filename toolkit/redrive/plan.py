"""The plan of a redrive: exact entries, what is done with each and why, and the limits of the run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias

import msgspec
import pandas as pd

from toolkit.analysis.classes import classify_failures
from toolkit.analysis.grouping import grouped
from toolkit.analysis.lifetimes import expiring
from toolkit.analysis.selection import opened, select
from toolkit.analysis.sources import AnyFrame
from toolkit.analysis.wording import counted, frame_table
from toolkit.arguments import choice, file_path, instance, nearest, positive, texts, whole, wrong
from toolkit.errors import InputError, UnexpectedResultWarning
from toolkit.private_files import read_file, write_file
from toolkit.python_code import Code, PublicCall, fill, joined, variable
from toolkit.redrive.ledger import returned_entries
from toolkit.tables.frames import to_frame
from toolkit.times import parse_duration

Action: TypeAlias = Literal["resume", "restart", "failure function", "delete", "leave"]
ACTIONS: Final = ("resume", "restart", "failure function", "delete")
LEAVE: Final = "leave"
RETURNED: Final = "returned"
MASKED: Final = "masked body"
TRUNCATED: Final = "truncated body"
LEFT_OUT: Final = ("poison input", "contract drift", RETURNED, MASKED, TRUNCATED)
"""What is left unless it is included: classes, and what is known of an entry."""

COLUMNS: Final = {
    "dlq_id": "str", "group": "str", "title": "str", "class": "str", "workflow_url": "str", "action": "str",
    "reason": "str", "expires_at": "datetime64[ms, UTC]", "workflow_run_id": "str",
    "created_at": "datetime64[ms, UTC]", "response_status": "Int64", "failure_function_state": "str",
}  # fmt: skip
UNCHANGED: Final = ("workflow_run_id", "created_at", "response_status", "failure_function_state")
"""What must be as planned when an entry is read again."""

_SHOWN: Final = 20  # rows of groups in a notebook
_FORMAT: Final = "redrive-plan/1"
_IDS_SHOWN: Final = 50
_PLAN: Final = PublicCall("plan_redrive", (
    "actions", "idempotent", "changed", "include", "history", "retention",
    "canaries", "wave", "stop_above", "deadline", "rate", "parallelism",
))  # fmt: skip
_RUN: Final = PublicCall("run_redrive", ("ledger", "confirm"))
_DOING: Final = "planning a redrive"
_NEEDED: Final = (
    "dlq_id", "workflow_run_id", "workflow_url", "created_at", "failed_at", "response_status",
    "response_body", "response_body_base64", "failure_function_state",
)  # fmt: skip
_KNOWN: Final = ("body", "failure_callback", "gone_before")  # read where the failures have them


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
        What grouping had learned, so that a new failure is compared by the same rules.

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
        rows = _texts(self.acted.drop(columns=["title", "class", "reason", "expires_at"]))
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
        if self.frame.empty:
            return self._headline()
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

    def to_code(
        self, ledger: str | os.PathLike[str] = "redrive.sqlite", *, failures: str = "failures"
    ) -> Code:
        """Python that makes this plan again and runs it.

        Parameters
        ----------
        ledger : str or path
            The file that the run writes.
        failures : str
            The name of the frame that has the failures: a Python identifier.

        Returns
        -------
        str
            It finds the failures in the frame of that name: up to 50 by their exact ids; of more, the frame
            that the plan was made from. Other failures make another plan, which ``confirm=`` refuses.
        """
        ids = self.frame["dlq_id"].tolist()
        file, frame = str(file_path("ledger", ledger)), variable(failures)
        limits = msgspec.structs.asdict(self.limits) | {"deadline": duration_text(self.limits.deadline)}
        options = {name: value for name, value in (self.options | limits).items() if value not in (None, [])}
        chosen = frame
        if len(ids) <= _IDS_SHOWN:
            chosen = fill("{frame}[{frame}['dlq_id'].isin({ids})]", frame=frame, ids=ids)
        plan = _PLAN.write_lines(chosen, **options)
        run = _RUN.write(variable("service"), variable("plan"), ledger=file, confirm=self.confirmation)
        return joined([fill("plan = {plan}", plan=plan), run])

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
            When the file cannot be read, is not a plan, or was edited.
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


def plan_redrive(
    failures: AnyFrame,
    *,
    actions: Action | Mapping[str, Action] | None = None,
    idempotent: Iterable[str] = (),
    changed: Iterable[str] = (),
    include: Iterable[str] = (),
    history: str | os.PathLike[str] | None = None,
    retention: str | timedelta = "7d",
    canaries: int = 1,
    wave: int = 50,
    stop_above: float = 0.2,
    deadline: str | timedelta = "10m",
    rate: int | None = None,
    parallelism: int | None = None,
) -> RedrivePlan:
    """Plan what to do with failed runs: nothing is sent, the plan is a value to look at.

    Parameters
    ----------
    failures : pandas.DataFrame
        As `load_failures` returns it, or some rows of it; the path of a snapshot, or what `scan_snapshot`
        returns, of which entries that have left the queue are left.
    actions : str or dict, optional
        One action for all, or one a group (by `group_failures`' ids; groups without one are left):
        ``"resume"`` from the step that failed, ``"restart"`` from the beginning, ``"failure function"`` once
        more, ``"delete"``, ``"leave"``. Default: resume; restart where `changed` names the workflow.
    idempotent : iterable of str
        Workflow URLs whose runs may be restarted though that repeats every side effect of earlier steps.
        Others are left where a restart is needed.
    changed : iterable of str
        Workflow URLs whose code has changed before the step that failed: resuming is unsafe there.
    include : iterable of str
        What is left otherwise, and shall not be: "poison input", "contract drift", "returned" (entries of an
        earlier redrive that came back), "masked body", "truncated body".
    history : str or path, optional
        The ledger of earlier redrives, which tells what came back.
    retention : str or timedelta
        How long the queue keeps an entry: what expires first is redriven first.
    canaries : int
        Entries of each group that go first, alone.
    wave : int
        Entries of a group that go together after that, once those before have ended.
    stop_above : float
        Share of the ended runs of a group that may fail again (above 0, at most 1). Beyond it, the group is
        stopped.
    deadline : str or timedelta
        How long a wave is waited for.
    rate, parallelism : int, optional
        Deliveries a second, and concurrent ones, of all redriven runs together: the service's flow control.
        It takes the place of the runs' own flow control. Default: their own.

    Returns
    -------
    RedrivePlan

    Raises
    ------
    InputError
        For arguments that cannot be used, or a frame without the columns of `load_failures`.

    Warns
    -----
    UnexpectedResultWarning
        When `idempotent` or `changed` names a workflow of which there is no failure.

    Examples
    --------
    >>> failures = tk.load_failures(service, limit=20, progress=False)
    >>> plan_redrive(failures, actions="leave").confirmation.split("-")[0]
    '0'
    """
    wanted = _checked_actions(actions)
    repeatable, unsafe, included = (
        frozenset(texts(name, value))
        for name, value in (("idempotent", idempotent), ("changed", changed), ("include", include))
    )
    included = frozenset(choice("include", item, LEFT_OUT) for item in included)
    if positive("stop_above", stop_above) > 1:
        raise wrong("stop_above", stop_above, "a share above 0, at most 1")
    limits = Limits(
        canaries=whole("canaries", canaries),
        wave=whole("wave", wave),
        stop_above=float(stop_above),
        deadline=parse_duration(deadline, name="deadline").total_seconds(),
        rate=whole("rate", rate, optional="for the runs' own"),
        parallelism=whole("parallelism", parallelism, optional="for the runs' own"),
    )
    columns = [*_NEEDED, *(name for name in opened(failures, doing=_DOING).names if name in _KNOWN)]
    frame = to_frame(select(failures, columns, doing=_DOING).table())
    frame = frame.drop_duplicates("dlq_id", ignore_index=True)
    known = frame["workflow_url"].dropna().unique().tolist()
    for name, urls in (("idempotent", repeatable), ("changed", unsafe)):
        for url in sorted(urls.difference(known)):
            message = f"{name} names {url!r}, of which there is no failure. {nearest(url, known)}"
            warnings.warn(message, UnexpectedResultWarning, stacklevel=2)
    groups, ids = grouped(frame)
    frame = frame.assign(signature=pd.Series(ids, index=frame.index, dtype="str"))
    titles = groups.frame.set_index("group")["title"]
    if isinstance(wanted, Mapping):
        wanted = {choice("actions", group, titles.index): action for group, action in wanted.items()}
    classes = classify_failures(frame).frame["class"]
    rows = frame.assign(group=frame["signature"], title=frame["signature"].map(titles), **{"class": classes})
    rows = rows.merge(expiring(frame, retention)[["dlq_id", "expires_at"]], on="dlq_id", how="left")
    returned = returned_entries(history) if history is not None else frozenset()
    choices = _Choices(wanted, repeatable, unsafe, included, returned)
    facts = choices.facts(rows)
    decided = [choices.of(entry) for entry in facts.drop_duplicates().to_dict("records")]  # a few
    alike = facts.groupby([*facts], sort=False).ngroup()
    rows = rows.assign(action=[decided[n][0] for n in alike], reason=[decided[n][1] for n in alike])
    rows["first"] = rows.groupby("group")["expires_at"].transform("min")
    ordered = rows.sort_values(["first", "group", "expires_at", "dlq_id"], ignore_index=True)
    options = {
        "actions": wanted,
        "idempotent": sorted(repeatable),
        "changed": sorted(unsafe),
        "include": sorted(included),
        "history": None if history is None else os.fspath(history),
    }
    # whatever the order of the rows, and the unit of their times
    types = {name: COLUMNS.get(name, "str") for name in _NEEDED} | {"failed_at": COLUMNS["created_at"]}
    hashes = pd.util.hash_pandas_object(frame[list(_NEEDED)].astype(types), index=False)
    source = sha256(hashes.sort_values().to_numpy().tobytes()).hexdigest()
    return RedrivePlan(ordered[list(COLUMNS)].astype(COLUMNS), source, limits, options, groups.learned)


def _checked_actions(actions: object) -> dict[str, str] | str | None:
    """The argument ``actions``: one for all groups, or one a group."""
    if isinstance(actions, Mapping):
        return {str(group): _checked(f"actions[{group!r}]", action) for group, action in actions.items()}
    return None if actions is None else _checked("actions", actions, "; or a dict from group to action")


def _checked(name: str, action: object, otherwise: str = "") -> str:
    if not isinstance(action, str) or action not in (*ACTIONS, LEAVE):
        expected = f"{', '.join(ACTIONS)}, or {LEAVE}{otherwise}"
        raise InputError(f"reading {name}", got=repr(action)[:80], expected=expected)
    return str(action)


@dataclass(frozen=True)
class _Choices:
    """What the arguments of a plan say of each entry."""

    actions: Mapping[str, str] | str | None
    idempotent: frozenset[str]
    changed: frozenset[str]
    included: frozenset[str]
    returned: frozenset[str]

    def facts(self, rows: pd.DataFrame) -> pd.DataFrame:
        """What decides about each entry."""
        bodies = rows.get("body", pd.Series(None, index=rows.index, dtype="str"))
        return rows[["group", "class"]].assign(
            message=rows["workflow_run_id"].isna(),
            gone=rows["gone_before"].notna() if "gone_before" in rows else False,
            returned=rows[["dlq_id", "workflow_run_id"]].isin(self.returned).any(axis=1),
            function=rows.get("failure_callback", rows["dlq_id"]).notna(),
            masked=bodies.str.contains("REDACTED:", regex=False, na=False),
            truncated=bodies.map(_truncated).astype(bool),
            changed=rows["workflow_url"].isin(self.changed),
            idempotent=rows["workflow_url"].isin(self.idempotent),
        )

    def of(self, entry: dict[Hashable, Any]) -> tuple[str, str]:
        """The action for an entry, and the reason."""
        action = (
            self.actions.get(entry["group"], LEAVE) if isinstance(self.actions, Mapping) else self.actions
        )
        repeats = (action == "restart" or (action is None and entry["changed"])) and not entry["idempotent"]
        kept = {*LEFT_OUT} - self.included
        again = kept if action in (None, "resume", "restart") else ()
        reasons = {
            "as requested": action == LEAVE,
            "it is a plain message, not a run": entry["message"],
            "it has left the queue": entry["gone"],
            "an earlier redrive brought it back": RETURNED in kept and entry["returned"],
            "it has no failure function": action == "failure function" and not entry["function"],
            f"{entry['class']}: it would fail again": entry["class"] in again,
            f"{MASKED}: it may not be what the run got": MASKED in again and entry["masked"],
            f"{TRUNCATED}: it may not be what the run got": TRUNCATED in again and entry["truncated"],
            "an earlier step has changed: resuming is unsafe": action == "resume" and entry["changed"],
            "restarting repeats side effects: not stated to be idempotent": repeats,
        }
        for reason, holds in reasons.items():
            if holds:
                return LEAVE, reason
        if action in ("delete", "failure function"):
            return action, "as requested"
        if action == "resume" or (action is None and not entry["changed"]):
            return "resume", "finished steps do not run again"
        why = "an earlier step has changed" if entry["changed"] else "as requested"
        return "restart", f"{why}, stated to be idempotent"


def _truncated(body: object) -> bool:
    """Whether a body begins as JSON and does not end as such."""
    if not isinstance(body, str) or not body.startswith(("[", "{")):
        return False
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        return isinstance(error, msgspec.DecodeError) and "truncated" in str(error)
    return False


def duration_text(seconds: float) -> str:
    """A duration as `plan_redrive` reads it.

    >>> duration_text(600.0), duration_text(604_800), duration_text(0.25)
    ('600s', '7d', '0.25s')
    """
    days, rest = divmod(seconds, 86_400)
    if days and not rest:
        return f"{days:.0f}d"
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


def _texts(frame: pd.DataFrame) -> list[list[str | None]]:
    """The rows of a plan as texts."""
    rows = frame.itertuples(index=False)
    return [[None if pd.isna(value) else str(value) for value in row] for row in rows]
