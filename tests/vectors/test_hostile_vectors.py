"""Vectors as nobody expects them: each function has a result or a clear error, in bounded time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

import toolkit as tk
from tests.covering import in_turn
from toolkit import VectorMapPanel
from toolkit.analysis import drift, fuse, recall, score_summary, threshold_for_precision
from toolkit.errors import ToolkitError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore::toolkit.errors.UnexpectedResultWarning"
    ),  # that is an answer
]

SECONDS = 30
"""Of processor time, for what takes one or two: a hang, or time that grows with the square, exceeds it."""

LONGEST = 2_000
"""Characters of a message."""

INFINITE, MISSING = float("inf"), float("nan")


def frame_of(vectors: list[Any], **columns: Any) -> pd.DataFrame:
    """A row a vector, with an id, a text and metadata where no other values are given."""
    size = len(vectors)
    values = {
        "namespace": [""] * size,
        "id": [f"r{number}" for number in range(size)],
        "data": [f"text {number}" for number in range(size)],
        "metadata": [json.dumps({"n": number}) for number in range(size)],
    } | columns
    frame = pd.DataFrame(
        {name: pd.Series(listed, dtype="str") for name, listed in values.items()}
    )
    frame.insert(2, "vector", pd.Series(vectors, dtype=object))
    return frame


def random_vectors(size: int, seed: int = 0) -> list[list[float]]:
    """Of two dimensions."""
    return np.random.default_rng(seed).standard_normal((size, 2)).tolist()


METADATA: dict[str, str] = {
    "no JSON": "{'n': 1}",
    "no object": "[1, 2, 3]",
    "a scalar": "NaN",
    "nested 10,000 deep": '{"a":' * 10_000 + "1" + "}" * 10_000,
    "lists nested 10,000 deep": '{"a":' + "[" * 10_000 + "]" * 10_000 + "}",
    "NaN and Infinity": '{"a": NaN, "b": [Infinity, -Infinity], "c": 1e999}',
    "lone surrogates": '{"\\ud800": "\\udfff", "a": "\\ud83d"}',
    "huge": json.dumps({"a": "x" * 5_000_000}),
    "huge numbers": '{"a": ' + "9" * 3_000 + "}",
    "3,000 fields": json.dumps({f"field {number}": number for number in range(3_000)}),
    "odd names": '{"": 1, "__proto__": 2, "$a_b$": 3, "\\u202ea": 4, "a.b[0]": 5, "id": 6, "n": {"x": [{}]}}',
    "a name twice": '{"a": 1, "a": "1"}',
}
SURROGATES = "\ud800 \udfff"


def with_surrogates() -> pd.DataFrame:
    """Texts that UTF-8 cannot hold, as Python's own strings can."""
    texts = ("namespace", "id", "data", "metadata")
    return frame_of(random_vectors(6)).assign(
        **{name: pd.Series([SURROGATES] * 6, dtype=object) for name in texts}
    )


