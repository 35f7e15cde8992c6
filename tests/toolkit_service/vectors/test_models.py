"""Models: BM25 by its formula, and models of other packages."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.errors import InputError, LocalServiceError
from toolkit_service.api import ApiError
from toolkit_service.vectors.bodies import Included, IndexQuery
from toolkit_service.vectors.index_registry import IndexRegistry
from toolkit_service.vectors.sparse import MAX_INDEX, SparseArray
from toolkit_service.vectors.specs import (
    STAND_INS,
    Bm25Model,
    IndexSpec,
    load_models,
    words_of,
)
from toolkit_service.vectors.vector_routes import Call, info, query_data

PACKAGE = """
import numpy as np
from toolkit_service.vectors.sparse import SparseArray

class Lengths:
    name = "lengths"
    def embed(self, texts, dimension):
        return np.array([[len(text)] * dimension for text in texts], dtype=np.float32)

class Letters:
    name = "letters"
    def documents(self, texts):
        return [SparseArray(np.unique(list(map(ord, text))), np.ones(len(set(text)))) for text in texts]
    queries = documents

class Wrong(Letters, Lengths):
    name = "wrong"
    def embed(self, texts, dimension):
        return np.full((len(texts), dimension), np.nan)
    def documents(self, texts):
        return [SparseArray(np.array([1, 1]), np.ones(2)) for text in texts]
"""
ENTRY_POINTS = """
[toolkit.local.models]
lengths = package_of_models:Lengths
wrong = package_of_models:Wrong

