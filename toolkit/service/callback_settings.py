"""Settings of a callback or failure callback: the destination, and how it is delivered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from toolkit.base.arguments import (
    mapping,
)
from toolkit.service.publish_headers import (
    MESSAGE_HEADERS,
    Duration,
    Method,
    forwarded,
    web_address,
)


@dataclass(frozen=True)
class CallbackSettings:
    """Destination and delivery settings of a callback or failure callback.

    None means the default of the service (for `retries`: the number of the original message).

    Attributes
    ----------
    url : str
        Address of the callback endpoint, http or https.
    timeout, delay : int, str or timedelta, optional
        Seconds, text such as ``"50s"``, or a timedelta of whole seconds.
    retries : int, optional
        0 or more.
    method : {"GET", "POST", "PUT", "DELETE", "PATCH"}, optional
    headers : mapping
        Forwarded to the callback endpoint.

    Raises
    ------
    InputError
        When the URL or a setting cannot be used.

    Examples
    --------
    >>> CallbackSettings("https://app.example/done?key=abc", retries=2)
    CallbackSettings('https://app.example/done', retries=2)
    """

    url: str
    timeout: Duration | None = field(default=None, kw_only=True)
    retries: int | None = field(default=None, kw_only=True)
    delay: Duration | None = field(default=None, kw_only=True)
    method: Method | None = field(default=None, kw_only=True)
    headers: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "headers", dict(mapping("headers", self.headers)))
        self.wire_headers("Callback")

    def __repr__(self) -> str:
        shown = {
            name: getattr(self, name)
            for name in ("timeout", "retries", "delay", "method")
        }
        parts = [
            f"{name}={value!r}" for name, value in shown.items() if value is not None
        ]
        parts += [f"headers={sorted(self.headers)}"] if self.headers else []

        return (
            f"CallbackSettings({', '.join([repr(self.url.partition('?')[0]), *parts])})"
        )

    def wire_headers(self, name: str) -> list[tuple[str, str]]:
        """Return the checked publish headers of this callback, without the prefix of the dialect."""
        result = [(name, web_address(name, self.url))]
        for header in ("Timeout", "Retries", "Delay", "Method"):
            argument, convert = MESSAGE_HEADERS[header]
            if (value := getattr(self, argument)) is not None:
                result.append((f"{name}-{header}", convert(f"{name}-{header}", value)))

        return result + forwarded(f"{name}-Forward-", self.headers)
