"""Read the request of a failed delivery from an entry of the DLQ, and find the secrets in it.

Everything that was masked when the failure was loaded, and everything in the body that looks like a secret,
is replaced by a `Placeholder` when the request is shown. For example, the header ``Authorization: [masked
len=42 tag=5d1c09ab]`` has the placeholder ``FILL_IN_AUTHORIZATION``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import msgspec
import pandas as pd

from toolkit.base.arguments import mapping, wrong
from toolkit.base.errors import InputError
from toolkit.base.missing_values import is_missing
from toolkit.base.own_tokens import MASK
from toolkit.drawing.result_tables import frame_table
from toolkit.drawing.wording import counted
from toolkit.fixes import request_code
from toolkit.fixes.placeholders import Placeholder, Variables, mask_body
from toolkit.fixes.request_code import ShownRequest
from toolkit.secrets.names import normalise_header
from toolkit.secrets.redaction import Redactor, visible
from toolkit.service.signatures import SIGNATURE_HEADERS
from toolkit.tables.arrow_input import FrameLike
from toolkit.tables.base64_bodies import base64_bytes
from toolkit.tables.frames import checked_frame

_DOING: Final = "reproducing a failure"
_COLUMNS: Final = ("dlq_id", "workflow_url", "headers", "body")

# of one connection, or computed by each client (RFC 9110, section 7.6.1)
_OF_THE_CONNECTION: Final = frozenset(
    {"connection", "content-length", "host", "keep-alive", "te", "trailer"}
    | {"transfer-encoding", "upgrade"}
)
_HEADER_MAP: Final = msgspec.json.Decoder(dict[str, list[str]])
# signs of a token (RFC 9110, section 5.6.2)
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# visible characters, spaces and tabs of Latin-1: no line break can add another header
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


@dataclass(frozen=True, eq=False, repr=False)
class FailedRequest:
    r"""The request of a failed delivery; made by `reproduce`.

    Attributes
    ----------
    dlq_id : str
        Id of the entry in the DLQ.
    method : str
        Method of the request, for example ``"POST"``.
    url : str
        Address of the destination. Values that were masked when the failure was loaded are masked.
    headers : tuple of (str, str)
        Headers of the delivery as pairs of name and value, in the order of the entry, without headers of the
        connection (for example ``Content-Length``) and without the signature, which has expired.
    body : bytes
        The exact body, base64 decoded.
    status : int or None
        Recorded status of the response.
    error : str or None
        Recorded error, as the column `error` shows it.
    left_out : tuple of str
        Names of headers that HTTP does not allow, for example with a line break in the value.

    Examples
    --------
    >>> failure = {"dlq_id": "dlq_1", "workflow_url": "https://shop.example/pay", "body": '{"order": 7}',
    ...            "headers": '{"Authorization": ["[masked len=9 tag=5d1c09ab]"]}'}
    >>> request = reproduce(pd.Series(failure))
    >>> request
    FailedRequest(POST https://shop.example/pay, 1 header, 12 bytes; to fill in: FILL_IN_AUTHORIZATION)
    >>> print(request.to_curl())
    curl --request POST --globoff --path-as-is --url https://shop.example/pay \
      --header 'Authorization: '"${FILL_IN_AUTHORIZATION:?}" \
      --header 'Content-Type:' \
      --data-raw '{"order": 7}'
    """

    dlq_id: str
    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    status: int | None = None
    error: str | None = None
    left_out: tuple[str, ...] = ()

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        """Return the values that code does not show, in the order of the request."""
        shown = self.shown
        everything = [shown.url, *(parts for _, parts in shown.headers), shown.body]
        found = [part for part in chain(*everything) if isinstance(part, Placeholder)]

        return tuple(dict.fromkeys(found))

    @property
    def shown(self) -> ShownRequest:
        """Return the request in parts that may be shown."""
        return self._divided()[0]

    def _divided(self) -> tuple[ShownRequest, dict[str, str]]:
        """Return the request in parts, and the variable of each mask."""
        redact, variables = Redactor(), Variables()
        headers = tuple(
            (name, variables.divide(redact.header(name, value), name, f"header {name}"))
            for name, value in self.headers
        )
        text = body_text(self.body)
        is_binary = text is None
        if text is None:
            text = self.body.decode("latin-1")
        shown = ShownRequest(
            dlq_id=self.dlq_id,
            method=self.method,
            url=variables.divide(redact.url(self.url), "url", "address"),
            headers=headers,
            body=variables.divide(mask_body(text, redact), "body", "body"),
            is_binary=is_binary,
            outcome=redact.text(self._outcome()),
        )

        return shown, variables.by_mask

    def fill_in(self, secrets: Mapping[str, str | None]) -> FailedRequest:
        """Return the request with values in place of masks.

        Only masks of the frame have to be filled in: a secret of the body that code does not show is part of
        `body`. If the value of a header is None, the header is left out.

        Parameters
        ----------
        secrets : mapping of str to str or None
            Values by variable, for example ``{"FILL_IN_AUTHORIZATION": "Bearer …"}``.

        Raises
        ------
        InputError
            If a value is missing. The error names the variables.

        Examples
        --------
        >>> failure = {"dlq_id": "dlq_1", "workflow_url": "https://shop.example/pay", "body": "{}",
        ...            "headers": '{"X-Key": ["[masked len=4 tag=5d1c09ab]"]}'}
        >>> reproduce(pd.Series(failure)).fill_in({"FILL_IN_X_KEY": "open"}).headers
        (('X-Key', 'open'),)
        """
        secrets = checked_secrets(secrets)
        variables = self._variables()

        missing = sorted(set(variables.values()) - secrets.keys())
        if missing:
            raise InputError(
                "filling in a request",
                got=f"no value for {', '.join(missing)}",
                expected="the values that were masked when the failure was loaded",
                next_step=f"Pass secrets={{{missing[0]!r}: …}}, or None to leave the header out.",
            )

        values = {mask: secrets[variable] for mask, variable in variables.items()}
        # Latin-1 has one character per byte, so that bodies that are not UTF-8 stay exact
        body = _filled(self.body.decode("latin-1"), values)
        filled = [(name, _filled(value, values)) for name, value in self.headers]

        return replace(
            self,
            url=_filled(self.url, values) or "",
            headers=tuple((name, value) for name, value in filled if value is not None),
            body=(body or "").encode("latin-1", "replace"),
        )

    def _variables(self) -> dict[str, str]:
        """Return the masks that the frame contains, each with the variable of the value."""
        raw = [self.url, *(value for _, value in self.headers)]
        raw.append(self.body.decode("latin-1"))
        contained = set(chain.from_iterable(map(MASK.findall, raw)))

        return {
            mask: variable
            for mask, variable in self._divided()[1].items()
            if mask in contained
        }

    def _outcome(self) -> str:
        """Return a sentence about the recorded response."""
        response = self.error or "no error message"
        if self.status is not None:
            response = f"status {self.status}, {response}"
        return visible(f"Delivery {self.dlq_id} failed: {response}")

    def to_curl(self) -> str:
        r"""Return a command for a POSIX shell that sends the request with curl.

        Fill in the variables before you run it: without them, the shell stops and names the first one.

        Examples
        --------
        >>> failure = {"dlq_id": "dlq_1", "workflow_url": "https://shop.example/pay", "body": "",
        ...            "headers": "{}"}
        >>> print(reproduce(pd.Series(failure)).to_curl())
        curl --request POST --globoff --path-as-is --url https://shop.example/pay \
          --header 'Content-Type:' \
          --data-raw ''
        """
        return request_code.curl_command(self.shown)

    def to_python(self) -> str:
        """Return a program that sends the request with requests, and prints the response.

        Examples
        --------
        >>> failure = {"dlq_id": "dlq_1", "workflow_url": "https://shop.example/pay", "body": "{}",
        ...            "headers": "{}"}
        >>> print(reproduce(pd.Series(failure)).to_python().splitlines()[0])
        import requests
        """
        return request_code.python_program(self.shown)

    def to_pytest(self) -> str:
        """Return a test file that sends the request to your application, and expects a success.

        The test sends to ``http://localhost:3000``, or to the address in the variable ``APPLICATION``, with
        the path of the original request. It fails until the application responds with a status below 300.

        Examples
        --------
        >>> failure = {"dlq_id": "dlq_1", "workflow_url": "https://shop.example/pay", "body": "{}",
        ...            "headers": "{}"}
        >>> "def test_" in reproduce(pd.Series(failure)).to_pytest()
        True
        """
        return request_code.pytest_file(self.shown)

    def __repr__(self) -> str:
        url = visible(Redactor().url(self.url))
        headers = counted(len(self.headers), "header")
        described = f"{visible(self.method)} {url}, {headers}, {len(self.body):,} bytes"
        variables = [placeholder.variable for placeholder in self.placeholders]
        if variables:
            described += f"; to fill in: {', '.join(variables)}"
        return f"FailedRequest({described})"

    def _repr_html_(self) -> str:
        redact = Redactor()
        rows = [
            (name, redact.displayed_header(name, value)) for name, value in self.headers
        ]
        table = pd.DataFrame(rows, columns=["header", "value"], dtype="str")

        return frame_table(repr(self), table)


def reproduce(failure: pd.Series[Any] | FrameLike) -> FailedRequest:
    """Return the exact request of a failed delivery, to run it again or to write a test.

    Nothing is sent. To send the request to an application on this machine, use `replay_failure`.

    Parameters
    ----------
    failure : pandas.Series or frame
        One row of a frame from `load_failures` or `read_snapshot`, or a frame with one row. Required:
        `dlq_id`, `workflow_url`, `headers` and `body`; used if present: `url`, `method`, `body_base64`,
        `response_status`, `error`.

    Returns
    -------
    FailedRequest
        Method, address, headers and body. `.to_curl()`, `.to_python()` and `.to_pytest()` return code with
        placeholders for secrets.

    Raises
    ------
    InputError
        If it is not exactly one row, a column is missing, the row has no address, or a status is no number.

    Examples
    --------
    >>> failure = {"dlq_id": "dlq_1", "workflow_url": "https://shop.example/pay", "body": "{}",
    ...            "headers": '{"Content-Type": ["application/json"]}'}
    >>> reproduce(pd.Series(failure)).headers
    (('Content-Type', 'application/json'),)
    """
    return request_of(_one_row(failure))


def checked_secrets(secrets: object) -> dict[str, str | None]:
    """Return the values of variables. Raise InputError if one is neither a str nor None."""
    if secrets is None:
        return {}

    given = mapping("secrets", secrets)
    for variable, value in given.items():
        if not isinstance(variable, str) or not isinstance(value, str | None):
            # the error does not show the value, which may be a token
            raise wrong("secrets", type(value).__name__, "a dict of str to str or None")

    return dict(given)


def request_of(row: dict[str, Any]) -> FailedRequest:
    """Return the request of a row, given as a dict of columns."""
    url = _text(row, "url") or _text(row, "workflow_url")
    if url.partition("://")[0].lower() not in ("http", "https"):
        raise InputError(
            _DOING,
            got=f"the address {url[:80]!r} of {_text(row, 'dlq_id')!r}",
            expected="an http or https address",
        )

    headers, left_out = _sendable_headers(_text(row, "headers"))
    return FailedRequest(
        dlq_id=_text(row, "dlq_id"),
        method=_method(_text(row, "method")),
        url=url,
        headers=headers,
        body=body_of(row, "body"),
        status=_status(row),
        error=_text(row, "error") or None,
        left_out=left_out,
    )


def body_of(row: dict[str, Any], column: str) -> bytes:
    """Return the bytes of a body: of the column, or of the column of base64 if the body is not UTF-8."""
    encoded = _text(row, f"{column}_base64")
    if encoded:
        decoded = base64_bytes(encoded)
        if decoded is not None:
            return decoded

    return _text(row, column).encode("utf-8", "surrogatepass")


def body_text(body: bytes) -> str | None:
    """Return the text of a body, or None if it is not UTF-8 or contains a null character."""
    if b"\0" in body:
        return None

    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _one_row(failure: Any) -> dict[str, Any]:
    if isinstance(failure, pd.Series):
        failure = failure.to_frame().T
    frame = checked_frame("failure", failure, *_COLUMNS)
    if len(frame) != 1:
        raise wrong(
            "failure",
            failure,
            f"one row, and not {counted(len(frame), 'row')}",
            "Choose one, for example failures.iloc[0].",
        )

    return {str(name): value for name, value in frame.iloc[0].items()}


def _text(row: dict[str, Any], column: str) -> str:
    """Return the text of a column, or an empty string if it is missing."""
    value = row.get(column)
    if is_missing(value):
        return ""

    return str(value)


def _status(row: dict[str, Any]) -> int | None:
    """Return the status of the response, or None if it is missing.

    pandas makes floats of a column in which a status is missing, for example 500.0.
    """
    status = row.get("response_status")
    if is_missing(status):
        return None

    try:
        return int(float(status))  # type: ignore[arg-type]  # anything that a frame can contain
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            _DOING,
            got=f"the response_status {visible(str(status))[:80]!r} of {_text(row, 'dlq_id')!r}",
            expected="a number, for example 500",
        ) from None


def _method(stated: str) -> str:
    """Return the method, which is POST unless the entry has another."""
    if _TOKEN.fullmatch(stated):
        return stated.upper()
    return "POST"


def _filled(text: str, values: Mapping[str, str | None]) -> str | None:
    """Return text with values in place of masks. Return None if a value in it is None."""
    for mask in MASK.findall(text):
        value = values[mask]
        if value is None:
            return None
        text = text.replace(mask, value)

    return text


def _sendable_headers(
    text: str,
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return the headers of the delivery that can be sent again, and the names of invalid ones."""
    sendable: list[tuple[str, str]] = []
    invalid: list[str] = []
    for name, value in _header_pairs(text):
        if normalise_header(name) in (*_OF_THE_CONNECTION, *SIGNATURE_HEADERS):
            continue
        if _TOKEN.fullmatch(name) and _HEADER_VALUE.fullmatch(value):
            sendable.append((name, value))
        else:
            invalid.append(name)

    return tuple(sendable), tuple(dict.fromkeys(invalid))


def _header_pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield each value of a header map with the name."""
    headers: dict[str, list[str]] = {}
    with suppress(msgspec.DecodeError, RecursionError):
        headers = _HEADER_MAP.decode(text or "{}")
    for name, values in headers.items():
        yield from ((name, value) for value in values)
