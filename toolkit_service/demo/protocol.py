"""A workflow endpoint that implements the workflow protocol without the package of a vendor.

1. A request without the version header of the protocol starts a run: the endpoint publishes the first message
   to itself.
2. A delivery contains the history of the run: an array of the initial payload and one item per finished step.
   The endpoint runs the next step and posts the result to ``/v2/batch``, so that the service delivers again.
3. After the last step, the endpoint ends the run. If a step fails, it responds with an error status.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
import string
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolkit.base.errors import ProtocolError
from toolkit.secrets.names import normalise_header
from toolkit.service.settings import Endpoint

FEATURES: Final = "LazyFetch,InitialBody,WF_DetectTrigger"

# headers of the connection itself, which are never forwarded
_OF_THE_CONNECTION: Final = frozenset(
    {
        "host",
        "content-length",
        "connection",
        "transfer-encoding",
        "accept-encoding",
        "accept",
        "user-agent",
    }
)
_LETTERS: Final = string.ascii_letters + string.digits


@dataclass(frozen=True, kw_only=True)
class StepContext:
    """The arguments of a step: the run, the payload byte for byte, earlier results, and retries so far."""

    run_id: str
    payload: bytes
    results: tuple[Any, ...]
    retried: int


class StepFailed(Exception):  # noqa: N818 - it is a response
    """A step has failed; it has the response for the service."""

    def __init__(self, response: Response) -> None:
        self.response = response
        super().__init__(f"status {response.status_code}")


Step = Callable[[StepContext], Awaitable[Any]]
"""Returns a JSON-able result, or raises `StepFailed`."""


@dataclass(frozen=True, kw_only=True)
class Sleep:
    """A step that waits inside the service, not in the application."""

    seconds: int


@dataclass(frozen=True, kw_only=True)
class SampleWorkflow:
    """A workflow: the steps in order, by unique names, and how the service delivers them.

    `settings` are publish headers without the prefix (``{"Timeout": "1s"}``). With `fails`, every run ends in
    the DLQ, and the path `failure_function` is called.
    """

    name: str
    steps: dict[str, Step | Sleep]
    retries: int = 2
    labels: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    fails: bool = True
    failure_function: str | None = None


class WorkflowEndpoint:
    """The endpoint of one workflow."""

    def __init__(
        self, workflow: SampleWorkflow, queue: Endpoint, http: httpx.AsyncClient
    ) -> None:
        self.workflow = workflow
        self._queue = queue
        self._prefix = queue.dialect.prefix
        self._http = http

    async def __call__(self, request: Request) -> Response:
        """Respond to a start or a delivery. An error outside the steps is a 500 with the message."""
        try:
            if self.is_delivery(request):
                return await self._deliver(request)
            return await self._start(request)
        except (ProtocolError, httpx.HTTPError) as error:
            return JSONResponse(
                {"error": type(error).__name__, "message": str(error)}, 500
            )

    def is_delivery(self, request: Request) -> bool:
        """Return True if the request has the version header of the protocol, as only deliveries do."""
        return f"{self._prefix}Workflow-Sdk-Version" in request.headers

    async def _start(self, request: Request) -> Response:
        run_id = f"wfr_{''.join(secrets.choice(_LETTERS) for _ in range(21))}"
        forwarded = {
            f"{self._prefix}Forward-{name}": value
            for name, value in request.headers.items()
            if normalise_header(name) not in _OF_THE_CONNECTION
        }
        headers = self._headers(request, run_id, first=True) | forwarded

        try:
            payload = (await request.body()).decode()
        except UnicodeDecodeError:
            # a batch is JSON, which cannot contain bytes
            return JSONResponse({"error": "the payload of a run must be UTF-8"}, 400)

        await self._publish(str(request.url), headers, payload)
        return JSONResponse({"workflowRunId": run_id})

    async def _deliver(self, request: Request) -> Response:
        run_id = request.headers[f"{self._prefix}Workflow-RunId"]
        payload, results = _history(await request.body())
        finished = len(results)
        if finished == len(self.workflow.steps):
            await self._end(run_id)
            return JSONResponse({"workflowRunId": run_id, "steps": finished})

        name, step = list(self.workflow.steps.items())[finished]
        record: dict[str, Any] = {
            "stepId": finished + 1,
            "stepName": name,
            "concurrent": 1,
        }
        headers = self._headers(request, run_id, first=False)

        # a sleep is posted at once; the service delays the delivery that follows
        if isinstance(step, Sleep):
            record |= {"stepType": "SleepFor", "sleepFor": step.seconds}
            headers[f"{self._prefix}Delay"] = f"{step.seconds}s"
        else:
            retried = int(request.headers.get(f"{self._prefix}Retried", "0"))
            context = StepContext(
                run_id=run_id, payload=payload, results=tuple(results), retried=retried
            )
            try:
                record |= {"stepType": "Run", "out": await step(context)}
            except StepFailed as failed:
                return failed.response

        await self._publish(str(request.url), headers, json.dumps(record))
        return JSONResponse({"workflowRunId": run_id, "step": name})

    def _headers(self, request: Request, run_id: str, *, first: bool) -> dict[str, str]:
        settings = {
            "Method": "POST",
            "Workflow-Init": "true" if first else "false",
            "Workflow-RunId": run_id,
            "Workflow-Url": str(request.url),
            "Feature-Set": FEATURES,
            f"Forward-{self._prefix}Workflow-Sdk-Version": "1",
            "Retries": str(self.workflow.retries),
            **self.workflow.settings,
        }
        if self.workflow.labels:
            settings["Label"] = ",".join(self.workflow.labels)
        if self.workflow.failure_function is not None:
            settings |= {
                "Failure-Callback": f"{request.base_url}{self.workflow.failure_function}",
                f"Failure-Callback-Forward-{self._prefix}Workflow-Is-Failure": "true",
                "Failure-Callback-Retries": "1",
            }

        return {f"{self._prefix}{name}": value for name, value in settings.items()}

    async def _publish(
        self, destination: str, headers: dict[str, str], body: str
    ) -> None:
        message = {"destination": destination, "headers": headers, "body": body}
        await self._send("POST", "/v2/batch", json=[message])

    async def _end(self, run_id: str) -> None:
        await self._send(
            "DELETE", f"/v2/workflows/runs/{run_id}", params={"cancel": "false"}
        )

    async def _send(self, method: str, path: str, **options: Any) -> None:
        authorization = {"Authorization": f"Bearer {self._queue.token.reveal()}"}
        response = await self._http.request(
            method, f"{self._queue.url}{path}", headers=authorization, **options
        )
        if not response.is_success:
            raise ProtocolError(
                f"sending a step of {self.workflow.name!r}",
                request=f"{method} {path}",
                got=f"status {response.status_code}",
                expected="success",
            )


def _history(body: bytes) -> tuple[bytes, list[Any]]:
    """Return the initial payload and the results of the finished steps from the body of a delivery."""
    try:
        first, *later = json.loads(body)
        payload = base64.b64decode(first["body"])
        steps = [json.loads(base64.b64decode(item["body"])) for item in later]
        return payload, [step.get("out") for step in steps]
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise ProtocolError(
            "reading the history of a delivery",
            got=type(error).__name__,
            expected="an array of items with a body",
        ) from error
