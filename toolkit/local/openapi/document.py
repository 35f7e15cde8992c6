"""The whole document, and the endpoint that shows it."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolkit.local.faults.script import Fault
from toolkit.local.guard import TOKEN_PARAMETERS
from toolkit.local.openapi.parts import WHOLE, Node, array, json_body, operation, record, ref
from toolkit.local.openapi.queue_paths import QUEUE_SCHEMAS, queue_paths
from toolkit.local.openapi.run_paths import RUN_SCHEMAS, run_paths
from toolkit.local.openapi.vector_paths import VECTOR_SCHEMAS, vector_paths
from toolkit.version import __version__


def document() -> dict[str, Any]:
    """The OpenAPI document, as JSON values.

    Examples
    --------
    >>> document()["openapi"]
    '3.1.0'
    """
    schemes: Node = {"bearer": {"type": "http", "scheme": "bearer"}}
    for name in TOKEN_PARAMETERS:
        schemes[name] = {"type": "apiKey", "in": "query", "name": name}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Embedded service",
            "version": __version__,
            "description": "Both halves on one address. Each index has the base address /vector/<name>. "
            "HEAD is answered wherever GET is, OPTIONS everywhere; a path that is not here is 404, "
            "a method that a path has not is 405.",
        },
        "security": [{name: []} for name in schemes],
        "paths": {**_own_paths(), **queue_paths(), **run_paths(), **vector_paths()},
        "components": {
            "schemas": {**QUEUE_SCHEMAS, **RUN_SCHEMAS, **VECTOR_SCHEMAS, **_fault_schemas()},
            "securitySchemes": schemes,
        },
    }


async def described(_: Request) -> Response:
    """Answer with the document."""
    return JSONResponse(document())


def _fault_schemas() -> dict[str, Node]:
    counted = record(
        {"fault": ref("Fault"), "requests": WHOLE, "struck": WHOLE},
        required=["fault", "requests", "struck"],
    )
    (fault,), schemas = msgspec.json.schema_components([Fault], ref_template="#/components/schemas/{name}")
    return {
        **schemas,
        "FaultScript": record({"faults": array(fault)}, required=["faults"]),
        "CountedFaults": record({"faults": array(counted)}, required=["faults"]),
    }


def _own_paths() -> dict[str, Node]:
    def own(summary: str, name: str, answer: Node, body: Node | None = None) -> Node:
        refusals = (400,) if body else ()
        return operation(
            summary, answer, name=name, error="Error", tag="service", body=body, refusals=refusals
        )

    page = own("The status page.", "status", {})
    page["responses"]["200"]["content"] = {"text/html": {"schema": {"type": "string"}}}
    described_here = own("This document.", "document", {"type": "object"})
    for free in (page, described_here):
        free["security"] = [{}, {"bearer": []}]
    counted = ref("CountedFaults")
    return {
        "/": {"get": page},
        "/openapi.json": {"get": described_here},
        "/admin/faults": {
            "get": own("The fault script and its counts.", "faults", counted),
            "put": own("Replace the fault script.", "putFaults", counted, json_body(ref("FaultScript"))),
            "delete": own("Clear the fault script.", "clearFaults", counted),
        },
    }
