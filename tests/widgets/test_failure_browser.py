"""Browsing failures: search, order and selection as a value; one failure in full; no markup from data."""

from __future__ import annotations

import base64
import json
import re
import sys
import threading
import types

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolkit as tk
from tests.widgets.payloads import PAYLOADS
from toolkit import FailureFilterPanel, FailurePanel, FailureView
from toolkit.errors import InputError
from toolkit.filters.failure import FailureFilter
from toolkit.secrets.redaction import Redactor, visible
from toolkit.widgets.failure_detail import coloured, detail_markup
from toolkit.widgets.failure_rows import SORTABLE

REDACT = Redactor(key=b"test")
ELEMENTS = {
    "div", "section", "h4", "dl", "dt", "dd", "p", "table", "caption", "tbody", "thead", "tr", "th", "td",
    "pre", "b", "span", "wbr",
}  # fmt: skip


def test_there_are_a_hundred_payloads():
    """There are as many payloads as promised."""
    assert len(set(PAYLOADS)) >= 100


@given(
    search=st.text(max_size=5),
    sort_by=st.sampled_from(SORTABLE),
    ascending=st.booleans(),
    selected=st.lists(st.text(max_size=4)),
)
def test_the_code_of_a_view_makes_it_again(**parts):
    """Value to code to value."""
    view = FailureView(**parts)
    assert (
        eval(view.to_code(), {"tk": types.SimpleNamespace(FailureView=FailureView)})  # noqa: S307
        == view
    )


@pytest.mark.parametrize(
    "parts", [{"sort_by": "body"}, {"search": 7}, {"selected": "a"}, {"selected": [1]}]
)
def test_a_view_that_cannot_be_is_refused(parts):
    """Wrong columns and kinds are errors."""
    with pytest.raises(InputError):
        FailureView(**parts)


@pytest.fixture
def browser(failures):
    """A browser of a dozen failures."""
    return FailurePanel(failures, redactor=REDACT)


def test_search_order_and_selection_are_the_value(browser):
    """Setting the value arranges the table; the selection is a frame in the order of selecting."""
    browser.value = FailureView(
        search="BUSY", sort_by="created_at", ascending=True, selected=["dlq_3", "dlq_0"]
    )
    assert browser.found()["dlq_id"].tolist() == ["dlq_9", "dlq_6", "dlq_3", "dlq_0"]
    assert browser.frame()["dlq_id"].tolist() == ["dlq_3", "dlq_0"]
    assert browser.view["search"] == "BUSY"
    assert "4 of 12 failures · 2 selected" in browser.view["counts"]
    browser.select_found()
    assert browser.value.selected == ("dlq_3", "dlq_0", "dlq_9", "dlq_6")
    browser.clear_selection()
    assert len(browser.frame()) == 0
    assert browser.frame().columns.tolist() == browser.found().columns.tolist()


def test_the_frame_stays_as_it_is(browser, failures, make):
    """Browsing changes nothing in the frame that it was given."""
    before = failures.copy(deep=True)
    browser.value = FailureView(search="pay", sort_by="label")
    browser.select_found()
    pd.testing.assert_frame_equal(failures, before)


@pytest.mark.parametrize("column", SORTABLE)
@pytest.mark.parametrize("ascending", [True, False])
def test_every_column_sorts_with_missing_values_last(make, column, ascending):
    """Sorted stably, as pandas does, missing values last in both directions."""
    values = {
        "failed_at": pd.Timestamp("2026-01-02", tz="UTC"), "created_at": pd.Timestamp("2026-01-02", tz="UTC"),
        "response_status": 500, "max_retries": 3,
    }  # fmt: skip
    rows = [{"dlq_id": f"d{n}", column: values.get(column, "b")} for n in (1, 2)]
    smaller = {
        name: value - (pd.Timedelta(days=1) if "at" in name[-2:] else 1)
        for name, value in values.items()
    }
    rows = [
        {"dlq_id": "none"},
        *rows,
        {"dlq_id": "small", column: smaller.get(column, "a")},
    ]
    browser = FailurePanel(
        make(rows), value=FailureView(sort_by=column, ascending=ascending)
    )
    expected = ["small", "d1", "d2"] if ascending else ["d1", "d2", "small"]
    assert browser.found()["dlq_id"].tolist() == [*expected, "none"]


