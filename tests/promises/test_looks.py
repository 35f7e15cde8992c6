"""What looks like a secret, in every field of what is loaded: in values, and in what is shown of them."""

from __future__ import annotations

import re
from collections.abc import Callable

import pandas as pd
import pyarrow as pa
import pytest

import toolkit as tk
from tests.promises.canaries import LOOKS, planted, rows
from toolkit.secrets.redaction import Redactor
from toolkit.tables.callback_rows import decode_callbacks
from toolkit.tables.failures import FailureDecoder
from toolkit.tables.frames import to_frame
from toolkit.tables.lenient_rows import decode_runs
from toolkit.widgets.failure_detail import detail_markup

pytestmark = pytest.mark.slow

REDACT = Redactor(key=b"k")
IDS = {"failures": "dlqId", "runs": "workflowRunId", "callbacks": "sourceMessageId"}


def _decoded(what: str) -> list[pd.DataFrame]:
    """A frame of each sort of page."""
    decode: dict[str, Callable[[list[bytes]], pa.Table]] = {
        "failures": lambda some: FailureDecoder(REDACT).decode(
            b"[" + b",".join(some) + b"]"
        ),
        "runs": lambda some: decode_runs(
            b"[" + b",".join(some) + b"]", redactor=REDACT
        ),
        "callbacks": lambda some: decode_callbacks(some, redactor=REDACT),
    }
    return [
        to_frame(decode[what](some))
        for some in rows(planted(what, LOOKS), IDS[what]).values()
    ]


def _page(frame: pd.DataFrame) -> str:
    options = (
        "display.max_rows",
        None,
        "display.max_columns",
        None,
        "display.max_colwidth",
        None,
    )
    with pd.option_context(*options):
        return f"{frame._repr_html_()}\n{frame!r}"


SINKS: dict[str, Callable[[pd.DataFrame], str]] = {
    "cells": lambda frame: "\n".join(
        str(value) for name in frame for value in frame[name]
    ),
    "page": _page,
    "details": lambda frame: "\n".join(
        detail_markup(row, REDACT) for row in frame.to_dict("records")
    ),
    "report": lambda frame: tk.report_failures(frame, redactor=REDACT).to_html(),
    "counts": lambda frame: (
        tk.analysis.count_errors(frame).to_csv()
        + tk.analysis.count_states(frame).to_csv()
    ),
}
PAIRS = [
    (what, sink)
    for what in IDS
    for sink in SINKS
    if what == "failures" or sink in ("cells", "page")
]


@pytest.mark.parametrize(("what", "sink"), PAIRS)
def test_no_secret_is_shown_that_looks_like_one(what, sink, record_property):
    """Ids and names stay, and bodies as values; everything else is masked, whatever field it came in."""
    text = "\n".join(map(SINKS[sink], _decoded(what)))
    wanted = [
        one
        for one in planted(what, LOOKS)
        if not one.kind.kept(what, one.field.name, sink)
    ]
    record_property("tried", len(wanted))
    assert len(wanted) > 1500
    assert "[masked len=" in text
    shown = _contained({one.secret for one in wanted}, text)
    assert [str(one) for one in wanted if one.secret in shown] == []


_DIGITS = 24  # hexadecimal digits of a secret that looks like one


def _contained(secrets: set[str], text: str) -> set[str]:
    """Return the secrets that an output contains, in one pass: 8,000 searches of 6 MB take 12 seconds.

    Each secret has 24 hexadecimal digits. So it can only be a part of as many digits in a row, of which the
    output has few besides the secrets.
    """
    assert all(re.fullmatch(f"[0-9a-f]{{{_DIGITS}}}", secret) for secret in secrets)
    parts = {
        digits[start : start + _DIGITS]
        for digits in re.findall(f"[0-9a-f]{{{_DIGITS},}}", text)
        for start in range(len(digits) - _DIGITS + 1)
    }
    return secrets & parts


def test_a_secret_is_found_among_other_digits():
    """Also if it is a part of a longer word, or the whole text."""
    secret = "0123456789abcdef01234567"
    assert _contained({secret}, f"x=ab{secret}cd.") == {secret}
    assert _contained({secret}, secret) == {secret}
    assert _contained({secret}, secret[:-1]) == set()
