"""The vector half in the document: indexes, and the operations of one."""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from toolkit.local.openapi.parts import (
    FLAG,
    NUMBER,
    TEXT,
    WHOLE,
    Node,
    array,
    choice,
    either,
    in_path,
    in_query,
    json_body,
    maybe,
    operation,
    record,
    ref,
)

_op = partial(operation, error="VectorError", tag="vectors")

_ID: Final[Node] = {"type": "string", "minLength": 1, "maxLength": 1024}
_DENSE: Final = array(NUMBER)
_METADATA: Final[Node] = {"type": "object"}
_INCLUDE: Final = {name: maybe(FLAG) for name in ("includeMetadata", "includeVectors", "includeData")}
_TOP_K: Final[Node] = {"type": "integer", "minimum": 1, "maximum": 10_000}
_ASKED: Final = {
    "topK": maybe(_TOP_K),
    **_INCLUDE,
    "filter": maybe(TEXT),
    "weightingStrategy": maybe(choice("IDF")),
    "fusionAlgorithm": maybe(choice("RRF", "DBSF")),
    "queryMode": maybe(choice("HYBRID", "DENSE", "SPARSE")),
}
_QUERY: Final = {"vector": _DENSE, "sparseVector": ref("SparseVector"), **_ASKED}
_QUERY_DATA: Final = {"data": {"type": "string", "minLength": 1}, **_ASKED}
_IDLE: Final[Node] = {"type": "integer", "minimum": 1}
_VECTOR_FIELDS: Final = {
    "id": TEXT,
    "vector": _DENSE,
    "sparseVector": ref("SparseVector"),
    "metadata": _METADATA,
    "data": TEXT,
}

VECTOR_SCHEMAS: Final[dict[str, Node]] = {
    "VectorError": record({"error": TEXT, "status": WHOLE}, required=["error", "status"]),
    "SparseVector": record(
        {"indices": array({"type": "integer", "minimum": 0}), "values": array(NUMBER)},
        required=["indices", "values"],
    ),
    "Vector": record(_VECTOR_FIELDS, required=["id"]),
    "ScoredVector": record({**_VECTOR_FIELDS, "score": NUMBER}, required=["id", "score"]),
    "IndexSpec": record(
        {
            "name": TEXT,
            "kind": choice("dense", "sparse", "hybrid"),
            "dimension": {"type": "integer", "minimum": 0, "maximum": 5376},
            "similarity": maybe(choice("COSINE", "EUCLIDEAN", "DOT_PRODUCT")),
            "model": maybe(TEXT),
            "rank_start": {"type": "integer", "enum": [0, 1]},
        }
    ),
    "Upsert": record(
        {
            "id": _ID,
            "vector": _DENSE,
            "sparseVector": maybe(ref("SparseVector")),
            "metadata": maybe(_METADATA),
            "data": maybe({"type": "string", "minLength": 1}),
        },
        required=["id"],
    ),
    "UpsertData": record(
        {"id": _ID, "data": {"type": "string", "minLength": 1}, "metadata": maybe(_METADATA)},
        required=["id", "data"],
    ),
    "Query": record(_QUERY),
    "QueryData": record(_QUERY_DATA, required=["data"]),
    "ResumableQuery": record({**_QUERY, "maxIdle": _IDLE}),
    "ResumableQueryData": record({**_QUERY_DATA, "maxIdle": _IDLE}, required=["data"]),
    "Range": record(
        {
            "cursor": TEXT,
            "limit": {"type": "integer", "minimum": 1, "maximum": 10_000},
            "prefix": maybe(TEXT),
            **_INCLUDE,
        },
        required=["cursor", "limit"],
    ),
    "Fetch": record({"ids": array(_ID, maxItems=10_000), "prefix": maybe(TEXT), **_INCLUDE}),
    "Update": record(
        {
            "id": _ID,
            "vector": _DENSE,
            "sparseVector": maybe(ref("SparseVector")),
            "metadata": maybe(_METADATA),
            "data": maybe({"type": "string", "minLength": 1}),
            "metadataUpdateMode": maybe(choice("OVERWRITE", "PATCH")),
        },
        required=["id"],
    ),
    "Info": record(
        {
            "vectorCount": WHOLE,
            "pendingVectorCount": WHOLE,
            "indexSize": WHOLE,
            "dimension": WHOLE,
            "similarityFunction": TEXT,
            "indexType": choice("DENSE", "SPARSE", "HYBRID"),
            "denseIndex": {"type": "object"},
            "sparseIndex": {"type": "object"},
            "namespaces": {
                "type": "object",
                "additionalProperties": record(
                    {"vectorCount": WHOLE, "pendingVectorCount": WHOLE},
                    required=["vectorCount", "pendingVectorCount"],
                ),
            },
        },
        required=[
            "vectorCount", "pendingVectorCount", "indexSize", "dimension", "similarityFunction", "namespaces",
        ],
    ),
}  # fmt: skip
"""Schemas of the vector half, by name."""

_INDEX: Final = in_path("index", "Name of an index.")
_NAMESPACE: Final = in_path(
    "namespace",
    "The rest of the path, slashes included, but for parts that are '.' or '..'. "
    "The path without it, or with nothing after the last slash, is the default namespace.",
)


