"""The run log as a frame: every workflow run the service remembers, failed or not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pandas as pd

from toolkit import arguments
from toolkit.loading.log_pages import Log, exact, open_log, span_filters
from toolkit.loading.options import ProgressOption
from toolkit.settings.service import Service
from toolkit.tables.lenient_rows import decode_runs
from toolkit.tables.schemas import RUNS
from toolkit.times import Time

STATES: Final = ("RUN_STARTED", "RUN_SUCCESS", "RUN_FAILED", "RUN_CANCELED")
_RUNS: Final = Log("runs", "workflow runs", decode_runs, RUNS, key=("workflow_run_id",))


def load_runs(
    service: Service,
    since: Time | None = None,
    *,
    until: Time | None = None,
    state: str | Iterable[str] = (),
    workflow_url: str | Iterable[str] = (),
    workflow_run_id: str | Iterable[str] = (),
    label: str | Iterable[str] = (),
    flow_control_key: str | Iterable[str] = (),
    caller_ip: str | Iterable[str] = (),
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
    workflow_url, workflow_run_id, label, flow_control_key, caller_ip : str or iterable of str
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
    wanted = {
        **span_filters(since, until),
        "state": [arguments.choice("state", item, STATES) for item in arguments.texts("state", state)],
        "workflowUrl": exact("workflow_url", workflow_url),
        "workflowRunId": exact("workflow_run_id", workflow_run_id),
        "label": exact("label", label),
        "flowControlKey": exact("flow_control_key", flow_control_key),
        "callerIp": exact("caller_ip", caller_ip),
    }
    return open_log(service, _RUNS, wanted, limit=limit, reveal=reveal, progress=progress).frame()