@pytest.mark.slow
@settings(deadline=None)  # a browser is made each time
@given(st.text(max_size=6), st.lists(st.text(max_size=12), min_size=1, max_size=5))
def test_the_search_finds_what_python_finds(search, bodies):
    """A row is found when each word is in one of its fields, in any case; no word spans two fields."""
    frame = pd.DataFrame(
        {"dlq_id": [f"{n}" for n in range(len(bodies))], "body": bodies}
    )
    words = [quoted or bare for quoted, bare in re.findall(r'"([^"]*)"|(\S+)', search)]
    expected = [
        f"{number}"
        for number, body in enumerate(bodies)
        if all(
            any(_lower(word) in _lower(text) for text in (str(number), body))
            for word in words
        )
    ]
    assert FailurePanel(
        frame, value=FailureView(search=search), redactor=REDACT
    ).found()["dlq_id"].tolist() == (expected)


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("429", [0, 2, 4, 6, 8, 10]),
        ("429 pay", [2, 4, 8, 10]),
        ("pay 429 declined", [2, 4, 8, 10]),
        ('order "7 was"', [7]),
        ('"order 7" ORDER', [7]),
        ('"7 order"', []),
        ("dlq_11", [11]),
        ("wfr_3 mail", [3]),
        ("192.0.2.3 eu", [3, 7, 11]),
        ("2026-03-10 11:00", [1]),
        ("callback_fail", [0, 4, 8]),
        ("failed 500", []),
        ("404", []),
        ("", list(range(12))),
    ],
)
def test_the_search_covers_every_column(browser, search, found):
    """Status, error, workflow, run, caller, labels, times, state and ids: all words must be found."""
    browser.value = FailureView(search=search)
    assert sorted(browser.found()["dlq_id"]) == sorted(
        f"dlq_{number}" for number in found
    )


def test_the_statuses_of_the_sample_are_found(sample_service):
    """A status finds the failures that have it, not an order of this number; in quotes it is text."""
    failures = tk.load_failures(sample_service, progress=False)
    browser = FailurePanel(failures, value=FailureView(search="429"))
    assert (browser.found()["response_status"] == 429).all()
    assert len(browser.found()) == (failures["response_status"] == 429).sum() > 600
    assert "429 as status" in browser.view["remarks"]
    browser.value = FailureView(search="orders/fulfil 500")
    expected = failures["workflow_url"].str.endswith("orders/fulfil") & (
        failures["response_status"] == 500
    )
    assert set(browser.found()["dlq_id"]) == set(failures.loc[expected, "dlq_id"])
    browser.value = FailureView(search='"429"')
    assert not (browser.found()["response_status"] == 429).all()


def test_a_failure_without_a_time_is_sorted_by_that_of_its_message(make):
    """Without a time of failure, the time its message was created is shown, marked, and sorted by."""
    rows = [
        {"dlq_id": "a", "failed_at": pd.Timestamp("2026-01-03", tz="UTC")},
        {"dlq_id": "b", "created_at": pd.Timestamp("2026-01-02 05:06:07", tz="UTC")},
        {"dlq_id": "c", "failed_at": pd.Timestamp("2026-01-01", tz="UTC"),
         "created_at": pd.Timestamp("2025-01-01", tz="UTC")},
        {"dlq_id": "d"},
    ]  # fmt: skip
    browser = FailurePanel(make(rows))
    assert browser.found()["dlq_id"].tolist() == ["a", "b", "c", "d"]
    assert [cells[1] for cells in browser.page(0, 4)] == [
        "2026-01-03 00:00:00", "≥ 2026-01-02 05:06:07", "2026-01-01 00:00:00", "",
    ]  # fmt: skip


