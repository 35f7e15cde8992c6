"""Ranges over vectors from a real server: complete, in order, read again, resumed from anywhere."""

from __future__ import annotations

import json
import math
import signal
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import toolkit as tk
from tests.conftest import Asked, Reply, ScriptedServer
from toolkit.errors import (
    AuthenticationError,
    IncompleteLoadError,
    IncompleteLoadWarning,
    InputError,
    NotEnoughMemoryError,
)
from toolkit.loading import ranges
from toolkit.loading.load import Checkpoint, Load
from toolkit.loading.options import LoadOptions
from toolkit.loading.vectors import open_vectors
from toolkit.service.transport import Transport


@dataclass
class Index:
    """An index whose cursor is the next id, so that it keeps its position; serves `/info` and ranges."""

    rows: dict[str, list[str]]
    most: int = 3
    dimension: int = 2
    counts: dict[str, int] = field(default_factory=dict)
    pending: int = 0
    text: str = ""
    before: Callable[[Index, str, str], Reply | None] = lambda *_: None
    ranges: list[dict[str, Any]] = field(default_factory=list)

    def respond(self, asked: Asked) -> Reply:
        """What the service says."""
        if asked.path == "/info":
            return self._json({"result": self._info()})
        name = unquote(asked.path.removeprefix("/range").removeprefix("/"))
        body = json.loads(asked.body)
        self.ranges.append(body | {"namespace": name})
        reply = self.before(self, name, body["cursor"])
        return reply or self._json({"result": self._page(name, **body)})

    def _info(self) -> dict[str, Any]:
        counts = {name: len(ids) for name, ids in self.rows.items()} | self.counts
        return {
            "vectorCount": sum(counts.values()),
            "pendingVectorCount": self.pending,
            "dimension": self.dimension,
            "similarityFunction": "COSINE",
            "namespaces": {
                name: {"vectorCount": count} for name, count in counts.items()
            },
        }

    def _page(
        self, name: str, *, cursor: str, limit: int, prefix: str = "", **_: Any
    ) -> dict[str, Any]:
        ids = sorted(
            item for item in self.rows.get(name, []) if item.startswith(prefix)
        )
        start = 0 if cursor == "0" else bisect_left(ids, cursor)
        end = start + min(limit, self.most)
        rows = [
            {
                "id": item,
                "vector": [float(len(item)), 1.5],
                "metadata": {"of": name},
                "data": self.text,
            }
            for item in ids[start:end]
        ]
        return {"nextCursor": ids[end] if end < len(ids) else "", "vectors": rows}

    @staticmethod
    def _json(value: Any) -> Reply:
        return Reply(
            200, {"Content-Type": "application/json"}, json.dumps(value).encode()
        )


def serving(
    server: ScriptedServer, rows: dict[str, list[str]], **options: Any
) -> tuple[Index, tk.Service]:
    """An index on this server, and a connection to it."""
    index = Index(rows, **options)
    server.respond = index.respond
    server.queue.clear()
    return index, server.service()


def named(count: int, start: str = "v") -> list[str]:
    """Ids."""
    return [f"{start}{number:03}" for number in range(count)]


def found(frame: Any) -> list[tuple[str, str]]:
    """Namespace and id of each row, in order."""
    return list(zip(frame["namespace"], frame["id"], strict=True))


def test_namespaces_and_prefixes_side_by_side_keep_their_order(server):
    """Rows are in the order of namespaces and prefixes, not of the pages; each is read to its end."""
    ids = named(10, "a") + named(5, "b") + named(7, "c")
    _, service = serving(server, {"": ids, "x": ids, "y": []})
    frame = tk.load_vectors(
        service, namespace=["x", "", "y"], prefix=["c", "a"], progress=False
    )
    expected = [
        (name, item)
        for name in ("x", "")
        for start in "ca"
        for item in ids
        if item.startswith(start)
    ]
    assert found(frame) == expected
    receipt = tk.get_receipt(frame)
    assert (receipt.complete, receipt.scope["prefix"], receipt.scope["namespaces"]) == (
        True,
        ["c", "a"],
        ["x", "", "y"],
    )


