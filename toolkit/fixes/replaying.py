"""Send failed requests again to an application, and compare each response with the recorded one.

Nothing here calls the queue. A request goes to one named host: redirects are not followed, and the proxies of
the environment are not used.
"""

from __future__ import annotations

import base64
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit, urlunsplit

import pandas as pd
import urllib3

from toolkit.base.arguments import text, whole, wrong
from toolkit.base.errors import InputError
from toolkit.base.progress import ProgressBar, ProgressOption, checked_progress
from toolkit.base.times import Duration, parse_duration
from toolkit.drawing.result_tables import frame_table
from toolkit.drawing.wording import counted
from toolkit.failures.group_rules import GroupRules
from toolkit.failures.grouping import grouped
from toolkit.failures.selection import typed_rows
from toolkit.failures.signed_failures import GROUPED
from toolkit.fixes.failed_request import (
    FailedRequest,
    body_text,
    checked_secrets,
    request_of,
)
from toolkit.fixes.request_code import after_host
from toolkit.secrets.redaction import Redactor, Secret, visible
from toolkit.service.connections import Connections
from toolkit.service.settings import Service, is_loopback
from toolkit.service.signatures import sign_delivery, signing_keys
from toolkit.signatures.headlines import error_text
from toolkit.tables.arrow_input import FrameLike
from toolkit.tables.frames import checked_frame
from toolkit.tables.signed_rows import SIGNATURE

SUCCEEDED: Final = "succeeded"
SAME: Final = "same failure"
OTHER: Final = "another failure"
NO_ANSWER: Final = "no answer"

_DOING: Final = "replaying failures"
_MOST_READ: Final = 1 << 20  # bytes of a response that are read
_FIRST_ERROR_STATUS: Final = (
    300  # the service repeats every delivery without a status of 200 to 299
)
_TYPES: Final = {
    "dlq_id": "str", "workflow_url": "str", "group": "str", "title": "str", "sent_to": "str",
    "outcome": "str", "response_status": "Int64", "error": "str", "seconds": "float64",
    "response_body": "str",
}  # fmt: skip
_TIMEOUTS: Final = (urllib3.exceptions.TimeoutError, TimeoutError)
_SHOWN: Final = ["outcome", "title", "response_status", "error", "sent_to", "dlq_id"]


class _Answer(NamedTuple):
    """Response of the application: None as status if none arrived, and the reason as error."""

    status: int | None
    body: bytes
    problem: str | None
    seconds: float


@dataclass(frozen=True, eq=False, repr=False)
class Replays:
    """Responses to failed requests that were sent again; made by `replay_failure`.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row per request, in the order of the groups: `dlq_id`, `workflow_url`, `group`, `title` (str: of
        the recorded failure), `sent_to` (str: the address), `outcome` (str: succeeded, same failure, another
        failure, no answer), `response_status` (Int64), `error` (str: of the new response, or the reason why
        no response arrived), `seconds` (float64: until the response was complete), `response_body` (str: at
        most 1 MB; missing if it is not UTF-8).

    Examples
    --------
    >>> from toolkit import load_failures, replay_failure
    >>> failures = load_failures(service, limit=1)
    >>> replay_failure(failures, "http://127.0.0.1:9", progress=False).frame["outcome"].tolist()
    ['no answer']
    """

    frame: pd.DataFrame

    @property
    def verdict(self) -> str:
        """Return one sentence with the number of requests per outcome."""
        counts = Counter(self.frame["outcome"])
        outcomes = [f"{count:,} {outcome}" for outcome, count in counts.most_common()]
        sent = f"{counted(len(self.frame), 'request')} sent again"
        if not outcomes:
            return sent

        return f"{sent}: {', '.join(outcomes)}"

    def __repr__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        return frame_table(repr(self), self.frame[_SHOWN])


