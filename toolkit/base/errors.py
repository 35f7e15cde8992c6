"""Define the errors of the toolkit. Each one is a `ToolkitError` with a message of up to four parts.

The parts are the attempted action, the problem, the expected value and the next step, for example "opening
'a.json': got a folder; expected a file. Name a file.". If you catch `ToolkitError`, you catch all of these::

    ToolkitError
    ├── SettingsError              addresses or tokens are missing or contradictory
    ├── InputError (ValueError)    an argument cannot be used as given
    │   └── FilterSyntaxError      a metadata filter does not parse; knows the position
    ├── ServiceError               a request to the service failed; knows the request (without secrets)
    │   ├── TransportError         no complete response                                  (retriable)
    │   │   └── DeadlineError      the response exceeded the deadline                    (retriable)
    │   ├── RedirectError          the service pointed elsewhere; not followed
    │   ├── ProtocolError          the response violates the specification
    │   │   ├── MalformedResponseError   200, but HTML, empty or truncated              (retriable)
    │   │   └── CursorLoopError    a cursor was repeated, so paging would never end
    │   └── ResponseError          the service responded with an error status
    │       ├── BadRequestError            400
    │       ├── AuthenticationError        401 and 403
    │       ├── NotFoundError              404
    │       ├── UnprocessableError         422
    │       ├── RateLimitError             429, passes within seconds                    (retriable)
    │       │   └── DailyLimitError        429, passes when the day's budget is renewed
    │       └── ServerError                5xx                                           (retriable)
    ├── NotEnoughMemoryError       the result would not fit into memory
    ├── IncompleteLoadError        a load ended early; the rows read so far are in `.partial`
    ├── SignatureError             a callback's signature does not verify
    ├── SnapshotError              a snapshot cannot be used as requested
    │   ├── SnapshotDamagedError   a file is missing, truncated or edited
    │   ├── SnapshotLockedError    another writer has locked it
    │   ├── SnapshotConflictError  another writer changed it meanwhile
    │   └── SnapshotBindingError   it belongs to another service, index or filter
    ├── LedgerLockedError          another process runs a plan with this ledger
    └── LocalServiceError          the embedded service did not start, or ended

There are two warnings. `IncompleteLoadWarning` is shown if entries changed while they were read; the receipt
of the result explains why it may be incomplete. `UnexpectedResultWarning` is shown if a call was probably a
mistake, for example if you filter by a label that no entry has, or by ids that no longer exist.
"""

from __future__ import annotations

from typing import Any, ClassVar

from toolkit.base.own_tokens import mask_handled, masked
from toolkit.base.visible_text import visible


