"""The client against the embedded service: every operation and filter of the specification, over real HTTP.

The result of a filter is compared with the same selection from the whole frame, so that client and service
are checked against a third result and not only against each other.
"""

from __future__ import annotations

import json
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit.base.times import milliseconds
from toolkit.filters.failure_fields import FAILURE_STATES
from toolkit.service.failures import list_page
from toolkit.service.transport import Request, Transport


@pytest.fixture(scope="module")
def everything(sample_service) -> pd.DataFrame:
    """The whole sample history, unmasked."""
    frame = tk.load_failures(sample_service, progress=False, reveal=True)
    assert tk.get_receipt(frame).complete
    assert len(frame) == 5000
    return frame


def ids(frame: pd.DataFrame) -> set[str]:
    """The ids of a frame, which are unique."""
    assert frame["dlq_id"].is_unique
    return set(frame["dlq_id"])


def common(frame: pd.DataFrame, column: str, count: int) -> list[str]:
    """The most frequent values of a column that can be sent."""
    values = frame[column].map(_listed).explode().dropna().value_counts().index
    return [value for value in values if value and "," not in value][:count]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("part", "column"),
    [
        ("workflow_url", "workflow_url"),
        ("label", "labels"),
        ("failure_function_state", "failure_function_state"),
        ("caller_ip", "caller_ip"),
        ("flow_control_key", "flow_control_key"),
    ],
)
def test_a_filter_returns_the_matching_rows_of_the_whole_frame(
    sample_service, everything, part, column, count
):
    """One value, and two with OR: the entries whose value equals any of them, and no others."""
    values = common(everything, column, count)
    assert len(values) == count
    wanted = everything[column].map(lambda has: bool(set(_listed(has)) & set(values)))
    found = tk.load_failures(
        sample_service, tk.FailureFilter(**{part: values}), progress=False
    )
    assert tk.get_receipt(found).complete
    assert ids(found) == ids(everything[wanted])
    assert 0 < len(found) < len(everything)


def _listed(value) -> list[str]:
    if value is None or value is pd.NA or isinstance(value, float):
        return []
    return list(json.loads(value)) if value.startswith("[") else [value]


def test_several_values_by_repetition_and_by_comma_are_the_same(
    sample_service, everything
):
    """Both forms of a multi-value parameter select the same page."""
    first, second = common(everything, "failure_function_state", 2)
    with Transport.to(sample_service, "queue") as door:
        pages = [
            door.send(
                Request(
                    doing="listing", method="GET", path="/v2/workflows/dlq", query=query
                )
            ).body
            for query in (
                (("failureFunctionState", first), ("failureFunctionState", second)),
                (("failureFunctionState", f"{first},{second}"),),
                (("failureCallbackState", f"{first},{second}"),),
            )
        ]
    found = [
        [entry["dlqId"] for entry in json.loads(page)["messages"]] for page in pages
    ]
    assert len(found[0]) == 100
    assert found[0] == found[1] == found[2]


def test_single_value_filters(sample_service, everything):
    """A run id, and the exact creation time of a run."""
    row = everything.dropna(subset=["workflow_run_id", "workflow_created_at"]).iloc[
        1234
    ]
    found = tk.load_failures(
        sample_service,
        tk.FailureFilter(workflow_run_id=row["workflow_run_id"]),
        progress=False,
    )
    assert ids(found) == ids(
        everything[everything["workflow_run_id"] == row["workflow_run_id"]]
    )
    created = row["workflow_created_at"].to_pydatetime()
    found = tk.load_failures(
        sample_service, tk.FailureFilter(workflow_created_at=created), progress=False
    )
    assert ids(found) == ids(
        everything[everything["workflow_created_at"] == row["workflow_created_at"]]
    )


def test_different_filters_combine_with_and(sample_service, everything):
    """A label and a workflow together select their intersection."""
    (label,) = common(everything, "labels", 1)
    inside = everything[everything["labels"].map(lambda has: label in _listed(has))]
    (url,) = common(inside, "workflow_url", 1)
    found = tk.load_failures(
        sample_service, tk.FailureFilter(label=label, workflow_url=url), progress=False
    )
    assert ids(found) == ids(inside[inside["workflow_url"] == url])


def test_both_ends_of_a_time_range_are_included(sample_service, everything):
    """A range from one entry's creation to another's holds both; a millisecond less on each side, neither."""
    times = everything["created_at"].dropna().sort_values().reset_index(drop=True)
    first, last = times[1000].to_pydatetime(), times[1500].to_pydatetime()
    step = timedelta(milliseconds=1)
    for since, until in ((first, last), (first + step, last - step), (first, first)):
        found = tk.load_failures(
            sample_service, since=since, until=until, progress=False
        )
        wanted = everything[
            everything["created_at"].between(pd.Timestamp(since), pd.Timestamp(until))
        ]
        assert ids(found) == ids(wanted)