def test_a_failure_in_whole_seconds_is_not_later_than_it_was():
    """Its message was created in the same second, of which milliseconds are known."""
    row = {
        "created_at": pd.Timestamp("2026-01-02 15:08:55.663", tz="UTC"),
        "failed_at": pd.Timestamp("2026-01-02 15:08:55", tz="UTC"),
    }
    assert "15:08:55 UTC · 0 s later" in detail_markup(row, REDACT)


def test_an_exception_is_shown_by_its_own_name(make):
    """The packages before it would fill the column."""
    body = "java.net.SocketTimeoutException: Read timed out\n\tat a.b(C.java:1)"
    browser = FailurePanel(make([{"dlq_id": "a", "response_body": body}]))
    assert browser.page(0, 1)[0][4] == "SocketTimeoutException: Read timed out"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://a.example/flows/pay", "flows/pay"),
        ("https://a.example/pay", "a.example/pay"),
        ("pay", "pay"),
    ],
)
def test_a_single_workflow_is_shown_by_its_end(make, url, shown):
    """Its beginning, which other workflows share, would fill the column."""
    browser = FailurePanel(
        make(
            [{"dlq_id": "a", "workflow_url": url}, {"dlq_id": "b", "workflow_url": url}]
        )
    )
    assert [cells[2] for cells in browser.page(0, 2)] == [shown, shown]


def test_plain_messages_are_told_apart_by_their_address(make):
    """No row has a workflow: the column shows what was called, is sorted by it, and a search names it."""
    base = "https://shop.example/hooks/"
    rows = [
        {"dlq_id": name, "url": f"{base}{name}"} for name in ("pay", "mail", "ship")
    ]
    browser = FailurePanel(make(rows), value=FailureView(sort_by="url", ascending=True))
    assert {
        "name": "url",
        "label": "Address",
        "sortable": True,
    } in browser.table["columns"]
    assert "Workflow" not in [column["label"] for column in browser.table["columns"]]
    assert [cells[2] for cells in browser.page(0, 3)] == ["mail", "pay", "ship"]
    browser.value = FailureView(search="shipp")
    assert "Did you mean &#39;ship&#39;?" in browser.view["remarks"]


def test_a_search_that_finds_nothing_shows_nothing_and_keeps_the_selection(browser):
    """The selection stays, with a count of hidden rows; only matches are shown."""
    browser.value = FailureView(search="mail", selected=["dlq_0", "dlq_1"])
    assert "2 selected, 1 of them not among those found" in browser.view["counts"]
    browser.value = browser.value.replace(search="no such thing")
    assert "2 selected, 2 of them not among those found" in browser.view["counts"]
    assert browser.frame()["dlq_id"].tolist() == ["dlq_0", "dlq_1"]
    assert "dlq_" not in browser.detail
    assert browser.table["shown"] == -1
    browser.value = browser.value.replace(search="dlq_7")
    assert "dlq_7" in browser.detail
    browser.value = browser.value.replace(search="")
    assert "dlq_7" in browser.detail  # it is found: it stays
    assert browser._id_at(browser.table["shown"]) == "dlq_7"


def test_ids_and_code_of_the_selection_are_copied(browser, failures):
    """The page receives the exact ids, or code that makes the same rows; uncopied text is shown."""
    sent = []
    browser.send = sent.append
    browser.value = FailureView(selected=["dlq_3", "dlq_1"])
    browser.press("Copy ids")
    assert sent[-1] == {
        "kind": "copy",
        "text": "dlq_3\ndlq_1",
        "status": "2 ids copied.",
    }
    grid(browser, kind="copied", status=sent[-1]["status"], done=True)
    assert browser.message == "2 ids copied."
    browser.press("Copy code")
    names = {"failures": failures}
    exec(sent[-1]["text"], names)  # noqa: S102 - the code is ours
    assert set(names["selected"]["dlq_id"]) == {"dlq_1", "dlq_3"}
    assert "selected = failures[" in browser.code
    grid(browser, kind="copied", status="x", done=False)
    assert "may not write to the clipboard" in browser.message
    browser.clear_selection()
    # Ctrl+C in the table: without a selection, that of the row that is shown
    grid(browser, kind="press", name="Copy ids")
    assert sent[-1] == {
        "kind": "copy",
        "text": "dlq_0",
        "status": "1 id copied: the failure shown.",
    }
    assert browser.value.selected == ("dlq_0",)


