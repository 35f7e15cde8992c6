"""The operations of indexes as the API describes them: what each does, and the types of its JSON."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NamedTuple, Required, TypeAlias, TypedDict

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolkit.local.operations import Operation, Query, Texts
from toolkit.local.vectors.registry import IndexRegistry
from toolkit.local.vectors.specs import MAX_DIMENSION, IndexSpec, Kind, Similarity
from toolkit.local.vectors.vector_routes import vector_routes

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


class QueryOptions(Included, total=False):
    """How vectors are searched."""

    topK: TopK | None
    filter: str | None
    weightingStrategy: Literal["IDF"] | None
    fusionAlgorithm: Literal["RRF", "DBSF"] | None
    queryMode: Literal["HYBRID", "DENSE", "SPARSE"] | None


class QueryByVector(QueryOptions, total=False):
    """A query by a vector."""

    vector: list[float]
    sparseVector: SparseVectorJson


class QueryByText(QueryOptions, total=False):
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


class IndexInfo(TypedDict, total=False):
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


class _Described(NamedTuple):
    summary: str
    returns: Any
    body: Any = None
    query: type[Query] = Query
    errors: tuple[int, ...] = (404, 422)


_DONE: Final = Literal["Success"]
_DESCRIBED: Final = {
    "upsert": _Described(
        "Put vectors in.", _DONE, UpsertVector | Annotated[list[UpsertVector], Meta(min_length=1)]
    ),
    "upsert-data": _Described(
        "Put text in, to be embedded.", _DONE, UpsertText | Annotated[list[UpsertText], Meta(min_length=1)]
    ),
    "query": _Described(
        "The vectors most similar to a vector.",
        list[ScoredVectorJson | list[ScoredVectorJson]],
        QueryByVector | Annotated[list[QueryByVector], Meta(min_length=1)],
    ),
    "query-data": _Described(
        "The vectors most similar to text.",
        list[ScoredVectorJson | list[ScoredVectorJson]],
        QueryByText | Annotated[list[QueryByText], Meta(min_length=1)],
    ),
    "resumable-query": _Described("A query that can be resumed.", ResumableScores, ResumableByVector),
    "resumable-query-data": _Described("A text query that can be resumed.", ResumableScores, ResumableByText),
    "resumable-query-next": _Described(
        "More results of a resumable query.", list[ScoredVectorJson], NextResults
    ),
    "resumable-query-end": _Described("End a resumable query.", _DONE, QueryEnd),
    "range": _Described("A page of vectors.", VectorPage, RangePage),
    "fetch": _Described("Vectors by ids or by a prefix.", list[VectorJson | None], FetchVectors),
    "update": _Described("Change parts of a vector.", Updated, UpdateVector),
    "delete": _Described(
        "Remove vectors by ids, by a prefix or by a filter.",
        DeletedVectors,
        DeleteVectors | VectorId | list[VectorId],
    ),
    "reset": _Described(
        "Remove all vectors of a namespace; with ?all of every namespace.", _DONE, query=ResetQuery
    ),
    "random": _Described("Any one vector.", VectorJson | None),
    "info": _Described("Counts and settings.", IndexInfo),
    "list-namespaces": _Described("Names of the namespaces.", list[str]),
    "delete-namespace": _Described("Remove a namespace.", _DONE),
    "rename-namespace": _Described("Give a namespace another name.", Renamed, RenameNamespace),
}
_INDEXES: Final = {
    "indexes": _Described("The indexes.", list[IndexSpec], errors=()),
    "index": _Described("What an index is.", IndexSpec, errors=(404,)),
    "makeIndex": _Described(
        "Make an index; the same one again changes nothing.", IndexSpec, NewIndex, errors=(404, 409)
    ),
}


def vector_operations(registry: IndexRegistry) -> list[Operation]:
    """The operations of the indexes."""
    return [
        _operation(route, method)
        for route in vector_routes(registry)
        if isinstance(route, Route)
        for method in sorted(route.methods or ())
        if method != "HEAD"
    ]


def _operation(route: Route, method: str) -> Operation:
    rest = route.path.strip("/").split("/")[2:]  # behind vector/{index}: the operation and {namespace}
    if rest:
        described = _DESCRIBED[rest[0]]
        name = f"{method.lower()}-{rest[0]}{'InNamespace' if rest[1:] else ''}"
    else:
        name = "makeIndex" if method == "PUT" else "index" if "{index}" in route.path else "indexes"
        described = _INDEXES[name]

    async def endpoint(request: Request, _: Query) -> Response:
        found: Response = await route.endpoint(request)
        return found

    return Operation(
        method,
        route.path,
        name,
        described.summary,
        endpoint,
        described.returns,
        tag="vectors",
        query=described.query,
        body=described.body,
        errors=described.errors,
    )