def test_pages_have_the_requested_size_up_to_a_hundred(sample_service):
    """Count is honoured from 1 to 100 and refused beyond; pages of any size add up to the same list."""
    wanted = tk.FailureFilter(failure_function_state="CALLBACK_CANCELED")
    lists = []
    with Transport.to(sample_service, "queue") as door:
        for count in (7, 100):
            found, cursor = [], None
            while True:
                page = list_page(door, wanted, cursor=cursor, count=count)
                rows = json.loads(page.rows)
                assert len(rows) <= count
                found += [row["dlqId"] for row in rows]
                cursor = page.cursor
                if cursor is None:
                    break
            lists.append(found)
        for count in (0, 101):
            with pytest.raises(tk.errors.BadRequestError, match="count"):
                list_page(door, wanted, cursor=None, count=count)
        with pytest.raises(tk.errors.BadRequestError, match="cursor"):
            list_page(door, wanted, cursor="not-a-cursor")
    assert lists[0] == lists[1]
    assert len(lists[0]) > 100


def test_every_documented_state_occurs_and_unknown_ones_match_nothing(
    sample_service, everything
):
    """The sample holds all four states; an unknown state matches nothing, with a warning."""
    assert set(FAILURE_STATES) <= set(everything["failure_function_state"].dropna())
    unknown = tk.FailureFilter(failure_function_state="NEW")
    with pytest.warns(
        tk.errors.UnexpectedResultWarning, match="Known: 'CALLBACK_INPROGRESS'"
    ):
        found = tk.load_failures(sample_service, unknown, progress=False)
    assert found.empty
    assert list(found.columns) == list(everything.columns)


@pytest.mark.parametrize("token_in", ["header", "query"])
def test_either_scheme_authenticates_and_a_wrong_token_does_not(
    sample_service, token_in
):
    """The bearer header and the query parameter both work; a wrong token is 401 in both."""
    queue, vector = sample_service.need("queue"), sample_service.need("vector")

    def connected(token: str) -> tk.Service:
        return tk.connect(
            queue_url=queue.url,
            queue_token=token,
            vector_url=vector.url,
            vector_token=token,
            token_in=token_in,
        )

    assert (
        len(tk.load_failures(connected(queue.token.reveal()), limit=1, progress=False))
        == 1
    )
    with pytest.raises(tk.errors.AuthenticationError):
        tk.load_failures(connected("a-wrong-token"), limit=1)
    with pytest.raises(tk.errors.AuthenticationError):
        tk.describe_index(connected("a-wrong-token"))


def test_a_wrong_filter_is_a_bad_request(sample_service):
    """What the service does not understand is 400 with its own words."""
    with (
        Transport.to(sample_service, "queue") as door,
        pytest.raises(tk.errors.BadRequestError, match="fromDate"),
    ):
        door.send(
            Request(
                doing="x",
                method="GET",
                path="/v2/workflows/dlq",
                query=(("fromDate", "soon"),),
            )
        )


@pytest.fixture(scope="module")
def vectors(sample_service) -> pd.DataFrame:
    """All vectors of the namespace of runbooks."""
    frame = tk.load_vectors(sample_service, namespace="runbooks", progress=False)
    assert tk.get_receipt(frame).complete
    return frame


def test_a_range_yields_every_vector_once(sample_service, vectors):
    """As many as info counts, unique ids, unit vectors, and the same rows by fetch."""
    assert len(vectors) == tk.describe_index(sample_service).namespaces["runbooks"]
    assert vectors["id"].is_unique
    assert vectors["vector_problem"].isna().all()
    assert np.allclose(np.linalg.norm(tk.as_matrix(vectors), axis=1), 1, atol=1e-5)
    some = vectors.sample(50, random_state=1).reset_index(drop=True)
    fetched = tk.fetch_vectors(sample_service, some["id"], namespace="runbooks")
    pd.testing.assert_frame_equal(fetched, some, check_dtype=True)


def test_ranges_and_fetches_by_prefix(sample_service, vectors):
    """A prefix selects the ids that start with it, by range and by fetch."""
    prefix = vectors["id"][0][:-2]
    wanted = {name for name in vectors["id"] if name.startswith(prefix)}
    assert 1 < len(wanted) < len(vectors)
    for frame in (
        tk.load_vectors(
            sample_service, namespace="runbooks", prefix=prefix, progress=False
        ),
        tk.fetch_vectors(sample_service, prefix=prefix, namespace="runbooks"),
    ):
        assert set(frame["id"]) == wanted