def test_the_code_of_what_is_found_is_always_shown(browser, failures):
    """Without a selection, the code finds the same rows; it is what the button copies."""
    sent = []
    browser.send = sent.append
    browser.value = FailureView(search="pay", until="2026-03-10T06:00Z")
    assert "found = tk.FailurePanel(" in browser.code
    grid(browser, kind="press", name="Copy code")
    names = {"failures": failures, "tk": tk}
    exec(sent[-1]["text"], names)  # noqa: S102 - the code is ours
    pd.testing.assert_frame_equal(names["found"], browser.found())
    assert 0 < len(browser.found()) < 12
    assert browser.value.selected == ()


def test_long_code_is_shown_in_part_and_copied_whole(make, seen):
    """What is shown is Python too, and says how much is left out; another selection takes it away."""
    frame = make([{"dlq_id": f"d{number}"} for number in range(1_000)])
    browser = FailurePanel(frame)
    sent = []
    browser.send = sent.append
    browser.select_found()
    browser.press("Copy code")
    grid(browser, kind="copied", status=sent[-1]["status"], done=True)
    shown = seen(browser.code).shown
    for code, count in ((sent[-1]["text"], 1_000), (shown, 296)):
        names = {"failures": frame}
        exec(code, names)  # noqa: S102 - the code is ours
        assert len(names["selected"]) == count
    assert "    # … 704 more lines\n" in shown
    assert browser.message == "Code with 1,000 ids copied."
    grid(browser, kind="select", on=False, **{"from": 1, "to": 2})
    assert browser.message == ""
    assert "d1&#39;" not in browser.code


def _lower(text):
    """Letters one by one, as Arrow lowers them."""
    return "".join(
        found if len(found := letter.lower()) == 1 else letter for letter in text
    )


def grid(browser, **content):
    """A message from the table in the page."""
    browser.receive(content)


def test_the_table_asks_for_rows_and_tells_what_is_done(failures):
    """Scrolling, selecting, sorting and opening are messages, and change value and detail."""
    browser = FailurePanel(failures, redactor=REDACT)
    sent = []
    browser.send = sent.append
    grid(browser, kind="rows", **{"from": 2, "to": 4})
    assert [row[1] for row in sent[0]["rows"]] == [
        "2026-03-10 10:00:00",
        "2026-03-10 09:00:00",
    ]
    assert sent[0]["rows"][0][2:5] == ["pay", "429", "order 2 was declined"]
    grid(browser, kind="select", on=True, **{"from": 1, "to": 3})
    assert browser.value.selected == ("dlq_1", "dlq_2")
    grid(browser, kind="select", on=False, **{"from": 1, "to": 2})
    assert browser.frame()["dlq_id"].tolist() == ["dlq_2"]
    grid(browser, kind="sort", name="created_at")
    assert (browser.value.sort_by, browser.value.ascending) == ("created_at", True)
    grid(browser, kind="sort", name="created_at")
    assert browser.value.ascending is False
    grid(browser, kind="active", position=5)
    assert "dlq_5" in browser.detail
    grid(browser, kind="all")
    assert len(browser.frame()) == 12


