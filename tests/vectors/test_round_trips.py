"""What is loaded can be stored and loaded again, unchanged: every kind of index, and odd values."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import toolkit as tk
from toolkit_service.demo.local_service import LocalService

SMALLEST = float(np.float32(1e-45))
FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=12)
# ids and namespaces have no control characters on the embedded service
NAME = st.text(
    st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=12
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | FLOAT32 | TEXT,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2)
    ),
    max_leaves=4,
)
SPARSE = st.dictionaries(st.integers(0, 2**31 - 1), FLOAT32, min_size=1, max_size=4)
NUMBERS = count()


def everything(service: tk.Service, namespaces: list[str]) -> pd.DataFrame:
    return tk.load_vectors(service, namespace=namespaces, progress=False)


def check_round_trip(service: tk.Service, namespaces: list[str]) -> None:
    """Load, remove, store what was loaded, and load again: the same frame, types and order included."""
    before = everything(service, namespaces)
    for name in namespaces:
        tk.reset_namespace(service, name, confirm=True)
    assert everything(service, namespaces).empty
    assert tk.upsert_vectors(service, before, progress=False) == len(before)
    pd.testing.assert_frame_equal(
        everything(service, namespaces), before, check_exact=True
    )


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("kind", ["dense", "sparse", "hybrid"])
def test_any_row_comes_back_as_it_was(local_indexes, kind, data):
    """Odd ids, float32 to the last bit, metadata of any shape, and absent, null and empty values."""
    service = local_indexes[kind]
    namespaces = [f"round {next(NUMBERS)} / {kind}" for _ in range(2)]
    ids = data.draw(st.lists(NAME, min_size=1, max_size=5, unique=True))
    for name in namespaces:
        rows = []
        for identity in ids:
            row: dict[str, Any] = {"id": identity}
            if kind != "sparse":
                row["vector"] = data.draw(st.lists(FLOAT32, min_size=2, max_size=2))
            if kind != "dense":
                sparse = data.draw(SPARSE)
                row["sparse"] = (list(sparse), list(sparse.values()))
            row["metadata"] = data.draw(
                st.none() | st.dictionaries(TEXT, JSON, max_size=3)
            )
            row["data"] = data.draw(st.none() | TEXT)
            rows.append(row)
        tk.upsert_vectors(service, rows, namespace=name)
        assert sorted(
            tk.load_vectors(service, namespace=name, progress=False)["id"]
        ) == sorted(ids)
    check_round_trip(service, namespaces)


def test_float32_is_exact_at_its_limits(local_indexes):
    """The smallest and largest numbers, negative zero, and neighbours of one are stored bit by bit."""
    service = local_indexes["dense"]
    limits = np.array(
        [
            [SMALLEST, -0.0],
            [np.finfo(np.float32).max, np.finfo(np.float32).min],
            [np.nextafter(np.float32(1), np.float32(2)), np.finfo(np.float32).tiny],
            [0.1, 1 / 3],
        ],
        dtype=np.float32,
    )
    rows = [{"id": str(n), "vector": row} for n, row in enumerate(limits)]
    tk.upsert_vectors(service, rows, namespace="limits")
    check_round_trip(service, ["limits"])
    stored = tk.as_matrix(tk.load_vectors(service, namespace="limits", progress=False))
    assert stored.tobytes() == limits.tobytes()


@pytest.mark.parametrize("form", ["frame", "records", "table", "batches"])
def test_a_frame_records_and_arrow_are_rows_alike(local_indexes, form):
    """A frame, its records, an Arrow table and its batches store the same."""
    service = local_indexes["hybrid"]
    space = f"form {form}"
    rows = [
        {"id": str(n), "vector": [n, 1.0], "sparse": ([n], [1.0]), "metadata": {"n": n}}
        for n in range(3)
    ]
    tk.upsert_vectors(service, rows, namespace=space)
    before = everything(service, [space])
    table = pa.Table.from_pandas(before, preserve_index=False)
    given: Any = {
        "frame": before,
        "records": before.to_dict("records"),
        "table": table,
        "batches": table.to_batches()[0],
    }[form]
    tk.reset_namespace(service, space, confirm=True)
    assert tk.upsert_vectors(service, given) == 3
    pd.testing.assert_frame_equal(everything(service, [space]), before)


def test_metadata_text_is_sent_as_it_is(server):
    """Digits, order and repeated spaces of JSON text are the caller's own."""
    server.always(b'{"result": "Success"}')
    exact = '{"b":  1.10, "a": 12345678901234567890.0}'
    tk.upsert_vectors(server.service(), {"id": "a", "vector": [1.0], "metadata": exact})
    assert f'"metadata":{exact}'.encode() in server.requests[0].body


@pytest.fixture(scope="module")
def embedding() -> Iterator[tk.Service]:
    """An index that embeds texts."""
    with LocalService(indexes=["docs:hybrid:64:COSINE:hashing+bm25"]) as running:
        url = f"{running.url}/vector/docs"
        yield tk.connect(vector_url=url, vector_token=running.token, environ={})


