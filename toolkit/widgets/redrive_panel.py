"""Plan a redrive in a panel, preview and confirm it, and run it with a Stop button."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pandas as pd
import traitlets

from toolkit.base.arguments import file_path, instance
from toolkit.base.errors import InputError
from toolkit.base.python_code import Code, PublicCall, fill, joined, variable
from toolkit.base.times import parse_duration
from toolkit.base.visible_text import visible
from toolkit.failures.sources import AnyFrame
from toolkit.redrive.choices import ACTIONS, LEFT_OUT
from toolkit.redrive.ledger import Ledger
from toolkit.redrive.limits import Limits
from toolkit.redrive.plan import RedrivePlan, duration_text
from toolkit.redrive.planning import plan_redrive, planned_workflows
from toolkit.redrive.results import RedriveResult, read_redrive_status, waiting_of
from toolkit.redrive.running import run_redrive
from toolkit.secrets.redaction import Redactor
from toolkit.service.settings import Service
from toolkit.widgets.fields import CheckList, Dropdown, TextField
from toolkit.widgets.form_panel import FormPanel
from toolkit.widgets.page_panel import kit_module
from toolkit.widgets.page_parts import MESSAGE_LOCK, note, script, synced
from toolkit.widgets.panel import (
    Cancelled,
    CheckedValue,
    Job,
    JobProgress,
    has_loop,
    in_thread,
    masked_table,
)
from toolkit.widgets.redrive_steps import first_steps, meter_of, steps_of
from toolkit.widgets.short_names import short_names
from toolkit.widgets.shown_code import named_code

_PLAN: Final = PublicCall("plan_redrive", ())
_USUAL: Final = "resume, or restart where changed"
_PLANNED: Final = [
    "title",
    "workflow_url",
    "action",
    "count",
    "reason",
    "first_expiry",
    "advice",
]
_RUN: Final = ["title", "workflow_url", "action", "state", "count", "reason"]
_HEADINGS: Final = {
    "workflow_url": "workflow",
    "first_expiry": "first expiry",
}
_CHOSEN: Final = ("changed", "idempotent", "include")
_LIMITS: Final = {
    "canaries": "Canaries of each group",
    "wave": "Entries of a wave",
    "stop_above": "Stop a group above this share of failures",
    "deadline": "Deadline of a wave",
}
_SHOWN: Final = 100  # rows of a preview
_LONGEST: Final = 400  # characters of a cell: titles and advice are shown whole
_CODE_SHOWN: Final = 40  # characters of a wrong confirmation


class LimitField(TextField):
    """A limit of a plan as text, for example "10min" or "20 %", checked when it is entered."""

    def __init__(self, name: str, changed: Callable[[], object]) -> None:
        self._name = name
        super().__init__(_LIMITS[name], changed)

    def of(self, limits: Limits) -> Any:
        """Return the limit as `plan_redrive` accepts it."""
        value = getattr(limits, self._name)
        return duration_text(value) if self._name == "deadline" else value

    def _read(self, text: str) -> Any:
        if self._name == "deadline":
            seconds = parse_duration(text, name=self._name).total_seconds()
            Limits(deadline=seconds)
            return timedelta(seconds=seconds)

        number: float | str = text
        with suppress(ValueError):
            number = int(text) if self._name != "stop_above" else _share(text)
        given: dict[str, Any] = {self._name: number}

        # raises an `InputError` for other values
        return getattr(Limits(**given), self._name)


class PlannedValue(CheckedValue):
    """The plan of a panel. If it is still being made, reading it waits."""

    def get(self, obj: Any, cls: Any = None) -> Any:
        """Return the plan."""
        plan = super().get(obj, cls)
        if plan is None:
            plan = obj.take_first_plan()
        return plan


def _share(text: str) -> float:
    """Read a share, for example 0.2 or 20 %."""
    if text.endswith("%"):
        return float(text.removesuffix("%")) / 100
    return float(text)


class RedrivePanel(FormPanel):
    """Plan a redrive, look at it, confirm it, run it and stop it.

    Parameters
    ----------
    service : Service or None
        Service that runs the plan. If None, you can only plan.
    failures : pandas.DataFrame
        Failures as in `plan_redrive`.
    value : RedrivePlan, optional
        A plan that you made already. If omitted, `plan_redrive` makes one of the failures.
    ledger : str or path
        The file that `run_redrive` writes. If it contains an interrupted run, Run continues it.
    redactor : Redactor, optional
        If omitted, the redactor of the service.

    Attributes
    ----------
    value : RedrivePlan
        The plan that is shown, and run. Readable, settable, observable.
    result : RedriveResult or None
        The result of the last run, or the state of this plan in the ledger.
    ledger : pathlib.Path
        The file that a run writes, for `read_redrive_status` and `read_redrive_history`.

    Raises
    ------
    InputError
        If an argument has another type, or if `plan_redrive` does not accept the failures.

    Notes
    -----
    In a notebook, the panel appears at once and makes the plan on another thread. If you read `value` before,
    you wait for the plan.

    Preview plans again with the chosen options, and sends nothing. Run sends the shown plan if you entered
    the confirmation below it. You can use the kernel meanwhile. After Stop, nothing more is sent. Sent
    entries that have not ended are counted, and Run continues.

    Examples
    --------
    >>> failures = tk.load_failures(service, limit=20, progress=False)
    >>> panel = RedrivePanel(service, failures, ledger="redrive.sqlite")
    >>> panel.value.confirmation == tk.plan_redrive(failures).confirmation
    True
    """

    _esm = kit_module("redrive")
    _css = script("kit.css") + script("form.css") + script("redrive.css")
    steps = synced(traitlets.List())
    verdict = synced(traitlets.Unicode())
    groups = synced(traitlets.Unicode())
    meter = synced(traitlets.List())
    outcome = synced(traitlets.Unicode())
    value = PlannedValue(help="The plan that is shown, and run.")
    _value_type = RedrivePlan
    _stop = "Stop"

    def __init__(
        self,
        service: Service | None,
        failures: AnyFrame,
        *,
        value: RedrivePlan | None = None,
        ledger: str | os.PathLike[str] = "redrive.sqlite",
        redactor: Redactor | None = None,
    ) -> None:
        instance("service", service, Service, "a Service, or None", optional=True)
        instance("redactor", redactor, Redactor, "a Redactor", optional=True)
        self._service, self._failures = service, failures
        self.ledger = file_path("ledger", ledger)
        self.result: RedriveResult | None = None
        self._runs = False  # whether the running call sends entries
        self._in_waves = False  # whether it has sent more than canaries
        self._rows_code: tuple[Code, str] | None = None
        own = redactor or (service.redactor if service is not None else None)

        self._first_plan: Future[RedrivePlan] | None = None
        if value is None:
            urls = planned_workflows(failures)
            value = self._begin_plan()
        else:
            instance("value", value, RedrivePlan, "a RedrivePlan")
            urls = sorted(set(value.frame["workflow_url"].dropna()))

        super().__init__("Redrive", value=value, redactor=own)
        changed = partial(
            self.announce, "Press Preview to see the plan with these options."
        )
        self.action = self.add_field(
            "action", Dropdown("Action", changed, (_USUAL, *ACTIONS))
        )
        self.changed = self.add_field(
            "changed",
            CheckList(
                "Workflows whose earlier steps have changed", changed, offered=urls
            ),
        )
        self.idempotent = self.add_field(
            "idempotent",
            CheckList("Workflows that may be restarted", changed, offered=urls),
        )
        self.include = self.add_field(
            "include",
            CheckList(
                "Include failures excluded by default",
                changed,
                offered=LEFT_OUT,
                searches=False,
            ),
        )
        self.limits = {
            name: self.add_field(name, LimitField(name, changed)) for name in _LIMITS
        }
        self.confirm = TextField("Confirm")
        if service is not None:
            self.add_field("confirm", self.confirm)
        self._show_buttons()
        self._begin()

    def _begin_plan(self) -> RedrivePlan | None:
        """Return a plan of the failures, or None if the plan is made while a notebook shows the panel."""
        if not has_loop():
            return self._planned({})

        self._first_plan = in_thread(lambda: self._planned({}))
        return None

    def _begin(self) -> None:
        plan = self._first_plan
        if plan is None:
            super()._begin()
            return

        limits = Limits()
        with self._drawing():
            self.verdict = "The plan is being made …"
            self.steps = first_steps(limits, "being made")
            for field in self.limits.values():
                field.value = field.of(limits)
            self.observe(self._value_set, "value")

        self._start(lambda job, _: job.wait(plan.result), lambda _: self.value)

    def take_first_plan(self) -> RedrivePlan | None:
        """Wait for the plan that the panel makes at the beginning, and show it."""
        with MESSAGE_LOCK:
            plan = self._first_plan
            if plan is None:
                return None
            made = plan.result()
            self._job = None
            self.value = made

        return made

    def _is_planning(self) -> bool:
        return self._first_plan is not None and not self._first_plan.done()

    def _show_buttons(self) -> None:
        """Show the buttons. While a plan runs, the primary one is Stop, which is always safe."""
        if self._service is None:
            self.add_buttons({"Preview": self.preview}, main="Preview")
            return

        calls = {
            "Run": self._start_run,
            "Stop": self.cancel,
            "Preview": self.preview,
        }
        self.add_buttons(calls, main="Stop" if self._is_running() else "Run")

    def _idle_buttons(self) -> list[str]:
        # Stop is always at its place, so that it is found quickly
        return []

    def _is_running(self) -> bool:
        return self._job is not None and self._runs

    def preview(self) -> None:
        """Plan again with the chosen options on another thread, and show the plan. Nothing is sent."""
        for field in self.limits.values():
            if field.problem:
                self.announce_error(f"The plan is as before: {field.problem}")
                return

        action = self.action.value
        options: dict[str, Any] = {name: getattr(self, name).value for name in _CHOSEN}
        options |= {name: field.value for name, field in self.limits.items()}
        options["actions"] = None if action == _USUAL else action
        self._start(
            lambda _, __: self._planned(options), partial(setattr, self, "value")
        )

    def _start_run(self) -> None:
        """Run the shown plan if the confirmation was entered. Otherwise explain which one is expected."""
        # If a call is running, `_start` reports that.
        if self._job is not None:
            self._warn_running()
            return

        plan, entered = self.value, self.confirm.value
        if entered == plan.confirmation:
            self._runs = True
            super()._start_run()
            self._show_progress()
            return

        got = (
            f"{entered[:_CODE_SHOWN]!r} is not the confirmation of this plan"
            if entered
            else ""
        )
        expected = f"Enter {plan.confirmation} in the field Confirm, then press Run."
        self.announce_error(
            f"Nothing was sent: {got or 'the field Confirm is empty'}. {expected}"
        )

    def to_code(self) -> str:
        """Return Python that makes the plan again and runs it, with the toolkit imported as ``tk``.

        Returns
        -------
        str
            The code uses the variables of the frame and the service in the notebook, or ``failures`` and
            ``service``, with a comment. If a `FailurePanel` made the plan, the code first selects its rows.
        """
        if self._rows_code is None:
            return named_code(self._code_for, self._failures, "failures")

        rows_code, name = self._rows_code
        return joined([rows_code, self._code_for(variable(name))])

    def show_rows_code(self, rows_code: Code, name: str) -> None:
        """Begin the code with code that selects the failures, as a variable with this name.

        `FailurePanel` calls this: the notebook has no variable for the rows of its groups and searches.
        """
        self._rows_code = rows_code, name
        self._show_code()

    def _code_for(self, failures: Code) -> Code:
        """Return the code of the plan for the variable of the frame."""
        plan: RedrivePlan = self.value
        if self._service is None:
            # a plan that is only looked at
            return plan.to_code(self.ledger, failures=failures)

        # With another service of the notebook, the code would act on another queue.
        return named_code(
            lambda name: plan.to_code(self.ledger, failures=failures, service=name),
            self._service,
            "service",
        )

    def _checked(self, value: object) -> RedrivePlan | None:
        if value is None and self._first_plan is not None:
            return None

        if self._job is not None:
            # The running call acts on the plan that was confirmed, so the panel must not show another one.
            raise InputError(
                "changing a plan", got="a running call", expected="no running call"
            )

        checked: RedrivePlan = super()._checked(value)
        return checked

    def _planned(self, options: dict[str, Any]) -> RedrivePlan:
        """Return a plan. Failures that an earlier redrive of the ledger brought back are excluded."""
        history = self.ledger if self.ledger.exists() else None
        return plan_redrive(self._failures, history=history, **options)

    def _request(self) -> tuple[RedrivePlan | None, str]:
        if self._first_plan is not None:
            return None, ""
        return self.value, self.confirm.value

    def _call(self, job: Job, requested: tuple[RedrivePlan, str]) -> RedriveResult:
        plan, confirm = requested
        if self._service is None:
            raise InputError(
                "running a redrive",
                got="a panel without a service",
                expected="a service",
            )

        def progress(done: int, total: int | None) -> None:
            if job.due:
                with suppress(InputError):  # of the ledger: the run continues
                    job.progress.waits_for = self._waits_for(plan)

            with suppress(Cancelled):
                # `stop` ends the run, with everything that was sent in the ledger
                job.step(done, total)

        return run_redrive(
            self._service,
            plan,
            ledger=self.ledger,
            confirm=confirm,
            progress=progress,
            stop=job.stopping,
        )

    def _waits_for(self, plan: RedrivePlan) -> Callable[[], list[str]]:
        """Return a function that reads the ledger, and explains why the run waits and until when."""
        with closing(Ledger(self.ledger, make=False)) as ledger:
            waiting = waiting_of(plan, ledger)
        self._in_waves = waiting.in_waves
        return lambda: [
            self._redactor.text(part) for part in waiting.words(time.time())
        ]

    def _show_progress(self) -> None:
        """Show the buttons and the steps, which depend on whether the plan runs."""
        self._show_buttons()
        self._show_steps()

    def _show_steps(self) -> None:
        self.steps = steps_of(
            self.value,
            self.result,
            running=self._is_running(),
            in_waves=self._in_waves,
        )

    def _progressed(self, progress: JobProgress) -> None:
        super()._progressed(progress)
        # the first wave may have begun
        if self._is_running():
            self._show_steps()

    def _settle(self, result: RedriveResult) -> pd.DataFrame:
        self._runs = False
        self._show_result(result)
        self._kept.frame = result.frame
        self.announce(
            result.verdict
            if result.finished
            else f"Stopped: {result.counts}. Press Run to continue."
        )

        return result.frame

    def _failed(self, error: BaseException) -> None:
        self._runs = False
        super()._failed(error)
        if self._first_plan is None:
            self._show_known()
            self._show_progress()

    def _empty(self) -> pd.DataFrame:
        frame: pd.DataFrame = self.value.frame
        return frame

    def _show(self, value: RedrivePlan) -> None:
        self._first_plan = None
        self.announce("")
        # the confirmation stands at the field in which it is entered
        verdict, _, _ = value.verdict.partition("; confirm=")
        self.verdict = self._redactor.text(verdict)
        self.groups = self._table(value.groups, _PLANNED)
        for field in self.limits.values():
            field.value = field.of(value.limits)
        self.confirm.value, self.confirm.hint = "", value.confirmation
        enter = f"To run it, enter {value.confirmation}."
        self.confirm.remark = "Nothing to do." if value.acted.empty else enter
        self.outcome, self.meter, self.result = "", [], None
        self._in_waves = False
        self._show_known()
        self._show_progress()
        self._show_code()

    def _show_known(self) -> None:
        """Show the state of this plan in the ledger, if the ledger exists."""
        with suppress(InputError):
            self._show_result(read_redrive_status(self.ledger, self.value.hash))

    def _show_result(self, result: RedriveResult) -> None:
        self.result = result
        self.meter = meter_of(result)
        # the verdict also has the last error, and the deadline of open runs
        verdict = note(self._redactor.text(result.verdict))
        self.outcome = verdict + self._table(result.groups, _RUN)
        self._show_progress()

    def _table(self, groups: pd.DataFrame, columns: list[str]) -> str:
        """Return groups as a masked table, with the workflows as the short names that tell them apart."""
        if groups.empty:
            return ""

        shown = groups[columns].head(_SHOWN)
        urls = shown["workflow_url"].dropna().unique().tolist()
        names = dict(zip(urls, short_names(urls), strict=True))
        workflow = shown["workflow_url"].map(names)
        shown = shown.assign(workflow_url=workflow).rename(columns=_HEADINGS)
        table = masked_table(shown, self._redactor, longest=_LONGEST)
        more = ""
        if len(groups) > _SHOWN:
            more = note(f"{len(groups) - _SHOWN:,} more groups")
        return f"{table}{more}"

    def _static_code(self) -> str:
        if not self._is_planning():
            return self.to_code()

        return named_code(
            lambda name: fill("plan = {call}", call=_PLAN.write(name)),
            self._failures,
            "failures",
        )

    def _static(self) -> tuple[pd.DataFrame, str]:
        if self._is_planning():
            frame = self._failures
            if not isinstance(frame, pd.DataFrame):
                frame = pd.DataFrame()
            return frame, "The plan was not made yet when this page was stored."

        return self.value.groups.drop(columns="group"), self.value.verdict

    def __repr__(self) -> str:
        if self._is_planning():
            return "RedrivePanel(the plan is being made)"
        return visible(f"RedrivePanel({self._redactor.text(self.value.verdict)})")
