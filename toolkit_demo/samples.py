"""The sample as compact text files: what the project's ``data/`` folder holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from toolkit_demo.documents import documents
from toolkit_demo.stories import Occurrence, occurrences


def sample_files() -> dict[str, bytes]:
    """Names and contents of the sample files, from the generator.

    Returns
    -------
    dict of str to bytes
        ``failures.jsonl``, one `Occurrence` a line (times in milliseconds before now), and
        ``documents.jsonl``, one document a line.

    Examples
    --------
    >>> sorted(sample_files())
    ['documents.jsonl', 'failures.jsonl']
    """
    return {
        "failures.jsonl": _lines(item.to_row() for item in occurrences()),
        "documents.jsonl": _lines(document.to_row() for document in documents()),
    }


def read_occurrences(path: str | Path) -> list[Occurrence]:
    """The occurrences back from a ``failures.jsonl``.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    list of Occurrence
        In the file's order; `toolkit_demo.history.wire_entries` makes service entries of them.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "failures.jsonl"
    ...     _ = path.write_bytes(sample_files()["failures.jsonl"])
    ...     len(read_occurrences(path))
    5000
    """
    with Path(path).open(encoding="utf-8") as lines:
        return [Occurrence.from_row(json.loads(line)) for line in lines]


def _lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows).encode()
