"""The operations of the vector indexes over HTTP, each declared once. Every result is under ``result``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple, Required, TypeAlias, TypedDict

import msgspec
import numpy as np
from msgspec import Meta
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from toolkit.errors import InputError
from toolkit.local import api
from toolkit.local.api import ApiError, invalid, parse_json, read_as, read_json
from toolkit.local.operations import Endpoint, Operation, Query, Texts
from toolkit.local.vectors import bodies
from toolkit.local.vectors.bodies import (
    IncludedFields,
    Metadata,
    Namespace,
    Numbers,
    SparseVector,
    index_query,
    read_body,
    read_queries,
    whole,
)
from toolkit.local.vectors.float32 import json_arrays, score_numbers
from toolkit.local.vectors.index_database import IndexRow
from toolkit.local.vectors.registry import IndexRegistry
from toolkit.local.vectors.rows import FilterBudget
from toolkit.local.vectors.specs import MAX_DIMENSION, IndexSpec, Kind, Similarity
from toolkit.local.vectors.vector_index import ScoredRow, VectorIndex
from toolkit.serving import CALLER

_READ: Final = ("GET", "POST")
_DELETE: Final = ("DELETE", "POST")
Done: TypeAlias = Literal["Success"]
# without the pattern of `Name`: msgspec 0.22 crashes where a union with a struct has it twice
Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=bodies.MAX_ID)]


class NewIndex(TypedDict, total=False):
    """The fields of an index; its name is that of the path."""

    name: str
    kind: Kind
    dimension: Annotated[int, Meta(ge=0, le=MAX_DIMENSION)]
    similarity: Similarity | None
    model: str | None
    rank_start: Literal[0, 1]


class VectorJson(TypedDict, total=False):
    """A vector, with what the request includes."""

    id: Required[str]
    vector: Numbers
    sparseVector: SparseVector
    metadata: Metadata
    data: str


class ScoredVectorJson(VectorJson):
    """A vector and its similarity."""

    score: float


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


class IndexCounts(NamespaceCounts, total=False):
    """Counts and settings of an index."""

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


@dataclass(frozen=True)
class Call:
    """One call of an operation."""

    index: VectorIndex
    namespace: str = ""
    body: Any = None
    flags: frozenset[str] = frozenset()
    """The names in the query string."""
    budget: FilterBudget = field(default_factory=FilterBudget)

    @property
    def rows(self) -> list[Any]:
        """The body's rows: one, or an array of them."""
        return self.body if isinstance(self.body, list) else [self.body]


class IndexOperation(NamedTuple):
    """One operation of an index, with and without a namespace. A body of None is not read."""

    run: Callable[[Call], Any]
    returns: Any
    body: Any = None
    methods: Sequence[str] = ("POST",)
    namespaced: bool = True
    query: type[Query] = Query


OPERATIONS: Final[dict[str, IndexOperation]] = {}
"""Every operation of an index, by the name in its address."""


def _operation(
    name: str, returns: Any, body: Any = None, **described: Any
) -> Callable[[Callable[[Call], Any]], Callable[[Call], Any]]:
    """Declare an operation; the first line of its docstring is its summary."""

    def declare(run: Callable[[Call], Any]) -> Callable[[Call], Any]:
        OPERATIONS[name] = IndexOperation(run, returns, body, **described)
        return run

    return declare


def vector_operations(registry: IndexRegistry) -> list[Operation]:
    """The operations of the indexes, at ``/vector``."""

    async def indexes(_: Request, __: Query) -> Response:
        return _json([spec.to_dict() for spec in registry.specs()])

    async def index(request: Request, _: Query) -> Response:
        return _json(registry.get(request.path_params["index"]).spec.to_dict())

    async def make(request: Request, _: Query) -> Response:
        body = await read_json(request)
        return await run_in_threadpool(_make, registry, request.path_params["index"], body)

    declare = partial(Operation, tag="vectors")
    path, making = "/vector/{index}", "Make an index; the same one again changes nothing."
    operations = [
        declare("GET", "/vector", "indexes", "The indexes.", indexes, list[IndexSpec]),
        declare("GET", path, "index", "What an index is.", index, IndexSpec, errors=(404,)),
        declare("PUT", path, "makeIndex", making, make, IndexSpec, body=NewIndex, errors=(404, 409)),
    ]
    for name, operation in OPERATIONS.items():
        names = [name, f"{name}InNamespace"]
        described = partial(
            declare,
            summary=(operation.run.__doc__ or "").partition("\n")[0],
            endpoint=_endpoint(registry, operation),
            returns=operation.returns,
            query=operation.query,
            body=operation.body,
            errors=(404, 422),
        )
        if name == "delete-namespace":
            names = names[1:]
        elif not operation.namespaced:
            names = names[:1]
        for full_name in names:
            path = f"/vector/{{index}}/{name}" + "/{namespace:path}" * full_name.endswith("InNamespace")
            operations += [
                described(method=method, path=path, name=f"{method.lower()}-{full_name}")
                for method in sorted(operation.methods)
            ]
    return operations


