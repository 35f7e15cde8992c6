"""Vectors and hits become rows; what cannot be used says why and stays."""

from __future__ import annotations

import json
import subprocess
import sys
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import toolkit as tk
from toolkit.base.cut_vectors import cut_vectors
from toolkit.errors import InputError, ProtocolError
from toolkit.tables import floats as floats_module
from toolkit.tables import schemas
from toolkit.tables.explode import explode_metadata
from toolkit.tables.floats import (
    as_singles,
    as_value,
    dense_column,
    msgspec_block,
    read_numbers,
    simdjson_block,
)
from toolkit.tables.frames import frame_from_rows, to_frame
from toolkit.tables.vector_matrix import as_matrix
from toolkit.tables.vectors import decode_hits, decode_vectors

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@pytest.fixture(scope="module", params=[simdjson_block, msgspec_block])
def reader(request):
    """Blocks of numbers are read by the reader that is installed, and by the one that always is."""
    with patch("toolkit.tables.floats.read_block", request.param):
        yield request.param


@given(st.lists(st.lists(floats, min_size=3, max_size=3), max_size=5))
def test_vectors_survive_as_float32(vectors):
    """Numbers are returned as the float32 they were, in a column of fixed size and as a matrix."""
    rows = [
        {"id": str(position), "vector": vector}
        for position, vector in enumerate(vectors)
    ]
    table = decode_vectors(json.dumps(rows).encode(), namespace="n", dimension=3)
    assert table.schema == schemas.vectors(3)
    matrix = as_matrix(to_frame(table))
    assert matrix.shape == (len(vectors), 3)
    assert matrix.dtype == np.float32
    assert np.array_equal(matrix, np.array(vectors, dtype=np.float32).reshape(-1, 3))


@pytest.mark.parametrize(
    ("vector", "problem"),
    [
        ("null", "no vector"),
        ("[1, 2]", "dimension 2, expected 3"),
        ("[]", "dimension 0, expected 3"),
        ("[1, NaN, 2]", "not finite at 1"),
        ("[1, 2, -Infinity]", "not finite at 2"),
        ("[1e400, 1, 2]", "not finite at 0"),
        ("[1, 3.5e38, 2]", "beyond float32 at 1"),
        ("[1, 1" + "0" * 400 + ", 2]", "beyond float32 at 1"),
        ('[1, "2", 3]', "not an array of numbers"),
        ("[1, true, 3]", "not an array of numbers"),
        ('"abc"', "not an array of numbers"),
    ],
)
def test_a_vector_that_cannot_be_used_says_why(vector, problem):
    """The row stays with its metadata, its vector is null, and its neighbour is untouched."""
    page = f'[{{"id": "a", "vector": {vector}, "metadata": {{"k": 1}}}}, {{"id": "b", "vector": [1, 2, 3]}}]'
    rows = decode_vectors(page.encode(), namespace="", dimension=3).to_pylist()
    assert (rows[0]["vector"], rows[0]["vector_problem"]) == (None, problem)
    assert json.loads(rows[0]["metadata"]) == {"k": 1}
    assert (rows[1]["vector"], rows[1]["vector_problem"]) == ([1, 2, 3], None)


def test_sparse_only_is_no_problem_and_unrequested_vectors_are_none():
    """A row with a sparse vector alone is fine, and so is one without vectors when none were requested."""
    page = b'[{"id": "a", "sparseVector": {"indices": [1, 5], "values": [0.5, 2]}}, {"id": "b"}]'
    first, second = decode_vectors(page, namespace="", dimension=None).to_pylist()
    assert (
        first["sparse_indices"],
        first["sparse_values"],
        first["vector_problem"],
    ) == (
        [1, 5],
        [0.5, 2],
        None,
    )
    assert second["vector_problem"] == "no vector"
    (_, unasked) = decode_vectors(
        page, namespace="", dimension=None, want_vectors=False
    ).to_pylist()
    assert unasked["vector_problem"] is None


@pytest.mark.parametrize(
    "sparse",
    [
        '{"indices": [1], "values": [1, 2]}',
        '{"indices": [1.5], "values": [1]}',
        '{"indices": 1}',
        "[1]",
    ],
)
def test_a_sparse_vector_that_cannot_be_used_says_so(sparse):
    """Unequal lengths, fractional indices and other shapes are named in vector_problem."""
    page = f'[{{"id": "a", "vector": [1], "sparseVector": {sparse}}}]'
    (row,) = decode_vectors(page.encode(), namespace="", dimension=1).to_pylist()
    assert row["vector"] == [1]
    assert row["vector_problem"] == "sparse vector not usable"