FRAMES: dict[str, Callable[[], pd.DataFrame]] = {
    "nothing": lambda: frame_of([]),
    "one vector": lambda: frame_of([[1.0, 2.0]]),
    "two vectors": lambda: frame_of([[1.0, 2.0], [2.0, 1.0]]),
    "ordinary ones": lambda: frame_of(random_vectors(400)),
    "duplicates only": lambda: frame_of([[0.6, 0.8]] * 400),
    "duplicates of text, too": lambda: frame_of([[0.6, 0.8]] * 400, data=["the same"] * 400),
    "zero vectors only": lambda: frame_of([[0.0, 0.0]] * 20),
    "some zero vectors": lambda: frame_of([[0.0, 0.0], [-0.0, 0.0], *random_vectors(30)]),
    "NaN and infinity only": lambda: frame_of([[MISSING, 1.0], [INFINITE, 1.0], [-INFINITE, MISSING]]),
    "some NaN and infinity": lambda: frame_of([[MISSING, 1.0], [INFINITE, -INFINITE], *random_vectors(30)]),
    "nulls within": lambda: frame_of([[None, 1.0], [None, None], *random_vectors(30)]),
    "huge and tiny numbers": lambda: frame_of(
        [[3.4e38, 3.4e38], [-3.4e38, 1.0], [1e-45, 0.0], [1e-38, 1e-38], *random_vectors(30)]
    ),
    "beyond float32": lambda: frame_of([[1e300, 1.0], [1e-300, 1e-300], *random_vectors(30)]),
    "two dimensions": lambda: frame_of([[1.0, 2.0], [1.0, 2.0, 3.0]] * 20),
    "forty dimensions": lambda: frame_of([[1.0] * size for size in range(1, 41)]),
    "of no dimension": lambda: frame_of([[], [], []]),
    "some of no dimension": lambda: frame_of([[], *random_vectors(30)]),
    "texts only": lambda: frame_of([None] * 20),
    "sparse only": lambda: frame_of([None] * 20).assign(
        sparse_indices=pd.Series([[1, 2]] * 20), sparse_values=pd.Series([[0.5, 1.0]] * 20)
    ),
    "on a line": lambda: frame_of([[float(number), 0.0] for number in range(1, 300)]),
    "ids of every kind": lambda: frame_of(
        random_vectors(12),
        id=["", " ", "a", "A", "a ", "a\n", "\x00", "\u202e", "x" * 100_000, "é", "e\u0301", "#"],
    ),
    "one id for all": lambda: frame_of(random_vectors(30), id=["a"] * 30),
    "no ids": lambda: frame_of(random_vectors(30), id=[None] * 30),
    "no columns but vectors": lambda: frame_of(random_vectors(30))[["vector"]],
    "ids that are numbers": lambda: frame_of(random_vectors(30)).assign(id=range(30)),
    "ids of several types": lambda: frame_of(random_vectors(4)).assign(
        id=pd.Series([1, "a", None, 2.5], dtype=object)
    ),
    "300 namespaces": lambda: frame_of(random_vectors(300), namespace=[f"n{n}" for n in range(300)]),
    "odd namespaces": lambda: frame_of(
        random_vectors(5), namespace=[None, "", " ", "../x\x00", "$a_b$ <b>" * 1_000]
    ),
    "huge texts": lambda: frame_of(random_vectors(3), data=["x" * 5_000_000, "\x00" * 1_000_000, "<b>" * 9]),
    "dicts for metadata": lambda: frame_of(random_vectors(3)).assign(
        metadata=pd.Series([{"a": 1}, {"a": "x"}, {}], dtype=object)
    ),
    "texts for vectors": lambda: frame_of(["[1, 2]", "x"]),
    "texts within vectors": lambda: frame_of([["1", "2"], [1.0, 2.0]]),
    "vectors within vectors": lambda: frame_of([[[1.0], [2.0]], [[1.0], [2.0]]]),
    "numbers for vectors": lambda: frame_of([1.0, 2.0]),
    "lone surrogates": with_surrogates,
    "an index with repeats": lambda: frame_of(random_vectors(30)).set_index(pd.Index([0] * 30)),
    "a column twice": lambda: pd.concat([frame_of(random_vectors(3))] * 2, axis=1),
    **{
        f"metadata: {name}": lambda value=value: frame_of(random_vectors(12), metadata=[value, None] * 6)
        for name, value in METADATA.items()
    },
}  # fmt: skip


def shown(result: Any) -> None:
    """A result as a notebook shows it, with its plot painted."""
    assert isinstance(result.frame, pd.DataFrame)
    assert result.verdict
    assert repr(result)
    assert result._repr_html_()
    figure = Figure()
    result.plot(ax=figure.add_subplot())
    figure.canvas.draw()


def reported(report: tk.results.IndexReport) -> None:
    """All forms of a report but the PDF."""
    assert all([report.to_html(), report.to_markdown(), json.loads(report.to_json())])


ORDINARY = frame_of(random_vectors(60, seed=1))
OF_ANY: dict[str, Callable[[Any], Any]] = {
    "audit_vectors": lambda vectors: shown(tk.audit_vectors(vectors)),
    "calibrate_threshold": lambda vectors: shown(tk.calibrate_threshold(vectors)),
    "compare_vectors": lambda vectors: shown(tk.compare_vectors(vectors, ORDINARY)),
    "project_vectors": lambda vectors: shown(tk.project_vectors(vectors)),
}
OF_FRAMES: dict[str, Callable[[Any], Any]] = OF_ANY | {
    "audit_vectors of a sample": lambda vectors: tk.audit_vectors(vectors, sample=3),
    "calibrate_threshold by distance": lambda vectors: tk.calibrate_threshold(
        vectors, similarity="EUCLIDEAN"
    ),
    "compare_vectors, after": lambda vectors: shown(
        tk.compare_vectors(ORDINARY, vectors)
    ),
    "compare_vectors with themselves": lambda vectors: tk.compare_vectors(
        vectors, vectors
    ),
    "project_vectors by t-SNE": lambda vectors: tk.project_vectors(
        vectors, "tsne", sample=50
    ),
    "clusters": lambda vectors: tk.project_vectors(vectors).clusters(3),
    "plot_vector_map": lambda vectors: tk.plots.plot_vector_map(
        vectors, color="a"
    ).figure.canvas.draw(),
    "plot_vector_norms": lambda vectors: tk.plots.plot_vector_norms(
        vectors
    ).figure.canvas.draw(),
    "VectorMapPanel": lambda vectors: VectorMapPanel(vectors).frame,
    "report_index": lambda vectors: reported(
        tk.report_index(vectors, previous=vectors)
    ),
    "drift": lambda vectors: drift(tk.as_matrix(vectors), tk.as_matrix(ORDINARY)),
}