[toolkit.local.sparse_models]
letters = package_of_models:Letters
wrong = package_of_models:Wrong
"""
EXPECTED = [881931278, 1329277874, 1455751981]


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IndexRegistry:
    """A registry, with an installed package of models."""
    installed = tmp_path / "installed"
    (installed / "package_of_models-1.0.dist-info").mkdir(parents=True)
    (installed / "package_of_models.py").write_text(textwrap.dedent(PACKAGE))
    facts = installed / "package_of_models-1.0.dist-info"
    (facts / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: package-of-models\nVersion: 1.0\n"
    )
    (facts / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(installed))
    return IndexRegistry(tmp_path / "vectors")


def test_models_of_other_packages_are_found(registry: IndexRegistry) -> None:
    """A model under an entry point embeds text, on either side, beside a built-in one on the other."""
    index = registry.create(IndexSpec.parse("own:hybrid:2:EUCLIDEAN:lengths+letters"))
    index.upsert_data([{"id": "a", "data": "xyz"}, {"id": "b", "data": "xxxx"}])
    include = Included(include_vectors=True)
    ((hit,),) = index.query([IndexQuery("z", 5, include, mode="SPARSE")])
    assert hit.row.id == "a"
    assert hit.row.vector.tolist() == [3, 3]
    assert hit.row.sparse is not None
    assert hit.row.sparse.indices.tolist() == [120, 121, 122]
    registry.create(IndexSpec.parse("half:hybrid:2:EUCLIDEAN:hashing+letters"))
    with pytest.raises(InputError, match="one of BGE_M3, BM25, bm25, letters, wrong"):
        registry.create(IndexSpec.parse("none:sparse:lengths"))
    registry.close()


@pytest.mark.parametrize("spec", ["w:dense:2:COSINE:wrong", "w:sparse:wrong"])
def test_faulty_models_are_named(registry: IndexRegistry, spec: str) -> None:
    """Results of a model are checked; a faulty one is named, and nothing is written."""
    index = registry.create(IndexSpec.parse(spec))
    with pytest.raises(LocalServiceError, match="'wrong'"):
        index.upsert_data([{"id": "a", "data": "text"}])
    assert index.namespaces() == {"": 0}
    registry.close()


def test_bm25_is_the_formula() -> None:
    """Values of a text are f (k1 + 1) / (f + k1 (1 - b + b n / 32)); those of a question are 1."""
    text = "disk full on disk seven of the disk array " * 3
    (vector,) = Bm25Model().documents([text])
    (question,) = Bm25Model().queries(["DISK ARRAY disk"])
    values = dict(zip(vector.indices.tolist(), vector.values.tolist(), strict=True))
    words = words_of(text)
    for word in set(words):
        ((dimension,), _) = Bm25Model().queries([word])[0]
        often, length = words.count(word), len(words)
        assert values[int(dimension)] == pytest.approx(
            often * 2.2 / (often + 1.2 * (1 - 0.75 + 0.75 * length / 32))
        )
    assert len(values) == len(set(words))
    assert question.values.tolist() == [1, 1]
    assert set(question.indices.tolist()) < set(values)


def test_bm25_numbers_never_change() -> None:
    """The dimensions of words are the same in every version, for stored vectors outlive it."""
    (vector,) = Bm25Model().queries(["alpha beta café"])
    assert vector.indices.tolist() == EXPECTED
    assert (
        Bm25Model().queries(["CAFE\u0301, Beta; ALPHA"])[0].indices.tolist() == EXPECTED
    )


@settings(deadline=None)
@given(st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=4))
def test_bm25_takes_any_text(texts: list[str]) -> None:
    """For any text, vectors hold unique dimensions in range, ascending, with positive finite values."""
    model = Bm25Model()
    for vector in [*model.documents(texts), *model.queries(texts)]:
        assert len(vector.indices) == len(vector.values) > 0
        assert (np.diff(vector.indices) > 0).all()
        assert vector.indices.min() >= 0
        assert vector.indices.max() <= MAX_INDEX
        assert all(0 < value < math.inf for value in vector.values.tolist())
    actual = [model.documents([text])[0] for text in texts]
    assert str(actual) == str(model.documents(texts))


@settings(deadline=None)
@given(
    st.dictionaries(
        st.integers(0, MAX_INDEX),
        st.floats(width=32, allow_nan=False, allow_infinity=False),
    )
)
def test_sparse_vectors_are_stored_exactly(vector: dict[int, float]) -> None:
    """Written rows are read back in order, bit for bit."""
    given_vector = SparseArray(
        np.array(list(vector), dtype=np.int64), np.array(list(vector.values()))
    )
    read = SparseArray.from_bytes(given_vector.to_bytes())
    assert read.indices.tolist() == list(vector)
    assert list(map(repr, read.values.tolist())) == list(map(repr, vector.values()))


def test_models_of_each_kind() -> None:
    """An index has the models that its kind and its spec name, and only those."""
    for text, dense, sparse in [
        ("a:dense:2:COSINE", None, None),
        ("a:dense:2:COSINE:hashing", "hashing", None),
        ("a:sparse", None, None),
        ("a:sparse:bm25", None, "bm25"),
        ("a:hybrid:2:COSINE", None, None),
        ("a:hybrid:2:COSINE:hashing+bm25", "hashing", "bm25"),
    ]:
        models = load_models(IndexSpec.parse(text))
        assert (
            models.dense and models.dense.name,
            models.sparse and models.sparse.name,
        ) == (dense, sparse)


def test_text_without_models_is_rejected(tmp_path: Path) -> None:
    """A question in text to an index without models is 422."""
    registry = IndexRegistry(tmp_path)
    index = registry.create(IndexSpec.parse("words:sparse"))
    with pytest.raises(ApiError, match="model"):
        index.query([IndexQuery("text", 1, Included())])
    registry.close()


def test_names_of_the_public_services_models_are_known(tmp_path: Path) -> None:
    """An index may have the model name that a program expects; text is embedded, and info has the name."""
    registry = IndexRegistry(tmp_path)
    for name in STAND_INS:
        index = registry.create(
            IndexSpec.parse(f"{name}:hybrid:384:COSINE:{name}+BM25")
        )
        index.upsert_data(
            [
                {"id": "a", "data": "disk full"},
                {"id": "b", "data": "connection refused"},
            ]
        )
        shown = info(Call(index))
        assert shown["denseIndex"]["embeddingModel"] == name
        assert shown["sparseIndex"]["embeddingModel"] == "BM25"
        hits = query_data(Call(index, body={"data": "disks"}))
        assert hits[0]["id"] == "a"
    assert (
        registry.create(IndexSpec.parse("words:sparse:BGE_M3")).need_models().sparse
        is not None
    )
    registry.close()
