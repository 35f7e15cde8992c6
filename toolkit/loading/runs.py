"""The run log as a frame: every workflow run the service remembers, failed or not."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final

import pandas as pd
import pyarrow as pa

from toolkit import arguments
from toolkit.client.failures import PAGE_LIMIT, list_runs_page
from toolkit.client.pages import Page
from toolkit.client.transport import Transport
from toolkit.loading.load import Load, Plan, Work
from toolkit.loading.options import LoadOptions, ProgressBar, ProgressOption
from toolkit.loading.paging import walk
from toolkit.settings.service import Service, endpoint_of
from toolkit.tables.lenient_rows import decode_runs
from toolkit.tables.schemas import RUNS
from toolkit.times import Time, milliseconds, parse_time

STATES: Final = ("RUN_STARTED", "RUN_SUCCESS", "RUN_FAILED", "RUN_CANCELED")
_ASSUMPTIONS: Final = ("a cursor keeps its position in the log while runs come and go",)


def load_runs(
    service: Service,
    *,
    since: Time | None = None,
    until: Time | None = None,
    state: str | Iterable[str] = (),
    workflow_url: str | Iterable[str] = (),
    workflow_run_id: str | Iterable[str] = (),
    label: str | Iterable[str] = (),
    limit: int | None = None,
    reveal: bool = False,
    progress: ProgressOption = None,
) -> pd.DataFrame:
    """Load the run log: what ran, when, and how it ended.

    Parameters
    ----------
    service : Service
        From `connect`.
    since, until : time, optional
        Runs created from then on, and until then, as `load_failures` takes times.
    state : str or iterable of str
        RUN_STARTED, RUN_SUCCESS, RUN_FAILED, RUN_CANCELED: any of these.
    workflow_url, workflow_run_id, label : str or iterable of str
        Any of these. The service compares all filters.
    limit : int, optional
        At most this many, the newest first in practice.
    reveal : bool
        Leave URLs as received instead of masking secrets.
    progress : bool or callable, optional
        As in `load_failures`.

    Returns
    -------
    pandas.DataFrame
        One row a run, unique by ``workflow_run_id``: ``workflow_run_id``, ``workflow_url``, ``state``
        (RUN_STARTED, RUN_SUCCESS, RUN_FAILED, RUN_CANCELED, others as received), ``dlq_id`` (str),
        ``created_at``, ``completed_at`` (datetime64[ms, UTC], null while it runs), ``labels`` (list of str),
        ``extra`` (JSON text of everything else). The receipt is in ``attrs``.

    Raises
    ------
    IncompleteLoadError
        When the load ends early; ``.partial`` holds what was read.
    ServiceError
        When a request fails before anything was read.
    InputError
        For an argument that cannot be used; it names the argument.

    Examples
    --------
    >>> load_runs(service, limit=50)["state"].isin(["RUN_FAILED", "RUN_SUCCESS", "RUN_STARTED"]).all()
    np.True_
    """
    endpoint = endpoint_of(service, "queue")
    how = LoadOptions(limit=limit, progress=progress)
    arguments.flag("reveal", reveal)
    redactor = None if reveal else service.redactor
    count = PAGE_LIMIT if how.limit is None else min(how.limit, PAGE_LIMIT)
    wanted = {
        "fromDate": [] if since is None else [str(milliseconds(parse_time(since, name="since")))],
        "toDate": [] if until is None else [str(milliseconds(parse_time(until, name="until")))],
        "state": [arguments.choice("state", item, STATES) for item in arguments.texts("state", state)],
        "workflowUrl": _exact("workflow_url", workflow_url),
        "workflowRunId": _exact("workflow_run_id", workflow_run_id),
        "label": _exact("label", label),
    }
    filters = tuple((name, value) for name, values in wanted.items() for value in values)
    mask = service.redactor.text
    scope = {name: [mask(value) for value in values] for name, values in wanted.items() if values}

    def tables(work: Work) -> Generator[pa.Table]:
        with Transport.to(service, "queue") as transport:

            def fetch(cursor: str | None) -> Page:
                return list_runs_page(transport, cursor=cursor, count=count, filters=filters)

            for page in walk(fetch, what="workflow runs"):
                work.count(page)
                yield decode_runs(page.rows, redactor=redactor)

    plan = Plan(
        what="runs",
        source=service.redactor.url(endpoint.url),
        scope={"revealed": reveal, **scope},
        schema=RUNS,
        key=("workflow_run_id",),
        limit=how.limit,
        assumptions=_ASSUMPTIONS,
    )
    return Load(plan, tables, lambda: ProgressBar(progress, title="runs", unit="runs")).frame()


def _exact(name: str, values: str | Iterable[str]) -> list[str]:
    """Values that the service compares: none of them masked."""
    return [arguments.unmasked(name, value) for value in arguments.texts(name, values)]
