"""The sample as compact text files: what the project's ``data/`` folder holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from toolkit_demo.documents import documents
from toolkit_demo.stories import Occurrence, occurrences


def sample_files() -> dict[str, bytes]:
    """Contents of ``failures.jsonl`` (an `Occurrence` a line) and ``documents.jsonl``, from the generator."""
    return {
        "failures.jsonl": _lines(item.to_row() for item in occurrences()),
        "documents.jsonl": _lines(document.to_row() for document in documents()),
    }


def read_occurrences(path: str | Path) -> list[Occurrence]:
    """The occurrences of a ``failures.jsonl``, in its order."""
    with Path(path).open(encoding="utf-8") as lines:
        return [Occurrence.from_row(json.loads(line)) for line in lines]


def _lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows).encode()
