"""The OpenAPI document, generated from the operations and the types that they name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import msgspec

from toolkit.local.api import TOKEN_PARAMETERS, ErrorBody, VectorErrorBody
from toolkit.local.operations import Operation, Query
from toolkit.version import __version__

Node: TypeAlias = dict[str, Any]

_ERRORS: Final = {
    400: "Something is malformed; the message names what, got and expected.",
    401: "No valid token, in the header or in the URL.",
    403: "Host or Origin is not this machine.",
    404: "It is not here.",
    408: "The request did not arrive in time.",
    409: "The name is in use.",
    412: "It is not in a state for that.",
    413: "The body is too large.",
    422: "Understood, but impossible for this index.",
    431: "Request line and headers are too large.",
    500: "The service failed.",
}
_ALWAYS: Final = (400, 401, 403, 408, 431, 500)
_PATH_PARAMETERS: Final = {
    "destination": "The URL to deliver to, as it is or percent-encoded.",
    "dlq_id": "Of an entry.",
    "message_id": "Of a message that still has to be delivered.",
    "run_id": "Of a workflow run.",
    "event_id": "Name of an event: letters, digits, '-', '_' and '.'.",
    "index": "Name of an index.",
    "namespace": "The remainder of the path, slashes included, but for parts that are '.' or '..'. "
    "The path without it, or with nothing after the last slash, is the default namespace.",
}


def document(operations: Iterable[Operation]) -> Node:
    """The OpenAPI document of these operations, as JSON values."""
    described = tuple(operations)
    schemas = _Schemas(described)
    paths: dict[str, Node] = {}
    for operation in described:
        methods = paths.setdefault(operation.path.replace(":path}", "}"), {})
        methods[operation.method.lower()] = _operation(operation, schemas)
    schemes: Node = {"bearer": {"type": "http", "scheme": "bearer"}}
    for name in TOKEN_PARAMETERS:
        schemes[name] = {"type": "apiKey", "in": "query", "name": name}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Embedded service",
            "version": __version__,
            "description": "Queue and vector indexes on one address. Each index has the base address "
            "/vector/<name>. HEAD is accepted wherever GET is, OPTIONS everywhere; a path that is not here "
            "is 404, a method that a path does not have is 405.",
        },
        "security": [{name: []} for name in schemes],
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": schemes},
    }


class _Schemas:
    """The schemas of all types that operations name."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._types: list[Any] = [ErrorBody, VectorErrorBody]
        for operation in operations:
            self._types += [kind for kind in (operation.returns, operation.body) if kind is not None]
        self._schemas, self.components = msgspec.json.schema_components(
            self._types, ref_template="#/components/schemas/{name}"
        )
        for component in self.components.values():
            if "description" in component:  # a docstring: the first paragraph is for callers, too
                component["description"] = component["description"].partition("\n\n")[0]

    def of(self, kind: Any) -> Node:
        return self._schemas[next(at for at, known in enumerate(self._types) if known is kind)]


def _operation(operation: Operation, schemas: _Schemas) -> Node:
    done: Node = {"description": "Done."}
    if operation.returns is not None:
        media = "text/html" if operation.returns is str else "application/json"
        schema = schemas.of(operation.returns)
        if operation.tag == "vectors":
            schema = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
        done["content"] = {media: {"schema": schema}}
    error = schemas.of(VectorErrorBody if operation.tag == "vectors" else ErrorBody)
    content = {"application/json": {"schema": error}}
    statuses = sorted({*_ALWAYS, *operation.errors, *((413,) if operation.body is not None else ())})
    described: Node = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": {
            str(operation.status): done,
            **{str(status): {"description": _ERRORS[status], "content": content} for status in statuses},
        },
    }
    if parameters := _parameters(operation):
        described["parameters"] = parameters
    if operation.body is bytes:
        described["requestBody"] = {"required": False, "content": {"*/*": {"schema": {}}}}
    elif operation.body is not None:
        json = {"application/json": {"schema": schemas.of(operation.body)}}
        described["requestBody"] = {"required": operation.body_required, "content": json}
    if operation.without_token:
        described["security"] = [{}, {"bearer": []}]
    return described


def _parameters(operation: Operation) -> list[Node]:
    named = [part.partition(":")[0].strip("{}") for part in operation.path.split("/") if part[:1] == "{"]
    path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1},
            "description": _PATH_PARAMETERS[name],
        }
        for name in named
    ]
    headers = [
        {"name": name, "in": "header", "schema": {"type": "string"}, "description": description}
        for name, description in operation.headers.items()
    ]
    return [*path, *(_query(operation.query) if operation.query else ()), *headers]


def _query(query: type[Query]) -> list[Node]:
    parameters = []
    for field in msgspec.structs.fields(query):
        schema = msgspec.json.schema(field.type)
        if "anyOf" in schema:  # with null, which a query cannot express
            schema = schema["anyOf"][0]
        text = schema.pop("description", "")
        parameters.append({"name": field.encode_name, "in": "query", "schema": schema, "description": text})
    return parameters
