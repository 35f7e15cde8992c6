"""A log of the service as a load: pages of runs or of events, followed by their cursor to the end."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa

from toolkit import arguments
from toolkit.client.failures import PAGE_LIMIT, list_log_page
from toolkit.client.pages import Page
from toolkit.client.transport import Transport
from toolkit.loading.load import Load, Plan, Work
from toolkit.loading.options import LoadOptions, ProgressBar, ProgressOption
from toolkit.loading.paging import walk
from toolkit.settings.service import Service, endpoint_of
from toolkit.times import Time, milliseconds, parse_time

_ASSUMPTION: Final = "a cursor keeps its position in the log while {} come and go"


@dataclass(frozen=True)
class Log:
    """A log: how it is listed and decoded, and what identifies a row."""

    name: Literal["runs", "events"]
    what: str
    decode: Callable[..., pa.Table]
    schema: pa.Schema
    key: tuple[str, ...]
    page_limit: int = PAGE_LIMIT


def open_log(
    service: Service,
    log: Log,
    wanted: Mapping[str, list[str]],
    *,
    limit: int | None,
    reveal: bool,
    progress: ProgressOption,
) -> Load:
    """A load of a log; `wanted` are the values of each filter, which the service compares."""
    endpoint = endpoint_of(service, "queue")
    how = LoadOptions(limit=limit, progress=progress)
    redactor = None if arguments.flag("reveal", reveal) else service.redactor
    count = log.page_limit if how.limit is None else min(how.limit, log.page_limit)
    filters = tuple((name, value) for name, values in wanted.items() for value in values)
    mask = service.redactor.text
    scope = {name: [mask(value) for value in values] for name, values in wanted.items() if values}

    def tables(work: Work) -> Generator[pa.Table]:
        with Transport.to(service, "queue") as transport:

            def fetch(cursor: str | None) -> Page:
                return list_log_page(transport, log.name, cursor=cursor, count=count, filters=filters)

            for page in walk(fetch, what=log.what):
                work.count(page)
                yield log.decode(page.rows, redactor=redactor)

    plan = Plan(
        what=log.name,
        source=service.redactor.url(endpoint.url),
        scope={"revealed": reveal, **scope},
        schema=log.schema,
        key=log.key,
        limit=how.limit,
        assumptions=(_ASSUMPTION.format(log.name),),
    )
    return Load(plan, tables, lambda: ProgressBar(progress, title=log.name, unit=log.name))


def span_filters(since: Time | None, until: Time | None) -> dict[str, list[str]]:
    """The filters of a span of time."""
    return {
        name: [] if time is None else [str(milliseconds(parse_time(time, name=argument)))]
        for name, argument, time in (("fromDate", "since", since), ("toDate", "until", until))
    }


def exact(name: str, values: str | Iterable[str]) -> list[str]:
    """Values that the service compares: none of them masked."""
    return [arguments.unmasked(name, value) for value in arguments.texts(name, values)]
