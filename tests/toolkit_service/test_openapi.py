"""The document at /openapi.json: every route is in it, and responses of the running service match it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest

from toolkit_service.demo.local_service import LocalService
from toolkit_service.operations import Operation
from toolkit_service.vectors.specs import IndexSpec

INDEXES = (
    "plain:dense:2:COSINE", "docs:dense:2:COSINE:hashing", "words:sparse:bm25",
    "mixed:hybrid:2:COSINE:hashing+bm25",
)  # fmt: skip
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_headers_conformance", "response_schema_conformance", "unsupported_method",
    "ignored_auth", "use_after_free",
)  # fmt: skip


def test_the_document_has_every_route_and_no_other(
    described: dict[str, Any], operations: list[Operation]
) -> None:
    """Paths and methods of the queue and the indexes, of the status page and of the faults."""
    documented = {
        (path, method)
        for path, operations in described["paths"].items()
        for method in operations
    }
    routes = [operation.route() for operation in operations]
    served = {
        (re.sub(r":path\}", "}", route.path), method.lower())
        for route in routes
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert documented == served
    assert len(documented) == len(routes) == 116


def test_every_path_parameter_is_described(described: dict[str, Any]) -> None:
    """Its name is in the path and among the parameters, and nowhere else."""
    for path, methods in described["paths"].items():
        for operation in methods.values():
            parameters = operation.get("parameters", ())
            named = {
                parameter["name"]
                for parameter in parameters
                if parameter["in"] == "path"
            }
            assert named == set(re.findall(r"\{(\w+)\}", path))


def test_every_name_that_is_referred_to_is_there(described: dict[str, Any]) -> None:
    """No reference leads nowhere, no schema is unused, and operation names are unique."""
    text = json.dumps(described)
    names = set(re.findall(r"#/components/schemas/(\w+)", text))
    assert names == set(described["components"]["schemas"])
    operations = re.findall(r'"operationId": "([^"]+)"', text)
    assert len(operations) == len(set(operations)) > 70


def test_an_index_is_described_by_the_fields_it_has(described: dict[str, Any]) -> None:
    """The body that makes an index and the index itself have the same fields."""
    schemas = described["components"]["schemas"]
    for name in ("IndexSpec", "NewIndex"):
        assert set(schemas[name]["properties"]) == {
            field.name for field in fields(IndexSpec)
        }


def tailored(url: str) -> dict[str, Any]:
    """The document with parameters that lead somewhere, so that more than refusals is tried."""
    made: dict[str, Any] = httpx.get(f"{url}/openapi.json").json()
    for operations in made["paths"].values():
        for place in (operations, *operations.values()):
            for parameter in (
                place.get("parameters", ()) if isinstance(place, dict) else ()
            ):
                if parameter["name"] == "index":
                    parameter["schema"] = {
                        "enum": [spec.partition(":")[0] for spec in INDEXES]
                    }
                if parameter["name"] == "destination":
                    parameter["schema"] = {
                        "enum": ["http://127.0.0.1:9/a", "http://localhost:9/b?c=d"]
                    }
    # scripts that are understood would strike the requests behind them
    made["components"]["schemas"]["NewScript"]["properties"]["faults"]["maxItems"] = 0
    two = {"type": "array", "items": {"type": "number", "minimum": -9, "maximum": 9}}
    for schema in made["components"]["schemas"].values():
        if "vector" in schema.get("properties", {}):
            schema["properties"]["vector"] = two | {"minItems": 2, "maxItems": 2}
    return made


@pytest.mark.slow
@pytest.mark.timeout(3600)  # many examples are slow
def test_responses_of_the_service_match_the_document(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Generated requests, right and wrong ones, find no 5xx and no response that is not described."""
    examples = request.config.getoption("--api-examples", default=2)
    with LocalService(indexes=INDEXES, time_factor=1000) as service:
        file = tmp_path / "openapi.json"
        file.write_text(json.dumps(tailored(service.url)))
        done = subprocess.run(
            [
                Path(sys.executable).with_name("st"), "run", file, "--url", service.url,
                "--max-examples", str(examples), "--seed", "1", "--generation-database", "none",
                "--checks", ",".join(CHECKS), "--header", f"Authorization: Bearer {service.token}",
                "--request-timeout", "10", "--warnings", "off", "--no-color",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        log = (service.data_dir / "serve.log").read_text()
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:] + log[-2000:]
    assert "responding" not in log


@pytest.mark.slow
def test_the_sample_history_is_as_described(described: dict[str, Any]) -> None:
    """Filled-in entries fit the schemas of listings, too."""
    listings = {
        "/v2/workflows/dlq": ("messages", "DlqEntry"),
        "/v2/workflows/logs": ("runs", "RunEntry"),
    }
    with LocalService(sample=True) as service:
        for path, (rows, name) in listings.items():
            schema = {
                "$ref": f"#/components/schemas/{name}",
                "components": described["components"],
            }
            fits = jsonschema_rs.validator_for(schema)
            bearer = {"Authorization": f"Bearer {service.token}"}
            page, read = {"cursor": ""}, 0
            with httpx.Client(base_url=service.url, headers=bearer, timeout=30) as http:
                while not read or page["cursor"]:
                    page = http.get(path, params={"cursor": page["cursor"]}).json()
                    assert not [
                        error.message
                        for row in page[rows]
                        for error in fits.iter_errors(row)
                    ]
                    read += len(page[rows])
            assert read > 1000


def test_the_document_names_nothing_of_this_service(
    tmp_path: Path, described: dict[str, Any]
) -> None:
    """It is the same with and without the token, and for any indexes."""
    with LocalService(tmp_path, indexes=["secret-project:dense:2:COSINE"]) as service:
        free = httpx.get(f"{service.url}/openapi.json")
        known = httpx.get(
            f"{service.url}/openapi.json",
            headers={"Authorization": f"Bearer {service.token}"},
        )
    assert free.json() == known.json() == json.loads(json.dumps(described))
    assert "secret-project" not in free.text
