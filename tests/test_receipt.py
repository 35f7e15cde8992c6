"""What a load did: as a value, as plain data, as text and as HTML."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.errors import InputError
from toolkit.receipt import Receipt, receipt


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
    """to_dict is JSON-able and from_dict gives an equal value back."""
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
def test_what_is_no_receipt_is_refused(plain):
    """Missing names are an error that says which."""
    with pytest.raises(InputError, match="started_at"):
        Receipt.from_dict(plain)


def test_the_verdict_says_complete_or_why_not():
    """One sentence, with the reasons where there are some."""
    assert made().verdict == "complete: 1,200 failures"
    short = made(complete=False, reasons=("only the first 5 were asked for", "3 moved"))
    assert short.verdict == "not complete: 1,200 failures; only the first 5 were asked for; 3 moved"
    assert made(complete=False).verdict.endswith("the load did not end")


def test_a_receipt_is_not_complete_unless_it_says_so():
    """Who forgets to say it gets the careful answer."""
    bare = Receipt(
        what="x", source="y", scope={}, started_at="2026-01-01T00:00:00Z", ended_at="2026-01-01T00:00:00Z"
    )
    assert not bare.complete


def test_as_text_it_tells_the_work():
    """Pages, requests, retries, megabytes, seconds."""
    assert str(made()) == "complete: 1,200 failures (12 pages, 14 requests, 2 retries, 2.5 MB, 90.5 s)"


@given(st.text(max_size=40))
def test_its_html_escapes_every_value(text):
    """Sources, scopes and reasons come from outside: no markup of theirs gets through."""
    shown = made(
        source=f"<script>{text}", scope={text: "<b>"}, reasons=(text, "<i>"), complete=False
    )._repr_html_()
    for markup in ("<script>", "<b>", "<i>"):
        assert markup not in shown
    outside = (
        shown.replace("<table>", "")
        .replace("</table>", "")
        .replace("<caption>", "")
        .replace("</caption>", "")
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


def test_a_frame_gives_its_receipt_back_also_when_sliced():
    """It travels as plain data in attrs; a frame without one is an error that says what to do."""
    frame = pd.DataFrame({"a": [1, 2, 3]})
    frame.attrs["receipt"] = made().to_dict()
    assert receipt(frame) == receipt(frame[frame["a"] > 1].head(1)) == made()
    for bare in (pd.DataFrame(), pd.concat([frame, pd.DataFrame({"a": [1]})])):
        with pytest.raises(InputError, match="loader"):
            receipt(bare)
