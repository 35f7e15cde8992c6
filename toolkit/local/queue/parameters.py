"""Query parameters of listings: read strictly, with refusals that name the parameter."""

from __future__ import annotations

import re
from typing import Final

from starlette.requests import Request

from toolkit.local.answers import Refusal, parse_json, read_body
from toolkit.local.queue.dlq import Conditions

MAX_COUNT: Final = 100
_HIGHEST: Final = 2**63 - 1
_LOOKS_LIKE_SECONDS: Final = range(10**9, 10**10)
_SHOWN: Final = 80
_MOST_IDS: Final = 1000


def single(request: Request, name: str) -> str | None:
    """The value of a parameter that may come once; None when absent or empty."""
    given = request.query_params.getlist(name)
    if len(given) > 1:
        raise Refusal(400, f"{name} is given {len(given)} times; expected it once")
    return given[0] if given and given[0] else None


def several(request: Request, *names: str) -> tuple[str, ...]:
    """The values of a parameter that may be repeated, or hold several with commas, under any of its names."""
    given = (
        part.strip()
        for name in names
        for text in request.query_params.getlist(name)
        for part in text.split(",")
    )
    return tuple(dict.fromkeys(part for part in given if part))


def whole(request: Request, name: str, low: int, high: int) -> int | None:
    """A whole number within bounds."""
    text = single(request, name)
    if text is None:
        return None
    if not re.fullmatch(r"-?[0-9]{1,30}", text) or not low <= int(text) <= high:
        raise Refusal(
            400,
            f"{name} is out of range; got {text[:_SHOWN]!r}; expected a whole number from {low} to {high}",
        )
    return int(text)


def count(request: Request) -> int:
    """How many entries a page has at most."""
    return whole(request, "count", 1, MAX_COUNT) or MAX_COUNT


def moment(request: Request, name: str) -> int | None:
    """A moment in Unix milliseconds."""
    found = whole(request, name, 0, _HIGHEST)
    if found is not None and found in _LOOKS_LIKE_SECONDS:  # None would be searched for one by one
        raise Refusal(
            400, f"{name} looks like seconds; got {found}; expected Unix milliseconds, such as {found}000"
        )
    return found


def span(request: Request) -> tuple[int | None, int | None]:
    """The span from ``fromDate`` to ``toDate``, both inclusive."""
    since, until = moment(request, "fromDate"), moment(request, "toDate")
    if since is not None and until is not None and since > until:
        raise Refusal(
            400, f"fromDate is after toDate; got {since} and {until}; expected the earlier one first"
        )
    return since, until


async def dlq_conditions(request: Request, *, workflow: bool) -> Conditions:
    """What entries a request is about: the filters of the list, ``dlqIds`` in the query or the body."""
    since, until = span(request)
    return Conditions(
        workflow=workflow,
        since=since,
        until=until,
        workflow_created_at=moment(request, "workflowCreatedAt"),
        run_id=single(request, "workflowRunId"),
        workflow_url=several(request, "workflowUrl"),
        url=() if workflow else several(request, "url"),
        label=several(request, "label"),
        state=several(request, "failureFunctionState", "failureCallbackState"),
        caller_ip=several(request, "callerIp"),
        flow_key=several(request, "flowControlKey"),
        ids=(*several(request, "dlqIds"), *(await _ids_in_body(request) if request.method != "GET" else ())),
    )


async def _ids_in_body(request: Request) -> tuple[str, ...]:
    body = await read_body(request)
    given = parse_json(body) if body.strip() else {}
    ids = given.get("dlqIds", []) if isinstance(given, dict) else None
    if isinstance(ids, str):
        ids = [ids]
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        raise Refusal(
            400, "body is not understood; expected nothing, or an object with dlqIds, an array of text"
        )
    if len(ids) > _MOST_IDS:
        raise Refusal(400, f"dlqIds are too many; got {len(ids)}; expected at most {_MOST_IDS}")
    return tuple(ids)