def test_prefixes_that_overlap_read_nothing_twice(server):
    """A prefix that another one covers is not requested; none at all is an input error."""
    index, service = serving(server, {"": named(4, "ab") + named(4, "ac")})
    frame = tk.load_vectors(service, prefix=iter(["ab", "a", "ab"]), progress=False)
    assert tk.get_receipt(frame).scope["prefix"] == ["ab", "a"]
    assert len(frame) == 8
    assert {body["prefix"] for body in index.ranges} == {"a"}
    assert tk.get_receipt(frame).duplicates == 0
    with pytest.raises(InputError, match="reading prefix"):
        tk.load_vectors(service, prefix=[], progress=False)


def test_nothing_is_requested_twice_when_nothing_changes(server):
    """One request a page, and what the index is once."""
    index, service = serving(server, {"": named(30)})
    frame = tk.load_vectors(service, progress=False)
    assert len(frame) == 30
    assert len(index.ranges) == 10
    assert len(server.requests) == 11
    receipt = tk.get_receipt(frame)
    assert (receipt.pages, receipt.requests, receipt.retries, receipt.reread) == (
        10,
        10,
        0,
        0,
    )


def test_a_cursor_that_is_lost_reads_the_range_again(server):
    """The service forgets a cursor on the way: that range again from its start, each row once, complete."""
    lost = [Reply(400, {}, b'{"error": "invalid cursor"}')]

    def before(_: Index, name: str, cursor: str) -> Reply | None:
        return lost.pop() if (name, cursor) == ("x", "v006") and lost else None

    _, service = serving(server, {"x": named(12), "y": named(12)}, before=before)
    frame = tk.load_vectors(service, namespace="all", progress=False)
    assert found(frame) == [(name, item) for name in ("x", "y") for item in named(12)]
    receipt = tk.get_receipt(frame)
    assert (receipt.complete, receipt.reread, receipt.duplicates) == (True, 1, 0)


def test_a_cursor_that_always_expires_is_an_error_with_the_rows_read(server):
    """After three readings the error comes, and carries the rows."""

    def before(_: Index, name: str, cursor: str) -> Reply | None:
        return Reply(404, {}, b'{"error": "gone"}') if cursor == "v006" else None

    _, service = serving(server, {"": named(12)}, before=before)
    with pytest.raises(IncompleteLoadError) as caught:
        tk.load_vectors(service, progress=False)
    assert caught.value.partial["id"].tolist() == named(6)


def test_a_repeated_id_makes_the_range_be_read_again(server):
    """A second reading finds a row whose position changed to before the cursor while the range was read."""

    def before(index: Index, name: str, cursor: str) -> Reply | None:
        if cursor == "v006" and len(index.ranges) < 5:
            rows = [
                {"id": "v000", "vector": [9, 9]},
                {"id": "v006", "vector": [4, 1.5]},
            ]
            return Index._json({"result": {"nextCursor": "v007", "vectors": rows}})
        return None

    _, service = serving(server, {"": named(12)}, before=before)
    frame = tk.load_vectors(service, progress=False)
    assert frame["id"].tolist() == named(12)
    receipt = tk.get_receipt(frame)
    assert (receipt.complete, receipt.reread) == (True, 1)


def test_rows_repeated_in_every_reading_are_not_complete(server):
    """Three readings with a row that is repeated: each row once, a warning, and the reason."""

    def before(index: Index, name: str, cursor: str) -> Reply | None:
        if cursor == "v006":
            rows = [
                {"id": "v000", "vector": [9, 9]},
                {"id": "v006", "vector": [4, 1.5]},
            ]
            return Index._json({"result": {"nextCursor": "v007", "vectors": rows}})
        return None

    _, service = serving(server, {"": named(12)}, before=before)
    with pytest.warns(
        IncompleteLoadWarning, match="1 were read twice in the vectors of the default"
    ):
        frame = tk.load_vectors(service, progress=False)
    assert sorted(frame["id"]) == named(12)
    assert tk.get_receipt(frame).complete is False


