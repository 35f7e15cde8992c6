"""The types of the JSON that vector operations accept and return, for the description of the API."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required, TypeAlias, TypedDict

from msgspec import Meta

from toolkit.local.operations import Query, Texts
from toolkit.local.vectors.specs import MAX_DIMENSION, Kind, Similarity

VectorId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1024)]
TextData: TypeAlias = Annotated[str, Meta(min_length=1)]
TopK: TypeAlias = Annotated[int, Meta(ge=1, le=10_000)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Metadata: TypeAlias = dict[str, Any]


class SparseVectorJson(TypedDict):
    """A sparse vector."""

    indices: list[Annotated[int, Meta(ge=0)]]
    values: list[float]


class VectorJson(TypedDict, total=False):
    """A vector, with what was asked for."""

    id: Required[str]
    vector: list[float]
    sparseVector: SparseVectorJson
    metadata: Metadata
    data: str


class ScoredVectorJson(VectorJson):
    """A vector and its similarity."""

    score: float


class NewIndex(TypedDict, total=False):
    """The fields of an index; its name is that of the path."""

    name: str
    kind: Kind
    dimension: Annotated[int, Meta(ge=0, le=MAX_DIMENSION)]
    similarity: Similarity | None
    model: str | None
    rank_start: Literal[0, 1]


class UpsertText(TypedDict, total=False):
    """Text to be embedded."""

    id: Required[VectorId]
    data: Required[TextData]
    metadata: Metadata | None


class UpsertVector(TypedDict, total=False):
    """A vector to be stored."""

    id: Required[VectorId]
    vector: list[float]
    sparseVector: SparseVectorJson | None
    metadata: Metadata | None
    data: TextData | None


class UpdateVector(UpsertVector, total=False):
    """What to change in a vector."""

    metadataUpdateMode: Literal["OVERWRITE", "PATCH"] | None


class Included(TypedDict, total=False):
    """What vectors are returned with."""

    includeMetadata: bool | None
    includeVectors: bool | None
    includeData: bool | None


class SearchOptions(Included, total=False):
    """How vectors are searched."""

    topK: TopK | None
    filter: str | None
    weightingStrategy: Literal["IDF"] | None
    fusionAlgorithm: Literal["RRF", "DBSF"] | None
    queryMode: Literal["HYBRID", "DENSE", "SPARSE"] | None


class QueryByVector(SearchOptions, total=False):
    """A query by a vector."""

    vector: list[float]
    sparseVector: SparseVectorJson


class QueryByText(SearchOptions, total=False):
    """A query by text."""

    data: Required[TextData]


class ResumableByVector(QueryByVector, total=False):
    """A query by a vector that can be resumed."""

    maxIdle: Positive


class ResumableByText(QueryByText, total=False):
    """A query by text that can be resumed."""

    maxIdle: Positive


class NextResults(TypedDict):
    """How many more results of a resumable query."""

    uuid: str
    additionalK: TopK


class QueryEnd(TypedDict):
    """The resumable query to end."""

    uuid: str


class RangePage(Included, total=False):
    """A page of a range."""

    cursor: Required[str]
    limit: Required[TopK]
    prefix: str | None


class FetchVectors(Included, total=False):
    """Vectors by ids or by a prefix."""

    ids: Annotated[list[VectorId], Meta(max_length=10_000)]
    prefix: str | None


class DeleteVectors(TypedDict, total=False):
    """The vectors to delete; exactly one field."""

    ids: VectorId | list[VectorId]
    prefix: VectorId
    filter: str


class RenameNamespace(TypedDict, total=False):
    """A namespace and its new name."""

    namespace: Required[VectorId]
    newNamespace: Required[VectorId]
    deleteExisting: bool | None


class ResumableScores(TypedDict):
    """The first results of a resumable query."""

    uuid: str
    scores: list[ScoredVectorJson]


class VectorPage(TypedDict):
    """A page of vectors; the cursor is empty on the last one."""

    nextCursor: str
    vectors: list[VectorJson]


class Updated(TypedDict):
    """How many vectors were changed."""

    updated: Annotated[int, Meta(ge=0, le=1)]


class DeletedVectors(TypedDict):
    """How many vectors were deleted."""

    deleted: int


class Renamed(TypedDict):
    """Whether a namespace was renamed."""

    renamed: bool


class NamespaceCounts(TypedDict):
    """The counts of a namespace."""

    vectorCount: int
    pendingVectorCount: int


class IndexCounts(TypedDict, total=False):
    """Counts and settings of an index."""

    vectorCount: Required[int]
    pendingVectorCount: Required[int]
    indexSize: Required[int]
    dimension: Required[int]
    similarityFunction: Required[str]
    indexType: Literal["DENSE", "SPARSE", "HYBRID"]
    denseIndex: dict[str, Any]
    sparseIndex: dict[str, Any]
    namespaces: Required[dict[str, NamespaceCounts]]


class ResetQuery(Query):
    """Which namespaces to reset."""

    all: Annotated[Texts, Meta(description="Every namespace.")] = ()


UpsertVectors: TypeAlias = UpsertVector | Annotated[list[UpsertVector], Meta(min_length=1)]
UpsertTexts: TypeAlias = UpsertText | Annotated[list[UpsertText], Meta(min_length=1)]
QueriesByVector: TypeAlias = QueryByVector | Annotated[list[QueryByVector], Meta(min_length=1)]
QueriesByText: TypeAlias = QueryByText | Annotated[list[QueryByText], Meta(min_length=1)]
QueryResults: TypeAlias = list[ScoredVectorJson | list[ScoredVectorJson]]
