"""Write the Python that loads the vectors of an index report and makes each part again."""

from __future__ import annotations

import os
from typing import Any, Final

import pandas as pd

from toolkit.base.python_code import Code, PublicCall, fill, joined, variable
from toolkit.failures.selection import receipt_of
from toolkit.reports.index_audits import MAP_POINTS, AuditedIndex
from toolkit.tables.receipt import Receipt
from toolkit.vectors.vector_rows import VectorSource


def _as_passed(name: str, value: Any) -> Code:
    """Return code that assigns an argument if it was a path, and a comment about it otherwise."""
    if isinstance(value, str | os.PathLike):
        return fill("{name} = {path}", name=variable(name), path=os.fspath(value))
    return fill("{name}  # as it was passed", name=variable(name))


def loading_lines(index: AuditedIndex, passed: Any) -> list[Code]:
    """Return code that loads the vectors of a report, and a line per argument that was passed with them.

    `passed` is the first argument of the report.
    """
    arguments = {
        "previous": index.previous,
        "labels": index.labels,
        "queries": index.queries,
        "groups": index.groups,
        "pinned": index.pinned,
    }
    lines = [_loading_code(index, passed)]
    for name, value in arguments.items():
        if value is not None:
            lines.append(_as_passed(name, value))

    return lines


def _loading_code(index: AuditedIndex, passed: Any) -> Code:
    """Return code that loads the vectors, if the receipt shows how they were loaded."""
    if index.service is None:
        return _as_passed("vectors", passed)

    line = _as_passed("vectors", index.source)
    loaded = _repeatable_load(index.source)
    if loaded is not None:
        load = _LOAD.write(variable("service"), namespace=loaded.scope["namespaces"])
        line = fill("vectors = {load}", load=load)

    return joined([fill("service = tk.connect()"), line])


def _repeatable_load(source: VectorSource) -> Receipt | None:
    """Return the receipt of a load that the argument `namespace` repeats: complete, and of all ids."""
    if not isinstance(source, pd.DataFrame):
        return None

    loaded = receipt_of(source)
    if loaded is None or not loaded.complete or loaded.rows != len(source):
        return None
    if loaded.scope["prefix"] or "filter" in loaded.scope:
        return None

    return loaded


def codes_of_parts(index: AuditedIndex, lines: list[Code]) -> dict[str, Code]:
    """Return code that computes each part again. `lines` load the vectors."""
    vectors, seed = variable("vectors"), index.seed
    measured = index.recall_options
    # callers may pass any kind of number, for example a Decimal, but shown code only has literals
    scored: dict[str, object] = {"precision": float(index.precision), "seed": seed}
    if index.queries is not None:
        measured["queries"] = scored["queries"] = variable("queries")
    recall = _RECALL.write(variable("service"), vectors, **measured)
    labels = []
    if index.labels is not None:
        labels.append(variable("labels"))
    if index.scale is not None:
        scored["similarity"] = index.scale
    audited: dict[str, object] = {}
    if index.dense_scale is not None:
        audited["similarity"] = index.dense_scale
    compared: dict[str, object] = {"seed": seed}
    if index.groups is not None:
        compared["groups"] = variable("groups")
    if index.namespace is not None:
        compared["namespace"] = index.namespace
    return {
        "load": joined([fill("import toolkit as tk\n"), *lines]),
        "health": fill(
            "health = {call}\nhealth.plot()\nhealth.frame",
            call=_AUDIT.write(vectors, **audited),
        ),
        "map": fill(
            "map = {call}", call=_PROJECT.write(vectors, sample=MAP_POINTS, seed=seed)
        ),
        "recall": fill("recall = {call}\nrecall.plot()\nrecall.by", call=recall),
        "scores": fill(
            "scores = {call}\nscores.plot()\nscores.frame",
            call=_SCORE.write(vectors, *labels, **scored),
        ),
        "drift": fill(
            "changes = {call}\nchanges.plot()\nchanges.counts",
            call=_COMPARE.write(variable("previous"), vectors, **compared),
        ),
        "answers": fill(
            "answers = {call}\nanswers.frame",
            call=_CHECK.write(variable("service"), variable("pinned"), seed=seed),
        ),
    }


_LOAD: Final = PublicCall("load_vectors", ("namespace",))
_PROJECT: Final = PublicCall("project_vectors", ("sample", "seed"))
_RECALL: Final = PublicCall("audit_recall", ("k", "sample", "seed", "queries"))
_SCORE: Final = PublicCall(
    "calibrate_threshold", ("queries", "precision", "similarity", "seed")
)
_AUDIT: Final = PublicCall("audit_vectors", ("similarity",))
_COMPARE: Final = PublicCall("compare_vectors", ("groups", "namespace", "seed"))
_CHECK: Final = PublicCall("check_queries", ("seed",))
