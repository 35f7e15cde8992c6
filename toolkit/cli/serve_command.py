"""Run the embedded service: ``toolkit serve``."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, Final

from toolkit.base.progress import ProgressSteps
from toolkit.cli.local_packages import local_packages
from toolkit.cli.output import has_events, print_message
from toolkit.cli.shared_options import add_command
from toolkit_service.startup import add_arguments

SAMPLE_ROWS: Final = 5_000
"""Failures of the sample: enough to be told at once."""


def add(commands: Any, summary: str) -> None:
    """Add the command."""
    add_command(commands, "serve", _serve, summary, "--port 8080 --sample")
    add_arguments(commands.choices["serve"])


def _serve(given: argparse.Namespace) -> int:
    with local_packages("running the embedded service"):
        from toolkit_service.demo.faults.middleware import Faults  # noqa: PLC0415 - the same
        from toolkit_service.demo.filling import fill  # noqa: PLC0415 - the same
        from toolkit_service.demo.sample_application import sample_application  # noqa: PLC0415 - the same
        from toolkit_service.serve import run  # noqa: PLC0415 - it needs the extra [local]

    began = time.monotonic()
    with _events_logged():
        _event("starting", event="starting")
        status = run(
            given,
            fill=partial(_filled, fill),
            application=sample_application,
            interception=Faults.read(given.faults),
        )
        seconds = round(time.monotonic() - began, 1)
        _event("stopped", event="stopped", seconds=seconds)

    return status


def _filled(fill: Callable[..., None], *stores: Any) -> None:
    """Make the sample history, with a progress line in a terminal because it takes seconds."""
    with ProgressSteps(None, title="toolkit serve", total=1, rows=SAMPLE_ROWS) as step:
        step("making two weeks of sample history")
        fill(*stores)


def _event(text: str, *, event: str, **facts: object) -> None:
    """Write an event that only programs are interested in."""
    if has_events():
        print_message(text, event=event, **facts)


class _EventHandler(logging.Handler):
    """Write the log records of the service as events."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        # has the format of the log, which threads of requests do not know
        self._context = copy_context()

    def emit(self, record: logging.LogRecord) -> None:
        text, level = self.format(record), record.levelname.lower()
        self._context.copy().run(
            partial(print_message, text, event=level, logger=record.name)
        )


@contextmanager
def _events_logged() -> Iterator[None]:
    """Write the log records of the service as JSON objects for a while, if that format was chosen.

    The service configures logging only if the process has not configured it before.
    """
    if not has_events():
        yield
        return

    handler = _EventHandler()
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