def test_metadata_is_the_raw_json():
    """Metadata keeps its digits and its spelling; null metadata and data are null."""
    page = (
        b'[{"id": "a", "metadata": {"n": 12345678901234567890123, "f": 1.10}},'
        b' {"id": "b", "metadata": null}]'
    )
    first, second = decode_vectors(
        page, namespace="", dimension=None, want_vectors=False
    ).to_pylist()
    assert first["metadata"] == '{"n": 12345678901234567890123, "f": 1.10}'
    assert second["metadata"] is None


def test_ids_that_are_not_there_have_no_row():
    """Null in a fetch's response is an id that does not exist."""
    table = decode_vectors(
        b'[null, {"id": "b", "vector": [1]}, null]', namespace="", dimension=1
    )
    assert table["id"].to_pylist() == ["b"]


def test_hits_have_query_and_rank():
    """Hits count queries from 0 and ranks from 1, in the service's order; empty responses leave no rows."""
    hits = [
        b'[{"id": "a", "score": 0.9}, {"id": "b", "score": 1}]',
        b"[]",
        b'[{"id": "a", "score": 0.5}]',
    ]
    table = decode_hits(hits)
    assert table.select(["query", "rank", "id", "score"]).to_pylist() == [
        {"query": 0, "rank": 1, "id": "a", "score": 0.9},
        {"query": 0, "rank": 2, "id": "b", "score": 1.0},
        {"query": 2, "rank": 1, "id": "a", "score": 0.5},
    ]
    assert decode_hits([]).schema == schemas.hits()


@pytest.mark.parametrize(
    "hit", ['{"id": "a"}', '{"id": "a", "score": "1"}', '{"score": 1}', "5"]
)
def test_a_hit_without_id_or_score_is_a_protocol_error(hit):
    """What is not a hit is an error, not a row with a hole."""
    with pytest.raises(ProtocolError):
        decode_hits([f"[{hit}]".encode()])


def test_a_matrix_is_a_view_and_refuses_unusable_rows():
    """The matrix of a loaded frame shares its memory; a null vector is an error that says what to do."""
    table = decode_vectors(
        b'[{"id": "a", "vector": [1, 2]}, {"id": "b", "vector": [3, 4]}]',
        namespace="",
        dimension=2,
    )
    frame = to_frame(table)
    assert not as_matrix(frame).flags.owndata
    assert as_matrix(frame.iloc[1:]).tolist() == [[3, 4]]
    with_hole = frame_from_rows([{"namespace": "", "id": "a"}], schemas.vectors(2))
    with pytest.raises(InputError, match="vector_problem"):
        as_matrix(with_hole)
    assert as_matrix(frame.iloc[:0]).shape == (0, 2)


def test_metadata_explodes_into_typed_columns():
    """Nested names are dotted; whole numbers, booleans and texts keep their kinds; mixed ones become JSON."""
    texts = [
        '{"a": {"b": 1}, "t": true, "m": 1, "l": [1]}',
        '{"a": {"b": 2}, "m": "x", "f": 1.5, "id": 7}',
        None,
    ]
    frame = frame_from_rows(
        [{"namespace": "", "id": str(i), "metadata": t} for i, t in enumerate(texts)],
        schemas.vectors(),
    )
    found = explode_metadata(frame)
    kinds = {name: str(kind) for name, kind in found.dtypes.items()}
    numbers = {"a.b": "Int64", "f": "Float64", "metadata.id": "Int64"}
    assert kinds == {
        "namespace": "str",
        "id": "str",
        "l": "str",
        "m": "str",
        "t": "boolean",
        **numbers,
    }
    assert found["m"].tolist()[:2] == ["1", '"x"']
    assert list(explode_metadata(frame, fields=["t"]).columns) == [
        "namespace",
        "id",
        "t",
    ]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([2**60 + 1, None], "Int64"),
        ([2**53 + 1, 1.5], "str"),
        ([2**63 + 1], "str"),
        ([10**400, 1], "str"),
        ([2**53, 1.5], "Float64"),
        ([2**64], "Float64"),
    ],
)
def test_no_integer_of_metadata_loses_digits(values, kind):
    """If a float would change an integer of a column, for example a long id, the column is JSON text."""
    rows = [{} if value is None else {"n": value} for value in values]
    column = explode_metadata(pd.DataFrame({"metadata": rows}))["n"]
    assert column.dtype == kind
    kept = column.dropna().tolist()
    if kind == "str":
        kept = list(map(json.loads, kept))
    assert kept == [value for value in values if value is not None]


