"""Describe a redrive before it runs: exact entries, an action for each, the reason, and the limits."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import pandas as pd

from toolkit.base.arguments import file_path, instance
from toolkit.base.errors import InputError
from toolkit.base.private_files import read_file, write_file
from toolkit.base.python_code import Code, PublicCall, fill, joined, variable
from toolkit.base.visible_text import visible
from toolkit.drawing.result_tables import HasFrame, frame_table
from toolkit.drawing.wording import ROWS_SHOWN, counted, headline
from toolkit.redrive.choices import LEAVE, Choices, recommended
from toolkit.redrive.limits import Limits
from toolkit.redrive.plan_file import (
    COLUMNS,
    FORMAT,
    OLDER,
    checked_learned,
    checked_options,
    entries_of,
    read_parts,
    unreadable,
)

UNCHANGED: Final = (
    "workflow_run_id",
    "created_at",
    "response_status",
    "failure_function_state",
)
"""Columns that must be as planned when an entry is read again."""

_CODE_DIGITS, _EARLIER_CODE_DIGITS = 16, 8  # of the hash, in a confirmation
_IDS_SHOWN: Final = 50
_LONGEST: Final = 200  # characters of an error
_NOT_IN_OLDER_HASH: Final = ("title", "class", "reason", "expires_at", "marks")
_PLAN: Final = PublicCall("plan_redrive", (
    "actions", "idempotent", "changed", "include", "history", "retention",
    "canaries", "wave", "stop_above", "deadline", "rate", "parallelism",
))  # fmt: skip
_RUN: Final = PublicCall("run_redrive", ("ledger", "confirm"))


@dataclass(frozen=True, repr=False, eq=False)
class RedrivePlan(HasFrame):
    """The entries of a redrive with their actions; made by `plan_redrive`, run by `run_redrive`.

    A plan contains exact ids, never a filter: entries that fail after the plan was made are not touched.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row per failure, ordered by expiry as they are redriven: `dlq_id`, `group`, `title`, `class`,
        `workflow_url`, `action` (str: resume, restart, failure function, delete or leave), `reason` (str),
        `expires_at`, and the entry as it was when the plan was made: `workflow_run_id`, `created_at`,
        `response_status`, `failure_function_state`, and `marks` (str, for example "masked body"; missing if
        it has none).
    source : str
        Hash of the failures that the plan was made from.
    limits : Limits
        `canaries`, `wave`, `stop_above`, `deadline` (seconds), `rate`, `parallelism`.
    options : dict
        The other arguments of `plan_redrive`.
    learned : dict
        Rules that grouping had learned, so that a new failure is compared by the same rules.
    format : str
        Format of the file. A plan of an older format, which `read_redrive_status` reads from a ledger, cannot
        be run.

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
    format: str = FORMAT

    def __post_init__(self) -> None:
        instance("limits", self.limits, Limits, "limits of a redrive")
        object.__setattr__(self, "options", checked_options(self.options))
        object.__setattr__(self, "learned", checked_learned(self.learned))

    @cached_property
    def hash(self) -> str:
        """Return the SHA-256 of everything that a preview shows or that decides about a run, in hex."""
        return self._digest()

    def _digest(self) -> str:
        if self.format == OLDER:
            names = [name for name in COLUMNS if name not in _NOT_IN_OLDER_HASH]
            return sha256(
                msgspec.json.encode([OLDER, self.limits, _texts(self.acted[names])])
            ).hexdigest()

        rows = _texts(self.frame)
        parts = [FORMAT, self.source, self.limits, self.options, self.learned, rows]
        return sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()

    def checked(self, doing: str) -> Self:
        """Return the plan; raise `InputError` if the rows do not follow from the options, or were edited."""
        if self.format != FORMAT:
            raise InputError(
                doing, got=f"a plan of format {self.format}", expected=FORMAT,
                next_step="Make it again with plan_redrive. Pass the ledger as history=.",
            )  # fmt: skip

        options = self.options
        choices = Choices(
            options["actions"],
            idempotent=frozenset(options["idempotent"]),
            changed=frozenset(options["changed"]),
            included=frozenset(options["include"]),
        )

        actions, reasons = choices.decided(self.frame)
        for column, derived in (("action", actions), ("reason", reasons)):
            stated = self.frame[column].tolist()
            for dlq_id, one, other in zip(
                self.frame["dlq_id"], stated, derived, strict=True
            ):
                if one != other:
                    raise InputError(
                        doing, got=f"the {column} {one!r} for {dlq_id!r}"[:_LONGEST],
                        expected=f"{other!r}, by the entry and the options of the plan",
                        next_step="Make the plan again with plan_redrive.",
                    )  # fmt: skip

        if self._digest() != self.hash:
            raise edited(doing)

        return self

    @property
    def confirmation(self) -> str:
        """Return the code that `run_redrive` expects: the number of entries, and the start of the hash.

        For example ``9120-1a2b3c4d5e6f7081``. With 64 bits of the hash, nobody finds another plan that has
        the same code.
        """
        return f"{len(self.acted)}-{self.hash[:_CODE_DIGITS]}"

    def is_short_confirmation(self, code: str) -> bool:
        """Return whether a code is the one that earlier versions showed for this plan, with 8 digits."""
        return code == f"{len(self.acted)}-{self.hash[:_EARLIER_CODE_DIGITS]}"

    @property
    def acted(self) -> pd.DataFrame:
        """Return the rows of `frame` with an action other than "leave"."""
        return self.frame[self.frame["action"] != LEAVE]

    @property
    def groups(self) -> pd.DataFrame:
        """Return one row per group, workflow and action, as the preview shows them.

        `group`, `title`, `class`, `workflow_url`, `action`, `reason` (str), `count` (Int64),
        `first_expiry` (datetime64[ms, UTC]) and `advice` (str: the recommendation for the class, as the
        failure report shows it).
        """
        keys = ["group", "title", "class", "workflow_url", "action", "reason"]
        expiries = self.frame.groupby(keys, sort=False, dropna=False)["expires_at"].agg(
            ["size", "min"]
        )
        table = expiries.reset_index().rename(
            columns={"size": "count", "min": "first_expiry"}
        )
        advice = [recommended(failure_class).advice for failure_class in table["class"]]

        return table.astype({"count": "Int64"}).assign(
            advice=pd.Series(advice, index=table.index, dtype="str")
        )

    @property
    def verdict(self) -> str:
        """Return one sentence, for example "12 failures: resume 9, leave 3; confirm='9-1a2b…'"."""
        actions = self.acted["action"].value_counts().sort_index()
        parts = [f"{action} {count:,}" for action, count in actions.items()]
        if not parts:
            parts = ["nothing to do"]
        left = len(self.frame) - len(self.acted)
        if left:
            parts.append(f"leave {left:,}")
        return f"{counted(len(self.frame), 'failure')}: {', '.join(parts)}; confirm={self.confirmation!r}"

    def __repr__(self) -> str:
        columns = ["title", "workflow_url", "action", "count", "reason"]
        if self.frame.empty:
            return self._headline()

        groups = self.groups.head(ROWS_SHOWN)
        advice = [
            f"{row['class']}: {row['advice']}"
            for row in groups.drop_duplicates("class")[["class", "advice"]].to_dict(
                "records"
            )
        ]

        return visible(
            "\n".join(
                [self._headline(), groups[columns].to_string(index=False), *advice]
            )
        )

    def _repr_html_(self) -> str:
        return frame_table(
            self._headline(), self.groups.drop(columns="group").head(ROWS_SHOWN)
        )

    def _headline(self) -> str:
        return headline(self.verdict, len(self.groups))

    def diff(self, other: RedrivePlan) -> pd.DataFrame:
        """Return the entries with another action in another plan.

        Parameters
        ----------
        other : RedrivePlan

        Returns
        -------
        pandas.DataFrame
            One row per entry with different actions: `dlq_id`, `before`, `after` (str; missing if the plan
            does not have the entry).
        """
        instance("other", other, RedrivePlan, "a plan")
        before, after = (
            plan.frame.set_index("dlq_id")["action"] for plan in (self, other)
        )
        table = (
            pd.DataFrame({"before": before, "after": after})
            .rename_axis("dlq_id")
            .reset_index()
        )
        different = table["before"].fillna("") != table["after"].fillna("")

        return pd.DataFrame(table[different]).reset_index(drop=True).astype("str")

    def to_code(
        self,
        ledger: str | os.PathLike[str] = "redrive.sqlite",
        *,
        failures: str = "failures",
        service: str = "service",
    ) -> Code:
        """Return Python code that makes this plan again and runs it.

        Parameters
        ----------
        ledger : str or path
            The file that the run writes.
        failures : str
            The name of the frame that has the failures: a Python identifier.
        service : str
            The name of the service that runs the plan: a Python identifier.

        Returns
        -------
        str
            The code selects up to 50 failures by their exact ids. If the plan has more, it uses the whole
            frame of that name. If the frame has other failures by then, the plan is another one, and
            ``confirm=`` refuses it.
        """
        ids = self.frame["dlq_id"].tolist()
        file, frame = str(file_path("ledger", ledger)), variable(failures)
        limits = msgspec.structs.asdict(self.limits) | {
            "deadline": duration_text(self.limits.deadline)
        }
        options = {
            name: value
            for name, value in (self.options | limits).items()
            if value not in (None, [])
        }
        chosen = frame

        if len(ids) <= _IDS_SHOWN:
            chosen = fill(
                "{frame}[{frame}['dlq_id'].isin({ids})]", frame=frame, ids=ids
            )

        plan = _PLAN.write_lines(chosen, **options)
        run = _RUN.write(
            variable(service),
            variable("plan"),
            ledger=file,
            confirm=self.confirmation,
        )
        return joined([fill("plan = {plan}", plan=plan), run])

    def to_json(self) -> bytes:
        """Return the plan as JSON, as `save` writes it."""
        saved = {
            "format": self.checked("saving a plan").format, "hash": self.hash, "source": self.source,
            "limits": self.limits, "options": self.options, "learned": self.learned,
            "entries": entries_of(self.frame),
        }  # fmt: skip
        return msgspec.json.format(msgspec.json.encode(saved, order="sorted"))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the plan to a file (JSON), to be read, compared, reviewed and run later.

        Parameters
        ----------
        path : str or path
            If the file exists, it is replaced. Only this user can read it.

        Returns
        -------
        Path

        Raises
        ------
        InputError
            If the file cannot be written.
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
            If the file cannot be read, is not a plan, is of an older format, or was edited.
        """
        try:
            content = read_file(file_path("path", path))
        except OSError as error:
            raise InputError(
                f"reading the plan {path}",
                got=str(error.strerror or error),
                expected="a file",
            ) from None

        return cls.from_json(content, str(path))

    @classmethod
    def from_json(cls, content: bytes, name: str, *, older: bool = False) -> Self:
        """Return the plan that `to_json` wrote; errors show `name`, and `older` also accepts format 1."""
        doing = f"reading the plan {name}"
        parts = read_parts(content, doing, older=older)
        with unreadable(doing):
            plan = cls(
                parts.frame,
                parts.source,
                parts.limits,
                parts.options,
                parts.learned,
                parts.format,
            )
            is_edited = plan.hash != parts.hash

        if is_edited:
            raise edited(doing)
        if parts.format == OLDER:
            return plan

        return plan.checked(doing)


def edited(doing: str) -> InputError:
    """Return the error for a plan that was changed after it was made."""
    return InputError(
        doing,
        got="a plan that was edited",
        expected=f"a plan as plan.save() wrote it ({FORMAT})",
        next_step="Make it again with plan_redrive.",
    )


def duration_text(seconds: float) -> str:
    """Return a duration as `plan_redrive` reads it.

    >>> duration_text(600.0), duration_text(604_800), duration_text(0.25)
    ('600s', '7d', '0.25s')
    """
    days, rest = divmod(seconds, 86_400)
    if days and not rest:
        return f"{days:.0f}d"

    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


def _texts(frame: pd.DataFrame) -> list[tuple[str | None, ...]]:
    """Return the rows of a plan with all values as strings, as the hash covers them."""
    columns = []
    # by columns: to ask pandas about each value takes most of the time of a large plan
    for name in frame.columns:
        is_missing = frame[name].isna().tolist()
        texts = map(str, frame[name])
        columns.append(
            [
                None if missing else text
                for text, missing in zip(texts, is_missing, strict=True)
            ]
        )
    return list(zip(*columns, strict=True))
