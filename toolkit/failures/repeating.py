"""Find entities that fail again and again, and failure functions that failed, hang or were never set."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.base.arguments import whole
from toolkit.base.times import parse_duration
from toolkit.failures.attribute_values import labels_of
from toolkit.failures.counts import SHORT_STATES
from toolkit.failures.occasions import Occasions
from toolkit.failures.partial_results import Counts
from toolkit.failures.selection import (
    in_milliseconds,
    opened,
    select_timed,
    told_until,
    typed_frame,
    when_counted,
)
from toolkit.failures.signed_failures import with_labels
from toolkit.failures.sources import AnyFrame, reduce_together
from toolkit.secrets.redaction import Redactor

_KINDS: Final = {
    "run": "workflow_run_id",
    "destination": "url",
    "caller": "caller_ip",
    "flow control key": "flow_control_key",
    "label": "label",
}
_ENTITY: Final = re.compile(
    r"(?i)(?:^|[_\-])(?:id|ids?|email|customer|tenant|user|account|order|org|shop|device|sku)$|[a-z]Id$"
)
_ALL_KINDS: Final = [*_KINDS, "entity"]
_DOING: Final = "finding repeat offenders"
# the start of the query or fragment of an address
_BEHIND_PATH: Final = re.compile(r"[?#]")


@dataclass(frozen=True)
class RepeatTuning:
    """Constants of repeat offenders, with their reasons."""

    longest_body: int = 100_000
    """Characters of a body that is searched for ids. Larger bodies are files, and decoding them is slow."""
    entities: int = 20
    """Ids that are read from one body, so that a list of a thousand customers does not fill the table."""
    longest_value: int = 200
    """Characters of a value that is shown and compared. Ids are shorter."""
    apart: timedelta = timedelta(hours=1)
    """Failures that are closer than this are one occasion, for example the retries of one outage."""


_TUNING: Final = RepeatTuning()
_ENDED: Final = {
    state: words
    for state, words in SHORT_STATES.items()
    if state != "CALLBACK_INPROGRESS"
}
_TIME: Final = "datetime64[ms, UTC]"
_FUNCTION: Final = (
    "failed",
    "hanging",
    "running",
    "canceled",
    "succeeded",
    "no state",
    "never set",
    "other",
)


def repeat_offenders(
    failures: AnyFrame, *, least: int = 3, top: int = 20
) -> pd.DataFrame:
    """Find repeat offenders: runs, destinations, callers, keys, labels and entities that fail repeatedly.

    Destinations are addresses without query and fragment; each of the `labels` of a failure counts. Entities
    are values of fields of JSON bodies, for example ``customer_id``. Offenders are ranked by occasions: a
    burst of retries is one occasion. This is not proof of a fault: a busy destination fails more often than
    an idle one, see `lift`.

    Parameters
    ----------
    failures : frame
        With the columns `workflow_run_id`, `url`, `caller_ip`, `flow_control_key`, `label`, `body`,
        `failed_at`, `created_at`, and `labels` if the frame has them.
    least : int
        The least number of failures of an offender, at least 1. It also failed on two occasions or more.
    top : int
        The number of offenders of each kind, at least 1.

    Returns
    -------
    pandas.DataFrame
        `kind` (str: run, destination, caller, flow control key, label, entity), `value` (str, masked; of an
        entity ``field=value``), `count`, `occasions` (Int64; failures more than an hour apart), `share`
        (float64, of all failures), `lift` (float64, relative to the mean of the kind or field),
        `first_at`, `last_at` (datetime64[ms, UTC]). By kind in that order, then the most occasions and
        failures first.

    Raises
    ------
    InputError
        When a column is missing, or `least` or `top` is below 1.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-01-01", "2026-01-02", "2026-01-03"] * 2, utc=True)
    >>> names = ["workflow_run_id", "url", "caller_ip", "flow_control_key", "label"]
    >>> frame = pd.DataFrame({"failed_at": times, "created_at": times} | dict.fromkeys(names))
    >>> frame["body"] = [f'{{"customer_id": {customer}}}' for customer in (7, 7, 7, 1, 2, 3)]
    >>> repeat_offenders(frame)[["kind", "value", "count", "occasions"]]
         kind          value  count  occasions
    0  entity  customer_id=7      3          3
    """
    least, top = whole("least", least), whole("top", top)
    columns = with_labels(
        [*_KINDS.values(), "body"], opened(failures, doing=_DOING).names
    )
    rows = select_timed(failures, columns, doing=_DOING)
    wanted = Occasions(_TUNING.apart, least, top)
    found, total = reduce_together(
        [(rows.then(_values), wanted), (rows, Counts(()))],
    )
    offenders = found.to_pandas()
    is_sum = offenders["value"].isna()
    sums = offenders[is_sum]
    offenders = offenders[~is_sum]
    keys = zip(sums["kind"], sums["field"], strict=True)
    means = dict(zip(keys, sums["count"] / sums["occasions"], strict=True))
    usual = [
        means[key] for key in zip(offenders["kind"], offenders["field"], strict=True)
    ]
    clean = Redactor()
    kinds = [_ALL_KINDS[place] for place in offenders["kind"]]
    shown = [
        (clean.url if kind == "destination" else clean.text)(
            value[: _TUNING.longest_value]
        )
        for kind, value in zip(kinds, offenders["value"], strict=True)
    ]

    return typed_frame(
        kind=("str", kinds),
        value=("str", shown),
        count=("Int64", offenders["count"].array),
        occasions=("Int64", offenders["occasions"].array),
        share=(
            "float64",
            offenders["count"].array / max(total["count_"][0].as_py(), 1),
        ),
        lift=(
            "float64",
            (offenders["count"] / np.array(usual, dtype=np.float64)).array,
        ),
        first_at=(_TIME, pd.to_datetime(offenders["first"].array, unit="ms", utc=True)),
        last_at=(_TIME, pd.to_datetime(offenders["last"].array, unit="ms", utc=True)),
    )


def _values(table: pa.Table) -> pa.Table:
    """Return the values of a batch that can fail repeatedly: `kind`, `field`, `value`, and the time `at`."""
    when = in_milliseconds(table).to_numpy()
    times = pd.Series(when, dtype="float64")
    values = {
        kind: pd.Series(table[column].to_pylist(), dtype=object)
        for kind, column in _KINDS.items()
    }
    # with the query, each address with a token or an id would be a destination of its own
    values["destination"] = values["destination"].map(
        lambda url: url and _BEHIND_PATH.split(url, 1)[0]
    )
    values["label"] = labels_of(table, Redactor()).explode()
    parts = []
    for kind, column in values.items():
        present = column[column.notna() & (column != "")]
        parts.append(_part(kind, "", present, times.loc[present.index]))

    positions, fields, named = _entities(table["body"].to_pylist())
    parts.append(_part("entity", fields, named, times.iloc[positions]))
    return pa.concat_tables(parts)


def _part(kind: str, field: Any, values: Any, times: pd.Series[float]) -> pa.Table:
    """Return the values of one kind as rows."""
    fields = field
    if isinstance(field, str):
        fields = pa.repeat(field, len(times))
    return pa.table(
        {
            "kind": pa.repeat(pa.scalar(_ALL_KINDS.index(kind), pa.int8()), len(times)),
            "field": pa.array(fields, pa.string()),
            "value": pa.array(values, pa.large_string()),
            "at": pa.array(times, pa.int64(), from_pandas=True, safe=False),
        }
    )


def _entities(bodies: list[str | None]) -> tuple[list[int], list[str], list[str]]:
    """Return the fields of bodies that name an entity: their rows, names, and ``name=value``."""
    known: dict[str, list[tuple[str, str]]] = {}
    rows: list[int] = []
    entities: list[tuple[str, str]] = []
    for row, body in enumerate(bodies):
        if not body or len(body) > _TUNING.longest_body or body.lstrip()[:1] != "{":
            continue
        if body not in known:
            known[body] = list(dict.fromkeys(_fields(body)))[: _TUNING.entities]
        for entity in known[body]:
            entities.append(entity)
            rows.append(row)

    return (
        rows,
        [name for name, _ in entities],
        [f"{name}={value}" for name, value in entities],
    )


def _fields(body: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values of fields that name an entity, in an object and the objects in it."""
    try:
        members: dict[str, Any] = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return

    inner = [value for value in members.values() if isinstance(value, dict)]
    for name, value in chain.from_iterable(own.items() for own in (members, *inner)):
        if _ENTITY.search(name) and _is_entity(value):
            yield name[: _TUNING.longest_value], str(value)[: _TUNING.longest_value]