wild = st.one_of(
    st.floats(),
    st.floats(width=32),
    st.integers(),
    st.integers(min_value=-(10**400), max_value=10**400),
    st.sampled_from(
        [
            3.4028234663852886e38,
            3.4028235e38,
            -3.5e38,
            2**53 + 1,
            2**64,
            -0.0,
            5e-324,
            1.17e-38,
        ]
    ),
)
vector_texts = st.one_of(
    st.lists(wild, min_size=3, max_size=3).map(json.dumps),
    st.lists(floats, min_size=3, max_size=3).map(json.dumps),
    st.lists(wild, max_size=5).map(json.dumps),
    st.sampled_from(
        [
            "[1e400, 1, 2]",
            "[-0, 1e-400, 1E+2]",
            '["1", 2, 3]',
            "[[1, 2], 3]",
            "[[1], 2, 3]",
            "[null]",
        ]
    ),
    st.sampled_from(
        [
            "[1,2, 3]",
            "[1, 2,3]",
            "[1 ,2,3]",
            "[1,2,3]",
            "[1.5e-7,2E8,-3e+9]",
            "[0, -0.0, 0.05]",
        ]
    ),
    st.sampled_from(
        [
            "[true, 1, 2]",
            "[1, 2, {}]",
            "{}",
            "1",
            '"a"',
            "[ 1 , 2 ,\n3 ]",
            "[1" + "0" * 5000 + ", 1, 1]",
        ]
    ),
)


@pytest.mark.usefixtures("reader")
@given(st.lists(vector_texts, max_size=6), st.sampled_from([3, None]))
def test_every_reader_of_numbers_returns_the_same(found, dimension):
    """pysimdjson, msgspec and the lenient reader agree bit by bit, and on what is wrong with the others."""
    encoded = [text.encode() for text in found]
    one_by_one = [as_singles(as_value(text), dimension) for text in encoded]
    column, problems = dense_column(encoded, dimension)
    assert problems == [problem for _, problem in one_by_one]
    for item, (singles, _) in zip(column, one_by_one, strict=True):
        got = (
            None
            if not item.is_valid
            else np.array(item.as_py(), dtype=np.float32).tobytes()
        )
        assert got == (None if singles is None else singles.tobytes())
    assert column.null_count == sum(problem is not None for problem in problems)


@pytest.mark.usefixtures("reader")
@given(st.lists(vector_texts, max_size=6))
def test_a_page_with_its_vectors_cut_out_decodes_to_the_same_table(found):
    """For any vectors, every row is kept, and equals the one read without cutting."""
    page = (
        "["
        + ",".join(
            f'{{"id":"{n}","vector":{text},"data":"]"}}' for n, text in enumerate(found)
        )
        + "]"
    )
    tables = [
        decode_vectors(rows, cut, namespace="", dimension=3)
        for rows, cut in (cut_vectors(page.encode()), (page.encode(), ()))
    ]
    assert all(table.equals(tables[0]) for table in tables)
    assert tables[0].num_rows == len(found)


@pytest.mark.parametrize(
    "text",
    [
        "[01]",
        "[-01]",
        "[.5]",
        "[-.5]",
        "[5.]",
        "[5.e3]",
        "[+1]",
        "[1 1]",
        "[1,]",
        "[,1]",
        "[-]",
        "[inf]",
        "[1e]",
    ],
)
@pytest.mark.parametrize("dimension", [1, None])
@pytest.mark.usefixtures("reader")
def test_no_reader_accepts_what_is_not_json(text, dimension):
    """A spelling that JSON does not have is refused alone and in a block, before and behind other vectors."""
    for encoded in ([text], ["[1]", text], [text, "[1]"], ["[0.5, 2]", text]):
        with pytest.raises(ValueError, match=r"."):
            dense_column([one.encode() for one in encoded], dimension)