@pytest.mark.parametrize(
    ("pending", "prefix", "complete"),
    [(0, None, False), (3, None, True), (0, "v", True)],
)
def test_fewer_rows_than_the_index_counts_are_read_again_and_reported(
    server, pending, prefix, complete
):
    """A range that ends too early, as the counts say: once more, then the reason; none while pending."""
    index, service = serving(server, {"": named(9)}, counts={"": 12}, pending=pending)
    if complete:
        assert len(tk.load_vectors(service, prefix=prefix, progress=False)) == 9
        assert len(index.ranges) == 3
        return
    with pytest.warns(
        IncompleteLoadWarning, match="3 fewer were read than the index counts"
    ):
        frame = tk.load_vectors(service, progress=False)
    assert (len(frame), len(index.ranges)) == (9, 6)


def test_vectors_deleted_meanwhile_are_no_shortage(server):
    """Fewer than the index counted before, but as many as it counts now: complete, and read once."""

    def before(index: Index, name: str, cursor: str) -> Reply | None:
        if cursor == "v003":
            index.rows[""] = [
                item for item in index.rows[""] if item not in {"v007", "v008"}
            ]
        return None

    _, service = serving(server, {"": named(9)}, before=before)
    frame = tk.load_vectors(service, progress=False)
    assert (len(frame), tk.get_receipt(frame).complete) == (7, True)


def test_two_passes_find_what_the_first_missed(server):
    """A row that the first reading skips comes with the second; the third shows that it was the last."""

    def before(index: Index, name: str, cursor: str) -> Reply | None:
        if len(index.ranges) == 1:
            return Index._json(
                {
                    "result": {
                        "nextCursor": "v004",
                        "vectors": [{"id": "v000", "vector": [1, 1]}],
                    }
                }
            )
        return None

    index, service = serving(server, {"": named(12)}, before=before, pending=1)
    assert len(tk.load_vectors(service, progress=False)) == 9
    index.ranges.clear()
    frame = tk.load_vectors(service, passes=2, progress=False)
    assert sorted(frame["id"]) == named(12)
    receipt = tk.get_receipt(frame)
    assert (receipt.complete, receipt.reread) == (True, 2)


def test_a_load_resumes_wherever_it_stopped(server):
    """After any number of batches: the rest comes, no row twice, and only what was not read is requested."""
    rows = {"x": named(11), "y": named(5), "z": []}
    index, service = serving(server, rows)
    whole = {(name, item) for name, ids in rows.items() for item in ids}
    for stop in range(7):
        load = open_vectors(service, LoadOptions(progress=False), namespace="all")
        first = keys(load, stop)
        checkpoint = load.checkpoint()
        json.dumps(checkpoint.position)
        index.ranges.clear()
        resumed = open_vectors(service, LoadOptions(progress=False), namespace="all")
        rest = keys(resumed, resume=checkpoint)
        assert len(first) + len(rest) == 16, stop
        assert set(first) | set(rest) == whole, stop
        receipt = resumed.receipt
        assert (
            receipt.complete,
            receipt.rows,
            receipt.resumed,
            receipt.duplicates,
        ) == (True, 16, 1, 0)
        # by cursor, as what the stopped load had requested ahead may arrive only now
        requested = {(body["namespace"], body["cursor"]) for body in index.ranges}
        # the page of z has no rows to give
        assert len(requested) in {
            6 - stop,
            7 - stop,
        }


def keys(
    load: Load, most: int | None = None, resume: Checkpoint | None = None
) -> list[tuple[str, str]]:
    """Namespace and id of the rows of the first tables, after which the load is left."""
    with closing(load.batches(resume=resume)) as batches:
        tables = list(
            islice((batch.table for batch in batches if batch.table.num_rows), most)
        )
    return [
        (row["namespace"], row["id"]) for table in tables for row in table.to_pylist()
    ]


def test_a_resumed_cursor_that_has_expired_reads_the_range_again(server):
    """The old cursor is refused: the range from its start, and rows that are known do not come again."""
    index, service = serving(server, {"": named(12)})
    load = open_vectors(service, LoadOptions(progress=False))
    first = keys(load, 2)
    index.before = lambda _, __, cursor: (
        Reply(410, {}, b"{}") if cursor == "v006" else None
    )
    index.most = 4
    resumed = open_vectors(service, LoadOptions(progress=False))
    assert first + keys(resumed, resume=load.checkpoint()) == [
        ("", item) for item in named(12)
    ]
    assert (resumed.receipt.complete, resumed.receipt.reread) == (True, 1)