def _make(registry: IndexRegistry, name: str, body: Any) -> Response:
    if not isinstance(body, dict) or body.get("name", name) != name:
        raise invalid(f"index {name!r}", "another body", "a JSON object with its fields")
    try:
        fields = {key: whole(value) for key, value in body.items()}
        return _json(registry.create(IndexSpec.from_dict(fields | {"name": name})).spec.to_dict())
    except InputError as error:
        taken = any(spec.name == name for spec in registry.specs())
        raise ApiError(409 if taken else 400, str(error)) from None


def _endpoint(registry: IndexRegistry, operation: IndexOperation) -> Endpoint:
    def respond(request: Request, body: bytes | None, budget: FilterBudget) -> Response:
        index = registry.get(request.path_params["index"])
        namespace = request.path_params.get("namespace", "")
        if namespace:
            read_as(namespace, Namespace, "namespace")
        values = None if body is None else parse_json(body)
        call = Call(index, namespace, values, frozenset(request.query_params), budget)
        return _json(operation.run(call))

    async def endpoint(request: Request, _: Query) -> Response:
        caller = request.scope.get("extensions", {}).get(CALLER)
        budget = FilterBudget(wanted=lambda: caller is None or caller.is_open)
        try:
            body = None if operation.body is None else await api.read_body(request)
            # parsing, numpy and SQLite work off the event loop, which other requests need
            return await run_in_threadpool(respond, request, body, budget)
        finally:
            budget.end()  # also when the service ends: canceling the task does not end its thread

    return endpoint


@_operation("upsert", Done, bodies.UpsertVector | Annotated[list[bodies.UpsertVector], Meta(min_length=1)])
def _upsert(call: Call) -> str:
    """Put vectors in."""
    call.index.upsert(call.rows, namespace=call.namespace)
    return "Success"


@_operation("upsert-data", Done, bodies.UpsertText | Annotated[list[bodies.UpsertText], Meta(min_length=1)])
def _upsert_data(call: Call) -> str:
    """Put text in, to be embedded."""
    call.index.upsert_data(call.rows, namespace=call.namespace)
    return "Success"


@_operation(
    "query",
    list[ScoredVectorJson | list[ScoredVectorJson]],
    bodies.QueryByVector | Annotated[list[bodies.QueryByVector], Meta(min_length=1)],
)
def _query(call: Call) -> Any:
    """The vectors most similar to a vector."""
    return _results(call, bodies.QueryByVector)


@_operation(
    "query-data",
    list[ScoredVectorJson | list[ScoredVectorJson]],
    bodies.QueryByText | Annotated[list[bodies.QueryByText], Meta(min_length=1)],
)
def _query_data(call: Call) -> Any:
    """The vectors most similar to text."""
    call.index.need_models()
    return _results(call, bodies.QueryByText)


def _results(call: Call, kind: type[bodies.QueryByVector | bodies.QueryByText]) -> Any:
    queries = read_queries(call.body, kind, call.index.spec, call.budget)
    results = call.index.query(queries, namespace=call.namespace, budget=call.budget)
    lists = [_results_as_json(rows, query.include) for query, rows in zip(queries, results, strict=True)]
    return lists if isinstance(call.body, list) and len(lists) > 1 else lists[0]


@_operation("resumable-query", ResumableScores, bodies.ResumableByVector)
def _resumable_query(call: Call) -> Any:
    """A query that can be resumed."""
    return _first_results(call, read_body(call.body, bodies.ResumableByVector, "query"))


@_operation("resumable-query-data", ResumableScores, bodies.ResumableByText)
def _resumable_query_data(call: Call) -> Any:
    """A text query that can be resumed."""
    call.index.need_models()
    return _first_results(call, read_body(call.body, bodies.ResumableByText, "query"))


def _first_results(call: Call, body: bodies.ResumableByVector | bodies.ResumableByText) -> Any:
    query = index_query(body, call.index.spec)
    query_id, rows = call.index.begin_query(
        query, max_idle=body.max_idle or bodies.DEFAULT_IDLE, namespace=call.namespace, budget=call.budget
    )
    return {"uuid": query_id, "scores": _results_as_json(rows, query.include)}


@_operation("resumable-query-next", list[ScoredVectorJson], bodies.NextResults, namespaced=False)
def _next_results(call: Call) -> Any:
    """More results of a resumable query."""
    body = read_body(call.body, bodies.NextResults)
    return _results_as_json(*call.index.next_results(body.uuid, body.additional_k))


@_operation("resumable-query-end", Done, bodies.QueryEnd, namespaced=False)
def _end_query(call: Call) -> str:
    """End a resumable query."""
    call.index.end_query(read_body(call.body, bodies.QueryEnd).uuid)
    return "Success"


