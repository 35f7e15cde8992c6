"""The operations of the vector indexes over HTTP, each declared once. Every result is under ``result``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from toolkit.errors import InputError
from toolkit.local.api import ApiError, parse_json, read_body, read_json
from toolkit.local.operations import Endpoint, Operation, Query
from toolkit.local.vectors import api_types as types
from toolkit.local.vectors.bodies import (
    IncludedFields,
    read_end,
    read_fetch,
    read_next,
    read_queries,
    read_range,
    read_renaming,
    read_resumable,
    read_selection,
    read_update,
)
from toolkit.local.vectors.checks import read_namespace, whole
from toolkit.local.vectors.filtering import FilterBudget
from toolkit.local.vectors.float32 import json_arrays, score_numbers
from toolkit.local.vectors.index_database import IndexRow
from toolkit.local.vectors.registry import IndexRegistry
from toolkit.local.vectors.specs import IndexSpec
from toolkit.local.vectors.vector_index import ScoredRow, VectorIndex
from toolkit.serving import CALLER


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
    summary: str
    returns: Any
    body: Any = None
    methods: Sequence[str] = ("POST",)
    namespaced: bool = True
    query: type[Query] = Query


def vector_operations(registry: IndexRegistry) -> list[Operation]:
    """The operations of the indexes, at ``/vector``.

    A namespace is the remainder of the path, slashes included; when empty, the default namespace.
    """

    async def indexes(_: Request, __: Query) -> Response:
        return _json({"result": [spec.to_dict() for spec in registry.specs()]})

    async def index(request: Request, _: Query) -> Response:
        found = await run_in_threadpool(registry.get, request.path_params["index"])
        return _json({"result": found.spec.to_dict()})

    async def make(request: Request, _: Query) -> Response:
        body = await read_json(request)
        return await run_in_threadpool(_make, registry, request.path_params["index"], body)

    declare = partial(Operation, tag="vectors")
    making = "Make an index; the same one again changes nothing."
    path = "/vector/{index}"
    operations = [
        declare("GET", "/vector", "indexes", "The indexes.", indexes, list[IndexSpec]),
        declare("GET", path, "index", "What an index is.", _with_errors(index), IndexSpec, errors=(404,)),
        declare(
            "PUT",
            path,
            "makeIndex",
            making,
            _with_errors(make),
            IndexSpec,
            body=types.NewIndex,
            errors=(404, 409),
        ),
    ]
    for name, one in OPERATIONS.items():
        endpoint, path = _with_errors(_operate(registry, one)), f"/vector/{{index}}/{name}"
        paths = {name: path, f"{name}InNamespace": f"{path}/{{namespace:path}}"}
        if name == "delete-namespace":
            del paths[name]
        elif not one.namespaced:
            paths.popitem()
        operations += [
            declare(
                method,
                path,
                f"{method.lower()}-{full_name}",
                one.summary,
                endpoint,
                one.returns,
                query=one.query,
                body=one.body,
                errors=(404, 422),
            )
            for full_name, path in paths.items()
            for method in sorted(one.methods)
        ]
    return operations


def _with_errors(endpoint: Endpoint) -> Endpoint:
    async def responding(request: Request, query: Query) -> Response:
        try:
            return await endpoint(request, query)
        except ApiError as error:
            return _json({"error": error.message, "status": error.status}, error.status)

    return responding


def _make(registry: IndexRegistry, name: str, body: Any) -> Response:
    if not isinstance(body, dict) or body.get("name", name) != name:
        raise ApiError(400, f"index {name!r}; got another body; expected a JSON object with its fields")
    try:
        numbers = {key: whole(value) for key, value in body.items()}
        spec = IndexSpec.from_dict(numbers | {"name": name})
        return _json({"result": registry.create(spec).spec.to_dict()})
    except InputError as error:
        taken = any(spec.name == name for spec in registry.specs())
        raise ApiError(409 if taken else 400, str(error)) from None


def _operate(registry: IndexRegistry, operation: IndexOperation) -> Endpoint:
    def respond(request: Request, body: bytes | None, budget: FilterBudget) -> Response:
        index = registry.get(request.path_params["index"])
        namespace = request.path_params.get("namespace", "")
        if namespace:
            read_namespace(namespace, "namespace")
        values = None if body is None else parse_json(body)
        call = Call(index, namespace, values, frozenset(request.query_params), budget)
        return _json({"result": operation.run(call)})

    async def endpoint(request: Request, _: Query) -> Response:
        caller = request.scope.get("extensions", {}).get(CALLER)
        budget = FilterBudget(wanted=lambda: caller is None or caller.is_open)
        try:
            body = None if operation.body is None else await read_body(request)
            # parsing, numpy and SQLite work off the event loop, which other requests need
            return await run_in_threadpool(respond, request, body, budget)
        finally:
            budget.end()  # also when the service ends: canceling the task does not end its thread

    return endpoint


def _upsert(call: Call) -> str:
    call.index.upsert(call.rows, namespace=call.namespace)
    return "Success"


def _upsert_data(call: Call) -> str:
    call.index.upsert_data(call.rows, namespace=call.namespace)
    return "Success"


def _query(call: Call, *, text: bool = False) -> Any:
    queries, several = read_queries(call.body, call.index.spec, text=text, budget=call.budget)
    results = call.index.query(queries, namespace=call.namespace, budget=call.budget)
    lists = [_results_as_json(rows, query.include) for query, rows in zip(queries, results, strict=True)]
    return lists if several else lists[0]


def _query_data(call: Call) -> Any:
    call.index.need_models()
    return _query(call, text=True)


def _resumable_query(call: Call, *, text: bool = False) -> Any:
    query, max_idle = read_resumable(call.body, call.index.spec, text=text)
    query_id, rows = call.index.begin_query(
        query, max_idle=max_idle, namespace=call.namespace, budget=call.budget
    )
    return {"uuid": query_id, "scores": _results_as_json(rows, query.include)}


def _resumable_query_data(call: Call) -> Any:
    call.index.need_models()
    return _resumable_query(call, text=True)


def _resumable_query_next(call: Call) -> Any:
    return _results_as_json(*call.index.next_results(*read_next(call.body)))


def _resumable_query_end(call: Call) -> str:
    call.index.end_query(read_end(call.body))
    return "Success"


def _range(call: Call) -> Any:
    wanted = read_range(call.body, call.index.last_sequence())
    cursor, rows = call.index.range(wanted, namespace=call.namespace)
    return {"nextCursor": cursor, "vectors": _rows_as_json(rows, wanted.include)}


def _fetch(call: Call) -> Any:
    wanted = read_fetch(call.body)
    rows = call.index.fetch(wanted, namespace=call.namespace)
    found = iter(_rows_as_json([row for row in rows if row], wanted.include))
    return [row and next(found) for row in rows]


def _update(call: Call) -> Any:
    wanted = read_update(call.body, call.index.spec)
    return {"updated": call.index.update(wanted, namespace=call.namespace)}


def _delete(call: Call) -> Any:
    wanted = read_selection(call.body)
    return {"deleted": call.index.delete(wanted, namespace=call.namespace, budget=call.budget)}


def _reset(call: Call) -> str:
    call.index.reset(namespace=None if "all" in call.flags else call.namespace)
    return "Success"


def _random(call: Call) -> Any:
    row = call.index.random(namespace=call.namespace)
    return row and _rows_as_json([row], IncludedFields(metadata=True, vectors=True, data=True))[0]


def _info(call: Call) -> Any:
    spec, models, counts = call.index.spec, call.index.spec.models, call.index.namespaces()
    info: dict[str, Any] = {
        "vectorCount": sum(counts.values()),
        "pendingVectorCount": 0,
        "indexSize": call.index.size(),
        "dimension": spec.dimension,
        "similarityFunction": spec.similarity or "",
        "indexType": spec.kind.upper(),
    }
    if spec.has_dense:
        info["denseIndex"] = {
            "dimension": spec.dimension,
            "similarityFunction": spec.similarity,
            "embeddingModel": models.dense or "",
        }
    if spec.has_sparse:
        info["sparseIndex"] = {"embeddingModel": models.sparse or ""}
    info["namespaces"] = {
        name: {"vectorCount": count, "pendingVectorCount": 0} for name, count in counts.items()
    }
    return info


def _list_namespaces(call: Call) -> Any:
    return list(call.index.namespaces())


def _delete_namespace(call: Call) -> str:
    call.index.delete_namespace(call.namespace)
    return "Success"


def _rename_namespace(call: Call) -> dict[str, bool]:
    name, new_name, delete_existing = read_renaming(call.body)
    call.index.rename_namespace(name, new_name, delete_existing=delete_existing)
    return {"renamed": True}


_READ: Final = ("GET", "POST")
_DELETE: Final = ("DELETE", "POST")
_DONE: Final = Literal["Success"]
OPERATIONS: Final = {
    "upsert": IndexOperation(_upsert, "Put vectors in.", _DONE, types.UpsertVectors),
    "upsert-data": IndexOperation(_upsert_data, "Put text in, to be embedded.", _DONE, types.UpsertTexts),
    "query": IndexOperation(
        _query, "The vectors most similar to a vector.", types.QueryResults, types.QueriesByVector
    ),
    "query-data": IndexOperation(
        _query_data, "The vectors most similar to text.", types.QueryResults, types.QueriesByText
    ),
    "resumable-query": IndexOperation(
        _resumable_query, "A query that can be resumed.", types.ResumableScores, types.ResumableByVector
    ),
    "resumable-query-data": IndexOperation(
        _resumable_query_data,
        "A text query that can be resumed.",
        types.ResumableScores,
        types.ResumableByText,
    ),
    "resumable-query-next": IndexOperation(
        _resumable_query_next,
        "More results of a resumable query.",
        list[types.ScoredVectorJson],
        types.NextResults,
        namespaced=False,
    ),
    "resumable-query-end": IndexOperation(
        _resumable_query_end, "End a resumable query.", _DONE, types.QueryEnd, namespaced=False
    ),
    "range": IndexOperation(_range, "A page of vectors.", types.VectorPage, types.RangePage, _READ),
    "fetch": IndexOperation(
        _fetch, "Vectors by ids or by a prefix.", list[types.VectorJson | None], types.FetchVectors, _READ
    ),
    "update": IndexOperation(_update, "Change parts of a vector.", types.Updated, types.UpdateVector),
    "delete": IndexOperation(
        _delete,
        "Remove vectors by ids, by a prefix or by a filter.",
        types.DeletedVectors,
        types.DeleteVectors | types.VectorId | list[types.VectorId],
        _DELETE,
    ),
    "reset": IndexOperation(
        _reset,
        "Remove all vectors of a namespace; with ?all of every namespace.",
        _DONE,
        methods=_DELETE,
        query=types.ResetQuery,
    ),
    "random": IndexOperation(_random, "Any one vector.", types.VectorJson | None, methods=_READ),
    "info": IndexOperation(_info, "Counts and settings.", types.IndexCounts, methods=_READ, namespaced=False),
    "list-namespaces": IndexOperation(
        _list_namespaces, "Names of the namespaces.", list[str], methods=_READ, namespaced=False
    ),
    "delete-namespace": IndexOperation(_delete_namespace, "Remove a namespace.", _DONE, methods=_DELETE),
    "rename-namespace": IndexOperation(
        _rename_namespace,
        "Give a namespace another name.",
        types.Renamed,
        types.RenameNamespace,
        namespaced=False,
    ),
}
"""Every operation of an index, by the name in its address."""


def _rows_as_json(rows: Sequence[IndexRow], include: IncludedFields) -> list[dict[str, Any]]:
    """Rows as responses show them, their vectors with the shortest digits of float32."""
    arrays = []
    for row in rows if include.vectors else ():
        arrays += [row.vector] if row.vector.size else []
        arrays += [row.sparse.values.astype(np.float32)] if row.sparse else []
    numbers = iter(json_arrays(arrays))
    shown = []
    for row in rows:
        wire: dict[str, Any] = {"id": row.id}
        if include.vectors and row.vector.size:
            wire["vector"] = next(numbers)
        if include.vectors and row.sparse:
            wire["sparseVector"] = {"indices": row.sparse.indices.tolist(), "values": next(numbers)}
        if include.metadata and row.metadata is not None:
            wire["metadata"] = msgspec.Raw(row.metadata.encode())  # as stored: numbers keep their digits
        if include.data and row.data is not None:
            wire["data"] = row.data
        shown.append(wire)
    return shown


def _results_as_json(results: Sequence[ScoredRow], include: IncludedFields) -> list[dict[str, Any]]:
    scores = score_numbers([result.score for result in results])
    rows = _rows_as_json([result.row for result in results], include)
    return [{"id": row.pop("id"), "score": score, **row} for row, score in zip(rows, scores, strict=True)]


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")
