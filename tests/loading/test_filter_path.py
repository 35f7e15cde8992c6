"""A filter of failures is read and checked once, when it is made, and passes through few functions."""

from __future__ import annotations

import json
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import toolkit as tk
from tests.conftest import ScriptedServer
from toolkit.filters.failure import FailureFilter, LoadFilter

MOST_PLACES = 11
"""Half of the places that a filter passed through before."""


@contextmanager
def places_of_filters() -> Iterator[set[tuple[str, str]]]:
    """Collect each function that gets a filter as an argument, with the name of the argument."""
    places: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or "/toolkit/" not in code.co_filename:
            return
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        for name in arguments:
            if isinstance(frame.f_locals.get(name), FailureFilter | LoadFilter):
                places.add((code.co_qualname, name))

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield places
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def test_a_filter_passes_few_places_under_one_name(server: ScriptedServer) -> None:
    """Loading with filters that the service can and cannot compare names them `filter` in each function."""
    entry = {"dlqId": "a", "labels": ["x"], "responseBody": "timeout"}
    page = json.dumps({"messages": [entry], "cursor": ""}).encode()
    server.responding(lambda _: page)
    service = server.service()
    with places_of_filters() as places, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # compared here for two reasons, then compared by the service
        tk.load_failures(service, FailureFilter(error="timeout"), progress=False)
        tk.load_failures(service, FailureFilter(label="a,b"), progress=False)
        tk.load_failures(service, FailureFilter(since="7d"), progress=False)
    assert {name for _, name in places} <= {"self", "filter"}
    assert ("WindowReader.__init__", "filter") in places
    assert len(places) <= MOST_PLACES, sorted(places)