def test_a_token_that_expires_ends_the_load_and_another_one_resumes_it(server):
    """401 is neither retried nor treated as an expired cursor; what was yielded is not requested again."""
    index, service = serving(server, {"": named(12)})
    index.before = lambda _, __, cursor: (
        Reply(401, {}, b"{}") if cursor == "v006" else None
    )
    load = open_vectors(service, LoadOptions(progress=False))
    pieces = iter(load)
    assert [item for _ in range(2) for item in next(pieces)["id"].to_pylist()] == named(
        6
    )
    with pytest.raises(AuthenticationError):
        next(pieces)
    index.before = lambda *_: None
    rest = keys(
        open_vectors(service, LoadOptions(progress=False)), resume=load.checkpoint()
    )
    assert [item for _, item in rest] == named(12)[6:]


def reading_since(earlier: set[threading.Thread]) -> list[threading.Thread]:
    """Return the threads that read vectors and have started since; others belong to earlier tests."""
    return [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("vectors") and thread not in earlier
    ]


def test_no_thread_is_left_however_a_load_ends(server):
    """Read to its end, left early, or failed: the threads that sent requests have ended."""
    earlier = set(threading.enumerate())
    _, service = serving(server, {"x": named(40), "y": named(40)})
    for ending in ("end", "early", "error"):
        pieces = iter(
            open_vectors(service, LoadOptions(progress=False), namespace="all")
        )
        next(pieces)
        assert reading_since(earlier)
        if ending == "end":
            list(pieces)
        elif ending == "early":
            pieces.close()
        else:
            with pytest.raises(ZeroDivisionError):
                pieces.throw(ZeroDivisionError())
        assert reading_since(earlier) == []


def test_an_index_that_would_not_fit_is_refused_before_it_is_read(server):
    """By the counts alone where they suffice, else by the first page; math.inf is never refused."""
    index, service = serving(server, {"": named(9)}, text="x" * 1000, dimension=2)
    with pytest.raises(NotEnoughMemoryError, match="export_vectors"):
        tk.load_vectors(service, memory_limit=9 * 8 - 1, progress=False)
    assert index.ranges == []
    with pytest.raises(
        NotEnoughMemoryError, match=r"9 vectors.*memory_limit=math\.inf"
    ):
        tk.load_vectors(service, memory_limit=8_000, progress=False)
    assert len(index.ranges) <= 3
    assert (
        len(tk.load_vectors(service, memory_limit=8_000, limit=3, progress=False)) == 3
    )
    for limit in (math.inf, 1e6, None):
        assert len(tk.load_vectors(service, memory_limit=limit, progress=False)) == 9
    assert sum(map(len, tk.iter_vectors(service, progress=False))) == 9


def test_a_transport_of_ones_own_is_used_for_everything(server):
    """Its requests and no others: what the index is, and the ranges."""
    _, service = serving(server, {"": named(9)})
    made: list[Transport] = []

    def transport() -> Transport:
        made.append(Transport.to(service, "vector"))
        return made[-1]

    assert (
        len(
            keys(
                open_vectors(service, LoadOptions(progress=False), transport=transport)
            )
        )
        == 9
    )
    assert len(made) == 2


def test_rows_larger_than_estimated_are_requested_again_in_smaller_pages(
    server, monkeypatch
):
    """An oversized first page is abandoned; the rows are read one a page, and count once."""
    monkeypatch.setattr(ranges, "PAGE_BYTES", 20_000)
    index, service = serving(server, {"": named(6)}, text="x" * 30_000, most=1000)
    frame = tk.load_vectors(service, connections=1, progress=False)
    assert frame["id"].tolist() == named(6)
    limits = [body["limit"] for body in index.ranges]
    assert limits[0] > 1
    assert set(limits[-4:]) == {1}
    receipt = tk.get_receipt(frame)
    assert receipt.complete
    assert receipt.requests > receipt.pages