class ToolkitError(Exception):
    """Base class of all errors of the toolkit.

    Parameters
    ----------
    doing : str
        The attempted action, as the start of a sentence ("reading the DLQ page after cursor 'x'").
    got : str, optional
        The problem: an event, or the value that was found.
    expected : str, optional
        The value or state that would have been right.
    next_step : str, optional
        An action that can help now, as a sentence.

    Notes
    -----
    An error never contains a live token of this process. Attributes and notes are masked when they are set.
    Errors that are being handled when this one is made are masked as well, because a traceback shows them.

    Examples
    --------
    >>> print(ToolkitError("opening 'a.json'", got="a folder", expected="a file", next_step="Name a file."))
    opening 'a.json': got a folder; expected a file. Name a file.
    """

    retriable: ClassVar[bool] = False
    """True if the same request may succeed when it is sent again."""

    def __init__(
        self,
        doing: str,
        *,
        got: str | None = None,
        expected: str | None = None,
        next_step: str | None = None,
    ) -> None:
        self.doing = doing
        self.got = got
        self.expected = expected
        self.next_step = next_step
        details = []
        if got:
            details.append(f"got {got}")
        if expected:
            details.append(f"expected {expected}")
        text = doing
        if details:
            text = f"{doing}: {'; '.join(details)}"
        if next_step:
            text = f"{text.rstrip('.')}. {next_step}"
        super().__init__(visible(masked(text)))
        mask_handled()

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute; live tokens in a string are masked."""
        if isinstance(value, str):
            value = masked(value)
        super().__setattr__(name, value)

    def add_note(self, note: str, /) -> None:
        """Add a note; live tokens in it are masked."""
        super().add_note(visible(masked(note)))

    def __reduce__(self) -> tuple[object, ...]:
        """Return the state for pickle. The default would lose the keywords that constructors take."""
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(
    kind: type[ToolkitError], args: tuple[object, ...], state: dict[str, object]
) -> ToolkitError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)

    return error


class SettingsError(ToolkitError):
    """Addresses or tokens are missing or contradictory."""


class InputError(ToolkitError, ValueError):
    """An argument cannot be used as given."""


class FilterSyntaxError(InputError):
    """A metadata filter does not parse.

    Attributes
    ----------
    position : int
        Offset into `text`, in characters, where reading stopped.
    text : str
        The filter.
    """

    def __init__(
        self,
        doing: str,
        *,
        text: str,
        position: int,
        got: str,
        expected: str,
        next_step: str | None = None,
    ) -> None:
        self.text = text
        self.position = position
        super().__init__(
            f"{doing} at position {position}",
            got=got,
            expected=expected,
            next_step=next_step,
        )


class ServiceError(ToolkitError):
    """A request to the service failed.

    Attributes
    ----------
    request : str
        Method and address of the request, with every secret masked.
    """

    def __init__(
        self,
        doing: str,
        *,
        request: str = "",
        got: str | None = None,
        expected: str | None = None,
        next_step: str | None = None,
    ) -> None:
        self.request = request
        if request:
            doing = f"{doing} ({request})"
        super().__init__(doing, got=got, expected=expected, next_step=next_step)


class TransportError(ServiceError):
    """No complete response: the connection was refused or reset, or the body is truncated or corrupt."""

    retriable = True


class DeadlineError(TransportError):
    """The complete response did not arrive within the deadline."""


class RedirectError(ServiceError):
    """The service pointed elsewhere. Nothing was sent there."""


class ProtocolError(ServiceError):
    """The response violates the specification."""


class MalformedResponseError(ProtocolError):
    """The status is a success, but the body is HTML, empty, truncated, or without required fields."""

    retriable = True


class CursorLoopError(ProtocolError):
    """A cursor was repeated: paging would never end."""


class ResponseError(ServiceError):
    """The service responded with an error status.

    Attributes
    ----------
    status : int
        HTTP status of the response.
    message : str
        The error message of the service, with secrets masked.
    wait : float or None
        Seconds of delay that the service requested (429 and 503); None if it requested no delay.
    """

    def __init__(
        self,
        doing: str,
        *,
        status: int,
        message: str,
        request: str = "",
        next_step: str | None = None,
        wait: float | None = None,
    ) -> None:
        self.status = status
        self.message = message
        self.wait = wait
        super().__init__(
            doing, request=request, got=f"{status} {message!r}", next_step=next_step
        )


class BadRequestError(ResponseError):
    """400: the service did not understand the request."""


class AuthenticationError(ResponseError):
    """401 or 403: the token is missing, wrong, expired, or not allowed to do this."""


class NotFoundError(ResponseError):
    """404: the requested object does not exist, or no longer exists."""


class UnprocessableError(ResponseError):
    """422: the index cannot fulfil the request, for example because of another dimension."""


class RateLimitError(ResponseError):
    """429: too many requests per second.

    Attributes
    ----------
    limit : int or None
        Requests per second that the service allows, if it names a limit.
    """

    retriable = True

    def __init__(
        self, doing: str, *, limit: int | None = None, **response: Any
    ) -> None:
        self.limit = limit
        super().__init__(doing, **response)


class DailyLimitError(RateLimitError):
    """429: the day's budget is used up. Waiting seconds does not help."""

    retriable = False


class ServerError(ResponseError):
    """5xx: the service failed."""

    retriable = True


class NotEnoughMemoryError(ToolkitError):
    """The result would not fit into memory. Nothing, or next to nothing, was read."""


class IncompleteLoadError(ToolkitError):
    """A load ended early.

    Attributes
    ----------
    partial : object
        The rows read so far (a frame, or None if no row was read).
    """

    def __init__(
        self,
        doing: str,
        *,
        partial: object = None,
        got: str | None = None,
        next_step: str | None = None,
    ) -> None:
        self.partial = partial
        super().__init__(doing, got=got, expected="every entry", next_step=next_step)


class SignatureError(ToolkitError):
    """A callback's signature does not verify. The request must not be trusted."""


class SnapshotError(ToolkitError):
    """A snapshot cannot be used as requested."""


class SnapshotDamagedError(SnapshotError):
    """A file of the snapshot is missing, truncated or edited."""


class SnapshotLockedError(SnapshotError):
    """Another writer has locked the snapshot."""


class SnapshotConflictError(SnapshotError):
    """Another writer changed the snapshot while this one was writing; the other writer's version is kept."""


class SnapshotBindingError(SnapshotError):
    """The snapshot belongs to another service, index or filter."""


class LedgerLockedError(ToolkitError):
    """Another process runs a plan with the ledger of redrives."""


class LocalServiceError(ToolkitError):
    """The embedded service did not start, or ended while it was needed."""


class _MaskedWarning(UserWarning):
    """A warning whose message contains no live token of this process and no invisible characters."""

    def __init__(self, text: str) -> None:
        super().__init__(visible(masked(text)))


class IncompleteLoadWarning(_MaskedWarning):
    """Entries changed while they were read; the receipt explains why the result may be incomplete."""


class UnexpectedResultWarning(_MaskedWarning):
    """A call succeeded without effect, probably by mistake: a mistyped label, ids that no longer exist."""