class _Does(NamedTuple):
    """What an operation of an index does."""

    methods: tuple[str, ...]
    summary: str
    answer: Node
    body: Node | None = None


def _result(schema: Node) -> Node:
    return record({"result": schema}, required=["result"])


def _one_or_many(name: str) -> Node:
    return either(ref(name), array(ref(name), minItems=1))


_READ: Final = ("get", "post")
_REMOVE: Final = ("delete", "post")
_SCORED: Final = array(ref("ScoredVector"))
_HITS: Final = _result(either(_SCORED, array(_SCORED)))
_RESUMABLE: Final = _result(record({"uuid": TEXT, "scores": _SCORED}, required=["uuid", "scores"]))
_DONE: Final = _result(choice("Success"))

_IN_NAMESPACES: Final = {
    "upsert": _Does(("post",), "Put vectors in.", _DONE, _one_or_many("Upsert")),
    "upsert-data": _Does(("post",), "Put text in, to be embedded.", _DONE, _one_or_many("UpsertData")),
    "query": _Does(("post",), "The vectors most similar to a vector.", _HITS, _one_or_many("Query")),
    "query-data": _Does(("post",), "The vectors most similar to text.", _HITS, _one_or_many("QueryData")),
    "resumable-query": _Does(
        ("post",), "A query that can be gone on with.", _RESUMABLE, ref("ResumableQuery")
    ),
    "resumable-query-data": _Does(
        ("post",), "A text query that can be gone on with.", _RESUMABLE, ref("ResumableQueryData")
    ),
    "range": _Does(
        _READ,
        "A page of vectors.",
        _result(
            record({"nextCursor": TEXT, "vectors": array(ref("Vector"))}, required=["nextCursor", "vectors"])
        ),
        ref("Range"),
    ),
    "fetch": _Does(
        _READ, "Vectors by ids or by a prefix.", _result(array(maybe(ref("Vector")))), ref("Fetch")
    ),
    "update": _Does(
        ("post",),
        "Change parts of a vector.",
        _result(record({"updated": {"type": "integer", "minimum": 0, "maximum": 1}}, required=["updated"])),
        ref("Update"),
    ),
    "delete": _Does(
        _REMOVE,
        "Remove vectors by ids, by a prefix or by a filter.",
        _result(record({"deleted": WHOLE}, required=["deleted"])),
        either(
            record({"ids": either(_ID, array(_ID)), "prefix": _ID, "filter": TEXT}),
            _ID,
            array(_ID),
        ),
    ),
    "reset": _Does(_REMOVE, "Remove all vectors of a namespace; with ?all of every namespace.", _DONE),
    "random": _Does(_READ, "Any one vector.", _result(maybe(ref("Vector")))),
    "delete-namespace": _Does(_REMOVE, "Remove a namespace.", _DONE),
}
_OF_INDEX: Final = {
    "info": _Does(_READ, "Counts and settings.", _result(ref("Info"))),
    "list-namespaces": _Does(_READ, "Names of the namespaces.", _result(array(TEXT))),
    "rename-namespace": _Does(
        ("post",),
        "Give a namespace another name.",
        _result(record({"renamed": FLAG})),
        record(
            {"namespace": _ID, "newNamespace": _ID, "deleteExisting": maybe(FLAG)},
            required=["namespace", "newNamespace"],
        ),
    ),
    "resumable-query-next": _Does(
        ("post",),
        "More results of a resumable query.",
        _result(_SCORED),
        record({"uuid": TEXT, "additionalK": _TOP_K}, required=["uuid", "additionalK"]),
    ),
    "resumable-query-end": _Does(
        ("post",), "End a resumable query.", _DONE, record({"uuid": TEXT}, required=["uuid"])
    ),
}


def vector_paths() -> dict[str, Node]:
    """Paths of the vector half."""
    spec = _result(ref("IndexSpec"))
    found: dict[str, Node] = {
        "/vector": {
            "get": _op("The indexes.", _result(array(ref("IndexSpec"))), name="indexes", refusals=())
        },
        "/vector/{index}": {
            "parameters": [_INDEX],
            "get": _op("What an index is.", spec, name="index", refusals=(404,)),
            "put": _op(
                "Make an index; the same one again changes nothing.",
                spec,
                name="makeIndex",
                body=json_body(ref("IndexSpec")),
                refusals=(400, 404, 409),
            ),
        },
    }
    for name, does in _IN_NAMESPACES.items():
        if name != "delete-namespace":
            found[f"/vector/{{index}}/{name}"] = {"parameters": [_INDEX], **_methods(name, does)}
        found[f"/vector/{{index}}/{name}/{{namespace}}"] = {
            "parameters": [_INDEX, _NAMESPACE],
            **_methods(name, does, "InNamespace"),
        }
    for name, does in _OF_INDEX.items():
        found[f"/vector/{{index}}/{name}"] = {"parameters": [_INDEX], **_methods(name, does)}
    return found


def _methods(name: str, does: _Does, ending: str = "") -> Node:
    return {
        method: _op(
            does.summary,
            does.answer,
            name=f"{method}-{name}{ending}",
            body=json_body(does.body) if does.body else None,
            refusals=(400, 404, 422),
            parameters=[in_query("all", TEXT, "Every namespace.")] if name == "reset" else [],
        )
        for method in does.methods
    }
