"""The operations of the HTTP API: declared once, and routed, read and described (OpenAPI) from that."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cache, partial
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
)

import msgspec
from msgspec import Meta, inspect
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolkit.version import __version__
from toolkit_service.api import (
    TOKEN_PARAMETERS,
    ErrorBody,
    VectorErrorBody,
    invalid,
    shown,
)

T = TypeVar("T")
H = TypeVar("H", bound=Callable[..., Awaitable[Response]])

_LOOKS_LIKE_SECONDS: Final = range(10**9, 10**10)

Texts: TypeAlias = Annotated[tuple[str, ...], Meta(description="Any of these.")]
"""A parameter that may be repeated, or hold several values separated by commas."""

Timestamp: TypeAlias = Annotated[
    int,
    Meta(
        ge=0,
        le=2**63 - 1,
        description="Unix milliseconds.",
        extra_json_schema={"format": "int64"},
    ),
]


class Query(msgspec.Struct, rename="camel", kw_only=True):
    """The query parameters of an operation, one field each; a subclass adds fields."""


Endpoint: TypeAlias = Callable[[Request, Any], Awaitable[Response]]
"""Responds to a request, given its query as the type that the operation declares."""


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    name: str
    summary: str
    endpoint: Endpoint
    returns: Any = None
    _: KW_ONLY
    tag: Literal["service", "queue", "vectors"] = "queue"
    query: type[Query] | None = Query
    body: Any = None
    body_required: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 200
    errors: tuple[int, ...] = ()
    without_token: bool = False

    def route(self) -> Route:
        """Its route, which refuses query parameters that the operation does not have."""
        end = self.path.rpartition("}")[2].encode()

        async def endpoint(request: Request) -> Response:
            raw: bytes = request.scope["raw_path"]
            # a slash within a name must not lead to what another path names: a%2Fpause is not a/pause
            if b"%2f" in raw.lower() and not (
                ":path}" in self.path and raw.endswith(end)
            ):
                raise invalid(
                    "path not found",
                    "an encoded slash",
                    "names without slashes",
                    status=404,
                )

            query = None if self.query is None else read_query(request, self.query)
            return await self.endpoint(request, query)

        return Route(self.path, endpoint, methods=[self.method], name=self.name)


class Declared(Generic[T]):
    """Operations declared by decorating handlers, which get their subject (such as the queue) first."""

    def __init__(self) -> None:
        self._declared: list[
            tuple[Callable[[T, Request, Any], Awaitable[Response]], partial[Operation]]
        ] = []

    def __call__(
        self, method: str, path: str, name: str, returns: Any = None, **described: Any
    ) -> Callable[[H], H]:
        """Declare an operation; the arguments are those of `Operation`."""

        def declare(handler: H) -> H:
            summary = (handler.__doc__ or "").partition("\n")[0]
            made = partial(
                Operation, method, path, name, summary, returns=returns, **described
            )
            self._declared.append((handler, made))

            return handler

        return declare

    def of(self, subject: T) -> list[Operation]:
        """Return the operations on this."""
        return [
            made(endpoint=partial(handler, subject)) for handler, made in self._declared
        ]


class Parameter(NamedTuple):
    """A query parameter: its name, the attribute that holds it, and its type as msgspec sees it."""

    name: str
    attribute: str
    type: inspect.Type
    is_timestamp: bool
    sql: str
    """The condition of the filter that it is; "" when it is none."""


@cache
def parameters_of(query: type[Query]) -> tuple[Parameter, ...]:
    """Return the parameters of a query type."""
    info = inspect.type_info(query)
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"{query} is not a struct")

    return tuple(map(_parameter, info.fields))


def _parameter(field: inspect.Field) -> Parameter:
    kind = field.type
    if isinstance(kind, inspect.UnionType):
        # with None, the default of an absent parameter
        kind = kind.types[0]

    schema, extra = dict[str, Any](), dict[str, Any]()
    if isinstance(kind, inspect.Metadata):
        schema, extra, kind = kind.extra_json_schema or {}, kind.extra or {}, kind.type
    column = f"{field.name} IN ({{}})" if isinstance(kind, inspect.VarTupleType) else ""
    is_timestamp = schema.get("format") == "int64"

    return Parameter(
        field.encode_name, field.name, kind, is_timestamp, extra.get("sql", column)
    )


def read_query(request: Request, query: type[Query]) -> Any:
    """Return the query of a request as this type. Raise `ApiError` for a parameter that it does not have."""
    parameters = parameters_of(query)
    allowed = [*sorted(parameter.name for parameter in parameters), *TOKEN_PARAMETERS]
    for name in request.query_params:
        if name not in allowed:
            expected = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
            raise invalid("unknown query parameter", shown(name), expected)

    read = {parameter.attribute: _read(request, parameter) for parameter in parameters}
    return query(**{name: value for name, value in read.items() if value is not None})


def _read(request: Request, wanted: Parameter) -> Any:
    """Return the value of a parameter, or None if it is absent or empty."""
    given = request.query_params.getlist(wanted.name)
    if isinstance(wanted.type, inspect.VarTupleType):
        parts = (part.strip() for text in given for part in text.split(","))
        return tuple(dict.fromkeys(part for part in parts if part))
    if len(given) > 1:
        raise invalid(f"{wanted.name} is ambiguous", f"{len(given)} values", "one")

    text = given[0] if given else ""
    if not text:
        return None
    if isinstance(wanted.type, inspect.IntType):
        return _read_whole(text, wanted, wanted.type)
    if isinstance(wanted.type, inspect.LiteralType) and text not in wanted.type.values:
        choices = " or ".join(sorted(map(str, wanted.type.values), reverse=True))
        raise invalid(f"{wanted.name} is not understood", shown(text), choices)

    return text


def _read_whole(text: str, wanted: Parameter, bounds: inspect.IntType) -> int:
    low, high = bounds.ge or 0, bounds.le or 0
    if not re.fullmatch(r"-?[0-9]{1,30}", text) or not low <= int(text) <= high:
        expected = f"a whole number from {low} to {high}"
        raise invalid(f"{wanted.name} is out of range", shown(text), expected)
    if wanted.is_timestamp and int(text) in _LOOKS_LIKE_SECONDS:
        expected = f"Unix milliseconds, such as {int(text)}000"
        raise invalid(f"{wanted.name} looks like seconds", str(int(text)), expected)

    return int(text)


Node: TypeAlias = dict[str, Any]

_ERRORS: Final = {
    400: "Malformed request; the message says what was wrong, what was received and what was expected.",
    401: "No valid token, in the header or in the URL.",
    403: "The Host or Origin header does not name this machine.",
    404: "Not found.",
    408: "The request did not arrive in time.",
    409: "The name is in use.",
    412: "The resource's state does not allow this.",
    413: "The body is too large.",
    422: "Understood, but impossible for this index.",
    431: "Request line and headers are too large.",
    500: "The service failed.",
}
_ALWAYS: Final = (400, 401, 403, 408, 431, 500)
_PATH_PARAMETERS: Final = {
    "destination": "The URL to deliver to, as it is or percent-encoded; or, to publish, a URL group.",
    "dlq_id": "Of an entry.",
    "message_id": "Of a message that still has to be delivered.",
    "run_id": "Of a workflow run.",
    "schedule": "Id of a schedule; to make one, the URL or the URL group to which it publishes.",
    "flow_key": "A key of flow control; its slashes may be plain or percent-encoded.",
    "queue_name": "Name of a queue: letters, digits, '-', '_' and '.'.",
    "url_group": "Name of a URL group: letters, digits, '-', '_' and '.'.",
    "event_id": "Name of an event: letters, digits, '-', '_' and '.'.",
    "index": "Name of an index.",
    "namespace": "The remainder of the path, slashes included, but for parts that are '.' or '..'. "
    "The path without it, or with nothing after the last slash, is the default namespace.",
}


def document(operations: Iterable[Operation]) -> Node:
    """Return the OpenAPI document of these operations, as JSON values."""
    described = tuple(operations)
    types: list[Any] = [ErrorBody, VectorErrorBody]
    for operation in described:
        types += [
            kind for kind in (operation.returns, operation.body) if kind is not None
        ]

    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    for component in components.values():
        if "description" in component:
            # a docstring: the first paragraph is for callers, too
            component["description"] = component["description"].partition("\n\n")[0]

    paths: dict[str, Node] = {}
    for operation in described:
        methods = paths.setdefault(operation.path.replace(":path}", "}"), {})
        methods[operation.method.lower()] = _operation(
            operation, lambda kind: schemas[types.index(kind)]
        )

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
        "components": {"schemas": components, "securitySchemes": schemes},
    }


def _operation(operation: Operation, schema_of: Callable[[Any], Node]) -> Node:
    on_vectors = operation.tag == "vectors"
    done: Node = {"description": "Done."}
    if operation.returns is not None:
        media = "text/html" if operation.returns is str else "application/json"
        schema = schema_of(operation.returns)
        if on_vectors:
            schema = {
                "type": "object",
                "properties": {"result": schema},
                "required": ["result"],
            }

        done["content"] = {media: {"schema": schema}}

    content = {
        "application/json": {
            "schema": schema_of(VectorErrorBody if on_vectors else ErrorBody)
        }
    }
    statuses = sorted(
        {*_ALWAYS, *operation.errors, *((413,) if operation.body is not None else ())}
    )
    described: Node = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": {
            str(operation.status): done,
            **{
                str(status): {"description": _ERRORS[status], "content": content}
                for status in statuses
            },
        },
    }
    if parameters := _parameters(operation):
        described["parameters"] = parameters
    if operation.body is bytes:
        described["requestBody"] = {
            "required": False,
            "content": {"*/*": {"schema": {}}},
        }
    elif operation.body is not None:
        json = {"application/json": {"schema": schema_of(operation.body)}}
        described["requestBody"] = {
            "required": operation.body_required,
            "content": json,
        }

    if operation.without_token:
        described["security"] = [{}, {"bearer": []}]
    return described


def _parameters(operation: Operation) -> list[Node]:
    def described(name: str, place: str, schema: Node, text: str, **more: Any) -> Node:
        return {
            "name": name,
            "in": place,
            **more,
            "schema": schema,
            "description": text,
        }

    parameters = []
    for part in operation.path.split("/"):
        if part.startswith("{"):
            name = part.partition(":")[0].strip("{}")
            named: Node = {"type": "string", "minLength": 1}
            parameters.append(
                described(name, "path", named, _PATH_PARAMETERS[name], required=True)
            )

    for wanted in msgspec.structs.fields(operation.query) if operation.query else ():
        schema = msgspec.json.schema(wanted.type)
        if "anyOf" in schema:  # with null, which a query cannot express
            schema = schema["anyOf"][0]
        text = schema.pop("description", "")
        parameters.append(described(wanted.encode_name, "query", schema, text))

    headers = operation.headers.items()
    return parameters + [
        described(name, "header", {"type": "string"}, text) for name, text in headers
    ]