def test_only_requested_fields_are_returned(sample_service):
    """Without includes a row is its id, and that is no problem of the vector."""
    bare = tk.load_vectors(
        sample_service,
        limit=5,
        include_vectors=False,
        include_metadata=False,
        include_data=False,
        progress=False,
    )
    assert bare[["vector", "metadata", "data", "vector_problem"]].isna().all().all()


def test_scores_are_the_documented_cosine_and_the_ranking_is_exact(
    sample_service, vectors
):
    """(1 + cos)/2 of every hit, and the same top ten as a product of all vectors."""
    matrix = tk.as_matrix(vectors)
    hits = tk.query(sample_service, vector=matrix[:4], top_k=10, namespace="runbooks")
    scores = (1 + matrix @ matrix[:4].T.astype(np.float64)) / 2
    by_id = {name: position for position, name in enumerate(vectors["id"])}
    for number, group in hits.groupby("query"):
        exact = scores[:, int(number)]
        assert np.allclose(
            group["score"], exact[[by_id[name] for name in group["id"]]], atol=1e-5
        )
        assert np.allclose(np.sort(exact)[::-1][:10], group["score"], atol=1e-5)
        assert group["rank"].tolist() == list(range(1, 11))


@pytest.mark.parametrize(
    "text",
    [
        "service.name = 'orders'",
        "service.team != 'checkout' AND tags CONTAINS 'eu'",
        "city IN ('Quito', 'Izmir') OR city GLOB 'N*'",
        "tags[0] = 'eu' AND HAS FIELD service.team",
        "tags[#-1] NOT IN ('tcp') AND HAS NOT FIELD nothing",
    ],
)
def test_a_metadata_filter_means_the_same_on_both_sides(sample_service, text):
    """Every vector that the filter matches here is found there, and no other."""
    whole = tk.load_vectors(sample_service, namespace="", progress=False)
    wanted = tk.parse_filter(text)
    matching = {
        name
        for name, metadata in zip(whole["id"], whole["metadata"], strict=True)
        if wanted.matches(json.loads(metadata))
    }
    hits = tk.query(
        sample_service, vector=tk.as_matrix(whole)[0], top_k=1000, filter=text
    )
    assert set(hits["id"]) == matching
    assert 0 < len(matching) < len(whole)


def test_text_queries_alone_and_in_a_batch(sample_service):
    """One text and several return the same hits, with the text that was embedded when requested."""
    texts = ["connection refused", "disk full", "certificate expired"]
    batch = tk.query_text(
        sample_service, texts, top_k=3, include_data=True, namespace="runbooks"
    )
    for number, text in enumerate(texts):
        alone = tk.query_text(
            sample_service, text, top_k=3, include_data=True, namespace="runbooks"
        )
        same = batch[batch["query"] == number].reset_index(drop=True)
        assert alone["id"].tolist() == same["id"].tolist()
        assert alone["data"].tolist() == same["data"].tolist()
        assert alone["data"].notna().all()


def test_an_index_without_a_model_refuses_text(sample_service):
    """The plain index responds with 422 to a text query; so does a vector of another dimension."""
    queue, vector = sample_service.need("queue"), sample_service.need("vector")
    plain = tk.connect(
        vector_url=f"{queue.url}/vector/plain", vector_token=vector.token.reveal()
    )
    with pytest.raises(tk.errors.UnprocessableError) as raised:
        tk.query_text(plain, "anything")
    assert raised.value.status == 422
    with pytest.raises(
        tk.errors.UnprocessableError, match="Invalid vector dimension: 3, expected: 2"
    ):
        tk.query(plain, vector=[1.0, 2.0, 3.0])


def test_a_bad_filter_is_refused_with_its_position(sample_service):
    """A filter that does not parse is a bad request that says where."""
    with pytest.raises(tk.errors.BadRequestError, match="position"):
        tk.query(sample_service, vector=np.ones(256), filter="city = ")


def test_times_are_sent_in_whole_milliseconds(everything):
    """Created times survive the way to the frame and back to the wire without a detour over floats."""
    stamps = everything["created_at"].dropna()
    back = [milliseconds(stamp.to_pydatetime()) for stamp in stamps[:100]]
    assert back == [stamp.value // 1_000_000 for stamp in stamps[:100]]
