"""The sample as text files, for the folder ``data/`` of the project."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from toolkit_service.demo.documents import documents
from toolkit_service.demo.stories import Occurrence, occurrences


def sample_files() -> dict[str, bytes]:
    """Generate ``failures.jsonl`` (an `Occurrence` per line) and ``documents.jsonl``."""
    return {
        "failures.jsonl": _lines(item.to_row() for item in occurrences()),
        "documents.jsonl": _lines(document.to_row() for document in documents()),
    }


def read_occurrences(path: str | Path) -> list[Occurrence]:
    """Read the occurrences of a ``failures.jsonl``, in the order of the file."""
    with Path(path).open(encoding="utf-8") as lines:
        return [Occurrence.from_row(json.loads(line)) for line in lines]


def _lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    # compact, and with characters beyond ASCII as they are
    lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows]
    return "".join(f"{line}\n" for line in lines).encode()