def test_pages_side_by_side_are_smaller_so_that_memory_stays_bounded(
    server, monkeypatch
):
    """Four ranges at once share the memory of one."""
    monkeypatch.setattr(ranges, "PAGE_BYTES", 400_000)
    index, service = serving(server, {name: named(3) for name in "abcdef"})
    tk.load_vectors(service, namespace="a", progress=False)
    alone = index.ranges[0]["limit"]
    index.ranges.clear()
    tk.load_vectors(service, namespace="all", progress=False)
    assert {body["limit"] for body in index.ranges} == {alone // 4}


def test_an_interrupt_stops_the_threads_and_leaves_what_was_read(server):
    """Ctrl-C while a page is awaited: the frame until then is the exception's, and no thread is left."""
    six, interrupted, main = threading.Event(), threading.Event(), threading.get_ident()

    def before(_: Index, __: str, cursor: str) -> Reply | None:
        if cursor != "v006":
            return None
        assert six.wait(60)
        # anywhere else, Python may lose a Ctrl-C: in what garbage collection and weak references call
        while not waits(main):
            time.sleep(0.001)
        # a retry may arrive before the reader has stopped: a second Ctrl-C would interrupt its clean-up
        if not interrupted.is_set():
            interrupted.set()
            signal.pthread_kill(main, signal.SIGINT)
        return Reply(500, {}, b"{}")

    _, service = serving(server, {"": named(12)}, before=before)
    earlier = set(threading.enumerate())
    with pytest.raises(IncompleteLoadError, match="an interrupt") as caught:
        tk.load_vectors(service, progress=lambda done, _: done >= 6 and six.set())
    assert len(caught.value.partial) == 6
    assert reading_since(earlier) == []


def test_an_interrupt_between_the_steps_of_a_wait_is_an_interrupt(server, monkeypatch):
    """Where Python sees Ctrl-C while a condition has released its lock, the lock raises an error instead."""
    interrupted, wait = threading.Event(), threading.Condition.wait

    def before(_: Index, __: str, cursor: str) -> Reply | None:
        return (
            Reply(500, {}, b"{}") if cursor == "v006" and interrupted.wait(60) else None
        )

    def interrupted_wait(
        condition: threading.Condition, timeout: float | None = None
    ) -> bool:
        release = condition._release_save

        def release_and_raise() -> None:
            release()
            interrupted.set()
            raise KeyboardInterrupt

        if (
            threading.current_thread() is threading.main_thread()
            and not interrupted.is_set()
        ):
            condition._release_save = release_and_raise
        return wait(condition, timeout)

    def progress(done: int, _: int | None) -> None:
        if done == 6:
            monkeypatch.setattr(threading.Condition, "wait", interrupted_wait)

    _, service = serving(server, {"": named(12)}, before=before)
    with pytest.raises(IncompleteLoadError, match="an interrupt") as caught:
        tk.load_vectors(service, progress=progress)
    assert len(caught.value.partial) == 6


def waits(thread: int) -> bool:
    """Whether a thread waits for another one."""
    frame = sys._current_frames().get(thread)
    waiting = frame is not None and frame.f_code is threading.Condition.wait.__code__
    return waiting and "saved_state" in frame.f_locals  # it has released its lock


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=25,
    deadline=None,
)
@given(
    rows=st.dictionaries(
        st.sampled_from(["", "x", "y z"]),
        st.lists(st.text("abc", min_size=1, max_size=3), unique=True, max_size=12),
        min_size=1,
    ),
    prefix=st.none() | st.lists(st.text("abc", max_size=2), min_size=1, max_size=3),
    most=st.integers(1, 5),
    connections=st.integers(1, 8),
)
def test_every_row_is_yielded_once_for_any_pages(
    server, rows, prefix, most, connections
):
    """Any namespaces, prefixes and page sizes: every matching row, once, in the order of the ranges."""
    _, service = serving(server, rows, most=most)
    frame = tk.load_vectors(
        service, namespace="all", prefix=prefix, connections=connections, progress=False
    )
    matching = [
        (name, item)
        for name in sorted(rows)
        for item in sorted(rows[name])
        if prefix is None or item.startswith(tuple(prefix))
    ]
    assert sorted(found(frame)) == sorted(matching)
    assert [name for name, _ in found(frame)] == [name for name, _ in matching]
    assert tk.get_receipt(frame).complete
    lengths = np.array([len(item) for item in frame["id"]], dtype=np.float32)
    assert np.array_equal(tk.as_matrix(frame)[:, 0], lengths)
