"""The filter as controls: value, code and frame agree; no request is sent before a button is pressed."""

from __future__ import annotations

import asyncio
import json
import threading
import types
import warnings
from datetime import UTC, datetime

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import toolkit as tk
from tests.filters.strategies import failure_filters
from tests.widgets.page import tick, write
from toolkit import FailureFilterPanel
from toolkit.base.times import milliseconds
from toolkit.errors import BadRequestError, InputError
from toolkit.filters.failure import FailureFilter
from toolkit.tables.frame_filters import count_values, match_failures
from toolkit.tables.json_cells import labels_json

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


def widget(source, **options):
    """A widget with a fixed clock."""
    return FailureFilterPanel(source, clock=lambda: NOW, **options)


@pytest.fixture
def panel(failures):
    """A widget on a frame."""
    return widget(failures)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(chosen=failure_filters())
def test_any_value_survives_the_controls_and_the_code(panel, chosen):
    """A value put into the controls and read from them again is the same; so is the one its code makes."""
    panel.value = chosen
    assert panel.value == chosen
    panel._read()
    assert panel.value == chosen
    assert (
        eval(  # noqa: S307
            panel.to_code(), {"tk": types.SimpleNamespace(FailureFilter=FailureFilter)}
        )
        == chosen
    )


def test_ticks_and_typing_make_the_value_and_the_rows(failures):
    """Ticks, an age and a run id are the filter; count, code and frame are updated."""
    panel = widget(failures)
    seen = []
    panel.observe(lambda change: seen.append(change["new"]), "value")
    labels = panel.choices["label"]
    assert {
        "value": "prod",
        "text": "prod",
        "title": "prod",
        "count": " (6)",
        "on": False,
    } in labels.rows
    tick(labels, "prod")
    write(panel.since, "4h")
    assert panel.value == FailureFilter(label="prod", since="4h", now=NOW)
    assert seen[-1] == panel.value
    assert panel.frame()["dlq_id"].tolist() == ["dlq_1", "dlq_3"]
    assert panel.matching() == "2 of 12 loaded failures match"
    assert "label=(&#39;prod&#39;,)" in panel._code.value
    assert panel.trend["selection"] == [1773129600000, None]
    panel.clear()
    assert panel.value == FailureFilter()
    assert not any(row["on"] for row in labels.rows)


def test_errors_that_differ_in_values_are_one_choice(make):
    """The list of errors has a text per kind; ticking one chooses all of its failures, as the count says."""
    errors = [
        f"rate limited: tenant used {number} of 60 requests" for number in range(30)
    ]
    errors += ["Bad Gateway"] * 3 + [
        f"order {number} was changed" for number in range(12)
    ]
    rows = [
        {"dlq_id": f"d{number}", "response_body": error}
        for number, error in enumerate(errors)
    ]
    panel = widget(make(rows))
    offered = [(row["value"], row["count"]) for row in panel.choices["error"].rows]
    assert offered == [
        ("rate limited: tenant used", " (30)"),
        ("was changed", " (12)"),
        ("Bad Gateway", " (3)"),
    ]
    tick(panel.choices["error"], "was changed")
    assert panel.value == FailureFilter(error="was changed")
    assert len(panel.frame()) == 12
    assert panel.choices["error"].rows[0]["count"] == " (30)"  # an alternative


def test_an_error_with_a_secret_in_it_is_offered_without_it(make):
    """The values that errors do not share are left out of a choice, secrets among them."""
    secrets = [
        f"invalid token: Bearer s3cr3t-of-the-test-{number:04}" for number in range(5)
    ]
    panel = widget(
        make([{"dlq_id": secret[-4:], "response_body": secret} for secret in secrets])
    )
    assert not any("s3cr3t" in row["value"] for row in panel.choices["error"].rows)


def test_a_result_is_named_and_its_first_rows_are_shown(server):
    """After Load, the panel names the frame that has the result and shows rows of it, until the next one."""
    server.always(
        b'{"messages": [{"dlqId": "d1", "workflowUrl": "https://shop.example/a/pay"}]}'
    )
    panel = widget(server.service())
    assert panel.first_rows == ""
    panel.run()
    assert "panel.frame()" in panel.message
    assert "<td>d1</td>" in panel.first_rows
    server.always(b'{"messages": []}')
    panel.run()
    assert panel.first_rows == ""


def test_the_range_on_the_histogram_is_the_times(failures):
    """A range dragged on the histogram sets both times to the millisecond; clearing it clears them."""
    panel = widget(failures)
    assert sum(panel.trend["counts"]) == 12
    trend = panel.trend
    first, last = trend["starts"][2], trend["starts"][4] + trend["width"] - 1
    panel.receive({"kind": "range", "ends": [first, last]})
    assert [milliseconds(when) for when in (panel.value.since, panel.value.until)] == [
        first,
        last,
    ]
    assert len(panel.frame()) == sum(trend["counts"][2:5])
    panel.receive({"kind": "range", "ends": []})
    assert panel.value == FailureFilter()


