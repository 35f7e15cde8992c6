"""Pages with faults: rows that are repeated, reordered or made up, and cursors that lead nowhere."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from toolkit_service.demo.faults.script import PageFault

_ROWS: Final = ("messages", "runs", "events", "vectors")
_IDS: Final = ("dlqId", "workflowRunId", "messageId", "id")
_CURSORS: Final = {"vectors": "nextCursor"}


@dataclass
class Listings:
    """Earlier pages and cursors of listings. A made-up cursor stands for the cursor that it repeats."""

    previous: dict[str, list[Any]] = field(default_factory=dict)
    first_cursors: dict[str, str] = field(default_factory=dict)
    invented: dict[str, str] = field(default_factory=dict)

    def translated(self, query: bytes, body: bytes) -> tuple[str, bytes, bytes]:
        """Return the cursor of a request, and query string and body with made-up cursors translated.

        >>> listings = Listings(invented={"made-up-1": "c7"})
        >>> listings.translated(b"count=5&cursor=made-up-1", b"")
        ('c7', b'count=5&cursor=c7', b'')
        """
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
        for name, cursor in pairs:
            if name == "cursor":
                if cursor not in self.invented:
                    return cursor, query, body
                real_cursor = self.invented[cursor]
                return real_cursor, _with_cursor(pairs, real_cursor), body

        # range pages have the cursor in the body
        content = _object(body)
        body_cursor = content.get("cursor")
        if not isinstance(body_cursor, str):
            return "", query, body
        if body_cursor not in self.invented:
            return body_cursor, query, body

        content["cursor"] = self.invented[body_cursor]
        return content["cursor"], query, json.dumps(content).encode()

    def with_fault(
        self, path: str, cursor: str, body: bytes, fault: PageFault | None
    ) -> bytes:
        """Return a page with the fault. Responses without a page are returned as they are."""
        response = _object(body)
        page = _page_of(response)
        rows_name = next(
            (name for name in _ROWS if isinstance(page.get(name), list)), None
        )
        if rows_name is None:
            return body

        cursor_name = _CURSORS.get(rows_name, "cursor")
        rows, next_cursor = page[rows_name], page.get(cursor_name) or ""
        previous_rows = self._remember(path, rows, next_cursor)
        if fault is None:
            return body

        if fault.insert:
            # an extra page, after which the same request is made again
            self.previous[path] = previous_rows
            rows = _EXTRA_PAGES[fault.insert](previous_rows)
            next_cursor = self._made_up(cursor)
        else:
            next_cursor = self._faulty_cursor(path, cursor, next_cursor, fault)

        page[rows_name] = _rows(rows, previous_rows, fault)
        page[cursor_name] = next_cursor
        if not next_cursor:
            _mark_end(page, cursor_name, fault)
        return json.dumps(response).encode()

    def _remember(self, path: str, rows: list[Any], next_cursor: str) -> list[Any]:
        """Remember a page, even without a fault: a later fault may need it. Return the previous rows."""
        previous_rows = self.previous.get(path, [])
        self.previous[path] = list(rows)
        if next_cursor:
            self.first_cursors.setdefault(path, next_cursor)
        return previous_rows

    def _faulty_cursor(
        self, path: str, cursor: str, next_cursor: str, fault: PageFault
    ) -> str:
        if fault.cursor == "repeated":
            return cursor or next_cursor
        if fault.cursor == "first":
            return self.first_cursors.get(path, next_cursor)
        if fault.cursor == "endless":
            return next_cursor or self._made_up(cursor)

        return next_cursor

    def _made_up(self, cursor: str) -> str:
        name = f"made-up-{len(self.invented) + 1}"
        self.invented[name] = cursor
        return name


def _page_of(response: dict[str, Any]) -> dict[str, Any]:
    """Return the object with the rows: the response, or the result in it."""
    result = response.get("result")
    return result if isinstance(result, dict) else response


def _with_cursor(pairs: list[tuple[str, str]], cursor: str) -> bytes:
    replaced = [(name, cursor if name == "cursor" else text) for name, text in pairs]
    return urlencode(replaced).encode()


def _mark_end(page: dict[str, Any], cursor_name: str, fault: PageFault) -> None:
    if fault.end == "absent":
        del page[cursor_name]
    elif fault.end == "null":
        page[cursor_name] = None


def _rows(rows: list[Any], previous_rows: list[Any], fault: PageFault) -> list[Any]:
    """Return the rows of a page with the fault."""
    if fault.overlap:
        rows = previous_rows[-fault.overlap :] + rows
    if fault.twice:
        # each row is followed by the same row
        rows = list(chain.from_iterable(zip(rows, rows, strict=True)))

    rows = _ORDERS[fault.order](rows)
    return rows + _copies_of_last(rows, fault.extra)


def _shuffled(rows: list[Any]) -> list[Any]:
    # seeded: the same disorder every time
    shuffled = list(rows)
    random.Random(len(rows)).shuffle(shuffled)  # noqa: S311 - no secret
    return shuffled


_ORDERS: Final[dict[str | None, Callable[[list[Any]], list[Any]]]] = {
    None: list,
    "reversed": lambda rows: rows[::-1],
    "shuffled": _shuffled,
}
_EXTRA_PAGES: Final[dict[str, Callable[[list[Any]], list[Any]]]] = {
    "previous": list,
    "empty": lambda _: [],
}


def _copies_of_last(rows: list[Any], count: int) -> list[Any]:
    """Return copies of the last row with made-up ids."""
    if not rows or not isinstance(rows[-1], dict):
        return []
    return [_renamed(rows[-1], number) for number in range(1, count + 1)]


def _renamed(row: dict[str, Any], number: int) -> dict[str, Any]:
    renamed = copy.deepcopy(row)
    id_name = next((name for name in _IDS if name in renamed), "id")
    renamed[id_name] = f"{renamed.get(id_name, '')}-extra-{number}"

    return renamed


def _object(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {}

    return content if isinstance(content, dict) else {}
