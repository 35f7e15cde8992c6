"""Choose failures with the mouse or the keyboard: a `FailureFilter` as fields of a panel."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, get_args

import pandas as pd
import traitlets

from toolkit.base.arguments import choice as checked_choice
from toolkit.base.arguments import wrong
from toolkit.base.errors import InputError
from toolkit.base.own_tokens import MASK
from toolkit.base.python_code import PublicCall
from toolkit.base.time_zones import time_zone
from toolkit.base.times import from_milliseconds, milliseconds
from toolkit.drawing.wording import counted
from toolkit.failures.over_time import failure_trend
from toolkit.filters.failure import FailureFilter
from toolkit.filters.failure_fields import FIELDS, FilterField
from toolkit.loading.failures import mistaken_values, open_failures
from toolkit.loading.options import LoadOptions
from toolkit.service.failures import Kind
from toolkit.service.settings import Service
from toolkit.tables.arrow_input import FrameLike, conversion
from toolkit.tables.frame_filters import (
    count_choices,
    count_values,
    match_failures,
    unknown_values,
)
from toolkit.tables.frames import checked_frame, pandas_frame, to_frame
from toolkit.tables.receipt import get_receipt, shortfall
from toolkit.tables.schemas import FAILURES
from toolkit.widgets.error_choices import ErrorChoices
from toolkit.widgets.failure_grouping import trend_state
from toolkit.widgets.fields import CheckList, TextField, TimeField
from toolkit.widgets.form_panel import RowsPanel
from toolkit.widgets.page_panel import kit_module
from toolkit.widgets.page_parts import is_count, synced
from toolkit.widgets.panel import RESULT, Call, Job, with_shortfall
from toolkit.widgets.shown_code import named_code

NEWEST: Final = 1_000
"""How many entries `look` reads to find the values in use."""

_LOAD: Final = PublicCall("load_failures", ("kind",))
_MASKED: Final = "A masked value: the service cannot find it. Load with reveal=True."
_NOT_SENT: Final = "Nothing was requested: first correct the fields marked above."
_CHANGED: Final = "The filter has changed; press Load to apply it."
_UNREAD: Final = "No failures are loaded yet: Count queries the service, Fill choices reads the newest ones."
_PRESETS: Final[dict[str, str | None]] = {
    "1 hour": "1h",
    "6 hours": "6h",
    "24 hours": "24h",
    "7 days": "7d",
    "30 days": "30d",
    "all": None,
}
_HINTS: Final = {
    "since": "7d, or 2026-01-31",
    "until": "1h, or 2026-01-31",
    "workflow_run_id": "wfr_…",
    "workflow_created_at": "2026-01-31T12:00:00.000Z",
}


class FailureFilterPanel(RowsPanel):
    """Choose failures: every part of a `FailureFilter`, and how many match.

    Parameters
    ----------
    source : Service, pandas.DataFrame, or a frame that hands over Arrow
        Source of the failures. A frame is filtered here, immediately. A service is queried when a button is
        pressed, never before.
    value : FailureFilter, optional
        Initial filter. Default: every failure.
    frame : pandas.DataFrame, optional
        With a service: failures loaded earlier, to fill the choices and count matches without requests.
    kind : {"workflows", "messages"}
        As in `load_failures`.
    key : str, optional
        Keeps value and result when the cell is run again in the same kernel.
    clock : callable, optional
        Ages such as ``7d`` are counted back from this time.
    tz : str or tzinfo, optional
        Time zone of shown times and of dates, for example ``"Europe/Berlin"``. If omitted, the environment
        variable ``TOOLKIT_TZ``, or UTC if it is not set. Filters and frames stay in UTC.

    Attributes
    ----------
    value : FailureFilter
        Readable, settable, observable.

    Raises
    ------
    InputError
        If the source or the value has another type.

    Notes
    -----
    In a frame, times are compared with ``created_at``. Values that were masked when a frame was loaded can
    match in that frame, but not in the service; the widget explains that.

    Examples
    --------
    >>> failures = tk.load_failures(service, limit=250)
    >>> chosen = FailureFilterPanel(failures)
    >>> chosen.value = tk.FailureFilter(failure_function_state="CALLBACK_FAIL")
    >>> chosen.frame()["failure_function_state"].unique().tolist()
    ['CALLBACK_FAIL']
    >>> print(chosen.to_code())
    tk.FailureFilter(failure_function_state=('CALLBACK_FAIL',))
    """

    _esm = kit_module("filter")
    trend = synced(traitlets.Dict())
    presets = synced(traitlets.List())
    _value_type = FailureFilter
    _noun = "failure"

    def __init__(
        self,
        source: Service | FrameLike,
        *,
        value: FailureFilter | None = None,
        frame: FrameLike | None = None,
        kind: Kind = "workflows",
        key: str | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        tz: str | tzinfo | None = None,
    ) -> None:
        if not isinstance(source, Service):
            if pandas_frame(source) is None:
                expected = "a Service or a frame of failures"
                raise wrong("source", source, expected, conversion(source))
            source = checked_frame("source", source, distinct=True)

        if frame is not None:
            frame = checked_frame("frame", frame, distinct=True)
        checked_choice("kind", kind, get_args(Kind))
        if not callable(clock):
            raise wrong("clock", clock, "a callable that returns the time")

        self._kind, self._clock, self._zone = kind, clock, time_zone(tz)
        self._requested: FailureFilter | None = None  # the filter of the last call
        self._errors = ErrorChoices(())
        self._mistaken: Sequence[
            str
        ] = ()  # likely mistakes of a filter that matched nothing
        given = FailureFilter() if value is None else value
        requests: dict[str, Call] = {
            "Count": lambda: self._start(self._counted, self._announce_count),
            "Fill choices": lambda: self._start(self._looked, self._learn),
        }
        super().__init__(
            "Failures to choose", source, frame, requests=requests, value=given, key=key
        )
        self.presets = list(_PRESETS)
        self.fields = {
            name: self.add_field(name, self._field(field))
            for name, field in FIELDS.items()
        }
        self.choices = {
            name: field
            for name, field in self.fields.items()
            if isinstance(field, CheckList)
        }
        self.since, self.until = self.fields["since"], self.fields["until"]
        self._fill()
        self._begin()

    def to_code(self) -> str:
        """Return Python that makes the filter again, with the toolkit imported as ``tk``.

        Returns
        -------
        str
            If the kind is not ``"workflows"``, the code is the call that loads with the filter, because the
            filter alone would load the default kind. It uses the variable of the service in the notebook, or
            ``service``, with a comment.
        """
        if self._service is None or self._kind == "workflows":
            return super().to_code()

        return named_code(
            lambda name: _LOAD.write(name, self.value.to_code(), kind=self._kind),
            self._service,
            "service",
        )

    def _field(self, field: FilterField) -> TextField | CheckList:
        """Return the field of the panel for a field of the filter."""
        if field.many:
            fits = re.compile(field.typed).fullmatch
            return CheckList(
                field.title,
                self._read,
                literal=lambda typed: bool(fits(typed)),
                offered=field.known,
            )

        hint = _HINTS.get(field.name, "")
        if field.kind != "time":
            return TextField(field.title, self._read, hint=hint)

        title, ages = field.title, None
        if self._zone.key != "UTC":
            title = f"{field.title} ({self._zone.key})"
        if field.compare != "=":
            ages = [age for age in _PRESETS.values() if age is not None]
        return TimeField(
            title,
            self._read,
            compare=field.compare,
            clock=self._clock,
            zone=self._zone,
            hint=hint,
            suggestions=ages,
        )

    def _read(self) -> None:
        """Make the value of the controls. If they contradict each other, explain it and keep the value."""
        parts: dict[str, Any] = {
            name: field.value or None for name, field in self.fields.items()
        }
        for name, choice in self.choices.items():
            status = FIELDS[name].kind == "status"
            parts[name] = tuple(map(int, choice.value) if status else choice.value)

        try:
            value = FailureFilter(**parts)
        except InputError as error:
            field = (
                self.until if "until" in str(error) else self.fields["workflow_run_id"]
            )
            field.problem = str(error)
            return

        self.until.problem = self.fields["workflow_run_id"].problem = None
        self._changed_to(value)
        self._reflect()

    def _process_other(self, content: dict[str, Any]) -> None:
        match content:
            case {"kind": "preset", "name": str(name)} if name in _PRESETS:
                self.choose_period(name)
            case {"kind": "range", "ends": []}:
                self._choose_times(None, None)
            case {"kind": "range", "ends": [since, until]} if is_count(
                since
            ) and is_count(until):
                self._choose_times(from_milliseconds(since), from_milliseconds(until))

    def choose_period(self, name: str) -> None:
        """Choose one of the periods that end now, for example ``"24 hours"``, or ``"all"``."""
        age, since = _PRESETS[name], None
        if age is not None:
            since = FailureFilter(since=age, now=self._clock()).since
        self._choose_times(since, None)

    def _choose_times(self, since: datetime | None, until: datetime | None) -> None:
        self.since.value, self.until.value = since, until
        self._read()

    def _show(self, value: FailureFilter) -> None:
        for name, field in self.fields.items():
            part = getattr(value, name)
            if name in self.choices:
                part = [str(item) for item in part]
            field.value = (
                part if part is not None or FIELDS[name].kind == "time" else ""
            )

        self._reflect()

    def _reflect(self) -> None:
        """Update the range on the histogram, the counts and the code."""
        value = self.value
        if self._kept.origin not in (None, value) and self._job is None:
            self.announce(
                f"The last result is {counted(len(self.frame()), 'failure')}. {_CHANGED}"
            )

        # A filter includes `until`, as the brush includes both ends, so the times need no conversion.
        ends = [
            None if end is None else milliseconds(end)
            for end in (value.since, value.until)
        ]
        self._update("trend", {"selection": [] if ends == [None, None] else ends})
        self._offer()
        self._show_counts()
        # plain messages belong to no workflow
        workflows = self.choices["workflow_url"]
        workflows.hidden = self._kind == "messages" and not workflows.value
        for choice in self.choices.values():
            masked = self._service is not None and any(map(MASK.search, choice.value))
            choice.problem = _MASKED if masked else None

    def matching(self) -> str:
        """Return how many of the failures known here match, as a sentence; no network is used."""
        if self._known is None:
            return _UNREAD

        try:
            matches = int(match_failures(self._known, self.value).sum())
        except InputError as error:
            return str(error)

        sentence = f"{matches:,} of {len(self._known):,} loaded failures match"
        unknown = (
            [] if matches else unknown_values(self._known, self.value, self._redactor)
        )
        counts = "; they have ".join([sentence, *unknown])
        return with_shortfall(counts, self._known)

    def _offer(self) -> None:
        """Count the values of each list among the failures that match all other controls."""
        if self._known is None:
            return

        try:
            # Each list is counted with all other controls, and not with the list itself. Otherwise, all
            # values but the chosen ones would have a count of 0.
            counts = count_choices(self._known, self.value, tuple(self.choices))
        except InputError:
            # the frame lacks a column of the filter: `matching` reports it
            counts = count_choices(self._known, FailureFilter(), tuple(self.choices))

        # an error line with a secret would be offered masked, and find nothing
        errors = self._errors.count(counts["error"])
        counts["error"] = [
            pair for pair in errors if self._redactor.text(pair[0]) == pair[0]
        ]
        for name, choice in self.choices.items():
            choice.offer(counts[name])

    def _fill(self) -> None:
        if self._known is not None:
            self._errors = ErrorChoices(
                line for line, _ in count_values(self._known, "error")
            )

        if (
            self._known is not None
            and "created_at" in self._known.columns
            and len(self._known)
        ):
            # on created_at, which is compared with the times of the filter
            trend = failure_trend(
                self._known[["created_at"]].assign(failed_at=self._known["created_at"]),
                tz=self._zone,
            )
            bars = {"kind": "other", "counts": trend.counts.sum(axis=0).tolist()}
            self._update("trend", trend_state(trend, self._zone, [bars]))

    def _start(
        self, call: Callable[[Job, Any], Any], then: Callable[[Any], Any]
    ) -> None:
        """Start a call, unless a field has a mistake: the earlier value would be used in silence."""
        fields = [
            field for field in self.fields.values() if not isinstance(field, CheckList)
        ]
        if call != self._looked and any(field.problem for field in fields):
            self.announce(_NOT_SENT, "problem")
        else:
            super()._start(call, then)

    def _matching(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame[match_failures(frame, self.value)]

    def _static(self) -> tuple[pd.DataFrame, str]:
        if self._known is None or self._kept.frame is not None:
            return super()._static()

        try:
            return self._matching(self._known), self.matching()
        except InputError:  # `matching` names the missing column
            return self._empty(), self.matching()

    def look(self) -> None:
        """Read the newest entries of the service, to fill the choices; blocks."""
        self._run_and_wait(self._looked, self._learn)

    def count(self) -> int:
        """Return how many failures of the service match: reads them all and keeps none; blocks."""
        return self._run_and_wait(self._counted, self._announce_count)

    def _call(self, job: Job, requested: FailureFilter) -> pd.DataFrame:
        if self._service is None:
            return self.frame()

        service, kind, self._requested = self._service, self._kind, requested
        frame = job.read(
            lambda options: open_failures(service, requested, options, kind=kind)
        )
        self._mistaken = (
            mistaken_values(service, requested, kind) if frame.empty else []
        )

        return frame

    def _counted(self, job: Job, requested: FailureFilter) -> int:
        if self._service is None:
            return len(self.frame())

        number = 0
        for table in open_failures(
            self._service, requested, LoadOptions(progress=False), kind=self._kind
        ):
            number += table.num_rows
            job.step(number)

        self._mistaken = (
            [] if number else mistaken_values(self._service, requested, self._kind)
        )
        return number

    def _announce_count(self, number: int) -> int:
        self.announce(
            self._with_mistakes(
                f"{counted(number, 'failure')} in the service with this filter"
            )
        )
        return number

    def _looked(self, job: Job, _: FailureFilter) -> pd.DataFrame:
        service, kind = self._service, self._kind
        if service is None:
            return self._empty() if self._known is None else self._known

        return job.read(
            lambda options: open_failures(service, kind=kind, options=options),
            limit=NEWEST,
        )

    def _learn(self, frame: pd.DataFrame) -> None:
        self._known = frame
        self._fill()
        self._reflect()
        self.announce(
            f"Choices are those of the newest {counted(len(frame), 'failure')}"
        )

    def _arrived(self, frame: pd.DataFrame) -> str:
        self._kept.origin = self._requested
        if self._tells_more(frame):
            self._learn(frame)

        self._show_first(frame)
        loaded = counted(len(frame), "failure")
        named = f" {RESULT}" if len(frame) else ""
        if "receipt" not in frame.attrs:
            return f"{loaded} chosen.{named}"
        if self._requested != self.value:
            return f"{loaded} for the filter that was loaded.{named} {_CHANGED}"

        return self._with_mistakes(
            f"{loaded} loaded.{named} {get_receipt(frame).verdict}"
        )

    def _tells_more(self, frame: pd.DataFrame) -> bool:
        """Return whether choices and counts of a result are better than those of the known failures.

        They are if all failures were requested: the known ones may be the newest, or rows read before an
        error. A result of a filter has only the values that it allows.
        """
        if self._known is None:
            # no rows would leave nothing to choose from
            return len(frame) > 0
        if self._service is None or self._requested != FailureFilter():
            return False
        return len(frame) >= len(self._known) or not shortfall(get_receipt(frame))

    def _with_mistakes(self, sentence: str) -> str:
        return (
            " ".join([f"{sentence}.", *self._mistaken]) if self._mistaken else sentence
        )

    def _empty(self) -> pd.DataFrame:
        return to_frame(FAILURES.empty_table())