def test_texts_alone_are_embedded_by_the_index(embedding):
    """Rows with data and no vector get the vectors of the index's model: each text finds itself first."""
    texts = ["connection refused", "disk full", "token expired"]
    frame = pd.DataFrame(
        {"id": ["a", "b", "c"], "data": texts, "namespace": ["x", "y", "x"]}
    )
    assert tk.upsert_vectors(embedding, frame) == 3
    assert tk.describe_index(embedding).namespaces == {"": 0, "x": 2, "y": 1}
    hits = tk.query_text(embedding, texts[0], namespace="x", include_data=True, top_k=1)
    assert hits[["id", "data"]].to_numpy().tolist() == [["a", texts[0]]]
    check_round_trip(embedding, ["x", "y"])


def test_a_frame_without_vectors_is_not_taken_for_texts(embedding):
    """What was loaded without vectors would be embedded anew: refused, with what to do."""
    tk.upsert_vectors(
        embedding, {"id": "a", "data": "connection refused"}, namespace="partial"
    )
    frame = tk.load_vectors(
        embedding, namespace="partial", include_vectors=False, progress=False
    )
    with pytest.raises(tk.errors.InputError, match="Leave the name 'vector' out"):
        tk.upsert_vectors(embedding, frame)
    plain = frame[["namespace", "id", "data"]]
    assert tk.upsert_vectors(embedding, plain) == 1


def test_a_mask_never_replaces_the_text_that_it_hides(local_indexes):
    """A text with our own token is loaded masked: storing that would lose the text, and is refused."""
    service = local_indexes["dense"]
    token = service.vector.token.reveal()
    tk.upsert_vectors(
        service,
        {"id": "a", "vector": [1, 2], "data": f"use {token}"},
        namespace="masked",
    )
    loaded = tk.load_vectors(service, namespace="masked", progress=False)
    assert token not in loaded["data"][0]
    with pytest.raises(
        tk.errors.InputError, match="the data of row 0 of rows: got a token of ours"
    ):
        tk.upsert_vectors(service, loaded)
    with pytest.raises(tk.errors.InputError, match="the metadata of row 0"):
        tk.upsert_vectors(
            service, {"id": "a", "vector": [1, 2], "metadata": {"t": loaded["data"][0]}}
        )
    other = "an error with [masked len=12 tag=00000000] in it"  # of another secret: a text like any other
    assert (
        tk.upsert_vectors(
            service, {"id": "b", "vector": [1, 2], "data": other}, namespace="masked"
        )
        == 1
    )


def test_requests_are_bounded_by_count_and_size_and_reported(server):
    """2,500 rows are three requests, rows of 3 MB two a request; progress counts up to all of them."""
    server.always(b'{"result": "Success"}')
    seen: list[tuple[int, int | None]] = []
    rows = [{"id": str(n), "vector": [1.0]} for n in range(2500)]
    tk.upsert_vectors(
        server.service(), rows, progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(1000, 2500), (2000, 2500), (2500, 2500)]
    server.requests.clear()
    large = [{"id": str(n), "vector": [1.0], "data": "x" * (3 << 20)} for n in range(5)]
    assert tk.upsert_vectors(server.service(), iter(large)) == 5
    assert [request.body.count(b'"id"') for request in server.requests] == [2, 2, 1]