def _is_entity(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool) and value != ""


def failure_functions(
    failures: AnyFrame, *, hanging: str | timedelta = "1h", now: datetime | None = None
) -> pd.DataFrame:
    """Count the states of failure functions by workflow: failed, hanging, never set, and others.

    Parameters
    ----------
    failures : frame
        With the columns `workflow_url`, `failure_callback`, `failure_function_state`, `failed_at`,
        `created_at`.
    hanging : str or timedelta
        A function that is still in progress this long after the failure counts as hanging.
    now : datetime, optional
        When the failures were loaded; without a time zone, UTC. If omitted, the current time.

    Returns
    -------
    pandas.DataFrame
        One row per workflow, the most failed, hanging and never set functions first: `workflow_url` (str),
        `count`, then `failed`, `hanging`, `running`, `canceled`, `succeeded`, `no state` (a function is set,
        and has not run), `never set`, `other` (a state that this toolkit does not know) (Int64).

    Raises
    ------
    InputError
        If a column is missing, or an option cannot be read.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-01-01", "2026-01-01"], utc=True)
    >>> frame = pd.DataFrame({"workflow_url": ["u", "v"], "failure_callback": ["https://f.example/", None],
    ...     "failure_function_state": ["CALLBACK_INPROGRESS", None], "failed_at": times,
    ...     "created_at": times})
    >>> found = failure_functions(frame, now=datetime(2026, 1, 2))
    >>> found[["workflow_url", "hanging", "never set"]].values.tolist()
    [['u', 1, 0], ['v', 0, 1]]
    """
    span = parse_duration(hanging, name="hanging")
    # when their states were read
    end = pd.Timestamp(told_until(failures, when_counted(now)))
    names = ["workflow_url", "failure_callback", "failure_function_state"]
    rows = select_timed(failures, names, doing="counting failure functions")
    table = rows.then(partial(_with_lateness, end - span)).count(
        *names[::2], "is_set", "late"
    )
    frame = pd.DataFrame(
        {
            name: pd.Series(table[name].to_pylist(), dtype=object)
            for name in table.column_names
        }
    )
    state, late = frame["failure_function_state"].fillna(""), frame["late"].astype(bool)
    kind = np.select(
        [
            *(state == name for name in _ENDED),
            (state == "CALLBACK_INPROGRESS") & late,
            state == "CALLBACK_INPROGRESS",
            (state == "") & frame["is_set"].astype(bool),
            state == "",
        ],
        [*_ENDED.values(), "hanging", "running", "no state", "never set"],
        "other",
    )
    sizes = pd.DataFrame(
        {"url": frame["workflow_url"].fillna(""), "kind": kind, "n": frame["count_"]}
    )
    counted = sizes.pivot_table(
        index="url", columns="kind", values="n", aggfunc="sum", fill_value=0
    )
    counted = counted.reindex(columns=list(_FUNCTION), fill_value=0).rename_axis(
        columns=None
    )
    bad = -counted[["failed", "hanging", "never set"]].sum(axis=1)
    ordered = (
        counted.assign(count=counted.sum(axis=1), bad=bad)
        .rename_axis("workflow_url")
        .reset_index()
    )
    ordered = ordered.sort_values(["bad", "workflow_url"], ignore_index=True)
    types = {
        "workflow_url": "str",
        "count": "Int64",
        **dict.fromkeys(_FUNCTION, "Int64"),
    }

    return ordered[list(types)].astype(types)


def _with_lateness(limit: pd.Timestamp, table: pa.Table) -> pa.Table:
    """Add the columns `is_set` (whether a failure function is set) and `late` (failed before the limit)."""
    is_set = pc.not_equal(pc.fill_null(table["failure_callback"], ""), "")
    when = table["when_"].cast(pa.timestamp("us", "UTC"), safe=False)
    late = pc.fill_null(
        pc.less_equal(when, pa.scalar(limit.to_pydatetime(warn=False), when.type)),
        False,
    )

    return table.append_column("is_set", is_set).append_column("late", late)
