"""A mistyped namespace, state, label or column never returns a silent zero."""

from __future__ import annotations

import html
import warnings

import pandas as pd
import pytest

import toolkit as tk
from toolkit.cli import main
from toolkit.errors import InputError, UnexpectedResultWarning
from toolkit.filters.query import VectorQuery
from toolkit_service.demo.local_service import LocalService


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        (
            {"failure_function_state": "failed"},
            "state 'failed'.*Known: 'CALLBACK_INPROGRESS'",
        ),
        ({"failure_function_state": "CALLBACK_FAILED"}, "Did you mean 'CALLBACK_FAIL'"),
        ({"response_status": 599}, "no response_status '599'.*Known: '500'"),
        ({"error": "refused connection"}, "no error 'refused connection'.*Known: "),
        ({"label": "no such label"}, "no label 'no such label'.*Known: "),
        (
            {"workflow_url": "https://shop.example.com/nothing"},
            "no workflow_url.*Did you mean",
        ),
    ],
)
def test_a_filter_that_matches_nothing_names_the_nearest_values(
    sample_service, chosen, says
):
    """Loading, iterating: an empty result, and a warning that lists what the newest entries have."""
    wanted = tk.FailureFilter(**chosen)
    with pytest.warns(UnexpectedResultWarning, match=says):
        assert tk.load_failures(sample_service, wanted, progress=False).empty
    with pytest.warns(UnexpectedResultWarning, match=says):
        assert list(tk.iter_failures(sample_service, wanted, progress=False)) == []