def test_interleaved_namespaces_are_stored_together(server):
    """Rows of two namespaces in turn are two requests, not one each; the last row of an id stays last."""
    server.always(b'{"result": "Success"}')
    rows = [
        {"id": str(n // 4), "vector": [float(n)], "namespace": "ab"[n % 2]}
        for n in range(100)
    ]
    assert tk.upsert_vectors(server.service(), rows) == 100
    assert [request.path for request in server.requests] == ["/upsert/a", "/upsert/b"]
    assert server.requests[0].body.endswith(b'{"id":"24","vector":[98.0]}]')


def test_an_error_between_requests_says_what_is_stored(server):
    """The second of three requests fails: the error has the count of rows that are stored."""
    server.json(b'{"result": "Success"}')
    server.always(b'{"error": "no", "status": 400}', status=400)
    with pytest.raises(tk.errors.BadRequestError) as raised:
        tk.upsert_vectors(
            server.service(), [{"id": str(n), "vector": [1.0]} for n in range(2500)]
        )
    assert raised.value.__notes__[-1] == "Rows stored before this: 1,000."


def test_a_column_twice_is_refused(server):
    """Of two columns of one name one would be dropped."""
    frame = pd.DataFrame([["a", [1.0], [2.0]]], columns=["id", "vector", "vector"])
    with pytest.raises(tk.errors.InputError, match="unique columns"):
        tk.upsert_vectors(server.service(), frame)


class TestUpdates:
    """`update_vectors` changes what a row gives, and nothing else."""

    @pytest.fixture
    def service(self, local_indexes) -> tk.Service:
        """Three vectors."""
        service = local_indexes["dense"]
        rows = [
            {
                "id": str(n),
                "vector": [n, 1.0],
                "metadata": {"n": n, "old": True},
                "data": f"text {n}",
            }
            for n in range(3)
        ]
        tk.upsert_vectors(service, rows, namespace="updated")
        return service

    def stored(self, service: tk.Service) -> pd.DataFrame:
        """The vectors as they are now, by id."""
        return everything(service, ["updated"]).set_index("id")

    def test_each_part_alone(self, service):
        """A vector, metadata or data alone: the others stay."""
        before = self.stored(service)
        rows = [
            {"id": "0", "vector": [9, 9]},
            {"id": "1", "metadata": {"m": 1, "n": None, "old": None}},
            {"id": "2", "data": "new"},
        ]
        assert tk.update_vectors(service, rows, namespace="updated") == 3
        after = self.stored(service)
        assert list(after["vector"]["0"]) == [9.0, 9.0]
        assert after["metadata"]["1"] == '{"m":1}'
        assert after["data"]["2"] == "new"
        assert (
            after["metadata"][["0", "2"]].tolist()
            == before["metadata"][["0", "2"]].tolist()
        )
        assert after["data"][["0", "1"]].tolist() == before["data"][["0", "1"]].tolist()
        assert [list(item) for item in after["vector"][["1", "2"]]] == [
            [1.0, 1.0],
            [2.0, 1.0],
        ]

    def test_metadata_are_merged_by_default(self, service):
        """Other fields stay, and null removes a field."""
        frame = pd.DataFrame(
            {
                "id": ["0", "1"],
                "metadata": ['{"new":1}', '{"old":null}'],
                "namespace": "updated",
            }
        )
        assert tk.update_vectors(service, frame) == 2
        assert self.stored(service)["metadata"][["0", "1"]].tolist() == [
            '{"n":0,"old":true,"new":1}',
            '{"n":1}',
        ]

    def test_replacing_metadata_names_the_fields_that_are_lost(self, service):
        """The warning has the fields with the number of rows; the other parts stay."""
        rows = [{"id": key, "metadata": {"n": 5}} for key in "01"]
        with pytest.warns(tk.errors.UnexpectedResultWarning, match="'old' .2 rows"):
            tk.update_vectors(
                service, rows, namespace="updated", metadata_update_mode="OVERWRITE"
            )
        assert self.stored(service)["metadata"]["0"] == '{"n":5}'

    def test_all_vectors_that_match_a_filter_are_updated(self, service):
        """One mapping without an id changes every match, and no other vector."""
        changes = {"metadata": {"seen": True}}
        assert (
            tk.update_vectors(service, changes, namespace="updated", filter="n > 0")
            == 2
        )
        assert self.stored(service)["metadata"].tolist() == [
            '{"n":0,"old":true}',
            '{"n":1,"old":true,"seen":true}',
            '{"n":2,"old":true,"seen":true}',
        ]
        with pytest.raises(tk.errors.InputError, match="without an id"):
            tk.update_vectors(
                service, {"id": "0", "data": "x"}, namespace="updated", filter="n > 0"
            )

    def test_ids_that_are_not_there_are_not_made(self, service):
        """They are counted out, and a warning names them."""
        rows = [{"id": "0", "data": "new"}, {"id": "nope", "data": "new"}]
        with pytest.warns(
            tk.errors.UnexpectedResultWarning, match="1 of 2 ids .*'nope'"
        ):
            assert tk.update_vectors(service, rows, namespace="updated") == 1
        assert "nope" not in self.stored(service).index

    @pytest.mark.parametrize(
        ("row", "says"),
        [
            ({"id": "0"}, "no vector, no sparse vector, no data, no metadata"),
            ({"id": "0", "metadatas": {}}, "Did you mean 'metadata'"),
            ({"id": "0", "vector": [float("nan"), 0]}, "got nan at position 0"),
        ],
    )
    def test_a_row_that_cannot_be_sent_stops_all(self, service, row, says):
        """All rows are read before the first is sent."""
        with pytest.raises(tk.errors.InputError, match=says):
            tk.update_vectors(
                service, [{"id": "1", "data": "new"}, row], namespace="updated"
            )
        assert self.stored(service)["data"]["1"] == "text 1"

    def test_an_error_says_how_many_were_sent(self, server):
        """The third request fails."""
        server.json(b'{"result": {"updated": 1}}')
        server.json(b'{"result": {"updated": 1}}')
        server.always(b'{"error": "no", "status": 400}', status=400)
        with pytest.raises(tk.errors.BadRequestError) as raised:
            tk.update_vectors(
                server.service(), [{"id": str(n), "data": "x"} for n in range(5)]
            )
        assert raised.value.__notes__ == ["Rows sent before this: 2 of 5."]
