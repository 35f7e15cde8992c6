"""Bodies are exact in frames, and masked where pandas shows them."""

from __future__ import annotations

import json
import pickle

import pandas as pd
import pytest

from toolkit.tables.frames import (
    ExactText,
    frame_from_rows,
    frame_html,
    to_frame,
    to_table,
)
from toolkit.tables.receipt import Receipt
from toolkit.tables.schemas import FAILURES

CANARY = "Zq7canary9XtR4vLm2"
BODY = json.dumps({"user": "ann", "password": CANARY})


@pytest.fixture
def frame() -> pd.DataFrame:
    """Two failures, one without bodies."""
    rows = [
        {"dlq_id": "a", "body": BODY, "response_body": f"password: {CANARY}\nline two"},
        {"dlq_id": "b"},
    ]
    return frame_from_rows(rows, FAILURES)


@pytest.mark.parametrize(
    "show",
    [
        repr,
        str,
        lambda frame: frame._repr_html_(),
        lambda frame: frame.to_string(),
        lambda frame: frame.to_html(),
        lambda frame: repr(frame["body"]) + repr(frame["response_body"]),
        lambda frame: repr(frame["body"].array),
        lambda frame: repr(frame["body"].unique()),
        lambda frame: repr(frame.groupby("body").size()),
        lambda frame: repr(frame["response_body"].value_counts()),
        lambda frame: repr(frame.set_index("body")),
        lambda frame: repr(frame[frame["dlq_id"] == "a"]),
        lambda frame: repr(pd.concat([frame, frame])),
        lambda frame: repr(frame.merge(frame[["dlq_id"]], on="dlq_id")),
        lambda frame: repr(frame.sort_values("body").reset_index(drop=True)),
        lambda frame: repr(frame.copy()),
        lambda frame: repr(frame.fillna({"body": "none"})),
        lambda frame: repr(frame.assign(body=frame["body"].str.strip())),
        lambda frame: repr(pickle.loads(pickle.dumps(frame))),  # noqa: S301 - written here
    ],
)
@pytest.mark.parametrize("width", [50, None])
def test_a_frame_shows_its_bodies_masked(frame, show, width):
    """Also its parts, what was made of it by sorting, joining and grouping, and cells in full width."""
    with pd.option_context(
        "display.max_colwidth",
        width,
        "display.max_columns",
        None,
        "display.width",
        10_000,
    ):
        shown = show(frame)
    assert CANARY not in shown
    assert "Zq7" not in shown
    assert "masked len=" in shown


def test_the_values_are_exact_and_the_column_is_pandas_own(frame, tmp_path):
    """As values, in files, in Arrow, compared, and as the type ``str``."""
    assert frame["body"][0] == BODY
    assert frame["body"].dtype == pd.Series(["a"], dtype="str").dtype
    assert json.loads(frame["body"][0])["password"] == CANARY
    assert frame["body"].tolist()[0] == frame.to_dict("records")[0]["body"] == BODY
    assert frame["body"].str.contains(CANARY).tolist() == [True, False]
    assert to_table(frame, FAILURES)["body"].to_pylist() == [BODY, None]
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_csv(tmp_path / "a.csv")
    assert pd.read_parquet(tmp_path / "a.parquet")["body"][0] == BODY
    assert pd.read_csv(tmp_path / "a.csv")["body"][0] == BODY
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "a.parquet"), frame, check_dtype=True
    )


def test_cells_look_as_pandas_writes_them_otherwise():
    """Line ends, quotes, missing values and long texts are shown as in any other column."""
    texts = ["a\nb\tc", 'it\'s "x"', None, "long " * 100, ""]
    frame = frame_from_rows(
        [{"dlq_id": str(n), "body": text} for n, text in enumerate(texts)], FAILURES
    )
    plain = pd.DataFrame({"body": pd.Series(texts, dtype="str")})
    assert isinstance(frame["body"].array, ExactText)
    assert repr(frame[["body"]]) == repr(plain)
    assert frame[["body"]].to_html() == plain.to_html()


def test_revealed_frames_show_bodies_as_they_are():
    """Frames that reveal secrets show them."""
    table = to_table(
        frame_from_rows([{"dlq_id": "a", "body": BODY}], FAILURES), FAILURES
    )
    receipt = Receipt(
        what="failures",
        source="x",
        scope={"revealed": True},
        started_at="",
        ended_at="",
        rows=1,
    )
    for frame in (to_frame(table, receipt), to_frame(table, reveal=True)):
        assert CANARY in frame["body"].to_string()


def test_texts_of_hits_are_aligned_at_the_left():
    """By column, as notebooks show them: ids and metadata at the left, numbers as they are."""
    hits = pd.DataFrame(
        {
            "query": [0],
            "id": pd.array(["a"], "str"),
            "score": [0.5],
            "data": pd.array(["t"], "str"),
        }
    )
    assert "tk-left" not in frame_html(hits)
    hits.attrs["queries"] = [{"data": "t"}]
    shown = frame_html(hits)
    assert (
        "<style>.tk-left-3-5 :is(th,td):is(:nth-child(3),:nth-child(5)) {text-align: left}</style>"
        in shown
    )
    assert '<div class="tk-frame tk-left-3-5">' in shown
    assert "text-align: left}" not in frame_html(hits[["query", "score"]])