def test_a_bad_vector_leaves_its_block_as_it_is():
    """Among many vectors, one that no fast decoder accepts says why, and its neighbours are exact."""
    block = [[float(n), n / 3, -n / 7] for n in range(100)]
    encoded = [json.dumps(numbers).encode() for numbers in block]
    encoded[50] = b"[1, NaN, 2]"
    column, problems = dense_column(encoded, 3)
    assert [position for position, problem in enumerate(problems) if problem] == [50]
    kept = np.array(
        [item.as_py() for n, item in enumerate(column) if n != 50], dtype=np.float32
    )
    assert np.array_equal(kept, np.array(block[:50] + block[51:], dtype=np.float32))


@pytest.mark.usefixtures("reader")
def test_several_blocks_stay_in_their_order():
    """Of a page of several blocks, each vector is where it was, and one that cannot be used is one row."""
    numbers = np.random.default_rng(5).normal(size=(400, 768)).astype(np.float32)
    encoded = [json.dumps(vector.tolist()).encode() for vector in numbers]
    encoded[200] = b"[1e400]"
    kept = np.delete(numbers, 200, axis=0)
    column, problems = dense_column(encoded, 768)
    assert [index for index, problem in enumerate(problems) if problem] == [200]
    assert np.array_equal(
        column.drop_null().flatten().to_numpy().reshape(-1, 768), kept
    )


@pytest.mark.usefixtures("reader")
@given(
    st.lists(
        st.text("0123456789.+-eEinfa ", min_size=1, max_size=7), min_size=2, max_size=2
    )
)
@example(["+1", "1"])
@example(["1", "5.e1"])
@example(["-.5", "1"])
@example(["1", "00"])
@example(["-0", "0e5"])
def test_readers_of_blocks_read_no_number_that_json_does_not_have(numbers):
    """Whatever is spelled like a number: the float32 that Python reads, or it is refused or not finite."""
    text = f"[{', '.join(numbers)}]".encode()
    row = np.zeros((1, 2), np.float32)
    try:
        floats_module.read_block([text], row)
    except ValueError:
        return
    if np.isfinite(row).all():
        assert row.tobytes() == np.array(as_value(text), np.float32).tobytes()


@pytest.mark.parametrize("odd", [None, 3, 150])
@pytest.mark.usefixtures("reader")
def test_numbers_that_were_read_before_are_those_of_their_rows(odd):
    """The vectors of a page are read by another thread: the table is the same, also where one is unusable."""
    vectors = np.random.default_rng(5).normal(size=(200, 8)).astype(np.float32)
    rows = [
        {"id": str(number), "vector": vector}
        for number, vector in enumerate(vectors.tolist())
    ]
    page = json.dumps(rows).encode()
    if odd is not None:
        page = page.replace(
            json.dumps(rows[odd]["vector"]).encode(), b"[1e39, 1, 1, 1, 1, 1, 1, 1]"
        )
    rest, cut = cut_vectors(page)
    numbers = read_numbers(cut, 8)
    assert np.isfinite(numbers).all(axis=1).sum() >= 200 - (odd is not None)
    table = decode_vectors(rest, cut, namespace="", dimension=8, numbers=numbers)
    assert table.equals(decode_vectors(page, namespace="", dimension=8))
    assert table["vector"].null_count == (odd is not None)
    assert np.isnan(read_numbers(cut, 9)).all()
    # a cut in the wrong place: the numbers belong to nothing
    other = page.replace(b'"id": "0"', b'"metadata": {"vector": [7]}, "id": "0"')
    rest, cut = cut_vectors(other)
    table = decode_vectors(rest, cut, namespace="", dimension=8, numbers=numbers)
    assert table.equals(decode_vectors(other, namespace="", dimension=8))


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize(
    "text", [b'"0.5"', b"{0.5}", b"(1]", b"[1)", b"0.5", b"null", b"[[1]]"]
)
def test_readers_of_blocks_read_only_flat_arrays(text):
    """Anything else is refused, so that the reader of single vectors can name the problem."""
    with pytest.raises(ValueError, match=r"."):
        floats_module.read_block([text], np.zeros((1, 1), np.float32))


