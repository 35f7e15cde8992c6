"""Browsing failures: search, order and selection as a value; one failure in full; nothing live in it."""

from __future__ import annotations

import types

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.widgets.payloads import PAYLOADS
from toolkit.errors import InputError
from toolkit.filters.failure import FailureFilter
from toolkit.redaction import Redactor, visible
from toolkit.widgets import FailureBrowser, FailureFilterWidget, FailureView
from toolkit.widgets.colouring import coloured
from toolkit.widgets.failure_detail import detail_markup
from toolkit.widgets.failure_view import SORTABLE

REDACT = Redactor(key=b"test")
ELEMENTS = {
    "div", "section", "h4", "dl", "dt", "dd", "p", "table", "caption", "tbody", "thead", "tr", "th", "td",
    "pre", "b",
}  # fmt: skip


def test_there_are_a_hundred_payloads():
    """As many as are promised."""
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
    assert eval(view.to_code(), {"tk": types.SimpleNamespace(FailureView=FailureView)}) == view  # noqa: S307


@pytest.mark.parametrize("parts", [{"sort_by": "body"}, {"search": 7}, {"selected": "a"}, {"selected": [1]}])
def test_a_view_that_cannot_be_is_refused(parts):
    """Wrong columns and kinds are errors."""
    with pytest.raises(InputError):
        FailureView(**parts)


@pytest.fixture
def browser(failures):
    """A browser of a dozen failures."""
    return FailureBrowser(failures, redactor=REDACT)


def test_search_order_and_selection_are_the_value(browser):
    """Setting the value arranges the table; the selection is a frame in the order of selecting."""
    browser.value = FailureView(
        search="BUSY", sort_by="created_at", ascending=True, selected=["dlq_3", "dlq_0"]
    )
    assert browser.found()["dlq_id"].tolist() == ["dlq_9", "dlq_6", "dlq_3", "dlq_0"]
    assert browser.frame()["dlq_id"].tolist() == ["dlq_3", "dlq_0"]
    assert browser.search.text.value == "BUSY"
    assert "4 of 12 failures · 2 selected" in browser._said.value
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
    """As pandas sorts, stably, and what is missing comes last in both directions."""
    values = {
        "failed_at": pd.Timestamp("2026-01-02", tz="UTC"), "created_at": pd.Timestamp("2026-01-02", tz="UTC"),
        "response_status": 500, "max_retries": 3,
    }  # fmt: skip
    rows = [{"dlq_id": f"d{n}", column: values.get(column, "b")} for n in (1, 2)]
    smaller = {
        name: value - (pd.Timedelta(days=1) if "at" in name[-2:] else 1) for name, value in values.items()
    }
    rows = [{"dlq_id": "none"}, *rows, {"dlq_id": "small", column: smaller.get(column, "a")}]
    browser = FailureBrowser(make(rows), value=FailureView(sort_by=column, ascending=ascending))
    expected = ["small", "d1", "d2"] if ascending else ["d1", "d2", "small"]
    assert browser.found()["dlq_id"].tolist() == [*expected, "none"]


@settings(deadline=None)  # a browser is made each time
@given(st.text(max_size=6), st.lists(st.text(max_size=12), min_size=1, max_size=5))
def test_the_search_finds_what_python_finds(search, bodies):
    """A row is found when the lower-case text is in one of its fields; fields do not run into each other."""
    frame = pd.DataFrame({"dlq_id": [f"{n}" for n in range(len(bodies))], "body": bodies})
    expected = [
        f"{number}"
        for number, body in enumerate(bodies)
        if any(_lower(search) in _lower(text) for text in (str(number), body))
    ]
    assert FailureBrowser(frame, value=FailureView(search=search), redactor=REDACT).found()[
        "dlq_id"
    ].tolist() == (expected)


def _lower(text):
    """Letters one by one, as Arrow lowers them."""
    return "".join(found if len(found := letter.lower()) == 1 else letter for letter in text)


def grid(browser, **content):
    """A message from the table in the page."""
    browser.table._asked(content)


def test_the_table_asks_for_rows_and_tells_what_is_done(failures):
    """Scrolling, selecting, sorting and opening come as messages, and change value and detail."""
    browser = FailureBrowser(failures, redactor=REDACT)
    sent = []
    browser.table.view.send = sent.append
    grid(browser, kind="rows", **{"from": 2, "to": 4})
    assert [row[1] for row in sent[0]["rows"]] == ["2026-03-10 10:00:00", "2026-03-10 09:00:00"]
    assert sent[0]["rows"][0][2:5] == ["pay", "429", "order 2 was declined"]
    grid(browser, kind="select", on=True, **{"from": 1, "to": 3})
    assert browser.value.selected == ("dlq_1", "dlq_2")
    grid(browser, kind="select", on=False, **{"from": 1, "to": 2})
    assert browser.frame()["dlq_id"].tolist() == ["dlq_2"]
    grid(browser, kind="sort", name="created_at")
    assert (browser.value.sort_by, browser.value.ascending) == ("created_at", True)
    grid(browser, kind="sort", name="created_at")
    assert browser.value.ascending is False
    grid(browser, kind="active", place=5)
    assert "dlq_5" in browser.detail.value
    grid(browser, kind="all")
    assert len(browser.frame()) == 12


