"""The pieces of which the document is put together: parameters, bodies, answers, operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

Node: TypeAlias = dict[str, Any]
"""A piece of the document, as JSON values."""

TEXT: Final[Node] = {"type": "string"}
FLAG: Final[Node] = {"type": "boolean"}
WHOLE: Final[Node] = {"type": "integer"}
NUMBER: Final[Node] = {"type": "number"}

_REFUSALS: Final = {
    400: "Something is malformed; the message names what, got and expected.",
    401: "No valid token, in the header or in the URL.",
    403: "Host or Origin is not this machine.",
    404: "It is not here.",
    408: "The request did not arrive in time.",
    409: "The name is taken by something else.",
    412: "It is not in a state for that.",
    413: "The body is too large.",
    422: "Understood, but impossible for this index.",
    431: "Request line and headers are too large.",
    500: "The service failed.",
}
_ALWAYS: Final = (400, 401, 403, 408, 431, 500)


def ref(name: str) -> Node:
    """A schema by its name.

    >>> ref("Error")
    {'$ref': '#/components/schemas/Error'}
    """
    return {"$ref": f"#/components/schemas/{name}"}


def array(of: Node, **more: Any) -> Node:
    """An array of something."""
    return {"type": "array", "items": of, **more}


def record(fields: Mapping[str, Node], *, required: Sequence[str] = (), **more: Any) -> Node:
    """An object with these fields; it may have others."""
    return {"type": "object", "properties": dict(fields), "required": list(required), **more}


def either(*schemas: Node) -> Node:
    """Any of these."""
    return {"anyOf": list(schemas)}


def maybe(schema: Node) -> Node:
    """What the schema says, or null."""
    return either(schema, {"type": "null"})


def choice(*words: str) -> Node:
    """One of these words."""
    return {"type": "string", "enum": list(words)}


def in_query(name: str, schema: Node, description: str) -> Node:
    """An optional query parameter; arrays are repeated, or written with commas."""
    return {"name": name, "in": "query", "schema": schema, "description": description}


def in_path(name: str, description: str) -> Node:
    """A part of the path."""
    return {
        "name": name,
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
        "description": description,
    }


def in_header(name: str, description: str) -> Node:
    """An optional header."""
    return {"name": name, "in": "header", "schema": TEXT, "description": description}


def json_body(schema: Node, *, required: bool = True) -> Node:
    """A body of JSON."""
    return {"required": required, "content": {"application/json": {"schema": schema}}}


ANY_BODY: Final[Node] = {"required": False, "content": {"*/*": {"schema": {}}}}
"""A body that is taken as it comes."""


def operation(
    summary: str,
    answer: Node | None,
    *,
    name: str,
    error: str,
    parameters: Sequence[Node] = (),
    body: Node | None = None,
    refusals: Sequence[int] = (400,),
    status: int = 200,
    tag: str,
) -> Node:
    """One operation.

    Parameters
    ----------
    summary : str
    answer : Node or None
        Schema of the JSON answered with `status`; None for an answer without a body.
    name : str
        The operation's id.
    error : str
        Name of the schema of refusals.
    parameters : sequence of Node
    body : Node, optional
    refusals : sequence of int
        Statuses of refusals beyond those that every operation has.
    status : int
    tag : str
    """
    done: Node = {"description": "Done."}
    if answer is not None:
        done["content"] = {"application/json": {"schema": answer}}
    refused = sorted({*_ALWAYS, *refusals, *((413,) if body else ())})
    content = {"application/json": {"schema": ref(error)}}
    found: Node = {
        "operationId": name,
        "summary": summary,
        "tags": [tag],
        "responses": {
            str(status): done,
            **{str(no): {"description": _REFUSALS[no], "content": content} for no in refused},
        },
    }
    if parameters:
        found["parameters"] = list(parameters)
    if body:
        found["requestBody"] = body
    return found


def several(*names: str) -> tuple[Node, ...]:
    """Query parameters that are filters: a row passes with any of the values given."""
    return tuple(in_query(name, array(TEXT), "Any of these.") for name in names)


MOMENT: Final[Node] = {"type": "integer", "format": "int64", "minimum": 0}
"""Unix milliseconds."""

SPAN: Final = (
    in_query("fromDate", MOMENT, "Unix milliseconds, inclusive."),
    in_query("toDate", MOMENT, "Unix milliseconds, inclusive."),
)
"""The parameters of a span of time."""


def paging(most: int) -> tuple[Node, Node]:
    """The parameters of a listing with pages of at most so many entries."""
    return (
        in_query("cursor", TEXT, "Of the page before; empty for the first."),
        in_query("count", {"type": "integer", "minimum": 1, "maximum": most}, "Most entries a page."),
    )