def replay_failure(
    failures: pd.Series[Any] | FrameLike,
    to: str,
    *,
    keys: Sequence[Secret | str] | Service | None = None,
    secrets: Mapping[str, str | None] | None = None,
    per_group: int | None = 1,
    confirm: str | None = None,
    signed_url: str | None = None,
    timeout: Duration = "30s",
    progress: ProgressOption = None,
) -> Replays:
    """Send failed requests to your application again, and report whether it fails in the same way.

    Use it to find an error with a debugger, or to check a fix before you redrive. The queue is not changed,
    but the application executes the request, for example charges a card: start it with test accounts. If a
    step of a workflow succeeds, the workflow SDK of the application publishes the next step: start the
    application with the ``QSTASH_URL`` of ``toolkit serve --drop-unknown-steps``.

    Parameters
    ----------
    failures : pandas.Series or frame
        A row, or any rows, of a frame from `load_failures` or `read_snapshot`.
    to : str
        Address of the application, for example ``"http://localhost:3000"``. If it has no path, the path of
        the original request is appended.
    keys : sequence of Secret or str, or Service, optional
        Signing keys of the application, the current one first, or a service that knows them. If omitted,
        requests are not signed.
    secrets : mapping of str to str or None, optional
        Values that were masked when the failures were loaded, by variable, see `FailedRequest.placeholders`;
        for example ``{"FILL_IN_AUTHORIZATION": "Bearer …"}``. None leaves the header out. Nothing is masked
        in failures that you load with ``reveal=True``.
    per_group : int or None, default 1
        Number of failures to send of each group of equal errors, the latest first; None for all.
    confirm : str, optional
        Host of `to`, if it is not this machine.
    signed_url : str, optional
        Address to sign, if the application verifies the public address of the workflow. Default: the address
        that the request is sent to.
    timeout : str or timedelta, default "30s"
        Time limit of each request.
    progress : bool or callable, optional
        See `load_failures`.

    Returns
    -------
    Replays
        `.frame` contains one row per request with the outcome.

    Raises
    ------
    InputError
        If `to` is another machine and `confirm` does not name the host, if a masked value is missing, or if
        a column is missing. Nothing is sent then.

    Examples
    --------
    >>> from toolkit import load_failures
    >>> failures = load_failures(service, limit=1)
    >>> replay_failure(failures, "https://shop.example", progress=False)
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: replaying failures: got the host 'shop.example' of another machine; ...
    """
    base = _application(to, confirm)
    limit = parse_duration(timeout, name="timeout").total_seconds()
    checked_progress(progress)
    # here and not where it is used, so that a wrong number is found before the failures are grouped
    if per_group is not None:
        per_group = whole("per_group", per_group)
    filled = checked_secrets(secrets)
    key = None if keys is None else signing_keys(keys)[0]
    if signed_url is not None:
        signed_url = text("signed_url", signed_url, empty=False)
    rows, rules = _rows(failures)
    chosen = _chosen(rows, per_group)
    requests = [
        _addressed(request_of(row).fill_in(filled), base) for row in _records(chosen)
    ]
    # as long as these live, every redactor masks them, for example in a response that repeats the token
    known_secrets = _own_secrets(filled, requests)

    sent: list[_Answer] = []
    with (
        urllib3.connection_from_url(
            f"{base.scheme}://{base.netloc}", retries=False
        ) as pool,
        ProgressBar(
            progress, title="Replaying", unit="request", total=len(requests)
        ) as bar,
    ):
        connections = Connections(pool, time.monotonic)
        for request in requests:
            connections.set_deadline(limit)
            headers = _signed_headers(request, key, signed_url or request.url)
            sent.append(_send(pool, request, headers, limit))
            bar.add(1)

    replays = Replays(_compared(chosen, rules, requests, sent))
    del known_secrets
    return replays


def _own_secrets(
    filled: Mapping[str, str | None], requests: Sequence[FailedRequest]
) -> list[Secret]:
    """Return values that were filled in, secret headers, and the words of both, for example a token."""
    redact = Redactor()
    values = list(filter(None, filled.values()))

    headers = chain.from_iterable(map(attrgetter("headers"), requests))
    for name, value in headers:
        masked = redact.header(name, value)
        if masked != value:
            values.append(value)

    words = " ".join(values).split()
    return list(map(Secret, dict.fromkeys([*values, *words])))


def _application(to: str, confirm: str | None) -> SplitResult:
    """Return the address of the application. Raise if it may not be called."""
    address = urlsplit(text("to", to, empty=False))
    host = address.hostname
    if address.scheme not in ("http", "https") or not host or "@" in address.netloc:
        raise wrong(
            "to",
            address.scheme,
            "an http or https address without a user, for example 'http://localhost:3000'",
        )

    if not is_loopback(host) and confirm != host:
        raise InputError(
            _DOING,
            got=f"the host {host!r} of another machine",
            expected="this machine, or the confirmation of the host",
            next_step=f"The application there executes the requests. To send them, pass confirm={host!r}, "
            f"or --confirm {host} on the command line.",
        )

    return address


def _rows(failures: Any) -> tuple[pd.DataFrame, GroupRules]:
    """Return the rows with the group and title of each, and the rules that were learned from all rows."""
    if isinstance(failures, pd.Series):
        failures = failures.to_frame().T.infer_objects()
    frame = checked_frame("failures", failures, *GROUPED, "headers", "body")
    groups, ids = grouped(frame)
    titles = groups.frame.set_index("group")["title"]

    rows = frame.assign(group=ids, title=titles.reindex(ids).to_numpy())
    return rows, groups.rules


def _chosen(rows: pd.DataFrame, per_group: int | None) -> pd.DataFrame:
    """Return the latest rows of each group, the largest group first."""
    sizes = rows.groupby("group")["dlq_id"].transform("size")
    ordered = rows.assign(size_=sizes).sort_values(
        ["size_", "group", "failed_at"], ascending=[False, True, False], kind="stable"
    )
    if per_group is None:
        return ordered

    return ordered.groupby("group", sort=False).head(per_group)


