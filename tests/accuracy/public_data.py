"""How often the analysis is right on labelled data from elsewhere, read from a folder.

The folder contains gzipped JSON files: `logs/`, `lines/` and `traces/` with lists of a text and its label,
and `incidents/` with lists of incidents. An incident has `attributes`, `roots` (one of these conditions is
right) and windows: `incident`, and `quiet` windows without an incident. A window has the counts of `now` and
of the `past`, as rows of a minute, the attributes, a value and a count, and the `exposure`: how many times as
long the past is.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.accuracy.failure_memory import memory_table
from tests.accuracy.measures import agreement
from toolkit.analysis import error_signatures, explain_change
from toolkit.failures.seen_before import TUNING
from toolkit.failures.text_index import TextIndex

_NEAREST = 5
_SATURATED = re.compile(r"(?<=\| )(?:0\.99\d|1\.000)(?= \|)")


def public_tables(folder: Path) -> Iterator[str]:
    """Yield the lines of all tables of the data in a folder."""
    yield from _groups(folder)
    for path in sorted((folder / "incidents").glob("*.json.gz")):
        yield ""
        yield from _incidents(path)
    for path in sorted((folder / "traces").glob("java*.json.gz")):
        yield ""
        yield from _seen_before(path)


def public_memory(folder: Path) -> Iterator[str]:
    """Yield the tables of traces that are searched in a memory of others; needs a model of sentences."""
    for path in sorted((folder / "traces").glob("java*.json.gz")):
        yield ""
        yield from _remembered(path)


def without_saturated(line: str) -> str:
    """Return a line of a table without figures of .99 or more, which are saturated.

    For example, "| words | 0.995 | 0.870 |" becomes "| words | - | 0.870 |".
    """
    return _SATURATED.sub("-", line) if line.startswith("|") else line


def _figure(value: float) -> str:
    return f"{value:.3f}"


def _read(path: Path) -> Any:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def _groups(folder: Path) -> Iterator[str]:
    yield "| public data | texts | labels | in the group of their label | of groups | precision | recall |"
    yield "|---|---|---|---|---|---|---|"
    for part in ("logs", "lines", "traces"):
        for path in sorted((folder / part).glob("*.json.gz")):
            texts, labels = zip(*_read(path), strict=True)
            measured = agreement(error_signatures(list(texts)), labels)
            figures = (
                measured.grouping,
                measured.of_groups,
                measured.precision,
                measured.recall,
            )
            name = f"{part}/{path.name.removesuffix('.json.gz')}"
            cells = [
                name,
                f"{len(texts):,}",
                f"{measured.labels:,}",
                *map(_figure, figures),
            ]
            yield f"| {' | '.join(cells)} |"


def _incidents(path: Path) -> Iterator[str]:
    is_first, is_among_three, is_noticed, is_quiet = [], [], [], []
    for case in _read(path):
        explained = _explained(case, case["incident"])
        conditions = [
            {name: str(value) for name, value in condition.items()}
            for condition in explained.frame["condition"].head(3)
        ]
        is_first.append(bool(conditions) and conditions[0] in case["roots"])
        is_among_three.append(
            any(condition in case["roots"] for condition in conditions)
        )
        is_noticed.append(explained.stands_out)
        is_quiet += [
            not _explained(case, window).stands_out for window in case["quiet"]
        ]
    yield "| public incidents | first right | among three | noticed | quiet windows left alone |"
    yield "|---|---|---|---|---|"
    figures = [
        float(np.mean(values))
        for values in (is_first, is_among_three, is_noticed, is_quiet)
    ]
    yield f"| {len(is_first)} | {' | '.join(map(_figure, figures))} |"


def _explained(case: dict[str, Any], window: dict[str, Any]) -> Any:
    columns = ["minute", *case["attributes"], "value", "count"]
    now, past = (
        pd.DataFrame(window[name], columns=columns) for name in ("now", "past")
    )
    return explain_change(
        after=now,
        before=past,
        attributes=case["attributes"],
        weight="value",
        exposure=float(window["exposure"]),
    )


def _seen_before(path: Path) -> Iterator[str]:
    """Search each text among the others."""
    texts, labels = zip(*_read(path), strict=True)
    groups = error_signatures(list(texts))
    index = TextIndex(texts, groups)
    is_known = np.array([labels.count(label) > 1 for label in labels])
    best, error_of_best = np.zeros(len(texts)), np.zeros(len(texts))
    is_right, ranks = np.zeros(len(texts)), np.zeros(len(texts))
    for position, (text, group) in enumerate(zip(texts, groups, strict=True)):
        nearest = index.nearest(text, group, _NEAREST + 1)
        others = [match for match in nearest if match.row != position][:_NEAREST]
        if others:
            best[position] = others[0].similarity
            error_of_best[position] = others[0].error_similarity
        right = [
            rank
            for rank, other in enumerate(others, 1)
            if labels[other.row] == labels[position]
        ]
        is_right[position] = right[:1] == [1]
        ranks[position] = 1 / right[0] if right else 0.0
    known, new = best[is_known, None], best[~is_known]
    area = float(np.mean((known > new) + 0.5 * (known == new)))
    never_seen = error_of_best < TUNING.seen
    figures = [
        is_right[is_known].mean(),
        ranks[is_known].mean(),
        area,
        is_known[never_seen].mean(),
    ]
    wrong = f"wrong of {never_seen.sum()} never seen"
    yield f"| public traces | first right | mean reciprocal rank | AUC | {wrong} |"
    yield "|---|---|---|---|---|"
    yield f"| {len(texts)} | {' | '.join(map(_figure, figures))} |"


def _remembered(path: Path) -> Iterator[str]:
    """Search half of the texts, chosen at random, in a memory of the other half."""
    labelled = [(text, label) for text, label in _read(path)]
    order = np.random.default_rng(1).permutation(len(labelled))
    middle = len(labelled) // 2
    history, new = (
        [labelled[position] for position in part]
        for part in (order[:middle], order[middle:])
    )
    yield from memory_table("public traces", history, new)