@pytest.mark.parametrize(
    "content",
    [
        {"kind": "rows", "from": -1, "to": 5},
        {"kind": "rows", "from": "0", "to": 5},
        {"kind": "active", "place": 12},
        {"kind": "select", "from": 0, "to": 10**9},
        {"kind": "select", "order": 7, "from": 0, "to": 3, "on": True},
        {"kind": "active", "order": None, "place": 5},
        {"kind": "sort", "name": "body"},
        {"kind": "sort"},
        {"kind": ["rows"]},
        {},
    ],
)
def test_odd_messages_change_nothing(failures, content):
    """What the table would never send is passed over."""
    browser = FailureBrowser(failures, redactor=REDACT)
    before = (browser.value, browser.detail.value)
    grid(browser, **content)
    assert (browser.value, browser.detail.value) == before


def hostile(payload):
    """A row with the payload in every field."""
    names = (
        "workflow_url", "workflow_run_id", "url", "method", "body", "failure_callback", "caller_ip", "label",
        "flow_control_key", "response_body", "failure_function_state",
    )  # fmt: skip
    headers = {
        "headers": {payload: [payload], "Content-Type": [payload]},
        "response_headers": {payload: [payload]},
    }
    extra = {"labels": [payload], "extra": f'{{"x": {payload!r}}}', "body_bytes": payload.encode()}
    return dict.fromkeys(names, payload) | headers | extra


def test_hostile_texts_are_seen_as_text(make, seen):
    """In every field, a hundred payloads add no element and no attribute, and are there as text."""
    rows = [hostile(payload) | {"dlq_id": f"{place} {payload}"} for place, payload in enumerate(PAYLOADS)]
    browser = FailureBrowser(make(rows), redactor=REDACT)
    for payload, row in zip(PAYLOADS, rows, strict=True):
        browser.show_failure(row["dlq_id"])
        page = seen(browser.detail.value)
        assert page.tags <= ELEMENTS, payload
        assert page.attributes <= {"class", "role", "aria-label", "tabindex", "scope"}, payload
        assert visible(payload) in page.shown
    cells = [row[2] for row in browser.page(0, len(rows))]
    assert cells == [visible(payload) for payload in PAYLOADS]


def test_hostile_texts_are_inert_in_static_forms(make, seen):
    """The forms without a browser hold no element but their own; nor do the choices of a filter."""
    frame = make([hostile(payload) | {"dlq_id": payload} for payload in PAYLOADS])
    for start in range(0, len(frame), 10):
        forms = FailureBrowser(frame.iloc[start : start + 10], redactor=REDACT)._repr_mimebundle_()
        page = seen(forms["text/html"])
        assert page.tags <= ELEMENTS | {"strong"}
        assert page.attributes == set()
    panel = FailureFilterWidget(frame, value=FailureFilter(label=PAYLOADS))
    markup, left = "", [panel]
    while left:
        found = left.pop()
        markup += found.value if type(found).__name__ == "HTML" and "<style>" not in found.value else ""
        left += list(getattr(found, "children", ()))
    assert seen(markup).tags <= {"div", "code"}
    assert seen(markup).attributes <= {"class", "role"}


def test_secrets_are_masked_in_the_detail(failures):
    """Headers outside the allow-list are masked whole; so are passwords in bodies, and what looks secret."""
    browser = FailureBrowser(failures, redactor=REDACT)
    shown = browser.detail.value
    assert "hunter2" not in shown
    assert "s3cr3t-of-the-test" not in shown
    assert "10.0.0.1" not in shown
    assert "application/json" in shown
    page = str(browser.table.view.page) + str(browser._repr_mimebundle_())
    assert "hunter2" not in page


def test_a_secret_at_the_cut_is_masked_whole():
    """What is shown of a long body ends nowhere within a secret."""
    token = "Bearer " + "abcdef0123456789" * 4
    for text in ("x " * 9_980 + token, "[" + "1," * 9_980 + f'"{token}"]'):
        assert "abcdef01" not in coloured(text, REDACT)


def test_what_is_missing_is_said(make):
    """A row of nothing but an id has a detail; bytes that are no text are shown in hexadecimal."""
    markup = FailureBrowser(make([{"dlq_id": "only"}]), redactor=REDACT).detail.value
    assert "none, or no state yet" in markup
    raw = detail_markup({"dlq_id": "a", "body_bytes": bytes(range(255, 200, -1))}, REDACT)
    assert "55 bytes that are no UTF-8" in raw
    assert "ff fe fd" in raw


def test_an_empty_frame_is_a_table_of_nothing(failures):
    """No rows are a normal case, and other frames are refused."""
    browser = FailureBrowser(failures.head(0))
    assert "0 of 0 failures" in browser._said.value
    browser.select_found()
    assert len(browser.frame()) == 0
    for other in (failures.drop(columns="dlq_id"), [1], None):
        with pytest.raises(InputError):
            FailureBrowser(other)
    with pytest.raises(InputError, match="'gone'"):
        FailureBrowser(failures).show_failure("gone")


def test_a_key_keeps_the_view(failures, request):
    """Running the cell again keeps search, order and selection."""
    key = request.node.name
    FailureBrowser(failures, key=key).value = FailureView(search="pay", selected=["dlq_1"])
    again = FailureBrowser(failures, key=key)
    assert again.value == FailureView(search="pay", selected=["dlq_1"])
    assert again.frame()["dlq_id"].tolist() == ["dlq_1"]