def _records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as dicts by column."""
    return [
        {str(name): value for name, value in row.items()}
        for row in rows.to_dict("records")
    ]


def _addressed(request: FailedRequest, base: SplitResult) -> FailedRequest:
    """Return the request with the address of the application in place of the original one."""
    path = urlunsplit(("", "", base.path, base.query, ""))
    if path in ("", "/"):
        path = after_host(request.url).partition("#")[0] or "/"
    return replace(request, url=f"{base.scheme}://{base.netloc}{path}")


def _signed_headers(
    request: FailedRequest, key: Secret | None, signed_url: str
) -> urllib3.HTTPHeaderDict:
    headers = urllib3.HTTPHeaderDict()
    for name, value in request.headers:
        headers.add(name, value)
    if key is not None:
        prefix = _prefix(request)
        headers[f"{prefix}-Signature"] = sign_delivery(
            request.body, url=signed_url, key=key
        )

    return headers


def _prefix(request: FailedRequest) -> str:
    """Return the prefix of the headers of the service: ``Upstash``, or ``Service`` in the other dialect."""
    names = " ".join(name.lower() for name, _ in request.headers)
    if "service-" in f" {names}":
        return "Service"

    return "Upstash"


def _send(
    pool: urllib3.HTTPConnectionPool,
    request: FailedRequest,
    headers: urllib3.HTTPHeaderDict,
    limit: float,
) -> _Answer:
    started = time.monotonic()
    try:
        response = pool.request(
            request.method,
            after_host(request.url),
            body=request.body,
            headers=headers,
            redirect=False,
            timeout=urllib3.Timeout(total=limit),
            preload_content=False,
        )
        try:
            body = response.read(_MOST_READ, decode_content=True)
        finally:
            # a response may be longer than the part that is read
            response.close()
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        return _Answer(None, b"", _problem(error), time.monotonic() - started)

    return _Answer(response.status, body, None, time.monotonic() - started)


def _problem(error: Exception) -> str:
    """Return the reason of an error, without the address, which could contain a secret."""
    causes = (error, error.__cause__, error.__context__)
    if any(isinstance(cause, _TIMEOUTS) for cause in causes):
        return "no response within the time limit"
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return "nothing accepts connections at this address"

    return f"the connection failed ({type(error).__name__})"


def _compared(
    chosen: pd.DataFrame,
    rules: GroupRules,
    requests: Sequence[FailedRequest],
    answers: Sequence[_Answer],
) -> pd.DataFrame:
    """Return one row per request, with the outcome by the group of the new response."""
    # both are grouped by their responses, because a stored signature is that of the recorded one
    recorded = chosen.drop(columns=SIGNATURE, errors="ignore")
    _, groups = grouped(recorded, rules)
    _, new_groups = grouped(_as_failures(recorded, answers), rules)
    redact = Redactor()
    rows = []
    pairs = zip(_records(chosen), requests, answers, groups, new_groups, strict=True)
    for row, request, answer, group, new_group in pairs:
        replayed = {
            "sent_to": redact.url(request.url),
            "outcome": _outcome(answer, is_same=new_group == group),
            "response_status": answer.status,
            "error": _error(answer, redact),
            "seconds": answer.seconds,
            "response_body": _kept_body(answer, redact),
        }
        rows.append(row | replayed)

    return typed_rows(rows, _TYPES)


def _as_failures(chosen: pd.DataFrame, answers: Sequence[_Answer]) -> pd.DataFrame:
    """Return the failures with the new responses in place of the recorded ones."""
    bodies = pd.Series(
        [answer.body for answer in answers], index=chosen.index, dtype="object"
    )
    texts = bodies.map(body_text).astype("str")
    encoded = bodies.map(base64.b64encode).map(bytes.decode).astype("str")

    return chosen.assign(
        response_status=pd.array([answer.status for answer in answers], dtype="Int64"),
        response_body=texts,
        response_body_base64=encoded.where(texts.isna()),
    )


def _has_succeeded(answer: _Answer) -> bool:
    status = answer.status or _FIRST_ERROR_STATUS
    return status < _FIRST_ERROR_STATUS


def _outcome(answer: _Answer, *, is_same: bool) -> str:
    if answer.status is None:
        return NO_ANSWER
    if _has_succeeded(answer):
        return SUCCEEDED
    if is_same:
        return SAME

    return OTHER


def _kept_body(answer: _Answer, redact: Redactor) -> str | None:
    """Return the exact body, but for the secrets that were filled in."""
    body = body_text(answer.body)
    return None if body is None else redact.own(body)


def _error(answer: _Answer, redact: Redactor) -> str | None:
    if answer.problem is not None or _has_succeeded(answer):
        return answer.problem

    body = body_text(answer.body) or ""
    return visible(redact.text(error_text(redact.text(body)).text))
