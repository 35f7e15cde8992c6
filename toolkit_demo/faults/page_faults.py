"""Pages with faults: repeated, reordered or made-up rows, and cursors that lead nowhere."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from toolkit_demo.faults.script import PageFault

_ROWS: Final = ("messages", "runs", "events", "vectors")
_IDS: Final = ("dlqId", "workflowRunId", "messageId", "id")


@dataclass
class Listings:
    """Earlier pages and cursors of listings; a made-up cursor stands for the one that it repeats."""

    previous: dict[str, list[Any]] = field(default_factory=dict)
    first_cursors: dict[str, str] = field(default_factory=dict)
    invented: dict[str, str] = field(default_factory=dict)

    def translated(self, query: bytes, body: bytes) -> tuple[str, bytes, bytes]:
        """The cursor of a request, and its query string and body with made-up cursors translated.

        >>> listings = Listings(invented={"made-up-1": "c7"})
        >>> listings.translated(b"count=5&cursor=made-up-1", b"")
        ('c7', b'count=5&cursor=c7', b'')
        """
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in pairs if name == "cursor"]
        values = _object(body)
        if not given and isinstance(values.get("cursor"), str):
            meant = self.invented.get(values["cursor"])
            if meant is None:
                return values["cursor"], query, body
            return meant, query, json.dumps(values | {"cursor": meant}).encode()
        meant = self.invented.get(given[0]) if given else None
        if meant is None:
            return given[0] if given else "", query, body
        kept = [(name, meant if name == "cursor" else value) for name, value in pairs]
        return meant, urlencode(kept).encode(), body

    def with_fault(self, path: str, cursor: str, body: bytes, fault: PageFault | None) -> bytes:
        """The page as it is sent; other responses are unchanged."""
        response = _object(body)
        page = response["result"] if isinstance(response.get("result"), dict) else response
        rows_name = next((name for name in _ROWS if isinstance(page.get(name), list)), None)
        if rows_name is None:
            return body
        cursor_name = "nextCursor" if rows_name == "vectors" else "cursor"
        rows, following = page[rows_name], page.get(cursor_name) or ""
        before = self.previous.get(path, [])
        self.previous[path] = list(rows)
        if following:
            self.first_cursors.setdefault(path, following)
        if fault is None:
            return body
        if fault.insert:
            self.previous[path] = before
            rows, following = list(before) if fault.insert == "previous" else [], self._made_up(cursor)
        elif fault.cursor == "repeated":
            following = cursor or following
        elif fault.cursor == "first":
            following = self.first_cursors.get(path, following)
        elif fault.cursor == "endless":
            following = following or self._made_up(cursor)
        page[rows_name] = _rows(rows, before, fault)
        page[cursor_name] = following
        if not following and fault.end == "absent":
            del page[cursor_name]
        elif not following and fault.end == "null":
            page[cursor_name] = None
        return json.dumps(response).encode()

    def _made_up(self, cursor: str) -> str:
        name = f"made-up-{len(self.invented) + 1}"
        self.invented[name] = cursor
        return name


def _rows(rows: list[Any], before: list[Any], fault: PageFault) -> list[Any]:
    rows = [*(before[-fault.overlap :] if fault.overlap else ()), *rows]
    if fault.twice:
        rows = [row for row in rows for _ in range(2)]
    if fault.order == "reversed":
        rows.reverse()
    elif fault.order == "shuffled":
        random.Random(len(rows)).shuffle(rows)  # noqa: S311 - the same disorder every time
    if rows and isinstance(rows[-1], dict):
        last = rows[-1]
        rows += [_renamed(last, number) for number in range(1, fault.extra + 1)]
    return rows


def _renamed(row: dict[str, Any], number: int) -> dict[str, Any]:
    made = copy.deepcopy(row)
    name = next((name for name in _IDS if name in made), "id")
    made[name] = f"{made.get(name, '')}-extra-{number}"
    return made


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
