"""What a load did: as a value, as plain data, as text and as HTML."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit import summarize
from toolkit.errors import InputError
from toolkit.service.connecting import connect
from toolkit.tables.receipt import Receipt, get_receipt


def made(**changed) -> Receipt:
    whole = {
        "what": "failures",
        "source": "https://queue.example",
        "scope": {"label": ["a"]},
        "started_at": "2026-01-01T00:00:00.000+00:00",
        "ended_at": "2026-01-01T00:01:30.500+00:00",
        "pages": 12,
        "requests": 14,
        "retries": 2,
        "rows": 1_200,
        "bytes": 2_500_000,
        "assumptions": ("a cursor keeps its place",),
        "complete": True,
    }
    return Receipt(**(whole | changed))


def test_a_receipt_survives_plain_data_and_json():
    """to_dict is JSON-able and from_dict returns an equal value."""
    plain = made().to_dict()
    assert Receipt.from_dict(json.loads(json.dumps(plain))) == made()
    plain["scope"]["label"].append("changed later")
    assert made().scope == {"label": ["a"]}


def test_plain_data_of_other_versions_is_read():
    """Names of a later version are left out, names a former one did not have take their default."""
    plain = made().to_dict() | {"shards": 4}
    del plain["filtered_here"], plain["reasons"]
    assert Receipt.from_dict(plain) == made()


@pytest.mark.parametrize("plain", [{}, {"what": "failures"}])
def test_an_invalid_receipt_is_refused(plain):
    """Missing names are an error that says which."""
    with pytest.raises(InputError, match="started_at"):
        Receipt.from_dict(plain)


def test_the_verdict_says_complete_or_why_not():
    """One sentence, with the reasons where there are some."""
    assert made().verdict == "complete: 1,200 failures"
    short = made(
        complete=False, reasons=("only the first 5 were requested", "3 changed")
    )
    assert (
        short.verdict
        == "not complete: 1,200 failures; only the first 5 were requested; 3 changed"
    )
    assert made(complete=False).verdict.endswith("the load did not end")
    assert made(rows=1).verdict == "complete: 1 failure"


def test_a_receipt_is_not_complete_unless_it_says_so():
    """Without `complete=`, a receipt says that it is not complete."""
    bare = Receipt(
        what="x",
        source="y",
        scope={},
        started_at="2026-01-01T00:00:00Z",
        ended_at="2026-01-01T00:00:00Z",
    )
    assert not bare.complete


def test_as_text_it_tells_the_work():
    """Pages, requests, retries, megabytes, seconds."""
    assert (
        str(made())
        == "complete: 1,200 failures (12 pages, 14 requests, 2 retries, 2.5 MB, 90.5 s)"
    )


@given(st.text(max_size=40))
def test_its_html_escapes_every_value(text):
    """Sources, scopes and reasons come from outside: no markup of theirs gets through."""
    shown = made(
        source=f"<script>{text}",
        scope={text: "<b>"},
        reasons=(text, "<i>"),
        complete=False,
    )._repr_html_()
    for markup in ("<script>", "<b>", "<i>"):
        assert markup not in shown
    outside = (
        shown.replace("<table>", "")
        .replace("</table>", "")
        .replace("<caption>", "")
        .replace("</caption>", "")
        .replace("<span>", "")
        .replace("</span>", "")
    )
    for tag in (
        '<tr><th scope="row" style="text-align:left">',
        "</th>",
        '<td style="text-align:left">',
        "</td></tr>",
    ):
        outside = outside.replace(tag, "")
    assert not set("<>\"'") & set(outside)


def test_its_html_leaves_out_what_is_empty_and_keeps_zero_and_false():
    """Nothing is said of limits that were not set; zero rows and not complete are said."""
    shown = made(rows=0, complete=False, assumptions=())._repr_html_()
    assert "limit" not in shown
    assert "assumptions" not in shown
    for name, value in (("rows", "0"), ("complete", "False")):
        assert f'>{name}</th><td style="text-align:left">{value}</td>' in shown


def test_a_frame_has_its_receipt_also_when_sliced():
    """It travels as plain data in attrs; a frame without one is an error that says what to do."""
    frame = pd.DataFrame({"a": [1, 2, 3]})
    frame.attrs["receipt"] = made(rows=3).to_dict()
    assert get_receipt(frame) == made(rows=3)
    assert get_receipt(frame[frame["a"] > 1].head(1)) == made(rows=3, frame_rows=1)
    for bare in (pd.DataFrame(), pd.concat([frame, pd.DataFrame({"a": [1]})])):
        with pytest.raises(InputError, match="loader"):
            get_receipt(bare)


def test_a_derived_frame_is_not_reported_as_complete():
    """Filtering, copying and sorting keep the receipt, and it says how many of the rows loaded are there."""
    frame = pd.DataFrame(
        {"dlq_id": [f"d{number}" for number in range(1_200)], "n": range(1_200)}
    )
    frame.attrs["receipt"] = made().to_dict()
    assert (
        get_receipt(frame.copy())
        == get_receipt(frame.sort_values("n"))
        == get_receipt(frame[["n"]])
        == made()
    )
    some = frame[frame["n"] < 10]
    assert (
        get_receipt(some).verdict
        == "complete: 1,200 failures; this frame has 10 of the 1,200 rows loaded"
    )
    told = summarize(some)
    assert told.complete is None
    assert "10 of the 1,200 rows of the load, which was complete" in repr(told)
    assert summarize(frame).complete is True
    assert get_receipt(pd.concat([frame, frame])).verdict.endswith(
        "this frame has 2,400 rows, not the 1,200 loaded"
    )


def test_frames_of_one_load_keep_its_receipt_and_frames_of_two_have_none():
    """Concat and merge keep what all frames say alike, and drop what they do not."""
    frame = pd.DataFrame({"dlq_id": ["a", "b"]})
    frame.attrs["receipt"] = made(rows=2).to_dict()
    other = frame.copy()
    other.attrs["receipt"] = made(rows=2, source="https://other.example").to_dict()
    assert get_receipt(pd.concat([frame.head(1), frame.tail(1)])) == made(rows=2)
    assert get_receipt(frame.merge(frame.copy(), on="dlq_id")) == made(rows=2)
    for derived in (
        pd.concat([frame, other]),
        frame.merge(other, on="dlq_id"),
        frame.merge(pd.DataFrame({"dlq_id": ["a"]})),
        frame.groupby("dlq_id").size().to_frame(),
    ):
        with pytest.raises(InputError, match="several loads"):
            get_receipt(derived)


def test_no_text_of_a_receipt_shows_a_token_of_this_process():
    """A receipt may come from a file that anybody wrote: every text in it is masked."""
    token = "r3ceipt/canary+of-mine=="
    connected = connect(queue_url="http://127.0.0.1:9", queue_token=token)
    texts = dict.fromkeys(("what", "source"), token)
    lists = dict.fromkeys(("assumptions", "notes", "reasons"), (token,))
    written = (
        made(complete=False).to_dict() | texts | lists | {"scope": {token: [token]}}
    )
    shown = Receipt.from_dict(written)
    assert token not in f"{shown!r} {shown} {shown._repr_html_()} {shown.to_dict()}"
    assert connected
