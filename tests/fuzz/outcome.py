"""What a call came to: a documented result, an error of the toolkit, or something that must not be."""

from __future__ import annotations

import contextlib
import io
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd
from odd_json import TOKENS

from toolkit.errors import ToolkitError

DEADLINE = 40.0
"""Seconds of processor time that a case may take, whatever else the machine does."""

PATIENCE = 900.0
"""Seconds that a case may take in all: one that waits for something needs no processor."""


class Hang(BaseException):
    """A case took longer than the deadline; its argument says which."""


@contextlib.contextmanager
def deadline(seconds: float = DEADLINE, patience: float = PATIENCE) -> Iterator[None]:
    """Raise `Hang` in what takes longer."""

    def ring(number: int, _: FrameType | None) -> None:
        taken = (
            f"{seconds} s of processor time"
            if number == signal.SIGPROF
            else f"{patience} s in all"
        )
        raise Hang(taken)

    before = {
        number: signal.signal(number, ring)
        for number in (signal.SIGPROF, signal.SIGALRM)
    }
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, patience)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def outcome(
    call: Callable[[], Any], expected: type | tuple[type, ...], *, look: bool = True
) -> tuple[str, str | None]:
    """What a call came to, in a word, and what was wrong with it.

    Parameters
    ----------
    call : callable
    expected : type or tuple of type
        What it is documented to return.
    look : bool
        Whether a result is also shown as notebooks show it.
    """
    printed = io.StringIO()
    try:
        with (
            deadline(),
            warnings.catch_warnings(),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            warnings.simplefilter("ignore")
            value = call()
            said = texts(value, shown=look)
    except ToolkitError as error:
        word, value, said = type(error).__name__, None, error_texts(error)
    except Hang as taken:
        return "hang", f"took longer than {taken}"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return "untyped", "".join(traceback.format_exception(error))
    else:
        word = "result"
        if not isinstance(value, expected):
            return "other type", f"returned {type(value)}, not {expected}"
    for spoken in (*said, printed.getvalue()):
        for token in TOKENS:
            if token in spoken:
                at = spoken.index(token)
                return (
                    "secret shown",
                    f"{word} shows the token: …{spoken[max(0, at - 300) : at + 40]}…",
                )
    return word, None


def error_texts(error: BaseException | None) -> list[str]:
    """Everything an error and its causes say."""
    said: list[str] = []
    while error is not None and len(said) < 50:
        said += [
            str(error),
            repr(error),
            repr(vars(error)),
            *getattr(error, "__notes__", ()),
        ]
        partial = getattr(error, "partial", None)
        if partial is not None:
            said += texts(partial)
        error = error.__cause__ or error.__context__
    return said


def texts(value: Any, *, shown: bool = True) -> list[str]:
    """A result as text: every value of a frame, and, as an option, all as notebooks show it."""
    if isinstance(value, pd.DataFrame):
        cells = [
            "\n".join(map(str, value.iloc[:, position].tolist()))
            for position in range(min(60, value.shape[1]))
        ]
        cells += [str(value.attrs), str(list(value.columns))]
        return [repr(value), value._repr_html_() or "", *cells] if shown else cells
    if isinstance(value, np.ndarray | str | int | float | None):
        return [str(value)]
    html = getattr(value, "_repr_html_", None) if shown else None
    return [repr(value), str(value), *([html() or ""] if callable(html) else [])]