@pytest.mark.parametrize(
    "content",
    [
        {"kind": "rows", "from": -1, "to": 5},
        {"kind": "rows", "from": "0", "to": 5},
        {"kind": "active", "position": 12},
        {"kind": "select", "from": 0, "to": 10**9},
        {"kind": "select", "order": 7, "from": 0, "to": 3, "on": True},
        {"kind": "active", "order": None, "position": 5},
        {"kind": "sort", "name": "body"},
        {"kind": "sort"},
        {"kind": ["rows"]},
        {"kind": "copied", "status": 7},
        {"kind": "active", "position": True},
        {},
    ],
)
def test_malformed_messages_change_nothing(failures, content):
    """Messages that the table would never send are ignored."""
    browser = FailurePanel(failures, redactor=REDACT)
    before = (browser.value, browser.detail)
    grid(browser, **content)
    assert (browser.value, browser.detail) == before


def hostile(payload):
    """A row with the payload in every field."""
    names = (
        "workflow_url", "workflow_run_id", "url", "method", "body", "failure_callback", "caller_ip", "label",
        "flow_control_key", "response_body", "failure_function_state",
    )  # fmt: skip
    headers = {
        "headers": json.dumps({payload: [payload], "Content-Type": [payload]}),
        "response_headers": json.dumps({payload: [payload]}),
    }
    extra = {
        "labels": json.dumps([payload]),
        "extra": f'{{"x": {payload!r}}}',
        "body_base64": base64.b64encode(payload.encode()).decode(),
    }
    return dict.fromkeys(names, payload) | headers | extra


def test_hostile_texts_are_seen_as_text(make, seen):
    """In every field, a hundred payloads add no element and no attribute, and are there as text."""
    rows = [
        hostile(payload) | {"dlq_id": f"{place} {payload}"}
        for place, payload in enumerate(PAYLOADS)
    ]
    browser = FailurePanel(make(rows), redactor=REDACT)
    for payload, row in zip(PAYLOADS, rows, strict=True):
        browser.show_failure(row["dlq_id"])
        page = seen(browser.detail)
        assert page.tags <= ELEMENTS, payload
        assert page.attributes <= {
            "class",
            "role",
            "aria-label",
            "tabindex",
            "scope",
        }, payload
        assert visible(payload) in page.shown
    cells = [row[2] for row in browser.page(0, len(rows))]
    assert cells == [visible(payload) for payload in PAYLOADS]


@pytest.mark.slow
def test_hostile_texts_are_inert_in_static_forms(make, seen):
    """Static forms and the choices of a filter have no elements from data."""
    frame = make([hostile(payload) | {"dlq_id": payload} for payload in PAYLOADS])
    for start in range(0, len(frame), 10):
        forms = FailurePanel(
            frame.iloc[start : start + 10], redactor=REDACT
        )._repr_mimebundle_()
        page = seen(forms["text/html"])
        assert page.tags <= ELEMENTS | {"strong"}
        assert page.attributes == set()
    panel = FailureFilterPanel(frame, value=FailureFilter(label=PAYLOADS))
    markup, left = "", [panel]
    while left:
        found = left.pop()
        markup += (
            found.value
            if type(found).__name__ == "HTML" and "<style>" not in found.value
            else ""
        )
        left += list(getattr(found, "children", ()))
    assert seen(markup).tags <= {"div", "pre", "span", "wbr"}
    assert seen(markup).attributes <= {"class", "role", "tabindex"}


def test_secrets_are_masked_in_the_detail(failures):
    """Headers outside the allow-list are masked whole; so are passwords in bodies, and likely secrets."""
    browser = FailurePanel(failures, redactor=REDACT)
    shown = browser.detail
    assert "hunter2" not in shown
    assert "s3cr3t-of-the-test" not in shown
    assert "10.0.0.1" not in shown
    assert "application/json" in shown
    page = str(browser.table["page"]) + str(browser._repr_mimebundle_())
    assert "hunter2" not in page


def test_a_secret_at_the_cut_is_masked_whole():
    """The part of a long body that is shown never ends within a secret."""
    token = "Bearer " + "abcdef0123456789" * 4
    for text in ("x " * 9_980 + token, "[" + "1," * 9_980 + f'"{token}"]'):
        assert "abcdef01" not in coloured(text, REDACT)


