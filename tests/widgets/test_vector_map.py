"""A map of vectors: what is sent to the page, what chooses points, and what a query marks."""

import json
import time

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from tests.accuracy.ill_indexes import healthy_rows, to_frame
from tests.widgets.page import choose, write
from toolkit.errors import FilterSyntaxError, InputError


@pytest.fixture(scope="module")
def frame():
    """An index of 12 topics."""
    return to_frame(healthy_rows(300, seed=6))


@pytest.fixture
def panel(frame):
    """The map of it."""
    return tk.VectorMapPanel(frame)


def act(panel, **content):
    """What the page sends."""
    panel._handle_custom_msg(content, [])


def box(x, y):
    """A lasso around a rectangle."""
    return [[x[0], y[0]], [x[1], y[0]], [x[1], y[1]], [x[0], y[1]]]


def test_points_are_sent_as_one_buffer(panel, frame):
    """Two float32 a point and a byte for its colour, in a binary message, nothing of it as JSON."""
    assert len(panel.points) == 8 * len(frame)
    sent = np.frombuffer(panel.points, "<f4").reshape(-1, 2)
    assert np.allclose(sent, panel.projection.frame[["x", "y"]])
    state, _, buffers = __import__("ipywidgets").widgets.widget._remove_buffers(
        panel.get_state()
    )
    assert sum(len(bytes(buffer)) for buffer in buffers) == (8 + 1 + 1) * len(frame)
    own = {name: part for name, part in state.items() if name not in ("_esm", "_css")}
    assert len(json.dumps(own)) < 4_000


def test_a_lasso_selects_what_is_inside_it(panel):
    """A polygon in the units of the points; with add, beside what was selected; then a frame and code."""
    points = panel.projection.frame
    left = points["x"] < points["x"].median()
    act(
        panel,
        kind="lasso",
        path=box((-9, float(points["x"].median())), (-9, 9)),
        add=False,
    )
    assert panel.selection == points["id"][left].tolist()
    assert panel.selected.equals(points[left])
    vectors = points
    assert (
        eval(panel.to_code(), {"tk": tk, "vectors": vectors})["id"].tolist()  # noqa: S307
        == panel.selection
    )
    assert (
        np.frombuffer(panel.selected_points, "u1").astype(bool).tolist()
        == left.tolist()
    )
    act(panel, kind="lasso", path=box((-9, 9), (-9, 9)), add=True)
    assert len(panel.selection) == len(points)
    act(panel, kind="lasso", path=box((5, 6), (5, 6)), add=False)
    assert panel.selected.empty
    assert list(panel.selected.columns) == list(points.columns)


def test_a_filter_selects_as_match_metadata_does(panel, frame):
    """Typed or called: the same rows, and its code is the filter."""
    expected = frame["id"][
        tk.match_metadata(frame, "topic = 11 AND year > 2020")
    ].tolist()
    write(panel.filter.text, "topic = 11 AND year > 2020")
    assert panel.selection == expected
    assert (
        panel.to_code().splitlines()[-1]
        == "vectors[tk.match_metadata(vectors, 'topic = 11 AND year > 2020')]"
    )
    panel.value = expected[:2]
    assert "panel.selected" in panel.counts
    ids = "".join(f"    {identity!r},\n" for identity in expected[:2])
    assert panel.to_code().endswith(f"\nvectors[vectors['id'].isin([\n{ids}])]")
    with pytest.raises(FilterSyntaxError):
        panel.select("topic =")
    panel.clear()
    assert "panel.selected" not in panel.counts
    nothing = eval(panel.to_code(), {"vectors": frame})  # noqa: S307 - our own code
    assert len(nothing) == 0
    assert panel.value == ()


def test_ids_of_several_namespaces_stay_apart(frame):
    """A pair names one vector, an id all that have it."""
    both = pd.concat(
        [frame.head(30), frame.head(30).assign(namespace="other")], ignore_index=True
    )
    panel = tk.VectorMapPanel(both, value=[("other", "doc-00003")])
    assert panel.selected["namespace"].tolist() == ["other"]
    assert eval(panel.to_code(), {"vectors": both})["namespace"].tolist() == ["other"]  # noqa: S307
    panel.value = ["doc-00003"]
    assert panel.value == (("", "doc-00003"), ("other", "doc-00003"))
    with pytest.raises(InputError, match=r"Did you mean 'doc-000\d3'"):
        panel.value = ["doc-0003"]


def test_colours_are_categories_numbers_clusters_or_scores(panel, frame):
    """A byte a point, and a legend that says what it means."""
    panel.projection.frame["kind"] = "topic " + panel.projection.values("topic").astype(
        "str"
    )
    other = tk.VectorMapPanel(panel.projection, color="kind")
    codes = np.frombuffer(other.colours, "u1")
    assert len(other.legend) == 9
    assert codes.max() == 8
    first = other.legend[0].partition(" (")[0]
    assert set(other.projection.frame["kind"][codes == 0]) == {first}
    choose(panel.colour, "year")
    assert panel.scaled
    years = panel.projection.values("year").to_numpy()
    codes = np.frombuffer(panel.colours, "u1")
    assert (np.diff(codes[np.argsort(years)].astype(int)) >= 0).all()
    assert panel.legend == ["year: 2,015 to 2,025"]
    choose(panel.colour, "cluster (k-means)")
    assert not panel.scaled
    assert len(panel.legend) == 8
    assert tk.VectorMapPanel(frame, color="lang").legend == ["en (300)"]
    with pytest.raises(InputError, match="color"):
        tk.VectorMapPanel(frame, color="no such")


