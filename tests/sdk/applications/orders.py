"""An application as its users write one: FastAPI and the public workflow package, nothing of this project.

Where the queue is comes from ``QSTASH_URL`` and ``QSTASH_TOKEN``, as always. It keeps an account of what it
did, for those who ask ``/account``, and its payment desk can be closed.
"""

from __future__ import annotations

import time
from typing import Any

from fastapi import FastAPI, Request
from upstash_workflow import AsyncWorkflowContext
from upstash_workflow.fastapi import Serve

app = FastAPI()
serve = Serve(app)
app.state.done = []  # (run id, step) in the order in which they ran
app.state.finished = {}  # run id to result
app.state.failures = []  # calls of the failure function
app.state.desk_open = True


async def on_failure(
    context: AsyncWorkflowContext[Any],
    status: int,
    reason: str,
    headers: dict[str, str],
) -> None:
    """Record a failure."""
    app.state.failures.append(
        {
            "run": context.workflow_run_id,
            "status": status,
            "reason": reason,
            "payload": context.request_payload,
            "header": headers,
        }
    )


@serve.post("/order", retries=1, failure_function=on_failure)
async def order(context: AsyncWorkflowContext[dict[str, Any]]) -> None:
    """Five steps: compute, sleep, sleep until a time, call, and book."""
    payload, run = context.request_payload, context.workflow_run_id

    def note(step: str) -> None:
        app.state.done.append((run, step))

    def total() -> int:
        note("total")
        return int(payload["price"]) * int(payload["pieces"])

    def book() -> dict[str, Any]:
        note("book")
        if not app.state.desk_open:
            raise RuntimeError("the payment desk is closed")
        return {"sum": amount, "desk": response.body, "said": response.status}

    amount = await context.run("total", total)
    await context.sleep("think it over", "1m")
    await context.sleep_until("until it opens", time.time() + 60)
    response = await context.call(
        "ask the desk",
        url=str(payload["desk"]),
        method="POST",
        body={"sum": amount},
        headers={"X-From": "orders"},
    )
    app.state.finished[run] = await context.run("book", book)


@app.post("/desk")
async def desk(request: Request) -> dict[str, Any]:
    """A third party."""
    return {"asked": await request.json(), "by": request.headers.get("x-from")}


@app.post("/desk/{state}")
async def turn(state: str) -> None:
    """Open or close the payment desk."""
    app.state.desk_open = state == "open"


@app.get("/account")
async def account() -> dict[str, Any]:
    """The progress."""
    state = app.state
    return {"done": state.done, "finished": state.finished, "failures": state.failures}
