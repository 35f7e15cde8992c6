"""Start workflow runs at the workflow endpoint of an application."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from toolkit.base.arguments import (
    instance,
    mapping,
)
from toolkit.service.publish_headers import (
    content_of,
    header_name,
    header_value,
    web_address,
)
from toolkit.service.responses import (
    Request,
    read_body,
    text_field,
)
from toolkit.service.settings import Service
from toolkit.service.transport import Transport


def start_run(
    service: Service,
    url: str,
    body: Any = None,
    *,
    headers: Mapping[str, str] | None = None,
) -> str:
    """Start a workflow run at the workflow endpoint of an application.

    The request goes to the application, which asks the service for the first step. It contains the body and
    the headers only, never a token. If it may have arrived, it is not sent again, because that could start a
    second run.

    Parameters
    ----------
    service : Service
        The connection whose tokens and settings for masking apply to error messages.
    url : str
        The workflow endpoint, http or https, without user info and fragment.
    body : bytes, str or JSON-able, optional
        Payload of the run. Bytes and text are sent as they are, anything else as JSON.
    headers : mapping, optional
        Sent to the endpoint, for example an authorization that it expects.

    Returns
    -------
    str
        The id of the run.

    Raises
    ------
    InputError
        If the address or a header cannot be sent.
    ServiceError
        If the application does not respond as a workflow endpoint does.

    Examples
    --------
    >>> start_run(service, "http://user:pw@app.example/flow")
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: starting a workflow run: got a url with user info; expected an http(s) URL ...
    """
    doing = "starting a workflow run"
    instance(
        "service",
        service,
        Service,
        "a Service",
        "Begin with it: start_run(connect(), url).",
    )
    address = web_address("url", url, doing=doing)
    content, kind = content_of(body)
    sent = _headers_of_start(kind, headers)
    parts = urlsplit(address)
    base = f"{parts.scheme}://{parts.netloc}"
    request = Request(
        doing=doing,
        method="POST",
        path=address[len(base) :] or "/",
        headers=tuple(sent.items()),
        body=content,
        repeatable=False,
    )
    with Transport(base, redactor=service.redactor) as transport:
        response = transport.send(request)
    return text_field(
        request,
        "workflowRunId",
        read_body(request, response),
        required=True,
        next_step="Is this the address of a workflow endpoint?",
    )


def _headers_of_start(
    content_type: str | None, headers: Mapping[str, str] | None
) -> dict[str, str]:
    """Return the headers of a start. If you pass a content type, in any case, it replaces the usual one."""
    sent: dict[str, str] = {}
    if content_type:
        sent["Content-Type"] = content_type
    if headers is None:
        return sent

    for name, value in mapping("headers", headers).items():
        checked_name = header_name(name)
        for known in list(sent):
            if known.lower() == checked_name.lower():
                del sent[known]

        sent[checked_name] = header_value(name, value)

    return sent
