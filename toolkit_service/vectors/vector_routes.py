"""The operations of the vector indexes over HTTP, each declared once. Every result is under ``result``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    Required,
    TypeAlias,
    TypedDict,
    TypeVar,
)

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from toolkit.base.errors import InputError
from toolkit.base.serving import CALLER
from toolkit_service.api import (
    ApiError,
    invalid,
    parse_json,
    read_as,
    read_body,
    read_json,
)
from toolkit_service.operations import Declared, Operation, Query, Texts
from toolkit_service.vectors import bodies
from toolkit_service.vectors.bodies import Included
from toolkit_service.vectors.index_registry import IndexRegistry
from toolkit_service.vectors.rows import FilterBudget
from toolkit_service.vectors.specs import MAX_DIMENSION, IndexSpec, Kind, Similarity
from toolkit_service.vectors.vector_index import VectorIndex
from toolkit_service.vectors.vector_json import (
    ScoredVectorJson,
    VectorJson,
    results_as_json,
    rows_as_json,
)

R = TypeVar("R", bound=Callable[..., Any])
Done: TypeAlias = Literal["Success"]
# without the pattern of `Name`: msgspec 0.22 crashes if a union with a struct has it twice
Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=bodies.MAX_ID)]

_PLAIN: Final = ""
_NAMESPACED: Final = "InNamespace"
"""Suffixes of operation names: for the default namespace (or all namespaces), and for any namespace."""
_READ: Final = ("GET", "POST")
_DELETE: Final = ("DELETE", "POST")


class NewIndex(TypedDict, total=False):
    """The fields of an index; the name is the name in the path."""

    name: str
    kind: Kind
    dimension: Annotated[int, Meta(ge=0, le=MAX_DIMENSION)]
    similarity: Similarity | None
    model: str | None
    rank_start: Literal[0, 1]


class ResumableScores(TypedDict):
    """The first results of a resumable query."""

    uuid: str
    scores: list[ScoredVectorJson]


class VectorPage(TypedDict):
    """A page of vectors; the cursor is empty on the last page."""

    nextCursor: str
    vectors: list[VectorJson]


class Updated(TypedDict):
    """The number of changed vectors."""

    updated: Annotated[int, Meta(ge=0, le=1)]


class DeletedVectors(TypedDict):
    """The number of deleted vectors."""

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
    """The namespaces to reset."""

    all: Annotated[Texts, Meta(description="Every namespace.")] = ()


@dataclass(frozen=True)
class Call:
    """One call of an operation."""

    index: VectorIndex
    namespace: str = ""
    body: Any = None
    """A struct if the operation declares one, otherwise JSON values."""
    everywhere: bool = False
    """Whether the query string names ``all``."""
    budget: FilterBudget = field(default_factory=FilterBudget)

    @property
    def rows(self) -> list[Any]:
        """Return the rows of the body: one, or an array of them."""
        return self.body if isinstance(self.body, list) else [self.body]


_declared: Declared[IndexRegistry] = Declared()


def vector_operations(registry: IndexRegistry) -> list[Operation]:
    """Return the operations of the indexes, at ``/vector``."""
    return _declared.of(registry)


@_declared("GET", "/vector", "indexes", list[IndexSpec], tag="vectors")
async def _indexes(registry: IndexRegistry, _: Request, __: Query) -> Response:
    """List the indexes."""
    return _json(registry.specs())


@_declared("GET", "/vector/{index}", "index", IndexSpec, tag="vectors", errors=(404,))
async def _index(registry: IndexRegistry, request: Request, _: Query) -> Response:
    """Return the settings of an index."""
    return _json(registry.get(request.path_params["index"]).spec)


@_declared(
    "PUT",
    "/vector/{index}",
    "makeIndex",
    IndexSpec,
    tag="vectors",
    body=NewIndex,
    errors=(404, 409),
)
async def _make_index(registry: IndexRegistry, request: Request, _: Query) -> Response:
    """Make an index; a repeated request with the same fields changes nothing."""
    body = await read_json(request)
    return await registry.run(_make, registry, request.path_params["index"], body)


def _make(registry: IndexRegistry, name: str, body: Any) -> Response:
    """Make an index, in a thread of the registry."""
    if not isinstance(body, dict) or body.get("name", name) != name:
        raise invalid(
            f"index {name!r}", "another body", "a JSON object with its fields"
        )

    fields = {key: bodies.integral_as_int(setting) for key, setting in body.items()}
    fields["name"] = name
    try:
        spec = IndexSpec.from_dict(fields)
        index = registry.create(spec)
    except InputError as error:
        # a conflict if the name is in use, otherwise settings that cannot be used
        names = {spec.name for spec in registry.specs()}
        status = 409 if name in names else 400
        raise ApiError(status, str(error)) from None

    return _json(index.spec)


def _operation(
    name: str,
    returns: Any,
    body: Any = None,
    methods: Sequence[str] = ("POST",),
    *,
    query: type[Query] = Query,
    suffixes: Sequence[str] = (_PLAIN, _NAMESPACED),
    text: bool = False,
) -> Callable[[R], R]:
    """Declare an operation of an index, which runs off the event loop.

    If `body` is None, the body is not read; a struct is read before the operation runs. `suffixes` tell
    whether the path has a namespace, and `text` whether the index needs a model.
    """

    def declare(run: R) -> R:
        def respond(
            registry: IndexRegistry, request: Request, raw: bytes, budget: FilterBudget
        ) -> Response:
            index = registry.get(request.path_params["index"])
            namespace = request.path_params.get("namespace", "")
            if namespace:
                read_as(namespace, bodies.Namespace, "namespace")
            content = None if body is None else parse_json(raw)
            if text:
                index.need_models()
            if isinstance(body, type):
                content = bodies.read_item(content, body)
            result = run(
                Call(index, namespace, content, "all" in request.query_params, budget)
            )
            return _json("Success" if returns is Done else result)

        async def endpoint(
            registry: IndexRegistry, request: Request, _: Query
        ) -> Response:
            caller = request.scope.get("extensions", {}).get(CALLER)
            budget = FilterBudget(wanted=lambda: caller is None or caller.is_open)
            try:
                raw = b"" if body is None else await read_body(request)
                # parsing, numpy and SQLite work off the event loop, which other requests need
                return await registry.run(respond, registry, request, raw, budget)
            finally:
                # also when the service stops: canceling the task does not end the thread
                budget.end()

        endpoint.__doc__ = run.__doc__

        for suffix in suffixes:
            path = _PATHS[suffix].replace("OPERATION", name)
            for method in methods:
                operation_name = f"{method.lower()}-{name}{suffix}"
                declared = _declared(
                    method,
                    path,
                    operation_name,
                    returns,
                    tag="vectors",
                    query=query,
                    body=body,
                    errors=(404, 422),
                )
                declared(endpoint)

        return run

    return declare


_PATHS: Final = {
    _PLAIN: "/vector/{index}/OPERATION",
    _NAMESPACED: "/vector/{index}/OPERATION/{namespace:path}",
}


@_operation(
    "upsert",
    Done,
    bodies.UpsertVector | Annotated[list[bodies.UpsertVector], Meta(min_length=1)],
)
def _upsert(call: Call) -> None:
    """Add or replace vectors."""
    call.index.upsert(call.rows, namespace=call.namespace)


@_operation(
    "upsert-data",
    Done,
    bodies.UpsertText | Annotated[list[bodies.UpsertText], Meta(min_length=1)],
    text=True,
)
def _upsert_data(call: Call) -> None:
    """Add or replace vectors from text, which the index embeds."""
    call.index.upsert_data(call.rows, namespace=call.namespace)


@_operation(
    "query",
    list[ScoredVectorJson | list[ScoredVectorJson]],
    bodies.QueryByVector | Annotated[list[bodies.QueryByVector], Meta(min_length=1)],
)
def query(
    call: Call,
    kind: type[bodies.QueryByVector | bodies.QueryByText] = bodies.QueryByVector,
) -> Any:
    """Find the vectors most similar to a vector."""
    read = partial(bodies.index_query, spec=call.index.spec, budget=call.budget)
    queries = bodies.read_items(call.body, kind, "query", read)
    results = call.index.query(queries, namespace=call.namespace, budget=call.budget)
    lists = [
        results_as_json(rows, query.include)
        for query, rows in zip(queries, results, strict=True)
    ]

    # as the public service does, an array of one query is answered like a single query
    return lists if len(lists) > 1 else lists[0]


@_operation(
    "query-data",
    list[ScoredVectorJson | list[ScoredVectorJson]],
    bodies.QueryByText | Annotated[list[bodies.QueryByText], Meta(min_length=1)],
    text=True,
)
def query_data(call: Call) -> Any:
    """Find the vectors most similar to text."""
    return query(call, bodies.QueryByText)


@_operation("resumable-query", ResumableScores, bodies.ResumableByVector)
def _resumable_query(call: Call) -> Any:
    """Begin a query that can be resumed."""
    query = bodies.index_query(call.body, call.index.spec, call.budget)
    max_idle = call.body.max_idle or bodies.DEFAULT_IDLE
    query_id, rows = call.index.begin_query(
        query, max_idle=max_idle, namespace=call.namespace, budget=call.budget
    )

    return {"uuid": query_id, "scores": results_as_json(rows, query.include)}


@_operation("resumable-query-data", ResumableScores, bodies.ResumableByText, text=True)
def _resumable_query_data(call: Call) -> Any:
    """Begin a query by text that can be resumed."""
    return _resumable_query(call)


@_operation(
    "resumable-query-next",
    list[ScoredVectorJson],
    bodies.NextResults,
    suffixes=[_PLAIN],
)
def _next_results(call: Call) -> Any:
    """Return more results of a resumable query."""
    return results_as_json(
        *call.index.next_results(call.body.uuid, call.body.additional_k)
    )


@_operation("resumable-query-end", Done, bodies.QueryEnd, suffixes=[_PLAIN])
def _end_query(call: Call) -> None:
    """End a resumable query."""
    call.index.end_query(call.body.uuid)


@_operation("range", VectorPage, bodies.RangePage, _READ)
def range_page(call: Call) -> Any:
    """List a page of vectors."""
    cursor, rows = call.index.range(call.body, namespace=call.namespace)
    return {"nextCursor": cursor, "vectors": rows_as_json(rows, call.body)}


@_operation("fetch", list[VectorJson | None], bodies.FetchVectors, _READ)
def _fetch(call: Call) -> Any:
    """Return vectors by ids or by a prefix."""
    rows = call.index.fetch(call.body, namespace=call.namespace)
    shown = iter(rows_as_json([row for row in rows if row], call.body))
    return [row and next(shown) for row in rows]


@_operation("update", Updated, bodies.UpdateVector)
def _update(call: Call) -> Any:
    """Change parts of a vector."""
    return {"updated": call.index.update(call.body, namespace=call.namespace)}


@_operation(
    "delete", DeletedVectors, bodies.DeleteVectors | Id | int | list[Id | int], _DELETE
)
def _delete(call: Call) -> Any:
    """Remove vectors by ids, by a prefix or by a filter."""
    fields = call.body if isinstance(call.body, dict) else {"ids": call.body}
    body = bodies.read_item(fields, bodies.DeleteVectors)

    return {
        "deleted": call.index.delete(body, namespace=call.namespace, budget=call.budget)
    }


@_operation("reset", Done, methods=_DELETE, query=ResetQuery)
def _reset(call: Call) -> None:
    """Remove all vectors of a namespace; with ?all of every namespace."""
    call.index.reset(namespace=None if call.everywhere else call.namespace)


@_operation("random", VectorJson | None, methods=_READ)
def _random(call: Call) -> Any:
    """Return any vector."""
    row = call.index.random(namespace=call.namespace)
    include = Included(include_metadata=True, include_vectors=True, include_data=True)
    return row and rows_as_json([row], include)[0]


@_operation("info", IndexCounts, methods=_READ, suffixes=[_PLAIN])
def info(call: Call) -> Any:
    """Return counts and settings of an index."""
    spec, counts = call.index.spec, call.index.namespaces()
    dense_model, sparse_model = spec.models
    similarity = {
        "dimension": spec.dimension,
        "similarityFunction": spec.similarity or "",
    }
    shown: dict[str, Any] = {
        **_counted(sum(counts.values())),
        "indexSize": call.index.size(),
        **similarity,
        "indexType": spec.kind.upper(),
        "namespaces": {name: _counted(count) for name, count in counts.items()},
    }
    # a hybrid index has both fields
    if spec.has_dense:
        shown["denseIndex"] = {**similarity, "embeddingModel": dense_model or ""}
    if spec.has_sparse:
        shown["sparseIndex"] = {"embeddingModel": sparse_model or ""}
    return shown


def _counted(count: int) -> NamespaceCounts:
    return {"vectorCount": count, "pendingVectorCount": 0}


@_operation("list-namespaces", list[str], methods=_READ, suffixes=[_PLAIN])
def _list_namespaces(call: Call) -> Any:
    """List the names of the namespaces."""
    return list(call.index.namespaces())


@_operation("delete-namespace", Done, methods=_DELETE, suffixes=[_NAMESPACED])
def _delete_namespace(call: Call) -> None:
    """Remove a namespace."""
    call.index.delete_namespace(call.namespace)


@_operation("rename-namespace", Renamed, bodies.RenameNamespace, suffixes=[_PLAIN])
def _rename_namespace(call: Call) -> dict[str, bool]:
    """Give a namespace another name."""
    names = (call.body.namespace, call.body.new_namespace)
    call.index.rename_namespace(*names, delete_existing=bool(call.body.delete_existing))
    return {"renamed": True}


def _json(result: Any) -> Response:
    return Response(
        msgspec.json.encode({"result": result}), media_type="application/json"
    )
