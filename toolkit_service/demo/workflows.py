"""The workflows of the small application: two that succeed and ten that fail, each with a different cause."""

from __future__ import annotations

import asyncio
import json
import traceback
from typing import Any, Final, NoReturn

from starlette.responses import PlainTextResponse, Response

from toolkit_service.demo.causes import JSON_TYPE, TEXT_TYPE, cause
from toolkit_service.demo.protocol import (
    SampleWorkflow,
    Sleep,
    Step,
    StepContext,
    StepFailed,
)

FAILURE_FUNCTION: Final = "failed"
"""Path of the failure function that works."""
BROKEN_FAILURE_FUNCTION: Final = "failed/broken"
"""Path of the failure function that fails."""

_VAT_RATES: Final = {"DE": 0.19, "FR": 0.2, "TR": 0.2}
_SLOWNESS: Final = 2.5  # seconds; longer than the timeout


async def _reserve(context: StepContext) -> dict[str, Any]:
    return {"reserved": _number(context)}


async def _charge(context: StepContext) -> dict[str, Any]:
    return {"charged": _number(context) / 100}


async def _fails_twice(context: StepContext) -> dict[str, Any]:
    # the third attempt, the second retry, succeeds
    if context.retried < 2:  # noqa: PLR2004 - twice
        body = {
            "error": "busy",
            "message": f"try {context.retried + 1} of order {_number(context)}",
        }
        raise StepFailed(Response(json.dumps(body), 503, {"Content-Type": JSON_TYPE}))

    return {"tries": context.retried + 1}


async def _really_raises(context: StepContext) -> dict[str, Any]:
    """Respond with the traceback of a real exception."""
    # even order numbers take a country without a rate, and so do odd ones
    countries = ("XK", "DE", "ZZ")
    try:
        country = countries[_number(context) % 2 * 2]
        return {"vat": _VAT_RATES[country]}
    except KeyError:
        raise StepFailed(PlainTextResponse(traceback.format_exc(), 500)) from None


async def _too_slow(_: StepContext) -> NoReturn:
    await asyncio.sleep(_SLOWNESS)
    # the service has timed out; a result would still be accepted, and the run would continue
    raise StepFailed(PlainTextResponse("rendering took too long", 500))


async def _not_retriable(context: StepContext) -> dict[str, Any]:
    body = json.dumps(
        {
            "error": "unknown order",
            "message": f"order {_number(context)} does not exist",
        }
    )
    raise StepFailed(
        Response(
            body,
            489,
            {
                "Content-Type": JSON_TYPE,
                "Service-NonRetryable-Error": "true",
                "Upstash-NonRetryable-Error": "true",
                "NonRetryable-Error": "true",
            },
        )
    )


def _responds_with(*names: str) -> Step:
    """Return a step that always responds with one of these causes, by the number in the payload."""

    async def step(context: StepContext) -> NoReturn:
        number = _number(context)
        failure = cause(names[number % len(names)])
        headers = failure.headers | {"Content-Type": failure.content_type}
        raise StepFailed(Response(failure.body(number), failure.status or 500, headers))

    return step


def _number(context: StepContext) -> int:
    try:
        return int(json.loads(context.payload)["order"])
    except (ValueError, KeyError, TypeError):
        message = f"a payload of {len(context.payload)} bytes without an order number"
        raise StepFailed(
            PlainTextResponse(message, 400, {"Content-Type": TEXT_TYPE})
        ) from None


WORKFLOWS: Final[tuple[SampleWorkflow, ...]] = (
    SampleWorkflow(
        name="orders/checkout",
        steps={"reserve": _reserve, "wait": Sleep(seconds=5), "charge": _charge},
        labels=("shop",),
        fails=False,
    ),
    SampleWorkflow(
        name="orders/flaky",
        steps={"send": _fails_twice},
        retries=3,
        labels=("shop",),
        fails=False,
    ),
    SampleWorkflow(
        name="orders/prices",
        steps={
            "quote": _responds_with(
                "js_error_json", "json_validation", "json_conflict", "json_hostile"
            )
        },
        labels=("shop", "eu"),
        failure_function=FAILURE_FUNCTION,
    ),
    SampleWorkflow(
        name="legacy/sync",
        steps={"import": _responds_with("html_error", "html_gateway")},
        retries=1,
        labels=("legacy",),
        failure_function=BROKEN_FAILURE_FUNCTION,
    ),
    SampleWorkflow(
        name="invoices/send",
        steps={"tax": _really_raises},
        labels=("finance",),
        failure_function=FAILURE_FUNCTION,
    ),
    SampleWorkflow(
        name="orders/fulfil",
        steps={"price": _responds_with("js_type_error")},
        labels=("shop", "release-2.15"),
    ),
    SampleWorkflow(
        name="reports/render",
        steps={"render": _too_slow},
        retries=1,
        labels=("reports",),
        settings={"Timeout": "1s"},
        failure_function=FAILURE_FUNCTION,
    ),
    SampleWorkflow(
        name="media/thumbnail",
        steps={"scale": _responds_with("binary_image", "latin1_text", "utf16_text")},
    ),
    SampleWorkflow(
        name="exports/bulk",
        steps={"write": _responds_with("json_rate_limit")},
        labels=("bulk",),
        settings={
            "Flow-Control-Key": "tenant-bulk",
            "Flow-Control-Value": "parallelism=8",
        },
    ),
    SampleWorkflow(
        name="payments/capture",
        steps={
            "reserve": _reserve,
            "confirm": _responds_with("go_panic", "java_caused_by"),
        },
        labels=("payments", "priority"),
        failure_function=FAILURE_FUNCTION,
    ),
    SampleWorkflow(
        name="ledger/post",
        steps={"insert": _responds_with("python_chained", "text_disk")},
        labels=("finance",),
    ),
    SampleWorkflow(
        name="accounts/remove", steps={"look up": _not_retriable}, labels=("eu",)
    ),
)
"""All workflows of the application."""
