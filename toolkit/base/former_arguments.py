"""Arguments that functions had before: they are refused, or still accepted with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def refuses_former(
    former: Mapping[str, str],
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Raise a TypeError for a former keyword argument that tells how to write it now.

    >>> @refuses_former({"retry_delay": "retries=Retries(count, delay=...)"})
    ... def send(*, retries=None): ...
    >>> send(retry_delay=5)
    Traceback (most recent call last):
    ...
    TypeError: send() has no argument 'retry_delay' any more. Use retries=Retries(count, delay=...).
    """

    def decorate(
        function: Callable[Parameters, Result],
    ) -> Callable[Parameters, Result]:
        @wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            for name in kwargs:
                if name in former:
                    raise TypeError(
                        f"{function.__name__}() has no argument {name!r} any more. Use {former[name]}."
                    )

            return function(*args, **kwargs)

        return call

    return decorate


def groups_former(
    argument: str, make: Callable[..., object], former: Iterable[str]
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Accept former keyword arguments that are fields of one argument now, with a warning.

    >>> @groups_former("filter", dict, ["state"])
    ... def load(*, filter=None):
    ...     return filter
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     load(state="FAILED")
    {'state': 'FAILED'}
    """
    names = frozenset(former)

    def decorate(
        function: Callable[Parameters, Result],
    ) -> Callable[Parameters, Result]:
        @wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            fields = {name: kwargs[name] for name in kwargs if name in names}
            if not fields:
                return function(*args, **kwargs)

            if argument in kwargs:
                raise TypeError(
                    f"{function.__name__}() got {argument} and {next(iter(fields))!r}, a field of it"
                )

            given = ", ".join(f"{name}=..." for name in fields)
            now = f"{argument}={getattr(make, '__name__', 'dict')}({given})"
            warnings.warn(
                f"{function.__name__}: pass {now}", DeprecationWarning, stacklevel=2
            )
            for name in fields:
                del kwargs[name]
            kwargs[argument] = make(**fields)

            return function(*args, **kwargs)

        return call

    return decorate