def test_an_empty_result_of_values_that_are_there_is_no_mistake(sample_service):
    """A known state in a time without failures is a normal empty result."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = tk.FailureFilter(
            failure_function_state="CALLBACK_FAIL", until="2001-01-01"
        )
        assert tk.load_failures(sample_service, chosen, progress=False).empty


def test_an_unknown_namespace_names_the_nearest(sample_service):
    """Loads, fetches and queries of a namespace that does not exist."""
    says = "no namespace 'runbook'.*Did you mean 'runbooks'"
    with pytest.warns(UnexpectedResultWarning, match=says):
        assert tk.load_vectors(
            sample_service, namespace="runbook", progress=False
        ).empty
    with pytest.warns(UnexpectedResultWarning, match=says):
        tk.fetch_vectors(sample_service, ["a"], namespace="runbook")
    with pytest.warns(UnexpectedResultWarning, match=says):
        assert tk.query_text(sample_service, "x", namespace="runbook").empty


def test_an_empty_default_namespace_names_those_that_are_not():
    """Queries without a namespace, of an index that has vectors elsewhere; a panel begins there."""
    with LocalService(indexes=["only:dense:2:COSINE"]) as running:
        service = tk.connect(
            vector_url=f"{running.url}/vector/only",
            vector_token=running.token,
            environ={},
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert tk.query(
                service, vector=[1, 0]
            ).empty  # nothing anywhere is not a mistake
        tk.upsert_vectors(
            service,
            [{"id": "a", "vector": [1.0, 0.0]}],
            namespace="guides",
            progress=False,
        )
        tk.upsert_vectors(
            service,
            [{"id": "b", "vector": [1.0, 0.0]}],
            namespace="pages",
            progress=False,
        )
        says = "The default namespace has no vectors. Name one that has: 'guides', 'pages'."
        with pytest.warns(UnexpectedResultWarning, match=says):
            assert tk.query(service, vector=[1, 0]).empty
        panel = tk.QueryPanel(service, value=VectorQuery(vector=[1, 0]))
        assert panel.run().empty
        assert says in panel.message
        frame = tk.load_vectors(service, namespace="all", progress=False)
        begun = tk.QueryPanel(service, frame=frame)
        assert begun.options.namespace.value == "guides"


def test_a_query_that_finds_nothing_names_the_nearest_field(sample_service):
    """A field that no metadata has, in queries by id and by text; a value that is rare is not a mistake."""
    says = r"of all 1,000, no metadata has a field 'citi'\. Did you mean 'city'\? Known: 'city'"
    with pytest.warns(UnexpectedResultWarning, match=says) as caught:
        result = tk.query(
            sample_service, id="runbook-0001", namespace="runbooks", filter="citi = 'x'"
        )
    assert result.empty
    assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(UnexpectedResultWarning, match=says):
        tk.query_text(
            sample_service, ["disk", "full"], namespace="runbooks", filter="citi = 'x'"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tk.query_text(
            sample_service, "disk", namespace="runbooks", filter="city = 'x'"
        ).empty
        assert len(
            tk.query_text(
                sample_service,
                "disk",
                namespace="runbooks",
                filter="HAS NOT FIELD citi",
            )
        )


@pytest.mark.slow
def test_the_end_of_an_address_names_the_address(sample_service):
    """An address as displays shorten it matches nothing: the warning names the whole one, also a rare one."""
    for shortened in ("payments/capture", "/exports/nightly"):
        with pytest.warns(
            UnexpectedResultWarning,
            match="Did you mean 'https://shop.example.com/flows/",
        ) as caught:
            assert tk.load_failures(
                sample_service, tk.FailureFilter(workflow_url=shortened)
            ).empty
        assert f"{shortened.strip('/')}'?" in str(caught[0].message)


def test_messages_by_the_address_of_a_workflow_name_the_column(sample_service):
    """Plain messages have no workflow, so such a filter matches none of them, whatever the address."""
    by_workflow = tk.FailureFilter(workflow_url="https://example.com/hook")
    with pytest.warns(UnexpectedResultWarning, match="select by the column url"):
        assert tk.load_failures(sample_service, by_workflow, kind="messages").empty


def test_panels_say_what_loads_say(sample_service):
    """Load, Count and Ask of a panel that find nothing name the nearest values, namespaces and fields."""
    panel = tk.FailureFilterPanel(sample_service, value=tk.FailureFilter(label="shopp"))
    assert panel.run().empty
    says = (
        "No failure matches: the newest 100 have no label 'shopp'. Did you mean 'shop'?"
    )
    assert panel.message.startswith(f"0 failures loaded. complete: 0 failures. {says}")
    assert "0 of 0" not in panel.matching()
    assert panel.count() == 0
    assert says in panel.message
    panel.value = tk.FailureFilter(label="shop")
    assert len(panel.run())
    assert "No failure matches" not in panel.message
    requested = VectorQuery(data="disk", namespace="runbooks", filter="citi = 'x'")
    query = tk.QueryPanel(sample_service, value=requested)
    assert query.run().empty
    assert "no metadata has a field 'citi'. Did you mean 'city'?" in query.message
    query.value = VectorQuery(data="disk", namespace="runbook")
    assert query.run().empty
    assert "no namespace 'runbook'. Did you mean 'runbooks'?" in query.message
    vectors = tk.MetadataFilterPanel(
        sample_service, namespace="runbooks", value="citi = 'x'"
    )
    assert vectors.run().empty
    assert vectors.message.startswith(
        "0 of 1,000 vectors match. complete: 1,000 vectors. "
        "Nothing matches: no metadata has a field 'citi'. Did you mean 'city'?"
    )


def test_a_search_that_finds_nothing_names_the_nearest_names():
    """Words that no failure has are named with the nearest workflow, label or status."""
    urls = ["https://shop.example/orders/fulfil", "https://shop.example/mail"]
    failures = pd.DataFrame(
        {
            "dlq_id": ["a", "b"],
            "workflow_url": urls,
            "label": ["prod", None],
            "response_status": [500, 429],
        }
    )
    browser = tk.FailurePanel(failures)
    says = {
        "Ordrs/fulfil 500": "No failure has 'Ordrs/fulfil'. Did you mean 'orders/fulfil'?",
        "prd": "No failure has 'prd'. Did you mean 'prod'?",
        "430": "No failure has '430'. Known: '429', '500'.",
    }
    for search, expected in says.items():
        browser.value = tk.FailureView(search=search)
        assert browser.found().empty
        assert expected in html.unescape(browser.view["remarks"])
    browser.value = tk.FailureView(search="fulfil 429")
    assert browser.found().empty
    assert "No failure has" not in browser.view["remarks"]


def test_panels_of_frames_name_the_nearest_values():
    """Where none of the loaded rows match, the count names the nearest values and fields that they have."""
    failures = pd.DataFrame(
        {"labels": ['["shop","eu"]', None], "label": ["shop", None]}
    )
    assert tk.FailureFilterPanel(
        failures, value=tk.FailureFilter(label="shopp")
    ).matching() == (
        "0 of 2 loaded failures match; they have no label 'shopp'. Did you mean 'shop'? Known: 'eu', 'shop'."
    )
    text = '{"city": "Izmir", "tags": ["new"], "owner": {"name": "web"}}'
    vectors = pd.DataFrame({"id": ["a", "b"], "metadata": [text, None]})
    says = {
        "citi = 'x'": "no metadata has a field 'citi'. Did you mean 'city'? Known: 'city', 'owner', 'tags'.",
        "owner.names > 1": "no metadata has a field 'names' in 'owner'. Did you mean 'name'? Known: 'name'.",
        "city IN ('Izmr')": "no metadata has city 'Izmr'. Did you mean 'Izmir'? Known: 'Izmir'.",
        "tags CONTAINS 'newe'": "no metadata has tags 'newe'. Did you mean 'new'? Known: 'new'.",
    }
    for text, expected in says.items():
        panel = tk.MetadataFilterPanel(vectors, value=text)
        assert panel.matching() == f"0 of 2 loaded vectors match; {expected}"
    assert tk.MetadataFilterPanel(vectors, value="city != 'Izmir'").matching() == (
        "0 of 2 loaded vectors match"
    )


def test_an_unknown_column_names_the_nearest():
    """Counting, plotting and exploding by a column that does not exist."""
    frame = pd.DataFrame(
        {
            "workflow_url": ["u"],
            "failed_at": pd.NaT,
            "created_at": pd.NaT,
            "dlq_id": "a",
        }
    )
    with pytest.raises(
        InputError, match=r"reading by: got 'workflow'.*Did you mean 'workflow_url'"
    ):
        tk.plots.plot_failure_trend(frame, by="workflow")
    with pytest.raises(
        InputError,
        match=r"reading column: got 'workflows'.*Did you mean 'workflow_url'",
    ):
        tk.analysis.count_by(frame, "workflows")
    with pytest.raises(
        InputError, match=r"reading column: got 'header'.*Did you mean 'headers'"
    ):
        tk.explode_headers(frame, column="header")


def test_the_shell_says_it_too(sample_service, monkeypatch, tmp_path, capsys):
    """`--state failed` is an error that lists the states, unless no match is allowed."""
    monkeypatch.chdir(tmp_path)
    half = sample_service.need("queue")
    monkeypatch.setenv("TOOLKIT_QUEUE_URL", half.url)
    monkeypatch.setenv("TOOLKIT_QUEUE_TOKEN", half.token.reveal())
    report = ["report", "--state", "failed", "--output", "report.md"]
    assert main(report) == 1
    assert not (tmp_path / "report.md").exists()
    assert main([*report, "--allow-no-match"]) == 0
    assert "toolkit: No failure matches" in (text := capsys.readouterr().err)
    assert "CALLBACK_FAIL" in text


def test_an_unknown_metadata_field_names_the_nearest():
    """A filter, and a list of fields to explode, that speak of a field that no row has."""
    frame = pd.DataFrame({"id": ["a"], "metadata": ['{"city": "Izmir"}']})
    with pytest.warns(
        UnexpectedResultWarning,
        match=r"no metadata has a field 'citi'.*Did you mean 'city'",
    ):
        assert not tk.match_metadata(frame, "citi = 'Izmir'").any()
    with pytest.warns(UnexpectedResultWarning, match="No metadata has a field 'citi'"):
        tk.explode_metadata(frame, fields=["citi"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not tk.match_metadata(frame, "city = 'Ankara'").any()
