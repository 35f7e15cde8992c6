"""Values that tell the service how to deliver a message: retries and flow control."""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.service.publish_headers import (
    Duration,
    count,
    flow_control,
    header_value,
    retry_delay,
)


@dataclass(frozen=True)
class Retries:
    """How often a delivery is retried, and how long the service waits before a retry.

    Parameters
    ----------
    count : int, optional
        Number of retries, 0 or more. The default of the service is 3.
    delay : str or int, optional
        Milliseconds before a retry, or an expression that uses ``retried``, for example
        ``"1000 * pow(2, retried)"``.

    Raises
    ------
    InputError
        If a value cannot be sent.

    Examples
    --------
    >>> Retries(5, delay="1000 * pow(2, retried)")
    Retries(count=5, delay='1000 * pow(2, retried)')
    """

    count: int | None = None
    delay: str | int | None = None

    def __post_init__(self) -> None:
        if self.count is not None:
            count("Retries, from count", self.count)
        if self.delay is not None:
            header = "Retry-Delay, from delay"
            header_value(header, retry_delay(header, self.delay))


@dataclass(frozen=True)
class FlowControl:
    """Limits that all messages with the same key share.

    Parameters
    ----------
    key : str
        Messages with the same key share the limits.
    parallelism, rate : int, optional
        Deliveries at a time, and deliveries per `period`.
    period : int, str or timedelta, optional
        The default of the service is one second.

    Raises
    ------
    InputError
        If a value cannot be sent.

    Examples
    --------
    >>> FlowControl("tenant-7", rate=10, period="1m")
    FlowControl(key='tenant-7', parallelism=None, rate=10, period='1m')
    """

    key: str
    parallelism: int | None = None
    rate: int | None = None
    period: Duration | None = None

    def __post_init__(self) -> None:
        header_value("Flow-Control-Key, from key", self.key)
        self.limits()

    def limits(self) -> str | None:
        """Return the value of the header ``Flow-Control-Value``, or None without a limit."""
        return flow_control(self.parallelism, self.rate, self.period)
