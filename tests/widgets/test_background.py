"""Slow calls: readable progress, and a cancel that keeps the rows read."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from dataclasses import replace
from itertools import count

import pytest

import toolkit as tk
from toolkit.errors import IncompleteLoadError
from toolkit.loading.failures import open_failures
from toolkit.widgets.panel import Cancelled, Job, JobProgress, in_thread, on_loop


def pages(server, count, size=2, before=lambda number: None):
    """Serve this many pages of the DLQ."""

    def response(request):
        number = int(dict(request.query).get("cursor", 0))
        before(number)
        rows = [
            {"dlqId": f"d{number}-{row}", "createdAt": 1_760_000_000_000 + number}
            for row in range(size)
        ]
        more = {"cursor": str(number + 1)} if number + 1 < count else {}
        return json.dumps({"messages": rows, **more}).encode()

    server.responding(response)


def test_progress_in_words():
    """Count, rate, time that is left and retries, each where it is known."""
    assert JobProgress(seconds=0.1).words() == "Loading …"
    assert JobProgress(seconds=7.2).words() == "Loading for 7 s …"
    assert JobProgress(done=10, seconds=0.1).words() == "10"
    assert JobProgress(done=10, total=10, seconds=2).words() == "10 of 10 · 5 a second"
    assert JobProgress(done=3000, total=9000, seconds=60, retries=1).words() == (
        "3,000 of 9,000 · 50 a second · about 2 min left · 1 retry"
    )


def test_progress_is_reported_at_intervals():
    """Steps in quick succession are reported once."""
    told, now = [], [0.0]
    job = Job(told.append, clock=lambda: now[0])
    for number in range(5):
        job.step(number)
    now[0] = 1.0
    job.step(50, 100)
    assert [(progress.done, progress.seconds) for progress in told] == [
        (0, 0.0),
        (50, 1.0),
    ]


def reading(service):
    """A load of the service's DLQ, given its options."""
    return lambda options: open_failures(
        service, options=replace(options, connections=1)
    )


def test_a_stopped_load_keeps_every_row_it_read(sample_service):
    """A load stopped in the middle: the exception holds as many rows as were reported, marked incomplete."""
    job = Job(
        lambda progress: progress.done >= 1000 and job.stopping.set(),
        clock=count().__next__,
    )
    with pytest.raises(IncompleteLoadError) as caught:
        job.read(reading(sample_service))
    partial = caught.value.partial
    assert len(partial) == job.progress.done
    assert 1000 <= len(partial) < 5000
    assert partial["dlq_id"].is_unique
    assert (tk.get_receipt(partial).complete, tk.get_receipt(partial).rows) == (
        False,
        len(partial),
    )


def test_a_load_that_is_not_stopped_is_whole(server):
    """Reporting progress does not change the result."""
    pages(server, 3)
    told = []
    frame = Job(told.append, clock=count().__next__).read(reading(server.service()))
    assert (len(frame), tk.get_receipt(frame).complete) == (6, True)
    assert told[-1].done == 6


def test_a_load_that_waits_for_its_first_rows_says_how_long(server):
    """It is seen that the service is waited for, and no late report replaces the result."""
    said = []

    def waited():  # a busy machine may say 2 s first
        return any(re.fullmatch(r"Loading for \d+ s …", text) for text in said)

    def seen(_):
        deadline = time.monotonic() + 20
        while not waited() and time.monotonic() < deadline:
            time.sleep(0.01)

    pages(server, 1, before=seen)

    async def main():
        panel = tk.FailureFilterPanel(server.service())
        panel.observe(lambda _: said.append(panel.message), "status")
        panel.press("Load")
        for _ in iter(lambda: panel._job, None):
            await asyncio.sleep(0.01)
        await asyncio.sleep(1.1)
        return panel.message

    assert asyncio.run(main()).startswith("2 failures loaded.")
    assert waited()


def test_stopping_before_anything_was_read(server):
    """There is nothing to keep, so `Cancelled` itself is raised."""
    pages(server, 3, size=0)
    job = Job(lambda _: None)
    job.stopping.set()
    with pytest.raises(Cancelled):
        job.read(reading(server.service()))


@pytest.mark.parametrize("fails", [False, True])
def test_a_call_runs_beside_the_loop_and_its_result_on_it(fails):
    """The call is on a thread of its own; its follow-up is on the loop's thread."""
    seen = {}

    def call():
        seen["call"] = threading.current_thread()
        if fails:
            raise ValueError("no")
        return 7

    async def main():
        done = asyncio.Event()

        def after(future):
            seen["after"], seen["result"] = (
                threading.current_thread(),
                future.exception() or future.result(),
            )
            done.set()

        then = on_loop()
        in_thread(call).add_done_callback(lambda future: then(lambda: after(future)))
        await asyncio.wait_for(done.wait(), 30)

    asyncio.run(main())
    assert seen["call"] is not threading.current_thread()
    assert seen["after"] is threading.current_thread()
    assert isinstance(seen["result"], ValueError) if fails else seen["result"] == 7


@pytest.mark.parametrize(
    ("make", "start", "said"),
    [
        (
            tk.FailureFilterPanel,
            "Load",
            "Cancelled: {n:,} failures read, not all; panel.frame() has them.",
        ),
        (
            tk.MetadataFilterPanel,
            "Load",
            "Cancelled: {n:,} matching vectors read, not all; panel.frame()",
        ),
        (tk.MetadataFilterPanel, "Find fields", "Fields are those of "),
    ],
)
def test_a_load_that_was_cancelled_is_no_problem(sample_service, make, start, said):
    """The panel says what there is and how to load all, without a warning sign."""
    panel = make(sample_service)

    async def main():
        panel.press(start)
        panel.cancel()
        async with asyncio.timeout(30):
            while panel._job is not None:  # noqa: ASYNC110 - awaits the panel's state
                await asyncio.sleep(0.005)

    asyncio.run(main())
    assert panel.message.startswith(said.format(n=len(panel.frame())))
    assert (len(panel.frame()) > 0) == (start == "Load")
    assert 'role="alert"' not in panel._status.value


def close(panel, server):
    """Close a panel."""
    panel.close()


def replace_panel(panel, server):
    """Make a panel with the same key, as running the cell again does."""
    tk.FailureFilterPanel(server.service(), key="weekly")


@pytest.mark.parametrize("end", [close, replace_panel])
def test_a_panel_that_nobody_sees_ends_its_load(server, monkeypatch, end):
    """A closed or replaced panel sends no more requests, and its rows do not become the result."""
    monkeypatch.setattr("toolkit.widgets.panel._STATES", {})
    begun = threading.Event()

    def respond(number):
        # an endless queue, so that only the panel ends the load
        begun.set()
        time.sleep(0.005)

    pages(server, 1_000_000, before=respond)
    panel = tk.FailureFilterPanel(server.service(), key="weekly")

    async def main():
        panel.press("Load")
        async with asyncio.timeout(30):
            await asyncio.to_thread(begun.wait)
            end(panel, server)
            while panel._job is not None:  # noqa: ASYNC110 - awaits the panel's state
                await asyncio.sleep(0.005)

    asyncio.run(main())
    requested = len(server.requests)
    time.sleep(0.2)
    assert len(server.requests) == requested
    assert panel.frame().empty
    names = {thread.name for thread in threading.enumerate()}
    assert not {name for name in names if name.startswith("toolkit-reading")}


def test_a_panel_with_refused_arguments_can_be_closed(server):
    """Widgets also close panels that were not made completely."""
    panel = tk.FailureFilterPanel.__new__(tk.FailureFilterPanel)
    panel.close()