def test_no_value_and_an_empty_one_have_names(frame):
    """They are no entry without a name, and no value has no colour of its own."""
    frame = frame.head(6).assign(kind=["", "", "", None, None, "a"])
    panel = tk.VectorMapPanel(frame, color="kind")
    assert panel.legend == ["(empty) (3)", "(none) (2)", "a (1)"]
    assert panel.none == 1
    assert list(panel.colours) == [0, 0, 0, 255, 255, 2]
    assert tk.VectorMapPanel(frame.dropna(subset="kind"), color="kind").none == -1


def test_a_map_of_nothing_says_so(frame):
    """A sentence, as of the plot, where the canvas would be empty."""
    panel = tk.VectorMapPanel(frame.head(0))
    assert "No usable vectors: 0 vectors." in panel.about
    assert panel.points == b""
    assert panel.selected.empty


def test_what_is_said_of_a_point_is_masked_text(frame):
    """Its id and text, without secrets; markup stays text."""
    hostile = frame.head(20).assign(
        data=[
            "<img src=x onerror=alert(1)> Bearer abcdefghijklmnopqrstuvwxyz0123456789"
        ]
        * 20
    )
    panel = tk.VectorMapPanel(hostile)
    sent = []
    panel.send = lambda content, buffers=None: sent.append(content)
    act(panel, kind="point", position=4)
    assert sent[0]["position"] == 4
    assert sent[0]["text"].startswith("doc-00004 · <img")
    assert "abcdefghij" not in sent[0]["text"]
    assert "abcdefghij" not in str(panel._repr_mimebundle_())
    panel.value = panel.projection.frame["id"].tolist()
    assert "<img" not in panel._repr_mimebundle_()["text/html"]


def _lasso(*corners):
    return {"kind": "lasso", "path": list(corners), "add": False}


WRONG_MESSAGES = [
    {"kind": "point", "position": 10**9}, {"kind": "point", "position": -1},
    {"kind": "choose", "position": "0"}, _lasso([0, 0]), _lasso([0, 0], [1, "x"], [1, 1]),
    _lasso([0, 0], [1, float("nan")], [1, 1]), {"kind": "lasso", "path": "x"}, {"kind": "unknown"}, {}, [],
    None, "x", {"kind": ["lasso"]},
]  # fmt: skip


@pytest.mark.parametrize("content", WRONG_MESSAGES, ids=str)
def test_messages_that_the_page_would_not_send_change_nothing(panel, content):
    """No error, no selection."""
    panel._handle_custom_msg(content, [])
    assert panel.value == ()


def test_hits_are_marked_and_points_are_queried_from(sample_service):
    """A result of the linked panel is on the map; choosing a point runs a query by its id there."""
    vectors = tk.load_vectors(sample_service, namespace="runbooks", progress=False)
    query = tk.QueryPanel(sample_service, frame=vectors)
    panel = tk.VectorMapPanel(vectors, query=query)
    query.value = tk.VectorQuery(
        data="the certificate has expired", namespace="runbooks", top_k=5
    )
    hits = query.run()
    marked = panel.projection.frame["id"].iloc[panel.hits].tolist()
    assert sorted(marked) == sorted(hits["id"])
    assert panel.message == "5 of 5 hits are on the map."
    choose(panel.colour, "score of the query")
    codes = np.frombuffer(panel.colours, "u1")
    assert (codes != 255).sum() == 5
    best = panel.projection.frame["id"].tolist().index(hits["id"].iloc[0])
    assert codes[best] == 254
    identity = panel.projection.frame["id"].iloc[7]
    panel.choose(7)
    deadline = time.monotonic() + 30
    while 7 not in panel.hits:
        assert time.monotonic() < deadline, query.message
        time.sleep(0.02)
    assert query.frame()["id"].iloc[0] == identity
    assert query.value.vector is not None
    with pytest.raises(InputError, match="a position among"):
        panel.choose(10**6)


def test_few_points_and_none_are_maps_too():
    """Nothing to draw, one point, vectors without metadata."""
    empty = tk.VectorMapPanel(np.zeros((0, 3)))
    assert empty.run().empty
    one = tk.VectorMapPanel(np.ones((1, 3)), value=["0"])
    assert one.selection == ["0"]
    assert "1 vector" in repr(one.projection)
    with pytest.raises(InputError, match="metadata"):
        one.select("a = 1")


def test_the_value_survives_the_cell(frame):
    """With a key, the selection is there again; another value of the cell wins."""
    first = tk.VectorMapPanel(frame, key="map-of-the-test")
    first.value = ["doc-00001"]
    assert tk.VectorMapPanel(frame, key="map-of-the-test").selection == ["doc-00001"]
    assert tk.VectorMapPanel(
        frame, value=["doc-00002"], key="map-of-the-test"
    ).selection == ["doc-00002"]


@pytest.mark.parametrize("item", [(None, []), ({}, "doc-00001"), ["doc-00001"]])
def test_a_value_that_is_no_key_is_refused(frame, item):
    """Nothing is looked up that has no hash, for example a list in a tuple."""
    with pytest.raises(InputError, match="the id of a vector on the map"):
        tk.VectorMapPanel(frame, value=[item])