def test_unusual_ids_and_times_of_a_frame_are_shown(failures):
    """An id that is a list, and times that are millennia apart: a frame may come from anywhere."""
    odd = failures.head(2).assign(
        dlq_id=[["a"], "b"],
        created_at=pd.Series(
            pd.to_datetime(["1500-01-01", "9999-12-31"], utc=True).as_unit("ms")
        ),
    )
    browser = FailurePanel(odd)
    for found in ("['a']", "b"):
        browser.show_failure(found)
        assert "UTC" in browser.detail


def test_a_sparse_column_is_shown(failures):
    """A sparse column stays sparse when it is mapped, and Arrow reads none."""
    labels = pd.Series([1.5, None]).astype("Sparse[float]")
    browser = FailurePanel(failures.head(2).drop(columns="labels").assign(label=labels))
    assert "1.5" in str(browser.page(0, 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    "value", [pd.Interval(0, 1), b"\xff", "\ud800", [1, "a"], {"b": 1}, 1j], ids=repr
)
def test_a_frame_with_unusual_values_in_any_column_is_shown(failures, value):
    """Values that Arrow has no type for, and bytes that are not UTF-8: seen as text, searched and sorted."""
    for name in failures.columns.drop("labels"):
        # whose values are lists, or an InputError
        ids = [f"dlq-{number}" for number in range(1, len(failures))]
        cells = [value, *(ids if name == "dlq_id" else [None] * len(ids))]
        frame = failures.assign(
            **{name: pd.Series(cells, index=failures.index, dtype=object)}
        )
        if name == "response_body":  # what went wrong is read from the bodies
            frame = frame.drop(columns="error")
        browser = FailurePanel(frame, value=FailureView(search="dlq"))
        assert len(browser.found()) >= len(ids)
        browser.value = FailureView(sort_by=name if name in SORTABLE else "failed_at")
        assert len(browser.found()) == len(frame)
        browser.show_failure(str(frame["dlq_id"].iloc[0]))
        assert "tk-detail" in browser.detail
        browser.close()


def test_a_body_that_is_no_base64_is_shown_as_it_is(failures):
    """In the column of bodies that are not UTF-8."""
    browser = FailurePanel(failures.head(1).assign(body=None, body_base64="no base64!"))
    assert "no base64!" in browser.detail


def test_missing_parts_are_named(make):
    """A row with only an id has a detail; bytes that are not text are shown in hexadecimal."""
    markup = FailurePanel(make([{"dlq_id": "only"}]), redactor=REDACT).detail
    assert "none, or no state yet" in markup
    raw = detail_markup(
        {
            "dlq_id": "a",
            "body_base64": base64.b64encode(bytes(range(255, 200, -1))).decode(),
        },
        REDACT,
    )
    assert "55 bytes that are not UTF-8" in raw
    assert "ff fe fd" in raw


def test_an_empty_frame_is_a_table_of_nothing(failures):
    """An empty frame is a normal case; other frames are refused."""
    browser = FailurePanel(failures.head(0))
    assert "0 of 0 failures" in browser.view["counts"]
    browser.select_found()
    assert len(browser.frame()) == 0
    for other in (failures.drop(columns="dlq_id"), [1], None):
        with pytest.raises(InputError):
            FailurePanel(other)
    with pytest.raises(InputError, match="'gone'"):
        FailurePanel(failures).show_failure("gone")


def test_a_key_keeps_the_view(failures, request):
    """Running the cell again keeps search, order and selection."""
    key = request.node.name
    FailurePanel(failures, key=key).value = FailureView(
        search="pay", selected=["dlq_1"]
    )
    again = FailurePanel(failures, key=key)
    assert again.value == FailureView(search="pay", selected=["dlq_1"])
    assert again.frame()["dlq_id"].tolist() == ["dlq_1"]


def test_a_truncated_text_is_coloured_as_one_to_its_end():
    """Thousands of escaped quotes are not each searched again as the start of a text."""
    markup = coloured(json.dumps({"a": '"' * 300_000}), REDACT)
    assert markup.count('class="tk-text"') == 1
    assert "more characters" in markup


def message(widget, content):
    """A message of the page, as it arrives."""
    widget._handle_custom_msg(content, [])


def test_a_selection_is_of_the_rows_that_were_seen(failures):
    """Rows selected while a search or sort was on its way to the page are those that were shown."""
    browser = FailurePanel(failures, redactor=REDACT)
    seen = browser.found()["dlq_id"].tolist()
    before = browser.table["order"]
    message(browser, {"kind": "search", "text": "timeout"})
    message(browser, {"kind": "sort", "name": "workflow_url"})
    assert browser.found()["dlq_id"].tolist() != seen
    message(
        browser,
        {"kind": "select", "order": before, "from": 1, "to": 3, "on": True},
    )
    assert list(browser.value.selected) == seen[1:3]
    assert browser.value.search == "timeout"
    marked = {
        row[0]
        for row in browser.table["page"]["rows"]
        if seen[1] in row or seen[2] in row
    }
    # also where they are found now, the page shows them selected
    assert marked <= {True}
    message(
        browser,
        {"kind": "select", "order": before, "from": 1, "to": 2, "on": False},
    )
    assert list(browser.value.selected) == seen[2:3]
    message(browser, {"kind": "all", "order": before})
    assert set(browser.value.selected) == set(seen)


def test_a_message_for_an_outdated_order_selects_nothing_and_says_so(failures):
    """Nothing else is selected instead, and the panel says to select again."""
    browser = FailurePanel(failures, redactor=REDACT)
    before = browser.table["order"]
    for _ in range(20):
        message(browser, {"kind": "sort", "name": "workflow_url"})
    message(
        browser,
        {"kind": "select", "order": before, "from": 0, "to": 1, "on": True},
    )
    assert browser.value.selected == ()
    assert browser.message == "The table has changed since then. Select once more."


def test_a_click_on_a_row_of_an_earlier_order_opens_that_failure(failures):
    """The failure is shown whether the new search finds it or not; rows of earlier orders are not sent."""
    browser = FailurePanel(failures, redactor=REDACT)
    seen = browser.found()["dlq_id"].tolist()
    before = browser.table["order"]
    message(browser, {"kind": "search", "text": "429"})
    found = browser.found()["dlq_id"].tolist()
    assert 0 < len(found) < len(seen)
    for position, name in enumerate(seen):
        message(browser, {"kind": "active", "order": before, "position": position})
        assert name in browser.detail
        shown = found.index(name) if name in found else -1
        assert browser.table["shown"] == shown


@pytest.mark.slow
def test_no_selection_is_lost_among_messages_of_many_threads(make, monkeypatch):
    """Rows marked on two threads, searches on a third, sorts on a fourth: each mark is in the value."""
    # the page is notified of none of them
    monkeypatch.setattr("toolkit.widgets.row_orders._ORDERS", 1_000)
    count = 120
    browser = FailurePanel(
        make([{"dlq_id": f"id-{number}"} for number in range(count)]), redactor=REDACT
    )
    order, ids = browser.table["order"], browser.found()["dlq_id"].tolist()
    begin = threading.Barrier(4)

    def marks(first):
        begin.wait()
        for place in range(first, count, 2):
            content = {"kind": "select", "from": place, "to": place + 1, "on": True}
            message(browser, content | {"order": order})

    def searches():
        begin.wait()
        for number in range(26):
            text = f"id-{number % 7}" if number % 2 else ""
            message(browser, {"kind": "search", "text": text})

    def sorts():
        begin.wait()
        for _ in range(26):
            message(browser, {"kind": "sort", "name": "workflow_url"})

    threads = [threading.Thread(target=marks, args=(first,)) for first in (0, 1)]
    threads += [threading.Thread(target=searches), threading.Thread(target=sorts)]
    switched = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switched)
    assert set(browser.value.selected) == set(ids)
    assert browser.value.search == "id-4"