def bounded(what: str, function: Callable[..., Any], *values: Any) -> Any:
    """What a function returns, or the error by which it refuses; any other error fails the test."""
    before = time.process_time()
    try:
        result = function(*values)
    except ToolkitError as error:
        result = error
    except Exception as error:
        error.add_note(f"by {what}")
        raise
    assert time.process_time() - before < SECONDS, what
    assert not isinstance(result, ToolkitError) or len(str(result)) < LONGEST, what
    return result


@pytest.mark.parametrize("what", FRAMES)
def test_frames_have_a_result_or_a_clear_error(what):
    """Whatever vectors, ids, texts and metadata are; the frame stays as it was.

    Each frame meets every third function, and the next frame the next third.
    """
    frame = FRAMES[what]()
    before = frame.copy(deep=True)
    for name in in_turn(OF_FRAMES, list(FRAMES).index(what), of=3):
        bounded(name, OF_FRAMES[name], frame)
        plt.close("all")
    pd.testing.assert_frame_equal(frame, before)


CONTAINERS: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "Arrow": lambda frame, _: pa.Table.from_pandas(frame, preserve_index=False),
    "dataset": lambda frame, folder: as_dataset(frame, folder.with_suffix(".parquet")),
    "matrix": lambda frame, _: np.array(list(frame["vector"]), dtype=np.float64),
}
OF_CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "audit_vectors": tk.audit_vectors,
    "compare_vectors": lambda vectors: tk.compare_vectors(vectors, ORDINARY),
    "as_matrix": tk.as_matrix,
}
IMPOSSIBLE = (ToolkitError, pa.ArrowException, ValueError, TypeError, OverflowError)
"""By which the container itself cannot be made: no function of vectors sees it."""


def as_dataset(frame: pd.DataFrame, path: Path) -> ds.Dataset:
    """A file of a user's own, as pyarrow opens it."""
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)
    return ds.dataset(path)


@pytest.mark.parametrize("container", CONTAINERS)
def test_other_containers_have_a_result_or_a_clear_error(container, tmp_path):
    """Arrow, datasets and matrices of the same, if they can have these values.

    Each frame is audited in one kind of container and compared in the next.
    """
    tried = 0
    first = list(CONTAINERS).index(container)
    for number, (what, frame) in enumerate(FRAMES.items()):
        try:
            vectors = CONTAINERS[container](frame(), tmp_path / str(number))
        except IMPOSSIBLE:
            continue
        tried += 1
        for function in in_turn(OF_CONTAINERS, first + number, of=3):
            bounded(f"{function} of {what}", OF_CONTAINERS[function], vectors)
    assert tried > 10


SERVED = (
    "two vectors", "two dimensions", "some NaN and infinity", "ids of every kind", "ids of several types",
    "odd namespaces", "dicts for metadata", "texts for vectors", "lone surrogates", "sparse only",
    "metadata: nested 10,000 deep", "metadata: huge numbers", "metadata: odd names",
)  # fmt: skip
OF_SERVICES: dict[str, Callable[[tk.Service, Any], Any]] = {
    "audit_recall": lambda service, vectors: tk.audit_recall(
        service, vectors, sample=5
    ),
    "upsert_vectors": lambda service, vectors: tk.upsert_vectors(
        service, vectors, namespace="hostile"
    ),
    "update_vectors": lambda service, vectors: tk.update_vectors(
        service, vectors, namespace="hostile"
    ),
    "fetch_vectors": lambda service, vectors: tk.fetch_vectors(
        service, vectors["id"], namespace="hostile"
    ),
    "query": lambda service, vectors: tk.query(
        service, list(vectors["vector"])[:20], namespace="hostile"
    ),
    "delete_vectors": lambda service, vectors: tk.delete_vectors(
        service, vectors["id"], namespace="hostile", confirm=True
    ),
}


@pytest.mark.parametrize("kind", ["dense", "sparse", "hybrid"])
def test_services_have_a_result_or_a_clear_error(kind, local_indexes):
    """What queries an index or writes to it; the frames stay as they were, and the index can be read."""
    service = local_indexes[kind]
    for what in SERVED:
        frame = FRAMES[what]()
        before = frame.copy(deep=True)
        for name, function in OF_SERVICES.items():
            bounded(f"{name} of {what}", function, service, frame)
        pd.testing.assert_frame_equal(frame, before)
    assert tk.load_vectors(service, namespace="hostile", progress=False)["id"].is_unique