def test_times_in_the_wrong_order_are_explained_beside_them(failures):
    """An end before the beginning keeps the old value, with a message at the end's field."""
    panel = widget(failures)
    write(panel.since, "1h")
    write(panel.until, "2h")
    assert panel.value == FailureFilter(since="1h", now=NOW)
    assert "after until" in panel.until.problem
    write(panel.until, "30m")
    assert panel.until.problem is None
    assert panel.value == FailureFilter(since="1h", until="30m", now=NOW)


def test_a_time_that_cannot_be_read_is_not_left_out(server):
    """Load and Count say that a field is marked, and request nothing; once it is corrected, they do."""
    server.always(b'{"messages": []}')
    panel = widget(server.service())
    write(panel.since, "yesterdayy")
    for button in ("Load", "Count"):
        panel.press(button)
        assert (
            panel.message
            == "Nothing was requested: first correct the fields marked above."
        )
    assert server.requests == []
    write(panel.since, "1h")
    panel.run()
    assert "fromDate" in dict(server.requests[-1].query)


def test_a_preset_counts_back_from_now(failures):
    """A button for an age sets the beginning and removes the end."""
    panel = widget(failures, value=FailureFilter(until=NOW))
    panel.receive({"kind": "preset", "name": "24 hours"})
    assert panel.value == FailureFilter(since="24h", now=NOW)
    panel.receive({"kind": "preset", "name": "all"})
    assert panel.value == FailureFilter()


def test_no_request_is_sent_before_a_button_is_pressed(server):
    """Making, showing and changing a widget sends no request; counting, looking and loading do."""
    panel = widget(server.service())
    panel.value = FailureFilter(label="a")
    panel.frame()
    panel._repr_mimebundle_()
    assert server.requests == []
    server.always(
        b'{"messages": [{"dlqId": "d1", "labels": ["a"]}, {"dlqId": "d2", "labels": ["a", "b"]}]}'
    )
    assert panel.count() == 2
    assert dict(server.requests[-1].query)["label"] == "a"
    panel.look()
    rows = panel.choices["label"].rows
    assert [(row["text"], row["count"]) for row in rows] == [
        ("a", " (2)"),
        ("b", " (1)"),
    ]
    before = len(server.requests)
    frame = panel.run()
    assert frame is panel.frame()
    assert frame["dlq_id"].tolist() == ["d1", "d2"]
    assert len(server.requests) > before
    assert "complete" in panel.message


def test_a_result_belongs_to_the_filter_it_was_loaded_with(server):
    """When the choice changes while failures are loaded, the result is marked as of an earlier one."""
    begun, go = threading.Event(), threading.Event()

    def response(_):
        begun.set()
        assert go.wait(30)
        return b'{"messages": [{"dlqId": "d1", "labels": ["a"]}]}'

    server.responding(response)
    panel = widget(server.service(), value=FailureFilter(label="a"))

    async def main():
        panel._start_run()
        await asyncio.to_thread(begun.wait, 30)
        panel.value = FailureFilter(label="b")
        go.set()
        async with asyncio.timeout(30):
            while panel._job is not None:  # noqa: ASYNC110 - awaits the panel's state
                await asyncio.sleep(0.005)

    asyncio.run(main())
    assert dict(server.requests[-1].query)["label"] == "a"
    assert panel.frame()["dlq_id"].tolist() == ["d1"]
    assert panel.message.startswith(
        "1 failure for the filter that was loaded. panel.frame()"
    )
    assert "The filter has changed" in panel.message
    assert panel._kept.origin == FailureFilter(label="a")


def test_an_error_is_shown_in_the_widget(server):
    """An error of the service is raised, and shown in the widget with the next step."""
    server.always(b'{"error": "unknown label <b>"}', 400)
    panel = widget(server.service())
    with pytest.raises(BadRequestError) as caught:
        panel.run()
    assert panel.message == str(caught.value)
    assert "&lt;b&gt;" in panel._status.value
    assert 'role="alert"' in panel._status.value
    assert len(panel.frame()) == 0
    assert "dlq_id" in panel.frame().columns


def test_a_masked_value_cannot_be_sent(server, make):
    """A value that was masked when the frame was loaded is explained beside its control."""
    url = "https://shop.example/a?key=[masked len=4 tag=00000000]"
    panel = widget(server.service(), frame=make([{"dlq_id": "a", "workflow_url": url}]))
    panel.value = FailureFilter(workflow_url=url)
    assert "reveal=True" in panel.choices["workflow_url"].problem


def test_a_key_keeps_value_and_result_when_the_cell_runs_again(failures, request):
    """The second widget of a key continues where the first was, unless the cell passes another value."""
    key = request.node.name
    first = widget(failures, key=key)
    first.value = FailureFilter(label="prod")
    first.run()
    assert widget(failures, key=key).value == FailureFilter(label="prod")
    assert widget(failures).value == FailureFilter()
    assert widget(failures, key=f"{key} other").value == FailureFilter()
    given_now = widget(failures, key=key, value=FailureFilter(label="eu"))
    assert given_now.value == FailureFilter(label="eu")
    given_now.value = FailureFilter()
    assert (
        widget(failures, key=key, value=FailureFilter(label="eu")).value
        == FailureFilter()
    )


