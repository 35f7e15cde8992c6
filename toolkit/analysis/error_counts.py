"""The most frequent error texts of a frame of failures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pandas as pd
from narwhals.typing import IntoFrame

from toolkit.analysis.columns import collect, effective_time, select
from toolkit.analysis.wording import shorten
from toolkit.arguments import whole, wrong
from toolkit.filters.error_text import LONGEST_READ, ErrorText, binary_line, error_text, mask_text
from toolkit.redaction import Redactor

_LONGEST = 300  # characters of a text or example


@dataclass
class _Group:
    """What is known of one pattern while the rows are read."""

    count: int = 0
    workflows: set[str | None] = field(default_factory=set)
    latest: tuple[float, str] = (float("-inf"), "")
    last_at: datetime | None = None
    kind: str = ""
    example: str = ""

    def add(self, dlq_id: str, workflow: str | None, when: datetime | None, found: ErrorText) -> None:
        self.count += 1
        self.workflows.add(workflow)
        moment = (when.timestamp() if when else float("-inf"), dlq_id)
        if self.count == 1 or moment > self.latest:
            self.latest, self.last_at, self.kind, self.example = moment, when, found.kind, found.text


def count_errors(
    failures: IntoFrame, *, top: int | None = None, clean: Callable[[str], str] | None = None
) -> pd.DataFrame:
    """Count failures by the error text in their response bodies, with the latest example of each.

    Not for telling causes apart: one cause can speak in several texts, and several causes in one.

    Parameters
    ----------
    failures : frame
        With the columns `dlq_id`, `workflow_url`, `failed_at`, `created_at`, `response_body`,
        `response_body_base64`.
    top : int, optional
        How many texts, at least 1. Default: all.
    clean : callable, optional
        Applied to each body, and again to the line found in it. Default: what looks like a secret is masked,
        in texts and in examples. ``str`` shows them as they are.

    Returns
    -------
    pandas.DataFrame
        One row a text, the most frequent first and equal ones by text: `text` (str, numbers, ids and names
        in it replaced by signs such as ``<n>``), `kind` (str: where in the body it stood), `count` (Int64),
        `share` (float64, of all failures), `workflows` (Int64, how many different ones), `dlq_id`, `example`
        (str: id and whole text of the latest failure), `last_at` (datetime64[ms, UTC], when that was).

    Raises
    ------
    InputError
        When a column is missing, or `top` is below 1.

    Examples
    --------
    >>> import pandas as pd
    >>> bodies = ['{"error": "no user 1"}', '{"error": "no user 2"}', "timeout"]
    >>> times = pd.to_datetime(["2026-01-01", "2026-01-02", "2026-01-03"], utc=True)
    >>> frame = pd.DataFrame({"dlq_id": ["a", "b", "c"], "workflow_url": "u", "failed_at": times,
    ...     "created_at": times, "response_body": bodies, "response_body_base64": [None] * 3})
    >>> count_errors(frame)[["text", "count", "dlq_id"]]
              text  count dlq_id
    0  no user <n>      2      b
    1      timeout      1      c
    """
    doing = "counting error texts"
    top = whole("top", top, optional="for all")
    if clean is not None and not callable(clean):
        raise wrong("clean", clean, "a callable, or None")
    columns = ["dlq_id", "workflow_url", "failed_at", "created_at", "response_body", "response_body_base64"]
    table = collect(select(failures, columns, doing=doing).with_columns(when_=effective_time()))
    clean = Redactor().text if clean is None else clean
    groups: dict[str, _Group] = {}
    read: dict[Any, tuple[str, ErrorText]] = {}  # most bodies are equal to another
    rows = (
        table[name].to_pylist()
        for name in ("dlq_id", "workflow_url", "when_", "response_body", "response_body_base64")
    )
    for found_id, workflow, when, body, raw in zip(*rows, strict=True):
        dlq_id = found_id or ""
        key = (body, raw)
        if key not in read:
            read[key] = _read(body, raw, clean)
        pattern, found = read[key]
        groups.setdefault(pattern, _Group()).add(dlq_id, workflow, when, found)
    ordered = sorted(groups.items(), key=lambda item: (-item[1].count, item[0]))[:top]
    total = table.num_rows
    return pd.DataFrame(
        {
            "text": pd.Series([text for text, _ in ordered], dtype="str"),
            "kind": pd.Series([group.kind for _, group in ordered], dtype="str"),
            "count": pd.Series([group.count for _, group in ordered], dtype="Int64"),
            "share": pd.Series([group.count / total for _, group in ordered], dtype="float64"),
            "workflows": pd.Series([len(group.workflows) for _, group in ordered], dtype="Int64"),
            "dlq_id": pd.Series([group.latest[1] for _, group in ordered], dtype="str"),
            "example": pd.Series([group.example for _, group in ordered], dtype="str"),
            "last_at": pd.Series([group.last_at for _, group in ordered], dtype="datetime64[ms, UTC]"),
        }
    )


def _read(body: str | None, raw: str | None, clean: Callable[[str], str]) -> tuple[str, ErrorText]:
    if raw and not body:
        found = ErrorText("binary", binary_line(raw))
    elif not body:
        found = error_text(body)
    else:
        # twice: a secret can be whole in the body only, or readable only once JSON is decoded
        found = error_text(clean(body[:LONGEST_READ]))
        found = ErrorText(found.kind, clean(found.text))
    pattern, text = mask_text(found.text), found.text
    return shorten(pattern, _LONGEST), ErrorText(found.kind, shorten(text, _LONGEST))
