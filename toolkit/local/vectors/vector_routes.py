"""The addresses of the vector half: each operation of an index, with and without a namespace.

Every answer stands under ``result``; a refusal is ``{"error": …, "status": …}``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from toolkit.errors import InputError
from toolkit.local.api import ApiError, parse_json, read_body, read_json
from toolkit.local.vectors.bodies import (
    read_fetch,
    read_range,
    read_renaming,
    read_selection,
    read_update,
)
from toolkit.local.vectors.checks import read_namespace, whole
from toolkit.local.vectors.filtering import FilterBudget
from toolkit.local.vectors.float32 import json_arrays, score_numbers
from toolkit.local.vectors.index_database import IndexRow
from toolkit.local.vectors.queries import (
    Include,
    read_end,
    read_max_idle,
    read_next,
    read_queries,
    read_query,
)
from toolkit.local.vectors.registry import IndexRegistry
from toolkit.local.vectors.specs import IndexSpec
from toolkit.local.vectors.vector_index import ScoredRow, VectorIndex
from toolkit.serving import CALLER

_Handler = Callable[[Request], Awaitable[Response]]


class Call(NamedTuple):
    """What a request says beside its body: the names in its query string, and what its filters may take."""

    flags: frozenset[str]
    budget: FilterBudget


class Operation(NamedTuple):
    """One operation: what it does with an index, a namespace, a body and what else its request says."""

    run: Callable[[VectorIndex, str, Any, Call], Any]
    methods: Sequence[str]
    namespaced: bool = True
    has_body: bool = True


def vector_routes(registry: IndexRegistry) -> list[BaseRoute]:
    """All routes of the vector half, with whole paths: put them at the root of the application.

    Parameters
    ----------
    registry : IndexRegistry

    Returns
    -------
    list of BaseRoute
        ``/vector`` lists the indexes; ``/vector/{index}`` describes one (GET) or makes it (PUT, the fields of
        `IndexSpec` as JSON); ``/vector/{index}/<operation>`` and ``/vector/{index}/<operation>/{namespace}``.
        A namespace is the rest of the path, slashes included; an empty rest is the default namespace.
    """
    routes: list[BaseRoute] = [
        Route("/vector", _listing(registry), methods=["GET"]),
        Route("/vector/{index}", _making(registry), methods=["GET", "PUT"]),
    ]
    for name, operation in OPERATIONS.items():
        handler, methods = _operating(registry, operation), list(operation.methods)
        if name != "delete-namespace":
            routes.append(Route(f"/vector/{{index}}/{name}", handler, methods=methods))
        if operation.namespaced:
            routes.append(Route(f"/vector/{{index}}/{name}/{{namespace:path}}", handler, methods=methods))
    return routes


def _listing(registry: IndexRegistry) -> _Handler:
    async def handle(_: Request) -> Response:
        return _json({"result": [spec.to_dict() for spec in registry.specs()]})

    return handle


def _making(registry: IndexRegistry) -> _Handler:
    def make(name: str, body: Any) -> Response:
        if not isinstance(body, dict) or body.get("name", name) != name:
            raise ApiError(400, f"index {name!r}; got another body; expected a JSON object with its fields")
        try:
            numbers = {key: whole(value) for key, value in body.items()}
            spec = IndexSpec.from_dict(numbers | {"name": name})
            return _json({"result": registry.create(spec).spec.to_dict()})
        except InputError as error:
            taken = any(spec.name == name for spec in registry.specs())
            raise ApiError(409 if taken else 400, str(error)) from None

    def describe(name: str) -> Response:
        return _json({"result": registry.get(name).spec.to_dict()})

    async def handle(request: Request) -> Response:
        name = request.path_params["index"]
        try:
            if request.method == "PUT":
                return await run_in_threadpool(make, name, await read_json(request))
            return await run_in_threadpool(describe, name)
        except ApiError as refusal:
            return _refused(refusal)

    return handle


def _operating(registry: IndexRegistry, operation: Operation) -> _Handler:
    def answer(name: str, namespace: str, body: bytes | None, call: Call) -> Response:
        index = registry.get(name)
        if namespace:
            read_namespace(namespace, "namespace")
        values = None if body is None else parse_json(body)
        return _json({"result": operation.run(index, namespace, values, call)})

    async def handle(request: Request) -> Response:
        caller = request.scope.get("extensions", {}).get(CALLER)
        budget = FilterBudget(wanted=lambda: caller is None or caller.is_open)
        call = Call(frozenset(request.query_params), budget)
        try:
            body = await read_body(request) if operation.has_body else None
            name, namespace = request.path_params["index"], request.path_params.get("namespace", "")
            # parsing, numpy and SQLite work off the event loop, which other requests need
            return await run_in_threadpool(answer, name, namespace, body, call)
        except ApiError as refusal:
            return _refused(refusal)
        finally:
            budget.end()  # also when the service ends: its thread is not waited for by canceling the task

    return handle


def _upsert(index: VectorIndex, namespace: str, body: Any, _: Call) -> str:
    index.upsert(body if isinstance(body, list) else [body], namespace=namespace)
    return "Success"


def _upsert_data(index: VectorIndex, namespace: str, body: Any, _: Call) -> str:
    index.upsert_data(body if isinstance(body, list) else [body], namespace=namespace)
    return "Success"


def _query(index: VectorIndex, namespace: str, body: Any, call: Call) -> Any:
    return _hits(index, namespace, body, call.budget, text=False)


def _query_data(index: VectorIndex, namespace: str, body: Any, call: Call) -> Any:
    index.need_models()
    return _hits(index, namespace, body, call.budget, text=True)


def _hits(index: VectorIndex, namespace: str, body: Any, budget: FilterBudget, *, text: bool) -> Any:
    queries, several = read_queries(body, index.spec, text=text, budget=budget)
    results = index.query(queries, namespace=namespace, budget=budget)
    answers = [_hits_as_json(hits, query.include) for query, hits in zip(queries, results, strict=True)]
    return answers if several else answers[0]


def _resumable_query(index: VectorIndex, namespace: str, body: Any, call: Call) -> Any:
    return _begun(index, namespace, body, call.budget, text=False)


def _resumable_query_data(index: VectorIndex, namespace: str, body: Any, call: Call) -> Any:
    index.need_models()
    return _begun(index, namespace, body, call.budget, text=True)


def _begun(index: VectorIndex, namespace: str, body: Any, budget: FilterBudget, *, text: bool) -> Any:
    query, max_idle = read_query(body, index.spec, text=text), read_max_idle(body)
    opened, hits = index.begin_query(query, max_idle=max_idle, namespace=namespace, budget=budget)
    return {"uuid": opened, "scores": _hits_as_json(hits, query.include)}


def _resumable_query_next(index: VectorIndex, _: str, body: Any, __: Call) -> Any:
    hits, include = index.next_hits(*read_next(body))
    return _hits_as_json(hits, include)


def _resumable_query_end(index: VectorIndex, _: str, body: Any, __: Call) -> str:
    index.end_query(read_end(body))
    return "Success"


def _range(index: VectorIndex, namespace: str, body: Any, _: Call) -> Any:
    wanted = read_range(body, index.last_sequence())
    cursor, rows = index.range(wanted, namespace=namespace)
    return {"nextCursor": cursor, "vectors": _rows_as_json(rows, wanted.include)}


def _fetch(index: VectorIndex, namespace: str, body: Any, _: Call) -> Any:
    wanted = read_fetch(body)
    rows = index.fetch(wanted, namespace=namespace)
    found = iter(_rows_as_json([row for row in rows if row], wanted.include))
    return [row and next(found) for row in rows]


def _update(index: VectorIndex, namespace: str, body: Any, _: Call) -> Any:
    return {"updated": index.update(read_update(body, index.spec), namespace=namespace)}


def _delete(index: VectorIndex, namespace: str, body: Any, call: Call) -> Any:
    return {"deleted": index.delete(read_selection(body), namespace=namespace, budget=call.budget)}


def _reset(index: VectorIndex, namespace: str, _: Any, call: Call) -> str:
    index.reset(namespace=None if "all" in call.flags else namespace)
    return "Success"


def _random(index: VectorIndex, namespace: str, _: Any, __: Call) -> Any:
    row = index.random(namespace=namespace)
    return row and _rows_as_json([row], Include(metadata=True, vectors=True, data=True))[0]


def _info(index: VectorIndex, _: str, __: Any, ___: Call) -> Any:
    spec, models, counts = index.spec, index.spec.models, index.namespaces()
    info: dict[str, Any] = {
        "vectorCount": sum(counts.values()),
        "pendingVectorCount": 0,
        "indexSize": index.size(),
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


def _list_namespaces(index: VectorIndex, _: str, __: Any, ___: Call) -> Any:
    return list(index.namespaces())


def _delete_namespace(index: VectorIndex, namespace: str, _: Any, __: Call) -> str:
    index.delete_namespace(namespace)
    return "Success"


def _rename_namespace(index: VectorIndex, _: str, body: Any, __: Call) -> dict[str, bool]:
    name, new_name, delete_existing = read_renaming(body)
    index.rename_namespace(name, new_name, delete_existing=delete_existing)
    return {"renamed": True}


OPERATIONS: Final = {
    "upsert": Operation(_upsert, ("POST",)),
    "upsert-data": Operation(_upsert_data, ("POST",)),
    "query": Operation(_query, ("POST",)),
    "query-data": Operation(_query_data, ("POST",)),
    "resumable-query": Operation(_resumable_query, ("POST",)),
    "resumable-query-data": Operation(_resumable_query_data, ("POST",)),
    "resumable-query-next": Operation(_resumable_query_next, ("POST",), namespaced=False),
    "resumable-query-end": Operation(_resumable_query_end, ("POST",), namespaced=False),
    "range": Operation(_range, ("GET", "POST")),
    "fetch": Operation(_fetch, ("GET", "POST")),
    "update": Operation(_update, ("POST",)),
    "delete": Operation(_delete, ("DELETE", "POST")),
    "reset": Operation(_reset, ("DELETE", "POST"), has_body=False),
    "random": Operation(_random, ("GET", "POST"), has_body=False),
    "info": Operation(_info, ("GET", "POST"), namespaced=False, has_body=False),
    "list-namespaces": Operation(_list_namespaces, ("GET", "POST"), namespaced=False, has_body=False),
    "delete-namespace": Operation(_delete_namespace, ("DELETE", "POST"), has_body=False),
    "rename-namespace": Operation(_rename_namespace, ("POST",), namespaced=False),
}
"""Every operation of an index, by the name in its address."""


def _rows_as_json(rows: Sequence[IndexRow], include: Include) -> list[dict[str, Any]]:
    """Rows as responses show them, their vectors with the shortest digits of float32."""
    parts = [part for row in rows for part in _numbers(row)] if include.vectors else []
    numbers = iter(json_arrays(parts))
    shown = []
    for row in rows:
        wire: dict[str, Any] = {"id": row.id}
        if include.vectors:
            if row.vector.size:
                wire["vector"] = next(numbers)
            if row.sparse is not None:
                wire["sparseVector"] = {"indices": row.sparse.indices.tolist(), "values": next(numbers)}
        if include.metadata and row.metadata is not None:
            wire["metadata"] = msgspec.Raw(row.metadata.encode())  # as stored: numbers keep their digits
        if include.data and row.data is not None:
            wire["data"] = row.data
        shown.append(wire)
    return shown


def _numbers(row: IndexRow) -> Iterator[NDArray[np.float32]]:
    if row.vector.size:
        yield row.vector
    if row.sparse is not None:
        yield row.sparse.values.astype(np.float32)


def _hits_as_json(hits: Sequence[ScoredRow], include: Include) -> list[dict[str, Any]]:
    scores = score_numbers([hit.score for hit in hits])
    rows = _rows_as_json([hit.row for hit in hits], include)
    return [{"id": row.pop("id"), "score": score, **row} for row, score in zip(rows, scores, strict=True)]


def _refused(refusal: ApiError) -> Response:
    return _json({"error": refusal.message, "status": refusal.status}, refusal.status)


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")