def test_an_interpreter_without_pysimdjson_reads_with_msgspec():
    """If pysimdjson cannot be imported, msgspec reads the same numbers, bit by bit."""
    code = (
        "import sys; sys.modules['simdjson'] = None\n"
        "from toolkit.tables.floats import dense_column, msgspec_block, read_block\n"
        "assert read_block is msgspec_block\n"
        "print(dense_column([b'[0.1, 1]', b'[NaN, 1]', b'[-0, -0.0]'], 2)[0].to_pylist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(
        [np.float32([0.1, 1]).tolist(), None, [0.0, -0.0]]
    )


@pytest.mark.parametrize(
    ("page", "metadata"),
    [
        (
            b'[{"id": "a", "data": "\\ud800", "metadata": {"f": 1.10, "n": 9007199254740993}}]',
            '{"f": 1.10, "n": 9007199254740993}',
        ),
        (b'[{"id": "a", "data": "\xff", "metadata": {"f": 1e400}}]', '{"f": 1e400}'),
        (b'[{"id": "a", "metadata": {"t": "\xff"}}]', '{"t": "\\udcff"}'),
        (
            b'[{"id": "a", "metadata": {"n": NaN, "i": 12345678901234567890}}]',
            '{"n": NaN, "i": 12345678901234567890}',
        ),
    ],
)
def test_metadata_keeps_its_spelling_where_other_bytes_are_invalid(page, metadata):
    """An invalid byte elsewhere in a page does not change a digit of its metadata."""
    (row,) = decode_vectors(
        page, namespace="", dimension=None, want_vectors=False
    ).to_pylist()
    assert row["metadata"] == metadata


@pytest.mark.parametrize(
    "column",
    [
        [1, 2],
        ["a", "b"],
        [["a"], ["b"]],
        [[1.0], [None]],
        [object(), 1],
        [{"a": 1}, None],
        [[[1]], [[2]]],
    ],
)
def test_a_matrix_is_made_of_lists_of_numbers_alone(column):
    """Anything else in the column is an error that says so, and a missing number is none."""
    with pytest.raises(InputError, match="vector"):
        as_matrix(pd.DataFrame({"vector": pd.Series(column, dtype=object)}))


def test_a_matrix_of_plain_lists_and_of_nothing():
    """Lists of whole numbers are numbers; no rows make a matrix of no rows."""
    assert as_matrix(pd.DataFrame({"vector": [[1, 2], [3, 4]]})).tolist() == [
        [1, 2],
        [3, 4],
    ]
    assert as_matrix(pd.DataFrame({"vector": []})).shape == (0, 0)


def test_metadata_of_mappings_are_read_as_their_json_is():
    """A column that `json.loads` was applied to filters and explodes the same; another value is refused."""
    texts = ['{"city": "Izmir", "n": 1}', '{"city": "Oslo"}', None]
    frame = pd.DataFrame(
        {"id": ["a", "b", "c"], "metadata": pd.Series(texts, dtype=object)}
    )
    read = frame.assign(
        metadata=[{"city": "Izmir", "n": np.int64(1)}, {"city": "Oslo"}, None]
    )
    assert tk.match_metadata(read, "city = 'Izmir'").tolist() == [True, False, False]
    pd.testing.assert_frame_equal(explode_metadata(read), explode_metadata(frame))
    with pytest.raises(tk.errors.InputError, match="got list of 1, in row 2"):
        tk.match_metadata(read.assign(metadata=[{}, None, ["a"]]), "city = 'Izmir'")


def test_fields_of_one_name_are_not_lost_in_silence():
    """A name with a dot and a nested field have one column: which of them is kept is said."""
    frame = pd.DataFrame({"id": ["a"], "metadata": ['{"a.b": 1, "a": {"b": 2}}']})
    with pytest.warns(
        tk.errors.UnexpectedResultWarning, match="In 1 of 1 rows, a field named 'a.b'"
    ):
        assert explode_metadata(frame)["a.b"].tolist() == [2]


def test_exploded_hits_keep_their_rank_and_score():
    """Hits without a score are no hits: what tells their order stays in front of the fields."""
    hits = pd.DataFrame(
        {"rank": [1], "id": ["a"], "score": [0.5], "metadata": ['{"n": 3, "score": 9}']}
    )
    exploded = explode_metadata(hits)
    assert list(exploded.columns) == ["rank", "id", "score", "n", "metadata.score"]
    assert exploded["score"].tolist() == [0.5]