@_operation("range", VectorPage, bodies.RangePage, methods=_READ)
def _range(call: Call) -> Any:
    """A page of vectors."""
    body = read_body(call.body, bodies.RangePage)
    cursor, rows = call.index.range(body, namespace=call.namespace)
    return {"nextCursor": cursor, "vectors": _rows_as_json(rows, body.include)}


@_operation("fetch", list[VectorJson | None], bodies.FetchVectors, methods=_READ)
def _fetch(call: Call) -> Any:
    """Vectors by ids or by a prefix."""
    body = read_body(call.body, bodies.FetchVectors)
    rows = call.index.fetch(body, namespace=call.namespace)
    shown = iter(_rows_as_json([row for row in rows if row], body.include))
    return [row and next(shown) for row in rows]


@_operation("update", Updated, bodies.UpdateVector)
def _update(call: Call) -> Any:
    """Change parts of a vector."""
    body = read_body(call.body, bodies.UpdateVector)
    return {"updated": call.index.update(body, namespace=call.namespace)}


@_operation("delete", DeletedVectors, bodies.DeleteVectors | Id | list[Id], methods=_DELETE)
def _delete(call: Call) -> Any:
    """Remove vectors by ids, by a prefix or by a filter."""
    value = {"ids": call.body} if isinstance(call.body, str | list) else call.body
    body = read_body(value, bodies.DeleteVectors)
    return {"deleted": call.index.delete(body, namespace=call.namespace, budget=call.budget)}


@_operation("reset", Done, methods=_DELETE, query=ResetQuery)
def _reset(call: Call) -> str:
    """Remove all vectors of a namespace; with ?all of every namespace."""
    call.index.reset(namespace=None if "all" in call.flags else call.namespace)
    return "Success"


@_operation("random", VectorJson | None, methods=_READ)
def _random(call: Call) -> Any:
    """Any one vector."""
    row = call.index.random(namespace=call.namespace)
    return row and _rows_as_json([row], IncludedFields(metadata=True, vectors=True, data=True))[0]


@_operation("info", IndexCounts, methods=_READ, namespaced=False)
def _info(call: Call) -> Any:
    """Counts and settings."""
    spec, models, counts = call.index.spec, call.index.spec.models, call.index.namespaces()
    similarity = {"dimension": spec.dimension, "similarityFunction": spec.similarity or ""}
    info: dict[str, Any] = {
        "vectorCount": sum(counts.values()),
        "pendingVectorCount": 0,
        "indexSize": call.index.size(),
        **similarity,
        "indexType": spec.kind.upper(),
        "namespaces": {
            name: {"vectorCount": count, "pendingVectorCount": 0} for name, count in counts.items()
        },
    }
    if spec.has_dense:
        info["denseIndex"] = similarity | {"embeddingModel": models.dense or ""}
    if spec.has_sparse:
        info["sparseIndex"] = {"embeddingModel": models.sparse or ""}
    return info


@_operation("list-namespaces", list[str], methods=_READ, namespaced=False)
def _list_namespaces(call: Call) -> Any:
    """Names of the namespaces."""
    return list(call.index.namespaces())


@_operation("delete-namespace", Done, methods=_DELETE)
def _delete_namespace(call: Call) -> str:
    """Remove a namespace."""
    call.index.delete_namespace(call.namespace)
    return "Success"


@_operation("rename-namespace", Renamed, bodies.RenameNamespace, namespaced=False)
def _rename_namespace(call: Call) -> dict[str, bool]:
    """Give a namespace another name."""
    body = read_body(call.body, bodies.RenameNamespace)
    call.index.rename_namespace(
        body.namespace, body.new_namespace, delete_existing=bool(body.delete_existing)
    )
    return {"renamed": True}


def _rows_as_json(rows: Sequence[IndexRow], include: IncludedFields) -> list[dict[str, Any]]:
    """Rows as responses show them, their vectors with the shortest digits of float32."""
    arrays = []
    for row in rows if include.vectors else ():
        arrays += [row.vector] if row.vector.size else []
        arrays += [row.sparse.values.astype(np.float32)] if row.sparse else []
    numbers = iter(json_arrays(arrays))
    shown = []
    for row in rows:
        item: dict[str, Any] = {"id": row.id}
        if include.vectors and row.vector.size:
            item["vector"] = next(numbers)
        if include.vectors and row.sparse:
            item["sparseVector"] = {"indices": row.sparse.indices.tolist(), "values": next(numbers)}
        if include.metadata and row.metadata is not None:
            item["metadata"] = msgspec.Raw(row.metadata.encode())  # as stored: numbers keep their digits
        if include.data and row.data is not None:
            item["data"] = row.data
        shown.append(item)
    return shown


def _results_as_json(results: Sequence[ScoredRow], include: IncludedFields) -> list[dict[str, Any]]:
    scores = score_numbers([result.score for result in results])
    rows = _rows_as_json([result.row for result in results], include)
    return [{"id": row.pop("id"), "score": score, **row} for row, score in zip(rows, scores, strict=True)]


def _json(result: Any) -> Response:
    return Response(msgspec.json.encode({"result": result}), media_type="application/json")