ODD: dict[str, Any] = {
    "nothing": None,
    "no items": [],
    "a number": 7,
    "text": "abc",
    "NaN": [MISSING] * 10,
    "infinite": [INFINITE, -INFINITE, 1.0],
    "huge": [1e308, -1e308, 5e-324],
    "texts": ["a", "b"],
    "nested": [[1.0, 2.0], [3.0]],
    "a matrix": [[1.0, 2.0], [3.0, 4.0]],
    "a matrix of huge numbers": [[1e308, -1e308], [5e-324, 0.0], [1e200, 1e200]],
    "pairs": [("a", 1.0), ("b", MISSING)],
    "pairs with texts for scores": [[("a", "x"), ("b", "y")]],
    "pairs with nothing for scores": [[("a", None), ("b", {})]],
    "ids that cannot be hashed": [[[1], {}], [{}]],
    "ids that cannot be hashed, scored": [[([], 1.0), ({}, 2.0)]],
    "an id twice": [["a", "a"]],
    "legs with huge scores": [[("a", 1e308), ("b", -1e308), ("c", 10**400)]],
    "legs": [["a", "b"], []],
    "objects": [object(), object()],
    "a dict": {"a": [1]},
    "sets": [{"a"}, {"b"}],
    "true and false": [True, False] * 40,
    "a frame": frame_of(random_vectors(3)),
    "complex numbers": [[1j, 2j]],
    "dates": np.array([["2026-01-01", "2026-01-02"]], dtype="datetime64[D]"),
}
OF_VALUES: dict[str, Callable[[Any], Any]] = {
    "fuse": fuse,
    "fuse by DBSF": lambda value: fuse(value, method="DBSF"),
    "recall": lambda value: recall(value, value),
    "recall of others": lambda value: recall([["a"], ["b"]], value),
    "recall against": lambda value: recall(value, [["a"], ["b"]]),
    "drift": lambda value: drift(value, value),
    "drift of groups": lambda value: drift(np.eye(2), np.eye(2), groups=value),
    "threshold_for_precision": lambda value: threshold_for_precision(
        value, value, precision=0.9
    ),
    "threshold_for_precision, labels": lambda value: threshold_for_precision(
        np.linspace(0, 1, 80), value, precision=0.9
    ),
    "score_summary": score_summary,
    "calibrate_threshold, labels": lambda value: tk.calibrate_threshold(
        ORDINARY, value
    ),
    "audit_vectors": tk.audit_vectors,
    "project_vectors": tk.project_vectors,
    "compare_vectors": lambda value: tk.compare_vectors(value, ORDINARY),
    "VectorMapPanel": VectorMapPanel,
    "report_index": tk.report_index,
}


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("function", OF_VALUES)
def test_values_of_any_kind_have_a_result_or_a_clear_error(function, what):
    """Where a matrix, rankings, scores or labels are expected."""
    bounded(function, OF_VALUES[function], ODD[what])


SCORES: dict[str, Any] = {
    "none": [],
    "one": [0.5],
    "equal": [0.5] * 500,
    "NaN and infinity": [MISSING, INFINITE, -INFINITE],
    "huge": [1.7e308, -1.7e308, 0.0],
    "missing": [None, None],
}


@pytest.mark.parametrize("what", SCORES)
def test_hits_with_odd_scores_have_a_result_or_a_clear_error(what):
    """Of one query, and as labels of which all, none and some match. A report is made of one kind each."""
    scores = SCORES[what]
    turn = list(SCORES).index(what)
    size = len(scores)
    hits = pd.DataFrame(
        {
            "query": [0] * size,
            "id": [f"r{n}" for n in range(size)],
            "rank": range(1, size + 1),
        }
    ).assign(score=pd.Series(scores, dtype="float64"))
    bounded("score_summary", score_summary, hits)
    matches = [
        [True] * size,
        [False] * size,
        [n % 2 == 0 for n in range(size)],
        [None] * size,
    ]
    for match in matches:
        labels = hits.assign(match=pd.Series(match, dtype=object))
        bounded(
            "calibrate_threshold",
            lambda labels=labels: shown(tk.calibrate_threshold(ORDINARY, labels)),
        )
    for match in in_turn(matches, turn, of=4):
        labels = hits.assign(match=pd.Series(match, dtype=object))
        bounded(
            "report_index",
            lambda labels=labels: reported(tk.report_index(ORDINARY, labels=labels)),
        )