@pytest.mark.parametrize(
    ("source", "options"), [(7, {}), (None, {}), ("frame", {"value": "label='a'"})]
)
def test_invalid_sources_and_values_are_refused(failures, source, options):
    """Other kinds of sources and values raise errors with the expected ones."""
    with pytest.raises(InputError, match="expected a"):
        FailureFilterPanel(failures if source == "frame" else source, **options)
    with pytest.raises(InputError, match="expected a FailureFilter"):
        widget(failures).value = {"label": "a"}


def test_a_page_without_widgets_shows_text_and_a_table(failures, seen):
    """The static forms show the choice, and rows without markup from data."""
    hostile = failures.assign(workflow_url="<script>alert(1)</script>")
    panel = widget(
        hostile, value=FailureFilter(workflow_url="<script>alert(1)</script>")
    )
    forms = panel._repr_mimebundle_()
    assert forms["text/plain"].startswith(
        "FailureFilterPanel(tk.FailureFilter(workflow_url="
    )
    page = seen(forms["text/html"])
    assert page.tags <= {
        "div",
        "strong",
        "pre",
        "p",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    }
    assert page.attributes == set()
    assert page.shown.count("<script>alert(1)</script>") == 11
    assert (
        forms["application/vnd.jupyter.widget-view+json"]["model_id"] == panel.model_id
    )


@settings(max_examples=60, deadline=None)
@given(chosen=failure_filters(), data=st.data())
def test_rows_are_matched_as_entries_are(chosen, data):
    """A frame's rows match as `FailureFilter.matches` matches their entries."""
    wire = {
        "workflow_url": "workflowUrl", "failure_function_state": "failureFunctionState",
        "caller_ip": "callerIP",
        "flow_control_key": "flowControlKey", "workflow_run_id": "workflowRunId", "label": "label",
        "labels": "labels",
    }  # fmt: skip
    rows = []
    for _ in range(3):
        row = {}
        for name in wire:
            values = getattr(chosen, name, chosen.label if name == "labels" else ())
            pool = st.sampled_from(
                [*([values] if isinstance(values, str) else values or ["x"]), "y"]
            )
            row[name] = data.draw(
                st.none() | (st.lists(pool, max_size=2) if name == "labels" else pool)
            )
        rows.append(row)
    timeless = FailureFilter(
        **{name: getattr(chosen, name) for name in wire if name != "labels"},
    )
    columns = {name: [row[name] for row in rows] for name in wire}
    columns["labels"] = [labels_json(labels, None) for labels in columns["labels"]]
    frame = pd.DataFrame(
        {name: pd.Series(column, dtype="object") for name, column in columns.items()}
    )
    expected = [
        timeless.matches({wire[name]: value for name, value in row.items()})
        for row in rows
    ]
    assert match_failures(frame, timeless).tolist() == expected


def test_a_value_is_counted_once_a_row(failures):
    """Labels are counted in the lists; empty texts are not values."""
    assert count_values(failures, "label") == [("eu", 6), ("prod", 6)]
    assert count_values(failures.assign(caller_ip=""), "caller_ip") == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert count_values(failures.head(0), "label") == []


def test_the_state_that_is_sent_to_the_page_has_no_token(server):
    """No state that a page or a saved notebook holds has a token in it."""
    panel = widget(server.service())
    with pytest.raises(tk.errors.ToolkitError):
        panel.run()
    left, state = [panel], ""
    while left:
        found = left.pop()
        state += json.dumps(found.get_state(), default=str)
        left += list(getattr(found, "children", ()))
    assert "token-of-the-test" not in state + json.dumps(panel._repr_mimebundle_())


@pytest.mark.parametrize(
    ("kind", "chosen", "hidden"),
    [
        ("messages", (), True),
        ("messages", ("https://a.example",), False),
        ("workflows", (), False),
    ],
)
def test_workflows_cannot_be_chosen_of_plain_messages(failures, kind, chosen, hidden):
    """No plain message has one, so the list would be empty; a value that was set stays in view."""
    panel = widget(failures, kind=kind, value=FailureFilter(workflow_url=chosen))
    assert panel.choices["workflow_url"].hidden is hidden


def test_the_code_for_messages_loads_messages(server):
    """The filter alone would load the other queue; the code sends the requests of the panel's own button."""
    server.always(
        b'{"messages": [{"dlqId": "a", "responseStatus": 500, "createdAt": 1}]}'
    )
    service = server.service()
    panel = FailureFilterPanel(
        service, value=FailureFilter(caller_ip="192.0.2.1"), kind="messages"
    )
    panel.run()
    asked = [(request.path, request.query) for request in server.requests]
    server.requests.clear()
    loaded = eval(panel.to_code(), {"tk": tk, "service": service})  # noqa: S307 - our own code
    assert loaded["dlq_id"].tolist() == panel.frame()["dlq_id"].tolist()
    assert [(request.path, request.query) for request in server.requests] == asked
    assert asked[0][0] == "/v2/dlq"
    assert "kind=&#39;messages&#39;)" in panel._code.value
    assert FailureFilterPanel(service).to_code() == "tk.FailureFilter()"
